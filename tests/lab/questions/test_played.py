"""Which waiting is billed, and the parts of a critical path."""

import pytest
from tests.lab.replay.platform import platform
from tests.lab.replay.recordings import MS
from tests.lab.replay.small_programs import handing_over

from slslab.run.bill import compute_bill, load_book
from slslab_lab.questions.played import find_waiting
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.program import Program, Step, Track
from slslab_lab.replay.outcome import outcome
from slslab_lab.replay.path import critical_path, parts

BOOK = load_book("aws-us-east-1")


def test_waiting_is_told_by_worker_and_phase_with_its_price() -> None:
    """Worker 1 (1024 MB) waits 70 of its 100 ms for worker 0; an instance waits as long, an execution for nothing."""
    meet = Step("meet", "synchronise", awaits=(0,))
    program = Program(
        "allreduce",
        3,
        (
            Track("train", "invocation", 0, (Step("compute", "compute", 100 * MS, opens=(0,)),), 1769),
            Track("train", "invocation", 1, (Step("compute", "compute", 30 * MS), meet), 3538),
            Track("g4dn.xlarge", "instance", 2, (Step("wait for it", "wait", awaits=(1,)),)),
            Track("machine", "execution", 0, (Step("join", "wait", awaits=(0,)),)),
            Track("late", "execution", 0, (Step("transition", "other", opens=(1,)),), awaits=(2,)),
            Track("later", "invocation", 0, (Step("compute", "compute", 31_000 * MS, opens=(2,)),), 1769),
        ),
        (1, 1, 1),
    )
    timeline = play(program, platform())
    found = outcome(timeline)
    bill = compute_bill(found.as_usage(), BOOK)
    rows = find_waiting(timeline, found, bill)
    # Cold until 100; worker 0 is there at 200, worker 1 at 130. The instance has booted at 30 s, and the transition
    # after it at 100 + 31,000 has ended at 31,130.
    assert [(one["worker"], one["phase"]) for one in rows] == [(1, "synchronise"), (2, "wait")]
    assert rows[0]["seconds"] == pytest.approx(0.07)
    assert rows[0]["share"] == pytest.approx(0.7)
    assert rows[0]["cost"] == pytest.approx(0.07 * 3538 / 1024 * 0.0000166667)
    assert rows[1]["seconds"] == pytest.approx(1.13)
    assert rows[1]["share"] == pytest.approx(1.13 / 60)
    # By the second, of which 60 are billed at least: what an instance costs is spread over what is billed.
    assert rows[1]["cost"] == pytest.approx(1.13 * 0.526 / 3600)


def test_parts_of_a_critical_path_have_operations_and_workers() -> None:
    (part,) = [row for row in parts(critical_path(play(handing_over(), platform()))) if row["op"] == "object.put"]
    assert part["seconds"]["value"] == 0.015
    assert part["share"] == pytest.approx(0.0506, abs=1e-4)
    assert (part["phase"], part["stretches"]) == ("synchronise", 1)
    assert part["workers"] == [{"worker": 0, "seconds": 0.015}]
