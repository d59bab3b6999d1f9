"""Check the fields of the Amazon States Language: where each is allowed, its type and its range.

https://docs.aws.amazon.com/step-functions/latest/dg/concepts-amazon-states-language.html measured, in others'
recordings of ValidateStateMachineDefinition: each type's fields; the messages on unsupported, required, excluded and
empty fields, on integers and their ranges, on paths and on variable names. assumed: the location in a message,
and the names of other types.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slslab.statemachines import intrinsics, paths
from slslab.statemachines.comparisons import RELATIONS, timestamp

SCHEMA = "SCHEMA_VALIDATION_FAILED"
NOT_A_TIME = "String does not match RFC3339 timestamp"
EXPRESSION = re.compile(r"\{%(.*)%\}", re.DOTALL)
OF_MACHINES = frozenset("Comment QueryLanguage StartAt TimeoutSeconds Version States".split())
OF_BRANCHES = OF_MACHINES - {"QueryLanguage"} | {"ProcessorConfig"}
EVERYWHERE = "Type Comment QueryLanguage "
TYPES: Mapping[str, Collection[str]] = {
    kind: frozenset((EVERYWHERE + fields).split())
    for kind, fields in {
        "Task": "InputPath OutputPath ResultPath Parameters Arguments Output Assign Resource Credentials "
        "ResultSelector Retry Catch TimeoutSeconds TimeoutSecondsPath HeartbeatSeconds HeartbeatSecondsPath Next End",
        "Wait": "InputPath OutputPath Output Assign Seconds Timestamp SecondsPath TimestampPath Next End",
        "Pass": "InputPath OutputPath Result ResultPath Parameters Output Assign Next End",
        "Succeed": "InputPath OutputPath Output",
        "Fail": "Error Cause ErrorPath CausePath",
        "Choice": "InputPath OutputPath Output Assign Choices Default",
        "Parallel": "InputPath OutputPath ResultPath Parameters Arguments Output Assign ResultSelector Retry Catch "
        "Branches Next End",
        "Map": "InputPath OutputPath ResultPath Parameters Output Assign ResultSelector Retry Catch ItemProcessor "
        "Iterator ItemsPath Items ItemSelector ItemReader ItemBatcher ResultWriter MaxConcurrency MaxConcurrencyPath "
        "ToleratedFailurePercentage ToleratedFailurePercentagePath ToleratedFailureCount ToleratedFailureCountPath "
        "Label Next End",
    }.items()
}
# The fields that entries of these lists may have.
ENTRIES: Mapping[str, Collection[str]] = {
    "Retry": frozenset(
        "ErrorEquals IntervalSeconds MaxAttempts BackoffRate MaxDelaySeconds JitterStrategy Comment".split()
    ),
    "Catch": frozenset("ErrorEquals Next ResultPath Output Assign Comment".split()),
}
# The fields that states of these types, and entries of these lists, must have.
REQUIRED: Mapping[str, Sequence[str]] = {
    **{"Task": ["Resource"], "Choice": ["Choices"], "Parallel": ["Branches"]},
    **{"Retry": ["ErrorEquals"], "Catch": ["ErrorEquals", "Next"]},
}
INTEGERS = frozenset(
    "TimeoutSeconds HeartbeatSeconds Seconds MaxConcurrency ToleratedFailureCount IntervalSeconds MaxAttempts "
    "MaxDelaySeconds".split()
)
LEAST = {
    **dict.fromkeys("TimeoutSeconds HeartbeatSeconds BackoffRate MaxDelaySeconds IntervalSeconds".split(), 1),
    **dict.fromkeys("Seconds MaxConcurrency MaxAttempts ToleratedFailureCount ToleratedFailurePercentage".split(), 0),
}
MOST = {"TimeoutSeconds": 99_999_999, "HeartbeatSeconds": 99_999_999, "Seconds": 99_999_999, "MaxAttempts": 99_999_999}
MOST |= {"ToleratedFailurePercentage": 100, "MaxDelaySeconds": 31_622_400}
LEADING_ON = ("Next", "Assign", "Output", "Comment")
OPERATORS = [
    *(f"{kind}{comparison}{of}" for kind in ("String", "Numeric") for comparison in RELATIONS for of in ("", "Path")),
    *("StringMatches", "BooleanEquals", "BooleanEqualsPath"),
    *(f"Timestamp{comparison}{of}" for comparison in RELATIONS for of in ("", "Path")),
    *(f"Is{what}" for what in ("Null", "Present", "Numeric", "String", "Boolean", "Timestamp")),
]
RULES = ("And", "Or", "Not", "Variable", "Condition")
VALUES = {"JitterStrategy": ("NONE", "FULL"), "Version": ("1.0",), "Mode": ("INLINE", "DISTRIBUTED")}
VALUES |= {"ExecutionType": ("STANDARD", "EXPRESS"), "QueryLanguage": ("JSONPath", "JSONata")}
KINDS: Mapping[str, tuple[str, tuple[type, ...]]] = {
    **dict.fromkeys(INTEGERS, ("Integer", (int,))),
    **dict.fromkeys(("BackoffRate", "ToleratedFailurePercentage"), ("Double", (int, float))),
    "End": ("Boolean", (bool,)),
    **dict.fromkeys(
        "Comment StartAt Next Default Resource Label Variable Error Cause RoleArn".split(), ("String", (str,))
    ),
    "Condition": ("String", (str, bool)),
    **dict.fromkeys("Retry Catch Choices Branches ErrorEquals And Or Items".split(), ("Array", (list,))),
    "Not": ("Object", (dict,)),
    **{name: ("Boolean", (bool,)) for name in OPERATORS if name.startswith(("Boolean", "Is"))},
    **{name: ("Double", (int, float)) for name in OPERATORS if name.startswith("Numeric")},
    **{
        name: ("String", (str,))
        for name in OPERATORS
        if name.startswith(("String", "Timestamp")) or name.endswith("Path")
    },
    **dict.fromkeys(VALUES, ("String", (str,))),
    **dict.fromkeys(
        "Assign ProcessorConfig Credentials Parameters Arguments ResultSelector ItemSelector".split(),
        ("Object", (dict,)),
    ),
}
# Fields that may be a JSONata expression; in other fields, the entries may be.
EXPRESSIONS = frozenset(
    "Output Arguments Items Condition Seconds Timestamp TimeoutSeconds HeartbeatSeconds MaxConcurrency Error Cause "
    "ToleratedFailureCount ToleratedFailurePercentage RoleArn".split()
)
# Groups of fields that exclude each other; a state of these types needs exactly one of the group.
ALTERNATIVES = [
    *([name, f"{name}Path"] for name in ("TimeoutSeconds", "HeartbeatSeconds", "MaxConcurrency")),
    *([name, f"{name}Path"] for name in ("ToleratedFailurePercentage", "ToleratedFailureCount", "Error", "Cause")),
    ["ItemProcessor", "Iterator"],
    ["SecondsPath", "Seconds", "TimestampPath", "Timestamp"],
]
EXACTLY_ONE = {"Map": ALTERNATIVES[-2], "Wait": ALTERNATIVES[-1]}
PATH = re.compile(r"\w+Path")
NULLABLE = frozenset(("InputPath", "OutputPath", "ResultPath"))
# These fields may call intrinsic functions, but only these (documented: state-fail.html).
CALLS = frozenset(("ErrorPath", "CausePath"))
CALLED = frozenset("Format JsonToString ArrayGetItem Base64Encode Base64Decode Hash UUID".split())
TEMPLATES = frozenset(("Parameters", "ResultSelector", "ItemSelector", "Assign"))
# documented: the path in these fields names one node. AWS's texts after "Value is not a Reference Path: " are assumed,
# except for a path without a `$`.
REFERENCES = frozenset(("ResultPath", "ItemsPath"))


@dataclass(frozen=True)
class Problem:
    """A problem of a definition, as ValidateStateMachineDefinition reports it."""

    code: str
    message: str
    location: str | None

    def __str__(self) -> str:
        return f"{self.code}: {self.message} at {'null' if self.location is None else self.location}"


def state_problems(state: Mapping[str, Any], path: str, jsonata: bool) -> Iterator[Problem]:
    """Yield the problems of a state's own fields, without the states in it."""
    kind = state["Type"]
    yield from object_problems(state, TYPES[kind], path, jsonata, REQUIRED.get(kind, ()))
    for names in ALTERNATIVES:
        if sum(name in state for name in names) > 1:
            yield too_many(names, path)
    needed = EXACTLY_ONE.get(kind, ())
    if needed and not any(name in state for name in needed):
        yield none_of(needed, path)


def too_many(names: Collection[str], path: str) -> Problem:
    """Return the problem of an object with more than one of these fields."""
    return Problem(SCHEMA, f"There should only be one of the following fields: [{', '.join(names)}]", path)


def none_of(names: Collection[str], path: str) -> Problem:
    """Return the problem of an object without any of these fields."""
    return Problem(SCHEMA, f"This object should have only one of the following fields: [{', '.join(names)}]", path)


def required(names: Collection[str], path: str) -> Problem:
    """Return the problem of an object without these fields."""
    return Problem(SCHEMA, f"These fields are required: [{', '.join(names)}]", path)


def expected(kind: str, path: str) -> Problem:
    """Return the problem of a value of the wrong type."""
    return Problem(SCHEMA, f"Expected value of type {kind}", path)


def object_problems(
    given: Mapping[str, Any], known: Collection[str], path: str, jsonata: bool, needed: Collection[str] = ()
) -> Iterator[Problem]:
    """Yield the problems of an object's own fields, without the states in it; `known` are the allowed ones."""
    if missing := [name for name in needed if name not in given]:
        yield required(missing, path)
    for name, value in given.items():
        if name in known:
            yield from _value_problems(name, value, f"{path}/{name}", jsonata)
        else:
            yield Problem(SCHEMA, f"Field '{name}' is not supported", path or "/")


def _value_problems(name: str, value: Any, path: str, jsonata: bool) -> Iterator[Problem]:
    if jsonata and name in EXPRESSIONS and isinstance(value, str) and EXPRESSION.fullmatch(value):
        return
    kind, types = KINDS.get(name, ("", ()))
    if types and type(value) not in types:
        yield expected(kind, path)
        return
    if name in LEAST and value < LEAST[name] and path != "/TimeoutSeconds":  # a machine's may be 0
        yield Problem(SCHEMA, f"Minimum value is {LEAST[name]}", path)
    if name in MOST and value > MOST[name]:
        yield Problem(SCHEMA, f"Maximum value is {MOST[name]}", path)
    if name in VALUES and value not in VALUES[name]:
        yield Problem(SCHEMA, f"Value should be one of the following: [{', '.join(VALUES[name])}]", path)
    if name in ENTRIES:
        yield from _entry_problems(name, value, path, jsonata)
    if name in ("Choices", "ErrorEquals", "Branches", "And", "Or") and not value:
        yield Problem(SCHEMA, "Value cannot be empty", path)
    if name == "Condition" and isinstance(value, str):
        yield Problem(SCHEMA, "Value must be a valid JSONata expression", path)
    if name.startswith("Timestamp") and not name.endswith("Path") and timestamp(value) is None:
        yield Problem(SCHEMA, NOT_A_TIME, path)
    if name == "ProcessorConfig":
        yield from object_problems(value, ("Mode", "ExecutionType"), path, False)
    if name == "Credentials":
        yield from object_problems(value, ("RoleArn", "RoleArn.$"), path, jsonata)
        if not value:
            yield required(["RoleArn"], path)
    if name in ("Choices", "And", "Or"):
        for number, rule in enumerate(value):
            yield from _rule_problems(rule, f"{path}[{number}]", jsonata, name == "Choices")
    if name == "Not":
        yield from _rule_problems(value, path, jsonata, False)
    if not jsonata and PATH.fullmatch(name) and name not in OPERATORS:
        yield from _path_problems(name, value, path)
    if not jsonata and name in TEMPLATES:
        yield from _template_problems(value, path)
    if name == "Assign":
        yield from _variable_problems(value if jsonata else [name.removesuffix(".$") for name in value], path)


def _entry_problems(field: str, entries: list[Any], path: str, jsonata: bool) -> Iterator[Problem]:
    for number, entry in enumerate(entries):
        where = f"{path}[{number}]"
        if not isinstance(entry, dict):
            yield expected("Object", where)
            continue
        yield from object_problems(entry, ENTRIES[field], where, jsonata, REQUIRED[field])
        names = entry.get("ErrorEquals")
        if isinstance(names, list):
            for position, name in enumerate(names):
                if not isinstance(name, str):
                    yield expected("String", f"{where}/ErrorEquals[{position}]")
            if "States.ALL" in names and (len(names) > 1 or number < len(entries) - 1):
                yield Problem(SCHEMA, "States.ALL must appear alone and at end of list", f"{where}/ErrorEquals")


def _rule_problems(rule: Any, path: str, jsonata: bool, outermost: bool) -> Iterator[Problem]:
    """Yield the problems of a Choice rule; only the outermost rule may have Next."""
    if not isinstance(rule, dict):
        yield expected("Object", path)
        return
    if outermost and "Next" not in rule:
        yield required(["Next"], path)
    if sum(name in rule for name in RULES) != 1:
        what = f"The object must have only one of the following fields, [{', '.join(RULES)}]"
        yield Problem(SCHEMA, what, path)
    operators = [name for name in OPERATORS if name in rule]
    if "Variable" in rule and len(operators) != 1:
        yield (too_many if operators else none_of)(OPERATORS, path)
    yield from object_problems(rule, {*RULES, *operators, *(LEADING_ON if outermost else ("Comment",))}, path, jsonata)
    for name in ("Variable", *(name for name in operators if name.endswith("Path"))):
        value = rule.get(name)
        if isinstance(value, str) and not _parses(paths.of_field, value):
            what = "could not be parsed" if value.startswith("$") else "Reference path didn't start with '$'"
            yield Problem(SCHEMA, f"Value is not a Reference Path: {what}", f"{path}/{name}")


def _path_problems(name: str, value: Any, where: str) -> Iterator[Problem]:
    if value is None and name in NULLABLE:
        return
    called = (
        name in CALLS
        and isinstance(value, str)
        and _parses(intrinsics.parse, value)
        and intrinsics.parse(value).name in CALLED
    )
    if not isinstance(value, str) or not (called or _parses(paths.of_field, value)):
        yield Problem(SCHEMA, "Value must be a valid JSONPath.", where)
    elif name in REFERENCES and not paths.of_field(value).reference:
        yield Problem(SCHEMA, f"Value is not a Reference Path: {value} can lead to more than one node", where)
    elif name == "ResultPath" and paths.ROOT.match(value):
        yield Problem(SCHEMA, "Value is not a Reference Path: ResultPath must lead into the state's input", where)


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except (paths.PathError, RecursionError):
        return False
    return True


def _template_problems(value: Any, path: str) -> Iterator[Problem]:
    if isinstance(value, dict):
        for name, entry in value.items():
            if not name.endswith(".$"):
                yield from _template_problems(entry, f"{path}/{name}")
            elif not isinstance(entry, str) or not (_parses(paths.of_field, entry) or _parses(intrinsics.parse, entry)):
                what = "must be a valid JSONPath or a valid intrinsic function call"
                yield Problem(SCHEMA, f"The value for the field '{name}' {what}", path)
    elif isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _template_problems(entry, f"{path}[{number}]")


def _variable_problems(names: Iterable[str], path: str) -> Iterator[Problem]:
    for name in names:
        if name == "states":
            yield Problem("RESERVED_VARIABLE_NAME", "Cannot assign to reserved variable '$states'.", path)
        elif not name.isidentifier() or name.startswith("_"):
            what = f"Invalid variable name '{name}': the variable name contains invalid characters."
            yield Problem("INVALID_VARIABLE_NAME", what, path)
