"""Workers that outlive their time-out: they invoke themselves again, and what is learnt and sent stays the same."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.memory import running

from slslab_lab.runs.planning import architectures, make_plan
from slslab_workers.training.lifetime import reserve_s

# Two puts, one after another, stretch a step to half a second.
SLOW = {"kind": "slow-store", "op": "object.put", "phase": "synchronise", "seconds": 0.25}


@pytest.mark.parametrize("architecture", ["allreduce", "scatterreduce"])
def test_watchdog_re_invokes_and_the_trajectory_is_the_same(architecture: str, tmp_path: Path) -> None:
    """With a time-out of 4 s, 9 such steps need several generations of every worker."""

    given = {"dataset": "digits", "workers": 2, "epochs": 9, "batches": 1, "batch_size": 32}
    plan = make_plan(architectures()[architecture], given, {})

    def run(name: str, **changed: Any) -> Any:
        ran = running.run(replace(plan, **changed), 1, tmp_path / name, 600)
        assert (ran.failure, ran.left) == (None, ())
        return ran.recorded.document

    whole = run("whole")
    pieces = run("pieces", timeout=4, faults={"seed": 0, "fault": [SLOW]})
    assert whole["invocations"] == 2
    assert pieces["invocations"] >= 4
    for same in ("parameters_sha256", "counts", "bytes", "loss"):
        assert pieces[same] == whole[same]


def test_reserve_is_two_steps_or_a_tenth_of_the_time_out() -> None:
    assert reserve_s(4, 0.5) == 1
    assert reserve_s(60, 0.5) == 6
    assert reserve_s(900, 0.5) == 30
