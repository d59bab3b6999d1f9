"""Traces as lists of records in and tables out: order, causes, host delay, and what a killed command leaves."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slslab.errors import RunError
from slslab.trace import COLUMNS, LOG, TABLE, TraceWriter, compact, invocations, load, read_log


def event(op: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    base = {
        "record": "event", "op": op, "phase": "other", "start_ns": start, "end_ns": end, "cpu_ns": 0, "bytes": 0,
        "requests": 1, "resource": "", "etag": None, "overhead": False, "failed": False, "worker": 0, "epoch": 0,
        "step": 0, "invocation": "a", "function": "f", "environment": "e", "run": "r",
    }  # fmt: skip
    return base | more


def clock(wall: int, delay: int, environment: str = "e") -> dict[str, Any]:
    return {"record": "clock", "environment": environment, "wall_ns": wall, "host_delay_ns": delay}


def write(directory: Path, records: list[dict[str, Any]]) -> None:
    with TraceWriter(directory / LOG, "r") as writer:
        for record in records:
            writer.write(record)


def test_events_are_numbered_by_their_start_and_carry_the_schema(tmp_path: Path) -> None:
    write(tmp_path, [event("compute", 20, 30), event("object.get", 5, 10), event("update", 30, 40)])
    trace = compact(tmp_path)
    assert trace.events.column("op").to_pylist() == ["object.get", "compute", "update"]
    assert trace.events.column("event").to_pylist() == [0, 1, 2]
    stored = pq.read_table(tmp_path / TABLE)
    assert stored.schema.names == COLUMNS.names
    assert stored.schema.metadata[b"slslab.schema"] == b"1"
    assert not (tmp_path / LOG).exists()
    assert load(tmp_path).events.to_pylist() == trace.events.to_pylist()
    assert not trace.torn


def test_causes(tmp_path: Path) -> None:
    """Program order, the start of a cold environment, and the put behind every get, by key and ETag."""
    write(
        tmp_path,
        [
            event("environment.start", 0, 9, worker=-1, invocation="a", resource="e"),
            event("object.put", 10, 20, resource="b/k", etag="1"),
            event("object.put", 12, 22, resource="b/k", etag="2", worker=1, invocation="b"),
            event("object.get", 21, 24, resource="b/k", failed=True, invocation="c", worker=2),
            event("wait", 24, 30, phase="wait", invocation="c", worker=2),
            event("object.get", 30, 35, resource="b/k", etag="1", invocation="c", worker=2),
        ],
    )
    rows = compact(tmp_path).events.to_pylist()
    assert [row["causes"] for row in rows] == [[], [0], [], [], [3], [1, 4]]


def test_host_delay_is_interpolated_between_samples(tmp_path: Path) -> None:
    samples = [clock(0, 0), clock(100, 0), clock(200, 60), clock(300, 60)]
    spans = [event("compute", 0, 100), event("compute", 100, 150), event("compute", 100, 300), event("wait", 250, 300)]
    elsewhere = event("compute", 100, 200, environment="other")
    write(tmp_path, [*samples, *spans, elsewhere])
    rows = compact(tmp_path).events.to_pylist()
    delays = {(r["environment"], r["start_ns"], r["end_ns"]): r["host_delay_ns"] for r in rows}
    assert delays == {
        ("e", 0, 100): 0, ("e", 100, 150): 30, ("e", 100, 300): 60, ("e", 250, 300): 0, ("other", 100, 200): 0,
    }  # fmt: skip


spans = st.lists(
    st.tuples(
        st.sampled_from(["object.put", "object.get", "compute"]),
        st.integers(0, 50),
        st.integers(0, 20),
        st.integers(0, 3),
        st.sampled_from(["k", "l"]),
        st.sampled_from(["1", "2"]),
    ),
    max_size=40,
)


@given(spans)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
def test_causes_are_acyclic_and_begin_before_their_effects_end(
    tmp_path_factory: pytest.TempPathFactory, found: list[tuple[str, int, int, int, str, str]]
) -> None:
    directory = tmp_path_factory.mktemp("trace")
    events, now = [], [0] * 4
    for op, pause, length, worker, key, etag in found:
        start = now[worker] + pause  # the events of one worker follow each other
        now[worker] = start + length
        events.append(event(op, start, now[worker], worker=worker, invocation=str(worker), resource=key, etag=etag))
    write(directory, events)
    rows = compact(directory).events.to_pylist()
    for row in rows:
        for cause in row["causes"]:
            assert cause != row["event"]
            assert rows[cause]["start_ns"] <= row["end_ns"]
    reached: dict[int, int] = {}

    def depth(number: int, path: frozenset[int]) -> int:
        assert number not in path, "a cycle"
        if number not in reached:
            below = [depth(cause, path | {number}) for cause in rows[number]["causes"]]
            reached[number] = 1 + max(below, default=0)
        return reached[number]

    for number in range(len(rows)):
        depth(number, frozenset())


def test_a_torn_last_line_is_told_and_loses_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, [event("compute", 0, 1), event("update", 1, 2)])
    whole = (tmp_path / LOG).read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for cut in range(last + 1, len(whole), 17):
        (tmp_path / LOG).write_bytes(whole[:cut])
        records, torn = read_log(tmp_path / LOG)
        assert torn
        assert [record["record"] for record in records] == ["header", "event"]
    (tmp_path / LOG).write_bytes(whole[:-5])
    assert load(tmp_path).torn
    assert load(tmp_path).torn, "also when read from the table"


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    write(tmp_path, [event("compute", 0, 1)])
    lines = (tmp_path / LOG).read_text().splitlines(keepends=True)
    (tmp_path / LOG).write_text(lines[0] + "{broken\n" + lines[1])
    with pytest.raises(RunError, match="Line 2"):
        compact(tmp_path)


def test_other_schemas_and_missing_traces_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="has no trace"):
        load(tmp_path)
    header = {"record": "header", "schema": 2, "run": "r", "clock": "c", "started": ""}
    (tmp_path / LOG).write_text(json.dumps(header) + "\n")
    with pytest.raises(RunError, match="schema 2"):
        load(tmp_path)
    (tmp_path / LOG).write_text("")
    with pytest.raises(RunError, match="no header"):
        load(tmp_path)


def test_invocations_come_from_the_log_until_it_is_compacted(tmp_path: Path) -> None:
    write(tmp_path, [{"record": "invocation", "request_id": "a", "billed_ms": 5}])
    assert invocations(tmp_path) == [{"request_id": "a", "billed_ms": 5}]
