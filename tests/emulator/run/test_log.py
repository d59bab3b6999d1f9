"""Traces as lists of records in and tables out: order, causes, host delay, and what a killed command leaves."""

import json
import os
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from graphlib import TopologicalSorter
from itertools import accumulate, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slslab.errors import HostError, RunError
from slslab.run.log import LOG, TABLE, TraceWriter, compact, load, metered_records, read_log, replacing
from slslab.run.parquet import COLUMNS, to_arrow

METERED = {
    "record": "invocation", "request_id": "a", "function": "f", "environment": "e", "memory_mb": 128, "cpu_share": 0.1,
    "architecture": "x86_64", "ephemeral_mb": 512, "cold_start": False, "init_ms": None, "duration_ms": 4.5,
    "billed_ms": 5, "max_memory_mb": 60, "cpu_ms": 1, "host_delay_ms": 0, "status": "success", "error_type": None,
    "started_at": "2026-11-21T00:00:00.000+00:00", "start_ns": 0, "end_ns": 4_500_000,
}  # fmt: skip


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
    assert [event["op"] for event in trace.events] == ["object.get", "compute", "update"]
    assert [event["event"] for event in trace.events] == [0, 1, 2]
    assert load(tmp_path) == trace
    stored = pq.read_table(tmp_path / TABLE)
    assert stored.schema.names == COLUMNS.names
    assert stored.schema.metadata[b"slslab.schema"] == b"2"
    assert not (tmp_path / LOG).exists()
    assert load(tmp_path).events == trace.events
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
    rows = compact(tmp_path).events
    assert [row["causes"] for row in rows] == [[], [0], [], [], [3], [1, 4]]


def test_causes_around_an_invocation(tmp_path: Path) -> None:
    """Waiting for the host, a cold start and the handler in a row; `invoke` spans them and ends with the last.

    A retry continues the row under the same request id, and nothing follows from the driver's order.
    """
    emulator = {"worker": -1, "resource": "f"}
    write(
        tmp_path,
        [
            event("invoke", 0, 40, **emulator),
            event("host.wait", 1, 9, **emulator),
            event("environment.start", 9, 20, **emulator),
            event("compute", 21, 30),
            event("invoke", 30, 31),
            event("invoke", 50, 90, **emulator),
            event("compute", 55, 80),
            event("environment.kill", 91, 92, invocation="", **emulator),
            event("object.put", 93, 94, invocation="", worker=-1),
            event("object.put", 95, 96, invocation="", worker=-1),
        ],
    )
    rows = compact(tmp_path).events
    assert [(row["op"], row["causes"]) for row in rows] == [
        ("invoke", [4]), ("host.wait", []), ("environment.start", [1]), ("compute", [2]), ("invoke", [3]),
        ("invoke", [6]), ("compute", [4]), ("environment.kill", []), ("object.put", []), ("object.put", []),
    ]  # fmt: skip


def test_a_get_is_caused_by_the_latest_put_of_its_bytes_that_had_begun(tmp_path: Path) -> None:
    made = {"resource": "b/k", "etag": "1"}
    write(
        tmp_path,
        [
            event("object.put", 0, 5, invocation="a", **made),
            event("object.put", 6, 9, invocation="b", worker=1, resource="b/k", etag=None, failed=True),
            event("object.put", 10, 20, invocation="b", worker=1, **made),
            event("object.get", 11, 19, invocation="c", worker=2, **made),
            event("object.put", 30, 40, invocation="b", worker=1, **made),
            event("object.get", 31, 33, invocation="d", worker=3, resource="b/k", etag=None),
        ],
    )
    rows = compact(tmp_path).events
    assert [row["causes"] for row in rows] == [[], [], [1], [2], [2], []]


def test_a_tensor_is_caused_by_what_wrote_its_key_last(tmp_path: Path) -> None:
    """Scripts read and write; one that writes what it reads is caused by the one before, and never by itself."""
    write(
        tmp_path,
        [
            event("tensor.set", 0, 5, invocation="a", resource="db/g"),
            event("tensor.set", 1, 6, invocation="b", worker=1, resource="db/params"),
            event("tensor.script", 7, 9, invocation="c", worker=2, resource="db/params", reads=["db/params", "db/g"]),
            event("tensor.get", 8, 10, invocation="d", worker=3, resource="db/params"),
            event("tensor.set", 11, 30, invocation="a", resource="db/params", failed=True),
            event("tensor.get", 12, 20, invocation="e", worker=4, resource="db/params", failed=True),
            event("tensor.get", 31, 32, invocation="f", worker=5, resource="db/params"),
            event("tensor.get", 31, 33, invocation="g", worker=6, resource="other/params"),
        ],
    )
    rows = compact(tmp_path).events
    assert [row["causes"] for row in rows] == [[], [], [0, 1], [2], [0], [], [2], []]


def test_a_delivery_is_caused_by_the_publish_of_its_message(tmp_path: Path) -> None:
    """One publish to an exchange causes the deliveries of many queues; a failed attempt may have come through."""
    message = {"resource": "exchange", "etag": "1"}
    write(
        tmp_path,
        [
            event("queue.publish", 0, 9, invocation="a", failed=True, **message),
            event("queue.deliver", 4, 5, invocation="b", worker=1, resource="queue 1", etag="1"),
            event("queue.publish", 10, 12, invocation="a", **message),
            event("wait", 1, 13, phase="wait", invocation="c", worker=2),
            event("queue.deliver", 13, 14, invocation="c", worker=2, resource="queue 2", etag="1"),
            event("queue.deliver", 15, 16, invocation="c", worker=2, resource="queue 2", etag="2"),
            event("queue.deliver", 17, 18, invocation="c", worker=2, resource="queue 2", etag=None, failed=True),
            event("object.get", 17, 18, invocation="d", worker=3, resource="queue 2", etag="1"),
        ],
    )
    rows = compact(tmp_path).events
    assert [(row["op"], row["causes"]) for row in rows] == [
        ("queue.publish", []), ("wait", []), ("queue.deliver", [0]), ("queue.publish", [0]),
        ("queue.deliver", [1, 3]), ("queue.deliver", [4]), ("queue.deliver", [5]), ("object.get", []),
    ]  # fmt: skip


def test_host_delay_is_interpolated_between_samples(tmp_path: Path) -> None:
    samples = [clock(0, 0), clock(100, 0), clock(200, 60), clock(300, 60)]
    spans = [event("compute", 0, 100), event("compute", 100, 150), event("compute", 100, 300), event("wait", 250, 300)]
    elsewhere = event("compute", 100, 200, environment="other")
    write(tmp_path, [*samples, *spans, elsewhere])
    rows = compact(tmp_path).events
    delays = {(r["environment"], r["start_ns"], r["end_ns"]): r["host_delay_ns"] for r in rows}
    assert delays == {
        ("e", 0, 100): 0, ("e", 100, 150): 30, ("e", 100, 300): 60, ("e", 250, 300): 0, ("other", 100, 200): 0,
    }  # fmt: skip


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=20),
    st.lists(st.integers(-50, 2500), min_size=2, max_size=20).map(sorted),
    st.integers(0, 2**59),
)
def test_delays_of_adjoining_events_add_up(ticks: list[tuple[int, int]], edges: list[int], boot: int) -> None:
    """Each lies between nothing and its event's length, whenever the host was booted; together they lose nothing."""
    walls = list(accumulate((wall + 1 for wall, _ in ticks), initial=boot + 50))
    totals = list(accumulate((min(delay, wall + 1) for wall, delay in ticks), initial=0))
    samples = [clock(wall, delay) for wall, delay in zip(walls, totals, strict=True)]
    events = [event("compute", boot + 50 + start, boot + 50 + end) for start, end in pairwise(edges)]
    with TemporaryDirectory() as directory:
        write(Path(directory), [*events, *reversed(samples)])
        rows = compact(Path(directory)).events
    for row in rows:
        assert 0 <= row["host_delay_ns"] <= row["end_ns"] - row["start_ns"]
    if edges[0] <= 0 and boot + 50 + edges[-1] >= walls[-1]:
        assert sum(row["host_delay_ns"] for row in rows) == totals[-1]


@given(
    st.lists(
        st.builds(
            lambda op, start, length, worker, key, etag: event(
                op, start, start + length, worker=worker, invocation=str(worker), resource=key, etag=etag
            ),
            st.sampled_from(["object.put", "object.get", "queue.publish", "queue.deliver", "compute", "invoke"]),
            st.integers(0, 60),
            st.integers(0, 20),
            st.integers(-1, 3),
            st.sampled_from(["k", "l"]),
            st.sampled_from(["1", "2", None]),
        ),
        max_size=40,
    )
)
def test_causes_are_acyclic_and_begin_before_their_effects_end(events: list[dict[str, Any]]) -> None:
    """Whatever the events are, also where a function with threads makes them overlap."""
    with TemporaryDirectory() as directory:
        write(Path(directory), events)
        rows = compact(Path(directory)).events
    for row in rows:
        for cause in (rows[number] for number in row["causes"]):
            assert cause["start_ns"] <= row["end_ns"]
            joined = (cause["op"], row["op"]) in (("object.put", "object.get"), ("queue.publish", "queue.deliver"))
            if cause["invocation"] == row["invocation"] and not joined:
                assert cause["end_ns"] <= (row["end_ns"] if row["op"] == "invoke" else row["start_ns"])
    # TopologicalSorter raises CycleError.
    order = list(TopologicalSorter({row["event"]: row["causes"] for row in rows}).static_order())
    assert sorted(order) == [row["event"] for row in rows]


def test_a_torn_last_line_is_told_and_loses_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, [event("compute", 0, 1), event("update", 1, 2)])
    whole = (tmp_path / LOG).read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for cut in range(last, len(whole) + 1):
        (tmp_path / LOG).write_bytes(whole[:cut])
        records, torn = read_log(tmp_path / LOG)
        assert torn is (last < cut < len(whole))
        assert [record["record"] for record in records] == ["header", "event"] + ["event"] * (cut == len(whole))
    (tmp_path / LOG).write_bytes(whole[:-5])
    assert load(tmp_path).torn
    assert load(tmp_path).torn, "also when read from the table"


def test_a_killed_writer_loses_nothing(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, signal, sys, slslab.run.log as t\n"
        "writer = t.TraceWriter(pathlib.Path(sys.argv[1]), 'r')\n"
        f"for n in range(100): writer.write({METERED} | {{'request_id': str(n)}})\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path / LOG)], check=False)
    assert ended.returncode == -signal.SIGKILL
    trace = load(tmp_path)
    assert (trace.events, trace.torn) == ([], False)
    assert [one["request_id"] for one in metered_records(tmp_path)] == [str(number) for number in range(100)]


def test_threads_do_not_mix_their_lines(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / LOG, "r") as writer, ThreadPoolExecutor(8) as pool:
        for start in range(400):
            pool.submit(writer.write, event("compute", start, start + 1, resource="x" * 5000))
    assert [event["start_ns"] for event in compact(tmp_path).events] == list(range(400))


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with TraceWriter(tmp_path / LOG, "r") as writer:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / LOG).stat().st_size + 50, limits[1]))
            with pytest.raises(HostError, match="cannot be written"):
                writer.write(event("compute", 0, 1))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        writer.write(event("update", 1, 2))
    assert [record.get("op") for record in read_log(tmp_path / LOG)[0]] == [None, "update"]


def test_the_same_log_gives_the_same_files(tmp_path: Path) -> None:
    write(tmp_path, [event("wait", 5, 6), event("update", 5, 6), clock(0, 0), METERED])
    log = (tmp_path / LOG).read_bytes()
    compact(tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(files) == ["invocations.jsonl", TABLE]
    (tmp_path / LOG).write_bytes(log)  # as if the compaction had been killed before its last act
    compact(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_a_trace_may_be_compacted_by_several_at_once(tmp_path: Path) -> None:
    write(tmp_path, [event("compute", start, start + 1) for start in range(50)])
    with ThreadPoolExecutor(4) as pool:
        traces = list(pool.map(load, [tmp_path] * 4))
    assert len(traces[0].events) == 50
    assert all(trace == traces[0] for trace in traces)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{broken", "Expecting property name"),
        ("5", "not a header, event, clock, begin, invocation or instance"),
        ('{"record": ["event"]}', "not a header, event, clock, begin, invocation or instance"),
        (json.dumps(event("compute", 5, 4)), "ends before it starts"),
        (json.dumps(event("compute", 0, 1, step="0")), "event has no valid 'step'"),
        (json.dumps({k: v for k, v in event("compute", 0, 1).items() if k != "etag"}), "event has no valid 'etag'"),
        (json.dumps(clock(0, 0) | {"wall_ns": 0.5}), "clock has no valid 'wall_ns'"),
    ],
)
def test_a_broken_line_in_the_middle_is_named(tmp_path: Path, line: str, says: str) -> None:
    write(tmp_path, [event("compute", 0, 1)])
    lines = (tmp_path / LOG).read_text().splitlines(keepends=True)
    (tmp_path / LOG).write_text(f"{lines[0]}{line}\n{lines[1]}")
    with pytest.raises(RunError, match=f"Line 2 of .*{says}"):
        compact(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOG], "what cannot be read is left as it is"


def test_other_schemas_and_missing_traces_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="has no trace"):
        load(tmp_path)
    header = {"record": "header", "schema": 1, "run": "r", "clock": "c", "started": ""}
    (tmp_path / LOG).write_text(json.dumps(header) + "\n")
    with pytest.raises(RunError, match="schema 1"):
        load(tmp_path)
    (tmp_path / LOG).write_text("")
    with pytest.raises(RunError, match="no header"):
        load(tmp_path)
    (tmp_path / LOG).unlink()
    (tmp_path / TABLE).write_bytes(b"nothing")
    with pytest.raises(RunError, match="is not a trace"):
        load(tmp_path)


def test_invocations_outlive_the_log(tmp_path: Path) -> None:
    write(tmp_path, [METERED])
    metered = {name: value for name, value in METERED.items() if name != "record"}
    assert metered_records(tmp_path) == [metered]
    load(tmp_path)
    assert not (tmp_path / LOG).exists()
    assert metered_records(tmp_path) == [metered]


def test_a_record_after_the_end_is_dropped(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / LOG, "r")
    with writer:
        writer.write(event("compute", 0, 1))
    writer.write(event("update", 1, 2))
    assert [record["record"] for record in read_log(tmp_path / LOG)[0]] == ["header", "event"]


def test_a_table_of_another_schema_is_refused(tmp_path: Path) -> None:
    write(tmp_path, [event("compute", 0, 1)])
    table = to_arrow(compact(tmp_path).events)
    for metadata in (None, {b"slslab.schema": b"1"}):
        pq.write_table(table.replace_schema_metadata(metadata), tmp_path / TABLE)
        with pytest.raises(RunError, match="doesn't have trace schema 2"):
            load(tmp_path)


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    """As /dev/stdout and /dev/null are, which root could replace."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with replacing(path) as file:
        file.write(b"whole")
    assert (os.read(reading, 10), path.is_fifo()) == (b"whole", True)
    os.close(reading)


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"half of wh", None])  # type: ignore[list-item]
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("file", "before")]
