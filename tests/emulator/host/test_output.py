"""Logs and traces as processes write them; invalid trace records have a test in test_runtime_api.py."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slslab.host import output
from slslab.host.output import FunctionLog, LogRecords, Stream, TraceLines
from slslab_workers.trace.event import Event

EVENT = Event(op="compute", phase="compute").record()


def test_a_stream_passes_on_what_arrives_and_then_its_end() -> None:
    async def write() -> tuple[list[bytes], list[str]]:
        chunks: list[bytes] = []
        ends: list[str] = []
        stream = Stream(chunks.append, lambda: ends.append("end"))
        writing = stream.open()
        os.write(writing, b"one")
        stream.drain()
        stream.drain()
        assert (chunks, ends) == ([b"one"], [])
        os.write(writing, b"two")
        os.close(writing)
        await asyncio.sleep(0.05)
        stream.close()
        stream.close()
        return chunks, ends

    chunks, ends = asyncio.run(write())
    assert b"".join(chunks) == b"onetwo"
    assert ends[:1] == ["end"]


def test_a_named_pipe_outlives_its_writers(tmp_path: Path) -> None:
    async def write() -> list[bytes]:
        chunks: list[bytes] = []
        os.mkfifo(tmp_path / "log")
        stream = Stream(chunks.append, lambda: pytest.fail("it ended"))
        stream.open_named(tmp_path / "log")
        for text in (b"one", b"two"):
            (tmp_path / "log").write_bytes(text)
            stream.drain()
        stream.close()
        return chunks

    assert asyncio.run(write()) == [b"one", b"two"]


def test_the_tail_is_the_end_of_the_latest_invocation(tmp_path: Path) -> None:
    log = FunctionLog(tmp_path / "logs" / "f.log", 10)
    log.write(b"before")
    log.tail = b""
    assert log.tail == b""
    for chunk in (b"abc", b"d" * 8, b"e"):
        log.write(chunk)
    assert log.tail == b"c" + b"d" * 8 + b"e"
    log.close()
    assert (tmp_path / "logs" / "f.log").read_bytes().startswith(b"beforeabc")


def test_a_log_has_a_maximum_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "LOG_BYTES", 4)
    log = FunctionLog(tmp_path / "f.log", 10)
    for _ in range(3):
        log.write(b"abc")
    log.close()
    assert (tmp_path / "f.log").read_bytes() == b"abcabc\n(slslab keeps no more of this log)\n"


def record(text: bytes) -> bytes:
    return bytes.fromhex("a55a0003") + len(text).to_bytes(4, "big") + bytes(8) + text


@given(st.lists(st.tuples(st.binary(max_size=20).filter(lambda text: b"\xa5" not in text), st.binary(max_size=20))))
def test_records_are_found_wherever_output_is_cut(pieces: list[tuple[bytes, bytes]]) -> None:
    parts = LogRecords()
    found = [piece for text, told in pieces for byte in text + record(told) for piece in parts.feed(bytes([byte]))]
    assert [piece for piece, whole in found if whole] == [told for _, told in pieces]
    assert b"".join(piece for piece, whole in found if not whole) == b"".join(text for text, _ in pieces)
    assert parts.end() == b""


@pytest.mark.parametrize("told", [b"\xa5", b"\xa5\x5a\x00\x03\xff\xff\xff\xff" + bytes(12), record(b"cut off")[:-1]])
def test_what_is_no_record_is_text(tmp_path: Path, told: bytes) -> None:
    log = FunctionLog(tmp_path / "f.log", 100)
    log.write(told)
    log.say(b"REPORT\n")
    log.close()
    assert (tmp_path / "f.log").read_bytes() == told + b"\nREPORT\n"


@pytest.mark.parametrize("keeps", [None, lambda _line: True])
def test_what_is_printed_without_a_line_break_stays_apart(
    tmp_path: Path, keeps: Callable[[bytes], bool] | None
) -> None:
    log = FunctionLog(tmp_path / "f.log", 4096, keeps=keeps)
    log.write(b"a part" + record(b"a record") + b"another part")
    log.say(b"END\n")
    log.write(b"a line\n")
    log.close()
    assert (tmp_path / "f.log").read_bytes() == b"a part\na record\nanother part\nEND\na line\n"


def test_a_record_begins_and_ends_a_line(tmp_path: Path) -> None:
    places: list[tuple[int, int, bool]] = []
    log = FunctionLog(tmp_path / "f.log", 100, lambda *place: places.append(place))
    log.write(b"no end" + record(b"one\ntwo\n") + record(b"three"))
    log.close()
    assert (tmp_path / "f.log").read_bytes() == log.tail == b"no end\none\ntwo\nthree\n"
    assert [place for place in places if place[2]] == [(7, 15, True), (15, 21, True)]


@given(st.lists(st.binary(max_size=8)), st.integers(1, 5))
def test_printed_lines_are_kept_or_not_as_wholes(lines: list[bytes], size: int) -> None:
    text = b"".join(line.replace(b"\xa5", b"") + b"\n" for line in lines)
    with TemporaryDirectory() as folder:
        path = Path(folder, "f.log")
        log = FunctionLog(path, 10, keeps=lambda line: len(line) > 4)
        for start in range(0, len(text), size):
            log.write(text[start : start + size])
        log.say(b"REPORT\n")
        log.close()
        kept = b"".join(line + b"\n" for line in text.split(b"\n") if len(line) > 3)
        assert path.read_bytes() == kept + b"REPORT\n"


def traced(event: dict[str, Any]) -> bytes:
    return json.dumps(event).encode() + b"\n"


def test_lines_are_events_wherever_they_are_cut() -> None:
    events: list[dict[str, Any]] = []
    lines = TraceLines("f-0001", events.append)
    sent = [EVENT | {"start_ns": n, "end_ns": n + 1} for n in range(3)]
    for byte in b"".join(map(traced, sent)):
        lines.feed(bytes([byte]))
    assert events == [{"record": "event", **event} for event in sent]


def test_the_source_of_an_event_is_not_what_its_writer_says() -> None:
    events: list[dict[str, Any]] = []
    source = {"function": "f", "environment": "f-0001"}
    TraceLines("f-0001", events.append, source).feed(traced(EVENT | {"function": "other"}))
    assert events == [{"record": "event", **EVENT, **source}]


def test_a_line_that_is_too_long_ends_the_trace(caplog: pytest.LogCaptureFixture) -> None:
    events: list[dict[str, Any]] = []
    lines = TraceLines("f-0001", events.append)
    lines.feed(bytes(output.LINE_BYTES))
    lines.feed(b" ")
    lines.feed(traced(EVENT))
    assert events == []
    assert "its trace ends here" in caplog.text


def test_a_line_that_is_too_long_ends_the_trace_even_if_its_end_comes_with_it(caplog: pytest.LogCaptureFixture) -> None:
    events: list[dict[str, Any]] = []
    lines = TraceLines("f-0001", events.append)
    lines.feed(traced(EVENT) + b" " * output.LINE_BYTES + traced(EVENT) + traced(EVENT))
    assert events == [{"record": "event", **EVENT}]
    assert "its trace ends here" in caplog.text


def test_too_many_invalid_records_end_the_trace(caplog: pytest.LogCaptureFixture) -> None:
    """A function writes to the emulator's own log by them."""
    events: list[dict[str, Any]] = []
    lines = TraceLines("f-0001", events.append)
    lines.feed(b"\n" * 100_000)
    lines.feed(traced(EVENT))
    assert events == []
    assert len(caplog.records) == output.MOST_INVALID + 1
    assert "wrote 100 invalid trace records: its trace ends here" in caplog.text


@pytest.mark.parametrize(
    "changed",
    [
        {"op": 5},
        {"op": "host.run"},
        {"op": "\ud800"},
        {"start_ns": -1},
        {"start_ns": 0, "end_ns": 1 << 63},
        {"start_ns": True},
        {"start_ns": 0.5},
        {"start_ns": 2, "end_ns": 1},
        {"worker": -2},
        {"worker": 1 << 31},
        {"requests": -1},
        {"bytes": 10**400},
        {"failed": 0},
        {"etag": []},
        {"reads": "ab"},
        {"reads": ["a", 1]},
        {"op": "tensor.script", "reads": None},
        {"loss": "nan"},
        {"cpu_before_ns": "0"},
    ],
)
def test_what_no_event_has_is_an_invalid_record(changed: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """Each of these made the trace of its run unreadable, or failed where it was used."""
    events: list[dict[str, Any]] = []
    TraceLines("f-0001", events.append).feed(traced(EVENT | changed))
    assert events == []
    assert "an invalid trace record" in caplog.text


def test_of_an_event_only_its_own_fields_are_kept() -> None:
    events: list[dict[str, Any]] = []
    deep = b'{"more": ' + b"[" * 900 + b"]" * 900 + b"," + json.dumps(EVENT).encode()[1:]
    TraceLines("f-0001", events.append).feed(deep + b"\n")
    assert events == [{"record": "event", **EVENT}]
