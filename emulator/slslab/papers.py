"""Published tables and figures as data: each number as printed, with its source, unit and inputs.

Numbers are decimals with the digits that were printed, so that what is printed next to them can be checked against
their rounding."""

import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from slslab.errors import RequestError

# In a wheel beside this module, in a checkout at the repository's root.
FOLDERS = (Path(__file__).parent / "published", Path(__file__).resolve().parents[2] / "papers")
SCHEMA = 1
Text = Annotated[str, Field(min_length=1)]


class PaperError(RequestError):
    """A paper's file that cannot be found or read, or a table that it does not have."""


def _number(value: object) -> object:
    if not isinstance(value, int | Decimal) or isinstance(value, bool):
        raise ValueError(f"{value!r} is no number")
    return Decimal(value)


def _input(value: object) -> object:
    if not isinstance(value, str | int | Decimal):
        raise ValueError(f"{value!r} is neither a number nor a text")
    return value


Number = Annotated[Decimal, BeforeValidator(_number)]
Input = Annotated[str | int | Decimal, BeforeValidator(_input)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Row(_Entry):
    """One row, or one point of a figure: what it was measured on, and the published values by column.

    A row without values is one that a figure draws and no text gives in numbers. `note` is what must be known of it,
    such as how an input was found out; `source` stands where it differs from the table's."""

    name: Text
    inputs: Mapping[str, Input] = {}
    published: Mapping[str, Number] = {}
    source: str = ""
    note: str = ""


class Table(_Entry):
    """A table or figure: the columns of published values with their units, and inputs that all rows share."""

    title: Text
    source: Text
    units: Annotated[Mapping[str, Text], Field(min_length=1)]
    inputs: Mapping[str, Input] = {}
    notes: tuple[Text, ...] = ()
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _columns(self) -> Self:
        for row in self.rows:
            for column in row.published:
                if column not in self.units:
                    raise ValueError(f"row {row.name!r} has {column!r}, which is none of the columns in units")
        return self

    def inputs_of(self, row: Row) -> dict[str, str | int | Decimal]:
        """A row's inputs with those that all rows share."""
        return {**self.inputs, **row.inputs}


class Paper(_Entry):
    """A publication and those of its tables that are known."""

    schema_version: Annotated[Literal[1], Field(alias="schema")] = 1
    name: Text
    title: Text
    authors: Text
    published: Text
    tables: Mapping[str, Table]

    def table(self, name: str) -> Table:
        """One of its tables; PaperError names those that there are."""
        if name not in self.tables:
            raise PaperError(f"{self.name} has no table {name!r}.", f"choose one of {', '.join(self.tables)}.")
        return self.tables[name]


def paper_names() -> tuple[str, ...]:
    """The names of the known papers."""
    return tuple(sorted(path.stem for folder in FOLDERS for path in folder.glob("*.toml")))


def load_paper(name: str | Path) -> Paper:
    """The paper of this name, or else the one in the TOML file at this path; PaperError names the entry."""
    built_in = [folder / f"{name}.toml" for folder in FOLDERS]
    path = next((path for path in built_in if path.is_file()), Path(name))
    try:
        return Paper.model_validate(_read(path))
    except ValidationError as error:
        first = error.errors()[0]
        entry = ".".join(str(part) for part in first["loc"]) or "its top"
        raise PaperError(
            f"The paper {path} is wrong at {entry}: {first['msg'].removeprefix('Value error, ')}.", "correct it."
        ) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except OSError as error:
        raise PaperError(
            f"There is no paper {str(path)!r}: {error.strerror}.",
            f"name one of {', '.join(paper_names())}, or give the path of a TOML file.",
        ) from error
    except ValueError as error:
        raise PaperError(f"The paper {path} is not TOML: {error}.", "correct the file.") from error
    # Looked at first: another version's entries are not wrong, they are unknown.
    if document.get("schema") != SCHEMA:
        found = f"has schema {document['schema']!r}" if "schema" in document else "does not say its schema"
        raise PaperError(f"The paper {path} {found}, and this version reads {SCHEMA}.", f"write schema = {SCHEMA}.")
    return document
