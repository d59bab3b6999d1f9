"""A node of the cluster as a host of environments: the calls to it, its reports in between, and its environments.

The emulator's pool sees an environment there like one on its own host.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from slslab.host.cgroups import Hierarchy
from slslab.host.namespaces import Isolation
from slslab.lambda_.configuration import Function
from slslab.lambda_.hosts import Ending, ExecutionEnvironment, Host, Hosts, PhaseEnd, State, fault_bit
from slslab.lambda_.packages import Code
from slslab.lambda_.runtime_api import NextInvocation
from slslab_ray.calls import Caller, CallError, Happened, Tasks
from slslab_ray.messages import EXITED, with_codes
from slslab_ray.relay import Relay

LOG = logging.getLogger(__name__)
# Compare clocks by the shortest of this many round trips.
ROUND_TRIPS = 20
ALIGN_S = 10.0
# A node that hasn't reported its time for this long is lost: its host may be down, or its actor hangs. Assumed.
ANSWER_S = 60.0
# Packages travel to a node in pieces of this size.
PIECE_BYTES = 1 << 20
SERVICE = re.compile(r"\b(?:127\.0\.0\.1|localhost):(\d+)")
# Fields of trace records that are times by the node's clock; the others are durations.
MOMENTS = ("start_ns", "end_ns", "wall_ns")
# Two hosts' clocks drift apart by some tens of microseconds a second; the kernel corrects them by up to 500. Assumed.
DRIFT = 100e-6


@dataclass(frozen=True)
class Clock:
    """How far this host's CLOCK_MONOTONIC is ahead of a node's, and the possible error of that at a moment of this
    host, in nanoseconds."""

    offset_ns: int
    error_ns: int
    at_ns: int

    def error_at(self, now_ns: int) -> int:
        """Return the possible error at a later moment."""
        return self.error_ns + round((now_ns - self.at_ns) * DRIFT)


class RemoteEnvironment(ExecutionEnvironment):
    """An environment on a node. If the node is lost, it ends like one with an exited runtime."""

    host: "NodeHost"

    def __init__(self, node: "NodeHost", function: Function, number: int) -> None:
        super().__init__(node, function, number)
        self._making: asyncio.Future[Any] | None = None
        self._resting: asyncio.Task[None] | None = None
        # Called when it rests, unless it is used again before.
        self._rests: Callable[[ExecutionEnvironment], object] | None = None
        self._resting_mb = function.memory_mb
        self._is_ready, self._exited = True, False
        # From the latest sample of its clock: memory, and the host's delay since its start.
        self._peak_bytes, self._delay_ns = 0, 0
        # All events of one invocation use the same comparison of the clocks; with two they might overlap.
        self._offset_ns = node.clock.offset_ns
        node.environments[self.id] = self

    def happened(self, what: dict[str, Any] | bytes) -> None:
        """Take bytes of its log, a trace record, or the report that its runtime has exited."""
        if isinstance(what, bytes):
            self.log.write(what)
            return
        if what["record"] == EXITED:
            self._exited = True
            return
        if what["record"] == "clock":
            self._peak_bytes, self._delay_ns = what["peak_bytes"], what["host_delay_ns"]
        what |= {name: what[name] + self._offset_ns for name in MOMENTS if name in what}
        self.host.hosts.record(what)

    async def start(self, limit_s: float) -> PhaseEnd:
        """Start the runtime on its node, after storing its packages there."""
        self._become(State.STARTING)
        try:
            if self._making is None:
                await self.host.prepare(self.function)
                self._check()
                self._making = asyncio.ensure_future(self._make())
            # Even if this is cancelled, `stop` has to know what exists on the node.
            await asyncio.shield(self._making)
            self._check()
            self._exited = False
            self._offset_ns = self.host.clock.offset_ns
            outcome = await self._call("start", limit_s)
        except OSError:
            self._check()  # it may have been ended meanwhile, and then the node's reason doesn't matter
            self.state = State.STOPPED
            raise
        self._check()
        return shifted(outcome, self._offset_ns)

    async def _call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the node with this environment, and take over its state; OSError if the call fails."""
        state, result = await self.host.call("on", self.id, method, *arguments)
        self._become(state)
        return result

    async def _make(self) -> None:
        hosts, function = self.host.hosts, self.host.without_directories(self.function)
        credentials = hosts.credentials(function.name)
        await self.host.call("make", function, self.number, self.log.stream, dict(hosts.variables), credentials)

    def _become(self, state: State) -> None:
        if self.state is not State.STOPPED:
            self.state = state

    def _check(self) -> None:
        if self.state is State.STOPPED:
            lost = f"the node {self.host.name} was lost"
            raise OSError(lost if self.host.lost else "the emulator is ending")

    async def invoke(self, invocation: NextInvocation, limit_s: float, begin: Callable[[], object]) -> PhaseEnd:
        begin()
        self._become(State.BUSY)
        self._offset_ns = self.host.clock.offset_ns
        began_ns, delay_ns = time.monotonic_ns(), self._delay_ns
        try:
            outcome = await self._call("invoke", invocation, limit_s)
        except OSError as error:
            self.state = State.STOPPED
            self.log.write(f"slslab: {error}\n".encode())
            return self._lost(began_ns, delay_ns, limit_s)
        return shifted(outcome, self._offset_ns)

    async def ready(self) -> bool:
        self._rests = None
        if self._resting is not None:
            await self._resting
            self._resting = None
        exited = self._exited and self.state is not State.RESET
        return self._is_ready and not exited and not self.host.lost and self.state is not State.STOPPED

    def rest(self, rests: Callable[[ExecutionEnvironment], object]) -> None:
        self._is_ready, self._rests, self._resting_mb = False, rests, self.function.memory_mb
        self._resting = asyncio.ensure_future(self._rest())

    async def _rest(self) -> None:
        try:
            self._is_ready, resting_mb = await self._call("rest")
        except OSError:
            return
        self._resting_mb = min(resting_mb, self.function.memory_mb)
        if self._rests is not None and self._is_ready:
            self._rests(self)

    def resting_mb(self) -> int:
        return self._resting_mb

    def send_signal(self, number: int) -> None:
        self.host.post(f"send {self.id} the signal {number}", "send_signal", self.id, number)

    async def reset(self) -> None:
        try:
            await self._call("reset")
        except OSError:
            self.state = State.STOPPED

    async def stop(self) -> None:
        """End everything in the environment; on a lost node nothing can be reached any more."""
        self.state, self._rests = State.STOPPED, None
        try:
            if self._making is not None:
                await asyncio.wait([self._making])
                await self.host.call("stop", self.id)
        except ConnectionError:
            pass
        except OSError as error:
            LOG.warning("Could not end %s: %s", self.id, error)
        finally:
            if self._resting is not None:
                await asyncio.wait([self._resting])
            del self.host.environments[self.id]
            self.log.close()

    def _lost(self, began_ns: int, delay_ns: int, limit_s: float) -> PhaseEnd:
        """Return the end of an invocation on a lost node: its time is the time passed here, at most its time-out; its
        CPU time is unknown."""
        now = time.monotonic_ns()
        delayed_ns = self._delay_ns - delay_ns
        return PhaseEnd(
            ending=Ending.EXIT,
            report=None,
            exit_status=None,
            began_ns=began_ns,
            ended_ns=now,
            lambda_ns=min(max(0, now - began_ns - delayed_ns), round(limit_s * 1e9)),
            host_delay_ns=delayed_ns,
            uncertain_ns=None,
            cpu_ns=0,
            peak_bytes=self._peak_bytes,
            cgroup_peak_bytes=None,
        )


def shifted(outcome: PhaseEnd, offset_ns: int) -> PhaseEnd:
    """Return an outcome with its moments shifted by the offset of the clocks."""
    report = outcome.report
    if report is not None:
        report = report._replace(arrived_ns=report.arrived_ns + offset_ns)
    return outcome._replace(report=report, began_ns=outcome.began_ns + offset_ns, ended_ns=outcome.ended_ns + offset_ns)


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
        # `on_lost` is called when the node is lost or released; the other with the bit of a plan's fault that happened
        # on it.
        self.on_lost: Callable[[], None] = lambda: None
        self.on_fault: Callable[[int], None] = lambda _bit: None
        self.environments: dict[str, RemoteEnvironment] = {}
        self._caller = caller
        self._relay = relay
        self._ports: set[int] = set()
        self._stored: dict[str, asyncio.Future[None]] = {}
        self._aligning: asyncio.Task[None] | None = None
        self._posted = Tasks()

    async def begin(self) -> None:
        """Align the clocks, receive reports from the node, and make services reachable; OSError if one can't be."""
        self._caller.happened, self._caller.ended = self._take, self.lose
        self.clock = await self._compared()
        await self._reach()
        self._aligning = asyncio.ensure_future(self._keep_aligned())

    async def close(self) -> None:
        """Remove everything of ours from the node, and release it."""
        if not self.lost:
            with suppress(OSError):
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
        return str(await self.call("runtime", self.without_directories(function)))

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
        except ConnectionError:
            raise
        except OSError as error:
            # Every environment would fail there, and a node without environments always has room.
            self.lose(str(error))
            raise OSError(f"{self.name}: {error}") from error

    @staticmethod
    def without_directories(function: Function) -> Function:
        """Return a function that names its packages only by their digests."""
        return with_codes(function, lambda code: replace(code, directory=None, archive=None))

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the node; OSError if it fails there, ConnectionError if it no longer answers."""
        if self.lost:
            raise ConnectionError(f"the node {self.name} was lost")
        try:
            return await self._caller.call(method, *arguments)
        except CallError as error:
            raise OSError(f"{self.name}: {error}") from error
        except ConnectionError as error:
            self.lose(str(error))
            raise ConnectionError(f"the node {self.name} was lost") from error

    def post(self, what: str, method: str, *arguments: Any) -> None:
        """Call a method of the node without waiting for it; log that `what` failed unless the node was lost."""
        self._posted.start(self._post(what, method, *arguments))

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

    async def _post(self, what: str, method: str, *arguments: Any) -> None:
        try:
            await self.call(method, *arguments)
        except ConnectionError:
            return
        except OSError as error:
            LOG.warning("Could not %s: %s", what, error)

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
            if isinstance(what, dict) and (fault := fault_bit(what)):
                self.on_fault(fault)
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
        except OSError as error:
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
