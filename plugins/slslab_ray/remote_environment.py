"""An execution environment on a node, as the emulator's pool sees it; see `slslab.lambda_.environment.Environment`."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from slslab.errors import StartFailed
from slslab.lambda_.configuration import Function
from slslab.lambda_.environment import environment_id
from slslab.lambda_.hosts import Ending, ExecutionEnvironment, Hosts, PhaseEnd, State
from slslab.lambda_.runtime_api import NextInvocation
from slslab.lambda_.system_log import SystemLog
from slslab_ray.messages import EXITED, Order

LOG = logging.getLogger(__name__)
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


class NodeLost(Exception):
    """The node no longer answers."""


class AskedNode(Protocol):
    """The parts of its node that an environment uses; see `slslab_ray.remote_host.NodeHost`."""

    name: str
    lost: bool
    hosts: Hosts
    clock: Clock
    environments: "dict[str, RemoteEnvironment]"

    async def prepare(self, function: Function) -> None: ...

    def without_directories(self, function: Function) -> Function: ...

    async def call(self, method: str, *arguments: Any) -> Any: ...


class RemoteEnvironment:
    """An environment on a node. If the node is lost, it ends like one with an exited runtime."""

    def __init__(self, node: AskedNode, function: Function, number: int) -> None:
        self.id = environment_id(function, number)
        self.function = function
        self.state = State.STARTING
        self.log_stream, self.log = node.hosts.open_log(function, self.id)
        self.system_log = SystemLog(function, self.log, self.log_stream)
        self._node = node
        self._number = number
        self._making: asyncio.Future[Any] | None = None
        self._resting: asyncio.Task[None] | None = None
        # Called when it rests, unless it is used again before.
        self._rests: Callable[[ExecutionEnvironment], object] | None = None
        self._signals: set[asyncio.Task[Any]] = set()
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
        self._node.hosts.record(what)

    async def start(self, limit_s: float) -> PhaseEnd:
        """Start the runtime on its node, after storing its packages there; see `Environment.start`."""
        self._become(State.STARTING)
        try:
            if self._making is None:
                await self._node.prepare(self.function)
                self._check()
                self._making = asyncio.ensure_future(self._node.call("make", self._order()))
            # Even if this is cancelled, `stop` has to know what exists on the node.
            await asyncio.shield(self._making)
            self._check()
            self._exited = False
            self._offset_ns = self._node.clock.offset_ns
            done = await self._node.call("start", self.id, limit_s)
        except (NodeLost, OSError) as error:
            self.state = State.STOPPED
            raise StartFailed(str(error)) from error
        self._become(done.state)
        self._check()
        if done.failure:
            raise StartFailed(f"{self._node.name}: {done.failure}")
        assert done.outcome is not None
        return shifted(done.outcome, self._offset_ns)

    def _order(self) -> Order:
        hosts, name = self._node.hosts, self.function.name
        function = self._node.without_directories(self.function)
        return Order(function, self._number, self.log_stream, dict(hosts.variables), hosts.credentials(name))

    def _become(self, state: State) -> None:
        if self.state is not State.STOPPED:
            self.state = state

    def _check(self) -> None:
        if self.state is State.STOPPED:
            lost = f"the node {self._node.name} was lost"
            raise StartFailed(lost if self._node.lost else "the emulator is ending")

    async def invoke(self, invocation: NextInvocation, limit_s: float) -> PhaseEnd:
        """Pass one invocation to the waiting runtime, and return its node's figures."""
        self._become(State.BUSY)
        self._offset_ns = self._node.clock.offset_ns
        began_ns, delay_ns = time.monotonic_ns(), self._delay_ns
        try:
            done = await self._node.call("invoke", self.id, invocation, limit_s)
        except (NodeLost, OSError) as error:
            self.state = State.STOPPED
            self.log.write(f"slslab: {error}\n".encode())
            return self._lost(began_ns, delay_ns, limit_s)
        self._become(done.state)
        assert done.outcome is not None
        return shifted(done.outcome, self._offset_ns)

    async def ready(self) -> bool:
        """Wait until the runtime asks for its next invocation; see `Environment.ready`."""
        self._rests = None
        if self._resting is not None:
            await self._resting
            self._resting = None
        exited = self._exited and self.state is not State.RESET
        return self._is_ready and not exited and not self._node.lost and self.state is not State.STOPPED

    def rest(self, rests: Callable[[ExecutionEnvironment], object]) -> None:
        """Make the node freeze the environment as soon as its runtime waits, and call `rests` then."""
        self._is_ready, self._rests, self._resting_mb = False, rests, self.function.memory_mb
        self._resting = asyncio.ensure_future(self._rest())

    async def _rest(self) -> None:
        try:
            done = await self._node.call("rest", self.id)
        except (NodeLost, OSError):
            return
        self._is_ready, self._resting_mb = done.ready, min(done.resting_mb, self.function.memory_mb)
        if self._rests is not None and done.ready:
            self._rests(self)

    def resting_mb(self) -> int:
        """Return the memory that it used when it came to rest, in MB."""
        return self._resting_mb

    def send_signal(self, number: int) -> None:
        """Send a signal to everything in the environment."""
        sending = asyncio.ensure_future(self._send_signal(number))
        self._signals.add(sending)
        sending.add_done_callback(self._signals.discard)

    async def _send_signal(self, number: int) -> None:
        try:
            await self._node.call("send_signal", self.id, number)
        except (NodeLost, OSError) as error:
            LOG.warning("Could not send %s the signal %d: %s", self.id, number, error)

    async def reset(self) -> None:
        """End the runtime; see `Environment.reset`."""
        try:
            self._become((await self._node.call("reset", self.id)).state)
        except (NodeLost, OSError):
            self.state = State.STOPPED

    async def stop(self) -> None:
        """End everything in the environment; on a lost node nothing can be reached any more."""
        self.state, self._rests = State.STOPPED, None
        try:
            if self._making is not None:
                await asyncio.wait([self._making])
                await self._node.call("stop", self.id)
        except NodeLost:
            pass
        except OSError as error:
            LOG.warning("Could not end %s: %s", self.id, error)
        finally:
            if self._resting is not None:
                await asyncio.wait([self._resting])
            del self._node.environments[self.id]
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
        report = replace(report, arrived_ns=report.arrived_ns + offset_ns)
    return outcome._replace(report=report, began_ns=outcome.began_ns + offset_ns, ended_ns=outcome.ended_ns + offset_ns)
