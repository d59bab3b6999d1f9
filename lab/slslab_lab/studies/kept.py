"""Files of measurements, with the entries that all of them have."""

import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field

from slslab.errors import RequestError
from slslab.toml_files import TomlTable, check_schema, validate

Entries = TypeVar("Entries", bound=BaseModel)


class Kept(TomlTable):
    """Measurements of one command: the day, the command (empty in older files), the host and the versions."""

    schema_version: Annotated[Literal[1], Field(alias="schema")] = 1
    measured: date
    command: str = ""
    host: Mapping[str, str | int]
    versions: Mapping[str, str]

    def about(self, *results: str) -> dict[str, Any]:
        """Return the entries for a document, without the results."""
        return self.model_dump(mode="json", by_alias=True, exclude=set(results))

    @property
    def origin(self) -> str:
        """Return in words when, on how many processors and with which versions it was measured."""
        versions = (f"{name} {number}" for name, number in self.versions.items() if number != "none")
        return ", ".join((f"{self.measured}", f"{self.host['cores']} processors", *versions))


def made_now() -> dict[str, Any]:
    """Return the common entries of results that this command measures now."""
    return {"measured": datetime.now(UTC).date(), "command": typed_command(), "host": host(), "versions": versions()}


def typed_command() -> str:
    """Return this command as it was typed."""
    name = Path(sys.argv[0]).name
    return shlex.join(["slslab" if name == "__main__.py" else name, *sys.argv[1:]])


def host() -> dict[str, str | int]:
    """Return the properties of this host that figures depend on."""
    return {
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """Return the versions of the computing libraries."""
    return {**{name: version(name) for name in ("torch", "numpy")}, "python": platform.python_version()}


def read_entries(path: Path, entries: type[Entries], schema: int, what: str, hint: str) -> Entries:
    """Return a JSON file's validated entries; RequestError if it can't be read, or for the first wrong entry."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"The {what} {path} cannot be read: {error.strerror}.", hint) from error
    except ValueError as error:
        raise RequestError(f"The {what} {path} is not JSON: {error}.", hint) from error
    if not isinstance(document, dict):
        raise RequestError(f"The {what} {path} has no entries.", hint)
    check_schema(document, schema, path, what)
    return validate(entries, document, path, what)
