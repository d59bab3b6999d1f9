"""Bars of a timeline, calculated by hand: rows, gaps, and what is thinned."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from slslab_lab.pages.timeline import Bar, apportion, build_timeline, merge


def event(invocation: str, worker: int, phase: str, start: int, end: int, op: str = "compute") -> dict[str, Any]:
    return {
        "invocation": invocation, "worker": worker, "phase": phase, "op": op, "start_ns": start, "end_ns": end,
        "function": "train",
    }  # fmt: skip


def record(request: str, start: int, end: int) -> dict[str, Any]:
    return {"request_id": request, "function": "train", "start_ns": start, "end_ns": end}


def bar(phase: str, start: int, end: int, events: int = 1) -> Bar:
    return Bar("worker 0", "train", phase, start, end, events)


def drawn(found: Any) -> list[tuple[str, str, int, int, int]]:
    return [(one.row, one.phase, one.start_ns, one.end_ns, one.events) for one in found.bars]


def test_nothing_has_happened_yet() -> None:
    assert build_timeline([]) is None


def test_init_events_and_time_between_them_are_bars() -> None:
    events = [
        event("a", -1, "init", 100, 200, "environment.start"),
        event("a", 0, "fetch", 210, 230),
        event("a", 0, "compute", 230, 300),
    ]
    found = build_timeline(events, [record("a", 200, 320)])
    assert found is not None
    assert drawn(found) == [
        ("worker 0", "init", 100, 200, 1),
        ("worker 0", "other", 200, 210, 0),
        ("worker 0", "fetch", 210, 230, 1),
        ("worker 0", "compute", 230, 300, 1),
        ("worker 0", "other", 300, 320, 0),
    ]
    assert (found.start_ns, found.end_ns, found.thinned) == (100, 320, "")


def test_invocations_at_once_have_rows_of_their_own() -> None:
    events = [event("a", 0, "compute", 0, 10), event("b", 0, "compute", 5, 15), event("c", 0, "compute", 10, 20)]
    found = build_timeline(events)
    assert found is not None
    assert found.rows == ("worker 0", "worker 0 · 2")
    assert [(one[0], one[2]) for one in drawn(found)] == [("worker 0", 0), ("worker 0", 10), ("worker 0 · 2", 5)]


def test_transitions_and_scripts_beside_a_worker_are_no_bars() -> None:
    events = [event("a", 0, "compute", 0, 10), event("a", 0, "other", 0, 99, "transition")]
    found = build_timeline(events)
    assert found is not None
    assert drawn(found) == [("worker 0", "compute", 0, 10, 1)]


def test_an_instance_lasts_from_launch_to_end() -> None:
    found = build_timeline(
        [event("i-1", 1, "compute", 4, 6)], [], [{"id": "i-1", "worker": 1, "start_ns": 0, "end_ns": 9}]
    )
    assert found is not None
    assert [one[1:4] for one in drawn(found)] == [("other", 0, 4), ("compute", 4, 6), ("other", 6, 9)]


def test_neighbours_of_one_phase_are_merged_over_a_small_gap_alone() -> None:
    bars = [bar("wait", 0, 4), bar("other", 4, 5, 0), bar("wait", 5, 9), bar("wait", 12, 14), bar("fetch", 14, 15)]
    assert list(merge(bars, 1)) == [bar("wait", 0, 9, 2), bar("wait", 12, 14), bar("fetch", 14, 15)]


def test_an_interval_has_a_bar_for_each_phase_as_long_as_its_share() -> None:
    bars = [bar("compute", 0, 3), bar("fetch", 3, 5), bar("compute", 5, 12), bar("wait", 24, 30)]
    # 0 to 10: fetch 2, compute 8; 10 to 20: compute 2, idle 8; 20 to 30: wait 6, idle 4.
    assert list(apportion(bars, 0, 10)) == [
        bar("fetch", 0, 2), bar("compute", 2, 10, 2), bar("compute", 10, 12, 0), bar("wait", 20, 26),
    ]  # fmt: skip


def test_too_many_bars_are_merged_and_then_apportioned_and_that_is_said() -> None:
    """20,000 ns: a wait every 4 ns with 2 ns between them; a 2,000th is 10 ns, so that all become one bar."""
    waits = [event("a", 0, "wait", 4 * i, 4 * i + 2) for i in range(5000)]
    found = build_timeline(waits, limit=3000)
    assert found is not None
    assert drawn(found) == [("worker 0", "wait", 0, 19_998, 5000)]
    assert "5,000 events are drawn as 1 bars" in found.thinned
    turns = [event("a", 0, ("wait", "compute")[i % 2], 20 * i, 20 * i + 20) for i in range(5000)]
    found = build_timeline(turns, limit=1000)
    assert found is not None
    assert 0 < len(found.bars) <= 1002
    assert "every phase has one bar as long as its share" in found.thinned
    for phase in ("wait", "compute"):
        assert sum(one.end_ns - one.start_ns for one in found.bars if one.phase == phase) == 50_000
    assert sum(one.events for one in found.bars) == 5000


def test_rows_beyond_the_first_are_counted() -> None:
    found = build_timeline([event(str(i), i, "compute", 0, 10) for i in range(70)])
    assert found is not None
    assert (len(found.rows), found.left_out) == (64, 6)


spans = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 60), st.sampled_from(["wait", "fetch"])), min_size=1)


@settings(deadline=None)
@given(spans, st.integers(1, 50))
def test_bars_of_a_row_never_overlap(found: list[tuple[int, int, str]], limit: int) -> None:
    timeline = build_timeline([event("a", 0, phase, at, at + long) for at, long, phase in found], limit=limit)
    assert timeline is not None
    for one, after in zip(timeline.bars, timeline.bars[1:], strict=False):
        assert one.start_ns < one.end_ns <= after.start_ns
