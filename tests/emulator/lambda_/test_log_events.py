"""What functions write, as events of log streams: whole lines, in order, each once."""

import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from slslab.aws.clients import HTTP, signed_headers
from slslab.aws.keys import Pair
from slslab.host.output import FunctionLog
from slslab.lambda_ import log_events
from slslab.lambda_.emulator import Emulator
from slslab.lambda_.log_events import LogEvents

Writer = Callable[[str], Callable[..., None]]


@pytest.fixture
def events(tmp_path: Path) -> Iterator[LogEvents]:
    with closing(LogEvents(tmp_path, tmp_path, 4096)) as made:
        yield made


def read(events: LogEvents, since: int = 0) -> tuple[list[tuple[str, str]], int, bool]:
    found = events.read(since, events.count())
    return [(event["stream"], event["message"]) for event in found["events"]], found["cursor"], found["more"]


@pytest.fixture
def writer(events: LogEvents, tmp_path: Path) -> Iterator[Writer]:
    """Makes what writes into the log of a stream."""
    with ExitStack() as logs:

        def make(stream: str) -> Callable[..., None]:
            path = tmp_path / stream
            log = FunctionLog(path, 4096, events.writer("/aws/lambda/f", stream, path))
            logs.callback(log.close)

            def write(text: str, record: bool = False) -> None:
                head = b"\xa5\x5a\x00\x14" + len(text).to_bytes(4, "big") + bytes(8) if record else b""
                log.write(head + text.encode())

            return write

        yield make


def test_lines_of_several_environments_come_once_each(events: LogEvents, writer: Writer) -> None:
    one, two = (writer(name) for name in ("one", "two"))
    one("first\nsec")
    two("theirs\n")
    lines, cursor, more = read(events)
    assert (lines, more) == ([("one", "first"), ("two", "theirs")], False)
    one("ond\n\nthird")
    assert read(events, cursor)[0] == [("one", "second")], "an empty line isn't an event"
    cursor = read(events, cursor)[1]
    one(" line\n")
    assert read(events, cursor)[0] == [("one", "third line")]
    assert [line for _, line in read(events)[0]] == ["first", "theirs", "second", "third line"]


def test_a_record_is_one_event_with_all_its_lines(events: LogEvents, writer: Writer) -> None:
    write = writer("one")
    write("before\n")
    for _ in range(2):
        write("one\n\n  two\n", record=True)
    write("after\n")
    assert [message for _, message in read(events)[0]] == ["before", *["one\n\n  two"] * 2, "after"]


def test_a_long_line_is_whole(events: LogEvents, writer: Writer) -> None:
    write = writer("one")
    write("before\n" + "x" * 10_000)
    _, cursor, _ = read(events)
    write("y\n")
    assert read(events, cursor)[0] == [("one", "x" * 10_000 + "y")]


def test_pieces_of_one_moment_are_one_entry_until_it_is_read(
    events: LogEvents, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000)
    write = writer("one")
    for _ in range(3):
        write("a\n")
    assert read(events)[:2] == ([("one", "a")] * 3, 1)
    write("b\n")
    assert read(events, 1)[:2] == ([("one", "b")], 2)


def test_an_answer_has_about_a_megabyte(events: LogEvents, writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_events, "ANSWER_BYTES", 10)
    writers = [writer(name) for name in ("one", "two")]
    for number in range(4):
        writers[number % 2](f"{number:09d}\n")
    cursors, cursor, more = [], 0, True
    while more:
        lines, cursor, more = read(events, cursor)
        cursors.append((len(lines), cursor))
    assert cursors == [(1, 1), (1, 2), (1, 3), (1, 4)]


def ask(emulator: Emulator, pair: Pair, since: int) -> Any:
    url = f"{emulator.endpoint}/slslab/logs?since={since}"
    with HTTP.open(urllib.request.Request(url, headers=signed_headers(pair, "GET", url))) as answer:
        return json.load(answer)


def events_of(emulator: Emulator, group: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor, more = 0, True
    while more:  # other tests' functions have written, too
        read = ask(emulator, emulator.keys.owner, cursor)
        found += [event for event in read["events"] if event["group"] == group]
        cursor, more = read["cursor"], read["more"]
    return found


@pytest.mark.server
def test_the_owner_reads_the_log_that_a_function_wrote(
    emulator: Emulator, deploy: Callable[..., str], invoke: Callable[..., Any]
) -> None:
    name = deploy("def handler(event, context):\n    print('said', event)\n", LoggingConfig={"LogGroup": "own"})
    invoke(name, "hello")
    found = events_of(emulator, "own")
    words = [event["message"].split()[0] for event in found]
    assert words == ["INIT_START", "START", "said", "END", "REPORT"]
    assert len({event["stream"] for event in found}) == 1
    assert [event["timestamp_ms"] for event in found] == sorted(event["timestamp_ms"] for event in found)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        ask(emulator, emulator.keys.function(name), 0)


LEVELS = """
import json

def handler(event, context):
    for level in ("debug", "info", "WARN", "nonsense", "Error"):
        print(json.dumps({"level": level}))
    print("no JSON")
"""


@pytest.mark.server
@pytest.mark.parametrize(
    ("level", "kept"),
    [
        ("TRACE", ["debug", "info", "WARN", "nonsense", "Error", "no JSON"]),
        ("INFO", ["info", "WARN", "nonsense", "Error", "no JSON"]),
        ("WARN", ["WARN", "Error"]),
        ("FATAL", []),
    ],
)
def test_a_log_level_filters_what_a_function_prints(
    emulator: Emulator, deploy: Callable[..., str], invoke: Callable[..., Any], level: str, kept: list[str]
) -> None:
    """documented: monitoring-cloudwatchlogs-log-level.html."""
    group = f"level-{level}"
    logged = {"LogFormat": "JSON", "ApplicationLogLevel": level, "LogGroup": group}
    invoke(deploy(LEVELS, LoggingConfig=logged))
    messages = [event["message"] for event in events_of(emulator, group) if "platform." not in event["message"]]
    assert [json.loads(text)["level"] if text.startswith("{") else text for text in messages] == kept


SEVERAL_LINES = """
import logging

def handler(event, context):
    print("before", end="")
    logging.warning("one\\ntwo")
    print("between")
    raise ValueError("a\\nb")
"""


@pytest.mark.server
@pytest.mark.parametrize("runtime", ["python3.11", "python3.12"])
def test_a_log_record_of_several_lines_is_one_event(
    emulator: Emulator, deploy: Callable[..., str], lambda_client: Any, runtime: str
) -> None:
    """documented: python-logging.html; awslambdaric frames records for that."""
    group = f"lines-{runtime}"
    name = deploy(SEVERAL_LINES, Runtime=runtime, LoggingConfig={"LogGroup": group})
    answer = lambda_client.invoke(FunctionName=name, LogType="Tail")
    messages = [event["message"] for event in events_of(emulator, group)]
    own = messages[messages.index("before") : messages.index("between") + 2]
    assert [own[0], own[2]] == ["before", "between"]
    assert own[1].startswith("[WARNING]")
    assert own[1].endswith("\tone\ntwo")
    assert own[3].startswith("[ERROR] ValueError: a\nb\nTraceback (most recent call last):\n")
    assert "\r" not in own[3]
    assert base64.b64decode(answer["LogResult"]).decode().splitlines().count("two") == 1
