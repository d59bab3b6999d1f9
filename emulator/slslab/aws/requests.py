"""Check requests to AWS's APIs against AWS's own models of the operations."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any

from botocore.loaders import Loader
from botocore.model import ServiceModel, StructureShape

from slslab.aws.errors import ServiceError, constraint, violated, violation
from slslab.aws.json_text import parse_json

Members = dict[str, Any]
# The JSON types for each type in the models; in Python, True is an integer, too.
TYPES: Mapping[str, tuple[type, ...]] = {
    "structure": (dict,),
    "map": (dict,),
    "list": (list,),
    "string": (str,),
    "blob": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "timestamp": (int, float, str),
}
SURROGATES = re.compile("[\ud800-\udfff]")
# A response names no more violations than this.
MOST_VIOLATIONS = 10
# Patterns aren't matched against longer texts unless their shape allows such a length: some patterns take quadratic
# time. Where a shape has no maximum (names of environment variables, which have 4 KB together), longer texts mismatch.
LONGEST_MATCHED = 4096
# If headers are longer than this together, the result isn't cached.
LONGEST_KEPT = 1024
# Larger bodies are parsed on a thread of their own.
READ_AT_ONCE = 256 * 1024
# Members whose rules have errors of their own, which the services' code raises, by member name with the shape's name. A
# member with that name and another shape is checked as usual.
OWN_RULES: Mapping[str, Mapping[str, str]] = {
    "lambda": {"Runtime": "Runtime"},
    "stepfunctions": {"definition": "Definition", "input": "SensitiveData", "name": "Name"},
}
# Character classes in Java's notation, from the models' patterns.
CLASSES = {
    r"\p{L}": r"\w",
    r"\p{N}": "",
    r"\p{Z}": "\u0020\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000",
    r"\p{ASCII}": r"[\x00-\x7f]",
}


def members(service: str, operation: str, body: bytes, elsewhere: Mapping[str, Any] | None = None) -> Members:
    """Return the members of a request, from its body and from `elsewhere`.

    Raises ServiceError: SerializationException if the body isn't a JSON object or a member has the wrong type, and
    ValidationException if a member violates the operation's model.
    """
    try:
        document = parse_json(body) if body else {}
    except (ValueError, RecursionError) as error:
        raise ServiceError(400, "SerializationException", f"The request body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ServiceError(400, "SerializationException", "The request body must be a JSON object")
    shape = input_shape(service, operation)
    given: Members = _without_nulls(shape, {**document, **(elsewhere or {})})
    if broken := list(islice(_violations(shape, given, "", OWN_RULES.get(service, {})), MOST_VIOLATIONS)):
        raise violated(broken)
    return given


def header_members(service: str, operation: str, elsewhere: Mapping[str, str]) -> Members:
    """Return the members of a request without members in its body. Many requests are equal, so the check is cached."""
    if len(str(elsewhere)) > LONGEST_KEPT:
        return members(service, operation, b"", elsewhere)
    return _header_members(service, operation, tuple(elsewhere.items()))


@lru_cache(1024)
def _header_members(service: str, operation: str, elsewhere: tuple[tuple[str, str], ...]) -> Members:
    return members(service, operation, b"", dict(elsewhere))


@cache
def input_shape(service: str, operation: str) -> StructureShape:
    """Return an operation's input in botocore's model of a service."""
    shape = service_model(service).operation_model(operation).input_shape
    assert isinstance(shape, StructureShape)
    return shape


def own_models() -> Loader:
    """Return a loader of botocore's own service models: the user's ~/.aws/models may override them."""
    return Loader([Loader.BUILTIN_DATA_PATH], include_default_search_paths=False)


@cache
def service_model(service: str) -> ServiceModel:
    """Return botocore's model of a service."""
    return ServiceModel(own_models().load_service_model(service, "service-2"), service)


def _without_nulls(shape: Any, value: Any) -> Any:
    """Return a value without null members of structures, which AWS treats as missing."""
    if shape is None or shape.type_name != "structure" or not isinstance(value, dict):
        return value
    kept = {name: entry for name, entry in value.items() if entry is not None}
    return {name: _without_nulls(shape.members.get(name), entry) for name, entry in kept.items()}


def _check_type(shape: Any, value: Any, path: str) -> None:
    """Raise ServiceError for a value of the wrong type, and for a text that can't be an argument or a path."""
    if type(value) not in TYPES[shape.type_name]:
        raise ServiceError(
            400,
            "SerializationException",
            f"{path or 'The request'} must be of the type {shape.type_name}, not {type(value).__name__}",
        )
    if shape.type_name == "string" and ("\0" in value or SURROGATES.search(value)):
        raise constraint("(not shown)", path, "Member must be Unicode text without NUL characters")


def _violations(shape: Any, value: Any, path: str, own: Mapping[str, str] = MappingProxyType({})) -> Iterator[str]:
    """Yield AWS's message for each member that breaks a rule; members in `own` are only checked for their type.

    Raises ServiceError for a member of the wrong type.
    """
    _check_type(shape, value, path)
    if shape.type_name == "structure":
        for name in shape.required_members:
            if name not in value:
                yield violation(None, _within(path, name), "Member must not be null")
        for name in [name for name in shape.members if name in value]:
            if own.get(name) == shape.members[name].name:
                _check_type(shape.members[name], value[name], _within(path, name))
            else:
                yield from _violations(shape.members[name], value[name], _within(path, name))
        return
    yield from (violation(value, path, rule) for rule in _broken(shape, value))
    if shape.type_name == "map":
        yield from _entry_violations(shape.key, value, value, path, "Map keys must satisfy constraint")
        yield from _entry_violations(shape.value, value.values(), value, path, "Map value must satisfy constraint")
    elif shape.type_name == "list":
        yield from _entry_violations(shape.member, value, value, path, "Member must satisfy constraint")


def _entry_violations(shape: Any, entries: Iterable[Any], value: Any, path: str, what: str) -> Iterator[str]:
    """Yield AWS's message for a list or map with entries that break rules: all rules of an entry (recorded)."""
    for number, entry in enumerate(entries, 1):
        if shape.type_name in ("structure", "list", "map"):
            yield from _violations(shape, entry, f"{path}.{number}.member")
            continue
        if any(_violations(shape, entry, path)):
            yield violation(value, path, f"{what}: [{', '.join(_rules(shape).values())}, Member must not be null]")
            break


def _broken(shape: Any, value: Any) -> Iterator[str]:
    """Yield the rules of a shape that a value breaks, in AWS's words."""
    rules = shape.metadata
    size = value if isinstance(value, int | float) else len(value)
    broken = {
        "max": size > rules.get("max", size),
        "min": size < rules.get("min", size),
        "enum": "enum" in rules and value not in rules["enum"],
    }
    if "pattern" in rules:
        if size > max(LONGEST_MATCHED, rules.get("max", 0)):
            broken["pattern"] = "max" not in rules
        else:
            broken["pattern"] = _pattern(rules["pattern"]).fullmatch(value) is None
    if any(broken.values()):
        yield from (rule for kind, rule in _rules(shape).items() if broken.get(kind))


def _rules(shape: Any) -> dict[str, str]:
    """Return the rules of a shape in AWS's words and order (recorded)."""
    what = "value" if shape.type_name in ("integer", "long", "float", "double") else "length"
    number = float if shape.type_name in ("float", "double") else int
    texts: dict[str, Callable[[Any], str]] = {
        "max": lambda most: f"Member must have {what} less than or equal to {number(most)}",
        "min": lambda least: f"Member must have {what} greater than or equal to {number(least)}",
        "pattern": lambda pattern: f"Member must satisfy regular expression pattern: {pattern}",
        "enum": lambda names: f"Member must satisfy enum value set: [{', '.join(_as_in_messages(names))}]",
    }
    return {kind: text(shape.metadata[kind]) for kind, text in texts.items() if kind in shape.metadata}


def _as_in_messages(names: Sequence[str]) -> list[str]:
    """Return an enumeration's values in the order of AWS's messages: within one slot, the latest comes first."""
    latest_first = names[::-1]
    return sorted(latest_first, key=_slot)


def _slot(value: str) -> int:
    """Return an enumeration value's position in AWS's messages: its slot in a Java hash table with 32 slots, where
    values in the same slot are listed latest first.

    measured: messages of Step Functions, DynamoDB, Cognito, SES and Lambda with two to six values.
    """
    slot = 0
    for character in value:
        slot = (31 * slot + ord(character)) % 32
    return slot


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    for java, python in CLASSES.items():
        pattern = pattern.replace(java, python)
    return re.compile(pattern)


def _within(path: str, name: str) -> str:
    name = name[0].lower() + name[1:]
    return f"{path}.{name}" if path else name
