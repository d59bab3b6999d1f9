"""Check a rule's targets, and make the input of each.

https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_Target.html
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from jsonpath_ng.ext.parser import parse as jsonpath

from slslab_aws.services import RULE_TARGETS

INPUTS = ("Input", "InputPath", "InputTransformer")
VARIABLE = re.compile(r"<([^<>\s]+)>")
QUOTED_OR_VARIABLE = re.compile(r'"(?:\\.|[^"\\])*"|<([^<>\s]+)>')


def target_problems(target: Mapping[str, Any]) -> Iterator[str]:
    """Yield the errors of a target that slslab or EventBridge would return, without a full stop."""
    arn, name = str(target.get("Arn")), target.get("Id")
    if ":".join(arn.split(":")[2:3]) not in RULE_TARGETS:
        yield f"the target {arn} must be one of {', '.join(RULE_TARGETS)}"
    if arn.endswith(".fifo") and not target.get("SqsParameters"):
        yield f"the target {name} is a FIFO queue and needs SqsParameters"
    if len(target.keys() & set(INPUTS)) > 1:
        yield f"the target {name} has more than one of {', '.join(INPUTS)}"
    try:
        json.loads(target.get("Input", "null"))
    except (TypeError, ValueError, RecursionError):
        yield f"the Input of the target {name} is not JSON"
    transformer = target.get("InputTransformer") or {}
    for path in (target.get("InputPath", "$"), *transformer.get("InputPathsMap", {}).values()):
        if not _is_path(path):
            yield f"the target {name} reads {json.dumps(path)}, which is not a path such as $.detail"


def _is_path(path: Any) -> bool:
    try:
        jsonpath(path)
    except Exception:  # the parser raises many kinds, even plain Exception
        return False
    return str(path).startswith("$")


def target_input(target: Mapping[str, Any], event: Mapping[str, Any], rule_arn: str) -> Any:
    """Return a target's input: a constant, a part of the event, the transformed event, or the event.

    https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_Target.html
    """
    if "Input" in target:
        return json.loads(target["Input"])
    # documented: eb-events-structure.html: the time is a text. moto's time is in seconds, with an additional member.
    told = {name: value for name, value in event.items() if name != "ingestion-time"}
    told["time"] = f"{datetime.fromtimestamp(float(event['time']), UTC):%Y-%m-%dT%H:%M:%SZ}"
    if "InputPath" in target:
        return _at(target["InputPath"], told)
    if "InputTransformer" in target:
        return _transformed(target["InputTransformer"], told, rule_arn)
    return told


def _at(path: str, event: Any) -> Any:
    matches = jsonpath(path).find(event)
    return matches[0].value if matches else None


def _transformed(transformer: Mapping[str, Any], event: dict[str, Any], rule_arn: str) -> Any:
    """Fill in a template: a variable within quotes as text, one without quotes as JSON.

    https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-transform-target-input.html; assumed: a variable with a
    path that doesn't exist is empty, or null.
    """
    values = {name: _at(path, event) for name, path in transformer.get("InputPathsMap", {}).items()}
    values |= {
        "aws.events.rule-arn": rule_arn,
        "aws.events.rule-name": rule_arn.rpartition("/")[2],
        "aws.events.event": {name: value for name, value in event.items() if name != "detail"},
        "aws.events.event.json": event,
        "aws.events.event.ingestion-time": event["time"],
    }

    def as_text(match: "re.Match[str]") -> str:
        value = values.get(match[1])
        text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
        return json.dumps(text)[1:-1]

    def filled(match: "re.Match[str]") -> str:
        if match[1] is None:
            return VARIABLE.sub(as_text, match[0])
        return json.dumps(values.get(match[1]))

    text = QUOTED_OR_VARIABLE.sub(filled, transformer["InputTemplate"])
    try:
        return json.loads(text)
    except ValueError:
        return text
