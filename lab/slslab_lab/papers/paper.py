"""Published tables and figures as data: each number as printed, its source, unit and inputs, how it follows from other
numbers, and which numbers don't add up.

Numbers keep their printed digits, so that derived figures can be checked against the rounding.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf, model_validator

from slslab.errors import RequestError
from slslab.toml_files import DataFiles, TomlTable
from slslab_lab.papers.expressions import Expression

# In a wheel the files are next to this package; in a checkout they are at the repository's root.
FOLDERS = (Path(__file__).parents[1] / "published", Path(__file__).resolve().parents[3] / "papers")
SCHEMA = 1
Text = Annotated[str, Field(min_length=1)]


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
    was found.
    """

    name: Text
    group: str = ""
    inputs: Mapping[str, Input] = {}
    references: Mapping[str, Reference] = {}
    published: Mapping[str, Number] = {}
    note: str = ""


class Table(TomlTable):
    """A table or figure: its columns with units, published or recomputed, and the inputs that all rows share.

    `formulas[column][way]` calculates a value from a row's inputs and printed columns. A way applies to the rows that
    have all its names. `unexplained` says why a column has no formula.
    """

    title: Text
    source: Text
    units: Annotated[Mapping[str, Text], Field(min_length=1)]
    inputs: Mapping[str, Input] = {}
    formulas: Mapping[str, Annotated[Mapping[str, Formula], Field(min_length=1)]] = {}
    unexplained: Mapping[str, Text] = {}
    notes: tuple[Text, ...] = ()
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _is_right(self) -> Self:
        if mistake := next(self._mistakes(), ""):
            raise ValueError(mistake)
        return self

    def _mistakes(self) -> Iterator[str]:
        named = (
            *((f"row {row.name!r}", column) for row in self.rows for column in row.published),
            *(("formulas", column) for column in self.formulas),
            *(("unexplained", column) for column in self.unexplained),
        )
        yield from (
            f"{where} has {column!r}, which is not a column in units"
            for where, column in named
            if column not in self.units
        )
        yield from (
            f"unexplained has {column!r}, which has formulas" for column in self.unexplained if column in self.formulas
        )
        rows = Counter((row.name, row.group) for row in self.rows)
        yield from (f"two rows are {name!r} of group {group!r}" for (name, group), count in rows.items() if count > 1)
        for row in self.rows:
            names = Counter([*row.published, *self.inputs_of(row), *row.references])
            yield from (
                f"row {row.name!r} has {name!r} twice, as columns, inputs or references"
                for name in sorted(names)
                if names[name] > 1
            )
        # The names that a formula may use in each row.
        names_by_row = [{*_numbers(self, row), *row.references} for row in self.rows]
        for column, ways in self.formulas.items():
            for way, formula in ways.items():
                yield from (
                    f"formulas.{column}.{way} names {name!r}, which is neither a column nor an input"
                    for name in sorted(set(formula.names).difference(*names_by_row))
                )
                if not any(names_of_row.issuperset(formula.names) for names_of_row in names_by_row):
                    yield f"formulas.{column}.{way} holds for no row: no row has all of its names"

    def inputs_of(self, row: Row) -> dict[str, str | int | Decimal]:
        """Return a row's inputs, including the shared ones."""
        return {**self.inputs, **row.inputs}


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

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.expression is None) != bool(self.table and self.row and self.column and self.way):
            raise ValueError("it needs either an expression, or table, row, column and way")
        if bool(self.table) != bool(self.row) or (self.expression and (self.column or self.way)):
            raise ValueError("a row needs its table, and a column and a way stand in the place of an expression")
        return self


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

    name: Text
    title: Text
    authors: Text
    published: Text
    ways: Mapping[str, Text] = {}
    tables: Mapping[str, Table]
    discrepancies: tuple[Discrepancy, ...] = ()

    @model_validator(mode="after")
    def _resolved(self) -> Self:
        for name, table in self.tables.items():
            for row in table.rows:
                for key, reference in row.references.items():
                    with _located(f"{name}, row {row.name!r}, {key!r}"):
                        self._resolve(reference)
        for number, discrepancy in enumerate(self.discrepancies):
            for place, working in enumerate(discrepancy.workings):
                with _located(f"discrepancies.{number}.workings.{place}"):
                    expression, values = self.operands(working)
                    expression.evaluate(values)
        used = {way for table in self.tables.values() for ways in table.formulas.values() for way in ways}
        if unused := sorted(set(self.ways) - used):
            raise ValueError(f"ways has {unused[0]!r}, and no formula has that name")
        return self

    def table(self, name: str) -> Table:
        """Return a table; RequestError, listing the tables, if it doesn't exist."""
        if name not in self.tables:
            raise RequestError(f"{self.name} has no table {name!r}.", f"choose one of {', '.join(self.tables)}.")
        return self.tables[name]

    def row(self, table: str, name: str, group: str = "") -> Row:
        """Return the row with this name and group; RequestError, listing the rows, if it doesn't exist."""
        rows = {(row.name, row.group): row for row in self.table(table).rows}
        if (name, group) not in rows:
            known = "; ".join(f"{row}, {part}" if part else row for row, part in rows)
            missing = f"{name!r} of group {group!r}" if group else repr(name)
            raise RequestError(f"{self.name}'s {table} has no row {missing}.", f"choose a name and group: {known}.")
        return rows[name, group]

    def values(self, table: str, row: Row) -> dict[str, Decimal]:
        """Return the numbers that a formula may use in this row: printed columns, inputs, and references."""
        references = {name: self._resolve(reference) for name, reference in row.references.items()}
        return {**_numbers(self.table(table), row), **references}

    def operands(self, working: Working) -> tuple[Expression, dict[str, Decimal]]:
        """Return the expression of a line of arithmetic, and its names' numbers; RequestError for a missing one."""
        values = dict(working.inputs)
        expression = working.expression
        if working.table:
            row = self.row(working.table, working.row, working.group)
            values = {**self.values(working.table, row), **values}
            if expression is None:
                ways = self.table(working.table).formulas.get(working.column, {})
                if working.way not in ways:
                    raise RequestError(
                        f"{working.table} has no formula {working.column}.{working.way}.", "name one that it has."
                    )
                expression = ways[working.way]
        assert expression is not None
        if missing := [name for name in expression.names if name not in values]:
            raise RequestError(f"{expression.text!r} names {missing[0]!r}, which is not there.", "add it as an input.")
        return expression, {name: values[name] for name in expression.names}

    def _resolve(self, reference: Reference) -> Decimal:
        row = self.row(reference.table, reference.row, reference.group)
        numbers = _numbers(self.table(reference.table), row)
        if reference.value not in numbers:
            raise RequestError(
                f"{reference.table}'s row {reference.row!r} has no number {reference.value!r}.",
                f"name one of {', '.join(numbers)}.",
            )
        return numbers[reference.value]


def _numbers(table: Table, row: Row) -> dict[str, Decimal]:
    inputs = {name: Decimal(value) for name, value in table.inputs_of(row).items() if not isinstance(value, str)}
    return {**inputs, **row.published}


@contextmanager
def _located(where: str) -> Iterator[None]:
    try:
        yield
    except RequestError as trouble:
        raise ValueError(f"{where}: {trouble.message.removesuffix('.')}") from trouble
    except ZeroDivisionError as trouble:
        raise ValueError(f"{where} divides by zero") from trouble


_FILES = DataFiles(Paper, "paper", next(filter(Path.is_dir, FOLDERS), None), SCHEMA, Decimal, bases=False)
paper_names, load_paper = _FILES.names, _FILES.load
