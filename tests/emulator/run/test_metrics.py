"""Figures of a run out of made-up events and records."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slslab.run import metrics
from slslab.run.oversubscription import delayed, oversubscribed, uncertain


def event(op: str, phase: str, seconds: float, **more: Any) -> dict[str, Any]:
    base = {
        "op": op, "phase": phase, "start_ns": 0, "end_ns": round(seconds * 1e9), "host_delay_ns": 0, "bytes": 0,
        "requests": 1, "overhead": True, "failed": False, "worker": 0, "epoch": 0, "step": 0, "invocation": "a",
    }  # fmt: skip
    return base | more


def test_packages_of_the_host_are_listed_once_by_function() -> None:
    names = [("b", "yaml"), ("a", "rich"), ("a", "attr"), ("a", "rich")]
    events = [event("import", "init", 0, function=function, resource=package) for function, package in names]
    events.append(event("compute", "compute", 1, function="a", resource="none"))
    assert [*metrics.host_imports(events).items()] == [("a", ["attr", "rich"]), ("b", ["yaml"])]


def record(request_id: str, **more: Any) -> dict[str, Any]:
    base = {
        "request_id": request_id, "memory_mb": 1769, "duration_ms": 10_000.0, "init_ms": 500.0, "billed_ms": 10_500,
        "max_memory_mb": 300, "cold_start": True, "host_delay_ms": 0.0, "start_ns": 0, "end_ns": 10_000_000_000,
        "status": "success", "error_type": None,
    }  # fmt: skip
    return base | more


def test_protocol_and_overheads_stand_apart() -> None:
    found = metrics.protocol(
        [
            event("object.put", "synchronise", 0, bytes=100, overhead=False),
            event("object.get", "synchronise", 0, bytes=70, overhead=False),
            event("object.get", "synchronise", 0, failed=True, requests=1),
            event("object.put", "other", 0, bytes=11, requests=2),
            event("compute", "compute", 1, bytes=0),
        ]
    )
    assert found == {
        "counts": {"object.get": 1, "object.put": 1},
        "bytes": {"in": 100, "out": 70},
        "overheads": {"counts": {"object.get": 1, "object.put": 2}, "bytes": {"in": 11, "out": 0}},
    }


def test_every_request_is_billed_polls_and_failures_too() -> None:
    events = [event("object.list", "synchronise", 0, worker=-1), event("object.get", "fetch", 0, failed=True)]
    assert metrics.object_requests(events) == {"object.get": 1, "object.list": 1}
    assert metrics.driver_requests(events) == {"object.list": 1}


def test_phases_are_lambda_time_and_other_is_the_rest() -> None:
    events = [
        event("compute", "compute", 6, host_delay_ns=2_000_000_000),
        event("wait", "wait", 1.5),
        event("compute", "compute", 3, worker=1, invocation="b"),
    ]
    zero, one = metrics.workers(events, [record("a"), record("b", init_ms=None, duration_ms=3000.0)])
    assert zero["phases"] == {
        "init": 0.5, "fetch": 0.0, "compute": 4.0, "synchronise": 0.0, "update": 0.0, "wait": 1.5, "other": 4.5,
    }  # fmt: skip
    assert one["phases"]["compute"] == 3.0
    assert one["phases"]["other"] == 0.0


def test_an_invocation_killed_before_its_first_event_belongs_to_nobody() -> None:
    totals = metrics.totals([], [record("a", duration_ms=2000.0)])
    [lost] = totals["per_worker"]
    assert lost["worker"] == -1
    assert lost["phases"]["other"] == 2.0
    assert totals["invocations"] == 1


def test_events_of_an_invocation_that_was_never_metered_count() -> None:
    totals = metrics.totals([event("compute", "compute", 2), event("object.put", "other", 0.5, bytes=7)], [])
    [worker] = totals["per_worker"]
    assert (worker["worker"], worker["invocations"], worker["bytes"]) == (0, 0, {"in": 7, "out": 0})
    assert totals["phases"]["compute"] == 2.0
    assert totals["phases"]["other"] == 0.5
    assert totals["gb_seconds"] == "0"


def test_retries_share_a_request_id() -> None:
    attempts = [event("compute", "compute", 0.9), event("compute", "compute", 0.9)]
    [worker] = metrics.workers(attempts, [record("a", duration_ms=1000.0), record("a", duration_ms=1000.0)])
    assert worker["phases"]["compute"] == 1.8
    assert worker["phases"]["other"] == 0.2


def test_a_phase_of_somebody_elses_is_other() -> None:
    [worker] = metrics.workers([event("shuffle", "shuffle", 4)], [record("a")])
    assert worker["phases"]["other"] == 10.0


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([*metrics.PHASES, "shuffle"]), st.integers(0, 10**7))),
    st.lists(st.tuples(st.integers(0, 10**7), st.none() | st.integers(0, 10**7)), min_size=4, max_size=4),
)
def test_phases_add_up_to_init_and_duration(
    spans: list[tuple[int, str, int]], durations: list[tuple[int, int | None]]
) -> None:
    events = [event("x", phase, us / 1e6, worker=worker, invocation=str(worker)) for worker, phase, us in spans]
    records = [
        record(str(number), duration_ms=duration / 1000, init_ms=None if init is None else init / 1000)
        for number, (duration, init) in enumerate(durations)
    ]
    total = sum(metrics.totals(events, records)["phases"].values())
    assert total == pytest.approx(sum(duration + (init or 0) for duration, init in durations) / 1e6, abs=1e-4)


def test_bytes_are_those_of_stores_and_small_figures_are_plain() -> None:
    moved = [
        event("tensor.set", "synchronise", 0, bytes=1, overhead=False),
        event("tensor.get", "synchronise", 0, bytes=2, overhead=False),
        event("queue.publish", "synchronise", 0, bytes=4, overhead=False),
        event("object.delete", "synchronise", 0, bytes=0, overhead=False),
    ]
    found = metrics.protocol(moved)
    assert found["bytes"] == {"in": 1, "out": 2}
    assert found["counts"] == {"object.delete": 1, "queue.publish": 1, "tensor.get": 1, "tensor.set": 1}
    assert metrics.totals([], [record("a", memory_mb=1, billed_ms=1)])["gb_seconds"] == "0.0000009765625"


def test_totals() -> None:
    records = [record("a"), record("b", max_memory_mb=400, cold_start=False, host_delay_ms=300.0)]
    totals = metrics.totals([event("compute", "compute", 1)], records)
    assert totals["billed_seconds"] == 21.0
    assert Decimal(totals["gb_seconds"]) == Decimal(1769 * 21_000) / 1024 / 1000
    assert (totals["invocations"], totals["cold_starts"], totals["peak_memory_mb"]) == (2, 1, 400)
    assert totals["peak_memory_limit_mb"] == 1769
    light = record("c", max_memory_mb=450, memory_mb=512)
    assert metrics.totals([], [*records, light])["peak_memory_limit_mb"] == 512, "of the greatest user"
    assert metrics.totals([], [])["peak_memory_limit_mb"] is None
    assert totals["host"]["delay_seconds"] == 0.3
    assert totals["host"]["oversubscribed"] is False, "0.3 of 21 s is under 2 %"
    slowed = [record("a", host_delay_ms=1000.0)]
    assert metrics.totals([], slowed)["host"]["oversubscribed"] is True


def test_the_span_is_from_the_first_acceptance_to_the_last_end() -> None:
    second = 1_000_000_000
    events = [
        event("object.put", "other", 100, worker=-1, invocation=""),
        event("invoke", "other", 3, worker=-1, start_ns=2 * second, end_ns=5 * second),
        event("invoke", "other", 3, worker=-1, start_ns=3 * second, end_ns=6 * second),
        event("invoke", "wait", 20, worker=0),
    ]
    assert metrics.span_seconds(events) == 4.0, "only requests that invoke are acceptances"
    transition = event("transition", "other", 1, start_ns=1 * second, end_ns=2 * second)
    assert metrics.span_seconds([*events, transition]) == 5.0
    assert metrics.span_seconds([], [{"start_ns": 0, "end_ns": 7 * second}]) == 7.0
    assert metrics.span_seconds([]) == 0.0


def test_orchestration_is_what_no_invocation_of_the_execution_covers() -> None:
    def span(op: str, start: float, end: float, **more: Any) -> dict[str, Any]:
        return event(op, "other", end, start_ns=round(start * 1e9), **more)

    def transition(state: str, start: float, end: float, invocation: str = "") -> dict[str, Any]:
        return span("transition", start, end, resource=state, invocation=invocation, overhead=False)

    assert metrics.orchestration_seconds([event("compute", "compute", 1)]) is None
    events = [
        transition("one/Parallel", 10, 20),
        transition("one/A", 10, 15, "a"),
        transition("one/B", 10, 18, "b"),
        transition("one/Waits", 20, 22),
        # Overlapping, and one of them not over when its execution ended.
        span("invoke", 11, 14, worker=-1, invocation="a"),
        span("invoke", 12, 17, worker=-1, invocation="b"),
        # At the same time, and another execution's.
        transition("two/A", 12, 13, "c"),
        span("invoke", 12.25, 14, worker=-1, invocation="c"),
        # What the function itself invoked is no part of the state machine.
        span("invoke", 12, 13, worker=0, invocation="a"),
    ]
    assert metrics.orchestration_seconds(events) == (11 - 10) + (22 - 17) + 0.25
    assert metrics.transitions(events) == 5


def test_a_transition_is_no_work_of_the_workers() -> None:
    waiting = event("transition", "other", 9, invocation="a", resource="one/A", overhead=False)
    with_it, without = (
        metrics.workers([event("compute", "compute", 6), *more], [record("a")]) for more in ([waiting], [])
    )
    assert with_it == without


def test_report_lines_in_short() -> None:
    records = [
        record("a", status="success", error_type=None),
        record("b", status="error", error_type="Runtime.OutOfMemory", init_ms=None, max_memory_mb=1769),
        record("c", status="success", error_type=None, duration_ms=40_000.0),
    ]
    found = metrics.report_summary(records)
    assert found["endings"] == {"Runtime.OutOfMemory": 1, "success": 2}
    assert found["duration_ms"] == {"min": 10_000.0, "median": 10_000.0, "max": 40_000.0}
    assert found["init_ms"] == {"min": 500.0, "median": 500.0, "max": 500.0}
    assert found["max_memory_mb"] == {"min": 300, "median": 300, "max": 1769}
    assert found["billed_ms"] == {"min": 10_500, "median": 10_500, "max": 10_500}
    assert metrics.report_summary([])["duration_ms"] is None
    assert "max_gpu_memory_mb" not in found
    used = [*records, record("d", status="success", error_type=None, gpu="cuda:0 Tesla T4", max_gpu_memory_mb=812)]
    assert metrics.report_summary(used)["max_gpu_memory_mb"] == {"min": 812, "median": 812, "max": 812}


def test_last_position() -> None:
    events = [event("compute", "compute", 1, epoch=1, step=4), event("update", "update", 1, worker=1, epoch=2, step=0)]
    assert metrics.last_position(events, 0) == (1, 4)
    assert metrics.last_position(events, None) == (2, 0)
    assert metrics.last_position(events, 7) is None


def instance(name: str, **more: Any) -> dict[str, Any]:
    base = {
        "id": name, "worker": 0, "device": "cpu", "start_ns": 5_000_000_000, "end_ns": 12_000_000_000,
        "billed_seconds": 60, "peak_memory_mb": 900, "host_delay_ms": 250.0,
    }  # fmt: skip
    return base | more


def test_an_instances_phases_add_up_to_its_wall_time() -> None:
    """Of an instance no init is metered, and seconds are billed."""
    instances = [instance("i-0"), instance("i-1", worker=1, device="cuda", end_ns=7_500_000_000)]
    totals = metrics.totals([event("compute", "compute", 2, invocation="i-0")], [], instances)
    zero, one = totals["per_worker"]
    assert zero == {
        "worker": 0,
        "phases": {**dict.fromkeys(metrics.PHASES, 0.0), "compute": 2.0, "other": 5.0},
        "bytes": {"in": 0, "out": 0},
        "billed_seconds": 60.0,
        "invocations": 0,
        "peak_memory_mb": 900,
        "host_delay_seconds": 0.25,
    }
    assert (one["worker"], one["phases"]["other"]) == (1, 2.5)
    assert (totals["billed_seconds"], totals["peak_memory_mb"], totals["gb_seconds"]) == (120.0, 900, "0")
    assert (totals["invocations"], totals["cold_starts"]) == (0, 0)
    assert (totals["instances"], totals["device"]) == (instances, "cpu, cuda")
    assert totals["phases"]["other"] == 7.5
    assert totals["host"]["delay_seconds"] == 0.5
    assert totals["host"]["oversubscribed"] is True, "0.5 of 9.5 s"


def test_invocations_are_summed_up_in_five_figures() -> None:
    warm = record("b", memory_mb=512, billed_ms=1000, cold_start=False, max_memory_mb=301)
    assert metrics.sums([record("a", memory_mb=1024, billed_ms=1500), warm]) == {
        "billed_seconds": 2.5, "gb_seconds": "2", "invocations": 2, "cold_starts": 1, "peak_memory_mb": 301,
    }  # fmt: skip


def test_a_worker_has_the_sums_of_its_invocations() -> None:
    events = [event("compute", "compute", 1), event("compute", "compute", 1, invocation="b")]
    records = [record("a", host_delay_ms=30.0), record("b", host_delay_ms=50.0, max_memory_mb=200), record("c")]
    nobody, worker = metrics.workers(events, records)
    assert {name: worker[name] for name in ("worker", "billed_seconds", "invocations", "peak_memory_mb")} == {
        "worker": 0, "billed_seconds": 21.0, "invocations": 2, "peak_memory_mb": 300,
    }  # fmt: skip
    assert worker["host_delay_seconds"] == 0.08
    assert (nobody["worker"], nobody["invocations"], nobody["billed_seconds"]) == (-1, 1, 10.5)


def test_of_what_was_never_metered_no_memory_is_known() -> None:
    totals = metrics.totals([event("compute", "compute", 2)], [])
    assert totals["per_worker"][0]["peak_memory_mb"] == 0
    assert (totals["peak_memory_mb"], totals["device"], totals["orchestration_seconds"]) == (0, None, None)
    assert totals["reports"]["endings"] == {}


def test_what_the_driver_does_is_no_workers_time() -> None:
    events = [event("object.put", "other", 3, worker=-1), event("compute", "compute", 1)]
    [worker] = metrics.workers(events, [record("a")])
    assert (worker["worker"], worker["phases"]["other"]) == (0, 9.0)


def test_an_events_time_is_from_its_start_less_what_the_host_took() -> None:
    delayed = event("compute", "compute", 9, start_ns=4_000_000_000, host_delay_ns=1_500_000_000)
    assert metrics.lambda_clock_ns(delayed) == 3_500_000_000
    # Microseconds are rounded, and not those of each event.
    [worker] = metrics.workers([event("compute", "compute", 0, end_ns=1_400), event("compute", "compute", 0)], [])
    assert worker["phases"]["compute"] == 0.000001
    [worker] = metrics.workers([event("compute", "compute", 0, end_ns=5_000_000_000_000)], [])
    assert worker["phases"]["compute"] == 5000.0


def test_dynamodb_bills_by_size() -> None:
    put = event("dynamodb.put", "synchronise", 0, bytes=3000)
    assert metrics.object_requests([put, put]) == {"dynamodb.put": 6}


def test_a_host_is_oversubscribed_above_two_percent_of_init_and_duration() -> None:
    def host(delay_ms: float, **more: Any) -> bool:
        return oversubscribed([record("a", host_delay_ms=delay_ms, **more)])

    assert not host(210.0), "of 10,500 ms"
    assert host(210.1)
    assert not host(200.0, init_ms=None)
    assert host(200.01, init_ms=None)
    half = record("a", host_delay_ms=110.0)
    assert not oversubscribed([half, record("b")])
    assert oversubscribed([record("a", host_delay_ms=400.0), record("b", host_delay_ms=100.0)])
    assert not oversubscribed([])
    assert oversubscribed([record("a", host_delay_ms=0.5, duration_ms=1.0, init_ms=None)])


@pytest.mark.parametrize(
    ("delays_ms", "share"),
    [((0.0, 0.0), 0.0), ((30.0, 0.0), 0.1), ((30.0, 20.0), 1 / 6), ((400.0, 400.0), 1.0)],
)
def test_delays_are_a_share_of_init_duration_and_instances(delays_ms: tuple[float, float], share: float) -> None:
    records: list[dict[str, Any]] = [
        {"start_ns": 10_000_000, "end_ns": 110_000_000, "init_ms": 50.0, "host_delay_ms": delays_ms[0]},
        {"start_ns": 0, "end_ns": 50_000_000, "init_ms": None, "host_delay_ms": 0.0},
    ]
    instances = [{"start_ns": 20_000_000, "end_ns": 120_000_000, "host_delay_ms": delays_ms[1]}]
    assert delayed(records, instances) == pytest.approx(share, rel=1e-9)
    assert delayed(records[:1]) == pytest.approx(min(1.0, delays_ms[0] / 150))
    assert delayed([]) == 0.0


def test_an_invocation_is_uncertain_above_a_tenth_of_init_and_duration() -> None:
    records = [
        record("a", uncertain_ms=1050.0), record("b", uncertain_ms=1050.1), record("c", uncertain_ms=None),
        record("d"), record("e", uncertain_ms=1000.0, init_ms=None), record("f", uncertain_ms=1000.01, init_ms=None),
        record("g", uncertain_ms=None, duration_ms=1.0, init_ms=None),
    ]  # fmt: skip
    marked = [uncertain(one) for one in records]
    assert marked == [False, True, False, False, False, True, False]
    host = metrics.totals([], records)["host"]
    assert (host["uncertain_invocations"], host["uncertain_seconds"]) == (2, 4.10011)
    small = [record("a", uncertain_ms=0.0004), record("b", host_delay_ms=0.0004)]
    host = metrics.totals([], small)["host"]
    assert (host["uncertain_seconds"], host["delay_seconds"]) == (0.0, 0.0), "whole microseconds"


def test_hosts_are_billed_by_the_wall_time_of_their_run() -> None:
    events = [
        event("host.run", "other", 0, resource="m5.large", start_ns=2_000_000_000, end_ns=5_000_600_000, worker=-1),
        event("compute", "compute", 1),
        event("host.run", "other", 4000, resource="mq.t3.micro", worker=-1),
    ]
    assert metrics.hosts(events) == [("m5.large", Decimal("3.001")), ("mq.t3.micro", Decimal(4000))]


def test_overlapping_executions_do_not_wait_for_each_other() -> None:
    """States may have a slash in their names, and what is covered already is not waited for again."""
    events = [
        event("transition", "other", 3, resource="one/A/B", invocation="a", overhead=False),
        event("transition", "other", 4, resource="one/A/C", invocation="b", start_ns=10**9, overhead=False),
        event("invoke", "other", 3, worker=-1, invocation="a"),
        event("invoke", "other", 4, worker=-1, invocation="b", start_ns=10**9),
    ]
    assert metrics.orchestration_seconds(events) == 0.0
    assert metrics.totals(events, [])["orchestration_seconds"] == 0.0
    apart = [event("transition", "other", 0, end_ns=end, resource=f"{end}/A") for end in (1_400, 5_000_000_000_000)]
    assert [metrics.orchestration_seconds([one]) for one in apart] == [0.000001, 5000.0]
    # To the nanosecond: one more would be rounded up.
    partly = event("transition", "other", 0, end_ns=4_500, resource="one/A", invocation="a")
    invocation = event("invoke", "other", 0, end_ns=1_000, worker=-1, invocation="a")
    assert metrics.orchestration_seconds([partly, invocation]) == 0.000003
    other = event("transition", "other", 9, resource="two/A/B", start_ns=8 * 10**9)
    assert metrics.orchestration_seconds([*events, other]) == 1.0
    later = event("transition", "other", 7, resource="one/D/A", start_ns=7 * 10**9)
    assert metrics.orchestration_seconds([*events, later]) == 3.0, "between two states, too"
