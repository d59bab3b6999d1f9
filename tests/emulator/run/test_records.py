"""Records of invocations and instances: what is billed of them, what is said of them, and which are refused."""

from decimal import Decimal
from typing import Any

import pytest

from slslab.aws.limits import billed_ms
from slslab.run.records import (
    EVENT_FIELDS,
    InstanceRecord,
    billed_requests,
    billed_seconds,
    check_metered,
    check_record,
    launch_record,
    notes,
    seconds_used,
)

SECOND = 1_000_000_000
EVENT: dict[str, Any] = {
    "record": "event",
    "etag": None,
    **{name: kind() for name, kind in EVENT_FIELDS.items() if isinstance(kind, type)},
}


def instance(**changed: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": "i-1", "function": "slslab_workers.gpu.instance", "type": "g4dn.xlarge", "worker": 0, "device": "cpu",
        "started_at": "2026-11-22T10:00:00.000+00:00", "start_ns": 5, "end_ns": 5 + SECOND, "billed_seconds": 60,
        "peak_memory_mb": 400, "cpu_seconds": 0.5, "host_delay_ms": 0.0, "status": "success", "exit_code": 0,
    }  # fmt: skip
    return fields | changed


def test_an_instance_record_is_a_document_with_every_field() -> None:
    assert InstanceRecord(**instance()).as_document() == instance()
    assert InstanceRecord(**instance()).as_record() == {"record": "instance", **instance()}


def test_figures_of_metered_records_may_be_whole_numbers_as_json_writes_them() -> None:
    whole = {**INVOCATION, "duration_ms": 1, "init_ms": 3, "cpu_ms": 2, "host_delay_ms": 0}
    check_record(whole)
    with pytest.raises(ValueError, match=r"^invocation has no valid 'memory_mb'$"):
        check_record({**whole, "memory_mb": 1769.5})
    check_record({"record": "instance", **instance(exit_code=-9, worker=-1)})
    for impossible in ({"exit_code": 0.5}, {"worker": -2}, {"cpu_seconds": -0.5}, {"cpu_seconds": float("inf")}):
        with pytest.raises(ValueError, match=rf"^instance has no valid '{next(iter(impossible))}'$"):
            check_record({"record": "instance", **instance(**impossible)})


def test_an_init_that_was_not_there_bills_nothing() -> None:
    assert billed_ms(1.0, None) == 1
    assert billed_ms(1.0, 0.0) == 1
    assert billed_ms(1.0, 0.01) == 2


@pytest.mark.parametrize(
    ("size", "requests"),
    [(0, 1), (262_144, 1), (262_145, 2), (262_144 + 65_536, 2), (262_144 + 65_537, 3), (1_048_576, 13)],
)
def test_an_event_is_billed_by_the_size_of_its_payload(size: int, requests: int) -> None:
    assert billed_requests("Event", size) == requests
    assert billed_requests("RequestResponse", size) == 1


@pytest.mark.parametrize(
    ("nanoseconds", "seconds"), [(1, 60), (60 * SECOND, 60), (60 * SECOND + 1, 61), (61 * SECOND, 61)]
)
def test_begun_seconds_of_an_instance_count_whole_and_sixty_at_least(nanoseconds: int, seconds: int) -> None:
    assert billed_seconds(nanoseconds) == seconds


@pytest.mark.parametrize(("nanoseconds", "seconds"), [(1, "0.001"), (1_000_000, "0.001"), (1_000_001, "0.002")])
def test_a_begun_millisecond_of_an_instance_counts_whole(nanoseconds: int, seconds: str) -> None:
    assert seconds_used({"start_ns": 7, "end_ns": 7 + nanoseconds}) == Decimal(seconds)


def test_notes_tell_each_device_once_and_who_shared_it() -> None:
    """An instance on the processor is billed as if it had a GPU, and a GPU may be several instances'."""
    on_cpu = notes([instance(), instance(worker=1)])
    assert len(on_cpu) == 1
    assert "CPU" in on_cpu[0]
    assert on_cpu[0].endswith("though g4dn.xlarge is billed")
    both = notes([instance(device="0 T4"), instance(device="1 A10", type="g5.xlarge"), instance(device="0 T4")])
    assert len(both) == 2
    assert "0 T4, which 2 instances shared" in both[0]
    assert both[0].endswith("and g4dn.xlarge is billed for them")
    assert "1 A10:" in both[1]
    assert "shared" not in both[1]
    assert both[1].endswith("and g5.xlarge is billed for them")
    assert notes([]) == []


def test_a_launch_is_a_record_that_a_log_admits() -> None:
    plain = launch_record("tensors", "peer-0", "m5.large", 12)
    of_a_host = {"record": "begin", "of": "tensors", "id": "peer-0", "type": "m5.large", "start_ns": 12}
    assert plain == {**of_a_host, "worker": -1, "device": ""}
    check_record(plain)
    launched = launch_record("instance", "i-1", "g4dn.xlarge", 12, 3, "cuda:0")
    assert (launched["worker"], launched["device"]) == (3, "cuda:0")


@pytest.mark.parametrize("record", [None, [], "event", {}, {"record": 3}, {"record": ["event"]}, {"record": "another"}])
def test_what_is_of_no_kind_is_refused(record: Any) -> None:
    with pytest.raises(ValueError, match=r"header, event, clock, begin, invocation or instance$"):
        check_record(record)


def test_a_record_has_every_field_with_its_type() -> None:
    check_record(EVENT)
    check_record({**EVENT, "more": object()})
    for name in EVENT_FIELDS:
        with pytest.raises(ValueError, match=rf"^event has no valid '{name}'$"):
            check_record({**EVENT, name: object()})
        with pytest.raises(ValueError, match=rf"^event has no valid '{name}'$"):
            check_record({key: value for key, value in EVENT.items() if key != name})


def test_an_event_does_not_end_before_it_starts() -> None:
    check_record({**EVENT, "start_ns": 5, "end_ns": 5})
    with pytest.raises(ValueError, match=r"^the event ends before it starts$"):
        check_record({**EVENT, "start_ns": 5, "end_ns": 4})
    check_record({"record": "header", "schema": 1, "run": "r", "clock": "monotonic", "start_ns": 5, "end_ns": 4})


INVOCATION: dict[str, Any] = {
    "record": "invocation", "request_id": "a", "function": "f", "environment": "f-0001", "memory_mb": 1769,
    "cpu_share": 1, "architecture": "x86_64", "ephemeral_mb": 512, "cold_start": True, "init_ms": 3,
    "duration_ms": 1, "billed_ms": 4, "max_memory_mb": 40, "cpu_ms": 1.5, "host_delay_ms": 0, "status": "success",
    "error_type": None, "started_at": "2026-11-21T10:00:00.000+00:00", "start_ns": 0, "end_ns": 2**60 - 1,
}  # fmt: skip


def test_a_metered_record_may_lack_what_is_not_read() -> None:
    """Records of older versions do; whole numbers are numbers with a point, too."""
    for record in (INVOCATION, {**INVOCATION, "init_ms": None, "version": "1", "uncertain_ms": 2, "report": "REPORT"}):
        check_record(record)
        # It is this record that is admitted, and not any.
        with pytest.raises(ValueError, match=r"^invocation has no valid 'billed_ms'$"):
            check_record({**record, "billed_ms": "4"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("duration_ms", "1"),
        ("init_ms", "3"),
        ("cpu_share", None),
        ("error_type", 1),
        ("version", 1),
        ("uncertain_ms", "1"),
        ("end_ns", 2**60),
        ("start_ns", -1),
        ("duration_ms", float("nan")),
        ("duration_ms", float(2**53)),
        ("architecture", "riscv"),
    ],
)
def test_a_metered_record_has_fields_of_their_types(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^invocation has no valid '{name}'$"):
        check_record({**INVOCATION, name: value})


def test_a_metered_record_lacks_nothing_that_is_read() -> None:
    for name in INVOCATION.keys() - {"record"}:
        with pytest.raises(ValueError, match=f"^invocation has no valid '{name}'$"):
            check_record({key: value for key, value in INVOCATION.items() if key != name})


def test_a_metered_record_has_a_time() -> None:
    with pytest.raises(ValueError, match="Invalid isoformat"):
        check_record({**INVOCATION, "started_at": "yesterday"})


@pytest.mark.parametrize("name", ["cpu_before_ns", "loss", "reads"])
def test_what_an_event_may_have_is_of_its_type(name: str) -> None:
    check_record({**EVENT, "cpu_before_ns": 1, "loss": 0.5, "reads": []})
    with pytest.raises(ValueError, match=f"^event has no valid '{name}'$"):
        check_record({**EVENT, name: "text"})


def test_what_is_no_record_at_all() -> None:
    with pytest.raises(ValueError, match=r"^an invocation must be a JSON object$"):
        check_metered([], "invocation")
