"""Resolve a template's computed values: references, attributes, texts and conditions.

https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/intrinsic-function-reference.html
"""

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.limits import MB
from slslab_aws.deploy.schemas import text_of

# Functions that are conditions.
TESTS = frozenset({"Fn::And", "Fn::Equals", "Fn::Not", "Fn::Or"})
# The arguments of each function, and the sentence for wrong ones.
SHAPES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "Ref": (lambda given: isinstance(given, str), "takes a name"),
    "Fn::GetAtt": (
        lambda given: _is_pair(given, str, (str, dict)) or (isinstance(given, str) and "." in given),
        "takes the name of a resource and of an attribute",
    ),
    "Fn::Sub": (lambda given: _is_sub(given), "takes a text, or a list of a text and a mapping"),
    "Fn::Join": (lambda given: _is_pair(given, str), "takes a list of a delimiter and a list"),
    "Fn::Split": (
        lambda given: _is_pair(given, str, (str, dict)) and given[0] != "",
        "takes a list of a delimiter and a text",
    ),
    "Fn::Select": (lambda given: _is_pair(given, (int, str, dict)), "takes a list of an index and a list"),
    "Fn::FindInMap": (
        lambda given: _is_list(given, 3, 3) and not any(isinstance(each, list) for each in given),
        "takes a list of the names of a mapping and of two keys",
    ),
    "Fn::If": (
        lambda given: _is_list(given, 3, 3) and isinstance(given[0], str),
        "takes a list of the name of a condition and two values",
    ),
    "Fn::Base64": (lambda given: isinstance(given, str | dict), "takes a text"),
    "Fn::Equals": (lambda given: _is_list(given, 2, 2), "takes a list of two values"),
    "Fn::And": (lambda given: _is_list(given, 2, 10, dict), "takes a list of 2 to 10 conditions"),
    "Fn::Or": (lambda given: _is_list(given, 2, 10, dict), "takes a list of 2 to 10 conditions"),
    "Fn::Not": (lambda given: _is_list(given, 1, 1, dict), "takes a list of one condition"),
}
PLACE = re.compile(r"\$\{(?!!)([^}]+)\}")
LITERAL = re.compile(r"\$\{!([^}]+)\}")
# documented: the longest text of a property is ZipFile's, 4 MB (AWS::Lambda::Function Code).
LONGEST_TEXT = 4 * MB
# assumed: conditions refer to a few others; Python's own limit must not be reached.
DEEPEST = 100
# The value of a property that is AWS::NoValue: it is dropped.
NOTHING = object()


class Unresolvable(Exception):
    """A template's value can't be resolved; the message is a sentence without its full stop."""


def _is_list(given: Any, least: int, most: int, kind: Any = object) -> bool:
    return isinstance(given, list) and least <= len(given) <= most and all(isinstance(each, kind) for each in given)


def _is_pair(given: Any, first: Any, second: Any = (list, dict)) -> bool:
    return _is_list(given, 2, 2) and isinstance(given[0], first) and isinstance(given[1], second)


def _is_sub(given: Any) -> bool:
    return isinstance(given, str) or (_is_pair(given, str, dict) and all(isinstance(name, str) for name in given[1]))


@dataclass
class Scope:
    """The meaning of names: parameters, pseudo parameters and physical ids in `refs`, attributes by resource."""

    stack: str
    refs: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, Mapping[str, str]] = field(default_factory=dict)
    mappings: Mapping[str, Any] = field(default_factory=dict)
    conditions: Mapping[str, Any] = field(default_factory=dict)
    _held: dict[str, bool] = field(default_factory=dict)
    _testing: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.refs |= {
            "AWS::AccountId": ACCOUNT,
            "AWS::Region": REGION,
            "AWS::Partition": "aws",
            "AWS::URLSuffix": "amazonaws.com",
            "AWS::StackName": self.stack,
            "AWS::StackId": f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/{self.stack}/local",
            "AWS::NotificationARNs": [],
            "AWS::NoValue": NOTHING,
        }

    def resolve(self, value: Any) -> Any:
        """Return a value without functions. Raises Unresolvable."""
        if isinstance(value, list):
            return [found for found in map(self.resolve, value) if found is not NOTHING]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            name, given = next(iter(value.items()))
            if name in SHAPES:  # the template's are checked
                return getattr(self, f"_{name.removeprefix('Fn::').lower()}")(given)
        resolved = {name: self.resolve(each) for name, each in value.items()}
        return {name: each for name, each in resolved.items() if each is not NOTHING}

    def holds(self, name: str) -> bool:
        """Return whether a condition of the template holds. Raises Unresolvable."""
        if not isinstance(name, str) or name not in self.conditions:
            raise Unresolvable(f"there is no condition {name}")
        if name in self._testing:
            raise Unresolvable(f"the condition {name} refers to itself")
        if len(self._testing) > DEEPEST:
            raise Unresolvable(f"conditions refer to each other more than {DEEPEST} deep")
        if name not in self._held:
            self._testing.append(name)
            try:
                self._held[name] = self._test(self.conditions[name])
            finally:
                self._testing.pop()
        return self._held[name]

    def _test(self, condition: Any) -> bool:
        if isinstance(condition, dict) and len(condition) == 1:
            name, given = next(iter(condition.items()))
            if name == "Condition":
                return self.holds(given)
            if name in TESTS:
                return bool(self.resolve(condition))
        raise Unresolvable("a condition is one of Condition, Fn::And, Fn::Equals, Fn::Not and Fn::Or")

    def _text(self, value: Any, what: str) -> str:
        resolved = self.resolve(value)
        if isinstance(resolved, dict | list) or resolved in (None, NOTHING):
            raise Unresolvable(f"{what} takes texts, not {_kind(resolved)}")
        return text_of(resolved)

    def _ref(self, name: str) -> Any:
        if name not in self.refs:
            raise Unresolvable(f"{name} is not a parameter, and not a resource that this deployment makes")
        return self.refs[name]

    def _base64(self, value: Any) -> str:
        return base64.b64encode(self._text(value, "Fn::Base64").encode()).decode()

    def _findinmap(self, value: list[Any]) -> Any:
        names = [self._text(each, "Fn::FindInMap") for each in value]
        found: Any = self.mappings
        for name in names:
            if not isinstance(found, dict) or name not in found:
                raise Unresolvable(f"there is no {'.'.join(names)} in Mappings")
            found = found[name]
        return found

    def _getatt(self, value: Any) -> str:
        resource, attribute = value.split(".", 1) if isinstance(value, str) else value
        attribute = self._text(attribute, "Fn::GetAtt")
        if resource not in self.attributes:
            raise Unresolvable(f"{resource} is not a resource that this deployment makes")
        if attribute not in self.attributes[resource]:
            known = ", ".join(sorted(self.attributes[resource])) or "none"
            raise Unresolvable(f"{resource} has no attribute {attribute} here; it has {known}")
        return self.attributes[resource][attribute]

    def _if(self, value: list[Any]) -> Any:
        name, then, otherwise = value
        return self.resolve(then if self.holds(name) else otherwise)

    def _join(self, value: list[Any]) -> str:
        delimiter, parts = value[0], self._list(value[1], "Fn::Join")
        return _bounded(delimiter, [self._text(part, "Fn::Join") for part in parts])

    def _select(self, value: list[Any]) -> Any:
        index, parts = self._text(value[0], "Fn::Select"), self._list(value[1], "Fn::Select")
        if not (index.isascii() and index.isdigit() and len(index) < 6 and int(index) < len(parts)):
            raise Unresolvable(f"Fn::Select asks for the item {index} of a list that has {len(parts)}, from 0 on")
        return parts[int(index)]

    def _list(self, value: Any, what: str) -> list[Any]:
        resolved = self.resolve(value)
        if not isinstance(resolved, list):
            raise Unresolvable(f"{what} takes a list, not {_kind(resolved)}")
        return resolved

    def _split(self, value: list[Any]) -> list[str]:
        return self._text(value[1], "Fn::Split").split(value[0])

    def _sub(self, value: Any) -> str:
        text, own = (value, {}) if isinstance(value, str) else value
        names = {name: self._text(each, "Fn::Sub") for name, each in own.items()}
        parts = PLACE.split(text)
        for number in range(1, len(parts), 2):
            parts[number] = self._named(parts[number].strip(), names)
        return LITERAL.sub(r"${\1}", _bounded("", parts))

    def _named(self, name: str, own: Mapping[str, str]) -> str:
        if name in own:
            return own[name]
        resource, dot, attribute = name.partition(".")
        return self._text({"Fn::GetAtt": [resource, attribute]} if dot else {"Ref": name}, "Fn::Sub")

    def _equals(self, value: list[Any]) -> bool:
        one, other = (self._text(each, "Fn::Equals") for each in value)
        return one == other

    def _and(self, value: list[Any]) -> bool:
        held = [self._test(each) for each in value]  # evaluate all, so that all are checked
        return all(held)

    def _or(self, value: list[Any]) -> bool:
        held = [self._test(each) for each in value]
        return any(held)

    def _not(self, value: list[Any]) -> bool:
        return not self._test(value[0])


# The names of pseudo parameters.
PSEUDO = frozenset(Scope("").refs)


def _bounded(delimiter: str, parts: list[str]) -> str:
    if sum(map(len, parts)) + len(delimiter) * len(parts) > LONGEST_TEXT:
        raise Unresolvable(f"a text has more than {LONGEST_TEXT // MB} MB")
    return delimiter.join(parts)


def _kind(value: Any) -> str:
    if value is None or value is NOTHING:
        return "nothing"
    return "a list" if isinstance(value, list) else "a mapping" if isinstance(value, dict) else "a text"


def names_in(function: str, given: Any) -> set[str]:
    """Return the resources and parameters that a function itself names, not one inside it."""
    if function == "Ref" and isinstance(given, str):
        return {given}
    if function == "Fn::GetAtt" and isinstance(given, str | list) and given:
        return {given.partition(".")[0] if isinstance(given, str) else str(given[0])}
    if function != "Fn::Sub" or not _is_sub(given):
        return set()
    text, own = (given, {}) if isinstance(given, str) else given
    return {name.partition(".")[0] for name in map(str.strip, PLACE.findall(text)) if name not in own}


def references(value: Any) -> set[str]:
    """Return the names that a value refers to."""
    if isinstance(value, list):
        return set().union(*map(references, value))
    if not isinstance(value, dict):
        return set()
    found: set[str] = set()
    for name, given in value.items():
        found |= names_in(name, given) | references(given)
    return found
