"""An execution environment: its phases, metered on the Lambda clock, whatever kind of sandbox confines it."""

import asyncio
import contextlib
import math
import os
import shutil
import signal
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from io import FileIO
from pathlib import Path
from typing import Any

from slslab.configuration import REGION, Function
from slslab.environments.accounting import (
    peak_resident_bytes,
    reset_peak_resident,
    resident_bytes,
    take_sample,
)
from slslab.environments.groups import GroupAccounts
from slslab.environments.output import FunctionLog, TraceFrames
from slslab.environments.sandbox import Sandbox, Sandboxes, Setting, StartFailed
from slslab.limits import Limits
from slslab.metering import MB, LambdaClock, cpu_share
from slslab.reaper import MARK
from slslab.runtime_api import NextInvocation, RuntimeApi, RuntimeReport

TICK_S = 0.1
WATCHDOG_TICK_S = 0.01
# A tight loop of invocations is spared the two writes; what runs on meanwhile runs for this long.
FREEZE_AFTER_S = 0.005
READY_LIMIT_S = 5.0
LATE_NS = 20_000_000
BACKSTOP_FACTOR = 20
BACKSTOP_S = 120


class State(Enum):
    """Life of an execution environment."""

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
    """The end of an initialisation or invocation, with what was measured of it.

    `lambda_ns` is time on the Lambda clock, `host_delay_ns` what the host took beside it; `peak_bytes` is the sum of
    the processes' resident high-water marks, `cgroup_peak_bytes` what the kernel charged to the group at most.
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
        """The state of an environment before its start."""
        self._runtime = RuntimeApi(self._host.sandboxes.address)
        self.sandbox: Sandbox | None = None
        self._peaks: dict[int, int] = {}
        self._known_kills = 0
        self._resting: asyncio.TimerHandle | None = None
        self._freezing: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether the runtime runs; the kernel may end an idle one for want of memory."""
        return self.sandbox is not None and not self.sandbox.exited.done()

    async def start(self, limit_s: float) -> Outcome:
        """Start the runtime and wait until it asks for its first invocation (the init phase).

        Raises StartFailed if the host cannot start it.
        """
        address = await self._runtime.start()
        if self._ended():  # meanwhile
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
        if self._ended():
            await sandbox.end()
            await sandbox.close()
            raise StartFailed("the emulator is ending")
        self.sandbox = sandbox
        outcome = await self._run(limit_s, self._runtime.ready.wait(), [])
        if sandbox.failure:
            raise StartFailed(sandbox.failure)
        if outcome.ending is Ending.RESPONSE:
            self.state = State.READY
        return outcome

    async def invoke(self, invocation: NextInvocation, limit_s: float) -> Outcome:
        """Hand one invocation to the waiting runtime and meter it to its end."""
        self.state = State.BUSY
        await self._thaw()
        pids = self._pids()
        reset_peak_resident(pids)
        if (accounts := self._accounts) is not None:
            accounts.reset_peak()
        # A runtime that ends before the next sample has at least what it holds now.
        self._peaks = peak_resident_bytes(pids)
        self._deadline_ns = time.monotonic_ns() + round(limit_s * 1e9)
        self._publish_clock(0)
        self._runtime.hand_out(invocation)
        outcome = await self._run(limit_s, None, pids)
        if outcome.ending in (Ending.RESPONSE, Ending.ERROR):
            self.state = State.READY
        return outcome

    async def ready(self) -> None:
        """Wait until the runtime asks for its next invocation; it does so at once, or it is of no more use."""
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
        """Memory that it holds while it rests, MB: frozen, it can take no more than what is resident and in its /tmp.

        One that cannot be frozen may take all of its memory size at any time.
        """
        if self.sandbox is None or not self.sandbox.freezes:
            return self.function.memory_mb
        held = sum(resident_bytes(self._pids()).values()) + self.sandbox.files_bytes()
        return min(math.ceil(held / MB), self.function.memory_mb)

    async def stop(self) -> None:
        """Kill everything in the environment and remove every trace of it."""
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
        """Back to before `start`: the runtime is killed, so that its initialisation can be repeated."""
        await self._end_sandbox()
        if not self._ended():
            self._begin()
            self.state = State.STARTING

    def _ended(self) -> bool:
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
        with contextlib.suppress(OSError):  # its end does without
            await self._thaw()
        if self.sandbox is not None:
            try:
                await self.sandbox.end()
                # Whoever watches the phase that this ended still reads the accounts that are closed next.
                await self._metered.wait()
            finally:
                await self.sandbox.close()

    def _setting(self, address: str) -> Setting:
        function, host = self.function, self._host
        frames = TraceFrames(self.id, self._hand_on)
        variables = {
            "LANG": "en_US.UTF-8",
            "TZ": ":UTC",
            "PYTHONDONTWRITEBYTECODE": "1",
            **host.variables,
            **function.variables,
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
        }
        return Setting(
            name=self.id,
            number=self._number,
            function=function,
            home=self._home,
            clock=self._home / "clock",
            variables=variables,
            processors=self._processors(),
            log=self.log.write,
            trace=frames.feed,
        )

    def _processors(self) -> tuple[int, ...]:
        """The cores that this environment sees, each environment others in turn; all where the host has no more."""
        available = sorted(os.sched_getaffinity(0))
        visible = self._host.limits.visible_processors(self.function.memory_mb)
        if visible >= len(available):
            return ()
        first = self._number * visible
        return tuple(available[(first + offset) % len(available)] for offset in range(visible))

    @property
    def _accounts(self) -> GroupAccounts | None:
        return self.sandbox.accounts if self.sandbox is not None else None

    async def _run(self, limit_s: float, done: Awaitable[Any] | None, pids: list[int]) -> Outcome:
        """Watch until the phase is over: by the runtime's word, the end of its process, the clock or the memory."""
        self._metered.clear()
        try:
            return await self._watch(limit_s, done, pids)
        finally:
            self._metered.set()

    async def _watch(self, limit_s: float, done: Awaitable[Any] | None, pids: list[int]) -> Outcome:
        sandbox = self.sandbox
        assert sandbox is not None
        exited, accounts = sandbox.exited, sandbox.accounts
        limit_ns = round(limit_s * 1e9)
        begin = time.monotonic_ns()
        clock = LambdaClock(self._share, take_sample(begin, pids, accounts))
        first_cpu = clock.cpu_ns
        self._record_clock(begin)
        report = asyncio.ensure_future(self._runtime.reports.get())
        finished = asyncio.ensure_future(done) if done is not None else None
        waiting: set[asyncio.Future[Any]] = {report, exited}
        if finished is not None:
            waiting.add(finished)
        killed_by: Ending | None = None
        next_tick_ns = begin
        try:
            while True:
                remaining_s = max(0.0005, (limit_ns - clock.elapsed_ns) / 1e9)
                tick_s = TICK_S if accounts and accounts.enforces_memory else WATCHDOG_TICK_S
                over, held_ns = await _wait(waiting, min(tick_s, remaining_s))
                now = time.monotonic_ns()
                if over or now >= next_tick_ns or now - begin >= limit_ns:
                    # What it takes to learn how the runtime ended is not the function's.
                    self._advance(clock, now if sandbox.ended_ns is None else min(now, sandbox.ended_ns), held_ns)
                    next_tick_ns = now + round(TICK_S * 1e9)
                if self._memory_exceeded():
                    killed_by = Ending.OUT_OF_MEMORY
                    break
                if over:
                    break
                backstop_ns = limit_ns * BACKSTOP_FACTOR + BACKSTOP_S * 1_000_000_000
                if clock.elapsed_ns >= limit_ns or now - begin > backstop_ns:
                    killed_by = Ending.TIMEOUT
                    break
        finally:
            for future in (report, finished):
                if future is not None and not future.done():
                    future.cancel()
        sandbox.drain()
        runtime_report = report.result() if report.done() and not report.cancelled() else None
        if killed_by is not None:
            ending = killed_by
        elif runtime_report is not None:
            ending = Ending.RESPONSE if runtime_report.kind == "response" else Ending.ERROR
        elif finished is not None and finished.done() and not finished.cancelled():
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
        peak = sum(self._peaks.values())
        own = {"record": "clock", "environment": self.id}
        self._host.record({**own, "wall_ns": now, "host_delay_ns": self._delay_ns, "peak_bytes": peak})

    def _memory_exceeded(self) -> bool:
        limit = self.function.memory_mb * MB
        if (accounts := self._accounts) is not None and accounts.enforces_memory:
            kills = accounts.out_of_memory_kills()
            if kills > self._known_kills:
                self._known_kills = kills
                return True
            # The kernel's limit is higher by /tmp, and it charges shared library pages to whoever touched them first;
            # a process whose own resident peak is above the limit, or several that hold more, are out of memory.
            alone = len(self._peaks) < 2
            return max(self._peaks.values(), default=0) > limit or (not alone and accounts.anonymous_bytes() > limit)
        resident = resident_bytes(self._pids())
        for pid, size in resident.items():
            self._peaks[pid] = max(self._peaks.get(pid, 0), size)
        return sum(resident.values()) > limit

    def _pids(self) -> list[int]:
        return self.sandbox.pids() if self.sandbox is not None else []

    def _publish_clock(self, delay_ns: int) -> None:
        """Tell the worker its deadline on CLOCK_MONOTONIC and the host's delay so far: the runtime's context counts
        wall time, and stops at zero."""
        if self._clock is not None:
            os.pwrite(self._clock.fileno(), struct.pack("<QQ", self._deadline_ns, delay_ns), 0)

    def _hand_on(self, event: dict[str, Any]) -> None:
        own = {"record": "event", "function": self.function.name, "environment": self.id}
        self._host.record({**event, **own})


async def _wait(waiting: set[asyncio.Future[Any]], timeout_s: float) -> tuple[set[asyncio.Future[Any]], int]:
    """Wait for the first of these; what is done, and for how long the emulator itself was held up before it saw that.

    On a busy host its thread may wake long after its time. What the environment said meanwhile lies unread, and is no
    time-out of the function: it is read first, and the delay was the host's.
    """
    due_ns = time.monotonic_ns() + round(timeout_s * 1e9)
    done, _ = await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    late_ns = time.monotonic_ns() - due_ns
    if done or late_ns < LATE_NS:
        return done, 0
    done, _ = await asyncio.wait(waiting, timeout=LATE_NS / 1e9, return_when=asyncio.FIRST_COMPLETED)
    return done, late_ns if done else 0


def exit_reason(status: int | None) -> str:
    """The end of the runtime process in Lambda's words (`RequestId: … Error: <reason>`)."""
    if status is None or status == 0:
        return "Runtime exited without providing a reason"
    if status < 0:
        names: dict[int, str] = {
            signal.SIGKILL: "killed",
            signal.SIGSEGV: "segmentation fault",
            signal.SIGABRT: "aborted",
            signal.SIGTERM: "terminated",
        }
        return f"Runtime exited with error: signal: {names.get(-status, str(-status))}"
    return f"Runtime exited with error: exit status {status}"


def peak_mb(outcome: Outcome, memory_mb: int) -> int:
    """Max Memory Used in MB: the resident peaks rounded up; the whole memory size when it was exhausted."""
    if outcome.ending is Ending.OUT_OF_MEMORY:
        return memory_mb
    return math.ceil(outcome.peak_bytes / MB)
