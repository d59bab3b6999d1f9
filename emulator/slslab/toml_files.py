"""Read data files in TOML (prices, profiles, papers, plans) and name the invalid entry."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from slslab.errors import RequestError

Model = TypeVar("Model", bound=BaseModel)
# TOML's integers have 64 bits, and a decimal with a large exponent would become an integer with as many digits. Our
# files are never nested this deep, and deeper ones may be too deep to show.
INTEGERS = range(-(1 << 63), 1 << 63)
MOST_DIGITS = 50
DEEPEST = 64
LONGEST = 300


class TomlTable(BaseModel):
    """A table of a data file: it has these entries and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DataFiles(Generic[Model]):
    """Data files of one kind, called `noun`: `model` checks their content. RequestError names the first invalid entry.

    Built-in files are in `folder`, and don't change. With `bases`, a file with the name of one of them as its `base`
    contains only the differences. Files have a version if `schema` isn't None.
    """

    def __init__(
        self,
        model: type[Model],
        noun: str,
        folder: Path | None = None,
        schema: int | None = None,
        parse_float: Callable[[str], Any] = float,
        bases: bool = True,
    ) -> None:
        self._model, self._noun = model, noun
        self._schema, self._parse_float, self._bases = schema, parse_float, bases
        paths = folder.glob("*.toml") if folder else ()
        self._paths = {path.stem: path for path in sorted(paths, key=lambda path: path.stem)}
        self._built_in = cache(self._load)

    def names(self) -> tuple[str, ...]:
        """Return the names of the built-in files."""
        return tuple(self._paths)

    def load(self, name: str | Path) -> Model:
        """Return the content of the built-in file of this name, or else of the TOML file at this path."""
        path = self._paths.get(str(name))
        return self._load(Path(name)) if path is None else self._built_in(path)

    def _load(self, path: Path) -> Model:
        return validate(self._model, self._read(path), path, self._noun)

    def _read(self, path: Path) -> dict[str, Any]:
        document = read_toml(path, self._noun, self.names(), self._parse_float)
        if self._schema is not None:
            check_schema(document, self._schema, path, self._noun)
            del document["schema"]
        if not self._bases or not self._paths or "base" not in document:
            return document
        base = document.pop("base")
        if not isinstance(base, str) or base not in self._paths:
            raise RequestError(
                f"The {self._noun} {path} is wrong at base: {shown(repr(base))} isn't a built-in {self._noun}.",
                f"use one of {', '.join(self._paths)}.",
            )
        return _laid_over(self._read(self._paths[base]), document)


def _laid_over(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the base's entries, replaced by `changes`; a figure or price is replaced as a whole, with its source."""
    merged = dict(base)
    for name, value in changes.items():
        below = merged.get(name)
        if isinstance(value, dict) and isinstance(below, dict) and "source" not in {*value, *below}:
            merged[name] = _laid_over(below, value)
        else:
            merged[name] = value
    return merged


def read_toml(
    path: Path,
    noun: str,
    known: Sequence[str],
    parse_float: Callable[[str], Any] = float,
) -> dict[str, Any]:
    """Return the file's content; RequestError if it is missing or not TOML.

    `noun` names its kind, `known` are built in.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=parse_float)
        _check_values(document)
    except OSError as trouble:
        hint = f"use one of {', '.join(known)}, or give the path of a TOML file." if known else "use another path."
        raise RequestError(f"There is no {noun} {str(path)!r}: {trouble.strerror}.", hint) from trouble
    except (ValueError, ArithmeticError) as trouble:
        reason = str(trouble) if isinstance(trouble, ValueError) else "it has a number that is too large"
        raise RequestError(f"The {noun} {path} is not TOML: {reason}.", "correct the file.") from trouble
    except RecursionError as trouble:
        raise RequestError(f"The {noun} {path} is nested too deep.", "correct the file.") from trouble
    return document


def check_schema(document: dict[str, Any], schema: int, path: Path, noun: str) -> None:
    """Raise RequestError for a file of another version, so that its entries don't count as wrong."""
    if document.get("schema") != schema:
        stated = f"has schema {shown(repr(document['schema']))}" if "schema" in document else "does not say its schema"
        hint = f"write it as schema = {schema}."
        raise RequestError(f"The {noun} {path} {stated}, and this version reads {schema}.", hint)


def validate(model: type[Model], document: dict[str, Any], path: Path, noun: str) -> Model:
    """Return the model of the file's content; RequestError names the first invalid entry."""
    try:
        return model.model_validate(document)
    except ValidationError as trouble:
        first = trouble.errors(include_context=False)[0]
    # Outside the block above: pydantic's error would keep all its frames alive, hidden from garbage collection.
    entry = shown(".".join(str(part) for part in first["loc"])) or "its top"
    reason = shown(first["msg"].removeprefix("Value error, ").removesuffix("."))
    raise RequestError(f"The {noun} {path} is wrong at {entry}: {reason}.", "correct that entry.")


def shown(text: str) -> str:
    """Return a text from a file as part of a sentence: on one line, and only its beginning."""
    line = "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


def _check_values(document: dict[str, Any]) -> None:
    """Raise ValueError for a number that is too large, RecursionError for a value that is nested too deep."""
    level: list[Any] = [document]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, int) and value not in INTEGERS:
                raise ValueError("an integer has more than 64 bits")
            if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) > MOST_DIGITS:
                raise ValueError(f"a number has more than {MOST_DIGITS} digits before or after the point")
            if isinstance(value, dict | list):
                inner += value.values() if isinstance(value, dict) else value
        if not inner:
            return
        level = inner
    raise RecursionError
