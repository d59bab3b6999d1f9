"""The values of a template's parameters, checked as CloudFormation checks them.

https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/parameters-section-structure.html
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from slslab.statemachines.bounded import Unfinished, matches
from slslab_aws.deploy.schemas import NUMBER, text_of
from slslab_aws.deploy.template import NOT_TEXT, Node, Template

# Types with a list of texts as value.
LISTS = ("CommaDelimitedList", "List<")
# Their values are names of parameters of Systems Manager.
STORED = "AWS::SSM::Parameter::"
# documented: cloudformation-limits.html.
LONGEST_BYTES = 4096


def parameters_of(template: Template, given: Mapping[str, str]) -> dict[str, Any]:
    """Return each parameter's text, or list of texts; problems are noted in the template."""
    values: dict[str, Any] = {}
    section = template.section("Parameters")
    for name in given:
        if name not in section:
            template.wrong(1, f"the template has no parameter {name}; it has {', '.join(section) or 'none'}.")
    for name, parameter in section.items():
        if not isinstance(parameter, Node):
            continue  # noted already
        line = section.lines[name]
        found = given.get(name, parameter.get("Default"))
        kind = str(parameter.get("Type"))
        if kind.startswith(STORED):
            template.wrong(line, f"{kind} reads from Systems Manager, which slslab doesn't emulate ({name}).")
        elif found is None:
            template.wrong(line, f"the parameter {name} has no default: give --parameter {name}=VALUE.")
        else:
            text = text_of(found)
            try:
                problems = list(_problems(name, parameter, kind, text))
            except (TypeError, ValueError, OverflowError, re.error):
                problems = [f"the rules of {name} cannot be read."]
            for problem in problems:
                template.wrong(line, problem)
            listed = kind.startswith(LISTS) or "<List<" in kind
            values[name] = [part.strip() for part in text.split(",")] if listed else text
    return values


def _problems(name: str, parameter: Node, kind: str, text: str) -> Iterator[str]:
    parts = [part.strip() for part in text.split(",")] if kind.startswith(LISTS) else [text]
    if NOT_TEXT.search(text):
        yield f"{name} contains a character that no text may have."
    if len(text.encode("utf-8", "replace")) > LONGEST_BYTES:
        yield f"{name} has more than {LONGEST_BYTES} bytes."
        return
    if "Number" in kind:
        if not all(map(NUMBER.fullmatch, parts)):
            yield f"{text} is not a number ({name})."
            return
        if any(float(part) < float(parameter.get("MinValue", part)) for part in parts):
            yield f"{text} is below the MinValue of {name}, {parameter['MinValue']}."
        if any(float(part) > float(parameter.get("MaxValue", part)) for part in parts):
            yield f"{text} is above the MaxValue of {name}, {parameter['MaxValue']}."
    allowed = parameter.get("AllowedValues")
    if allowed is not None and not set(parts) <= set(map(text_of, allowed)):
        yield f"{text} is not among the AllowedValues of {name}."
    least, most = int(parameter.get("MinLength", 0)), int(parameter.get("MaxLength", LONGEST_BYTES))
    if not least <= len(text) <= most:
        yield f"{name} must have {least} to {most} characters."
    pattern = parameter.get("AllowedPattern")
    if pattern is not None:
        try:
            if not matches(re.compile(pattern), text):
                yield f"{text} does not match the AllowedPattern of {name}, {pattern}."
        except Unfinished:
            yield f"matching the AllowedPattern of {name} takes too long."
