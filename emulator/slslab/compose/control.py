"""Serve the emulator's own API under /slslab/, next to Lambda's: describe the stack, and record its functions.

`slslab run --stack compose` and `slslab status` are its clients (`slslab.compose.client`). A recording is a streamed
response with one JSON object per line: the records of a run's trace log as they happen, but only from functions that
its client has named. Only one recording runs at a time, because all runs would share the stack's databases and queue.

    GET    /slslab/health                      200 when everything answers
    GET    /slslab/about                       version, limits, host, services with their addresses
    POST   /slslab/recordings                  {"run", "by", "tensor_databases", "channel"}: begins one; 409 if one runs
    POST   /slslab/recordings/ID/resources     {"kind": "function" | "bucket" | "machine" | "table", "name"}: adds one
    POST   /slslab/recordings/ID/instances     {"module", "code", "events", "variables", "fleet"}: launches instances
    DELETE /slslab/recordings/ID/instances     ends the running ones
    DELETE /slslab/recordings/ID               ends it; its last line is sent after removing its resources
    GET    /slslab/logs/ENVIRONMENT            a function's log

A recording also ends when its client disconnects. At the end, named resources that still exist are removed.
`Following` watches a channel's server during a recording, and passes on the events of a parameter server.
"""

import asyncio
import base64
import json
import logging
import re
import secrets
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit

import botocore.exceptions
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from slslab.aws.arns import REGION
from slslab.compose.network import CHANNELS, HOST, Network
from slslab.compose.services import ANSWER_S, UNANSWERED, Service, empty, examine, server_information
from slslab.errors import HostError
from slslab.installation import __version__
from slslab.lambda_.emulator import Emulator
from slslab.lambda_.packages import NO_ARCHIVE, unpacked
from slslab.run.events import clock_domain
from slslab.run.records import InvocationRecord
from slslab_workers.architecture import Fleet, RunFailed
from slslab_workers.channels.endpoints import CHANNEL_URL, TENSOR_URLS

if TYPE_CHECKING:  # only containers need the engine's client
    from slslab.stack.instances.containers import ContainerFleet

SCHEMA = 1
KINDS = ("function", "bucket", "machine", "table")
NO_RECORDING = "This recording does not exist or has ended."
# A service that hangs must not keep the stack from the next run.
REMOVAL_ANSWER_S = 60.0
LEAVE_LIMIT_S = 1.0
# It takes 9 seconds to notice that a server's host has vanished.
KEEPALIVE = {socket.TCP_KEEPIDLE: 3, socket.TCP_KEEPINTVL: 2, socket.TCP_KEEPCNT: 3}
LOG = logging.getLogger(__name__)


@dataclass(eq=False)
class Following:
    """A connection to a server, which stays silent until it ends; a parameter server writes its events to it.

    `on_record` receives them, and a record `failed` (a RunFailed) if the server ends before `close`.
    """

    channel: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    on_record: Callable[[dict[str, Any]], None]

    def __post_init__(self) -> None:
        self._closing = False
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def begin(cls, channel: str, address: str, on_record: Callable[[dict[str, Any]], None]) -> Self:
        """Connect to a channel's server, and empty it if it is a parameter server; OSError or ValueError on failure."""
        parts = urlsplit(address)
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            try:
                connection = writer.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for name, value in KEEPALIVE.items():
                    connection.setsockopt(socket.IPPROTO_TCP, name, value)
                if parts.scheme == "parameter":
                    writer.write(f"token {unquote(parts.password or '')}\r\nrecord\r\n".encode())
                    for _ in range(2):
                        if (line := await reader.readline()) != b"ok\r\n":
                            raise ValueError(f"the server answers {line.decode(errors='replace').strip()}")
            except BaseException:
                writer.close()
                raise
        return cls(channel, reader, writer, on_record)

    async def close(self) -> None:
        """Announce that no requests will follow, and wait until the server has written everything and closes, too."""
        self._closing = True
        with suppress(OSError, RuntimeError):  # it has ended
            self.writer.write_eof()
        await asyncio.wait([self._reading], timeout=ANSWER_S)
        self._reading.cancel()
        self.writer.close()

    async def _read(self) -> None:
        with suppress(OSError, ValueError):  # it broke, perhaps within a line
            while line := await self.reader.readline():
                self.on_record(json.loads(line))
        if not self._closing:
            name = self.channel.removesuffix("-server")
            message = f"the {name} server ended"
            self.on_record({"record": "failed", **vars(RunFailed("StackFailed", message))})


@dataclass(eq=False)
class Recording:
    """A recording in progress; `by` is its client, `resources` are names by kind."""

    run: str
    by: str
    cpu_seconds: float
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    resources: dict[str, set[str]] = field(default_factory=lambda: {kind: set() for kind in KINDS})
    records: "asyncio.Queue[dict[str, Any]]" = field(default_factory=asyncio.Queue)
    ending: "asyncio.Task[None] | None" = None
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    listening: ExitStack = field(default_factory=ExitStack)
    fleet: "ContainerFleet | None" = None
    channel: Following | None = None

    def event(self, record: dict[str, Any]) -> None:
        """Take a trace record from the emulator, if it belongs to the run."""
        # Samples of an environment's clock have only its name, function and number.
        function = record.get("function") or record["environment"].rpartition("-")[0]
        if function in self.resources["function"]:
            self.records.put_nowait(record)

    def invocation(self, record: InvocationRecord) -> None:
        """Take a metered invocation, if it belongs to the run."""
        if record.function in self.resources["function"]:
            self.records.put_nowait(record.as_record())

    async def leaves(self) -> bool:
        """Return whether it has ended or is about to."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.leaving.wait(), LEAVE_LIMIT_S)
        return self.leaving.is_set()

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the records as they arrive, until the recording's end."""
        while True:
            records = [await self.records.get()]
            while not self.records.empty():
                records.append(self.records.get_nowait())
            yield b"".join(json.dumps(record, separators=(",", ":")).encode() + b"\n" for record in records)
            if records[-1]["record"] == "end":
                return


class Control:
    """The API on one emulator; its handlers run on the emulator's own thread."""

    def __init__(self, emulator: Emulator, network: Network) -> None:
        self._emulator = emulator
        self._network = network
        self._recording: Recording | None = None

    def routes(self) -> list[BaseRoute]:
        """Return the routes to be served next to Lambda's API."""
        return [
            Route("/slslab/health", self._health, methods=["GET"]),
            Route("/slslab/about", self._about, methods=["GET"]),
            Route("/slslab/recordings", self._record, methods=["POST"]),
            Route("/slslab/recordings/{id}/resources", self._name, methods=["POST"]),
            Route("/slslab/recordings/{id}/instances", self._launch, methods=["POST"]),
            Route("/slslab/recordings/{id}/instances", self._end_instances, methods=["DELETE"]),
            Route("/slslab/recordings/{id}", self._finish, methods=["DELETE"]),
            Route("/slslab/logs/{environment}", self._log, methods=["GET"]),
        ]

    async def _health(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok", "version": __version__})

    async def _about(self, _request: Request) -> Response:
        emulator, recording = self._emulator, self._recording
        return JSONResponse(
            {
                "schema": SCHEMA,
                "version": __version__,
                "emulator": emulator.id,
                "clock": clock_domain(),
                "environment": self._network.environment,
                "image": None if emulator.containers is None else emulator.containers.image,
                "limits": asdict(emulator.limits),
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

    async def _record(self, request: Request) -> Response:
        """Begin a recording: empty the servers that it uses, then stream records until it ends."""
        body = await _body(request)
        run, by, databases = body.get("run"), body.get("by"), body.get("tensor_databases")
        channel = str(body.get("channel"))
        address = self._network.addresses.get(channel, ("",))[0] if channel in CHANNELS else ""
        if not (isinstance(run, str) and isinstance(by, str) and isinstance(databases, int) and databases >= 0):
            return _refused(400, "A recording needs `run`, `by` and a number of `tensor_databases`.")
        while (other := self._recording) is not None:
            # Its client may just have hung up, which the event loop may notice after this request.
            if other.ending is None and not await other.leaves():
                return _refused(409, f"The run {other.run} of {other.by} uses this stack.")
            assert other.ending is not None
            await asyncio.shield(other.ending)
        recording = self._recording = Recording(run, by, self._emulator.cpu_seconds())
        try:
            replicas = await asyncio.to_thread(self._emptied, databases)
            if address:
                await asyncio.to_thread(empty, address)
                recording.channel = await Following.begin(channel, address, recording.records.put_nowait)
        except UNANSWERED as error:
            self._recording = None
            return _refused(503, f"A tensor database or the channel's server cannot be used: {error}.")
        except BaseException:
            self._recording = None
            raise
        self._emulator.add_variables({TENSOR_URLS: " ".join(replicas), CHANNEL_URL: address})
        self._emulator.packages.largest_bytes = 0
        recording.listening.enter_context(self._emulator.listening(recording.event, recording.invocation))
        recording.records.put_nowait({"record": "recording", "id": recording.id, "tensors": replicas})
        return StreamingResponse(
            recording.lines(),
            media_type="application/x-ndjson",
            background=BackgroundTask(self._end, recording),  # also if the client has disconnected
        )

    def _emptied(self, count: int) -> dict[str, str]:
        """Empty the first `count` tensor databases; return the id of every server's run by its address."""
        replicas: dict[str, str] = {}
        for number, url in enumerate(self._network.tensor_urls()):
            replicas[url] = server_information(url)["run_id"]
            if number < count:
                empty(url)
        return replicas

    async def _name(self, request: Request) -> Response:
        body = await _body(request)
        kind, name, recording = body.get("kind"), body.get("name"), self._recorded(request)
        if recording is None or recording.ending is not None:
            return _refused(404, NO_RECORDING)
        if kind not in KINDS or not isinstance(name, str):
            return _refused(400, f"A resource needs a `name` and a `kind`: {', '.join(KINDS)}.")
        recording.resources[kind].add(name)
        return Response(status_code=204)

    async def _launch(self, request: Request) -> Response:
        body, recording = await _body(request), self._recorded(request)
        if recording is None or recording.ending is not None:
            return _refused(404, NO_RECORDING)
        containers = self._emulator.containers
        if containers is None:
            return _refused(409, "This emulator does not launch instances.")
        instances = _parse_launch(body)
        if instances is None:
            return _refused(
                400, "A launch needs a module, code, events, variables (texts), an instance_type and a device."
            )
        from slslab.stack.instances.containers import ContainerFleet

        home = self._emulator.home / "instances" / secrets.token_hex(8)
        try:
            code = await asyncio.to_thread(unpacked, base64.b64decode(body["code"], validate=True), home / "code")
        except NO_ARCHIVE:
            await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)
            return _refused(400, "The code of a launch is not a zip archive in Base64.")
        if recording.fleet is not None or recording.ending is not None:  # it may have changed meanwhile
            await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)
            return _refused(409, "The recording has instances already, or has ended.")
        recording.fleet = ContainerFleet(
            containers,
            instances,
            home=home,
            logs=self._emulator.logs,
            code=code,
            variables={**self._network.client_environment(), "AWS_REGION": REGION, **body["variables"]},
            on_event=recording.records.put_nowait,
        )
        try:
            devices = await recording.fleet.launch(body["module"], body["events"])
        except BaseException as error:
            await self._end_fleet(recording)
            if isinstance(error, HostError):
                return JSONResponse({"message": error.message, "hint": error.hint}, status_code=409)
            raise
        return JSONResponse({"devices": devices})

    async def _end_instances(self, request: Request) -> Response:
        if (recording := self._recorded(request)) is None:
            return _refused(404, NO_RECORDING)
        await self._end_fleet(recording)
        return Response(status_code=204)

    async def _end_fleet(self, recording: Recording) -> None:
        fleet = recording.fleet
        if fleet is None:
            return
        try:
            await fleet.end()
        finally:
            await asyncio.to_thread(shutil.rmtree, fleet.home, ignore_errors=True)
            if recording.fleet is fleet:  # another caller may have waited for the same end
                recording.fleet = None

    async def _finish(self, request: Request) -> Response:
        if (recording := self._recorded(request)) is None:
            return _refused(404, NO_RECORDING)
        await self._end(recording)
        return Response(status_code=204)

    def _recorded(self, request: Request) -> Recording | None:
        recording = self._recording
        return recording if recording is not None and recording.id == request.path_params["id"] else None

    async def _end(self, recording: Recording) -> None:
        if recording.ending is None:
            recording.ending = asyncio.ensure_future(self._ended(recording))
            recording.leaving.set()
        await asyncio.shield(recording.ending)

    async def _ended(self, recording: Recording) -> None:
        resources = recording.resources
        try:
            try:
                await self._end_fleet(recording)
            except OSError as error:  # the engine's error; the remaining instances end with the emulator
                LOG.error("the instances of a run could not be ended: %s", error)
            # Callers before the functions they call, and the bucket last: functions write to it until they have ended.
            await asyncio.to_thread(self._remove, "stepfunctions", _remove_machines, resources["machine"])
            await asyncio.to_thread(self._remove, "lambda", _remove_functions, resources["function"])
            await self._emulator.service.end(resources["function"])
            await asyncio.to_thread(self._remove, "s3", _remove_buckets, resources["bucket"])
            await asyncio.to_thread(self._remove, "dynamodb", _remove_tables, resources["table"])
        finally:
            if recording.channel is not None:
                await recording.channel.close()
            recording.listening.close()
            used = round(self._emulator.cpu_seconds() - recording.cpu_seconds, 3)
            recording.records.put_nowait(
                {"record": "end", "cpu_seconds": used, "package": self._emulator.packages.sizes()}
            )
            self._recording = None

    def _remove(self, service: str, remove: Callable[[Any, set[str]], None], names: set[str]) -> None:
        if not names:
            return
        with closing(self._emulator.client(service, read_timeout=REMOVAL_ANSWER_S)) as client:
            try:
                remove(client, names)
            except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError) as error:
                LOG.error("the resources of a run at %s could not be removed: %s", service, error)

    async def _log(self, request: Request) -> Response:
        environment = request.path_params["environment"]
        path = self._emulator.logs / f"{environment}.log"
        if not re.fullmatch(r"[\w-]+", environment) or not path.exists():
            return _refused(404, f"The environment {environment!r} has no log.")
        return PlainTextResponse(await asyncio.to_thread(path.read_bytes))


def _remove_machines(client: Any, names: set[str]) -> None:
    pages = client.get_paginator("list_state_machines").paginate()
    for arn in [m["stateMachineArn"] for page in pages for m in page["stateMachines"] if m["name"] in names]:
        running = client.get_paginator("list_executions").paginate(stateMachineArn=arn, statusFilter="RUNNING")
        for execution in [execution for page in running for execution in page["executions"]]:
            client.stop_execution(executionArn=execution["executionArn"])
        client.delete_state_machine(stateMachineArn=arn)


def _remove_functions(client: Any, names: set[str]) -> None:
    pages = client.get_paginator("list_functions").paginate()
    for name in names & {function["FunctionName"] for page in pages for function in page["Functions"]}:
        client.delete_function(FunctionName=name)


def _remove_buckets(client: Any, names: set[str]) -> None:
    for name in names & {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}:
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=name):
            if entries := [{"Key": entry["Key"]} for entry in page.get("Contents", [])]:
                client.delete_objects(Bucket=name, Delete={"Objects": entries, "Quiet": True})
        client.delete_bucket(Bucket=name)


def _remove_tables(client: Any, names: set[str]) -> None:
    pages = client.get_paginator("list_tables").paginate()
    for name in names & {name for page in pages for name in page["TableNames"]}:
        client.delete_table(TableName=name)


def _parse_launch(body: Mapping[str, Any]) -> Fleet | None:
    module, code, events = body.get("module"), body.get("code"), body.get("events")
    variables, fleet = body.get("variables"), body.get("fleet")
    if not (isinstance(module, str) and isinstance(code, str) and isinstance(events, list)):
        return None
    if not (all(isinstance(event, dict) for event in events) and _texts(variables) and _texts(fleet)):
        return None
    assert fleet is not None
    return Fleet(**fleet) if fleet.keys() == {"instance_type", "device"} else None


def _texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


async def _body(request: Request) -> Mapping[str, Any]:
    try:
        body = await request.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _refused(status: int, message: str) -> Response:
    return JSONResponse({"message": message}, status_code=status)
