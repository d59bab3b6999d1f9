"""Run the phases of an execution environment and meter them on the Lambda clock, for every kind of sandbox."""

import asyncio
import contextlib
import math
import os
import shutil
import signal
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from io import FileIO
from pathlib import Path
from typing import Any

from slslab.aws.arns import REGION
from slslab.aws.keys import Keyring
from slslab.aws.limits import MB, Limits, cpu_share
from slslab.errors import StartFailed
from slslab.host.cgroup_accounts import GroupAccounts
from slslab.host.connections import Address
from slslab.host.output import FunctionLog, TraceFrames
from slslab.host.procfs import peak_resident_bytes, reset_peak_resident, resident_bytes, take_sample
from slslab.host.reaper import MARK
from slslab.lambda_.clock import LambdaClock
from slslab.lambda_.configuration import Function
from slslab.lambda_.runtime_api import NextInvocation, RuntimeApi, RuntimeReport
from slslab.lambda_.sandbox import Sandbox, Sandboxes, Setting

TICK_S = 0.1
WATCHDOG_TICK_S = 0.01
# Invocations in quick succession are spared freezing and thawing; background work runs on for this long.
FREEZE_AFTER_S = 0.005
READY_LIMIT_S = 5.0
LATE_NS = 20_000_000
BACKSTOP_FACTOR = 20
BACKSTOP_S = 120
SIGNALS: dict[int, str] = {
    signal.SIGKILL: "killed",
    signal.SIGSEGV: "segmentation fault",
    signal.SIGABRT: "aborted",
    signal.SIGTERM: "terminated",
}


class State(Enum):
    """The state of an execution environment."""

    STARTING = "starting"
    READY = "ready"
    BUSY = "busy"
    STOPPED = "stopped"


class Ending(Enum):
    """How an initialisation or an invocation ended."""

    RESPONSE = "response"
    ERROR = "error"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out-of-memory"
    EXIT = "exit"


@dataclass(frozen=True)
class Outcome:
    """The end of an initialisation or invocation, with its measurements.

    `lambda_ns` is time on the Lambda clock, `host_delay_ns` the host's delay, which is not in it; `peak_bytes` is the
    sum of the processes' resident high-water marks, `cgroup_peak_bytes` the most that the kernel charged to the group.
    """

    ending: Ending
    report: RuntimeReport | None
    exit_status: int | None
    lambda_ns: int
    host_delay_ns: int
    cpu_ns: int
    peak_bytes: int
    cgroup_peak_bytes: int | None


@dataclass(frozen=True)
class EnvironmentHost:
    """What the environments of one emulator share."""

    emulator_id: str
    home: Path
    logs: Path
    limits: Limits
    sandboxes: Sandboxes
    variables: Mapping[str, str]
    keys: Keyring
    record: Callable[[dict[str, Any]], None]


class Environment:
    """One sandbox with one runtime, reused while it stays warm."""

    def __init__(self, host: EnvironmentHost, function: Function, number: int) -> None:
        self.id = f"{function.name}-{number:04d}"
        self.function = function
        self.state = State.STARTING
        self.log = FunctionLog(host.logs / f"{self.id}.log", host.limits.log_tail_bytes)
        self._number = number
        self._host = host
        self._home = host.home / self.id
        self._share = cpu_share(function.memory_mb)
        self._delay_ns = 0
        self._deadline_ns = 0
        self._clock: FileIO | None = None
        self._metered = asyncio.Event()
        self._metered.set()
        self._begin()

    def _begin(self) -> None:
        """Set the state of an environment before its start."""
        self._runtime = RuntimeApi(self._owns, self._host.limits.response_bytes, self._host.sandboxes.address)
        self.sandbox: Sandbox | None = None
        self._confined = asyncio.Event()
        self._peaks: dict[int, int] = {}
        self._resting: asyncio.TimerHandle | None = None
        self._freezing: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether the runtime runs; the kernel may kill an idle one when the host's memory is exhausted."""
        return self.sandbox is not None and not self.sandbox.exited.done()

    async def start(self, limit_s: float) -> Outcome:
        """Start the runtime and wait until it asks for its first invocation (the init phase).

        Raises StartFailed if the host cannot start it.
        """
        address = await self._runtime.start()
        if self._has_stopped():  # meanwhile
            await self._runtime.stop()
            raise StartFailed("the emulator is ending")
        self._home.mkdir(parents=True, exist_ok=True)
        if self._clock is None:
            self._clock = (self._home / "clock").open("wb", buffering=0)
            self._clock.write(bytes(16))
        try:
            sandbox = await self._host.sandboxes.start(self._setting(address))
        except OSError as error:
            raise StartFailed(str(error)) from error
        if self._has_stopped():
            await sandbox.end()
            await sandbox.close()
            raise StartFailed("the emulator is ending")
        self.sandbox = sandbox
        self._confined.set()
        outcome = await self._run(limit_s, [], self._runtime.ready)
        if sandbox.failure:
            raise StartFailed(sandbox.failure)
        if outcome.ending is Ending.RESPONSE:
            self.state = State.READY
        return outcome

    async def invoke(self, invocation: NextInvocation, limit_s: float) -> Outcome:
        """Pass one invocation to the waiting runtime and meter it to its end."""
        self.state = State.BUSY
        await self._thaw()
        pids = self._pids()
        reset_peak_resident(pids)
        if (accounts := self._accounts) is not None:
            accounts.reset_peak()
        # A runtime that ends before the next sample has at least its present peak.
        self._peaks = peak_resident_bytes(pids)
        self._deadline_ns = time.monotonic_ns() + round(limit_s * 1e9)
        self._publish_clock(0)
        self._runtime.hand_out(invocation)
        outcome = await self._run(limit_s, pids)
        if outcome.ending in (Ending.RESPONSE, Ending.ERROR):
            self.state = State.READY
        return outcome

    async def ready(self) -> None:
        """Wait until the runtime asks for its next invocation; one that does not do so at once is not used again."""
        assert self.sandbox is not None
        waiting = asyncio.ensure_future(self._runtime.ready.wait())
        both: set[asyncio.Future[Any]] = {waiting, self.sandbox.exited}
        await asyncio.wait(both, timeout=READY_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        if self.sandbox.exited.done() or not waiting.done():
            self.state = State.STOPPED
        waiting.cancel()

    def rest(self) -> None:
        """Freeze the idle environment, as Lambda does between invocations; the next invocation thaws it."""
        if self.sandbox is not None and self.sandbox.freezes:
            self._resting = asyncio.get_running_loop().call_later(FREEZE_AFTER_S, self._freeze)

    def resting_mb(self) -> int:
        """Return the memory that it can hold while it rests, MB.

        A frozen environment holds what is resident and in its /tmp; one that cannot be frozen may use its whole memory
        size at any time.
        """
        if self.sandbox is None or not self.sandbox.freezes:
            return self.function.memory_mb
        held_bytes = sum(resident_bytes(self._pids()).values()) + self.sandbox.files_bytes()
        return min(math.ceil(held_bytes / MB), self.function.memory_mb)

    async def stop(self) -> None:
        """Kill everything in the environment and remove its files."""
        self.state = State.STOPPED
        try:
            await self._end_sandbox()
        finally:
            self.log.close()
            if self._clock is not None:
                self._clock.close()
                self._clock = None
            await asyncio.to_thread(shutil.rmtree, self._home, ignore_errors=True)

    async def restart(self) -> None:
        """Return to the state before `start`: kill the runtime, so that its initialisation can be repeated."""
        await self._end_sandbox()
        if not self._has_stopped():
            self._begin()
            self.state = State.STARTING

    async def _owns(self, client: Address, server: Address) -> bool:
        await self._confined.wait()  # the address is there before the sandbox is
        assert self.sandbox is not None
        return await self.sandbox.owns(client, server)

    def _has_stopped(self) -> bool:
        return self.state is State.STOPPED

    def _freeze(self) -> None:
        assert self.sandbox is not None
        self._resting = None
        self._freezing = asyncio.ensure_future(self.sandbox.freeze())

    async def _thaw(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        if self._freezing is not None and self.sandbox is not None:
            await self._freezing
            self._freezing = None
            await self.sandbox.thaw()

    async def _end_sandbox(self) -> None:
        await self._runtime.stop()
        with contextlib.suppress(OSError):  # a frozen sandbox can be ended, too
            await self._thaw()
        if self.sandbox is not None:
            try:
                await self.sandbox.end()
                # The phase that this ended is metered first, because closing the sandbox closes its accounts.
                await self._metered.wait()
            finally:
                await self.sandbox.close()

    def _setting(self, address: str) -> Setting:
        function, host = self.function, self._host
        source = {"record": "event", "function": function.name, "environment": self.id}
        return Setting(
            name=self.id,
            number=self._number,
            function=function,
            home=self._home,
            variables={
                "LANG": "en_US.UTF-8",
                "TZ": ":UTC",
                "PYTHONDONTWRITEBYTECODE": "1",
                **host.variables,
                **function.variables,
                **host.keys.function(function.name).variables(),
                "_HANDLER": function.handler,
                "AWS_REGION": REGION,
                "AWS_DEFAULT_REGION": REGION,
                "AWS_EXECUTION_ENV": f"AWS_Lambda_{function.runtime or 'Image'}",
                "AWS_LAMBDA_FUNCTION_NAME": function.name,
                "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
                "AWS_LAMBDA_FUNCTION_VERSION": function.version,
                "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
                "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{function.name}",
                "AWS_LAMBDA_LOG_STREAM_NAME": f"{time.strftime('%Y/%m/%d')}/[{function.version}]{self.id}",
                "AWS_LAMBDA_RUNTIME_API": address,
                MARK: host.emulator_id,
            },
            processors=self._processors(),
            log=self.log.write,
            trace=TraceFrames(self.id, lambda event: host.record({**event, **source})).feed,
        )

    def _processors(self) -> tuple[int, ...]:
        """Return the cores that this environment sees, each environment others in turn; none stands for all."""
        available = sorted(os.sched_getaffinity(0))
        visible = self._host.limits.visible_processors(self.function.memory_mb)
        if visible >= len(available):
            return ()
        return tuple(available[(self._number * visible + offset) % len(available)] for offset in range(visible))

    @property
    def _accounts(self) -> GroupAccounts | None:
        return self.sandbox.accounts if self.sandbox is not None else None

    async def _run(self, limit_s: float, pids: list[int], ready: asyncio.Event | None = None) -> Outcome:
        """Meter a phase until the runtime reports, its process exits, or time or memory is exceeded.

        `pids` are the processes that run already; an initialisation also ends when the runtime is `ready`.
        """
        self._metered.clear()
        try:
            return await self._watch(limit_s, pids, ready)
        finally:
            self._metered.set()

    async def _watch(self, limit_s: float, pids: list[int], ready: asyncio.Event | None) -> Outcome:
        sandbox = self.sandbox
        assert sandbox is not None
        exited, accounts = sandbox.exited, sandbox.accounts
        limit_ns = round(limit_s * 1e9)
        backstop_ns = limit_ns * BACKSTOP_FACTOR + BACKSTOP_S * 1_000_000_000
        begin = time.monotonic_ns()
        clock = LambdaClock(self._share, take_sample(begin, pids, accounts))
        first_cpu = clock.cpu_ns
        self._record_clock(begin)
        report = asyncio.ensure_future(self._runtime.reports.get())
        initialised = [asyncio.ensure_future(ready.wait())] if ready is not None else []
        over: set[asyncio.Future[Any]] = set()
        killed_by: Ending | None = None
        next_tick_ns = begin
        try:
            while not over and killed_by is None:
                remaining_s = max(0.0005, (limit_ns - clock.elapsed_ns) / 1e9)
                tick_s = TICK_S if accounts and accounts.enforces_memory else WATCHDOG_TICK_S
                over, held_ns = await _wait({report, exited, *initialised}, min(tick_s, remaining_s))
                now = time.monotonic_ns()
                if over or now >= next_tick_ns or now - begin >= limit_ns:
                    # The time that it takes to find out how the runtime ended is not the function's.
                    self._advance(clock, now if sandbox.ended_ns is None else min(now, sandbox.ended_ns), held_ns)
                    next_tick_ns = now + round(TICK_S * 1e9)
                if self._memory_exceeded():
                    killed_by = Ending.OUT_OF_MEMORY
                elif not over and (clock.elapsed_ns >= limit_ns or now - begin > backstop_ns):
                    killed_by = Ending.TIMEOUT
        finally:
            report.cancel()
            for future in initialised:
                future.cancel()
        sandbox.drain()
        runtime_report = report.result() if report in over else None
        if killed_by is not None:
            ending = killed_by
        elif runtime_report is not None:
            ending = Ending.RESPONSE if runtime_report.kind == "response" else Ending.ERROR
        elif not over.isdisjoint(initialised):
            ending = Ending.RESPONSE
        else:
            ending = Ending.EXIT
        return Outcome(
            ending=ending,
            report=runtime_report,
            exit_status=exited.result() if exited.done() else None,
            lambda_ns=clock.elapsed_ns,
            host_delay_ns=clock.host_delay_ns,
            cpu_ns=clock.cpu_ns - first_cpu,
            peak_bytes=sum(self._peaks.values()),
            cgroup_peak_bytes=accounts.peak_bytes() if accounts else None,
        )

    def _advance(self, clock: LambdaClock, now: int, held_ns: int) -> None:
        pids = self._pids()
        before = clock.host_delay_ns
        clock.advance(take_sample(now, pids, self._accounts), held_ns)
        self._peaks.update(peak_resident_bytes(pids))
        self._delay_ns += clock.host_delay_ns - before
        self._publish_clock(clock.host_delay_ns)
        self._record_clock(now)

    def _record_clock(self, now: int) -> None:
        self._host.record(
            {
                "record": "clock",
                "environment": self.id,
                "wall_ns": now,
                "host_delay_ns": self._delay_ns,
                "peak_bytes": sum(self._peaks.values()),
            }
        )

    def _memory_exceeded(self) -> bool:
        limit = self.function.memory_mb * MB
        if (accounts := self._accounts) is not None and accounts.enforces_memory:
            if accounts.out_of_memory_kills():
                return True
            # The kernel's limit is higher by /tmp, and it charges shared library pages to the group that touched them
            # first. So memory is exhausted, too, when one process's resident peak or several processes' memory is over
            # the limit.
            several = len(self._peaks) > 1
            return max(self._peaks.values(), default=0) > limit or (several and accounts.anonymous_bytes() > limit)
        resident = resident_bytes(self._pids())
        for pid, size in resident.items():
            self._peaks[pid] = max(self._peaks.get(pid, 0), size)
        return sum(resident.values()) > limit

    def _pids(self) -> list[int]:
        return self.sandbox.pids() if self.sandbox is not None else []

    def _publish_clock(self, delay_ns: int) -> None:
        """Write the worker's deadline (CLOCK_MONOTONIC) and the host's delay so far, where the worker reads them.

        The runtime's own context counts wall time, and stops at zero.
        """
        if self._clock is not None:
            os.pwrite(self._clock.fileno(), struct.pack("<QQ", self._deadline_ns, delay_ns), 0)


async def _wait(waiting: set[asyncio.Future[Any]], timeout_s: float) -> tuple[set[asyncio.Future[Any]], int]:
    """Wait for the first of these; return what is done, and for how long (ns) the emulator was late to notice it.

    On a busy host its thread may wake up late. A report that the environment sent meanwhile is read first: the function
    has not timed out, and the delay was the host's.
    """
    due_ns = time.monotonic_ns() + round(timeout_s * 1e9)
    done, _ = await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    late_ns = time.monotonic_ns() - due_ns
    if done or late_ns < LATE_NS:
        return done, 0
    done, _ = await asyncio.wait(waiting, timeout=LATE_NS / 1e9, return_when=asyncio.FIRST_COMPLETED)
    return done, late_ns if done else 0


def exit_reason(status: int | None) -> str:
    """Describe the end of the runtime process in Lambda's words (`RequestId: … Error: <reason>`)."""
    if not status:
        return "Runtime exited without providing a reason"
    if status < 0:
        return f"Runtime exited with error: signal: {SIGNALS.get(-status, str(-status))}"
    return f"Runtime exited with error: exit status {status}"


def peak_mb(outcome: Outcome, memory_mb: int) -> int:
    """Return Max Memory Used, MB: the resident peaks rounded up, or the whole memory size when it was exhausted."""
    if outcome.ending is Ending.OUT_OF_MEMORY:
        return memory_mb
    return math.ceil(outcome.peak_bytes / MB)
