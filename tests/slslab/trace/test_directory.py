"""Run directories and how a run is named on the command line."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from slslab.errors import RequestError, RunError
from slslab.trace.directory import RunDirectory, list_runs, new_id, resolve


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLSLAB_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def make(root: Path, name: str, status: str | None = "done") -> RunDirectory:
    directory = RunDirectory.create(root / name)
    directory.write_plan({"run": name, "architecture": "allreduce", "options": {"combine": "sum"}, "lr": 0.01})
    if status is not None:
        directory.write("run.json", {"run": name, "status": status})
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
    assert directory.summary() == {
        "run": "begun", "status": "interrupted", "architecture": "allreduce", "options": {"combine": "sum"}, "lr": 0.01,
    }  # fmt: skip


def test_those_who_ask_do_not_take_each_other_for_the_run(root: Path) -> None:
    directory = make(root, "killed", None)
    (directory.path / ".lock").touch()
    with (directory.path / ".lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert directory.status() == "interrupted"


def test_a_killed_command_is_not_running(root: Path) -> None:
    directory = make(root, "killed", None)
    program = (
        "import sys, time, pathlib, slslab.trace.directory as r;"
        "r.RunDirectory(pathlib.Path(sys.argv[1])).lock(); print()"
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
    with pytest.raises(RunError, match=r"plan.toml is not TOML"):
        directory.summary()
    (directory.path / "run.json").write_text("[1")
    with pytest.raises(RunError, match=r"run.json is not a run's document"):
        directory.summary()


def test_a_finished_run_is_never_modified(root: Path) -> None:
    directory = make(root, "one")
    before = {path: path.read_bytes() for path in directory.path.iterdir() if path.is_file()}
    modifications: list[Callable[[], None]] = [
        lambda: directory.write("bill.json", {}),
        lambda: directory.write("run.json", {}),
        lambda: directory.write_plan({}),
        lambda: directory.write_invocations([]),
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


def test_resolve(root: Path) -> None:
    assert list_runs() == []
    for number, name in enumerate(("20260101-a", "20260102-b", "20260103-c")):
        directory = make(root, name)
        plan = directory.path / "plan.toml"
        plan.touch()
        os.utime(plan, (number, number))
    assert [run.id for run in list_runs()] == ["20260103-c", "20260102-b", "20260101-a"]
    assert resolve("20260102-b").id == "20260102-b"
    assert resolve("20260102").id == "20260102-b"
    assert resolve("last").id == "20260103-c"
    assert resolve("last~2").id == "20260101-a"
    assert resolve(str(root / "20260101-a")).id == "20260101-a"
    for wrong, says in (("2026", "may mean 3 runs"), ("nothing", "There is no run"), ("last~3", "not one of them")):
        with pytest.raises(RequestError, match=says):
            resolve(wrong)


def test_documents_are_written_at_once_or_not_at_all(root: Path) -> None:
    directory = make(root, "one", None)
    with pytest.raises(TypeError):
        directory.write("run.json", {"bad": object()})
    assert directory.document() is None
    directory.write("run.json", {"status": "done"})
    assert json.loads((directory.path / "run.json").read_text()) == {"status": "done"}
