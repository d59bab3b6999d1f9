"""Read a template with the lines of its parts, and find its errors before anything is made.

https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/template-anatomy.html
"""

import json
import math
import re
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from slslab.errors import RequestError, counted
from slslab_aws.deploy.intrinsics import PSEUDO, SHAPES, names_in
from slslab_aws.deploy.schemas import closest, violations

SERVERLESS = "AWS::Serverless-2016-10-31"
POLICIES = ["Delete", "Retain", "RetainExceptOnCreate"]
# documented: sam-specification-generated-resources.html: these names don't begin with a resource's name.
IMPLICIT = ("ServerlessRestApi", "ServerlessHttpApi", "ServerlessDeploymentApplication")
# documented: cloudformation-limits.html, a template in a bucket. SAM expands aliases before it sends a template.
LONGEST = 1_000_000
# assumed: templates nest about ten values; Python's own limit must not be reached.
DEEPEST = 100
# assumed: no property takes a longer number. Python refuses to print integers of thousands of digits.
LONGEST_NUMBER = 40
# documented: template-formats.html: CloudFormation doesn't accept these types of YAML.
REFUSED_TYPES = ("binary", "omap", "pairs", "set")
NOT_TEXT = re.compile("[\0\ud800-\udfff]")
# The sections of a template and their entries, as a JSON schema.
ENTRIES = {"type": "object", "propertyNames": {"pattern": r"^[A-Za-z0-9]{1,255}\Z"}}
PARAMETER = {
    "type": "object",
    "required": ["Type"],
    "propertyNames": {
        "enum": [
            *("AllowedPattern", "AllowedValues", "ConstraintDescription", "Default", "Description", "MaxLength"),
            *("MaxValue", "MinLength", "MinValue", "NoEcho", "Type"),
        ]
    },
    "properties": {
        # AWS's own types, such as AWS::EC2::VPC::Id, are texts.
        "Type": {"type": "string", "pattern": "^(String|Number|CommaDelimitedList|List<|AWS::)"},
        "Default": {"type": ["string", "number", "boolean"]},
    },
}
NAMES = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
SCHEMA = {
    "required": ["Resources"],
    "properties": {
        # documented: format-version-structure.html: the only one.
        "AWSTemplateFormatVersion": {"const": "2010-09-09"},
        "Transform": {"enum": [SERVERLESS, [SERVERLESS]]},
        "Description": {},
        "Metadata": {"type": "object"},
        "Globals": {"type": "object"},
        "Parameters": {**ENTRIES, "additionalProperties": PARAMETER},
        "Mappings": {"type": "object", "additionalProperties": {"type": "object"}},
        "Conditions": {"type": "object"},
        "Resources": {
            **ENTRIES,
            "minProperties": 1,
            "additionalProperties": {
                "type": "object",
                "required": ["Type"],
                "properties": {
                    "Type": {"type": "string"},
                    "Properties": {"type": "object"},
                    "Condition": {"type": "string"},
                    "DependsOn": NAMES,
                    "DeletionPolicy": {"enum": POLICIES},
                },
            },
        },
        "Outputs": {**ENTRIES, "additionalProperties": {"type": "object", "required": ["Value"]}},
    },
}
SCHEMA["propertyNames"] = {"enum": [*SCHEMA["properties"]]}
# Functions with a short form, but a long form that doesn't begin with `Fn::`.
BARE = ("Ref", "Condition")


class Node(dict[str, Any]):
    """A mapping of a template; `lines` has the line of each key, from 1 on."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}


def part(node: Node, name: str) -> Node:
    """Return the mapping of this name in another; empty if it is missing."""
    found = node.get(name)
    return found if isinstance(found, Node) else Node()


class _Loader(yaml.SafeLoader):
    """Turns mappings into nodes and CloudFormation's short functions into long ones."""

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        # Thousands of open brackets take minutes to scan.
        if self.flow_level > DEEPEST:
            raise yaml.MarkedYAMLError(None, None, f"values are nested more than {DEEPEST} deep", self.get_mark())
        super().fetch_flow_collection_start(token)


def _mapping(loader: _Loader, node: yaml.Node) -> Node:
    if not isinstance(node, yaml.MappingNode):
        raise yaml.constructor.ConstructorError(None, None, "a mapping has keys and values", node.start_mark)
    made = Node()
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(None, None, "a key is not a text", key.start_mark)
        name = str(key.value)
        if name in made:
            raise yaml.constructor.ConstructorError(None, None, f"{name} stands here twice", key.start_mark)
        made[name] = loader.construct_object(value, deep=True)
        made.lines[name] = key.start_mark.line + 1
    return made


def _function(loader: _Loader, suffix: str, node: yaml.Node) -> Node:
    value: Any
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = _mapping(loader, node)
    if suffix == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)  # without a dot, the shape check refuses it
    made, name = Node(), suffix if suffix in BARE else f"Fn::{suffix}"
    made[name], made.lines[name] = value, node.start_mark.line + 1
    return made


def _scalar(loader: _Loader, node: yaml.ScalarNode) -> Any:
    """Return a number or boolean; ConstructorError for one that is too long, or such as `!!int a`."""
    text = loader.construct_scalar(node)
    with suppress(ValueError, LookupError):
        if len(text) <= LONGEST_NUMBER:
            return yaml.SafeLoader.yaml_constructors[node.tag](loader, node)
    problem = f"{text[:LONGEST_NUMBER]} can't be read as {node.tag.rpartition(':')[2]}; quote it if it is a text"
    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Loader.add_multi_constructor("!", _function)
# A date in a template is a text, like the format version.
_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda _loader, node: str(node.value))
for _name in ("bool", "float", "int"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_name}", _scalar)
for _name in REFUSED_TYPES:
    del _Loader.yaml_constructors[f"tag:yaml.org,2002:{_name}"]


@dataclass
class Template:
    """A template as it is written, and its problems: a line and a sentence each."""

    path: Path
    root: Node
    problems: list[tuple[int, str]] = field(default_factory=list)

    def section(self, name: str) -> Node:
        """Return a section; empty if the template lacks it."""
        return part(self.root, name)

    def line(self, logical_id: str) -> int:
        """Return the line of a resource, or of the resource that an expanded one comes from."""
        lines = self.section("Resources").lines
        sources = [name for name in lines if logical_id.startswith(name)]
        return lines[max(sources, key=len)] if sources else 1

    def may_be(self, name: str, known: Set[str]) -> bool:
        """Return whether a name is known, or may be made by expanding a serverless resource."""
        serverless = [each for each in self.section("Resources") if self.type(each).startswith("AWS::Serverless::")]
        return name in known or name.partition(".")[0].startswith((*serverless, *IMPLICIT))

    def type(self, name: str) -> str:
        """Return the type of a resource as it is written; an empty text without one."""
        return str(part(self.section("Resources"), name).get("Type", ""))

    def properties(self, name: str) -> Node:
        """Return the properties of a resource as they are written; empty for a resource made by the expansion."""
        return part(part(self.section("Resources"), name), "Properties")

    def wrong(self, line: int, message: str) -> None:
        """Note a problem."""
        self.problems.append((line, message))

    def raise_problems(self) -> None:
        """Raise RequestError with all problems, in the order of their lines."""
        if self.problems:
            told = [f"{self.path}:{line}: {message}" for line, message in sorted(set(self.problems))]
            raise RequestError(
                f"slslab can't deploy the template ({counted(len(told), 'problem')}); nothing was made.\n"
                + "\n".join(told),
                "change these lines.",
            )


def read_template(path: Path) -> Template:
    """Return the template of a YAML or JSON file; RequestError if it is neither, too large or too deep."""
    try:
        if path.stat().st_size > LONGEST:
            raise RequestError(f"{path} has more than {LONGEST:,} bytes.", "make it smaller, as AWS demands, too.")
        # Like yaml.safe_load, this loader only makes plain values, and the nodes above.
        root = _Loader(path.read_text(encoding="utf-8")).get_single_data()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise RequestError(f"The template {path} cannot be read: {reason}.", "name its file.") from error
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        reason = getattr(error, "problem", None) or getattr(error, "reason", None)
        reason = reason or "a value is nested too deeply, or a number is too large"
        raise RequestError(f"{where}: this is not YAML: {reason}.", "fix the line.") from error
    if not isinstance(root, Node):
        raise RequestError(f"{path} is not a template.", "a template has a mapping `Resources`.")
    template = Template(path, root)
    _check_size(template)  # first: other checks print values, with their aliases
    for at, problem in violations(SCHEMA, root, "the template"):
        template.wrong(closest(root, at, 1), f"{problem}.")
    _check_values(template)
    return template


def walk(value: Any, line: int, depth: int = 1) -> Iterator[tuple[int, int, Any]]:
    """Yield a value and every key and value below it, with their lines and depths."""
    yield line, depth, value
    if isinstance(value, Node):
        for name, each in value.items():
            yield value.lines[name], depth + 1, name
            yield from walk(each, value.lines[name], depth + 1)
    elif isinstance(value, list):
        for each in value:
            yield from walk(each, line, depth + 1)


def _check_size(template: Template) -> None:
    """Raise RequestError if there are too many characters, with all aliases expanded, or values too deep."""
    size = 0
    for line, depth, value in walk(template.root, 1):
        size += 1 + (len(value) if isinstance(value, str) else 0)
        if size > LONGEST or depth > DEEPEST:
            raise RequestError(
                f"{template.path}:{line}: with its aliases, the template has more than {LONGEST:,} characters, or "
                f"values nested more than {DEEPEST} deep.",
                "make it smaller, as AWS demands, too.",
            )


def _check_values(template: Template) -> None:
    """Note values that CloudFormation doesn't accept."""
    for line, _, value in walk(template.root, 1):
        if value is None:
            template.wrong(line, "a value is missing (null).")
        elif isinstance(value, str) and NOT_TEXT.search(value):
            template.wrong(line, "a text contains a character that isn't allowed.")
        elif isinstance(value, float) and not math.isfinite(value):
            template.wrong(line, f"{value} is not a number here.")
        elif isinstance(value, Node):
            for name in [name for name in value if name.startswith("Fn::") and len(value) > 1]:
                template.wrong(value.lines[name], f"{name} must be the only key of its mapping.")
            if len(value) == 1:
                _check_function(template, line, *next(iter(value.items())))


def _check_function(template: Template, line: int, name: str, value: Any) -> None:
    """Note an unknown function, wrong arguments, and a name that doesn't exist."""
    if name.startswith("Fn::") and name not in SHAPES:
        template.wrong(line, f"slslab doesn't resolve {name}.")
        return
    if name not in SHAPES:
        return
    fits, what = SHAPES[name]
    if not fits(value):
        template.wrong(line, f"{name} {what}, not {json.dumps(value)[:80]}.")
        return
    known, what = {*template.section("Resources")}, "a resource"
    if name != "Fn::GetAtt":
        known |= {*template.section("Parameters"), *PSEUDO}
        what = "a resource and not a parameter"
    for named in sorted(names_in(name, value)):
        if not template.may_be(named, known):
            template.wrong(line, f"{named} is not {what} of this template.")
    if name == "Fn::If" and value[0] not in template.section("Conditions"):
        template.wrong(line, f"there is no condition {value[0]}.")
