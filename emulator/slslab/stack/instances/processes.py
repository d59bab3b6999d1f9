"""Run long-running instances, each as a process of its own, metered from launch to end as EC2 bills it.

An instance isn't confined: neither Lambda's limits nor the vCPUs and memory of its EC2 type apply to it. Its time is
wall time on this host's processors and GPUs. The boot of an EC2 machine, which EC2 bills, too, isn't modelled.
"""

import json
import math
import os
import platform
import re
import select
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
        instances = RunningInstances(module, self.fleet.instance_type, self.on_event)
        try:
            for rank, event in enumerate(events):
                instances.running.append(self._launch(instances, rank, event, variables))
            instances.attend()
            yield instances
        finally:
            instances.end()

    def _launch(
        self, instances: "RunningInstances", rank: int, event: Mapping[str, Any], variables: Mapping[str, str]
    ) -> "_Instance":
        id_ = instance_id()
        home = self.session.home / "instances" / id_
        home.mkdir(parents=True)
        log = self.logs / f"{id_}.log"
        source = {"function": instances.module, "environment": id_, "invocation": id_}
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
                    [*tied_to_this_process(), sys.executable, "-m", instances.module],
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
            lines=TraceLines(id_, instances.take, source),
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
    lines: TraceLines
    log: Path

    def watch(self) -> None:
        """Read its trace and sample its counters until it ends; it stays a zombie, so that its ids aren't reused."""
        ended, poll, due = os.pidfd_open(self.process.pid), select.poll(), 0.0
        for descriptor in (ended, self.trace):
            poll.register(descriptor, select.POLLIN)
        ready: list[int] = []
        while ended not in ready:
            if self.trace in ready and not self.read():
                poll.unregister(self.trace)  # every writer has closed it
            if time.monotonic() >= due:
                self.measure(process_tree(self.process.pid))
                due = time.monotonic() + SAMPLE_S
            ready = [descriptor for descriptor, _ in poll.poll(SAMPLE_S * 1000)]
        os.close(ended)

    def read(self) -> bool:
        """Pass on what its trace has now; return False if that is nothing."""
        try:
            chunk = os.read(self.trace, CHUNK_BYTES)
        except BlockingIOError:
            return False
        self.lines.feed(chunk)
        return bool(chunk)

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)

    def reap(self) -> tuple[int, float]:
        """Wait for the process's end; return its exit code (negative for a signal) and the CPU seconds it used."""
        _, status, used = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return self.process.returncode, used.ru_utime + used.ru_stime


class RunningInstances:
    """The instances of one launch of a module; for each, a thread reads its trace, samples its counters
    and meters its end."""

    def __init__(self, module: str, instance_type: str, on_event: Callable[[dict[str, Any]], None]) -> None:
        self.module = module
        self.running: list[_Instance] = []
        self._type, self._on_event = instance_type, on_event
        self._threads: list[threading.Thread] = []
        self._ending = False
        self._failure: BaseException | None = None
        # Held while an instance is killed or reaped, because then its ids may be reused.
        self._lock = threading.RLock()

    def attend(self) -> None:
        """Start to sample and meter all launched instances."""
        for instance in list(self.running):
            thread = threading.Thread(target=self._attend, args=(instance,), name=f"slslab-{instance.id}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def check(self) -> None:
        """Raise the first failure, as RunFailed with the worker's rank; the other instances have been ended then."""
        if self._failure is not None:
            raise self._failure

    def join(self) -> None:
        """Wait until all instances have succeeded; RunFailed as soon as one of them fails."""
        for thread in self._threads:
            # Bounded waits, so that Ctrl-C takes effect.
            while thread.is_alive():
                thread.join(0.5)
        self.check()

    def end(self) -> None:
        """End the running instances, and return when all are metered."""
        self._ending = True
        self._kill()
        if not self._threads:
            self.attend()
        for thread in self._threads:
            thread.join()

    def take(self, record: dict[str, Any]) -> None:
        """Pass on a record; if it can't be written, `check` and `join` raise the error."""
        try:
            self._on_event(record)
        except BaseException as error:
            self._fail(error)

    def _attend(self, instance: _Instance) -> None:
        try:
            identity = instance.id, self._type, instance.start_ns, instance.rank, instance.device
            self.take(launch_record("instance", *identity))
            instance.watch()
            self._meter(instance, time.monotonic_ns())
        except BaseException as error:
            self._fail(error)
        finally:
            os.close(instance.trace)  # what it left behind may still write to it

    def _meter(self, instance: _Instance, end_ns: int) -> None:
        """Pass on the rest of an ended instance's trace and record it; if it has failed, end the others."""
        # Kill what it left behind in its group, before its id can be reused.
        instance.kill()
        while instance.read():
            pass
        with self._lock:
            self.running.remove(instance)
            exit_code, cpu_seconds = instance.reap()
            ended = self._ending or self._failure is not None
            record = instance.record(self.module, self._type, end_ns, exit_code, cpu_seconds, ended=ended)
            if record.status == "error":
                self._fail(failure(instance.id, instance.rank, exit_code, instance.log))
        self.take(record.as_record())

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._failure = self._failure or error
            self._kill()

    def _kill(self) -> None:
        with self._lock:
            for instance in self.running:
                instance.kill()


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


def _visible(device: str, number: int) -> str:
    """Return CUDA_VISIBLE_DEVICES for an instance that sees only this one of the devices that this process sees."""
    if device == "cpu":
        return ""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[number] if visible else str(number)
