"""The document of a reproduced table of AllReduce and ScatterReduce: published, by formula, measured and modelled."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from slslab.predict.profiles.profile import Profile
from slslab.report.formats import percent
from slslab.run.metrics import grouped
from slslab_lab.papers.recomputation import Recomputed, recompute_row
from slslab_lab.replay.crossings import TIE
from slslab_lab.studies.accuracy_by_time import whole
from slslab_lab.studies.documents import Cell, ReproducedRow, make_document
from slslab_lab.studies.measured_rounds import PATTERNS, describe
from slslab_lab.studies.minibatches import Estimate
from slslab_lab.studies.patterns import NAMES, TABLES, Comparison
from slslab_lab.studies.study import Setup

RATIO = "ratio"
# The name in the papers' data for AllReduce's seconds ÷ ScatterReduce's.
SLOWER = "allreduce_slower"
FORMULA = "by formula"
COLUMNS = (
    *((name, f"{NAMES[name]}, a round", "s", 2) for name in PATTERNS),
    (RATIO, "AllReduce ÷ ScatterReduce", "ratio", 2),
)


@dataclass(frozen=True)
class FasterCell(Cell):
    """A ratio that isn't printed; it agrees if both name the `same` winner."""

    same: bool = False

    @property
    def verdict(self) -> str:
        """Return whether the model and the paper have the same faster pattern, or both a tie."""
        return "" if self.follows is None else "agrees" if self.same else "differs"


def build(setup: Setup, compared: Sequence[Sequence[Comparison]]) -> dict[str, Any]:
    """Return the document of compared rows."""
    paper, profile, table = setup.paper, setup.profile, TABLES[setup.study.name]
    comparisons = [comparison for variants in compared for comparison in variants]
    exchanges = {each.run: each for comparison in comparisons for each in comparison.measured.values()}
    return make_document(
        setup,
        paper.table(table),
        COLUMNS,
        [_row(each, recompute_row(paper, table, each.row), profile) for each in comparisons],
        [*_notes(comparisons, profile), *describe(exchanges.values())],
        profile=profile,
        bars=list(_bars(compared)),
    )


def _row(comparison: Comparison, again: Sequence[Recomputed], profile: Profile) -> ReproducedRow:
    by_formula = {name: comparison.chains[name].seconds(profile) for name in PATTERNS}
    cells: dict[str, Cell] = {
        name: Cell(
            comparison.row.published.get(name),
            (
                *(each for each in again if each.column == name),
                _by_formula(name, by_formula[name], comparison.chains[name].arithmetic(profile)),
            ),
            comparison.measured[name].seconds if name in comparison.measured else None,
            whole(comparison.modelled[name]),
            reason=_reason(comparison, name),
        )
        for name in PATTERNS
    }
    printed = tuple(each for each in again if (each.column, each.way) == (RATIO, SLOWER))
    first, second = (by_formula[name] for name in PATTERNS)
    modelled = comparison.modelled["allreduce"] / comparison.modelled["scatterreduce"]
    winners = comparison.winners
    cells[RATIO] = FasterCell(
        recomputed=(*printed, _by_formula(RATIO, first / second, f"{first:.6f} / {second:.6f}")),
        measured=ratio_of([comparison.measured[name].seconds for name in PATTERNS if name in comparison.measured]),
        modelled=whole(modelled),
        reason=comparison.reason,
        follows=printed[0].value if printed else None,
        same=winners.get("published") == winners["modelled"],
    )
    more = {
        "workers": comparison.workers,
        "bytes": comparison.size,
        "polling": comparison.variant.polling,
        "log_bytes": comparison.variant.log_bytes,
        "winner": {basis: name or None for basis, name in winners.items()},
        "latency_bandwidth_size": comparison.share,
        "intervals": _intervals(comparison),
        "recorded": {
            name: {"run": each.run, "apart_seconds": each.apart, "oversubscribed": each.oversubscribed}
            for name, each in comparison.measured.items()
        },
    }
    return ReproducedRow(
        f"{comparison.workers} workers", comparison.row.name, comparison.variant.name, cells, comparison.row.note, more
    )


def _by_formula(column: str, value: float, arithmetic: str) -> Recomputed:
    """Return arithmetic on the profile's figures, without a verdict on the printed digits."""
    return Recomputed(column, FORMULA, arithmetic, arithmetic, Decimal(repr(value)), None, "", "")


def ratio_of(both: Sequence[Estimate]) -> Estimate | None:
    """Return the ratio of two means, or None; its interval, in logarithms, follows from their relative errors."""
    if len(both) < len(PATTERNS):
        return None
    value, samples = both[0].value / both[1].value, min(estimate.samples for estimate in both)
    errors = [(estimate.high - estimate.value) / estimate.value for estimate in both if estimate.high is not None]
    if not errors:
        return Estimate(value, None, None, samples)
    factor = math.exp(math.hypot(*errors))
    return Estimate(value, value / factor, value * factor, samples)


def _reason(comparison: Comparison, name: str) -> str:
    if name not in comparison.row.published:
        return ""
    chain, published = comparison.chains[name], comparison.row.published[name]
    number = chain.puts + chain.gets
    each, ours = (float(value) / number * 1e3 for value in (published, comparison.modelled[name]))
    return (
        f"{NAMES[name]} has {number} puts and gets in a row, of {_size(chain.moved)} each. The published {published} s "
        f"leave {each:.0f} ms for each, including everything between them; the model has {ours:.0f} ms."
    )


def _size(size: float) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size:.0f} B"


def _intervals(comparison: Comparison) -> list[dict[str, Any]]:
    """Return where each pattern wins; null marks an end of the sweep."""
    last = len(comparison.intervals) - 1
    return [
        {
            "begin": None if number == 0 else interval.begin,
            "end": None if number == last else interval.end,
            "winner": interval.winner or None,
        }
        for number, interval in enumerate(comparison.intervals)
    ]


def _bars(compared: Sequence[Sequence[Comparison]]) -> Iterator[dict[str, Any]]:
    for model, members in grouped((variants[0].row.name, variants) for variants in compared).items():
        yield {
            "title": f"A round, {model}",
            "axis": "time of a round",
            "unit": "s",
            "series": [NAMES[name] for name in PATTERNS],
            "values": [list(bar) for variants in members for bar in _bars_of(variants)],
        }


def _bars_of(variants: Sequence[Comparison]) -> Iterator[tuple[str, str, float]]:
    sets = {
        "published": {name: float(value) for name, value in variants[0].row.published.items()},
        **{
            f"measured, {comparison.variant.name}": {
                name: each.seconds.value for name, each in comparison.measured.items()
            }
            for comparison in variants
        },
        **{f"modelled, {comparison.variant.name}": comparison.modelled for comparison in variants},
    }
    for basis, seconds in sets.items():
        for name in PATTERNS:
            if name in seconds:
                yield f"{variants[0].workers} workers\n{basis}", NAMES[name], seconds[name]


def _notes(comparisons: Sequence[Comparison], profile: Profile) -> Iterator[str]:
    ways = {comparison.variant.name: comparison.variant for comparison in comparisons}
    polling = ", ".join(f"{comparison.polling} ({name})" for name, comparison in ways.items())
    yield (
        f"Modelled: one round on {profile.name} of {profile.date}, until the last worker has the sum, no CPU time; "
        f"polling {polling}. Seconds agree up to {percent(Cell.tolerance)}. A ratio agrees if both name the same "
        f"winner, or both a tie, a difference of less than {percent(TIE)}."
    )
    yield (
        "By formula: only puts and gets of the longest chain, with the profile's latency and bandwidth, without "
        "lists, deletes, polls and logs; for ScatterReduce LambdaML's own. It uses no printed figures."
    )
    if any(comparison.variant.log_bytes is not None for comparison in comparisons):
        yield (
            "As released: with the authors' log traffic. Their logs have the same keys in every run, so their lengths "
            "are unknown. The model uses the lengths of a run's first step. It includes lines before the round's "
            "first put and until the last worker has the sum: three in a row in AllReduce, four in ScatterReduce. "
            "When a line is written is assumed."
        )
    if any(comparison.variant.deletes_at_once for comparison in comparisons):
        yield "As released: AllReduce's merging worker deletes everything it has read with one request."
