"""Run the phases of an execution environment and meter them on the Lambda clock, for every kind of sandbox."""

import asyncio
import contextlib
import math
import os
import shutil
import signal
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from slslab.aws.limits import MB, Limits, cpu_share, init_share
from slslab.host.connections import Address
from slslab.host.output import TraceLines
from slslab.host.procfs import Pressure, Sample, Tasks, make_sample
from slslab.host.sandbox import Sandbox
from slslab.lambda_.clock import LambdaClock, PublishedClock
from slslab.lambda_.configuration import Function
from slslab.lambda_.hosts import (
    Ending,
    ExecutionEnvironment,
    Host,
    Hosts,
    PhaseEnd,
    State,
    confinement,
    fault_bit,
    variables,
)
from slslab.lambda_.memory import TICK_S, MemoryMeter, held_bytes
from slslab.lambda_.runtime_api import NextInvocation, RuntimeApi

# Don't freeze and thaw between invocations in quick succession; background work continues for this long.
FREEZE_AFTER_S = 0.005
READY_LIMIT_S = 5.0
# The event loop's timers count milliseconds.
EARLY_NS = 2_000_000
BACKSTOP_FACTOR = 20
BACKSTOP_S = 120


class LocalHost(Host, Hosts):
    """This host as the only one. Subclasses confine environments in processes or containers.

    `address` is where functions reach their Runtime API.
    """

    address: str

    def __init__(self, limits: Limits, budget_mb: int) -> None:
        super().__init__(budget_mb)
        self.hosts = self
        self.limits = limits

    def _enter(self, stack: ExitStack) -> None:
        self.pressure = Pressure()
        stack.callback(self.pressure.close)

    def present(self) -> Sequence[Host]:
        """Return this host alone."""
        return [self]

    def host(self) -> dict[str, Any]:
        """Return the host's part of a run's document."""
        return {
            "cores": len(os.sched_getaffinity(0)),
            "cpu_share_enforced": "cpu" in self.hierarchy.parents,
            "confinement": confinement(self.hierarchy, self.isolation),
        }

    def make(self, function: Function, number: int) -> ExecutionEnvironment:
        """Make an environment of this host."""
        return Environment(self, function, number)

    @abstractmethod
    async def start(self, environment: "Environment", former: Sandbox | None = None) -> Sandbox:
        """Start a runtime. Raises OSError if the host cannot.

        `former` is the environment's earlier sandbox, which has ended; the new one reuses what it can.
        """


class Environment(ExecutionEnvironment):
    """An environment on this host.

    Its sandbox reads `number`, `home`, a directory of its own with the file `clock`, `cpu_share`, how many processors
    it has now, and `trace`, which takes the lines of its trace.
    """

    host: LocalHost

    def __init__(self, host: LocalHost, function: Function, number: int) -> None:
        super().__init__(host, function, number)
        self.home = host.home / self.id
        self.cpu_share = init_share(function.memory_mb)  # more during init
        self._delay_ns = 0
        self._deadline_ns = 0
        self._answered_ns = 0
        self._clock: PublishedClock | None = None
        self._waiter: asyncio.Future[None] | None = None
        # Unset while a phase is being metered.
        self._metered = asyncio.Event()
        self._metered.set()
        self._begin()

    def _begin(self) -> None:
        host = self.host
        self._runtime = RuntimeApi(self._owns, host.limits.response_bytes, host.address, self._wake)
        source = {"function": self.function.name, "environment": self.id}
        self.trace = TraceLines(self.id, self._trace, source).feed
        self.sandbox: Sandbox | None = None
        self._end: asyncio.Future[None] | None = None
        self._tasks = Tasks(list, lambda: None)  # until there is a sandbox
        self._confined = asyncio.Event()
        self._memory = MemoryMeter(self.function.memory_mb * MB)
        self._rests: Callable[[Environment], object] | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._freezing: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether the runtime runs; the kernel may kill an idle one when the host's memory is exhausted."""
        return self.sandbox is not None and not self.sandbox.exited.done()

    @property
    def waits(self) -> bool:
        """Whether the runtime waits for an invocation; an idle one may have exited, or hung up."""
        return self._runtime.ready_ns is not None and self.running

    async def start(self, limit_s: float) -> PhaseEnd:
        memory_mb = self.function.memory_mb
        share = cpu_share(memory_mb) if self.state is State.RESET else init_share(memory_mb)
        outcome = await self._start(limit_s, share)
        if outcome.ending is Ending.EXIT and not self._has_stopped() and self._runtime.given_up():
            # awslambdaric gives up if connecting takes a second; on a busy host that isn't the function's fault.
            await self.reset()
            outcome = await self._start(limit_s, share)
        return outcome

    async def _start(self, limit_s: float, share: float) -> PhaseEnd:
        if self._has_stopped():
            raise OSError("the emulator is ending")
        former, inherited, used = self.sandbox, None, Sample(0, 0, 0, {})
        if former is not None:
            inherited = former.accounts
            used = make_sample(0, {}, inherited)
            self._begin()
            self.state = State.STARTING
        self.cpu_share = share
        try:
            self._open()
            sandbox = await self.host.start(self, former)
        except BaseException:
            if former is not None:
                await former.close()
            raise
        if self._has_stopped():
            await sandbox.end()
            await sandbox.close()
            raise OSError("the emulator is ending")
        self.sandbox = sandbox
        accounts = sandbox.accounts
        if former is not None and accounts is not None:
            self._memory.kills = accounts.out_of_memory_kills()
            accounts.reset_peak()
        self._tasks = Tasks(sandbox.pids, accounts.tasks if accounts is not None else lambda: None)
        self._confined.set()
        sandbox.exited.add_done_callback(lambda _: self._wake())
        try:
            # Don't count the time to make the sandbox.
            began = await asyncio.wait_for(asyncio.shield(sandbox.began), BACKSTOP_S)
        except TimeoutError as error:
            raise OSError(f"it didn't start within {BACKSTOP_S} s") from error
        if accounts is inherited:  # a process has its predecessor's control group, a container a new one
            began = began._replace(cpu_ns=used.cpu_ns + began.cpu_ns, throttled_ns=used.throttled_ns)
        outcome = await self._run(limit_s, began, initialising=True)
        if sandbox.failure:
            raise OSError(sandbox.failure)
        if outcome.ending is Ending.RESPONSE:
            self.cpu_share = cpu_share(self.function.memory_mb)
            await sandbox.limit_cpu(self.cpu_share)
            self.state = State.READY
        return outcome

    def _open(self) -> None:
        self._api_address = self._runtime.start()
        self.home.mkdir(parents=True, exist_ok=True)
        if self._clock is None:
            self._clock = PublishedClock(self.home / "clock")

    async def invoke(self, invocation: NextInvocation, limit_s: float, begin: Callable[[], object]) -> PhaseEnd:
        """Pass one invocation on, then call `begin`, for which the runtime shouldn't wait; read its output later."""
        assert self.sandbox is not None
        self.state = State.BUSY
        await self._thaw()
        self._tasks.read()
        self._memory.begin(self.sandbox, self._tasks)
        began = self._sample()
        self._deadline_ns = began.wall_ns + round(limit_s * 1e9)
        self._publish_clock(0)
        self._runtime.hand_out(invocation)
        begin()
        outcome = await self._run(limit_s, began)
        if outcome.ending in (Ending.RESPONSE, Ending.ERROR):
            self.state = State.READY
        self._answered_ns = time.monotonic_ns()
        return outcome

    async def ready(self) -> bool:
        if self.state is State.RESET:
            return True
        await self._thaw()
        while not self.waits:
            left_ns = self._answered_ns + round(READY_LIMIT_S * 1e9) - time.monotonic_ns()
            if not self.running or left_ns <= 0:
                return False
            await self._wait(left_ns / 1e9)
        return True

    def rest(self, rests: Callable[["Environment"], object]) -> None:
        if self.state is State.RESET:
            rests(self)
        elif self.sandbox is not None and self.sandbox.freezes:
            self._rests = rests
            self._rest_if_ready()

    def _rest_if_ready(self) -> None:
        if self._rests is not None and self.waits:
            self._resting = asyncio.get_running_loop().call_later(FREEZE_AFTER_S, self._freeze, self._rests)
            self._rests = None

    def resting_mb(self) -> int:
        """Return what a frozen environment keeps, MB, with its /tmp; one that can't freeze may use all at any time."""
        if self.sandbox is None or not self.sandbox.freezes:
            return self.function.memory_mb
        return min(math.ceil(held_bytes(self.sandbox) / MB), self.function.memory_mb)

    def send_signal(self, number: int) -> None:
        for pid in self.sandbox.pids() if self.sandbox is not None else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    async def reset(self) -> None:
        await self._end_runtime()
        if not self._has_stopped():
            self.state = State.RESET

    async def stop(self) -> None:
        self.state = State.STOPPED
        try:
            try:
                await self._end_runtime()
            finally:
                if self.sandbox is not None:
                    await self.sandbox.close()
        finally:
            self.log.close()
            if self._clock is not None:
                self._clock.close()
                self._clock = None
            await asyncio.to_thread(shutil.rmtree, self.home, ignore_errors=True)

    async def _owns(self, client: Address, server: Address) -> bool:
        await self._confined.wait()  # the address exists before the sandbox
        assert self.sandbox is not None
        return await self.sandbox.owns(client, server)

    def _has_stopped(self) -> bool:
        return self.state is State.STOPPED

    def _freeze(self, rests: Callable[["Environment"], object]) -> None:
        assert self.sandbox is not None
        self._resting = None
        self._freezing = asyncio.ensure_future(self.sandbox.freeze())
        rests(self)

    async def _thaw(self) -> None:
        self._rests = None
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        if self._freezing is not None and self.sandbox is not None:
            await self._freezing
            self._freezing = None
            await self.sandbox.thaw()

    async def _end_runtime(self) -> None:
        if self._end is None:
            self._end = asyncio.ensure_future(self._kill())
        await asyncio.shield(self._end)

    async def _kill(self) -> None:
        with contextlib.suppress(OSError):  # a frozen sandbox can be ended, too
            await self._thaw()
        try:
            if self.sandbox is not None:
                await self.sandbox.end()
                # The phase that this ended is metered first, because closing the sandbox closes its accounts.
                await self._metered.wait()
        finally:
            # Not before, because a runtime that lost its connection would write an error into the log.
            self._runtime.stop()
            self._tasks.files.close()

    def variables(self) -> dict[str, str]:
        """Return its environment variables that do not depend on the kind of sandbox."""
        return variables(self.function, self.host, self.log.stream, self._api_address)

    def _trace(self, event: dict[str, Any]) -> None:
        if event["op"] == "gpu.memory":  # from the runtime, and not for the trace
            self._memory.gpu = event["resource"], event["bytes"]
            return
        self.host.happened |= fault_bit(event)
        self.host.record(event)

    def processors(self) -> tuple[int, ...]:
        """Return the cores that this environment sees; environments take turns. An empty tuple means all cores."""
        available = sorted(os.sched_getaffinity(0))
        visible = self.host.limits.visible_processors(self.function.memory_mb)
        if visible >= len(available):
            return ()
        return tuple(available[(self.number * visible + offset) % len(available)] for offset in range(visible))

    async def _run(self, limit_s: float, began: Sample, initialising: bool = False) -> PhaseEnd:
        """Meter a phase until the runtime reports, its process exits, or time or memory is exceeded.

        It begins with the accounts `began`; an initialisation also ends when the runtime asks for an invocation.
        """
        sandbox, runtime, tasks = self.sandbox, self._runtime, self._tasks
        assert sandbox is not None
        limit_ns = round(limit_s * 1e9)
        backstop_ns = began.wall_ns + limit_ns * BACKSTOP_FACTOR + BACKSTOP_S * 1_000_000_000
        clock = LambdaClock(self.cpu_share, began)
        self._record_clock(began.wall_ns)
        ended_ns: int | None = None
        killed_by: Ending | None = None
        next_tick_ns = began.wall_ns + round(TICK_S * 1e9)
        passed_ns, latest_ns = 0, began.wall_ns
        self._metered.clear()
        try:
            while killed_by is None and ended_ns is None:
                if (ended_ns := self._ended_ns(initialising)) is None:
                    await self._wait(min(self._memory.tick_s, max(0.0005, (limit_ns - passed_ns) / 1e9)))
                    if (ended_ns := self._ended_ns(initialising)) is None:
                        # The timer may be late: a report that arrived before it counts.
                        runtime.read()
                        ended_ns = self._ended_ns(initialising)
                now = time.monotonic_ns()
                tasks.read()
                tick = now + EARLY_NS >= next_tick_ns
                if ended_ns is not None or tick or now - began.wall_ns >= limit_ns:
                    # Don't count the time to find out how the runtime ended.
                    latest_ns = min(now, ended_ns or now, sandbox.ended_ns or now)
                    self._advance(clock, self._sample(latest_ns))
                    next_tick_ns = now + round(TICK_S * 1e9)
                self._memory.look(sandbox, tasks, thorough=tick and ended_ns is None)
                # Don't end an initialisation for waiting for a disk that others keep busy.
                passed_ns = clock.elapsed_ns - (clock.disk_ns if initialising else 0)
                if self._memory.exceeded:
                    killed_by = Ending.OUT_OF_MEMORY
                elif ended_ns is None and (passed_ns >= limit_ns or now > backstop_ns):
                    killed_by = Ending.TIMEOUT
        finally:
            self._metered.set()
        if killed_by is not None:
            # At once, because what the processes do from now on isn't part of the invocation. A container's processes
            # may belong to another user; then the engine ends them.
            with contextlib.suppress(PermissionError):
                self.send_signal(signal.SIGKILL)
        for stream in sandbox.streams:
            stream.drain()
        if killed_by is not None:
            ending = killed_by
        elif runtime.report is not None:
            ending = Ending.RESPONSE if runtime.report.kind == "response" else Ending.ERROR
        else:
            ending = Ending.RESPONSE if initialising and runtime.ready_ns is not None else Ending.EXIT
        return PhaseEnd(
            ending=ending,
            report=runtime.report,
            exit_status=sandbox.exited.result() if sandbox.exited.done() else None,
            began_ns=began.wall_ns,
            # A killed runtime worked until then, after the latest sample.
            ended_ns=latest_ns if killed_by is None else time.monotonic_ns(),
            lambda_ns=clock.elapsed_ns,
            host_delay_ns=clock.host_delay_ns,
            uncertain_ns=clock.uncertain_ns if self.host.pressure.known else None,
            cpu_ns=clock.cpu_ns - began.cpu_ns,
            peak_bytes=self._memory.peak_bytes,
            cgroup_peak_bytes=self._memory.group_peak_bytes,
            gpu=self._memory.gpu,
        )

    def _ended_ns(self, initialising: bool) -> int | None:
        """Return when the phase ended, None before that; this thread may notice the end later."""
        runtime, sandbox = self._runtime, self.sandbox
        assert sandbox is not None
        if runtime.report is not None:
            return runtime.report.arrived_ns
        if initialising and runtime.ready_ns is not None:
            return runtime.ready_ns
        if sandbox.exited.done():
            return time.monotonic_ns() if sandbox.ended_ns is None else sandbox.ended_ns
        return None

    async def _wait(self, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(timeout_s, self._wake)
        try:
            await self._waiter
        finally:
            timer.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        self._rest_if_ready()

    def _sample(self, wall_ns: int | None = None) -> Sample:
        """Return the accounts at this time, by default now, without counting the time to read them."""
        assert self.sandbox is not None
        return make_sample(wall_ns, self._tasks.times, self.sandbox.accounts, self.host.pressure.stalls())

    def _advance(self, clock: LambdaClock, sample: Sample) -> None:
        before = clock.host_delay_ns
        clock.advance(sample)
        self._delay_ns += clock.host_delay_ns - before
        self._publish_clock(clock.host_delay_ns)
        self._record_clock(sample.wall_ns)

    def _record_clock(self, now: int) -> None:
        self.host.record(
            {
                "record": "clock",
                "environment": self.id,
                "wall_ns": now,
                "host_delay_ns": self._delay_ns,
                "peak_bytes": self._memory.peak_bytes,
            }
        )

    def _publish_clock(self, delay_ns: int) -> None:
        if self._clock is not None:
            self._clock.publish(self._deadline_ns, delay_ns, self.host.happened)
