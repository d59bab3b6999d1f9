"""Check event patterns as EventBridge does.

https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-create-pattern-operators.html
"""

import ipaddress
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from slslab.statemachines.comparisons import OpenEscape, check_pattern

COMPARISONS = ("<", "<=", "=", ">", ">=")
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
                yield from _filter(each, path)


def _filter(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, list):
        yield f"{path} of the event pattern has a list in its list"
    if not isinstance(value, dict):
        return
    name = next(iter(value), "")
    if len(value) != 1 or name not in OPERATORS:
        yield f"{path} of the event pattern has {json.dumps(value)}; its operators are {', '.join(OPERATORS)}"
    elif not OPERATORS[name](value[name]):
        yield f"{path} of the event pattern gives {name} something that it does not take: {json.dumps(value[name])}"


def _text(given: Any) -> bool:
    return isinstance(given, str)


def _wildcard(given: Any) -> bool:
    # documented: eb-create-pattern-operators.html: a backslash escapes `*` or itself.
    return _text(given) and _is_pattern(given)


def _is_pattern(text: str) -> bool:
    try:
        check_pattern(text)
    except OpenEscape:
        return False
    return True


def _text_in_any_case(given: Any) -> bool:
    return _text(given) or (isinstance(given, dict) and list(given) == ["equals-ignore-case"] and _texts(given))


def _texts(given: Any) -> bool:
    values = list(given.values()) if isinstance(given, dict) else given if isinstance(given, list) else [given]
    return bool(values) and all(map(_text, values))


def _numeric(given: Any) -> bool:
    return (
        isinstance(given, list)
        and len(given) in (2, 4)
        and all(each in COMPARISONS for each in given[::2])
        and all(isinstance(each, int | float) and not isinstance(each, bool) for each in given[1::2])
    )


def _anything_but(given: Any) -> bool:
    if isinstance(given, dict):
        name = next(iter(given), "")
        known = ("prefix", "suffix", "equals-ignore-case")
        if name == "wildcard":
            values = given[name] if isinstance(given[name], list) else [given[name]]
            return len(given) == 1 and bool(values) and all(map(_wildcard, values))
        return len(given) == 1 and name in known and _texts(given[name])
    values = given if isinstance(given, list) else [given]
    return bool(values) and all(isinstance(each, str | int | float) for each in values)


def _cidr(given: Any) -> bool:
    try:
        ipaddress.ip_network(given, strict=False)
    except ValueError:
        return False
    return _text(given)


OPERATORS: Mapping[str, Callable[[Any], bool]] = {
    "prefix": _text_in_any_case,
    "suffix": _text_in_any_case,
    "equals-ignore-case": _text,
    "numeric": _numeric,
    "anything-but": _anything_but,
    "exists": lambda given: isinstance(given, bool),
    "cidr": _cidr,
    "wildcard": _wildcard,
}
