"""Published tables and figures as data: each number as printed, its source, unit and inputs, how it follows from other
numbers, and which numbers don't add up.

Numbers keep their printed digits, so that derived figures can be checked against the rounding. Names in a file that
don't fit together are found by the tests (`tests/lab/papers/consistency.py`).
"""

from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf

from slslab.errors import RequestError
from slslab.toml_files import TomlTable, check_schema, read_toml, validate
from slslab_lab.papers.expressions import Expression

# In a wheel the files are next to this package; in a checkout they are at the repository's root.
FOLDERS = (Path(__file__).parents[1] / "published", Path(__file__).resolve().parents[3] / "papers")
SCHEMA = 1
Text = Annotated[str, Field(min_length=1)]


class PaperError(RequestError):
    """A paper's file can't be found or read."""


def _number(value: object) -> object:
    if not isinstance(value, int | Decimal) or isinstance(value, bool):
        raise ValueError(f"{value!r} is not a number")
    return Decimal(value)


def _input(value: object) -> object:
    if not isinstance(value, str | int | Decimal):
        raise ValueError(f"{value!r} is neither a number nor a text")
    return value


Number = Annotated[Decimal, BeforeValidator(_number)]
Input = Annotated[str | int | Decimal, BeforeValidator(_input)]
# Written on several lines, read as one.
Prose = Annotated[Text, AfterValidator(lambda text: " ".join(text.split()))]
Formula = Annotated[InstanceOf[Expression], BeforeValidator(Expression.parse)]


class Reference(TomlTable):
    """A number in a row of another table: one of its published columns, or one of its inputs."""

    table: Text
    row: Text
    group: str = ""
    value: Text


class Row(TomlTable):
    """One row, or one point of a figure: its setup, and the published values by column.

    A row without values is drawn in a figure, but the paper doesn't print its numbers. `group` is the part of the
    table, such as a model; rows in different groups may share a name. `note` tells readers, for example, how an input
    was found. `source` is given where it differs from the table's.
    """

    name: Text
    group: str = ""
    inputs: Mapping[str, Input] = {}
    references: Mapping[str, Reference] = {}
    published: Mapping[str, Number] = {}
    source: str = ""
    note: str = ""


class Ranking(TomlTable):
    """An order of a table's rows within each group, smallest first: by a published column, and by the first of `ways`
    in which a row can be recomputed."""

    title: Text
    column: Text
    ways: Annotated[tuple[Text, ...], Field(min_length=1)]


class Table(TomlTable):
    """A table or figure: its columns with units, published or recomputed, and the inputs that all rows share.

    `formulas[column][way]` calculates a value from a row's inputs and printed columns. A way applies to the rows that
    have all its names. `unexplained` says why a column has no formula.
    """

    title: Text
    source: Text
    units: Annotated[Mapping[str, Text], Field(min_length=1)]
    inputs: Mapping[str, Input] = {}
    references: Mapping[str, Reference] = {}
    formulas: Mapping[str, Annotated[Mapping[str, Formula], Field(min_length=1)]] = {}
    unexplained: Mapping[str, Text] = {}
    rankings: tuple[Ranking, ...] = ()
    notes: tuple[Text, ...] = ()
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]

    def inputs_of(self, row: Row) -> dict[str, str | int | Decimal]:
        """Return a row's inputs, including the shared ones."""
        return {**self.inputs, **row.inputs}

    def references_of(self, row: Row) -> dict[str, Reference]:
        """Return a row's references, including the shared ones."""
        return {**self.references, **row.references}


class Working(TomlTable):
    """One line of arithmetic: a table's formula, given by column and way, or a separate expression.

    An expression may use `inputs`, and the numbers of a row if `table` and `row` are given. `places` is the number of
    digits shown after the point. `printed` is the published value (for a formula: the one in its column).
    """

    what: Text
    table: str = ""
    row: str = ""
    group: str = ""
    column: str = ""
    way: str = ""
    expression: Formula | None = None
    inputs: Mapping[str, Number] = {}
    unit: str = ""
    places: Annotated[int, Field(ge=0, le=20)]
    printed: Number | None = None


class Discrepancy(TomlTable):
    """A wrong, contradictory or incomplete statement of a paper: where it stands, the correct statement with its
    arithmetic, and the consequence for a reproduction."""

    title: Text
    topic: Text
    where: Prose
    said: Prose
    found: Prose
    workings: tuple[Working, ...] = ()
    consequence: Prose


class Paper(TomlTable):
    """A publication: its known tables, and its discrepancies.

    `ways` describes the names of formulas in words.
    """

    schema_version: Annotated[Literal[1], Field(alias="schema")] = 1
    name: Text
    title: Text
    authors: Text
    published: Text
    ways: Mapping[str, Text] = {}
    tables: Mapping[str, Table]
    discrepancies: tuple[Discrepancy, ...] = ()

    def table(self, name: str) -> Table:
        """Return a table."""
        return self.tables[name]

    def row(self, table: str, name: str, group: str = "") -> Row:
        """Return the row with this name and group."""
        return {(row.name, row.group): row for row in self.tables[table].rows}[name, group]

    def values(self, table: str, row: Row) -> dict[str, Decimal]:
        """Return the numbers that a formula may use in this row: printed columns, inputs, and references."""
        columns = self.tables[table]
        references = columns.references_of(row).items()
        return {**_numbers(columns, row), **{name: self._resolve(reference) for name, reference in references}}

    def operands(self, working: Working) -> tuple[Expression, dict[str, Decimal]]:
        """Return the expression of a line of arithmetic, and its names' numbers."""
        values, expression = dict(working.inputs), working.expression
        if working.table:
            values = {**self.values(working.table, self.row(working.table, working.row, working.group)), **values}
            expression = expression or self.tables[working.table].formulas[working.column][working.way]
        assert expression is not None
        return expression, {name: values[name] for name in expression.names}

    def _resolve(self, reference: Reference) -> Decimal:
        row = self.row(reference.table, reference.row, reference.group)
        return _numbers(self.tables[reference.table], row)[reference.value]


def _numbers(table: Table, row: Row) -> dict[str, Decimal]:
    inputs = {name: Decimal(value) for name, value in table.inputs_of(row).items() if not isinstance(value, str)}
    return {**inputs, **row.published}


def paper_names() -> tuple[str, ...]:
    """Return the names of the known papers."""
    return tuple(sorted(path.stem for folder in FOLDERS for path in folder.glob("*.toml")))


def load_paper(name: str | Path) -> Paper:
    """Load the paper with this name, or the TOML file at this path; PaperError names the wrong entry."""
    known = next(filter(Path.is_file, (folder / f"{name}.toml" for folder in FOLDERS)), None)
    return _load(Path(name)) if known is None else _built_in(known)


def _load(path: Path) -> Paper:
    document = read_toml(path, "paper", paper_names(), PaperError, Decimal)
    check_schema(document, SCHEMA, path, "paper", PaperError)
    return validate(Paper, document, path, "paper", PaperError)


# Built-in files don't change.
_built_in = cache(_load)
