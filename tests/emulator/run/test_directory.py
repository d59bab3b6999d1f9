"""Run directories and how a run is named on the command line."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from slslab.errors import RequestError, RunError
from slslab.run.directory import RunDirectory, list_runs, new_id, resolve
from slslab_workers.plan import Plan, Value

TRACES = Path(__file__).parents[2] / "lab" / "replay" / "traces"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLSLAB_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def plan(name: str) -> dict[str, Any]:
    options: dict[str, Value] = {"combine": "sum"}
    return Plan(name, "allreduce", "lenet", "digits", 64, 5, 1024, options=options).to_document()


def make(root: Path, name: str, status: str | None = "done") -> RunDirectory:
    directory = RunDirectory.create(root / name)
    directory.write_plan(plan(name))
    if status is not None:
        recorded = json.loads((TRACES / "allreduce" / "run.json").read_text())
        directory.write("run.json", {**recorded, "run": name, "status": status})
    return directory


def test_ids_sort_by_time_and_differ() -> None:
    one, two = new_id("allreduce", "torchvision:MobileNet_V2"), new_id("allreduce", "torchvision:MobileNet_V2")
    assert re.fullmatch(r"\d{8}-\d{6}-allreduce-torchvision-mobilenet-[0-9a-f]{4}", one)
    assert one != two


def test_plan_survives_toml(root: Path) -> None:
    assert make(root, "one").plan()["options"] == {"combine": "sum"}


def test_a_run_never_overwrites_another(root: Path) -> None:
    make(root, "one")
    with pytest.raises(RequestError, match="not empty"):
        RunDirectory.create(root / "one")


def test_status(root: Path) -> None:
    assert make(root, "done").status() == "done"
    directory = make(root, "begun", None)
    assert directory.status() == "interrupted"
    lock = directory.lock()
    assert directory.status() == "running"
    directory.unlock(lock)
    assert directory.status() == "interrupted"
    assert directory.listed() == {**plan("begun"), "status": "interrupted"}


def test_those_who_ask_do_not_take_each_other_for_the_run(root: Path) -> None:
    directory = make(root, "killed", None)
    (directory.path / ".lock").touch()
    with (directory.path / ".lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert directory.status() == "interrupted"


def test_a_killed_command_is_not_running(root: Path) -> None:
    directory = make(root, "killed", None)
    program = (
        "import sys, time, pathlib, slslab.run.directory as r;r.RunDirectory(pathlib.Path(sys.argv[1])).lock(); print()"
    )
    command = [sys.executable, "-c", f"{program}; sys.stdout.flush(); time.sleep(60)", str(directory.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        running = directory.status()
        process.kill()
    assert (running, directory.status()) == ("running", "interrupted")


def test_the_process_of_a_run_is_found_for_as_long_as_it_goes_on(root: Path) -> None:
    directory = make(root, "a", None)
    assert directory.process() is None
    lock = directory.lock()
    process = directory.process()
    assert process is not None
    # A signal that none is: only whether it lives.
    signal.pidfd_send_signal(process, 0)
    os.close(process)
    directory.unlock(lock)
    # As a killed command leaves it.
    (directory.path / ".lock").write_text(str(os.getpid()))
    assert directory.process() is None


def test_runs_are_listed_of_any_folder(root: Path, tmp_path: Path) -> None:
    make(root, "here")
    make(tmp_path / "elsewhere", "there")
    assert [run.id for run in list_runs()] == ["here"]
    assert [run.id for run in list_runs(tmp_path / "elsewhere")] == ["there"]
    assert list_runs(tmp_path / "nowhere") == []


def test_broken_files_are_named(root: Path) -> None:
    directory = make(root, "one", None)
    (directory.path / "plan.toml").write_text('run = "on')
    with pytest.raises(RunError, match=r"plan.toml is not a plan"):
        directory.listed()
    (directory.path / "run.json").write_text("[1")
    with pytest.raises(RunError, match=r"run.json is not a run's document"):
        directory.listed()


def test_a_finished_run_is_never_modified(root: Path) -> None:
    directory = make(root, "one")
    before = {path: path.read_bytes() for path in directory.path.iterdir() if path.is_file()}
    modifications: list[Callable[[], None]] = [
        lambda: directory.write("other.json", {}),
        lambda: directory.write("run.json", {}),
        lambda: directory.write_plan({}),
    ]
    for modify in modifications:
        with pytest.raises(RunError, match="never modified"):
            modify()
    assert {path: path.read_bytes() for path in directory.path.iterdir() if path.is_file()} == before


def test_places_where_no_run_can_be_are_refused(root: Path) -> None:
    root.mkdir()
    (root / "file").touch()
    with pytest.raises(RequestError, match="cannot be made"):
        RunDirectory.create(root / "file")
    with pytest.raises(RequestError, match="cannot be made"):
        RunDirectory.create(root / "file" / "below")


def test_of_several_commands_that_want_the_same_directory_one_gets_it(root: Path) -> None:
    def create(number: int) -> bool:
        start.wait()
        try:
            RunDirectory.create(root / str(number))
        except RequestError:
            return False
        return True

    for number in range(20):
        start = Barrier(8)
        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(create, [number] * 8)) == 1


A, B, C = "20260101-120000-a", "20260102-120000-b", "20260103-120000-c"


def test_resolve(root: Path) -> None:
    assert list_runs() == []
    for name in (A, B, C):
        make(root, name)
    assert [run.id for run in list_runs()] == [C, B, A]
    assert resolve(B).id == B
    assert resolve("20260102").id == B
    assert resolve("last").id == C
    assert resolve("last~2").id == A
    assert resolve(str(root / A)).id == A
    for wrong, says in (
        ("2026", "may mean 3 runs: "),
        ("nothing", "There is no run"),
        ("last~3", "where 3 runs ended"),
    ):
        with pytest.raises(RequestError, match=says):
            resolve(wrong)


def test_times_of_files_and_names_of_directories_are_not_those_of_runs(root: Path) -> None:
    make(root, C)
    for name in (A, B):
        make(root, name)
    shutil.copytree(root / A, root / "zzz")
    assert [run.path.name for run in list_runs()] == [C, B, "zzz", A]
    (root / B).rename(root / "20270101-120000-renamed")
    assert [run.id for run in list_runs()] == [C, B, A, A]
    assert resolve("last").id == C
    # What `slslab up` records has its own time, and what has none comes last.
    for name, text in (("up", '{"started_at": "2026-01-02T11:59:59.999+00:00"}'), ("up-2", "[1]"), ("up-3", "{}")):
        (root / name).mkdir()
        (root / name / "trace.jsonl").touch()
        (root / name / "service.json").write_text(text)
    make(root, "undated")
    assert [run.id for run in list_runs()] == [C, B, "up", A, A, "up-3", "up-2", "undated"]


def test_before_any_run_has_ended_there_is_no_last_one(root: Path) -> None:
    with pytest.raises(RequestError, match=r"No run has ended yet in \S+/runs\.\n"):
        resolve("last")
    going = make(root, A, None)
    lock = going.lock()
    with pytest.raises(RequestError, match=r"No run has ended yet in \S+/runs\.\n"):
        resolve("last")
    going.unlock(lock)
    assert resolve("last").id == A


def test_the_last_run_is_one_that_has_ended(root: Path) -> None:
    make(root, A)
    make(root, B, None)
    going = make(root, C, None)
    lock = going.lock()
    assert [run.id for run in list_runs()] == [C, B, A]
    assert resolve("last").id == B, "its command was killed"
    assert resolve("last~1").id == A
    with pytest.raises(RequestError, match="where 2 runs ended"):
        resolve("last~2")
    going.unlock(lock)
    assert resolve("last").id == C


def test_documents_are_written_at_once_or_not_at_all(root: Path) -> None:
    directory = make(root, "one", None)
    with pytest.raises(TypeError):
        directory.write("run.json", {"bad": object()})
    assert directory.document() is None
    directory.write("run.json", {"status": "done"})
    assert json.loads((directory.path / "run.json").read_text()) == {"status": "done"}


def test_the_digest_is_that_of_what_the_run_left_and_not_of_its_page(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(TRACES / "allreduce", copy)
    digest = RunDirectory(TRACES / "allreduce").digest()
    (copy / "report.html").write_text("a page")
    assert RunDirectory(copy).digest() == digest
    with (copy / "invocations.jsonl").open("a") as file:
        file.write("\n")
    assert RunDirectory(copy).digest() != digest
