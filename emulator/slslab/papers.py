"""Published tables and figures as data: each number as printed, with its source, unit and inputs.

Numbers are decimals with the digits that were printed, so that what is printed next to them can be checked against
their rounding."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from slslab.documents import check_schema, read_toml, validate
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
    document = read_toml(path, "paper", paper_names(), PaperError, Decimal)
    check_schema(document, SCHEMA, path, "paper", PaperError)
    return validate(Paper, document, path, "paper", PaperError)
