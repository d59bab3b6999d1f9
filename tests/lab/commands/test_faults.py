"""`--faults`: a wrong plan is refused before anything starts, and every view of a run shows what happened."""

import json
import shutil
from pathlib import Path

import pytest
from tests.commands import slslab

from slslab.errors import RunError
from slslab_lab.replay.programs.recording import read_recording

RECORDED = Path(__file__).parents[1] / "replay" / "traces" / "allreduce"
KILL = '[[fault]]\nkind = "kill"\nworker = 1\nepoch = 0\n'


@pytest.mark.parametrize(
    ("plan", "options", "says"),
    [
        ("", (), "The fault plan has no faults."),
        ("[[fault]\n", (), "is not TOML"),
        ('[[fault]]\nkind = "flood"\n', (), "Fault 1 is of kind 'flood', which does not exist."),
        (KILL + "wroker = 1\n", (), "Fault 1 (kill) has 'wroker', which does not apply to it."),
        (KILL.replace("= 1", "= 2"), (), "Fault 1 (kill) has worker 2, but the plan's workers are 0 to 1."),
        (KILL.replace("= 0", "= 1"), (), "Fault 1 (kill) has epoch 1, but the plan's epochs are 0 to 0."),
        (KILL + "step = 5\n", (), "Fault 1 (kill) has step 5, but the plan's steps are 0 to 4."),
        (KILL + 'phase = "dream"\n', (), "Fault 1 (kill) has phase 'dream'."),
        (KILL + KILL.replace("kill", "database-loss"), (), "Fault 2 (database-loss) needs a tensor database"),
        (KILL, ("--stack", "compose"), "Faults can only be injected into the embedded stack."),
    ],
)
def test_a_wrong_plan_is_refused_before_anything_starts(
    plan: str, options: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    (tmp_path / "faults.toml").write_text(plan)
    variables = {"SLSLAB_RUNS": str(tmp_path / "runs")}
    given = ("--workers", "2", "--faults", "faults.toml", *options)
    done = slslab("run", "allreduce", *given, variables=variables, directory=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert says in " ".join(done.err.split())
    assert "Hint: " in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "runs").exists()


def test_a_plan_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = slslab("run", "allreduce", "--faults", "none.toml", directory=tmp_path)
    assert done.code == 2
    assert "There is no fault plan 'none.toml': No such file or directory." in " ".join(done.err.split())


def test_instances_meet_no_limit_of_lambda(tmp_path: Path) -> None:
    (tmp_path / "faults.toml").write_text(KILL.replace("kill", "timeout"))
    done = slslab("run", "gpu", "--faults", "faults.toml", directory=tmp_path)
    assert done.code == 2
    assert "Fault 1 (timeout) is a limit of Lambda, but the workers are instances." in " ".join(done.err.split())


@pytest.fixture
def faulted(tmp_path: Path) -> Path:
    """A recorded run, as if it had met a fault."""
    shutil.copytree(RECORDED, tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    document = json.loads(path.read_text())
    place = {"function": "f", "worker": 1, "epoch": 0, "step": 2, "phase": "compute"}
    never = {"number": 2, "kind": "kill", "times": 0, **dict.fromkeys(place), "held_up_seconds": 0.0}
    document["faults"] = [{"number": 1, "kind": "straggler", "times": 3, **place, "held_up_seconds": 1.5}, never]
    path.write_text(json.dumps(document))
    return tmp_path / "run"


def test_what_faults_did_is_shown(faulted: Path, tmp_path: Path) -> None:
    shown = slslab("show", faulted, "--full").out
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "1 straggler 3 worker 1, epoch 0, step 2, compute 1.500" in lines
    assert "2 kill 0 did not happen 0.000" in lines
    page = tmp_path / "page.html"
    assert slslab("report", faulted, "--out", page).code == 0
    text = page.read_text()
    assert "Faults of the plan" in text
    assert "worker 1, epoch 0, step 2, compute" in text
    assert "did not happen" in text


def test_a_run_with_faults_is_not_replayed(faulted: Path) -> None:
    with pytest.raises(RunError, match=r"Faults were injected into .*: kill"):
        read_recording(faulted)


def test_a_run_with_a_straggler_is_replayed_with_it(tmp_path: Path) -> None:
    plain = slslab("replay", RECORDED, "--json").document["rows"][-1]
    shutil.copytree(RECORDED, tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    document = json.loads(path.read_text())
    document["plan"]["faults"] = {"fault": [{"kind": "straggler", "factor": 5, "worker": 1}]}
    path.write_text(json.dumps(document))
    slow = slslab("replay", tmp_path / "run", "--json").document["rows"][-1]
    assert slow["label"] == "as recorded, 2 workers, with its stragglers"
    assert slow["seconds"]["value"] > 1.5 * plain["seconds"]["value"]
