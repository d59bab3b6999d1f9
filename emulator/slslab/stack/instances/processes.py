"""Run long-running instances, each as a process of its own, metered from launch to end as EC2 bills it.

An instance isn't confined: neither Lambda's limits nor the vCPUs and memory of its EC2 type apply to it. Its time is
wall time on this host's processors and GPUs. The boot of an EC2 machine, which EC2 bills, too, isn't modelled.
"""

import json
import math
import os
import platform
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from slslab.aws.limits import MB
from slslab.host.cgroup_accounts import GroupAccounts
from slslab.host.output import CHUNK_BYTES, TraceLines
from slslab.host.priority import weigh_session
from slslab.host.processes import tied_to_this_process
from slslab.host.procfs import Sample, peak_resident_bytes, process_tree, take_sample
from slslab.host.server_process import without_foreign
from slslab.host.session import Session
from slslab.lambda_.clock import host_delay_ns
from slslab.run.records import InstanceRecord, billed_seconds, launch_record
from slslab.stack.instances.fleet import choose_devices, instance_id
from slslab_workers.architecture import Fleet, RunFailed

SAMPLE_S = 0.1
LOG_TAIL_BYTES = 16_384
TRACEBACK = "Traceback (most recent call last):\n"
RAISED = re.compile(r"(?:[ \t][^\n]*\n)*(?P<type>[\w.]+)(?:: (?P<message>.*))?", re.DOTALL)


@dataclass(eq=False)
class ProcessLauncher:
    """Launches a fleet's instances as processes of this host, each in its own session.

    They find S3 by `variables`, the stack's. Each writes a log in `logs`. `on_event` receives trace records, with the
    module as their function, and metered records, on a thread of the launcher. `name` describes what they really run
    on.
    """

    fleet: Fleet
    session: Session
    variables: Mapping[str, str]
    logs: Path
    on_event: Callable[[dict[str, Any]], None]
    name = f"processes of this host, Python {platform.python_version()}"

    def __post_init__(self) -> None:
        self.devices = choose_devices(self.fleet.device)

    @contextmanager
    def launch(
        self, module: str, events: Sequence[Mapping[str, Any]], variables: Mapping[str, str]
    ) -> Iterator["RunningInstances"]:
        """Launch one instance per event, on the devices in turn; see `InstanceLauncher`."""
        launched: list[_Instance] = []
        instances = RunningInstances(self, module, launched)
        try:
            for rank, event in enumerate(events):
                launched.append(self._launch(module, rank, event, variables))
            instances.thread.start()
            yield instances
        finally:
            instances.end()

    def _launch(self, module: str, rank: int, event: Mapping[str, Any], variables: Mapping[str, str]) -> "_Instance":
        id_ = instance_id()
        home = self.session.home / "instances" / id_
        home.mkdir(parents=True)
        log = self.logs / f"{id_}.log"
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        number = rank % len(self.devices)
        environment = without_foreign(os.environ)
        environment |= {**self.variables, **variables, **self.session.mark, "SLSLAB_TRACE_FD": str(writing)}
        environment["CUDA_VISIBLE_DEVICES"] = _visible(self.devices[number], number)
        try:
            with log.open("wb") as output:
                start_ns = time.monotonic_ns()
                process = subprocess.Popen(
                    [*tied_to_this_process(), sys.executable, "-m", module],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    cwd=home,
                    env=environment,
                    pass_fds=(writing,),
                    start_new_session=True,
                )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        weigh_session(process.pid)
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:  # an instance that exits early fails by its exit code
            process.stdin.write(json.dumps(event).encode())
        return _Instance(
            id=id_,
            rank=rank,
            device=self.devices[number],
            start_ns=start_ns,
            process=process,
            trace=reading,
            log=log,
        )


@dataclass(kw_only=True)
class Meter:
    """The measurements of one instance while it runs."""

    id: str
    rank: int
    device: str
    start_ns: int = field(default_factory=time.monotonic_ns)
    started_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    sample: Sample | None = None
    peak_bytes: int = 0
    host_delay_ns: int = 0

    def measure(self, pids: list[int], group: GroupAccounts | None = None) -> None:
        """Sample the counters of its processes."""
        sample = take_sample(time.monotonic_ns(), pids, group)
        if self.sample is not None:
            self.host_delay_ns += host_delay_ns(self.sample, sample)
        self.sample = sample
        self.peak_bytes = max(self.peak_bytes, peak_resident_bytes(pids))

    def record(
        self, module: str, instance_type: str, end_ns: int, exit_code: int, cpu_seconds: float, *, ended: bool
    ) -> InstanceRecord:
        """Return the metered record of an ended instance; `ended` says whether it was ended on purpose."""
        return InstanceRecord(
            id=self.id,
            function=module,
            type=instance_type,
            worker=self.rank,
            device=self.device,
            started_at=self.started_at,
            start_ns=self.start_ns,
            end_ns=end_ns,
            billed_seconds=billed_seconds(end_ns - self.start_ns),
            peak_memory_mb=math.ceil(self.peak_bytes / MB),
            cpu_seconds=round(cpu_seconds, 6),
            host_delay_ms=round(self.host_delay_ns / 1e6, 3),
            status="success" if exit_code == 0 else "ended" if ended else "error",
            exit_code=exit_code,
        )


@dataclass(kw_only=True)
class _Instance(Meter):
    process: subprocess.Popen[bytes]
    trace: int
    log: Path

    def has_ended(self) -> bool:
        """Return whether the process has ended; it stays a zombie, so that its ids aren't reused."""
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)

    def reap(self) -> tuple[int, float]:
        """Wait for the process's end; return its exit code (negative for a signal) and the CPU seconds it used."""
        _, status, used = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return self.process.returncode, used.ru_utime + used.ru_stime


class RunningInstances:
    """The instances of one launch; `thread` reads their traces, samples their counters and meters their ends."""

    def __init__(self, launcher: ProcessLauncher, module: str, launched: list[_Instance]) -> None:
        self._launcher = launcher
        self._module = module
        self._instance_type = launcher.fleet.instance_type
        self._launched = launched
        self._running: list[_Instance] = []
        self._ending = threading.Event()
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self.thread = threading.Thread(target=self._attend, name="slslab-instances", daemon=True)

    def check(self) -> None:
        """Raise the first failure, as RunFailed with the worker's rank; the other instances have been ended then."""
        if self._failure is not None:
            raise self._failure

    def join(self) -> None:
        """Wait until all instances have succeeded; RunFailed as soon as one of them fails."""
        # Bounded waits, so that Ctrl-C takes effect.
        while not self._over.wait(0.5):
            self.check()
        self.check()

    def end(self) -> None:
        """End the running instances, and return when all are metered."""
        self._ending.set()
        if not self.thread.ident:
            self.thread.start()
        self.thread.join()

    def _attend(self) -> None:
        self._running = list(self._launched)
        lines = {instance.trace: self._lines(instance.id) for instance in self._launched}
        try:
            for instance in self._launched:
                self._launcher.on_event(
                    launch_record(
                        "instance",
                        instance.id,
                        self._instance_type,
                        instance.start_ns,
                        instance.rank,
                        instance.device,
                    )
                )
            self._watch(lines)
        except BaseException as error:
            # For instance, a trace that can't be written; `check` and `join` raise it.
            self._failure = self._failure or error
            self._kill()
            for instance in self._running:
                instance.reap()
        finally:
            for instance in self._launched:
                os.close(instance.trace)
            self._over.set()

    def _watch(self, lines: Mapping[int, TraceLines]) -> None:
        with selectors.DefaultSelector() as selector:
            for trace in lines:
                selector.register(trace, selectors.EVENT_READ)
            sampled = 0.0
            while self._running:
                # The end of an instance closes its trace and so ends this wait, too.
                for key, _ in selector.select(SAMPLE_S):
                    if _read(key.fd, lines[key.fd]) == 0:
                        selector.unregister(key.fd)
                if self._ending.is_set():
                    self._kill()
                for instance in [instance for instance in self._running if instance.has_ended()]:
                    self._meter(instance, lines[instance.trace])
                if time.monotonic() - sampled >= SAMPLE_S:
                    sampled = time.monotonic()
                    for instance in self._running:
                        instance.measure(process_tree(instance.process.pid))

    def _meter(self, instance: _Instance, lines: TraceLines) -> None:
        """Read the rest of an ended instance's trace and record it; if it has failed, end the others."""
        end_ns = time.monotonic_ns()
        # Kill what it left behind in its group, before its id can be reused.
        instance.kill()
        while _read(instance.trace, lines):
            pass
        exit_code, cpu_seconds = instance.reap()
        self._running.remove(instance)
        ended = self._ending.is_set() or self._failure is not None
        record = instance.record(self._module, self._instance_type, end_ns, exit_code, cpu_seconds, ended=ended)
        if record.status == "error":
            self._failure = failure(instance.id, instance.rank, exit_code, instance.log)
            self._kill()
        self._launcher.on_event(record.as_record())

    def _kill(self) -> None:
        for instance in self._running:
            instance.kill()

    def _lines(self, id_: str) -> TraceLines:
        source = {"function": self._module, "environment": id_, "invocation": id_}
        return TraceLines(id_, self._launcher.on_event, source)


def failure(id_: str, rank: int, exit_code: int, log: Path) -> RunFailed:
    """Return why an instance failed: the exception in its log that ended it, or its signal or exit code."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
        tail = file.read().decode(errors="replace")
    if exit_code < 0:
        name = signal.Signals(-exit_code).name
        return RunFailed("Instance.Killed", f"The instance {id_} was killed by {name}.", rank, tail)
    # The last exception, if it was raised while another was handled.
    _, traceback, rest = tail.rpartition(TRACEBACK)
    if traceback and (raised := RAISED.match(rest)):
        return RunFailed(raised["type"].rpartition(".")[2], (raised["message"] or "").strip(), rank, tail)
    return RunFailed("Instance.Exited", f"The instance {id_} ended with exit code {exit_code}.", rank, tail)


def _read(descriptor: int, lines: TraceLines) -> int | None:
    """Read the available bytes of a trace; return their number, 0 at its end, None if nothing is available."""
    try:
        chunk = os.read(descriptor, CHUNK_BYTES)
    except BlockingIOError:
        return None
    lines.feed(chunk)
    return len(chunk)


def _visible(device: str, number: int) -> str:
    """Return CUDA_VISIBLE_DEVICES for an instance that sees only this one of the devices that this process sees."""
    if device == "cpu":
        return ""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[number] if visible else str(number)
