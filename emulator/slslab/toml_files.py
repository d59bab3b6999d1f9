"""Read data files in TOML (prices, profiles, papers, plans) and name the entry that is wrong."""

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from slslab.errors import RequestError

Model = TypeVar("Model", bound=BaseModel)


def read_toml(
    path: Path,
    noun: str,
    known: Sequence[str],
    error: type[RequestError],
    parse_float: Callable[[str], Any] = float,
) -> dict[str, Any]:
    """Return the file's content; `error` if it is missing or not TOML. `noun` says what it is, `known` are built in."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"), parse_float=parse_float)
    except OSError as trouble:
        hint = f"name one of {', '.join(known)}, or give the path of a TOML file." if known else "give another path."
        raise error(f"There is no {noun} {str(path)!r}: {trouble.strerror}.", hint) from trouble
    except ValueError as trouble:
        raise error(f"The {noun} {path} is not TOML: {trouble}.", "correct the file.") from trouble


def check_schema(document: dict[str, Any], schema: int, path: Path, noun: str, error: type[RequestError]) -> None:
    """Raise `error` for a file of another version, whose entries are not wrong but unknown."""
    if document.get("schema") != schema:
        stated = f"has schema {document['schema']!r}" if "schema" in document else "does not say its schema"
        raise error(f"The {noun} {path} {stated}, and this version reads {schema}.", f"write it as schema = {schema}.")


def validate(model: type[Model], document: dict[str, Any], path: Path, noun: str, error: type[RequestError]) -> Model:
    """Return the model of the file's content; `error` names the first entry that is wrong."""
    try:
        return model.model_validate(document)
    except ValidationError as trouble:
        first = trouble.errors()[0]
        entry = ".".join(str(part) for part in first["loc"]) or "its top"
        reason = first["msg"].removeprefix("Value error, ")
        raise error(f"The {noun} {path} is wrong at {entry}: {reason}.", "correct that entry.") from trouble
