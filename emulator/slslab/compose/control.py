"""Serve the emulator's own API under /slslab/, next to Lambda's: describe the stack, and record its functions.

`slslab run --stack compose` and `slslab status` are its clients (`slslab.compose.client`). A recording is a streamed
response with one JSON object per line: the records of a run's trace log as they happen, but only from functions that
its client has named. Only one recording runs at a time, because all runs would share the stack's databases and queue.

    GET    /slslab/health                      200 when everything answers
    GET    /slslab/about                       version, host, services with their addresses
    POST   /slslab/recordings                  {"run", "by", "tensor_databases", "channel"}: begins one
    POST   /slslab/recordings/ID/resources     {"kind": "function" | "bucket" | "machine" | "table", "name"}: adds one
    POST   /slslab/recordings/ID/instances     {"module", "code", "events", "variables", "fleet"}: launches instances
    DELETE /slslab/recordings/ID/instances     ends the running ones
    DELETE /slslab/recordings/ID               ends it; its last lines, with the logs, are sent after its removals

A recording also ends when its client disconnects. At the end, named resources that still exist are removed. Refusals
have a message and a hint: status 400 for a wrong body, 409 for a recording that can't begin or continue.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from inspect import signature
from typing import Any

from pydantic import NonNegativeInt, TypeAdapter, ValidationError, validate_call
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from slslab.compose.network import HOST, Network
from slslab.compose.recording import Recording
from slslab.compose.services import Service, examine
from slslab.errors import HostError
from slslab.installation import __version__
from slslab.lambda_.emulator import Emulator
from slslab.run.events import clock_domain

LEAVE_LIMIT_S = 1.0
BODY = TypeAdapter(dict[str, Any])
# Called with the members of a request's body; it returns a response, or the answer's JSON.
Method = Callable[..., Awaitable[Any]]


class Control:
    """The API on one emulator; its handlers run on the emulator's own thread."""

    def __init__(self, emulator: Emulator, network: Network) -> None:
        self._emulator = emulator
        self._network = network
        self._recording: Recording | None = None

    def routes(self) -> list[BaseRoute]:
        """Return the routes to be served next to Lambda's API."""
        recording = "/slslab/recordings/{id}"
        methods: list[tuple[str, str, Callable[[Request], Method]]] = [
            ("POST", "/slslab/recordings", lambda _request: self._record),
            ("POST", f"{recording}/resources", partial(self._recorded, "name")),
            ("POST", f"{recording}/instances", partial(self._recorded, "launch")),
            ("DELETE", f"{recording}/instances", partial(self._recorded, "end_instances")),
            ("DELETE", recording, partial(self._recorded, "end")),
        ]
        return [
            Route("/slslab/health", self._health, methods=["GET"]),
            Route("/slslab/about", self._about, methods=["GET"]),
            *(Route(path, partial(_answer, find), methods=[verb]) for verb, path, find in methods),
        ]

    async def _health(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok", "version": __version__})

    async def _about(self, _request: Request) -> Response:
        emulator, recording = self._emulator, self._running()
        return JSONResponse(
            {
                "version": __version__,
                "emulator": emulator.id,
                "clock": clock_domain(),
                "environment": self._network.environment,
                "image": None if emulator.containers is None else emulator.containers.image,
                **emulator.host(),
                "memory_budget_mb": emulator.budget_mb,
                "services": [service.as_document() for service in await asyncio.to_thread(self._services)],
                "recording": None if recording is None else {"run": recording.run, "by": recording.by},
            }
        )

    def _services(self) -> list[Service]:
        port = self._network.ports["lambda"][0] or int(self._emulator.endpoint.rpartition(":")[2])
        emulator = Service(
            "lambda",
            f"slslab {__version__} with awslambdaric {version('awslambdaric')}",
            self._network.advertise or self._emulator.endpoint,
            f"http://{HOST}:{port}",
        )
        return [emulator, *examine(self._network.inside(), self._network.outside())]

    @validate_call
    async def _record(self, run: str, by: str, tensor_databases: NonNegativeInt, channel: str = "") -> Response:
        """Begin a recording: empty the servers that it uses, then stream records until it ends."""
        while (other := self._running()) is not None:
            # Its client may just have hung up, which the event loop may notice after this request.
            with suppress(TimeoutError):
                await asyncio.wait_for(other.leaving.wait(), LEAVE_LIMIT_S)
            if not other.leaving.is_set():
                raise HostError(
                    f"The run {other.run} of {other.by} uses this stack.", "wait until it ends, or run `slslab status`."
                )
            await other.end()
        recording = self._recording = Recording(self._emulator, self._network, run, by)
        try:
            await recording.begin(tensor_databases, channel)
        except BaseException:
            await recording.end()
            raise
        ending = BackgroundTask(recording.end)  # also if the client has disconnected
        return StreamingResponse(recording.lines(), media_type="application/x-ndjson", background=ending)

    def _running(self) -> Recording | None:
        return None if self._recording is None or self._recording.ending.done() else self._recording

    def _recorded(self, name: str, request: Request) -> Method:
        """Return a method of the request's recording; HostError if that has ended, or will and nothing may be added."""
        recording, adds = self._running(), request.method == "POST"
        if recording is None or recording.id != request.path_params["id"] or (adds and recording.leaving.is_set()):
            raise HostError("This recording does not exist or has ended.", "run `slslab status` to see the stack.")
        method: Method = getattr(recording, name)
        return method


async def _answer(find: Callable[[Request], Method], request: Request) -> Response:
    """Call the method that is found for a request with the members of the body."""
    try:
        body = BODY.validate_json(await request.body() or b"{}")
        method = find(request)
        try:
            signature(method).bind(**body)
        except TypeError as error:
            return _wrong(error)
        answer = await method(**body)
    except HostError as error:
        return JSONResponse({"message": error.message, "hint": error.hint}, status_code=409)
    except ValidationError as error:
        return _wrong(error)
    return answer if isinstance(answer, Response) else JSONResponse(answer)


def _wrong(error: Exception) -> Response:
    hint = "use the same version of slslab as the emulator."
    return JSONResponse({"message": f"The request is wrong: {error}", "hint": hint}, status_code=400)
