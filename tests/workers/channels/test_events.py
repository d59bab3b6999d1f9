"""Trace records: framing on the descriptor, log lines without one, labels, failures, threads."""

import json
import os
import threading
from typing import Any

import pytest

from slslab_workers.channels.events import Tracer

FIELDS = {
    "op", "phase", "start_ns", "end_ns", "cpu_ns", "cpu_before_ns", "bytes", "requests", "resource", "etag", "overhead",
    "failed", "run", "worker", "epoch", "step", "invocation",
}  # fmt: skip


def records(data: bytes) -> list[dict[str, Any]]:
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


def test_records_are_lines_on_the_descriptor(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    monkeypatch.setenv("SLSLAB_TRACE_FD", str(writing))
    tracer = Tracer(run="r", worker=2, invocation="i")
    with tracer.span("object.put", "synchronise", "bucket/ключ", overhead=False) as span:
        span.bytes, span.requests, span.etag = 5, 1, '"e"'
    tracer.epoch, tracer.step = 1, 3
    with tracer.span("wait", "wait"):
        pass
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        first, second = records(stream.read())
    assert set(first) == set(second) == FIELDS
    assert first["start_ns"] <= first["end_ns"] <= second["start_ns"] <= second["end_ns"]
    assert (first["op"], first["phase"], first["resource"]) == ("object.put", "synchronise", "bucket/ключ")
    assert (first["bytes"], first["requests"], first["etag"], first["overhead"]) == (5, 1, '"e"', False)
    assert (first["run"], first["worker"], first["invocation"]) == ("r", 2, "i")
    assert [(event["epoch"], event["step"]) for event in (first, second)] == [(-1, -1), (1, 3)]
    assert (second["overhead"], second["etag"], second["failed"]) == (True, None, False)
    assert capfd.readouterr().out == "", "nothing enters the function's log"


def test_without_a_descriptor_a_record_is_a_log_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SLSLAB_TRACE_FD", raising=False)
    with Tracer(run="r").span("compute", "compute"):
        pass
    [line] = capfd.readouterr().out.splitlines()
    assert set(json.loads(line)) == {"slslab"}
    assert set(json.loads(line)["slslab"]) == FIELDS


def test_a_span_that_raises_is_still_told() -> None:
    events: list[dict[str, Any]] = []
    tracer = Tracer(events.append)

    def fail() -> None:
        with tracer.span("compute", "compute"):
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert [event["op"] for event in events] == ["compute"]


def test_cpu_time_is_that_of_the_span() -> None:
    events: list[dict[str, Any]] = []
    tracer = Tracer(events.append)
    with tracer.span("compute", "compute"):
        sum(range(1_000_000))
    with tracer.span("wait", "wait"):
        threading.Event().wait(0.05)
    work, wait = events
    assert work["cpu_ns"] > 1_000_000
    assert wait["end_ns"] - wait["start_ns"] >= 50_000_000
    assert wait["cpu_ns"] < work["cpu_ns"]


def test_cpu_time_between_spans_is_told_with_the_next_one() -> None:
    events: list[dict[str, Any]] = []
    tracer = Tracer(events.append)
    with tracer.span("fetch", "fetch"):
        pass
    sum(range(1_000_000))
    with tracer.span("compute", "compute"):
        pass
    with tracer.span("update", "update"):
        pass
    _, compute, update = events
    assert compute["cpu_before_ns"] > 1_000_000 > compute["cpu_ns"]
    assert 0 <= update["cpu_before_ns"] < compute["cpu_before_ns"]


def test_long_records_arrive_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setenv("SLSLAB_TRACE_FD", str(writing))
    name = "k" * 200_000
    received: list[bytes] = []

    def read() -> None:
        with os.fdopen(reading, "rb") as stream:
            received.append(stream.read())

    reader = threading.Thread(target=read)
    reader.start()
    with Tracer().span("object.put", "synchronise", name):
        pass
    os.close(writing)
    reader.join()
    [event] = records(received[0])
    assert event["resource"] == name
