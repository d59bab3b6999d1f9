"""A played timeline in the form of a trace."""

import pytest
from tests.lab.replay.platform import platform
from tests.lab.replay.recordings import TRACES
from tests.lab.replay.small_programs import handing_over

from slslab.run.metrics import grouped
from slslab_lab.pages.timeline import build_timeline
from slslab_lab.replay.as_trace import as_trace
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.modelled import play_on_platform
from slslab_lab.replay.outcome import outcome
from slslab_lab.replay.programs.recording import read_recording

MS = 1_000_000


def test_two_invocations_by_hand() -> None:
    events, ran = as_trace(play(handing_over(), platform()))
    first, second = ran
    # A cold start of 100 ms, an init of 50, and then 120 and 146.25 ms of handler.
    assert first == {"request_id": "0", "function": "train", "start_ns": 0, "end_ns": 270 * MS}
    assert second["end_ns"] == 296_250_000
    of_first = [(e["op"], e["phase"], e["start_ns"] / MS, e["end_ns"] / MS) for e in events if e["worker"] == 0]
    assert of_first[:2] == [("environment.start", "init", 0, 150), ("compute", "compute", 150, 250)]
    waits = [(e["op"], (e["end_ns"] - e["start_ns"]) / MS) for e in events if e["phase"] == "wait"]
    assert waits == [("object.get", 101.25)]


@pytest.mark.parametrize("name", ["allreduce", "mlless", "spirt", "gpu"])
def test_events_follow_each_other_without_gap_or_overlap(name: str) -> None:
    timeline = play_on_platform(read_recording(TRACES / name))
    events, ran = as_trace(timeline)
    of_each = grouped((event["invocation"], event) for event in events)
    assert ran
    for one in ran:
        members = sorted(of_each[one["request_id"]], key=lambda event: (event["start_ns"], event["end_ns"]))
        assert members[0]["start_ns"] == one["start_ns"]
        assert members[-1]["end_ns"] == one["end_ns"]
        assert [m["end_ns"] for m in members[:-1]] == [m["start_ns"] for m in members[1:]]
    played = outcome(timeline)
    spent = sum(one["end_ns"] - one["start_ns"] for one in ran) / 1e9
    called = (
        call for call, track in zip(timeline.calls, timeline.program.tracks, strict=True) if track.kind != "execution"
    )
    before = sum(call.began - call.accepted for call in called) / 1e9
    assert spent == pytest.approx(sum(worker["seconds"] for worker in played.workers) + before)
    drawn = build_timeline(events, ran)
    assert drawn is not None
    assert drawn.end_ns - drawn.start_ns == played.makespan_ns
    assert not any(row.startswith("unknown") for row in drawn.rows)
