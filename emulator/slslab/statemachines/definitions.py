"""Check a state machine's definition: report what CreateStateMachine refuses on AWS, and what isn't emulated.

AWS's validation answers `Invalid State Machine Definition: '<code>: <what> at <where>'` (InvalidDefinition). The rules
are in https://states-language.net/spec.html; the codes come from ValidateStateMachineDefinition's diagnostics.
measured: the messages on JSON, required fields, targets, a missing end, time stamps, query languages and references in
JSONata; the others are assumed.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from slslab.aws.errors import ServiceError
from slslab.aws.json_text import parse_json
from slslab.statemachines.expressions import QueryError, read
from slslab.statemachines.fields import (
    EXPRESSION,
    OF_BRANCHES,
    OF_MACHINES,
    SCHEMA,
    TYPES,
    Problem,
    expected,
    none_of,
    object_problems,
    required,
    state_problems,
    too_many,
)

ENDINGS = ("Succeed", "Fail", "Choice")  # without Next and End
NAME_CHARACTERS = 80
RESOURCES = re.compile(
    r"arn:aws:lambda:[a-z0-9-]+:\d{12}:function:[a-zA-Z0-9-_]+(:[a-zA-Z0-9-_$]+)?"
    r"|arn:aws:states:::lambda:invoke(\.waitForTaskToken)?"
)
TARGET = "MISSING_TRANSITION_TARGET"
SETTINGS: Mapping[str, Any] = {
    "loggingConfiguration": {"level": "OFF", "includeExecutionData": False},
    "tracingConfiguration": {"enabled": False},
    "encryptionConfiguration": {"type": "AWS_OWNED_KEY"},
}
# Fields that only one query language has.
JSONPATH_FIELDS = (
    "InputPath OutputPath ResultPath ResultSelector Parameters Result ItemsPath MaxConcurrencyPath ErrorPath CausePath"
).split()
JSONATA_FIELDS = ("Output", "Arguments", "Items")
# Fields with text that is never an expression, whatever it looks like, and fields with the user's own keys.
TEXTS = frozenset("Comment Next Default Resource ErrorEquals Retry Credentials".split())
MACHINES = frozenset(("ItemProcessor", "Iterator", "Branches"))
PAYLOADS = frozenset(("Output", "Assign", "Arguments", "ItemSelector"))
# Fields that only a distributed Map has.
DISTRIBUTED = ("ItemReader", "ItemBatcher", "ResultWriter")


def invalid_definition(problem: str) -> ServiceError:
    """Return InvalidDefinition, status 400."""
    return ServiceError(400, "InvalidDefinition", f"Invalid State Machine Definition: '{problem}'")


def problems(definition: str, limit_bytes: int) -> list[Problem]:
    """Return the problems of a definition; if it is too long or not JSON, only that."""
    if len(definition.encode()) > limit_bytes:
        return [Problem("INVALID_DEFINITION_LENGTH", f"The definition is longer than {limit_bytes} bytes.", None)]
    try:
        machine = parse_json(definition) if definition.strip() else None
    except (ValueError, RecursionError) as error:
        return [Problem("INVALID_JSON_DESCRIPTION", str(error), None)]
    if not isinstance(machine, dict):
        return [Problem(SCHEMA, "Definition must be a valid JSON object", None)]
    if found := [*_problems(machine, "", set(), _uses_jsonata(machine, False))]:
        return found
    if any(state["Type"] in ("Succeed", "Fail") or state.get("End") is True for state in machine["States"].values()):
        return []
    return [Problem("MISSING_END_STATE", "Workflow has no terminal state", None)]


def _uses_jsonata(part: Mapping[str, Any], inherited: bool) -> bool:
    return part["QueryLanguage"] != "JSONPath" if "QueryLanguage" in part else inherited


def _texts(value: Any, path: str, payload: bool, caught: bool) -> Iterator[tuple[str, str, bool]]:
    """Yield every text of a state that may be an expression."""
    if isinstance(value, dict):
        for name, entry in value.items():
            if payload or name not in TEXTS | MACHINES:
                yield from _texts(
                    entry, f"{path}/{name}", payload or name in PAYLOADS, caught or (not payload and name == "Catch")
                )
    elif isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _texts(entry, f"{path}[{number}]", payload, caught)
    elif isinstance(value, str):
        yield value, path, caught


def _problems(machine: Any, where: str, names: set[str], jsonata: bool) -> Iterator[Problem]:
    """Yield the problems of a machine, branch or iterator; `names` collects the state names of the whole machine, and
    `jsonata` says whether JSONata is its query language."""
    if not isinstance(machine, dict):
        yield expected("Object", where)
        return
    if missing := [field for field in ("States", "StartAt") if field not in machine]:
        yield required(missing, where or "/")
        return
    states, start = machine["States"], machine["StartAt"]
    if not isinstance(states, dict) or not states:
        yield Problem(SCHEMA, "The field 'States' must be an object with at least one state", f"{where}/States")
        return
    yield from object_problems(machine, OF_BRANCHES if where else OF_MACHINES, where, False)
    if isinstance(start, str) and start not in states:
        yield Problem(TARGET, f"Missing 'Next' target: {start}", f"{where}/StartAt")
    targets = [start]
    for name, state in states.items():
        path = f"{where}/States/{name}"
        if name in names:
            yield Problem("DUPLICATE_STATE_NAME", f"Duplicate State name: {name}", path)
        names.add(name)
        if len(name) > NAME_CHARACTERS:
            yield Problem(SCHEMA, f"State name is longer than {NAME_CHARACTERS} characters", path)
        if not isinstance(state, dict):
            yield expected("Object", path)
            return
        if "Type" not in state:
            yield required(["Type"], path)
            return
        if not isinstance(state["Type"], str) or state["Type"] not in TYPES:
            what = f"The field 'Type' should have one of these values: [{', '.join(TYPES)}]"
            yield Problem(SCHEMA, what, f"{path}/Type")
            return
        yield from _state_problems(state, path, names, jsonata)
        for target, field in _targets(state):
            targets.append(target)
            if isinstance(target, str) and target not in states:
                yield Problem(TARGET, f"Missing 'Next' target: {target}", f"{path}/{field}")
    reached = {target for target in targets if isinstance(target, str)}  # another type is already reported
    for name in states:
        if name not in reached:
            yield Problem(TARGET, f'State "{name}" is not reachable.', f"{where}/States/{name}")


def _state_problems(state: Mapping[str, Any], path: str, names: set[str], jsonata: bool) -> Iterator[Problem]:
    kind = state["Type"]
    if kind not in ENDINGS and ("Next" in state) == (state.get("End") is True):
        yield (too_many if "Next" in state else none_of)(["Next", "End"], path)
    yield from _language(state, path, jsonata)
    yield from state_problems(state, path, _uses_jsonata(state, jsonata))
    resource = state.get("Resource")
    if kind == "Task" and isinstance(resource, str) and not RESOURCES.fullmatch(resource):
        yield Problem(SCHEMA, f"slslab emulates only Tasks of Lambda functions, not {resource}", f"{path}/Resource")
    branches = state.get("Branches")
    if kind == "Parallel" and isinstance(branches, list):
        for number, branch in enumerate(branches):
            yield from _problems(branch, f"{path}/Branches[{number}]", names, jsonata)
    if kind == "Map":
        field = "Iterator" if "Iterator" in state else "ItemProcessor"
        if field not in state:
            return
        yield from _problems(state[field], f"{path}/{field}", names, jsonata)
        config = state[field].get("ProcessorConfig") if isinstance(state[field], dict) else None
        distributed = isinstance(config, dict) and config.get("Mode") == "DISTRIBUTED"
        for name in (*([field] if distributed else ()), *(each for each in DISTRIBUTED if each in state)):
            yield Problem(SCHEMA, "slslab emulates Map only in inline mode", f"{path}/{name}")


def check_settings(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request's settings; ServiceError (InvalidLoggingConfiguration) for settings that AWS refuses."""
    given = {key: members[key] for key in SETTINGS if key in members}
    logging = given.get("loggingConfiguration")
    if logging is not None:
        # measured, in others' recordings: AWS fills in omitted settings, and only OFF needs no destination.
        logging = given["loggingConfiguration"] = {**SETTINGS["loggingConfiguration"], **logging}
        groups = [
            entry.get("cloudWatchLogsLogGroup", {}).get("logGroupArn") for entry in logging.get("destinations", ())
        ]
        if len(groups) > 1 or not all(groups) or (logging["level"] != "OFF" and not groups):
            what = "Invalid Logging Configuration: Must specify exactly one Log Destination."
            raise ServiceError(400, "InvalidLoggingConfiguration", what)
    return given


def _language(state: Mapping[str, Any], path: str, of_machine: bool) -> Iterator[Problem]:
    """Yield the problems of a state's query language, and of the fields that depend on it."""
    if of_machine and state.get("QueryLanguage") == "JSONPath":
        what = "'QueryLanguage' can not be 'JSONPath' if set to 'JSONata' for whole state machine"
        yield Problem(SCHEMA, what, path)
        return
    jsonata = _uses_jsonata(state, of_machine)
    own, other = ("JSONata", "JSONPath") if jsonata else ("JSONPath", "JSONata")
    for field in JSONPATH_FIELDS if jsonata else JSONATA_FIELDS:
        if field in state:
            yield Problem(
                SCHEMA,
                f"The QueryLanguage is set to '{own}', but field '{field}' is only supported for the '{other}' "
                "QueryLanguage",
                path,
            )
    if jsonata:
        yield from _expression_problems(state, path)


def _expression_problems(state: Mapping[str, Any], path: str) -> Iterator[Problem]:
    for text, where, caught in _texts(state, path, False, False):
        if not (match := EXPRESSION.fullmatch(text)):
            # documented: transforming-data.html: unbalanced delimiters are refused; the text is assumed.
            if text.startswith("{%") or text.endswith("%}"):
                what = "An expression must begin with '{%' and end with '%}', without spaces around them."
                yield Problem("INVALID_JSONATA_EXPRESSION", what, where)
            continue
        try:
            states, context = read(match[1].strip())
        except QueryError as error:
            yield Problem("INVALID_JSONATA_EXPRESSION", str(error), where)
            continue
        unsupported = [
            "Reference to '$$' is not supported."
            if name == "$$"
            else f"Reference to '{name}' at the top level is not supported."
            for name in dict.fromkeys(context)
        ]
        if "errorOutput" in states and not caught:
            unsupported.append("Field '$states.errorOutput' does not exist.")
        yield from (Problem("UNSUPPORTED_JSONATA_EXPRESSION", what, where) for what in unsupported)


def _targets(state: Mapping[str, Any]) -> Iterator[tuple[Any, str]]:
    """Yield every state that may come next, with the field that names it."""
    for field in ("Next", "Default"):
        if field in state:
            yield state[field], field
    for field in ("Choices", "Catch"):
        rules = state.get(field)
        for number, rule in enumerate(rules if isinstance(rules, list) else ()):
            if isinstance(rule, dict) and "Next" in rule:
                yield rule["Next"], f"{field}[{number}]/Next"
