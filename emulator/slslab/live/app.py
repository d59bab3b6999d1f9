"""The server's pages over HTTP: for this host's browser alone, which must call it by a name of this host."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from slslab.errors import SlslabError
from slslab.live.changes import Changes
from slslab.live.views import RUNNING, Views, static
from slslab.reports.html.parts import Live
from slslab.runs import RunDirectory

# Names of this host; under any other name a page of somebody else's could have reached here (DNS rebinding).
HOSTS = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)
# Time alone changes some figures of a run that goes on, and tells whether anybody still listens.
PULSE_S = 15.0
RETRY_MS = 2000
NO_OTHERS = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
OWN_FILES = f"{NO_OTHERS}; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:"
# A run's page names what it runs by hashes in a policy of its own; that ancestors are refused counts in a header alone.
OWN_POLICY = "frame-ancestors 'none'"
HEADERS = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
TYPES = {"js": "text/javascript", "css": "text/css"}


class Pages:
    """The application over a folder of runs."""

    def __init__(self, views: Views, changes: Changes) -> None:
        self._views = views
        self._changes = changes

    def application(self) -> ASGIApp:
        """The application, which answers requests to names of this host alone."""
        routes = [
            Route("/", self._runs),
            Route("/list", self._list),
            Route("/events", self._events),
            Route("/runs/{id}", self._run),
            Route("/runs/{id}/content", self._content),
            Route("/runs/{id}/events", self._run_events),
            Route("/static/{name}", self._static),
        ]
        return own_host(Starlette(routes=routes, exception_handlers={404: self._nothing}))

    async def _runs(self, _: Request) -> Response:
        return await self._html(self._views.runs, OWN_FILES)

    async def _list(self, _: Request) -> Response:
        return await self._html(self._views.table, NO_OTHERS)

    async def _events(self, _: Request) -> Response:
        return _stream(self._tell("", _nothing))

    async def _run(self, request: Request) -> Response:
        async def show(run: RunDirectory, id_: str) -> Response:
            path = f"/runs/{quote(id_, safe='')}"
            return await self._html(
                lambda: self._views.page(run, Live(f"{path}/content", f"{path}/events")), OWN_POLICY
            )

        return await self._found(request, show)

    async def _content(self, request: Request) -> Response:
        async def show(run: RunDirectory, _: str) -> Response:
            return await self._html(lambda: self._views.content(run), NO_OTHERS)

        return await self._found(request, show)

    async def _run_events(self, request: Request) -> Response:
        async def show(run: RunDirectory, _: str) -> Response:
            return _stream(self._tell(run.path.name, run.status))

        return await self._found(request, show)

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        text = static(name)
        if text is None:
            return self._refused(404, "There is no such page.", "The list of runs has them all.")
        return Response(text, media_type=TYPES[name.rpartition(".")[2]], headers=HEADERS)

    async def _nothing(self, _: Request, __: Exception) -> Response:
        return self._refused(404, "There is no such page.", "The list of runs has them all.")

    async def _found(self, request: Request, show: Callable[[RunDirectory, str], Awaitable[Response]]) -> Response:
        id_ = request.path_params["id"]
        run = await run_in_threadpool(self._views.find, id_)
        if run is None:
            return self._refused(404, f"There is no run {id_}.", "The list of runs has them all.")
        return await show(run, id_)

    async def _html(self, make: Callable[[], str], policy: str) -> Response:
        """A page, made beside the loop; one sentence if that cannot be."""
        try:
            text = await run_in_threadpool(make)
        except SlslabError as error:
            return self._refused(500, error.message, error.hint)
        except FileNotFoundError:
            return self._refused(404, "The run is gone.", "Somebody has removed its files.")
        return HTMLResponse(text, headers={**HEADERS, "content-security-policy": policy})

    def _refused(self, status: int, message: str, hint: str) -> Response:
        headers = {**HEADERS, "content-security-policy": OWN_FILES}
        return HTMLResponse(self._views.trouble(message, hint), status, headers)

    async def _tell(self, name: str, status: Callable[[], str]) -> AsyncIterator[str]:
        """Server-sent events: `changed` with the run's status, at once, whenever it is so and in any case from time to
        time, until the run ends."""
        with self._changes.subscribe(name) as changed:
            yield f"retry: {RETRY_MS}\n\n"
            while not self._changes.over:
                said = await run_in_threadpool(status)
                yield f"event: changed\ndata: {said}\n\n"
                if said not in ("", RUNNING):
                    return
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), PULSE_S)
                changed.clear()


def _nothing() -> str:
    return ""


def _stream(lines: AsyncIterator[str]) -> Response:
    return StreamingResponse(lines, media_type="text/event-stream", headers=HEADERS)


def own_host(application: ASGIApp) -> ASGIApp:
    """The application for requests that call this host by a name of its own."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _own(dict(scope["headers"])):
            message = "This server answers to 127.0.0.1, localhost and [::1] alone."
            await Response(message, 421, HEADERS, "text/plain")(scope, receive, send)
            return
        await application(scope, receive, send)

    return guard


def _own(headers: Mapping[bytes, bytes]) -> bool:
    return HOSTS.fullmatch(headers.get(b"host", b"").decode("latin-1")) is not None
