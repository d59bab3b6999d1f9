"""What a subject shows: cards with charts, tables and notes. `terminal` and `html` render them."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slslab.run.metrics import Records, Rows

Document = Mapping[str, Any]
# Events and invocations of a run as it is modelled.
Played = tuple[Rows, Records]


@dataclass(frozen=True)
class Key:
    """An entry of a legend; `colour` is one that page.css names."""

    label: str
    colour: str


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite specification and its data.

    `data` has columns and rows by the name that the specification gives the data. `label` says in words what is drawn,
    for readers who cannot see it; `name` is the heading. The id is the same for every run, so that a page can be kept
    up to date."""

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
    """A cell of a table; `about` stands small beneath its text, `basis` says how its number is known, `mood` whether it
    is good or bad news."""

    text: str
    about: str = ""
    basis: str = ""
    mood: str = ""
    title: str = ""


Row = Sequence[str | Cell]
# The columns of a table of words alone.
WORDS = range(100)


@dataclass(frozen=True)
class Table:
    """A table whose columns in `words` hold words, and the others numbers; `note` stands below it.

    `dispensable` are the columns that a narrow terminal leaves out, in this order; None if it breaks words instead."""

    columns: Sequence[str]
    rows: Sequence[Row]
    totals: Sequence[Row] = ()
    caption: str = ""
    words: Container[int] = (0,)
    # On a page, folded tables stand below a chart of the same numbers and are shown on demand.
    folded: bool = False
    note: str = ""
    dispensable: Sequence[str] | None = None


@dataclass(frozen=True)
class Figure:
    """A number that stands for the whole, with its basis (measured, modelled, exact ...).

    `other` is the same figure on another basis, with that basis."""

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
    verdict: Cell | None = None
    wide: bool = False
    # Its charts show one thing in several ways; buttons with their names choose which is seen.
    switched: bool = False


@dataclass(frozen=True)
class Note:
    """Sentences, and what they are: an `answer`, `muted` details, or what a reader must know before believing a number
    (`warn`, `bad`)."""

    text: str
    mood: str = "warn"


@dataclass(frozen=True)
class Page:
    """A whole page; `answers` are the sentences that a reader came for, `answers_note` what must be known of them."""

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
    """A page that is kept up to date: the addresses of its content, and of the server-sent events of changes."""

    url: str
    events: str


@dataclass(frozen=True)
class Bars:
    """Bars behind names, in one column or several, each as long as its share of the longest of its column."""

    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[float]]]


# What a terminal prints: one part, or several below each other.
Part = str | Note | Table | Bars | Card
Parts = Part | Iterable[Part]
