"""What a page is made of: cards with charts, tables and notes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Key:
    """An entry of a legend; `colour` is one of those that page.css names."""

    label: str
    colour: str


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite specification and its data.

    `data` has columns and rows by the name that the specification gives the data. `label` says in words what is drawn,
    for those who do not see it; `name` stands above. The id is the same for every run, so that a page can be brought up
    to date."""

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


@dataclass(frozen=True)
class Table:
    """A table whose first column and those in `words` hold words, and the others numbers."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[str | Cell]]
    total: Sequence[str | Cell] = ()
    caption: str = ""
    words: frozenset[int] = frozenset({0})
    # Beneath a chart of the same numbers, shown on demand.
    folded: bool = False


@dataclass(frozen=True)
class Figure:
    """A number that stands for the whole, with how it is known (measured, modelled, exact ...).

    `other` is the same figure known in another way, with that way."""

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


@dataclass(frozen=True)
class Caution:
    """What must be known before a number is believed."""

    text: str
    mood: str = "warn"


@dataclass(frozen=True)
class Page:
    """A whole page."""

    title: str
    subtitle: str
    cards: tuple[Card, ...]
    status: str = ""
    chips: tuple[str, ...] = ()
    warnings: tuple[Caution, ...] = ()
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Live:
    """A page that is brought up to date: where its content is fetched from, and where server-sent events tell of
    changes."""

    url: str
    events: str
