"""Check values of templates and requests by JSON schemas."""

from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from typing import Any

# Messages contain values, which may be long.
SHOWN = 1000
Path = tuple[str | int, ...]


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
