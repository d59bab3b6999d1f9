"""A table of AllReduce and ScatterReduce made again: published, by formula, measured and modelled, as a document."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from slslab.papers import Paper
from slslab.recomputing import Recomputed, recompute
from slslab.replay.crossings import TIE
from slslab.replay.profiles import Profile
from slslab.reproductions.calls import Estimate
from slslab.reproductions.documents import Cell, ReproducedRow, head
from slslab.reproductions.exchanges import PATTERNS, describe
from slslab.reproductions.patterns import NAMES, Comparison
from slslab.reproductions.progressions import whole


@dataclass(frozen=True)
class Source:
    """A table of a paper, and the profile that it is compared on unless another one is chosen."""

    paper: str
    table: str
    profile: str


SOURCES = {
    "lambdaml-table3": Source("lambdaml-2021", "table3", "lambdaml-2021"),
    "fig2": Source("barrak-2025", "fig2", "aws-us-east-1"),
}
RATIO = "ratio"
# The way in which the papers' data has the ratio that a row has here: AllReduce's seconds ÷ ScatterReduce's.
SLOWER = "allreduce_slower"
FORMULA = "by formula"
COLUMNS = (
    *((name, f"{NAMES[name]}, a round", "s", 2) for name in PATTERNS),
    (RATIO, "AllReduce ÷ ScatterReduce", "ratio", 2),
)


@dataclass(frozen=True)
class FasterCell(Cell):
    """A ratio that is not printed, and whether both name the same winner, which is what it is compared by."""

    printed: Decimal | None = None
    same: bool = False

    @property
    def difference(self) -> float | None:
        """Modelled over that of the printed seconds, less 1."""
        if self.printed is None or self.modelled is None:
            return None
        return self.modelled.value / float(self.printed) - 1

    @property
    def verdict(self) -> str:
        """Whether modelled is the same pattern faster as published, or both a tie."""
        if self.printed is None:
            return ""
        return "agrees" if self.same else "differs"


def build(
    name: str, paper: Paper, table: str, compared: Sequence[Sequence[Comparison]], profile: Profile, **more: Any
) -> dict[str, Any]:
    """The document of rows that were compared, each in its variants; `more` are entries of its own."""
    here = paper.table(table)
    again = {id(row): found for row, found in zip(here.rows, recompute(paper, table), strict=True)}
    found = [one for variants in compared for one in variants]
    rows = [_row(one, again[id(one.row)], profile) for one in found]
    return {
        **head(name, "replayed", paper, here),
        "profile": {"name": profile.name, "date": profile.date.isoformat(), "description": profile.description},
        **more,
        "columns": [dict(zip(("name", "title", "unit", "digits"), one, strict=True)) for one in COLUMNS],
        "rows": [row.as_document() for row in rows],
        "rankings": [],
        "bills": [],
        "curves": [],
        "bars": list(_bars(compared)),
        "notes": [*_notes(found, profile, more.get("run")), *describe(_exchanges(found))],
    }


def _row(one: Comparison, again: Sequence[Recomputed], profile: Profile) -> ReproducedRow:
    by_formula = {name: one.chains[name].seconds(profile) for name in PATTERNS}
    cells: dict[str, Cell] = {
        name: Cell(
            one.row.published.get(name),
            (
                *(each for each in again if each.column == name),
                _by_formula(name, by_formula[name], one.chains[name].arithmetic(profile)),
            ),
            one.measured[name].seconds if name in one.measured else None,
            whole(one.modelled[name]),
            reason=_reason(one, name),
        )
        for name in PATTERNS
    }
    printed = tuple(each for each in again if (each.column, each.way) == (RATIO, SLOWER))
    first, second = (by_formula[name] for name in PATTERNS)
    modelled = one.modelled["allreduce"] / one.modelled["scatterreduce"]
    winners = one.winners
    cells[RATIO] = FasterCell(
        recomputed=(*printed, _by_formula(RATIO, first / second, f"{first:.6f} / {second:.6f}")),
        measured=ratio_of([one.measured[name].seconds for name in PATTERNS if name in one.measured]),
        modelled=whole(modelled),
        reason=one.reason,
        printed=printed[0].value if printed else None,
        same=winners.get("published") == winners["modelled"],
    )
    more = {
        "workers": one.workers,
        "bytes": one.size,
        "polling": one.variant.polling,
        "log_bytes": one.variant.log_bytes,
        "winner": {basis: name or None for basis, name in winners.items()},
        "latency_bandwidth_size": one.share,
        "intervals": _intervals(one),
        "recorded": {name: each.as_document() for name, each in one.measured.items()},
    }
    return ReproducedRow(_workers(one), one.row.name, one.variant.name, cells, one.row.note, more)


def _workers(one: Comparison) -> str:
    return f"{one.workers} workers"


def _by_formula(column: str, value: float, arithmetic: str) -> Recomputed:
    """Arithmetic on the profile's figures, which is no statement on the printed digits."""
    return Recomputed(column, FORMULA, arithmetic, arithmetic, Decimal(repr(value)), None, "", "")


def ratio_of(both: Sequence[Estimate]) -> Estimate | None:
    """The ratio of two means, None if there are not two; its interval, of logarithms, from their relative errors."""
    if len(both) < len(PATTERNS):
        return None
    value, samples = both[0].value / both[1].value, min(one.samples for one in both)
    errors = [(one.high - one.value) / one.value for one in both if one.high is not None]
    if not errors:
        return Estimate(value, None, None, samples)
    factor = math.exp(math.hypot(*errors))
    return Estimate(value, value / factor, value * factor, samples)


def _reason(one: Comparison, name: str) -> str:
    """What both seconds are for each request of the longest chain."""
    if name not in one.row.published:
        return ""
    chain, published = one.chains[name], one.row.published[name]
    number = chain.puts + chain.gets
    each, ours = (float(value) / number * 1e3 for value in (published, one.modelled[name]))
    return (
        f"{NAMES[name]} has {number} puts and gets in a row, of {_size(chain.moved)} each: the published {published} s "
        f"leave {each:.0f} ms for each with all between them, modelled are {ours:.0f} ms."
    )


def _size(size: float) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size:.0f} B"


def _intervals(one: Comparison) -> list[dict[str, Any]]:
    """Who wins where; an interval ends with null where the sweep does."""
    last = len(one.intervals) - 1
    return [
        {
            "begin": None if number == 0 else interval.begin,
            "end": None if number == last else interval.end,
            "winner": interval.winner or None,
        }
        for number, interval in enumerate(one.intervals)
    ]


def _exchanges(found: Iterable[Comparison]) -> Iterator[Any]:
    seen = set()
    for one in found:
        for each in one.measured.values():
            if each.run not in seen:
                seen.add(each.run)
                yield each


def _bars(compared: Sequence[Sequence[Comparison]]) -> Iterator[dict[str, Any]]:
    """A chart for each model: both patterns beside each other, for each number of workers and way of knowing."""
    for model in dict.fromkeys(variants[0].row.name for variants in compared):
        own = [variants for variants in compared if variants[0].row.name == model]
        values = [list(bar) for variants in own for bar in _bars_of(variants)]
        yield {
            "title": f"A round, {model}",
            "axis": "time of a round",
            "unit": "s",
            "series": [NAMES[name] for name in PATTERNS],
            "values": values,
        }


def _bars_of(variants: Sequence[Comparison]) -> Iterator[tuple[str, str, float]]:
    published = {name: float(value) for name, value in variants[0].row.published.items()}
    sets = [("published", published)]
    sets += [
        (f"measured, {one.variant.name}", {name: each.seconds.value for name, each in one.measured.items()})
        for one in variants
    ]
    sets += [(f"modelled, {one.variant.name}", dict(one.modelled)) for one in variants]
    for basis, seconds in sets:
        for name in PATTERNS:
            if name in seconds:
                yield f"{_workers(variants[0])}\n{basis}", NAMES[name], seconds[name]


def _notes(found: Sequence[Comparison], profile: Profile, run: str | None) -> Iterator[str]:
    compute = f"CPU seconds of {run}" if run else "no CPU time"
    ways = {one.variant.name: one.variant for one in found}
    polling = ", ".join(f"{one.polling} ({name})" for name, one in ways.items())
    yield (
        f"Modelled: one round on {profile.name} of {profile.date}, until the last worker has the sum, {compute}; "
        f"polling {polling}. Seconds agree up to {Cell.tolerance:.0%}; a ratio agrees if both name the same winner, or "
        f"a tie, which is a difference of less than {TIE:.0%}."
    )
    yield (
        "By formula: puts and gets of the longest chain alone, with the profile's latency and bandwidth, without "
        "lists, deletes, polls and logs; for ScatterReduce LambdaML's own. No printed figure is in it."
    )
    if any(one.variant.log_bytes is not None for one in found):
        yield (
            "As released: with the authors' log traffic. Their logs have the same keys in every run, so how long they "
            "were is not known; modelled are those of a run's first step. Lines before the round's first put and until "
            "the last worker has the sum are in it, three in a row in AllReduce, four in ScatterReduce; after what a "
            "line is written is assumed."
        )
    if any(one.variant.deletes_at_once for one in found):
        yield "As released: AllReduce's merging worker deletes all that it has read with one request."
