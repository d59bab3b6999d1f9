"""Record what a compose stack does for one run, and remove what the run leaves.

`Following` watches a channel's server during a recording, and passes on the events of a parameter server.
"""

import asyncio
import base64
import json
import logging
import secrets
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from urllib.parse import unquote, urlsplit

import botocore.exceptions
from pydantic import BeforeValidator, StrictStr, TypeAdapter, validate_call

from slslab.aws.arns import ACCOUNT, REGION
from slslab.compose.network import CHANNELS, Network
from slslab.compose.services import ANSWER_S, UNANSWERED, empty, server_information
from slslab.errors import HostError
from slslab.lambda_.emulator import Emulator
from slslab.lambda_.packages import NO_ARCHIVE, unpacked
from slslab.run.records import InvocationRecord
from slslab_workers.architecture import Fleet, RunFailed
from slslab_workers.channels.endpoints import CHANNEL_URL, TENSOR_URLS

if TYPE_CHECKING:  # only containers need the engine's client
    from slslab.stack.instances.containers import ContainerFleet

# A whole log of 256 MB would block the event loop for seconds.
PIECE_BYTES = 1 << 20
# A service that hangs must not keep the stack from the next run.
REMOVAL_ANSWER_S = 60.0
# It takes 9 seconds to notice that a server's host has vanished.
KEEPALIVE = {socket.TCP_KEEPIDLE: 3, socket.TCP_KEEPINTVL: 2, socket.TCP_KEEPCNT: 3}
# What services answer about a resource that the run has removed itself.
REMOVED = ("StateMachineDoesNotExist", "ResourceNotFoundException", "NoSuchBucket")
LOG = logging.getLogger(__name__)
TEXT = TypeAdapter(StrictStr)


def _decoded(text: Any) -> bytes:
    return base64.b64decode(TEXT.validate_python(text), validate=True)


# Pydantic's Base64Bytes ignores characters that aren't Base64.
Archive = Annotated[bytes, BeforeValidator(_decoded)]


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


class Recording:
    """The recording of a `run` by the client `by`, with the records of the functions that the client has named.

    Its methods belong to the emulator's event loop, and check arguments that come from outside. `leaving` is set when
    it begins to end, and `ending` is done when everything that was named is removed.
    """

    def __init__(self, emulator: Emulator, network: Network, run: str, by: str) -> None:
        self.run, self.by, self.id = run, by, secrets.token_hex(8)
        self.leaving = asyncio.Event()
        self.ending = asyncio.ensure_future(self._end())
        self._emulator, self._network = emulator, network
        self._cpu_seconds = emulator.cpu_seconds()
        self._names: dict[str, set[str]] = {kind: set() for kind in REMOVALS}
        self._records: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._environments: dict[str, None] = {}
        self._listening = ExitStack()
        self._fleet: ContainerFleet | None = None
        self._channel: Following | None = None

    async def begin(self, databases: int, channel: str) -> None:
        """Empty this many tensor databases and the channel's server, and record from now on.

        HostError if one of them can't be used.
        """
        address = self._network.addresses.get(channel, ("",))[0] if channel in CHANNELS else ""
        try:
            tensors = await asyncio.to_thread(self._emptied, databases)
            if address:
                await asyncio.to_thread(empty, address)
                self._channel = await Following.begin(channel, address, self._record)
        except UNANSWERED as error:
            raise HostError(
                f"A tensor database or the channel's server cannot be used: {error}.",
                "see `docker compose ps` and `docker compose logs`.",
            ) from error
        self._emulator.add_variables({TENSOR_URLS: " ".join(tensors), CHANNEL_URL: address})
        self._emulator.packages.largest_bytes = 0
        self._listening.enter_context(self._emulator.listening(self._event, self._invocation))
        self._records.put_nowait({"record": "recording", "id": self.id, "tensors": tensors})

    @validate_call
    async def name(self, kind: Literal["function", "bucket", "machine", "table"], name: str) -> None:
        """Add a resource of the run."""
        self._names[kind].add(name)

    @validate_call(config={"extra": "forbid"})
    async def launch(
        self, fleet: Fleet, module: str, code: Archive, events: list[dict[str, Any]], variables: dict[str, str]
    ) -> dict[str, Any]:
        """Launch instances with code, a zip archive in Base64; return their `devices`. HostError if that fails."""
        if self._emulator.containers is None:
            raise HostError(
                "The emulator can't launch instances, because it doesn't run containers.",
                "--stack embedded launches them as processes on this host.",
            )
        if self._fleet is not None:
            raise HostError("The recording has instances already.", "end them before you launch others.")
        from slslab.stack.instances.containers import ContainerFleet

        home = self._emulator.home / "instances" / secrets.token_hex(8)
        launched = self._fleet = ContainerFleet(
            self._emulator.containers,
            fleet,
            home=home,
            logs=self._emulator.logs,
            code=home / "code",
            variables={**self._network.client_environment(), "AWS_REGION": REGION, **variables},
            on_event=self._record,
        )
        try:
            try:
                await asyncio.to_thread(unpacked, code, launched.code)
            except NO_ARCHIVE as error:
                raise HostError(
                    f"The code of a launch is not a zip archive: {error}.", "send a zip archive in Base64."
                ) from error
            return {"devices": await launched.launch(module, events)}
        except BaseException:
            await self._end_fleet(launched)
            raise

    async def end_instances(self) -> None:
        """End the running instances."""
        if self._fleet is not None:
            await self._end_fleet(self._fleet)

    async def end(self) -> None:
        """End it, and return when everything that was named is removed."""
        self.leaving.set()
        await asyncio.shield(self.ending)

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the records as they arrive, at the end with the logs of all environments and instances."""
        while True:
            records = [await self._records.get()]
            while not self._records.empty():
                records.append(self._records.get_nowait())
            if last := records[-1]["record"] == "end":
                for environment in self._environments:
                    path = self._emulator.logs / f"{environment}.log"
                    if path.exists():
                        pieces = _log_lines(environment, path)
                        while piece := await asyncio.to_thread(next, pieces, b""):
                            yield piece
            yield b"".join(map(_line, records))
            if last:
                return

    def _emptied(self, count: int) -> dict[str, str]:
        """Empty the first `count` tensor databases; return the id of every server's run by its address."""
        replicas: dict[str, str] = {}
        for number, url in enumerate(self._network.tensor_urls()):
            replicas[url] = server_information(url)["run_id"]
            if number < count:
                empty(url)
        return replicas

    def _event(self, record: dict[str, Any]) -> None:
        # Samples of an environment's clock have only its name, function and number.
        function = record.get("function") or record["environment"].rpartition("-")[0]
        if function in self._names["function"]:
            self._record(record)

    def _invocation(self, record: InvocationRecord) -> None:
        if record.function in self._names["function"]:
            self._record(record.as_record())

    def _record(self, record: dict[str, Any]) -> None:
        if name := record.get("environment") or record.get("id"):  # an instance's log has its id
            self._environments[name] = None
        self._records.put_nowait(record)

    async def _end_fleet(self, fleet: "ContainerFleet") -> None:
        try:
            await fleet.end()
        finally:
            await asyncio.to_thread(shutil.rmtree, fleet.home, ignore_errors=True)
            if self._fleet is fleet:  # another caller may have waited for the same end
                self._fleet = None

    async def _end(self) -> None:
        await self.leaving.wait()
        try:
            try:
                await self.end_instances()
            except OSError as error:  # the engine's error; the remaining instances end with the emulator
                LOG.error("the instances of a run could not be ended: %s", error)
            for kind, (service, remove) in REMOVALS.items():
                await asyncio.to_thread(self._remove, service, remove, self._names[kind])
                if kind == "function":
                    await self._emulator.service.end(self._names[kind])
        finally:
            if self._channel is not None:
                await self._channel.close()
            self._listening.close()
            used = round(self._emulator.cpu_seconds() - self._cpu_seconds, 3)
            self._record({"record": "end", "cpu_seconds": used, "package": self._emulator.packages.sizes()})

    def _remove(self, service: str, remove: Callable[[Any, str], object], names: set[str]) -> None:
        if not names:
            return
        with closing(self._emulator.client(service, read_timeout=REMOVAL_ANSWER_S)) as client:
            for name in names:
                try:
                    remove(client, name)
                except botocore.exceptions.BotoCoreError as error:
                    LOG.error("the resources of a run at %s could not be removed: %s", service, error)
                    return
                except botocore.exceptions.ClientError as error:
                    if error.response["Error"]["Code"] not in REMOVED:
                        LOG.error("%s of a run at %s could not be removed: %s", name, service, error)


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _log_lines(environment: str, path: Path) -> Iterator[bytes]:
    """Yield a log in records of at most 1 MB, with a character for each byte (Latin-1); the last one is empty."""
    with path.open("rb") as file:
        while True:
            piece = file.read(PIECE_BYTES)
            yield _line({"record": "log", "environment": environment, "text": piece.decode("latin-1")})
            if not piece:
                return


def _remove_machine(client: Any, name: str) -> None:
    arn = f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:{name}"
    running = client.get_paginator("list_executions").paginate(stateMachineArn=arn, statusFilter="RUNNING")
    for execution in [execution for page in running for execution in page["executions"]]:
        client.stop_execution(executionArn=execution["executionArn"])
    client.delete_state_machine(stateMachineArn=arn)


def _remove_bucket(client: Any, name: str) -> None:
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=name):
        if entries := [{"Key": entry["Key"]} for entry in page.get("Contents", [])]:
            client.delete_objects(Bucket=name, Delete={"Objects": entries, "Quiet": True})
    client.delete_bucket(Bucket=name)


# How to remove each kind of resource, in order: callers before the functions they call, and the bucket after these,
# because functions write to it until they have ended.
REMOVALS: Mapping[str, tuple[str, Callable[[Any, str], object]]] = {
    "machine": ("stepfunctions", _remove_machine),
    "function": ("lambda", lambda client, name: client.delete_function(FunctionName=name)),
    "bucket": ("s3", _remove_bucket),
    "table": ("dynamodb", lambda client, name: client.delete_table(TableName=name)),
}
