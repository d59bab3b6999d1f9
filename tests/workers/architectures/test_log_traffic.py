"""The authors' log traffic: requests and bytes as calculated by hand, a whole log, and nothing else changed."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.workers.mlless.closed_form import counts as mlless_counts

from slslab.run.metrics import object_requests, protocol
from slslab_lab.runs.planning import architectures
from slslab_workers.plan import Plan
from slslab_workers.training.released_log import LINE_BYTES, PHASE

Train = Callable[..., Any]
MakePlan = Callable[..., Plan]
ARCHITECTURES = ("allreduce", "scatterreduce", "mlless")
# With Adam, which mlless takes as released, no other architecture could be compared.
OPTIONS = {"allreduce": {}, "scatterreduce": {}, "mlless": {"filter": "none", "store": "s3"}}
LENET = 61_706
LINE = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z epoch (\d+) step (\d+): \d+\.\d{3} s, \w[^\n]*?  +\n")


def lines_of(name: str, rank: int, batches: int, epochs: int) -> int:
    """Lines of a worker's log, by the released code: 5 or 6, 6 and one in the first step of ten, 7."""
    each = {"allreduce": 5 if rank == 0 else 6, "scatterreduce": 6, "mlless": 7}[name] * batches
    return epochs * (each + (-(-batches // 10) if name == "scatterreduce" else 0))


def plan_of(make_plan: MakePlan, name: str, *, logged: bool = True, **changes: Any) -> Plan:
    options = OPTIONS[name] | ({"log-traffic": True} if logged else {})
    return make_plan(name, options=options, batch_size=4, **changes)


def logged(events: list[dict[str, Any]], rank: int, op: str) -> list[dict[str, Any]]:
    return [event for event in events if (event["phase"], event["worker"], event["op"]) == (PHASE, rank, op)]


def stored(trained: Any, rank: int) -> bytes:
    key = logged(trained.events, rank, "object.put")[-1]["resource"].partition("/")[2]
    return bytes(trained.objects[key])


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize(("workers", "batches"), [(1, 2), (2, 11), (4, 2)])
def test_every_line_gets_the_whole_log_and_puts_it_back(
    name: str, workers: int, batches: int, train: Train, make_plan: MakePlan
) -> None:
    plan = plan_of(make_plan, name, workers=workers, batches=batches)
    trained = train(plan)
    for rank in range(workers):
        lines = lines_of(name, rank, batches, 1)
        gets, puts = (logged(trained.events, rank, op) for op in ("object.get", "object.put"))
        assert [event["bytes"] for event in gets] == [LINE_BYTES * line for line in range(lines)]
        assert [event["bytes"] for event in puts] == [LINE_BYTES * line for line in range(1, lines + 1)]
        # As in S3 there is no log to get before the first line.
        assert [event["failed"] for event in gets] == [True] + [False] * (lines - 1)
        assert all(event["overhead"] and event["requests"] == 1 for event in gets + puts)
        stem = {"allreduce": "all_reduce", "scatterreduce": "scatter_reduce", "mlless": "mlless"}[name]
        assert {event["resource"].partition("/")[2] for event in gets + puts} == {
            f"{plan.run}/logs/{stem}_worker_{rank}_log.txt"
        }
        log = stored(trained, rank)
        assert len(log) == LINE_BYTES * lines
        matches = [LINE.fullmatch(line) for line in log.splitlines(keepends=True)]
        steps = [int(match[2]) for match in matches if match is not None]
        assert len(steps) == lines, "every line is whole"
        assert steps == sorted(steps)
        assert set(steps) == set(range(batches))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_traffic_changes_nothing_but_overheads_and_the_bill(name: str, train: Train, make_plan: MakePlan) -> None:
    with_log, without = (train(plan_of(make_plan, name, logged=on, workers=2, batches=2)) for on in (True, False))
    assert with_log.fingerprints == without.fingerprints
    expected: Any
    if name == "mlless":
        expected = mlless_counts(2, 2, 1, LENET, OPTIONS["mlless"])
    else:
        expected = architectures()[name].counts(2, 2, 1, LENET)
    found = protocol(with_log.events)
    assert found["counts"] == expected.operations
    assert found["bytes"] == {"in": expected.bytes_in, "out": expected.bytes_out}
    lines = sum(lines_of(name, rank, 2, 1) for rank in range(2))
    billed = [object_requests(trained.events) for trained in (with_log, without)]
    assert billed[0]["object.put"] - billed[1]["object.put"] == lines
    assert len([event for event in with_log.events if event["phase"] == PHASE]) == 2 * lines
    assert not [event for event in without.events if event["phase"] == PHASE]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_next_invocation_goes_on_with_the_log(name: str, train: Train, make_plan: MakePlan) -> None:
    plan = plan_of(make_plan, name, workers=2, batches=2, epochs=2, mode="per-batch")
    trained = train(plan)
    for rank in range(2):
        log = stored(trained, rank)
        assert len(log) == LINE_BYTES * lines_of(name, rank, 2, 2)
        places = [match.groups() for match in map(LINE.fullmatch, log.splitlines(keepends=True)) if match is not None]
        assert [*dict.fromkeys(places)] == [(b"0", b"0"), (b"0", b"1"), (b"1", b"0"), (b"1", b"1")]
        assert sum(event["failed"] for event in logged(trained.events, rank, "object.get")) == 1
