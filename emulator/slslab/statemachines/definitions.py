"""Checks of a state machine's definition: what AWS refuses at CreateStateMachine, and what is not emulated.

AWS's validation answers `Invalid State Machine Definition: '<code>: <what> at <where>'` (InvalidDefinition).
The rules are in https://states-language.net/spec.html. The codes are those of ValidateStateMachineDefinition's
diagnostics, their texts assumed.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from slslab.aws.errors import ServiceError

TYPES = ("Task", "Pass", "Wait", "Choice", "Succeed", "Fail", "Parallel", "Map")
ENDINGS = ("Succeed", "Fail", "Choice")  # they have neither Next nor End
NAME_CHARACTERS = 80
RESOURCES = re.compile(
    r"arn:aws:lambda:[a-z0-9-]+:\d{12}:function:[a-zA-Z0-9-_]+(:[a-zA-Z0-9-_$]+)?"
    r"|arn:aws:states:::lambda:invoke(\.waitForTaskToken)?"
)


def check(definition: str, limit_bytes: int) -> None:
    """Raise ServiceError (InvalidDefinition) for what is not a state machine, or cannot be executed here."""
    if len(definition.encode()) > limit_bytes:
        raise invalid_definition(f"INVALID_DEFINITION_LENGTH: The definition is longer than {limit_bytes} bytes.")
    try:
        machine = json.loads(definition)
    except (ValueError, RecursionError) as error:
        raise invalid_definition(f"INVALID_JSON_DESCRIPTION: {error}") from error
    if problem := next(_problems(machine, "", set()), None):
        raise invalid_definition(problem)


def invalid_definition(problem: str) -> ServiceError:
    """Return InvalidDefinition, status 400."""
    return ServiceError(400, "InvalidDefinition", f"Invalid State Machine Definition: '{problem}'")


def _problems(machine: Any, where: str, names: set[str]) -> Iterator[str]:
    """Yield the problems of a machine, branch or iterator; `names` collects those of the whole machine's states."""
    if not isinstance(machine, dict):
        yield f"SCHEMA_VALIDATION_FAILED: A state machine is an object at {where or '/'}"
        return
    states, start = machine.get("States"), machine.get("StartAt")
    if not isinstance(states, dict) or not states:
        yield f"SCHEMA_VALIDATION_FAILED: The field 'States' is required at {where}/States"
        return
    if not _names(start, states):
        yield f"MISSING_TRANSITION_TARGET: Missing 'StartAt' target: {start} at {where}/StartAt"
    yield from _language(machine, where)
    reached = [start]
    for name, state in states.items():
        path = f"{where}/States/{name}"
        if name in names:
            yield f"DUPLICATE_STATE_NAME: State names must be unique within the state machine at {path}"
        names.add(name)
        if len(name) > NAME_CHARACTERS:
            yield f"SCHEMA_VALIDATION_FAILED: State name is longer than {NAME_CHARACTERS} characters at {path}"
        if not isinstance(state, dict) or state.get("Type") not in TYPES:
            yield f"SCHEMA_VALIDATION_FAILED: The field 'Type' should have one of these values: {[*TYPES]} at {path}"
            return
        yield from _state_problems(state, path, names)
        for target, field in _targets(state):
            if not _names(target, states):
                yield f"MISSING_TRANSITION_TARGET: Missing 'Next' target: {target} at {path}/{field}"
            reached.append(target)
    for name in states:
        if name not in reached:
            yield f'MISSING_TRANSITION_TARGET: State "{name}" is not reachable. at {where}/States/{name}'


def _state_problems(state: Mapping[str, Any], path: str, names: set[str]) -> Iterator[str]:
    kind = state["Type"]
    if kind not in ENDINGS and ("Next" in state) == (state.get("End") is True):
        yield f"SCHEMA_VALIDATION_FAILED: A state has one of the fields 'Next' and 'End' at {path}"
    yield from _language(state, path)
    if kind == "Task" and not RESOURCES.fullmatch(str(state.get("Resource"))):
        yield (
            f"SCHEMA_VALIDATION_FAILED: slslab emulates only Tasks of Lambda functions, not {state.get('Resource')} "
            f"at {path}/Resource"
        )
    if kind == "Parallel":
        branches = state.get("Branches")
        if not isinstance(branches, list):
            yield f"SCHEMA_VALIDATION_FAILED: The field 'Branches' is required at {path}/Branches"
            return
        for number, branch in enumerate(branches):
            yield from _problems(branch, f"{path}/Branches[{number}]", names)
    if kind == "Map":
        field = "Iterator" if "Iterator" in state else "ItemProcessor"
        iterator = state.get(field)
        yield from _problems(iterator, f"{path}/{field}", names)
        config = iterator.get("ProcessorConfig") if isinstance(iterator, dict) else None
        if isinstance(config, dict) and config.get("Mode") == "DISTRIBUTED":
            yield f"SCHEMA_VALIDATION_FAILED: slslab emulates Map only in inline mode at {path}/{field}"


def _language(part: Mapping[str, Any], where: str) -> Iterator[str]:
    if part.get("QueryLanguage", "JSONPath") != "JSONPath":
        yield f"SCHEMA_VALIDATION_FAILED: slslab emulates only the query language JSONPath at {where}/QueryLanguage"


def _names(target: Any, states: Mapping[str, Any]) -> bool:
    return isinstance(target, str) and target in states


def _targets(state: Mapping[str, Any]) -> Iterator[tuple[Any, str]]:
    """Yield every state that may come next, with the field that names it."""
    for field in ("Next", "Default"):
        if field in state:
            yield state[field], field
    for field in ("Choices", "Catch"):
        rules = state.get(field)
        for number, rule in enumerate(rules if isinstance(rules, list) else ()):
            yield rule.get("Next") if isinstance(rule, dict) else None, f"{field}[{number}]/Next"
