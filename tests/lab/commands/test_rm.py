"""`slslab rm`: runs are removed, and nothing else."""

import os
import shutil
from pathlib import Path

import pytest
from tests import commands

from slslab.run.directory import RunDirectory
from slslab.run.log import SERVICE

RECORDED = Path(__file__).parents[1] / "replay" / "traces" / "allreduce"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def make(runs: Path, name: str) -> Path:
    shutil.copytree(RECORDED, runs / name)
    plan = runs / name / "plan.toml"
    plan.write_text(plan.read_text().replace("20261121-204856-allreduce-lenet-0f1b", name))
    return runs / name


def rm(runs: Path, *names: object) -> commands.Done:
    state = {"SLSLAB_RUNS": str(runs), "SLSLAB_STATE": str(runs / "state")}
    return commands.slslab("rm", *names, variables=state)


def test_what_is_removed_is_told_with_its_size(runs: Path) -> None:
    for day in (1, 2, 3):
        make(runs, f"2026010{day}-120000-a")
    (runs / "20260101-120000-a" / "logs").mkdir()
    (runs / "20260101-120000-a" / "logs" / "worker-0001.log").write_text("x" * 10_000_000)
    assert rm(runs, "20260101").out.startswith(f"Removed 20260101-120000-a: {runs}/20260101-120000-a, 10.")
    left = sum(file.stat().st_size for file in (runs / "20260102-120000-a").iterdir())
    removed = rm(runs, runs / "20260102-120000-a", "20260102", "--json").document
    entry = {"run": "20260102-120000-a", "path": f"{runs}/20260102-120000-a", "bytes": left}
    assert removed == {"schema": 1, "removed": [entry]}
    assert [path.name for path in runs.iterdir()] == ["20260103-120000-a"]


def test_a_link_is_not_followed(runs: Path, tmp_path: Path) -> None:
    run, other = make(runs, "20260101-120000-a"), make(tmp_path, "other")
    (run / "logs").symlink_to(other)
    (run / "plan").symlink_to(other / "plan.toml")
    link = runs / "link"
    link.symlink_to(other)
    refused = rm(runs, link)
    assert (refused.code, refused.err) == (2, f"Error: {link} is a link to a run.\nHint: name the run itself.\n")
    assert rm(runs, run).code == 0
    assert not run.exists()
    assert {path.name for path in other.iterdir()} == {path.name for path in RECORDED.iterdir()}


def test_the_directory_where_one_is_can_be_removed(runs: Path) -> None:
    run = make(runs, "20260101-120000-a")
    assert commands.slslab("rm", ".", directory=run).code == 0
    assert list(runs.iterdir()) == []


def test_a_damaged_run_can_be_removed(runs: Path) -> None:
    run = make(runs, "20260101-120000-a")
    for name in ("plan.toml", "run.json"):
        (run / name).write_text("[")
    assert rm(runs, "20260101").code == 0
    assert list(runs.iterdir()) == []


def test_if_one_is_refused_all_remain(runs: Path) -> None:
    make(runs, "20260101-120000-a")
    going, planned, bare, up = (runs / name for name in ("going", "planned", "bare", "up"))
    going.mkdir()
    shutil.copy(RECORDED / "plan.toml", going)
    lock = RunDirectory(going).lock()
    planned.mkdir()
    shutil.copy(RECORDED / "plan.toml", planned)
    bare.mkdir()
    up.mkdir()
    (up / "trace.jsonl").touch()
    (up / SERVICE).write_text("{}")
    recording = RunDirectory(up).lock()
    says = {
        going: f"{going} is still running.",
        planned: f"{planned} has a plan, but no results of a run.",
        bare: f"There is no run '{bare}' in {runs}.",
        Path("up"): f"{up} is still running.",
    }
    for name, message in says.items():
        done = rm(runs, "20260101", name)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(f"Error: {message}\nHint: ")
    assert len(list(runs.iterdir())) == 5
    for descriptor in (lock, recording):
        os.close(descriptor)
    # Killed before it had a trace, and a service that has ended.
    assert rm(runs, going, "up").code == 0
    assert not going.exists()
    assert not up.exists()


def test_what_cannot_be_removed_is_one_sentence(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path / "run.json"))

    run = make(runs, "20260101-120000-a")
    monkeypatch.setattr(shutil, "rmtree", refuse)
    done = rm(runs, run)
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith(f"Error: {run}/run.json cannot be removed: Permission denied.\nHint: ")
