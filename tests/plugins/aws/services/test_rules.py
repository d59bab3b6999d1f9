"""Patterns and targets of rules, and the clock that sends the events of schedules."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from moto.events.models import EventPattern, EventsBackend, events_backends

from slslab.aws.arns import ACCOUNT, REGION
from slslab_aws.services import rule_clock
from slslab_aws.services.patterns import pattern_problems
from slslab_aws.services.rule_targets import target_input, target_problems
from slslab_aws.services.schedules import read_schedule

EVENT = {
    "version": "0",
    "id": "i",
    "detail-type": "kind",
    "source": "tests",
    "account": ACCOUNT,
    "time": 1795906876.7,
    "region": REGION,
    "resources": ["r"],
    "detail": {"n": 1, "text": 'a "b"', "list": [1, "x"]},
    "ingestion-time": 1795906877.0,
}
QUEUE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:q"
TIME = "2026-11-28T23:01:16Z"


@pytest.mark.parametrize(
    "pattern",
    [
        {"source": ["a", 1, None, True]},
        {"detail": {"a": {"b": [{"prefix": "x"}, {"prefix": {"equals-ignore-case": "x"}}, {"suffix": "x"}]}}},
        {"a": [{"numeric": [">", 1, "<=", 5.5]}], "b": [{"exists": False}], "c": [{"cidr": "10.0.0.0/24"}]},
        {"a": [{"anything-but": ["x", "y"]}], "b": [{"anything-but": {"prefix": "x"}}], "c": [{"anything-but": 5}]},
        {"$or": [{"a": ["x"]}, {"b": [{"wildcard": "*x*"}]}], "c": [{"equals-ignore-case": "x"}]},
    ],
)
def test_a_pattern_of_the_documentation_is_taken(pattern: dict[str, Any]) -> None:
    assert list(pattern_problems(json.dumps(pattern))) == []
    EventPattern.load(json.dumps(pattern)).matches_event(EVENT)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("{", "EventPattern is not JSON, or is nested too deeply"),
        ("[" * 2000, "EventPattern is not JSON, or is nested too deeply"),
        ("x" * 2049, "EventPattern has more than 2048 characters"),
        ("[]", "EventPattern: [] is not of type 'object'"),
        ("{}", "EventPattern: {} should be non-empty"),
        ('{"source": "a"}', "EventPattern.source: 'a' is not of type 'array'"),
        ('{"source": []}', "EventPattern.source: [] should be non-empty"),
        ('{"detail": {"a": {}}}', "EventPattern.detail.a: {} should be non-empty"),
        ('{"a": [["b"]]}', "EventPattern.a.0: ['b'] is not of type 'string', 'number', 'boolean', 'null'"),
        (
            '{"a": [{"prefx": "b"}]}',
            "EventPattern.a.0: Additional properties are not allowed ('prefx' was unexpected)",
        ),
        ('{"a": [{"prefix": 5}]}', "EventPattern.a.0.prefix: 5 is not valid under any of the given schemas"),
        ('{"a": [{}]}', "EventPattern.a.0: {} should be non-empty"),
        ('{"a":' * 101 + '["b"]' + "}" * 101, "EventPattern is nested more than 100 levels deep"),
        (
            '{"a": [{"numeric": ["~", 5]}]}',
            "EventPattern.a.0.numeric.0: '~' is not one of ['<', '<=', '=', '>', '>=']",
        ),
        ('{"a": [{"cidr": "x"}]}', "EventPattern.a.0.cidr: 'x' is not a 'cidr'"),
        ('{"a": [{"exists": "x"}]}', "EventPattern.a.0.exists: 'x' is not of type 'boolean'"),
        ('{"$or": [{"a": ["b"]}, {"c": 5}]}', "EventPattern.$or.1.c: 5 is not of type 'array'"),
        (
            '{"a": [{"anything-but": {"x": "y"}}]}',
            "EventPattern.a.0.anything-but: {'x': 'y'} is not valid under any of the given schemas",
        ),
    ],
)
def test_what_is_no_pattern_is_named(pattern: str, problem: str) -> None:
    assert list(pattern_problems(pattern)) == [problem]


def test_problems_of_a_pattern_have_an_order() -> None:
    names = [problem.split(":")[0] for problem in pattern_problems('{"d": 1, "b": 2, "c": 3, "a": 4}')]
    assert names == [f"EventPattern.{name}" for name in "abcd"]


@pytest.mark.parametrize(
    ("target", "received"),
    [
        ({}, {**{name: value for name, value in EVENT.items() if name != "ingestion-time"}, "time": TIME}),
        ({"Input": '{"a": [1]}'}, {"a": [1]}),
        ({"InputPath": "$.detail.n"}, 1),
        ({"InputPath": "$.detail-type"}, "kind"),
        ({"InputPath": "$.time"}, TIME),
        ({"InputPath": "$.detail.absent"}, None),
        ({"InputPath": "$['detail'].list[1]"}, "x"),
        ({"InputPath": "$.detail.list[*]"}, [1, "x"]),
    ],
)
def test_a_target_receives_what_it_asks_for(target: dict[str, Any], received: Any) -> None:
    assert target_input(target, EVENT) == received


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ({"Arn": "arn:aws:kinesis:x"}, "the target arn:aws:kinesis:x must be one of lambda, states, sqs, logs"),
        ({"Arn": f"{QUEUE}.fifo"}, "the target t is a FIFO queue and needs SqsParameters"),
        ({"Input": "{"}, "the Input of the target t is not JSON"),
        *(
            ({"InputPath": path}, f'the target t reads "{path}", which is not a path such as $.detail')
            for path in ("detail", "$.detail.length()", "$.detail.$x", "$$.detail", "$..n", "$.list[?(@.n)]")
        ),
        ({"Input": "1", "InputPath": "$"}, "the target t has Input and InputPath; only one is possible"),
        ({"InputTransformer": {"InputTemplate": "x"}}, "slslab does not emulate InputTransformer of a target (t)"),
    ],
)
def test_what_is_no_target_is_named(target: dict[str, Any], problem: str) -> None:
    assert list(target_problems({"Id": "t", "Arn": QUEUE})) == []
    assert list(target_problems({"Id": "t", "Arn": QUEUE, **target})) == [problem]


# The schedules that a clock has read.
READ: list[str] = []


class Targets:
    """Keeps what rules would send."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.arrived = threading.Semaphore(0)

    def send(self, rule: Any, event: dict[str, Any]) -> None:
        self.sent.append((rule.name, event))
        self.arrived.release()
        if rule.name == "failing":
            raise RuntimeError("as asked")


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[EventsBackend]:
    """EventBridge with minutes of 50 ms."""
    real = read_schedule

    def hurried(expression: str) -> Any:
        READ.append(expression)
        following = real(expression)
        return lambda after: after + (following(after) - after) / 1200 if expression.startswith("rate") else None

    READ.clear()
    monkeypatch.setattr(rule_clock, "read_schedule", hurried)
    backend = events_backends[ACCOUNT][REGION]
    yield backend
    backend.event_buses["default"].rules.clear()


def test_each_schedule_is_sent_when_it_is_due(backend: EventsBackend) -> None:
    lock, targets = threading.RLock(), Targets()
    clock = rule_clock.RuleClock(lock, threading.Condition(lock), targets)  # type: ignore[arg-type]

    def change(*changed: Any) -> None:
        with lock:
            for each in changed:
                each()
            clock.read()

    rate, never = {"scheduled_expression": "rate(1 minute)"}, {"scheduled_expression": "cron(0 0 1 1 ? 2020)"}
    began = datetime.now(UTC)
    change(
        lambda: backend.put_rule("failing", **rate),
        lambda: backend.put_rule("each", **rate),
        lambda: backend.put_rule("slow", scheduled_expression="rate(1 day)"),
        lambda: backend.put_rule("never", **never),
        lambda: backend.put_rule("disabled", state="DISABLED", **rate),
        lambda: backend.put_rule("pattern", event_pattern='{"source": ["a"]}'),
    )
    for _ in range(6):
        assert targets.arrived.acquire(timeout=20)
    with lock:
        sent = list(targets.sent)
    assert {name for name, _ in sent} == {"each", "failing"}
    times = [datetime.fromtimestamp(event["time"], UTC) for name, event in sent if name == "each"]
    assert times[0] - began >= timedelta(milliseconds=50)
    event = sent[0][1]
    assert (event["detail-type"], event["source"], event["detail"]) == ("Scheduled Event", "aws.events", {})
    assert event["resources"] == [f"arn:aws:events:{REGION}:{ACCOUNT}:rule/{sent[0][0]}"]
    change(lambda: backend.disable_rule("each", None), lambda: backend.delete_rule("failing", None))
    while targets.arrived.acquire(blocking=False):  # what was sent until then
        pass
    before = len(targets.sent)
    change(lambda: backend.enable_rule("disabled", None))
    assert targets.arrived.acquire(timeout=20)
    while targets.arrived.acquire(blocking=False):
        pass
    with lock:
        assert {name for name, _ in targets.sent[before:]} == {"disabled"}
    change(lambda: backend.disable_rule("disabled", None))
    assert READ.count(never["scheduled_expression"]) == 1, "it isn't computed again for each change"
