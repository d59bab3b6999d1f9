"""The rules of order and time on a few events: each violation's full text, and cases without one."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.lab.checks.small import Event, event, of_events

from slslab.run.run import Run
from slslab_lab.checks.exchange import Exchange
from slslab_lab.checks.times import check_barrier, check_billed, check_order, check_overlap, check_span
from slslab_lab.checks.violation import NotChecked, Violation
from slslab_workers.patterns.messages import Message, Name, Protocol, Wait

GOES_ON = "compute has not ended when compute, event 1, begins."
OUT_OF_ORDER = "The event is out of the order of starts."


def at(start_ns: int, end_ns: int, op: str = "compute", **more: Any) -> Event:
    """An event of worker 1 in step 3 of epoch 2."""
    return {**event(op, 1, (2, 3), start_ns=start_ns, end_ns=end_ns), **more}


@pytest.mark.parametrize(
    ("events", "wrong"),
    [
        # Equal times are in order, and so is what starts together and ends later.
        ((at(0, 0), at(0, 0), at(0, 2), at(2, 3)), {}),
        ((at(5, 9), at(4, 9), at(4, 9)), {1: OUT_OF_ORDER, 2: OUT_OF_ORDER}),
        ((at(5, 9), at(5, 8)), {1: OUT_OF_ORDER}),
        ((at(5, 9), at(5, 9, event=7)), {7: OUT_OF_ORDER}),
        ((at(5, 4), at(6, 6)), {0: "The event ends before it starts."}),
        # A cause may come later in the trace, and begin when its effect ends.
        ((at(0, 5, causes=(1,)), at(5, 6, causes=(0,))), {}),
        ((at(0, 4, causes=(1,)), at(5, 6)), {0: "Its cause, event 1, begins after the event has ended."}),
        ((at(0, 9, causes=(1,)),), {0: "Its cause, event 1, begins after the event has ended."}),
        ((at(0, 9, causes=(-1,)),), {0: "Its cause, event -1, begins after the event has ended."}),
    ],
)
def test_order(events: Sequence[Event], wrong: dict[int, str]) -> None:
    expected = [Violation("order", sentence, 1, 2, 3, number) for number, sentence in wrong.items()]
    assert list(check_order(of_events(*events))) == expected


@pytest.mark.parametrize(
    ("events", "wrong"),
    [
        ((at(0, 2), at(2, 3)), {}),
        ((at(0, 3), at(2, 3)), {0: GOES_ON}),
        # In the order of their starts, the longer one first; the others are judged, too.
        ((at(4, 5), at(0, 3), at(2, 4)), {1: GOES_ON.replace("1", "2")}),
        ((at(0, 2), at(0, 3)), {1: GOES_ON.replace("1", "0")}),
        # A peer's own database is asked within a ping, to its end.
        ((at(0, 3, "ping"), at(1, 3)), {}),
        ((at(0, 3, "ping"), at(1, 4)), {0: GOES_ON.replace("compute", "ping", 1)}),
        ((at(0, 3), at(1, 2, "ping")), {0: GOES_ON.replace("when compute", "when ping")}),
        ((at(0, 1, "ping"), at(0, 1), at(2, 3), at(2, 4)), {3: GOES_ON.replace("1", "2")}),
        # What is elsewhere, beside the worker, or not a worker's.
        ((at(0, 3), at(1, 2, invocation="b")), {}),
        ((at(0, 3), at(1, 2, "transition")), {}),
        ((at(0, 3, worker=-1), at(1, 2, worker=-1)), {}),
        ((at(0, 3, worker=0), at(1, 2, worker=0)), {0: GOES_ON}),
        ((at(0, 3, invocation=""), at(1, 2, invocation="")), {}),
    ],
)
def test_overlap(events: Sequence[Event], wrong: dict[int, str]) -> None:
    run = of_events(*events)
    expected = [Violation("overlap", text, run.events[n]["worker"], 2, 3, n) for n, text in wrong.items()]
    assert list(check_overlap(run)) == expected


def metered(**more: Any) -> dict[str, Any]:
    """What was metered of invocation `a`, which took 1 s."""
    record = {
        "request_id": "a",
        "start_ns": 0,
        "end_ns": 1_000_000_000,
        "duration_ms": 1000.0,
        "init_ms": None,
        "billed_ms": 1000,
        "memory_mb": 1769,
        "host_delay_ms": 0.0,
        "status": "success",
    }
    return {**record, **more}


@pytest.mark.parametrize(
    ("events", "records", "wrong"),
    [
        ((at(0, 9), at(3, 4)), ((0, 9),), {}),
        ((at(0, 10), at(9, 9)), ((1, 9),), {0: "compute is outside the time of its invocation, a."}),
        ((at(1, 10),), ((1, 9),), {0: "compute is outside the time of its invocation, a."}),
        # An attempt is a record.
        ((at(1, 2), at(6, 7), at(2, 6)), ((1, 2), (6, 7)), {2: "compute is outside the time of its invocation, a."}),
        # Its command was killed.
        ((at(1, 2),), (), {}),
    ],
)
@pytest.mark.parametrize("kind", ["invocations", "instances"])
def test_events_within_what_was_metered(
    kind: str, events: Sequence[Event], records: Sequence[tuple[int, int]], wrong: dict[int, str]
) -> None:
    spans = [metered(id="a", start_ns=start, end_ns=end, duration_ms=0.0) for start, end in records]
    expected = [Violation("span", sentence, 1, 2, 3, number) for number, sentence in wrong.items()]
    assert list(check_span(of_events(*events, **{kind: spans}))) == expected


@pytest.mark.parametrize(
    ("record", "said"),
    [
        # As long as it took, by hundredths more; or shorter by what the host and the reading of the clock may take.
        (metered(), None),
        (metered(end_ns=0, duration_ms=0.01), None),
        (metered(end_ns=0, duration_ms=0.02), "0.02 ms but took 0.00 ms, delayed by the host for at most 0.0 ms"),
        (metered(duration_ms=900.0), None),
        (metered(duration_ms=899.5), "899.5 ms but took 1,000.00 | 0.0 ms"),
        (metered(duration_ms=400.0, host_delay_ms=500.0), None),
        (
            metered(end_ns=9_000_000_000, host_delay_ms=2500.5),
            "1,000.0 ms but took 9,000.00 ms, delayed by the host for at most 2,500.5 ms",
        ),
        (metered(duration_ms=1000.02), "1,000.02 ms but took 1,000.00 ms, delayed by the host for at most 0.0 ms"),
        (metered(start_ns=10**15, end_ns=10**15 + 10**14, duration_ms=1e8), None),
        # A time-out is billed as the limit, however late it was noticed.
        (metered(duration_ms=0.0, status="timeout"), None),
        (metered(duration_ms=0.5, status="timeout"), None),
        (
            metered(duration_ms=-1.0, status="timeout"),
            "-1.0 ms but took 1,000.00 ms, delayed by the host for at most 0.0 ms",
        ),
        (
            metered(duration_ms=0.5, status="error"),
            "0.5 ms but took 1,000.00 ms, delayed by the host for at most 0.0 ms",
        ),
    ],
)
def test_the_duration_of_an_invocation(record: dict[str, Any], said: str | None) -> None:
    sentence = f"Invocation a has a duration of {said}.".replace("|", "ms, delayed by the host for at most")
    assert list(check_span(of_events(invocations=(record,)))) == ([] if said is None else [Violation("span", sentence)])


MORE = "The REPORT line of a has 1,769.5 as {}, its record {}."


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (metered(), None),
        (metered(init_ms=0.5, billed_ms=1001), None),
        (metered(init_ms=500.0), "Invocation a is billed 1,000 ms but took 1,500 ms."),
        (metered(report="Duration: 1000.00 ms Billed Duration: 1000 ms Memory Size: 1769 MB"), None),
        # Two decimals are printed; of what has none, as much as is recorded.
        (metered(duration_ms=0.0, billed_ms=0, report="Duration: 0.01 ms Init Duration: 0.01 ms"), None),
        (metered(report="Duration: 1769.5 ms"), MORE.format("duration_ms", "1000.0")),
        (metered(report="Init Duration: 1769.5 ms"), MORE.format("init_ms", "None")),
        (metered(report="Billed Duration: 1001 ms"), "The REPORT line of a has 1,001.0 as billed_ms, its record 1000."),
        (metered(report="Memory Size: 1768 MB"), "The REPORT line of a has 1,768.0 as memory_mb, its record 1769."),
    ],
)
def test_what_is_billed_of_an_invocation(record: dict[str, Any], said: str | None) -> None:
    assert list(check_billed(of_events(invocations=(record,)))) == ([] if said is None else [Violation("billed", said)])


@pytest.mark.parametrize("seconds", [60, 3600])
def test_what_is_billed_of_an_instance(seconds: int) -> None:
    instance = {"id": "i-1", "worker": 1, "start_ns": 10**9, "end_ns": (seconds + 1) * 10**9, "billed_seconds": seconds}
    assert list(check_billed(of_events(instances=(instance,)))) == []
    said = f"Instance i-1 is billed 59,999 s instead of {seconds:,} s."
    wrong = {**instance, "billed_seconds": 59_999}
    assert list(check_billed(of_events(instances=(wrong,)))) == [Violation("billed", said, 1)]


@pytest.mark.parametrize(
    ("events", "owner"),
    [
        # Its first step, and its last event; without a step, that of its last event.
        ((at(0, 0, epoch=-1, step=-1), at(0, 0), at(0, 0, step=4)), (1, 2, 3, 2)),
        ((at(0, 0, step=0), at(0, 0)), (1, 2, 0, 1)),
        ((at(0, 0, epoch=4, step=-1), at(0, 0, epoch=5, step=-1)), (1, 5, -1, 1)),
        # Not the driver's, nor what is beside it.
        ((at(0, 0), at(0, 0, worker=-1), at(0, 0, "transition")), (1, 2, 3, 0)),
        ((at(0, 0, invocation="b"),), ()),
    ],
)
def test_whose_an_invocation_is(events: Sequence[Event], owner: tuple[int, ...]) -> None:
    run = of_events(*events, invocations=(metered(duration_ms=2000.0),))
    said = "Invocation a has a duration of 2,000.0 ms but took 1,000.00 ms, delayed by the host for at most 0.0 ms."
    assert list(check_span(run)) == [Violation("span", said, *owner)]
    said, printed = (
        "Invocation a is billed 1,000 ms but took 2,000 ms.",
        "The REPORT line of a has 1.0 as memory_mb, its",
    )
    run = of_events(*events, invocations=(metered(duration_ms=2000.0, report="Memory Size: 1 MB"),))
    expected = [Violation("billed", each, *owner) for each in (said, f"{printed} record 1769.")]
    assert list(check_billed(run)) == expected


def passed(run: Run, *waits: Wait, **more: Any) -> list[Violation]:
    """What is said of these barriers for the gradients of workers 0 and 1 in step 0, and of none that is made."""
    return list(check_barrier(run, Exchange(run.events, Protocol(GRADIENTS, waits, **more))))


GRADIENTS = tuple(Message("gradient", Name(f"gradient/{rank}", rank, 0, 0), {}) for rank in (0, 1))
NAMES = tuple(message.name for message in GRADIENTS)
NOBODYS = Name("gradient/7", 7, 0, 0)


def put(rank: int, start_ns: int) -> Event:
    return event("object.put", rank, resource=f"bucket/gradient/{rank}", start_ns=start_ns, end_ns=start_ns + 5)


def test_a_barrier() -> None:
    run = of_events(put(1, 3), put(0, 2), *(event("update", 1, (0, 1), start_ns=start, end_ns=9) for start in (2, 3)))
    said = "Worker 1 passed the barrier of epoch 0, step 0 before worker 1 reached it with event 0."
    assert passed(run, Wait((0, 0), NAMES, (2, 3))) == [Violation("barrier", said, 1, 0, 0, 2)]
    # What nobody made is no barrier, nor are there others left out for it.
    waits = Wait((0, 1), (NOBODYS,), (2,)), Wait((0, 0), (NOBODYS, *NAMES), (2,))
    assert passed(run, *waits) == [Violation("barrier", said, 1, 0, 0, 2)]


def test_without_barriers() -> None:
    with pytest.raises(NotChecked, match=r"^no step has a barrier$"):
        passed(of_events())
    with pytest.raises(NotChecked, match=r"^workers don't wait \(s-asp\)$"):
        passed(of_events(), drawn=frozenset({(0, 0, 0)}))
