"""A node of the cluster as a host of environments: the calls to it, and its reports in between."""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from slslab.host.cgroups import Hierarchy
from slslab.host.namespaces import Isolation
from slslab.lambda_.configuration import Function
from slslab.lambda_.environment import FAULTS
from slslab.lambda_.hosts import ExecutionEnvironment, Host, Hosts
from slslab.lambda_.packages import Code
from slslab_ray.calls import Caller, CallError, Happened
from slslab_ray.relay import Relay
from slslab_ray.remote_environment import Clock, NodeLost, RemoteEnvironment

LOG = logging.getLogger(__name__)
# Compare clocks by the shortest of this many round trips.
ROUND_TRIPS = 20
ALIGN_S = 10.0
# A node that hasn't reported its time for this long is lost: its host may be down, or its actor hangs. Assumed.
ANSWER_S = 60.0
# Packages travel to a node in pieces of this size.
PIECE_BYTES = 1 << 20
SERVICE = re.compile(r"\b(?:127\.0\.0\.1|localhost):(\d+)")


class NodeHost(Host):
    """An open node; `lost` is permanent once it no longer answers."""

    def __init__(self, caller: Caller, about: Mapping[str, Any], hosts: Hosts, relay: Relay | None) -> None:
        super().__init__(about["budget_mb"])
        self.name = about["name"]
        self.hierarchy: Hierarchy = about["hierarchy"]
        self.isolation: Isolation = about["isolation"]
        self._cores: int = about["cores"]
        self.hosts = hosts
        self.lost = False
        # `on_lost` is called when the node is lost or released; the other with the number of a plan's fault that
        # happened on it.
        self.on_lost: Callable[[], None] = lambda: None
        self.on_fault: Callable[[int], None] = lambda _number: None
        self.environments: dict[str, RemoteEnvironment] = {}
        self._caller = caller
        self._relay = relay
        self._ports: set[int] = set()
        self._stored: dict[str, asyncio.Future[None]] = {}
        self._aligning: asyncio.Task[None] | None = None
        self._telling: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        """Align the clocks, receive reports from the node, and make services reachable; OSError if one can't be."""
        self._caller.happened, self._caller.ended = self._take, self.lose
        self.clock = await self._compared()
        await self._reach()
        self._aligning = asyncio.ensure_future(self._keep_aligned())

    async def close(self) -> None:
        """Remove everything of ours from the node, and release it."""
        if not self.lost:
            with suppress(NodeLost, OSError, TimeoutError):
                await asyncio.wait_for(self.call("close"), ANSWER_S)
        self.leave()

    def leave(self) -> None:
        """Release the node as it is; its reaper cleans up."""
        if not self.lost:
            self.lost = True
            if self._aligning is not None:
                self._aligning.cancel()
            self._caller.close()
            self.on_lost()

    def make(self, function: Function, number: int) -> ExecutionEnvironment:
        """Make an environment of this node."""
        return RemoteEnvironment(self, function, number)

    async def runtime(self, function: Function) -> str:
        """Return the node's version of the function's runtime."""
        try:
            return str(await self.call("runtime", self.without_directories(function)))
        except NodeLost as error:
            raise OSError(str(error)) from error

    async def prepare(self, function: Function) -> None:
        """Store the function's packages on the node, each once, and make the services reachable that it will use."""
        for code in function.codes:
            if code.sha256 not in self._stored:
                self._stored[code.sha256] = asyncio.ensure_future(self._store(code))
            try:
                await asyncio.shield(self._stored[code.sha256])
            except OSError:
                self._stored.pop(code.sha256, None)  # the next environment tries again
                raise
        try:
            await self._reach()
        except OSError as error:
            # Every environment would fail there, and a node without environments always has room.
            self.lose(str(error))
            raise OSError(f"{self.name}: {error}") from error

    @staticmethod
    def without_directories(function: Function) -> Function:
        """Return a function that names its packages only by their digests."""

        def named(code: Code) -> Code:
            return replace(code, directory=None, archive=None)

        layers = tuple(replace(layer, code=named(layer.code)) for layer in function.layers)
        return replace(function, code=named(function.code), layers=layers)

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the node; OSError if it fails there, NodeLost if the node no longer answers."""
        if self.lost:
            raise NodeLost(f"the node {self.name} was lost")
        try:
            return await self._caller.call(method, *arguments)
        except CallError as error:
            raise OSError(f"{self.name}: {error}") from error
        except ConnectionError as error:
            self.lose(str(error))
            raise NodeLost(f"the node {self.name} was lost") from error

    def tell(self, faults: set[int]) -> None:
        """Report faults of the plan that have happened elsewhere to the node."""
        telling = asyncio.ensure_future(self._tell(faults))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    def document(self) -> dict[str, Any]:
        """Return the node's entry in a run's document; `clock_error_ms` is how exactly its clock is aligned."""
        return {
            "name": self.name,
            "cores": self._cores,
            "memory_mb": self.budget_mb,
            "clock_error_ms": round(self.clock.error_at(time.monotonic_ns()) / 1e6, 3),
            "lost": self.lost,
        }

    def lose(self, why: str) -> None:
        """Give up the node and its environments."""
        if not self.lost:
            LOG.warning("The node %s was lost, and its environments with it: %s.", self.name, why)
            self.leave()

    async def _reach(self) -> None:
        named = " ".join(self.hosts.variables.values())
        missing = {int(port) for port in SERVICE.findall(named)} - self._ports
        if self._relay is None or not missing:
            return
        ports = sorted(missing)
        if problem := await asyncio.to_thread(self._relay.add, ports) or await self.call("reach", ports):
            raise OSError(problem)
        self._ports |= missing

    async def _tell(self, faults: set[int]) -> None:
        with suppress(NodeLost):
            await self.call("tell", faults)

    async def _store(self, code: Code) -> None:
        if code.archive is None:
            raise OSError("hot reload uses a directory of this host, which nodes can't see")
        archive = await asyncio.to_thread(code.archive.read_bytes)
        # Send it in pieces, so that other calls can go in between.
        for begin in range(0, len(archive), PIECE_BYTES):
            await self.call("receive", code.sha256, archive[begin : begin + PIECE_BYTES])
        await self.call("store", code.sha256)

    def _take(self, happened: Happened) -> None:
        for identifier, what in happened:
            if isinstance(what, dict):
                number = str(what.get("resource")).partition(" ")[0]
                if what.get("op") == "fault" and number.isdecimal() and int(number) < FAULTS:
                    self.on_fault(int(number))
            if (environment := self.environments.get(identifier)) is not None:
                try:
                    environment.happened(what)
                except Exception:  # raised by a listener; it would end the connection
                    LOG.exception("A report from %s could not be processed.", identifier)

    async def _keep_aligned(self) -> None:
        """Compare the clocks repeatedly; keep an older comparison if the new one was made in a busy moment."""
        try:
            while True:
                await asyncio.sleep(ALIGN_S)
                if self._relay is not None and not self._relay.runs():
                    raise OSError("the emulator's relay has ended")
                clock = await asyncio.wait_for(self._compared(), ANSWER_S)
                if clock.error_ns <= self.clock.error_at(clock.at_ns):
                    self.clock = clock
        except TimeoutError:
            self.lose(f"it has not answered for {ANSWER_S:.0f} s")
        except (NodeLost, OSError) as error:
            self.lose(str(error))

    async def _compared(self) -> Clock:
        """Ask for the node's time, and use the shortest round trip: its time was read in the middle, or at most half a
        trip away from it."""
        trips = []
        for _ in range(ROUND_TRIPS):
            sent = time.monotonic_ns()
            theirs = await self.call("now")
            arrived = time.monotonic_ns()
            trips.append((arrived - sent, (sent + arrived) // 2 - theirs))
        trip_ns, offset_ns = min(trips)
        return Clock(offset_ns, trip_ns // 2, arrived)
