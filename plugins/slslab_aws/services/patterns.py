"""Check event patterns as EventBridge does.

https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-create-pattern-operators.html
"""

import json
from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from typing import Any

TEXT = {"type": "string"}
TEXTS = {"anyOf": [TEXT, {"type": "array", "items": TEXT, "minItems": 1}]}
# documented: eb-create-pattern-operators.html: a backslash escapes `*` or itself.
WILDCARD = {"type": "string", "pattern": r"\A(?:[^\\]|\\[\\*])*\Z"}
VALUE = {"type": ["string", "number", "boolean"]}
COMPARISON, NUMBER = {"enum": ["<", "<=", "=", ">", ">="]}, {"type": "number"}


def _only(**members: Any) -> dict[str, Any]:
    """Return the schema of a mapping with exactly one of these members."""
    return {
        "type": "object",
        "properties": members,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }


TEXT_IN_ANY_CASE = {"anyOf": [TEXT, _only(**{"equals-ignore-case": TEXT})]}
# What each operator takes, as a JSON schema.
OPERATORS: Mapping[str, Mapping[str, Any]] = {
    "prefix": TEXT_IN_ANY_CASE,
    "suffix": TEXT_IN_ANY_CASE,
    "equals-ignore-case": TEXT,
    "numeric": {
        **{"type": "array", "items": [COMPARISON, NUMBER] * 2, "minItems": 2, "maxItems": 4},
        "not": {"minItems": 3, "maxItems": 3},
    },
    "anything-but": {
        "anyOf": [
            VALUE,
            {"type": "array", "items": VALUE, "minItems": 1},
            _only(
                **{"prefix": TEXTS, "suffix": TEXTS, "equals-ignore-case": TEXTS},
                wildcard={"anyOf": [WILDCARD, {"type": "array", "items": WILDCARD, "minItems": 1}]},
            ),
        ]
    },
    "exists": {"type": "boolean"},
    "cidr": {"type": "string", "format": "cidr"},
    "wildcard": WILDCARD,
}
# An entry of a pattern's list.
FILTER = {"anyOf": [VALUE, {"type": "null"}, _only(**OPERATORS)]}
# documented: quotas: a pattern has at most 2,048 characters; no pattern nests deeper than its events.
LONGEST = 2048


def pattern_problems(text: str) -> Iterator[str]:
    """Yield the errors of a pattern in JSON, without a full stop."""
    if len(text) > LONGEST:
        yield f"an event pattern has at most {LONGEST} characters"
        return
    try:
        pattern = json.loads(text)
    except (ValueError, RecursionError):
        yield "the event pattern is not JSON"
        return
    if not isinstance(pattern, dict) or not pattern:
        yield "an event pattern is a mapping that is not empty"
        return
    yield from _fields(pattern, "")


def _fields(pattern: Mapping[str, Any], where: str) -> Iterator[str]:
    for name, value in pattern.items():
        path = f"{where}.{name}" if where else name
        if name == "$or" and isinstance(value, list) and all(isinstance(each, dict) for each in value):
            for each in value:
                yield from _fields(each, where)
        elif isinstance(value, dict) and value:
            yield from _fields(value, path)
        elif not isinstance(value, list) or not value:
            yield f"{path} of the event pattern must be a list of values, or a mapping"
        else:
            for each in value:
                if not _accepts(each):
                    expected = f"neither a value nor a filter by {', '.join(OPERATORS)}"
                    yield f"{path} of the event pattern has {json.dumps(each)}, which is {expected}"


def _accepts(each: Any) -> bool:
    from jsonschema import Draft7Validator, FormatChecker

    formats = FormatChecker(())
    formats.checks("cidr", ValueError)(lambda value: not isinstance(value, str) or ip_network(value, strict=False))
    return bool(Draft7Validator(FILTER, format_checker=formats).is_valid(each))
