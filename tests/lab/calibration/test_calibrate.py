"""`slslab calibrate` as a command, on a run that was recorded here: files, documents, refusals."""

import io
import json
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests import commands

from slslab.errors import counted
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import load_profile
from slslab.run import log as trace
from slslab_lab.calibration import calibrate, host

pytestmark = pytest.mark.server

Slslab = Callable[..., commands.Done]


@pytest.fixture(scope="module")
def slslab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slslab]:
    """The command line in a directory of this module's own."""
    home = tmp_path_factory.mktemp("calibrating")
    with pytest.MonkeyPatch.context() as patch, commands.forked_environments():
        # What it measures for users takes half a second a step.
        patch.setattr(host, "BATCH", 4)
        patch.setattr(calibrate, "measure_step", partial(host.measure_step, steps=2))
        yield partial(commands.slslab, variables={"CUDA_VISIBLE_DEVICES": ""}, directory=home)


@pytest.fixture(scope="module")
def run(slslab: Slslab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one worker, which doesn't wait for others, and computes for longer than its requests take on Lambda.

    It has a whole vCPU: with a share, its time jumps by a period's pause as the speed grows, and no speed gives some
    times.
    """
    path = tmp_path_factory.mktemp("runs") / "run"
    small = ("--epochs", "2", "--workers", "1", "--batches", "1", "--batch-size", "1400", "--memory", "1769")
    assert slslab("run", "scatterreduce", *small, "--out", path).code == 0
    return path


def test_a_profile_is_fitted_to_report_lines(slslab: Slslab, run: Path, tmp_path: Path) -> None:
    records = trace.metered_records(run)
    log = tmp_path / "reports.json"
    lines = [record["report"] for record in records] + ["REPORT RequestId: torn"]
    log.write_text(json.dumps({"events": [{"message": line} for line in lines]}))
    out = tmp_path / "calibrated.toml"
    found = slslab("calibrate", "--cloudwatch", log, "--run", run, "--out", out, "--json").document
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
    assert profile.name == f"{DEFAULT_PROFILE}-calibrated"
    assert profile.compute.speed.value == found["figures"][0]["value"]
    assert profile.compute.speed.source.startswith("REPORT lines of reports.json, ")
    memory = sorted(record["max_memory_mb"] for record in records)
    assert found["max_memory_mb"] == found["recorded_max_memory_mb"] == statistics.median(memory)
    # As a table, and never over what is there.
    table = slslab("calibrate", "--cloudwatch", str(log), "--run", str(run))
    assert (
        f"{counted(len(records), 'REPORT line')}, 0 of them from failed invocations; 1 more couldn't be read."
        in table.out
    )
    assert table.out.rstrip().endswith(f"The profile {DEFAULT_PROFILE}-calibrated is in aws-calibrated.toml.")
    again = slslab("calibrate", "--cloudwatch", str(log), "--run", str(run))
    assert again == (2, "", "Error: aws-calibrated.toml exists already.\nHint: choose another --out, or remove it.\n")


def test_report_lines_come_through_a_pipe(slslab: Slslab, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `aws logs tail` prints them, with time and stream before each line, and a worker's own lines among them."""
    reports = [record["report"] for record in trace.metered_records(run)]
    lines = [
        f"2026-11-24T10:00:00 2026/11/24/[$LATEST]5d1f {line}" for line in ('{"slslab": {"op": "wait"}}', *reports)
    ]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    found = slslab("calibrate", "--cloudwatch", "-", "--run", run, "--out", "piped.toml", "--json").document
    assert (found["lines"]["read"], found["lines"]["unread"]) == (len(reports), 0)
    assert found["figures"][0]["source"].startswith("REPORT lines of standard input, ")


def test_a_profile_is_fitted_to_a_run(slslab: Slslab, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "host.toml"
    done = slslab("calibrate", run, "--out", out, "--json")
    found = done.document
    assert (found["name"], found["epochs"]) == ("this-host", 1)
    assert "channels.object.operations.put.latency_ms" in {figure["entry"] for figure in found["figures"]}
    parallel = load_profile(out).compute.parallel
    assert 0 <= parallel.value <= 1
    # A busy machine has a line between, too.
    assert done.err.splitlines()[-1] == "measuring training steps: 2 of 2"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "calibrate needs a RUN, --cloudwatch FILE or --processor."),
        (("--cloudwatch", "log"), "--cloudwatch needs one recorded run."),
        (("--cloudwatch", "log", "--run", "last", "last"), "--cloudwatch needs one recorded run."),
        (("--run", "last"), "--run and --function belong to --cloudwatch."),
        (("--cloudwatch", "nowhere", "--run", "last"), "nowhere cannot be read: No such file or directory."),
        (("last",), "No run has ended yet in runs."),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(slslab: Slslab, arguments: tuple[str, ...], message: str) -> None:
    done = slslab("calibrate", *arguments, "--out", "unwritten.toml")
    assert done.code == 2
    assert done.err.lstrip().startswith(f"Error: {message}\nHint: ")
