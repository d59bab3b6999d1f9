"""Check event patterns as EventBridge does.

https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-create-pattern-operators.html
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from slslab_aws.services.violations import violations

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
SCALAR = {"type": ["string", "number", "boolean", "null"]}
FIELD = {
    "if": {"type": "object"},
    "then": {"$ref": "#/properties/EventPattern"},
    "else": {
        "type": "array",
        "minItems": 1,
        "items": {"if": {"type": "object"}, "then": _only(**OPERATORS), "else": SCALAR},
    },
}
PATTERN = {
    "type": "object",
    "minProperties": 1,
    "properties": {
        "$or": {
            "if": {"type": "array", "items": {"type": "object"}},
            "then": {"items": {"$ref": "#/properties/EventPattern"}},
            "else": FIELD,
        }
    },
    "additionalProperties": FIELD,
}
# documented: quotas.
LONGEST = 2048
# assumed: AWS documents no limit. jsonschema panics a little above 160.
DEEPEST = 100


def pattern_problems(text: str) -> Iterator[str]:
    """Yield the errors of a pattern in JSON, without a full stop."""
    if len(text) > LONGEST:
        yield f"EventPattern has more than {LONGEST} characters"
        return
    try:
        pattern = json.loads(text)
    except (ValueError, RecursionError):
        yield "EventPattern is not JSON, or is nested too deeply"
        return
    if _depth(pattern) > DEEPEST:
        yield f"EventPattern is nested more than {DEEPEST} levels deep"
        return
    # jsonschema finds wrong fields in the order of a set.
    found = violations({"properties": {"EventPattern": PATTERN}}, {"EventPattern": pattern}, "")
    yield from sorted(problem for _, problem in found)


def _depth(value: Any) -> int:
    """Return how many levels a document has; a scalar has none."""
    levels, below = 0, [value]
    while below := [entry for entry in below if isinstance(entry, dict | list)]:
        levels += 1
        below = [part for entry in below for part in (entry.values() if isinstance(entry, dict) else entry)]
    return levels
