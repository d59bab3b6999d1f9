"""Long-running instances that are no functions: each a process of its own, metered from launch to end as EC2 bills it.

An instance is not confined: no limit of Lambda's holds for it, and neither the vCPUs nor the memory of its EC2 type are
imposed on it. What is measured is wall time on this host's processors and GPUs. A host's boot, which EC2 bills as well,
is not modelled.
"""

import json
import math
import os
import platform
import re
import secrets
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

from slslab.billing import HOST, Book
from slslab.environments.accounting import Sample, peak_resident_bytes, process_tree, take_sample
from slslab.environments.groups import GroupAccounts
from slslab.environments.output import CHUNK_BYTES, TraceFrames
from slslab.errors import HostError, RequestError
from slslab.metering import MB, host_delay_ns
from slslab.session import Session
from slslab.stack.embedded import tied_to_this_process
from slslab_workers.architecture import Fleet, RunFailed

BILLED_MINIMUM_S = 60  # documented: AWS What's New, 2 October 2017, "Per-second billing for Amazon EC2"
SAMPLE_S = 0.1
LOG_TAIL_BYTES = 16_384
# The user's own AWS settings and proxies are not the instances'.
FOREIGN = re.compile(r"AWS_.*|SLSLAB_.*|.*_proxy", re.IGNORECASE)
TRACEBACK = "Traceback (most recent call last):\n"
RAISED = re.compile(r"(?:[ \t][^\n]*\n)*(?P<type>[\w.]+)(?:: (?P<message>.*))?", re.DOTALL)


@dataclass(frozen=True)
class InstanceRecord:
    """The metered record of one instance; times in ns of CLOCK_MONOTONIC, memory in MiB.

    `billed_seconds` are EC2's: whole seconds, at least 60. `device` is `cpu`, or a GPU by torch's number and its name.
    `host_delay_ms` is how long its threads waited for a processor of this host; nothing is corrected by it. `status` is
    success, error (it failed), or ended (another one failed, or the run was interrupted).
    """

    id: str
    function: str
    type: str
    worker: int
    device: str
    started_at: str
    start_ns: int
    end_ns: int
    billed_seconds: int
    peak_memory_mb: int
    cpu_seconds: float
    host_delay_ms: float
    status: str
    exit_code: int

    def as_document(self) -> dict[str, Any]:
        """The record as a JSON-safe mapping."""
        return asdict(self)


def billed_seconds(nanoseconds: int) -> int:
    """Seconds that EC2 bills for a launch: begun ones count whole, and 60 at least."""
    return max(BILLED_MINIMUM_S, -(-nanoseconds // 1_000_000_000))


def seconds_used(record: Mapping[str, Any]) -> Decimal:
    """Seconds from an instance's launch to its end, which a book has a price for; a begun millisecond counts whole."""
    return Decimal(-((record["start_ns"] - record["end_ns"]) // 1_000_000)) / 1000


def cuda_devices() -> tuple[str, ...]:
    """The GPUs that torch sees, each by its number and name, such as `cuda:0 Tesla T4`."""
    import torch

    if not torch.cuda.is_available():
        return ()
    return tuple(f"cuda:{n} {torch.cuda.get_device_name(n)}" for n in range(torch.cuda.device_count()))


def choose_devices(wanted: str) -> tuple[str, ...]:
    """What instances share in turn: the GPUs, or the CPU. HostError if CUDA is wanted and there is none."""
    found = () if wanted == "cpu" else cuda_devices()
    if wanted == "cuda" and not found:
        raise HostError(
            "torch sees no CUDA device on this host.", "--device auto or cpu computes on the CPU, and says so."
        )
    return found or ("cpu",)


def check_fleet(fleet: Fleet, book: Book) -> None:
    """RequestError for an instance type that the book cannot bill."""
    if HOST + fleet.instance_type not in book.prices:
        hosts = [meter.removeprefix(HOST) for meter in book.prices if meter.startswith(HOST)]
        raise RequestError(
            f"The price book {book.name} has no instance type {fleet.instance_type!r}.",
            f"it has {', '.join(hosts) or 'none'}.",
        )


def notes(instances: Sequence[Mapping[str, Any]]) -> list[str]:
    """What whoever reads times and prices of these records must know."""
    told: dict[str, None] = {}
    for device in dict.fromkeys(record["device"] for record in instances):
        sharing = [record for record in instances if record["device"] == device]
        kind = sharing[0]["type"]
        if device == "cpu":
            told[f"computed on CPU: times are no GPU's, and seconds are billed as if of {kind}"] = None
        else:
            shared = f", which {len(sharing)} instances shared" if len(sharing) > 1 else ""
            told[f"computed on {device}{shared}: times are that GPU's, and seconds are billed as of {kind}"] = None
    return list(told)


class ProcessLauncher:
    """Launches a fleet's instances as processes of this host, in sessions of their own.

    `variables` are the stack's, by which they find S3; logs go to files of theirs in `logs`. Trace records, with the
    module as their function, go to `on_event` and metered records to `on_record`, both on a thread of the launcher's.
    """

    def __init__(
        self,
        fleet: Fleet,
        *,
        session: Session,
        variables: Mapping[str, str],
        logs: Path,
        on_event: Callable[[dict[str, Any]], None],
        on_record: Callable[[InstanceRecord], None],
    ) -> None:
        self.fleet = fleet
        self.devices = choose_devices(fleet.device)
        self.session = session
        self.variables = dict(variables)
        self.logs = logs
        self.on_event = on_event
        self.on_record = on_record

    @property
    def name(self) -> str:
        """What these instances really are."""
        return f"processes of this host, Python {platform.python_version()}"

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
            instances.attend()
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
        own = {"SLSLAB_TRACE_FD": str(writing), "CUDA_VISIBLE_DEVICES": _visible(self.devices[number], number)}
        inherited = {name: value for name, value in os.environ.items() if not FOREIGN.fullmatch(name)}
        try:
            with log.open("wb") as output:
                start_ns = time.monotonic_ns()
                process = subprocess.Popen(
                    [*tied_to_this_process(), sys.executable, "-m", module],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    cwd=home,
                    env={**inherited, **self.variables, **variables, **self.session.mark, **own},
                    pass_fds=(writing,),
                    start_new_session=True,
                )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        _tell(process.stdin, event)
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
    """What is known of one instance while it runs."""

    id: str
    rank: int
    device: str
    start_ns: int = field(default_factory=time.monotonic_ns)
    started_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    sample: Sample | None = None
    peak_bytes: int = 0
    host_delay_ns: int = 0

    def look(self, pids: list[int], group: GroupAccounts | None = None) -> None:
        """Take a sample of the accounts of its processes."""
        sample = take_sample(time.monotonic_ns(), pids, group)
        if self.sample is not None:
            self.host_delay_ns += host_delay_ns(self.sample, sample)
        self.sample = sample
        self.peak_bytes = max(self.peak_bytes, sum(peak_resident_bytes(pids).values()))

    def record(
        self, module: str, instance_type: str, end_ns: int, exit_code: int, cpu_seconds: float, *, ended: bool
    ) -> InstanceRecord:
        """The metered record of an instance that is over; `ended` tells whether others' end or ours was the reason."""
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


def launch_record(
    of: str, id_: str, instance_type: str, start_ns: int, worker: int = -1, device: str = ""
) -> dict[str, Any]:
    """A trace record: an instance (`of`), or a host of a database or queue, is billed by its time from now on."""
    own = {"record": "begin", "of": of, "id": id_, "type": instance_type}
    return {**own, "worker": worker, "device": device, "start_ns": start_ns}


def instance_id() -> str:
    """A new id, as EC2's look."""
    return f"i-{secrets.token_hex(9)[:17]}"


@dataclass(kw_only=True)
class _Instance(Meter):
    """One process."""

    process: subprocess.Popen[bytes]
    trace: int
    log: Path

    def has_ended(self) -> bool:
        """Whether the process is over; it stays a zombie, so that its ids are nobody else's."""
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def kill(self) -> None:
        """End it and all that it started in its session's group."""
        os.killpg(self.process.pid, signal.SIGKILL)

    def reap(self) -> tuple[int, float]:
        """Exit code (negative: a signal) and CPU seconds of a process that has ended, or is about to."""
        _, status, used = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return self.process.returncode, used.ru_utime + used.ru_stime


class RunningInstances:
    """The instances of one launch, attended by a thread: their trace, their accounts, their ends."""

    def __init__(self, launcher: ProcessLauncher, module: str, launched: list[_Instance]) -> None:
        self._launcher = launcher
        self._module = module
        self._launched = launched
        self._alive: list[_Instance] = []
        self._ending = threading.Event()
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._attend, name="slslab-instances", daemon=True)

    def check(self) -> None:
        """Raise the first failure, as RunFailed with the worker's rank; the other instances are ended then."""
        if self._failure is not None:
            raise self._failure

    def join(self) -> None:
        """Wait until all instances have ended well; RunFailed as soon as one of them fails."""
        # Bounded waits, so that Ctrl-C is heard.
        while not self._over.wait(0.5):
            self.check()
        self.check()

    def attend(self) -> None:
        """Begin to attend them."""
        self._thread.start()

    def end(self) -> None:
        """End those that still run, and return when all are metered."""
        self._ending.set()
        if not self._thread.ident:
            self._thread.start()
        self._thread.join()

    def _attend(self) -> None:
        self._alive = list(self._launched)
        frames = {one.trace: TraceFrames(one.id, self._hand_on(one)) for one in self._launched}
        try:
            for one in self._launched:
                kind = self._launcher.fleet.instance_type
                self._launcher.on_event(launch_record("instance", one.id, kind, one.start_ns, one.rank, one.device))
            self._watch(frames)
        except BaseException as error:
            # Such as a trace that cannot be written; whoever waits for the instances gets it.
            self._failure = self._failure or error
            self._kill()
            for one in self._alive:
                one.reap()
        finally:
            for one in self._launched:
                os.close(one.trace)
            self._over.set()

    def _watch(self, frames: Mapping[int, TraceFrames]) -> None:
        with selectors.DefaultSelector() as selector:
            for trace in frames:
                selector.register(trace, selectors.EVENT_READ)
            looked = 0.0
            while self._alive:
                # The end of an instance closes its trace and so ends this wait, too.
                for key, _ in selector.select(SAMPLE_S):
                    if _read(key.fd, frames[key.fd]) == 0:
                        selector.unregister(key.fd)
                if self._ending.is_set():
                    self._kill()
                for one in [one for one in self._alive if one.has_ended()]:
                    self._meter(one, frames[one.trace])
                if time.monotonic() - looked >= SAMPLE_S:
                    looked = time.monotonic()
                    for one in self._alive:
                        one.look(process_tree(one.process.pid))

    def _meter(self, one: _Instance, frames: TraceFrames) -> None:
        """An instance has ended: what is left of its trace, its record, and what follows for the others."""
        end_ns = time.monotonic_ns()
        # What it left behind in its group, before its id is free again.
        one.kill()
        while _read(one.trace, frames):
            pass
        exit_code, cpu_seconds = one.reap()
        self._alive.remove(one)
        ended = self._ending.is_set() or self._failure is not None
        launcher = self._launcher
        kind = launcher.fleet.instance_type
        record = one.record(self._module, kind, end_ns, exit_code, cpu_seconds, ended=ended)
        if record.status == "error":
            self._failure = failure(one.id, one.rank, exit_code, one.log)
            self._kill()
        launcher.on_record(record)

    def _kill(self) -> None:
        for one in self._alive:
            one.kill()

    def _hand_on(self, one: _Instance) -> Callable[[dict[str, Any]], None]:
        own = {"record": "event", "function": self._module, "environment": one.id, "invocation": one.id}
        return lambda event: self._launcher.on_event({**event, **own})


def failure(id_: str, rank: int, exit_code: int, log: Path) -> RunFailed:
    """Why an instance failed: the exception that ended it, as its log tells it, or the signal or status it ended by."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
        tail = file.read().decode(errors="replace")
    if exit_code < 0:
        name = signal.Signals(-exit_code).name
        return RunFailed("Instance.Killed", f"The instance {id_} was ended by {name}.", rank, log_tail=tail)
    # Of exceptions that were raised in the handling of others, the last.
    _, traceback, rest = tail.rpartition(TRACEBACK)
    if traceback and (raised := RAISED.match(rest)):
        return RunFailed(raised["type"].rpartition(".")[2], (raised["message"] or "").strip(), rank, log_tail=tail)
    message = f"The instance {id_} ended with exit code {exit_code}."
    return RunFailed("Instance.Exited", message, rank, log_tail=tail)


def _tell(stream: IO[bytes] | None, event: Mapping[str, Any]) -> None:
    """Hand an instance its event; one that ends before it has read it fails by its exit code."""
    assert stream is not None
    try:
        with stream:
            stream.write(json.dumps(event).encode())
    except BrokenPipeError:
        return


def _read(descriptor: int, frames: TraceFrames) -> int | None:
    """Take what has come of a trace: how many bytes, 0 at its end, None if there is nothing at the moment."""
    try:
        chunk = os.read(descriptor, CHUNK_BYTES)
    except BlockingIOError:
        return None
    frames.feed(chunk)
    return len(chunk)


def _visible(device: str, number: int) -> str:
    """CUDA_VISIBLE_DEVICES for an instance that is to see this device alone, within what this process sees itself."""
    if device == "cpu":
        return ""
    own = os.environ.get("CUDA_VISIBLE_DEVICES")
    return own.split(",")[number] if own else str(number)
