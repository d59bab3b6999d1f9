"""The server's pages over HTTP, only for a browser on this host that uses its host name and has its token."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from slslab.aws.gate import Gate
from slslab.errors import RequestError, SlslabError
from slslab.run.directory import RunDirectory
from slslab_lab.pages.live.changes import Changes
from slslab_lab.pages.live.lock import HEADERS, Lock
from slslab_lab.pages.live.views import RUNNING, Views

# Some figures of a running run change with time; writing also detects a closed browser.
PULSE_S = 15.0
RETRY_MS = 2000
NO_OTHERS = "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
# Whole pages set their own policies with hashes; browsers accept frame-ancestors only in a header.
OWN_POLICY = "frame-ancestors 'none'"
LOCKED = "Open the address that slslab serve printed; it has a token."
LOCKED_HINT = "Every start has a new token: if the address is lost, stop slslab serve and start it again."


class Pages:
    """The application over a folder of runs."""

    def __init__(self, views: Views, changes: Changes) -> None:
        self._views = views
        self._changes = changes

    def application(self, token: str, port: int) -> ASGIApp:
        """Return the application on a port. It doesn't answer other web sites' pages, or requests without the token."""
        routes = [
            Route("/", self._page(lambda _: self._views.runs(), OWN_POLICY)),
            Route("/list", self._page(lambda _: self._views.table(), NO_OTHERS)),
            Route("/events", self._events),
            Route("/compare", self._page(self._compare, OWN_POLICY)),
            Route("/runs/{id}", self._page(self._run, OWN_POLICY)),
            Route("/runs/{id}/content", self._page(lambda asked: self._views.content(self._find(asked)), NO_OTHERS)),
            Route("/runs/{id}/events", self._events),
        ]
        pages = Starlette(routes=routes, exception_handlers={404: self._not_found})
        return Gate(Lock(pages, token, port, self._refused(403, LOCKED, LOCKED_HINT)))

    def _compare(self, request: Request) -> str:
        return self._views.comparison(request.query_params.getlist("run"))

    def _run(self, request: Request) -> str:
        path = f"/runs/{quote(request.path_params['id'], safe='')}"
        return self._views.page(self._find(request), path)

    def _find(self, request: Request) -> RunDirectory:
        run = self._views.find(request.path_params["id"])
        if run is None:
            raise HTTPException(404, f"There is no run {request.path_params['id']}.")
        return run

    async def _events(self, request: Request) -> Response:
        run = await run_in_threadpool(self._find, request) if "id" in request.path_params else None
        changes = self._changes_of("", lambda: "") if run is None else self._changes_of(run.path.name, run.status)
        return StreamingResponse(changes, media_type="text/event-stream", headers=HEADERS)

    async def _not_found(self, _: Request, error: Exception) -> Response:
        # Starlette's own errors contain the status's phrase.
        message = str(getattr(error, "detail", "")).replace("Not Found", "There is no such page.")
        return self._refused(404, message, "The list of runs has links to all pages.")

    def _page(self, make: Callable[[Request], str], policy: str) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                text = await run_in_threadpool(make, request)
            except RequestError as error:
                return self._refused(400, error.message, error.hint)
            except SlslabError as error:
                return self._refused(500, error.message, error.hint)
            except FileNotFoundError:
                return self._refused(404, "The run is gone.", "Its files were removed.")
            return HTMLResponse(text, headers={**HEADERS, "content-security-policy": policy})

        return answer

    def _refused(self, status: int, message: str, hint: str) -> Response:
        headers = {**HEADERS, "content-security-policy": OWN_POLICY}
        return HTMLResponse(self._views.trouble(message, hint), status, headers)

    async def _changes_of(self, name: str, status: Callable[[], str]) -> AsyncIterator[str]:
        """Yield server-sent events until the run ends: `changed` with its status, at once, after every change, and from
        time to time."""
        with self._changes.subscribe(name) as changed:
            yield f"retry: {RETRY_MS}\n\n"
            while not self._changes.over:
                current = await run_in_threadpool(status)
                yield f"event: changed\ndata: {current}\n\n"
                if current not in ("", RUNNING):
                    return
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), PULSE_S)
                changed.clear()
