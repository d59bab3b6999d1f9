"""Points compared with real runs: a recorded run replaces them here, and the atlas has its costs."""

import statistics
from pathlib import Path
from typing import Any

import pytest
from tests.lab.studies.setups import Watching

from slslab.errors import RunError
from slslab.predict.profiles.profile import load_profile
from slslab.report.formats import percent
from slslab.run.bill import compute_bill, load_book
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.measured import read_measured
from slslab_lab.replay.outcome import outcome
from slslab_lab.studies import committed
from slslab_lab.studies.atlas import checks
from slslab_lab.studies.atlas.checks import CHECKS, compare, run_all
from slslab_lab.studies.atlas.points import Job
from slslab_lab.studies.atlas.recordings import Recordings
from slslab_lab.studies.atlas.systems import SYSTEMS, System

JOB = Job(10, load_profile("aws-us-east-1"), load_book("aws-us-east-1"))


def test_a_run_stands_beside_what_the_atlas_says_of_it(recordings: Recordings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "CHECKS", {System("allreduce", "s3", "ga"): None})
    run = read_measured(committed("atlas") / "lenet-allreduce")
    document = compare(recordings, [run], JOB)
    rows = {row["figure"]: row for row in document["rows"]}
    durations = [record["duration_ms"] / 1000 for record in run.invocations]
    assert rows["measured here: seconds of a worker"]["run"] == pytest.approx(statistics.fmean(durations))
    assert rows["measured here: billed seconds"]["run"] == run.document["billed_seconds"]
    played = outcome(play(run.program, JOB.profile))
    assert rows["replayed on AWS: seconds"]["run"] == played.seconds
    assert rows["replayed on AWS: USD"]["run"] == float(compute_bill(played.usage(), JOB.book).total)
    # Requests are fitted over all models; all else is the recording's.
    for figure in ("seconds", "USD"):
        assert abs(rows[f"replayed on AWS: {figure}"]["error"]) < 0.1
    for row in document["rows"]:
        assert row["error"] == pytest.approx(row["atlas"] / row["run"] - 1)
    worst = max(abs(row["error"]) for row in document["rows"] if "AWS" in row["figure"])
    assert f"by {percent(worst, '.1')} at worst" in document["notes"][0]


def test_no_check_was_recorded() -> None:
    for checked, recording in CHECKS.items():
        assert (checked.architecture, checked.channel, checked.algorithm) in {
            (system.architecture, system.channel, system.algorithm) for system in SYSTEMS
        }
        assert not (committed("atlas") / recording.name).exists()


def test_a_check_that_fails_says_which(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run_plan(*_: Any, **__: Any) -> dict[str, Any]:
        return {"status": "failed", "error": {"message": "It broke.", "hint": "mend it."}}

    monkeypatch.setattr("slslab_lab.studies.recording.run_plan", run_plan)
    with pytest.raises(RunError, match=rf"The run {tmp_path / next(iter(CHECKS.values())).name} failed: It broke\."):
        run_all(tmp_path, Watching())
