"""Resolve what a template computes: references, attributes, texts and conditions.

https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/intrinsic-function-reference.html
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slslab.aws.arns import ACCOUNT, REGION

FUNCTIONS = frozenset(
    f"Fn::{name}"
    for name in (
        *("Base64", "FindInMap", "GetAtt", "If", "Join", "Select", "Split", "Sub"),
        *("And", "Equals", "Not", "Or"),
    )
)
PLACE = re.compile(r"\$\{(?!!)([^}]+)\}")
LITERAL = re.compile(r"\$\{!([^}]+)\}")
# What a property that is AWS::NoValue becomes: nothing.
NOTHING = object()


@dataclass
class Scope:
    """What names mean: parameters, pseudo parameters and physical ids in `refs`, attributes by resource."""

    stack: str
    refs: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, Mapping[str, str]] = field(default_factory=dict)
    mappings: Mapping[str, Any] = field(default_factory=dict)
    conditions: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.refs |= {
            "AWS::AccountId": ACCOUNT,
            "AWS::Region": REGION,
            "AWS::Partition": "aws",
            "AWS::URLSuffix": "amazonaws.com",
            "AWS::StackName": self.stack,
            "AWS::StackId": f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/{self.stack}/local",
            "AWS::NoValue": NOTHING,
        }

    def resolve(self, value: Any) -> Any:
        """Return a value without functions. Raises LookupError for a name that is not there."""
        if isinstance(value, list):
            return [found for found in map(self.resolve, value) if found is not NOTHING]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            name, given = next(iter(value.items()))
            if name == "Ref":
                return self.refs[given]
            if name in FUNCTIONS:
                return getattr(self, f"_{name[4:].lower()}")(given)
        resolved = {name: self.resolve(each) for name, each in value.items()}
        return {name: each for name, each in resolved.items() if each is not NOTHING}

    def holds(self, name: str) -> bool:
        """Return whether a condition of the template holds."""
        return bool(self._test(self.conditions[name]))

    def _test(self, condition: Any) -> Any:
        if isinstance(condition, dict) and set(condition) == {"Condition"}:
            return self.holds(condition["Condition"])
        return self.resolve(condition)

    def _base64(self, value: Any) -> str:
        return base64.b64encode(str(self.resolve(value)).encode()).decode()

    def _findinmap(self, value: Any) -> Any:
        name, first, second, *_ = self.resolve(value)
        return self.mappings[name][first][second]

    def _getatt(self, value: Any) -> str:
        resource, attribute = value.split(".", 1) if isinstance(value, str) else self.resolve(value)
        return self.attributes[resource][attribute]

    def _if(self, value: Any) -> Any:
        name, then, otherwise = value
        return self.resolve(then if self.holds(name) else otherwise)

    def _join(self, value: Any) -> str:
        separator, parts = self.resolve(value)
        return str(separator).join(map(str, parts))

    def _select(self, value: Any) -> Any:
        index, parts = self.resolve(value)
        return parts[int(index)]

    def _split(self, value: Any) -> list[str]:
        separator, text = self.resolve(value)
        return str(text).split(separator)

    def _sub(self, value: Any) -> str:
        text, own = (value, {}) if isinstance(value, str) else value
        names = {name: self.resolve(each) for name, each in own.items()}

        def found(match: "re.Match[str]") -> str:
            name = match[1].strip()
            if name in names:
                return str(names[name])
            resource, dot, attribute = name.partition(".")
            return str(self.attributes[resource][attribute] if dot else self.refs[name])

        return LITERAL.sub(r"${\1}", PLACE.sub(found, text))

    def _equals(self, value: Any) -> bool:
        one, other = self.resolve(value)
        return str(one) == str(other)

    def _and(self, value: Any) -> bool:
        return all(map(self._test, value))

    def _or(self, value: Any) -> bool:
        return any(map(self._test, value))

    def _not(self, value: Any) -> bool:
        return not self._test(value[0])


def names_in(sub: Any) -> set[str]:
    """Return the resources and parameters that a Fn::Sub names."""
    text, own = (sub, {}) if isinstance(sub, str) else (sub[0], sub[1]) if isinstance(sub, list) else ("", {})
    return {found.strip().partition(".")[0] for found in PLACE.findall(str(text))} - set(own)


def references(value: Any) -> set[str]:
    """Return the names that a value refers to."""
    if isinstance(value, list):
        return set().union(*map(references, value))
    if not isinstance(value, dict):
        return set()
    found: set[str] = set()
    for name, given in value.items():
        if name == "Ref":
            found.add(str(given))
        elif name == "Fn::GetAtt":
            found.add(given.split(".")[0] if isinstance(given, str) else str(given[0]))
        elif name == "Fn::Sub":
            found |= names_in(given)
            found |= references(given)
        else:
            found |= references(given)
    return found
