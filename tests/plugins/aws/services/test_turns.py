"""Turns at moto's tables: one that computes for too long is ended, and a wait is not."""

import re
import threading
import time
from typing import Any

import pytest
from moto.events.models import EventPattern, EventsBackend
from moto.sqs.models import SQSBackend

from slslab.aws.errors import ServiceError
from slslab_aws.services import refusals, turns
from slslab_aws.services.application import patch_moto
from slslab_aws.services.patterns import pattern_problems
from slslab_aws.services.turns import Overdue, Turns


@pytest.fixture
def condition(monkeypatch: pytest.MonkeyPatch) -> threading.Condition:
    monkeypatch.setattr(turns, "LIMIT_S", 0.2)
    monkeypatch.setattr(turns, "LOOK_S", 0.02)
    return threading.Condition(threading.RLock())


def compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_a_turn_that_computes_for_too_long_is_ended(condition: threading.Condition) -> None:
    known = Turns(condition)
    with pytest.raises(Overdue), known.turn():
        compute(60)
    with known.turn():
        compute(0.01)


def test_a_turn_that_is_ended_may_not_go_on(condition: threading.Condition, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "AGAIN_S", 0.1)
    known = Turns(condition)

    def insist() -> None:
        with known.turn():
            try:
                compute(60)
            except Overdue:
                compute(60)

    with pytest.raises(Overdue):
        insist()


def test_a_turn_may_wait(condition: threading.Condition) -> None:
    known = Turns(condition)
    with known.turn():
        condition.wait(0.5)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [("*a" * 200 + "b", "a" * 10_000, False), ("a*c", "abc", True), (r"a\*c", "abc", False), ("a*", "b", False)],
)
def test_a_wildcard_is_no_regular_expression(
    pattern: str, text: str, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind, name in ((EventPattern, "_wildcard_match"), (SQSBackend, "list_queues"), (EventsBackend, "list_rules")):
        monkeypatch.setattr(kind, name, vars(kind)[name])
    patch_moto()
    began = time.monotonic()
    assert EventPattern._wildcard_match(text, pattern) is found
    assert time.monotonic() - began < 5


def test_a_prefix_of_names_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SQSBackend, "list_queues", lambda _, prefix: prefix)
    monkeypatch.setattr(EventsBackend, "list_rules", lambda _, prefix: prefix)
    monkeypatch.setattr(EventPattern, "_wildcard_match", None)
    patch_moto()
    assert SQSBackend.list_queues(None, "(a+)+$b") == re.escape("(a+)+$b")
    assert EventsBackend.list_rules(None, prefix="a.b") == r"a\.b"
    assert EventsBackend.list_rules(None) is None


def test_a_wildcard_with_an_open_escape_is_refused() -> None:
    assert list(pattern_problems(r'{"a": [{"wildcard": "a\\b"}]}'))
    assert list(pattern_problems(r'{"a": [{"anything-but": {"wildcard": "a\\b"}}]}'))
    assert not list(pattern_problems(r'{"a": [{"anything-but": {"wildcard": ["a\\*", "b*"]}}]}'))


@pytest.mark.parametrize(("name", "most"), [("FilterExpression", 4096), ("Statement", 8192)])
def test_dynamodbs_expressions_have_its_length(name: str, most: int) -> None:
    refusals.check("dynamodb:Scan", {name: "a" * most}, None)  # type: ignore[arg-type]
    with pytest.raises(ServiceError) as raised:
        refusals.check("dynamodb:Scan", {name: "a" * (most + 1)}, None)  # type: ignore[arg-type]
    assert raised.value.message.endswith(f"expression size: {most + 1}")


def test_an_item_has_dynamodbs_depth() -> None:
    item: dict[str, Any] = {"S": "a"}
    for level in range(300):
        if level == 32:
            refusals.check("dynamodb:BatchWriteItem", written(item), None)  # type: ignore[arg-type]
        item = {"L": [item]} if level % 2 else {"M": {"a": item}}
    with pytest.raises(ServiceError, match="Nesting Levels have exceeded supported limits"):
        refusals.check("dynamodb:BatchWriteItem", written(item), None)  # type: ignore[arg-type]


def written(value: dict[str, Any]) -> dict[str, Any]:
    return {"RequestItems": {"t": [{"PutRequest": {"Item": {"k": {"S": "a"}, "v": value}}}]}}


def test_a_policy_has_iams_length() -> None:
    refusals.check("iam:CreatePolicy", {"PolicyDocument": "a" * 10_240}, None)  # type: ignore[arg-type]
    with pytest.raises(ServiceError, match="Cannot exceed quota for PolicySize: 10240"):
        refusals.check("iam:CreatePolicy", {"PolicyDocument": "a" * 10_241}, None)  # type: ignore[arg-type]
