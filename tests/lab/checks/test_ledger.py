"""The rules of the ledger and the bill on a few events: each violation's full text, and cases without one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.lab.checks.planting import recorded
from tests.lab.checks.small import PLAN, Event, event, of_events

from slslab.run import metrics
from slslab.run.bill import load_book
from slslab.run.run import Run
from slslab_lab.checks.ledger import TOTALS, check_bill, check_metered, check_totals
from slslab_lab.checks.violation import NotChecked, Violation

KILLED = r"^the run's command was killed before it wrote a document$"
BOOK = {"name": "aws-us-east-1", "date": "2026-11-21"}


def accepted(invocation: str = "a", **more: Any) -> Event:
    """An invocation of the driver, accepted from 2 to 8 ns."""
    made = event("invoke", -1, (-1, -1), start_ns=2, end_ns=8, function="train", invocation=invocation)
    return {**made, **more}


def metered(invocation: str = "a", start_ns: int = 2, end_ns: int = 8, **more: Any) -> dict[str, Any]:
    return {"request_id": invocation, "start_ns": start_ns, "end_ns": end_ns, **more}


BEYOND = Violation("metered", "Invocation a is metered outside the time in which it was accepted.", event=0)
UNBILLED = "Invocation {} of train isn't metered, so it isn't billed."
UNKNOWN = "Invocation {} is metered but not in the trace."
TWICE = "Invocation a is metered {} times."
UNBILLED_BOTH = [
    Violation("metered", UNBILLED.format("a"), 0, event=2),
    Violation("metered", UNBILLED.format("b"), event=3),
]


@pytest.mark.parametrize(
    ("events", "records", "violations"),
    [
        ((accepted(), accepted("b")), (metered(), metered("b")), []),
        ((accepted(),), (metered(start_ns=1),), [BEYOND]),
        ((accepted(),), (metered(end_ns=9),), [BEYOND]),
        ((), (metered(), metered("b")), [Violation("metered", UNKNOWN.format(each)) for each in "ab"]),
        # What a worker invokes is no invocation of the driver, nor is what else names one.
        ((accepted(worker=0),), (metered(),), [Violation("metered", UNKNOWN.format("a"))]),
        ((event("wait", -1),), (metered(),), [Violation("metered", UNKNOWN.format("a"))]),
        # Whose it is, its own events say; the driver's do not, nor do others'.
        ((accepted(),), (), [Violation("metered", UNBILLED.format("a"), event=0)]),
        (
            (event("wait", -1), event("wait", 3, invocation="c"), accepted(), accepted("b"), event("wait", 0)),
            (),
            UNBILLED_BOTH,
        ),
        ((accepted(failed=True), accepted("b", failed=True)), (metered("b"),), []),
        ((accepted(),), (metered(), metered()), [Violation("metered", TWICE.format(2), event=0)]),
        ((accepted(),), 3 * (metered(invocation_type="x"),), [Violation("metered", TWICE.format(3), event=0)]),
        # Retries of an asynchronous invocation share its id.
        ((accepted(),), (metered(), metered(invocation_type="Event")), []),
        ((), (metered(), metered()), 2 * [Violation("metered", UNKNOWN.format("a"))]),
    ],
)
def test_metered(events: Sequence[Event], records: Sequence[dict[str, Any]], violations: Sequence[Violation]) -> None:
    assert list(check_metered(of_events(*events, invocations=records))) == violations


PUT = event("object.put", requests=3, bytes=5, host_delay_ns=0)
COMPUTED = event("compute", 1, host_delay_ns=0)


def finished(**changes: Any) -> Run:
    """A run of three puts by worker 0, with a matching document, except for `changes`."""
    run = of_events(PUT, COMPUTED)
    figures = {**run.totals(), "cost": run.cost(load_book(PLAN.prices)), "lambda": {"status": "not modelled"}}
    return run.replace(document={**figures, **changes})


SAYS = "The document says {}, but the trace adds up to {}."
PHASES = dict.fromkeys(metrics.PHASES, 0.0)
WORKERS = finished().totals()["per_worker"]


@pytest.mark.parametrize(
    ("changes", "stated", "sums"),
    [
        ({"billed_seconds": 1.5}, "billed_seconds 1.5", "0.0"),
        ({"counts": {"object.put": 4}}, "counts object.put 4", "object.put 3"),
        # The first by its name; what one of them lacks.
        ({"phases": {**PHASES, "wait": 2.0, "fetch": 1.0}}, "phases fetch 1.0", "fetch 0.0"),
        ({"counts": {}}, "counts object.put None", "object.put 3"),
        ({"counts": {"object.put": 3, "ping": 1}}, "counts ping 1", "ping None"),
        ({"overheads": {"counts": {}, "bytes": {"in": 7, "out": 0}}}, "overheads bytes in 7", "bytes in 0"),
        ({"per_worker": [WORKERS[0], {**WORKERS[1], "worker": 3}]}, "per_worker worker 3", "worker 1"),
        ({"per_worker": [{**each, "worker": 7} for each in WORKERS]}, "per_worker worker 7", "worker 0"),
        # What is not alike stands as it is.
        ({"per_worker": WORKERS[:1]}, f"per_worker {WORKERS[:1]}", str(WORKERS)),
        ({"per_worker": {}}, "per_worker {}", str(WORKERS)),
        ({"per_worker": None}, "per_worker None", str(WORKERS)),
        ({"bytes": None}, "bytes None", "{'in': 5, 'out': 0}"),
        ({"bytes": [1]}, "bytes [1]", "{'in': 5, 'out': 0}"),
    ],
)
def test_totals(changes: dict[str, Any], stated: str, sums: str) -> None:
    assert list(check_totals(finished(**changes))) == [Violation("totals", SAYS.format(stated, sums))]


def test_all_totals_are_compared() -> None:
    assert list(check_totals(finished())) == []
    assert len(list(check_totals(finished(**dict.fromkeys(TOTALS, "x"))))) == len(TOTALS)
    with pytest.raises(NotChecked, match=KILLED):
        list(check_totals(of_events()))


@pytest.mark.parametrize("name", ["gpu", "spirt"])
def test_recordings_with_all_that_was_metered_and_launched(name: str) -> None:
    run = recorded(name)
    assert [*check_metered(run), *check_totals(run), *check_bill(run)] == []


def priced(*lines: dict[str, Any], total: str = "0.000015", **more: Any) -> dict[str, Any]:
    return {"book": BOOK, "total": total, "lines": list(lines), "not_billed": [], **more}


def line(quantity: str = "3", amount: str = "0.000015", **more: Any) -> dict[str, Any]:
    item = {"item": "S3 PUT requests", "unit": "request", "price": "0.000005"}
    return {**item, "quantity": quantity, "amount": amount, **more}


LAST_DIGIT = "0.00001500000000000000000000000001"


@pytest.mark.parametrize(
    ("cost", "sentences"),
    [
        (priced(line()), []),
        # Amounts have more digits than are multiplied here.
        (priced(line(amount=LAST_DIGIT), total=LAST_DIGIT), []),
        (
            priced(line(amount="0.000016")),
            [
                "S3 PUT requests of this host is billed 0.000016, but 3 at 0.000005 is 0.000015.",
                "The bill's lines of this host add up to 0.000016, but its total is 0.000015.",
            ],
        ),
        (
            priced(line("4", "0.00002"), total="0.00002"),
            ["The bill has 4 request at 0.000005 of S3 PUT requests, but the trace's usage is 3 request at 0.000005."],
        ),
        (
            priced(line(item="b", amount="0.000014"), line(item="a", amount="0.000016"), total="0.00003"),
            [
                "b of this host is billed 0.000014, but 3 at 0.000005 is 0.000015.",
                "a of this host is billed 0.000016, but 3 at 0.000005 is 0.000015.",
                "The bill has nothing of S3 PUT requests, but the trace's usage is 3 request at 0.000005.",
                "The bill has 3 request at 0.000005 of a, but the trace's usage is nothing.",
                "The bill has 3 request at 0.000005 of b, but the trace's usage is nothing.",
            ],
        ),
        # Nothing costs nothing, and an item has a line for each of its prices.
        (
            priced(total="0"),
            ["The bill has nothing of S3 PUT requests, but the trace's usage is 3 request at 0.000005."],
        ),
        (
            priced(line(), line("0", "0", price="1"), not_billed=[line("2", unit="x")]),
            [
                "The bill has 2 x, not billed of S3 PUT requests, but the trace's usage is nothing.",
                "The bill has 0 request at 1 of S3 PUT requests, but the trace's usage is nothing.",
            ],
        ),
    ],
)
def test_the_lines_of_a_bill(cost: dict[str, Any], sentences: Sequence[str]) -> None:
    expected = [Violation("bill", sentence) for sentence in sentences]
    assert list(check_bill(finished(cost=cost))) == expected


def test_a_bill_on_lambda() -> None:
    wrong, cost = priced(line(), total="1"), priced(line())
    said = Violation("bill", "The bill's lines on Lambda add up to 0.000015, but its total is 1.")
    modelled = finished(**{"cost": cost, "lambda": {"status": "modelled", "cost": wrong}})
    assert list(check_bill(modelled)) == [said]
    not_modelled = finished(**{"cost": cost, "lambda": {"status": "not modelled", "cost": wrong}})
    assert list(check_bill(not_modelled)) == []


def test_bills_that_are_not_checked() -> None:
    with pytest.raises(NotChecked, match=KILLED):
        list(check_bill(of_events()))
    run = finished()
    with pytest.raises(NotChecked, match=r"no-such-book"):
        list(check_bill(run.replace(plan=replace(PLAN, prices="no-such-book"))))
    for book in ({**BOOK, "name": "my-book"}, {**BOOK, "date": "2020-01-01"}):
        reason = rf"^its price book, {book['name']} of {book['date']}, isn't installed$"
        with pytest.raises(NotChecked, match=reason):
            list(check_bill(finished(cost=priced(line(), book=book))))
