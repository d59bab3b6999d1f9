"""Read a template with the lines of its parts, and say what is wrong with it before anything is made.

https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/template-anatomy.html
"""

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from slslab.deploy.intrinsics import FUNCTIONS, names_in
from slslab.errors import RequestError

SECTIONS = (
    *("AWSTemplateFormatVersion", "Transform", "Description", "Metadata", "Globals", "Parameters", "Mappings"),
    *("Conditions", "Resources", "Outputs"),
)
SERVERLESS = "AWS::Serverless-2016-10-31"
PSEUDO = (
    *("AWS::AccountId", "AWS::NoValue", "AWS::Partition", "AWS::Region", "AWS::StackId", "AWS::StackName"),
    "AWS::URLSuffix",
)
# The short forms of functions whose long form does not begin with `Fn::`.
BARE = ("Ref", "Condition")


class Node(dict[str, Any]):
    """A mapping of a template; `lines` has the line of each key, from 1 on."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}


class _Loader(yaml.SafeLoader):
    """Makes nodes of mappings, and the long form of CloudFormation's short functions."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> Node:
    made = Node()
    for key, value in node.value:
        name = str(loader.construct_object(key, deep=True))
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
        assert isinstance(node, yaml.MappingNode)
        value = _mapping(loader, node)
    if suffix == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    made, name = Node(), suffix if suffix in BARE else f"Fn::{suffix}"
    made[name], made.lines[name] = value, node.start_mark.line + 1
    return made


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Loader.add_multi_constructor("!", _function)
# A date in a template is a text, as the version of its format.
_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda _loader, node: str(node.value))


@dataclass
class Template:
    """A template as it is written, and what is wrong with it: a line and a sentence each."""

    path: Path
    root: Node
    problems: list[tuple[int, str]] = field(default_factory=list)

    def section(self, name: str) -> Node:
        """Return a section; an empty one if the template has none."""
        found = self.root.get(name)
        return found if isinstance(found, Node) else Node()

    def line(self, logical_id: str) -> int:
        """Return the line of a resource, or of the one that an expanded resource comes from."""
        lines = self.section("Resources").lines
        sources = [name for name in lines if logical_id.startswith(name)]
        return lines[max(sources, key=len)] if sources else 1

    def may_be(self, name: str, known: Set[str]) -> bool:
        """Return whether a name is known, or one that the expansion of a serverless resource may make."""
        resources = self.section("Resources").items()
        serverless = [each for each, it in resources if str(it.get("Type")).startswith("AWS::Serverless::")]
        return name in known or name.partition(".")[0].startswith(tuple(serverless))

    def wrong(self, line: int, message: str) -> None:
        """Note something that is wrong."""
        self.problems.append((line, message))

    def raise_problems(self) -> None:
        """Raise RequestError with all that is wrong, in the order of its lines."""
        if self.problems:
            told = [f"{self.path}:{line}: {message}" for line, message in sorted(set(self.problems))]
            count = f"{len(told)} mistakes" if len(told) > 1 else "a mistake"
            raise RequestError(f"The template has {count}; nothing was made.\n" + "\n".join(told), "mend the lines.")


def read_template(path: Path) -> Template:
    """Return the template of a file, YAML or JSON; RequestError if it is neither."""
    try:
        # As yaml.safe_load, this loader makes nothing but plain values, and the nodes above.
        root = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise RequestError(f"The template {path} cannot be read: {error.strerror}.", "name its file.") from error
    except (yaml.MarkedYAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        reason = getattr(error, "problem", None) or "it is not UTF-8"
        raise RequestError(f"{where}: this is not YAML: {reason}.", "mend the line.") from error
    if not isinstance(root, Node):
        raise RequestError(f"{path} is not a template.", "it has a mapping `Resources`.")
    template = Template(path, root)
    _check_sections(template)
    for line, value in walk(root, 1):
        if isinstance(value, Node) and len(value) == 1:
            _check_function(template, line, *next(iter(value.items())))
    return template


def walk(value: Any, line: int) -> Iterator[tuple[int, Any]]:
    """Yield every value below one, with its line."""
    yield line, value
    if isinstance(value, Node):
        for name, each in value.items():
            yield from walk(each, value.lines[name])
    elif isinstance(value, list):
        for each in value:
            yield from walk(each, line)


def _check_sections(template: Template) -> None:
    root = template.root
    for name, line in root.lines.items():
        if name not in SECTIONS:
            template.wrong(line, f"there is no section {name}.")
    if root.get("Transform") not in (None, SERVERLESS, [SERVERLESS]):
        template.wrong(root.lines["Transform"], f"of transforms there is {SERVERLESS} alone.")
    if not template.section("Resources"):
        template.wrong(1, "the template has no Resources.")
    for name, resource in template.section("Resources").items():
        line = template.section("Resources").lines[name]
        if not isinstance(resource, Node) or not isinstance(resource.get("Type"), str):
            template.wrong(line, f"the resource {name} has no Type.")
        elif not isinstance(resource.get("Properties", Node()), Node):
            template.wrong(line, f"the Properties of {name} are not a mapping.")


def _check_function(template: Template, line: int, name: str, value: Any) -> None:
    """Note a function that there is not, and a name that leads nowhere."""
    if name.startswith("Fn::") and name not in FUNCTIONS:
        template.wrong(line, f"{name} is not resolved here.")
        return
    known = {*template.section("Resources"), *template.section("Parameters"), *PSEUDO}
    if name == "Ref" and isinstance(value, str) and not template.may_be(value, known):
        template.wrong(line, f"{value} is not a resource and not a parameter of this template.")
    attribute_of = str(value[0]) if name == "Fn::GetAtt" and isinstance(value, list) and value else ""
    if attribute_of and not template.may_be(attribute_of, set(template.section("Resources"))):
        template.wrong(line, f"{attribute_of} is not a resource of this template.")
    if name == "Fn::If" and isinstance(value, list) and value and value[0] not in template.section("Conditions"):
        template.wrong(line, f"there is no condition {value[0]}.")
    if name == "Fn::Sub":
        for missing in sorted(names_in(value)):
            if not template.may_be(missing, known):
                template.wrong(line, f"{missing} is not a resource and not a parameter of this template.")
