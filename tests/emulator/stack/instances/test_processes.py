"""Instances as processes: their environment, their ends, their reports and their bill."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import torch

from slslab.errors import HostError, RequestError
from slslab.host.reaper import marked_processes
from slslab.host.session import Session
from slslab.run import metrics
from slslab.run.bill import Usage, compute_bill, load_book
from slslab.run.log import INSTANCES, LOG, TraceWriter, compact, metered_records
from slslab.run.records import InstanceRecord, billed_seconds, notes, seconds_used
from slslab.stack.instances import fleet, processes
from slslab.stack.instances.fleet import check_fleet, choose_devices
from slslab.stack.instances.processes import ProcessLauncher
from slslab_workers.architecture import Fleet, RunFailed

pytestmark = pytest.mark.server

Program = Callable[[str], None]
FOREVER = "while True: time.sleep(1)"


class Recorded:
    """A launcher for a module `program`, and all that it told."""

    def __init__(self, session: Session, directory: Path, fleet: Fleet) -> None:
        self.events: list[dict[str, Any]] = []
        self.records: list[InstanceRecord] = []
        self.logs = directory / "logs"
        self.logs.mkdir()
        self.session = session
        self.python_path = {"PYTHONPATH": str(directory)}
        self.launcher = ProcessLauncher(
            fleet,
            session=session,
            variables={"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"},
            logs=self.logs,
            on_event=self.event,
        )

    def event(self, record: dict[str, Any]) -> None:
        if record["record"] == "instance":
            self.records.append(InstanceRecord(**{name: record[name] for name in record if name != "record"}))
        else:
            self.events.append(record)

    def run(self, count: int) -> list[InstanceRecord]:
        """Launch this many and wait for them; return their records by rank."""
        with self.launcher.launch("program", [{"rank": rank} for rank in range(count)], self.python_path) as running:
            running.join()
        return sorted(self.records, key=lambda record: record.worker)


@pytest.fixture
def session() -> Iterator[Session]:
    with Session() as one:
        yield one


@pytest.fixture
def recorded(session: Session, tmp_path: Path) -> Recorded:
    return Recorded(session, tmp_path, Fleet("g4dn.xlarge", "cpu"))


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Writes the module that instances run; `event` is what they were given."""

    def write(text: str) -> None:
        head = "import json, os, signal, subprocess, sys, time\nevent = json.load(sys.stdin)\n"
        (tmp_path / "program.py").write_text(head + text)

    return write


@pytest.mark.parametrize(
    ("nanoseconds", "seconds"),
    [(0, 60), (59_999_999_999, 60), (60_000_000_000, 60), (60_000_000_001, 61), (3_600_500_000_000, 3601)],
)
def test_billed_seconds_are_whole_and_sixty_at_least(nanoseconds: int, seconds: int) -> None:
    assert billed_seconds(nanoseconds) == seconds


@pytest.mark.parametrize(
    ("nanoseconds", "seconds"), [(0, "0"), (1, "0.001"), (92_000_000_000, "92"), (60_000_000_001, "60.001")]
)
def test_seconds_used_are_to_the_millisecond(nanoseconds: int, seconds: str) -> None:
    used = seconds_used({"start_ns": 5, "end_ns": 5 + nanoseconds})
    assert used == Decimal(seconds)
    assert max(60, math.ceil(used)) == billed_seconds(nanoseconds), "the bill and the record say the same"


def test_an_instance_finds_the_stack_and_leaves_trace_log_and_record(
    recorded: Recorded, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "the-users-own")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:2")
    monkeypatch.setattr(processes, "SAMPLE_S", 0.01)
    program("""
from slslab_workers.channels.events import Tracer
with Tracer(run="run", worker=event["rank"]).span("compute", "compute"):
    block = bytearray(50 << 20)
    time.sleep(0.5)
seen = {name: os.environ.get(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "http_proxy")}
print(json.dumps(seen | {"session": os.getsid(0) == os.getpid(), "cuda": os.environ["CUDA_VISIBLE_DEVICES"]}))
""")
    began = time.monotonic_ns()
    zero, one = recorded.run(2)
    assert began <= zero.start_ns < zero.end_ns <= time.monotonic_ns()
    assert (zero.worker, one.worker, zero.status, zero.exit_code) == (0, 1, "success", 0)
    assert (zero.type, zero.device, zero.function, zero.billed_seconds) == ("g4dn.xlarge", "cpu", "program", 60)
    assert 50 < zero.peak_memory_mb < 500
    assert zero.cpu_seconds > 0
    begun, events = recorded.events[:2], recorded.events[2:]
    assert [(e["record"], e["of"], e["id"], e["type"], e["worker"], e["start_ns"]) for e in begun] == [
        ("begin", "instance", record.id, "g4dn.xlarge", record.worker, record.start_ns) for record in (zero, one)
    ]
    assert [(e["record"], e["function"], e["op"]) for e in events] == [("event", "program", "compute")] * 2
    assert {(e["environment"], e["invocation"], e["worker"]) for e in events} == {
        (record.id, record.id, record.worker) for record in (zero, one)
    }
    seen = json.loads((recorded.logs / f"{zero.id}.log").read_text())
    assert seen == {
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
        "AWS_PROFILE": None,
        "http_proxy": None,
        "session": True,
        "cuda": "",
    }


def test_no_record_of_the_trace_is_lost(recorded: Recorded, program: Program) -> None:
    program("""
from slslab_workers.channels.events import Tracer
tracer = Tracer(run="run", worker=event["rank"])
for number in range(3000):
    with tracer.span("compute", "compute", str(number)):
        pass
os._exit(0)
""")
    recorded.run(1)
    begun, *events = recorded.events
    assert begun["record"] == "begin"
    assert [event["resource"] for event in events] == [str(number) for number in range(3000)]


@pytest.mark.parametrize(
    ("ending", "type_", "message"),
    [
        ("raise ValueError('one\\ntwo')", "ValueError", "one\ntwo"),
        ("raise KeyError", "KeyError", ""),
        ("json.loads('{')", "JSONDecodeError", "Expecting property name enclosed in double quotes"),
        ("sys.exit(3)", "Instance.Exited", "ended with exit code 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "Instance.Killed", "was killed by SIGKILL"),
    ],
)
def test_the_first_failure_ends_all(
    ending: str, type_: str, message: str, recorded: Recorded, program: Program, session: Session
) -> None:
    program(f"print('said before', flush=True)\nif event['rank'] == 1:\n    {ending}\n{FOREVER}")
    with pytest.raises(RunFailed) as failed:
        recorded.run(3)
    assert (failed.value.type, failed.value.worker) == (type_, 1)
    assert message in failed.value.message
    assert "said before" in failed.value.log_tail
    assert sorted((record.worker, record.status) for record in recorded.records) == [
        (0, "ended"), (1, "error"), (2, "ended"),
    ]  # fmt: skip
    assert marked_processes(session.id) == []


def test_one_that_never_reads_its_event_fails_by_its_own_end(recorded: Recorded, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("raise SystemExit(4)")
    with pytest.raises(RunFailed, match="exit code 4"):
        recorded.run(1)


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), RunFailed("S3", "is gone")])
def test_what_interrupts_the_driver_ends_them_and_they_are_metered(
    interruption: BaseException, recorded: Recorded, program: Program, session: Session
) -> None:
    program(f"print('up', flush=True)\n{FOREVER}")

    def drive() -> None:
        with recorded.launcher.launch("program", [{}, {}], recorded.python_path) as running:
            while sum(path.read_text() == "up\n" for path in recorded.logs.iterdir()) < 2:
                running.check()
                time.sleep(0.01)
            raise interruption

    with pytest.raises(type(interruption)):
        drive()
    assert [(record.status, record.exit_code, record.billed_seconds) for record in recorded.records] == [
        ("ended", -signal.SIGKILL, 60)
    ] * 2
    assert marked_processes(session.id) == []


def test_what_an_instance_left_running_ends_with_it(recorded: Recorded, program: Program, session: Session) -> None:
    program("subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])")
    recorded.run(1)
    deadline = time.monotonic() + 10
    while marked_processes(session.id) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert marked_processes(session.id) == []


def test_one_that_leaves_a_writer_of_its_trace_ends(recorded: Recorded, program: Program) -> None:
    program("""
trace = int(os.environ["SLSLAB_TRACE_FD"])
subprocess.Popen(["sleep", "600"], pass_fds=[trace], start_new_session=True)
""")
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    recorded.run(1)
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before


def test_events_follow_the_beginning_of_their_instance(
    recorded: Recorded, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(
        "from slslab_workers.channels.events import Tracer\n"
        "with Tracer(run='run').span('compute', 'compute'):\n    pass\n"
    )
    # The first instance ends while the second one is launched.
    monkeypatch.setattr(processes, "weigh_session", lambda _pid: time.sleep(1))
    recorded.run(2)
    zero = next(record for record in recorded.records if record.worker == 0)
    own = [e["record"] for e in recorded.events if zero.id in (e.get("id"), e.get("environment"))]
    assert own == ["begin", "event"]


def test_a_trace_that_cannot_be_written_ends_the_run(
    recorded: Recorded, program: Program, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(
        "from slslab_workers.channels.events import Tracer\n"
        "with Tracer(run='run').span('compute', 'compute'):\n    pass\n" + FOREVER
    )

    def full(_record: dict[str, Any]) -> None:
        raise HostError("The trace cannot be written: no space left.", "make room for runs.")

    monkeypatch.setattr(recorded.launcher, "on_event", full)
    with pytest.raises(HostError, match="no space left"):
        recorded.run(2)
    assert marked_processes(session.id) == []


def test_a_killed_command_leaves_no_instance(tmp_path: Path, program: Program) -> None:
    program(f"print('up', flush=True)\n{FOREVER}")
    (tmp_path / "logs").mkdir()
    command = f"""
import sys, time
from pathlib import Path
from slslab.host.session import Session
from slslab.stack.instances.processes import ProcessLauncher
from slslab_workers.architecture import Fleet
logs = Path({str(tmp_path / "logs")!r})
with Session() as session:
    launcher = ProcessLauncher(Fleet("g4dn.xlarge", "cpu"), session=session, variables={{}}, logs=logs,
                               on_event=str)
    with launcher.launch("program", [{{}}, {{}}], {{"PYTHONPATH": {str(tmp_path)!r}}}) as running:
        while sum(path.read_text() == "up\\n" for path in logs.iterdir()) < 2:
            time.sleep(0.01)
        print(session.id, flush=True)
        running.join()
"""
    with subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        session_id = process.stdout.readline().strip()
        assert len(marked_processes(session_id)) >= 2
        process.kill()
    deadline = time.monotonic() + 20
    while marked_processes(session_id) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert marked_processes(session_id) == []


@pytest.mark.parametrize(("own", "visible"), [(None, "010"), ("3,5", "353")])
def test_instances_take_gpus_in_turn_and_see_one_each(
    own: str | None, visible: str, session: Session, tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "cuda_devices", lambda: ("cuda:0 Tesla T4", "cuda:1 Tesla T4"))
    if own is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", own)
    program("print(os.environ['CUDA_VISIBLE_DEVICES'], end='')")
    recorded = Recorded(session, tmp_path, Fleet("g4dn.xlarge", "auto"))
    records = recorded.run(3)
    assert [record.device for record in records] == ["cuda:0 Tesla T4", "cuda:1 Tesla T4", "cuda:0 Tesla T4"]
    assert "".join((recorded.logs / f"{record.id}.log").read_text() for record in records) == visible


@pytest.mark.parametrize(
    ("number", "available", "seen"), [("2+cpu", 2, 0), ("2+cu126", 2, 2), ("2", 2, 2), ("2", 0, 0)]
)
def test_the_gpus_are_those_that_torch_sees(
    number: str, available: int, seen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "version", lambda _name: number)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: available)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _number: "Tesla T4")
    assert fleet.cuda_devices() == ("cuda:0 Tesla T4", "cuda:1 Tesla T4")[:seen]


def test_devices_and_types_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "cuda_devices", lambda: ())
    assert choose_devices("auto") == choose_devices("cpu") == ("cpu",)
    with pytest.raises(HostError, match="torch sees no CUDA device"):
        choose_devices("cuda")
    book = load_book("paper-2025")
    check_fleet(Fleet("g4dn.xlarge", "cpu"), book)
    with pytest.raises(RequestError, match=r"paper-2025 has no instance type 'g5.xlarge'") as wrong:
        check_fleet(Fleet("g5.xlarge", "cpu"), book)
    assert wrong.value.hint == "it has g4dn.xlarge."


def made_up(worker: int, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": f"i-{worker}", "function": "gpu", "type": "g4dn.xlarge", "worker": worker, "device": "cpu",
        "started_at": "2026-11-21T00:00:00.000+00:00", "start_ns": 0, "end_ns": 92_000_000_000, "billed_seconds": 92,
        "peak_memory_mb": 300 + worker, "cpu_seconds": 80.0, "host_delay_ms": 0.0, "status": "success", "exit_code": 0,
    }  # fmt: skip
    return InstanceRecord(**values | changes).as_document()


def test_notes_say_what_the_times_are() -> None:
    assert notes([]) == []
    assert notes([made_up(0), made_up(1)]) == ["ran on the CPU, not on a GPU, though g4dn.xlarge is billed"]
    assert notes([made_up(0, type="c5.large")]) == [], "no GPU is missing"
    shared = [made_up(0, device="cuda:0 Tesla T4"), made_up(1, device="cuda:0 Tesla T4")]
    assert notes([*shared, made_up(2, device="cuda:1 Tesla T4")]) == [
        "ran on cuda:0 Tesla T4, which 2 instances shared: these are its times, and g4dn.xlarge is billed for them",
        "ran on cuda:1 Tesla T4: these are its times, and g4dn.xlarge is billed for them",
    ]


def test_phases_and_totals_of_instances() -> None:
    event = {
        "op": "compute", "phase": "compute", "start_ns": 0, "end_ns": 40_000_000_000, "host_delay_ns": 0, "bytes": 0,
        "requests": 0, "overhead": True, "failed": False, "worker": 0, "epoch": 0, "step": 0, "invocation": "i-0",
    }  # fmt: skip
    totals = metrics.totals([event], [], [made_up(0), made_up(1, host_delay_ms=4000.0, billed_seconds=60)])
    zero, one = totals["per_worker"]
    assert (zero["phases"]["compute"], zero["phases"]["other"], zero["phases"]["init"]) == (40.0, 52.0, 0.0)
    assert (one["phases"]["other"], one["billed_seconds"], one["host_delay_seconds"]) == (92.0, 60.0, 4.0)
    assert (zero["invocations"], totals["invocations"], totals["gb_seconds"]) == (0, 0, "0")
    assert (totals["billed_seconds"], totals["peak_memory_mb"], totals["device"]) == (152.0, 301, "cpu")
    assert totals["host"]["oversubscribed"] is True, "4 of 184 s"
    assert [record["id"] for record in totals["instances"]] == ["i-0", "i-1"]


@pytest.mark.parametrize(
    ("book", "seconds", "amount"),
    [
        # Table 2, MobileNet: 4 × 92 s, which the paper prints as 0.0538 (docs/protocols.md, "GPU baseline").
        ("paper-2025", Decimal(92), "0.0538"),
        ("paper-2025", Decimal("1.5"), "0.0009"),
        ("aws-us-east-1", Decimal("1.5"), "0.0351"),
        ("aws-us-east-1", Decimal("91.2"), "0.0538"),
    ],
)
def test_bills_of_four_instances(book: str, seconds: Decimal, amount: str) -> None:
    bill = compute_bill(Usage(hosts=(("g4dn.xlarge", seconds),) * 4), load_book(book))
    [line] = bill.lines
    assert (line.item, line.unit) == ("Host g4dn.xlarge", "second")
    assert f"{bill.total:.4f}" == amount
    assert line.quantity * line.price == line.amount == bill.total


@pytest.mark.parametrize("crashed", [False, True])
def test_records_outlive_a_crash_in_the_trace(crashed: bool, tmp_path: Path) -> None:
    records = [made_up(0), made_up(1)]
    with TraceWriter(tmp_path / LOG, "run") as writer:
        for record in records:
            writer.write({"record": "instance", **record})
    if not crashed:
        compact(tmp_path)
        lines = (tmp_path / INSTANCES).read_text().splitlines()
        assert [json.loads(line) for line in lines] == records
        assert not (tmp_path / LOG).exists()
    assert metered_records(tmp_path, "instance") == records


def test_runs_without_instances_have_no_file_of_them(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / LOG, "run"):
        pass
    compact(tmp_path)
    assert not (tmp_path / INSTANCES).exists()
    assert metered_records(tmp_path, "instance") == []


@pytest.mark.skipif(not fleet.cuda_devices(), reason="torch sees no CUDA device")
def test_an_instance_sees_its_gpu(session: Session, tmp_path: Path, program: Program) -> None:
    program("import torch\nprint(torch.cuda.device_count(), torch.cuda.get_device_name(), end='')")
    recorded = Recorded(session, tmp_path, Fleet("g4dn.xlarge", "cuda"))
    [record] = recorded.run(1)
    name = record.device.partition(" ")[2]
    assert (recorded.logs / f"{record.id}.log").read_text() == f"1 {name}"
