"""Whatever a function writes as its trace, the run's stays readable; whatever a log holds, it is read or refused."""

import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest

from slslab.errors import RunError
from slslab.host.output import TraceLines
from slslab.run import metrics
from slslab.run.bill import Usage, compute_bill, load_book
from slslab.run.log import LOG, TABLE, TraceWriter, compact
from slslab_workers.trace.event import FIELDS, Event
from slslab_workers.trace.operations import OPERATIONS

SEEDS = 150
SOURCE = {"record": "event", "function": "f", "environment": "f-0001"}
BOOK = load_book("aws-us-east-1")
# Of the JSON text of a value.
VALUES = (
    *("0", "1", "-1", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "1" + "0" * 400),
    *("9007199254740991", "1.5", "1e400", "NaN", "-Infinity", "true", "false", "null", "[]", "{}", '["a"]', "[1]"),
    *('""', '"a/b"', '"\\ud800"', '"\\u0000"', '"event"', '"' + "x" * 5000 + '"', "[" * 900 + "]" * 900),
    *(f'"{op}"' for op in (*OPERATIONS, "object.other", "other")),
)
NAMES = (*FIELDS, "record", "more", "", "wall_ns")


def event(order: random.Random) -> bytes:
    """The JSON of an event, mostly with something wrong in it."""
    start = order.randrange(1000)
    made = Event(
        op=order.choice(list(OPERATIONS)),
        phase=order.choice(metrics.PHASES),
        start_ns=start,
        end_ns=start + order.randrange(1000),
        invocation=order.choice("ab"),
        worker=order.randrange(-1, 3),
        epoch=order.randrange(-1, 3),
        step=order.randrange(-1, 3),
        resource=order.choice(("b/k", "b/l", "q")),
        etag=order.choice((None, "1", "2")),
        reads=order.choice((None, ("b/k",))),
        requests=order.randrange(3),
    )
    texts = {json.dumps(name): json.dumps(value) for name, value in made.record().items()}
    for _ in range(order.choice((0, 1, 1, 2))):
        name = json.dumps(order.choice(NAMES))
        if order.random() < 0.2:
            texts.pop(name, None)
        else:
            texts[name] = order.choice(VALUES)
    body = bytearray("{" + ",".join(f"{name}:{text}" for name, text in texts.items()) + "}", "ascii")
    if order.random() < 0.1:
        at = order.randrange(len(body))
        body[at : at + order.randrange(5)] = order.randbytes(order.randrange(5))
    return bytes(body)


def use(directory: Path) -> int:
    """Make what a run's document, bill and pages are made of; return the number of events."""
    events = compact(directory).events
    json.dumps(metrics.totals(events, []))
    metrics.span_seconds(events)
    metrics.last_position(events, None)
    usage = Usage((), metrics.object_requests(events), metrics.transitions(events), (), tuple(metrics.hosts(events)))
    compute_bill(usage, BOOK).as_document()
    return len(events)


def written(seed: int, directory: Path) -> tuple[int, int]:
    """Make the trace of a run from what a function writes to its own; return how many events were written and read."""
    order = random.Random(seed)
    lines = []
    for _ in range(order.randrange(1, 20)):
        body = event(order)
        lines.append(body + (b"\n" if order.random() < 0.99 else b""))
    data = b"".join(lines)
    with TraceWriter(directory / LOG, "r") as writer:
        trace = TraceLines("f-0001", lambda record: writer.write({**record, **SOURCE}))
        while data:
            cut = order.randrange(1, 3000)
            trace.feed(data[:cut])
            data = data[cut:]
    return len(lines), use(directory)


def damaged(seed: int, directory: Path) -> tuple[int, int]:
    """Change a log; return how many events it had and how many were read, none of a log that is refused."""
    order = random.Random(seed)
    with TraceWriter(directory / LOG, "r"):
        pass
    lines = (directory / LOG).read_bytes().splitlines()
    records: tuple[dict[str, Any], ...] = (
        {"record": "clock", "environment": "f-0001", "wall_ns": order.randrange(2000), "host_delay_ns": 0},
        {"record": "begin", "of": "invocation", "id": "a", "start_ns": 5},
    )
    lines += [json.dumps(record).encode() for record in order.choices(records, k=order.randrange(4))]
    events = [json.dumps(SOURCE).encode()[:-1] + b"," + event(order)[1:] for _ in range(order.randrange(1, 4))]
    lines += events
    order.shuffle(lines[1:])
    data = bytearray(b"\n".join(lines) + order.choice((b"\n", b"", b"\n{")))
    if order.random() < 0.5:
        at = order.randrange(len(data))
        pieces = (b"", b"\n", b"\0", b"\xff", b"9" * 400, b"[" * 100_000, b"{}", b'"', b"null")
        data[at : at + order.randrange(40)] = order.choice(pieces)
    (directory / LOG).write_bytes(data)
    try:
        return len(events), use(directory)
    except RunError as error:
        assert str(directory / LOG) in error.message  # noqa: PT017 (of those that are refused)
        return len(events), 0


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "slslab.host.output")


@pytest.mark.parametrize("made", [written, damaged])
def test_any_trace(made: Any, tmp_path: Path) -> None:
    events, read = 0, 0
    for seed in range(SEEDS):
        more, of_them = made(seed, tmp_path)
        events, read = events + more, read + of_them
        for name in (LOG, TABLE):
            (tmp_path / name).unlink(missing_ok=True)
    assert events / 10 < read < events, "some are right and some are wrong"
