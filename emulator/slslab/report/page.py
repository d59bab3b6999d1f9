"""Parts of pages and terminal output: cards with charts, tables and notes. `terminal` and `html` render them."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slslab.report.formats import MISSING
from slslab.run.metrics import Records, Rows

Document = Mapping[str, Any]
# Events and invocations of a modelled run.
Played = tuple[Rows, Records]


@dataclass(frozen=True)
class Key:
    """An entry of a legend; `colour` is a name from page.css."""

    label: str
    colour: str


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite specification and its data.

    `data` has columns and rows by the names in the specification. `label` describes the chart for readers who can't
    see it; `name` is the heading. The id is the same for every run, so that a live page can be updated."""

    id: str
    label: str
    spec: Mapping[str, Any]
    data: Mapping[str, "Data"]
    legend: tuple[Key, ...] = ()
    caption: str = ""
    name: str = ""


@dataclass(frozen=True)
class Data:
    """Rows of a chart's data, without repeating the names of their columns."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[str | int | float | None]]


@dataclass(frozen=True)
class Cell:
    """A cell of a table. `about` is small print below its text, `mood` whether it is good or bad news."""

    text: str
    about: str = ""
    mood: str = ""
    title: str = ""


Row = Sequence[str | Cell]
# For `words` of a table without numbers.
WORDS = range(100)


@dataclass(frozen=True)
class Table:
    """A table with a `note` below it. Columns in `words` contain words, the others numbers.

    A narrow terminal omits the `dispensable` columns, in this order; with None it breaks words instead."""

    columns: Sequence[str]
    rows: Sequence[Row]
    totals: Sequence[Row] = ()
    caption: str = ""
    words: Container[int] = (0,)
    # On a page, folded tables are below a chart of the same numbers and open on demand.
    folded: bool = False
    note: str = ""
    dispensable: Sequence[str] | None = None

    def filled(self) -> "Table":
        """Return the table without columns that are empty in all rows."""
        empty = {"", MISSING, Cell(MISSING)}
        return self.with_columns(n for n in range(len(self.columns)) if not {row[n] for row in self.rows} <= empty)

    def with_columns(self, numbers: Iterable[int]) -> "Table":
        """Return the table with these columns."""
        kept = list(numbers)
        return replace(
            self,
            columns=[self.columns[number] for number in kept],
            rows=[[row[number] for number in kept] for row in self.rows],
            totals=[[row[number] for number in kept] for row in self.totals],
            words=[place for place, number in enumerate(kept) if number in self.words],
        )


@dataclass(frozen=True)
class Figure:
    """A key figure with its basis (measured, modelled, exact ...).

    `other` is the same figure on another basis, and that basis."""

    title: str
    value: str
    basis: str
    note: str = ""
    other: tuple[str, str] | None = None


@dataclass(frozen=True)
class Card:
    """A part of a page with a heading."""

    id: str
    title: str
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    wide: bool = False
    # Its charts show the same data in several ways; buttons switch between them.
    switched: bool = False


@dataclass(frozen=True)
class Note:
    """Sentences, and their kind: an `answer`, `muted` details, or a caveat on the numbers (`warn`, `bad`)."""

    text: str
    mood: str = "warn"


@dataclass(frozen=True)
class Page:
    """A whole page; `answers` are its main sentences, `answers_note` caveats on them."""

    title: str
    subtitle: str
    cards: tuple[Card, ...]
    answers: tuple[str, ...] = ()
    answers_note: str = ""
    status: str = ""
    chips: tuple[str, ...] = ()
    warnings: tuple[Note, ...] = ()
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Live:
    """The URL from which a live page gets its content, and the URL of server-sent events about changes."""

    url: str
    events: str


# What a terminal prints: one part, or several below each other.
Part = str | Note | Table | Card
Parts = Part | Iterable[Part]
