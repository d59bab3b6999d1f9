"""An execution environment that is a process of this host, confined by a control group where there is one."""

import asyncio
import contextlib
import json
import logging
import math
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from io import FileIO
from pathlib import Path
from typing import Any

from slslab.environments.accounting import (
    peak_resident_bytes,
    process_tree,
    reset_peak_resident,
    resident_bytes,
    take_sample,
)
from slslab.environments.confinement import Cgroup, Hierarchy, Limits
from slslab.functions import REGION, Function
from slslab.metering import MB, LambdaClock, cpu_share
from slslab.reaper import MARK
from slslab.runtime_api import NextInvocation, RuntimeApi, RuntimeReport

PROCESS_LIMIT = 1024
DESCRIPTOR_LIMIT = 1024
LOG_TAIL_BYTES = 4096
TICK_S = 0.1
WATCHDOG_TICK_S = 0.01
BACKSTOP_FACTOR = 20
BACKSTOP_S = 120
# Joins the control groups before the runtime starts, so that nothing of it runs unconfined.
LAUNCH = (
    'for group in $SLSLAB_JOIN; do echo $$ > "$group" || exit 125; done; unset SLSLAB_JOIN; '
    f'ulimit -n {DESCRIPTOR_LIMIT}; exec "$@"'
)
JOIN_FAILED = 125


LOG = logging.getLogger(__name__)
EVENT_FIELDS = frozenset(
    "op phase start_ns end_ns cpu_ns bytes requests resource etag overhead failed worker epoch step invocation".split()
)


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
    hierarchy: Hierarchy
    variables: Mapping[str, str]
    record: Callable[[dict[str, Any]], None]


class ProcessEnvironment:
    """One sandbox with one runtime process (`python -m awslambdaric`), reused while it stays warm."""

    def __init__(self, host: EnvironmentHost, function: Function, number: int) -> None:
        self.id = f"{function.name}-{number:04d}"
        self.function = function
        self.state = State.STARTING
        self._host = host
        self._runtime = RuntimeApi()
        self._cgroup: Cgroup | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._log_file: FileIO | None = None
        self._pidfd = -1
        self._log_read = -1
        self._trace_read = -1
        self._trace_buffer = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._peaks: dict[int, int] = {}
        self._metered = asyncio.Event()
        self._metered.set()
        self._known_kills = 0
        self._delay_ns = 0
        self._deadline_ns = 0
        self._home = host.home / self.id
        self._share = cpu_share(function.memory_mb)

    async def start(self, limit_s: float) -> Outcome:
        """Start the runtime and wait until it asks for its first invocation (the init phase)."""
        address = await self._runtime.start()
        (self._home / "tmp").mkdir(parents=True, exist_ok=True)
        (self._home / "clock").write_bytes(bytes(16))
        self._host.logs.mkdir(parents=True, exist_ok=True)
        if self._log_file is None:
            self._log_file = (self._host.logs / f"{self.id}.log").open("ab", buffering=0)
        limits = Limits(self.function.memory_mb * MB, self._share, PROCESS_LIMIT)
        if self._host.hierarchy.parents:
            self._cgroup = Cgroup(self._host.hierarchy, self.id, limits)
        self._spawn(address)
        outcome = await self._run(limit_s, self._runtime.ready.wait())
        if outcome.ending is Ending.RESPONSE:
            self.state = State.READY
        return outcome

    async def invoke(self, invocation: NextInvocation, limit_s: float) -> Outcome:
        """Hand one invocation to the waiting runtime and meter it to its end."""
        self.state = State.BUSY
        pids = self._pids()
        reset_peak_resident(pids)
        if self._cgroup is not None:
            self._cgroup.reset_peak()
        # A runtime that ends before the next sample has at least what it holds now.
        self._peaks = peak_resident_bytes(pids)
        self._deadline_ns = time.monotonic_ns() + round(limit_s * 1e9)
        self._publish_clock(0)
        self._runtime.hand_out(invocation)
        outcome = await self._run(limit_s, None)
        if outcome.ending in (Ending.RESPONSE, Ending.ERROR):
            self.state = State.READY
        return outcome

    async def ready(self) -> None:
        """Wait until the runtime asks for its next invocation (it does so at once after a response)."""
        waiting = asyncio.ensure_future(self._runtime.ready.wait())
        both: set[asyncio.Future[Any]] = {waiting, self._exited}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._exited.done():
            self.state = State.STOPPED

    async def stop(self) -> None:
        """Kill everything in the environment and remove every trace of it."""
        self.state = State.STOPPED
        await self._end_processes()
        if self._log_file is not None:
            self._log_file.close()
        await asyncio.to_thread(shutil.rmtree, self._home, ignore_errors=True)

    async def restart(self) -> None:
        """Back to before `start`: the runtime is killed, so that its initialisation can be repeated."""
        await self._end_processes()
        self._runtime = RuntimeApi()
        self._exited = asyncio.get_running_loop().create_future()
        self.state = State.STARTING

    def begin_log(self, request_id: str) -> None:
        """Begin an invocation's log with Lambda's START line; its tail holds nothing older."""
        self._tail.clear()
        self._tail_size = 0
        self.write_log(f"START RequestId: {request_id} Version: $LATEST\n")

    def write_log(self, text: str) -> None:
        """Append the platform's own lines (START, END, REPORT …) to the function's log and its tail."""
        self._keep(text.encode())

    def log_tail(self) -> bytes:
        """The last 4 KB of the log of the present or latest invocation."""
        return b"".join(self._tail)[-LOG_TAIL_BYTES:]

    async def _end_processes(self) -> None:
        await self._runtime.stop()
        if self._process is not None:
            for pid in self._pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await asyncio.shield(self._exited)
            self._process.wait()
            # Whoever watches the phase that this ended still reads the accounts that are removed next.
            await self._metered.wait()
        if self._cgroup is not None:
            await asyncio.to_thread(self._cgroup.remove)
        loop = asyncio.get_running_loop()
        for descriptor, drain in ((self._log_read, self._drain_log), (self._trace_read, self._drain_trace)):
            if descriptor >= 0:
                drain()
                loop.remove_reader(descriptor)
                os.close(descriptor)
        self._log_read = self._trace_read = -1
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def _spawn(self, address: str) -> None:
        function = self.function
        log_read, log_write = os.pipe()
        trace_read, trace_write = os.pipe()
        variables = {
            "PATH": os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin"),
            "LANG": "en_US.UTF-8",
            "TZ": ":UTC",
            "TMPDIR": str(self._home / "tmp"),
            "HOME": str(self._home / "tmp"),
            "PYTHONDONTWRITEBYTECODE": "1",
            **self._host.variables,
            **function.variables,
            "_HANDLER": function.handler,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{function.runtime}",
            "AWS_LAMBDA_FUNCTION_NAME": function.name,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{function.name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": f"{time.strftime('%Y/%m/%d')}/[$LATEST]{self.id}",
            "AWS_LAMBDA_RUNTIME_API": address,
            "LAMBDA_TASK_ROOT": str(function.code_directory),
            "LAMBDA_RUNTIME_DIR": str(Path(sys.executable).parent),
            "SLSLAB_TRACE_FD": str(trace_write),
            "SLSLAB_CLOCK_FILE": str(self._home / "clock"),
            "SLSLAB_JOIN": " ".join(str(path) for path in self._cgroup.join_files) if self._cgroup else "",
            MARK: self._host.emulator_id,
        }
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", LAUNCH, "sh", sys.executable, "-m", "awslambdaric", function.handler],
            env=variables,
            cwd=function.code_directory,
            stdin=subprocess.DEVNULL,
            stdout=log_write,
            stderr=log_write,
            pass_fds=(trace_write,),
            start_new_session=True,
        )
        os.close(log_write)
        os.close(trace_write)
        loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(self._process.pid)
        loop.add_reader(self._pidfd, self._on_exit)
        self._log_read, self._trace_read = log_read, trace_read
        for descriptor, drain in ((log_read, self._drain_log), (trace_read, self._drain_trace)):
            os.set_blocking(descriptor, False)
            loop.add_reader(descriptor, drain)

    async def _run(self, limit_s: float, done: Awaitable[Any] | None) -> Outcome:
        """Watch until the phase is over: by the runtime's word, the end of its process, the clock or the memory."""
        self._metered.clear()
        try:
            return await self._watch(limit_s, done)
        finally:
            self._metered.set()

    async def _watch(self, limit_s: float, done: Awaitable[Any] | None) -> Outcome:
        limit_ns = round(limit_s * 1e9)
        begin = time.monotonic_ns()
        clock = LambdaClock(self._share, take_sample(begin, self._pids(), self._cgroup))
        first_cpu = clock.cpu_ns
        self._record_clock(begin)
        report = asyncio.ensure_future(self._runtime.reports.get())
        finished = asyncio.ensure_future(done) if done is not None else None
        waiting: set[asyncio.Future[Any]] = {report, self._exited}
        if finished is not None:
            waiting.add(finished)
        killed_by: Ending | None = None
        next_tick_ns = begin
        try:
            while True:
                remaining_s = max(0.0005, (limit_ns - clock.elapsed_ns) / 1e9)
                tick_s = TICK_S if self._cgroup and self._cgroup.enforces_memory else WATCHDOG_TICK_S
                over, _ = await asyncio.wait(
                    waiting, timeout=min(tick_s, remaining_s), return_when=asyncio.FIRST_COMPLETED
                )
                now = time.monotonic_ns()
                if over or now >= next_tick_ns or now - begin >= limit_ns:
                    self._advance(clock, now)
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
        self._drain_log()
        self._drain_trace()
        runtime_report = report.result() if report.done() and not report.cancelled() else None
        if killed_by is not None:
            ending = killed_by
        elif runtime_report is not None:
            ending = Ending.RESPONSE if runtime_report.kind == "response" else Ending.ERROR
        elif finished is not None and finished.done() and not finished.cancelled():
            ending = Ending.RESPONSE
        else:
            ending = Ending.EXIT
        exit_status = self._exited.result() if self._exited.done() else None
        return Outcome(
            ending=ending,
            report=runtime_report,
            exit_status=exit_status,
            lambda_ns=clock.elapsed_ns,
            host_delay_ns=clock.host_delay_ns,
            cpu_ns=clock.cpu_ns - first_cpu,
            peak_bytes=sum(self._peaks.values()),
            cgroup_peak_bytes=self._cgroup.peak_bytes() if self._cgroup else None,
        )

    def _advance(self, clock: LambdaClock, now: int) -> None:
        pids = self._pids()
        before = clock.host_delay_ns
        clock.advance(take_sample(now, pids, self._cgroup))
        self._peaks.update(peak_resident_bytes(pids))
        self._delay_ns += clock.host_delay_ns - before
        self._publish_clock(clock.host_delay_ns)
        self._record_clock(now)

    def _record_clock(self, now: int) -> None:
        self._host.record({"record": "clock", "environment": self.id, "wall_ns": now, "host_delay_ns": self._delay_ns})

    def _memory_exceeded(self) -> bool:
        limit = self.function.memory_mb * MB
        if self._cgroup is not None and self._cgroup.enforces_memory:
            kills = self._cgroup.out_of_memory_kills()
            if kills > self._known_kills:
                self._known_kills = kills
                return True
            # The kernel charges shared library pages to whoever touched them first, so its limit comes later than
            # Lambda's; a single process whose own resident peak is above the limit has been out of memory.
            return any(peak > limit for peak in self._peaks.values())
        resident = resident_bytes(self._pids())
        for pid, size in resident.items():
            self._peaks[pid] = max(self._peaks.get(pid, 0), size)
        return sum(resident.values()) > limit

    def _pids(self) -> list[int]:
        if self._cgroup is not None:
            return self._cgroup.pids()
        return process_tree(self._process.pid) if self._process is not None else []

    def _publish_clock(self, delay_ns: int) -> None:
        """Tell the worker its deadline on CLOCK_MONOTONIC and the host's delay so far: the runtime's context counts
        wall time, and stops at zero."""
        with contextlib.suppress(FileNotFoundError), (self._home / "clock").open("r+b", buffering=0) as file:
            file.write(struct.pack("<QQ", self._deadline_ns, delay_ns))

    def _on_exit(self) -> None:
        assert self._process is not None
        asyncio.get_running_loop().remove_reader(self._pidfd)
        status = self._process.wait()
        if not self._exited.done():
            self._exited.set_result(status)

    def _drain_log(self) -> None:
        if self._log_read < 0:
            return  # stopped under a running invocation, and drained then
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._log_read, 65_536):
                self._keep(chunk)
                if len(chunk) < 65_536:
                    return
            asyncio.get_running_loop().remove_reader(self._log_read)

    def _drain_trace(self) -> None:
        if self._trace_read < 0:
            return
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._trace_read, 65_536):
                self._trace_buffer += chunk
                if len(chunk) < 65_536:
                    break
            else:
                asyncio.get_running_loop().remove_reader(self._trace_read)
        while len(self._trace_buffer) >= 4:
            size = int.from_bytes(self._trace_buffer[:4], "big")
            if len(self._trace_buffer) < 4 + size:
                break
            frame = bytes(self._trace_buffer[4 : 4 + size])
            del self._trace_buffer[: 4 + size]
            event = _trace_event(frame)
            if event is None:
                LOG.error("%s wrote a trace record that is none: %r", self.id, frame[:200])
                continue
            self._host.record({"record": "event", **event, "function": self.function.name, "environment": self.id})

    def _keep(self, chunk: bytes) -> None:
        if self._log_file is not None and not self._log_file.closed:
            self._log_file.write(chunk)
        self._tail.append(chunk[-LOG_TAIL_BYTES:])
        self._tail_size += len(self._tail[-1])
        while self._tail_size - len(self._tail[0]) >= LOG_TAIL_BYTES:
            self._tail_size -= len(self._tail.popleft())


def _trace_event(frame: bytes) -> dict[str, Any] | None:
    """The worker's event in a frame; None if it is not one, for a function may write anything to its descriptor."""
    try:
        event = json.loads(frame)
    except ValueError:
        return None
    whole = isinstance(event, dict) and event.keys() >= EVENT_FIELDS
    return event if whole and event["end_ns"] >= event["start_ns"] else None


def exit_reason(status: int | None) -> str:
    """The end of the runtime process in Lambda's words (`RequestId: … Error: <reason>`)."""
    if status is None or status == 0:
        return "Runtime exited without providing a reason"
    if status < 0:
        names = {
            signal.SIGKILL: "killed",
            signal.SIGSEGV: "segmentation fault",
            signal.SIGABRT: "aborted",
            signal.SIGTERM: "terminated",
        }
        return f"Runtime exited with error: signal: {names.get(signal.Signals(-status), str(-status))}"
    return f"Runtime exited with error: exit status {status}"


def peak_mb(outcome: Outcome, memory_mb: int) -> int:
    """Max Memory Used in MB: the resident peaks rounded up; the whole memory size when it was exhausted."""
    if outcome.ending is Ending.OUT_OF_MEMORY:
        return memory_mb
    return math.ceil(outcome.peak_bytes / MB)
