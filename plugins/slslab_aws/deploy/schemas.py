"""CloudFormation's schema of each type: its properties, their types and limits, and its attributes.

`schemas.json` contains the schemas of AWS's registry for the types that slslab deploys, with their source.
https://docs.aws.amazon.com/cloudformation-cli/latest/userguide/resource-type-schema.html
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from ipaddress import ip_network
from typing import Any

FILE = files("slslab_aws.deploy") / "schemas.json"
INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
NUMBER = re.compile(r"[+-]?\d{1,18}(\.\d{1,18})?([eE][+-]?\d{1,2})?", re.ASCII)
# Messages contain values, which may be long.
SHOWN = 1000
Path = tuple[str | int, ...]


@cache
def document() -> dict[str, Any]:
    """Return the `source` of the schemas, and the `types`: JSON Schema with CloudFormation's additions."""
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def schema_of(kind: str) -> dict[str, Any]:
    """Return the schema of a type."""
    schema: dict[str, Any] = document()["types"][kind]
    return schema


def properties_of(kind: str) -> frozenset[str]:
    """Return the properties that a template may give a resource of this type on AWS."""
    schema = schema_of(kind)
    return frozenset(schema["properties"]) - _top(schema, "readOnlyProperties")


def fixed_properties(kind: str) -> frozenset[str]:
    """Return the properties that can only be changed by replacing the resource."""
    return _top(schema_of(kind), "createOnlyProperties")


def _top(schema: Mapping[str, Any], name: str) -> frozenset[str]:
    pointers = [pointer.split("/")[2:] for pointer in schema.get(name, ())]
    return frozenset(path[0] for path in pointers if len(path) == 1)


def text_of(value: Any) -> str:
    """Return a scalar of a template as text, as CloudFormation passes it to text properties."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def convert(kind: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties with each scalar converted to its property's type, and a mapping in JSON to a mapping.

    Values that can't be converted stay.
    """
    schema = schema_of(kind)
    return dict(_converted(schema, schema, properties))


def _converted(root: Mapping[str, Any], schema: Mapping[str, Any], value: Any) -> Any:
    schema = _followed(root, schema)
    if isinstance(value, dict):
        return {name: _converted(root, _member(schema, name), each) for name, each in value.items()}
    if isinstance(value, list):
        items = schema.get("items")
        return [_converted(root, items if isinstance(items, dict) else {}, each) for each in value]
    types = schema.get("type", ())
    types = {types} if isinstance(types, str) else set(types)
    if value is None:
        return None
    if isinstance(value, str):
        if {"object", "string"} <= types:
            with suppress(ValueError, RecursionError):
                if isinstance(found := json.loads(value), dict):
                    return _converted(root, schema, found)
        if "string" in types:
            return value
        if "integer" in types and INTEGER.fullmatch(value):
            return int(value)
        if "number" in types and NUMBER.fullmatch(value):
            return float(value)
        if "boolean" in types and value.lower() in ("true", "false"):
            return value.lower() == "true"
        return value
    if isinstance(value, bool):
        return text_of(value) if "string" in types and "boolean" not in types else value
    if isinstance(value, float) and value.is_integer() and "integer" in types:
        return int(value)
    return text_of(value) if "string" in types and not types & {"integer", "number"} else value


def _followed(root: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in schema:
        definition: Any = root
        for name in schema["$ref"].split("/")[1:]:
            definition = definition[name]
        schema = {**definition, **{name: each for name, each in schema.items() if name != "$ref"}}
    return schema


def _member(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    if name in schema.get("properties", {}):
        return dict(schema["properties"][name])
    patterns = schema.get("patternProperties", {}).items()
    found = next((each for pattern, each in patterns if re.search(pattern, name)), schema.get("additionalProperties"))
    return found if isinstance(found, dict) else {}


def violations(schema: Mapping[str, Any], value: Any, title: str) -> Iterator[tuple[Path, str]]:
    """Yield where a value breaks a schema's rules, and how, in jsonschema's words; `title` stands for the value."""
    from jsonschema import Draft7Validator, FormatChecker

    formats = FormatChecker(())
    formats.checks("cidr", ValueError)(lambda text: not isinstance(text, str) or ip_network(text, strict=False))
    for error in Draft7Validator(schema, format_checker=formats).iter_errors(value):
        path: Path = tuple(error.absolute_path)
        if "propertyNames" in error.absolute_schema_path:
            path = (*path, error.instance)
        message = error.message
        if len(message) > SHOWN:
            message = f"{message[: SHOWN // 2]}…{message[-SHOWN // 2 :]}"
        yield path, f"{'.'.join(map(str, path)) or title}: {message}"


def closest(root: Any, path: Sequence[str | int], line: int) -> int:
    """Return the line of the deepest mapping key on a path that is in the template itself."""
    for name in path:
        lines = getattr(root, "lines", {})
        line = lines.get(name, line)
        try:
            root = root[name]
        except (LookupError, TypeError):
            return line
    return line
