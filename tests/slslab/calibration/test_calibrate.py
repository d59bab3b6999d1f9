"""`slslab calibrate` as a command, on a run that was recorded here: files, documents, refusals."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slslab.replay.profiles.profile import load_profile
from slslab.trace import log as trace

pytestmark = pytest.mark.server

Slslab = Callable[..., subprocess.CompletedProcess[str]]
COMMAND = [sys.executable, "-c", "from slslab.cli.main import main; main()"]


@pytest.fixture(scope="module")
def slslab(tmp_path_factory: pytest.TempPathFactory) -> Slslab:
    """Call the command line in a directory of this module's own."""
    home = tmp_path_factory.mktemp("calibrating")

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        return subprocess.run(
            [*COMMAND, *arguments], env=environment, cwd=home, capture_output=True, text=True, timeout=300
        )

    return call


@pytest.fixture(scope="module")
def run(slslab: Slslab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one worker: it waits for nobody."""
    path = tmp_path_factory.mktemp("runs") / "run"
    small = ("--epochs", "2", "--workers", "1", "--batches", "2", "--out", str(path))
    assert slslab("run", "scatterreduce", *small).returncode == 0
    return path


def document(process: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert process.returncode == 0, process.stderr
    found: dict[str, Any] = json.loads(process.stdout)
    return found


def test_a_profile_is_fitted_to_report_lines(slslab: Slslab, run: Path, tmp_path: Path) -> None:
    records = trace.invocations(run)
    log = tmp_path / "reports.json"
    lines = [record["report"] for record in records] + ["REPORT RequestId: torn"]
    log.write_text(json.dumps({"events": [{"message": line} for line in lines]}))
    out = tmp_path / "calibrated.toml"
    found = document(slslab("calibrate", "--cloudwatch", str(log), "--run", str(run), "--out", str(out), "--json"))
    assert found["path"] == str(out)
    assert found["lines"] == {
        "read": len(records),
        "unread": 1,
        "failed": 0,
        "fitted": len(records),
        "cold": sum(record["cold_start"] for record in records),
        "billed_as_here": len(records),
    }
    assert found["memory_mb"] == records[0]["memory_mb"]
    assert found["duration_ms"]["after"] == pytest.approx(found["duration_ms"]["real"], rel=0.01)
    assert [figure["entry"] for figure in found["figures"]] == ["compute.speed", "functions.init_wait_ms"]
    profile = load_profile(out)
    assert profile.name == "aws-us-east-1-calibrated"
    assert profile.compute.speed.value == found["figures"][0]["value"]
    assert profile.compute.speed.source.startswith("REPORT lines of reports.json, ")
    # As a table, and never over what is there.
    table = slslab("calibrate", "--cloudwatch", str(log), "--run", str(run))
    assert f"{len(records)} REPORT lines, 0 of them of failed invocations; 1 more could not be read." in table.stdout
    assert table.stdout.rstrip().endswith("The profile aws-us-east-1-calibrated is in aws-calibrated.toml.")
    again = slslab("calibrate", "--cloudwatch", str(log), "--run", str(run))
    assert (again.returncode, again.stderr) == (
        2,
        "Error: aws-calibrated.toml exists already.\nHint: choose another --out, or remove it.\n",
    )


def test_a_profile_is_fitted_to_a_run(slslab: Slslab, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "host.toml"
    process = slslab("calibrate", str(run), "--out", str(out), "--json")
    found = document(process)
    assert (found["name"], found["epochs"]) == ("this-host", 1)
    assert "channels.object.operations.put.latency_ms" in {figure["entry"] for figure in found["figures"]}
    parallel = load_profile(out).compute.parallel
    assert 0 <= parallel.value <= 1
    assert process.stderr.strip() == "measuring training steps: 8 done"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--cloudwatch", "log"), "--cloudwatch needs one recorded run."),
        (("--cloudwatch", "log", "--run", "last", "last"), "--cloudwatch needs one recorded run."),
        (("--run", "last"), "--run and --function belong to --cloudwatch."),
        (("--cloudwatch", "nowhere", "--run", "last"), "nowhere cannot be read: No such file or directory."),
        (("last",), "There are 0 runs in runs, and last is not one of them."),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(slslab: Slslab, arguments: tuple[str, ...], message: str) -> None:
    process = slslab("calibrate", *arguments, "--out", "unwritten.toml")
    assert process.returncode == 2
    assert process.stderr.lstrip().startswith(f"Error: {message}\nHint: ")


def test_this_host_is_measured(slslab: Slslab, tmp_path: Path) -> None:
    out = tmp_path / "below" / "this-host.toml"
    process = slslab("calibrate", "--out", str(out))
    assert process.returncode == 0, process.stderr
    assert "threads of a training step" in process.stdout
    assert "channels.tensor.operations.get.bandwidth_mb_s" in process.stdout
    assert process.stderr.split("\n")[:2] == ["measuring training steps: 8 done", "measuring requests: 399 done"]
    assert load_profile(out).name == "this-host"
