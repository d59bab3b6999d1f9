"""Published times of AllReduce and ScatterReduce compared with modelled ones, by row and variant.

Published values come from `papers/`. The model plays a round on a profile that is chosen before the comparison and is
the same for all rows. Nothing is fitted to a row."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from slslab.errors import RequestError
from slslab.predict.profiles.profile import Profile
from slslab.report.formats import percent
from slslab_lab.papers.paper import Row, Table
from slslab_lab.papers.recomputation import Recomputed, recompute_row
from slslab_lab.replay.crossings import TIE, Interval, pipe_share, sweep, winner
from slslab_lab.replay.rounds import Round, size_at, without_compute
from slslab_lab.runs.planning import architectures
from slslab_lab.studies.documents import Cell, Estimate, ReproducedRow, cell_of, make_document
from slslab_lab.studies.experiments import CANONICAL, RELEASED
from slslab_lab.studies.study import Setup
from slslab_workers.architecture import title

PATTERNS = ("allreduce", "scatterreduce")
# The paper's table, by study.
TABLES = {"lambdaml-table3": "table3", "fig2": "fig2"}
NAMES = {name: title(name) for name in PATTERNS}
# The range of latency × bandwidth ÷ size to sweep (wider if a row lies outside), and the number of values to try.
SWEPT = (1e-3, 1e3)
PLACES = 25
RATIO = "ratio"
# The name in the papers' data for AllReduce's seconds ÷ ScatterReduce's.
SLOWER = "allreduce_slower"
COLUMNS = (
    *((name, f"{NAMES[name]}, a round", "s", 2) for name in PATTERNS),
    (RATIO, "AllReduce ÷ ScatterReduce", "ratio", 2),
)


@dataclass(frozen=True)
class Variant:
    """Details of a round: its polling; the length of logs at its begin, with log traffic (`log_bytes`); and the pattern
    in which the merging worker `deletes_at_once` the objects it has read."""

    name: str
    polling: str
    log_bytes: int | None = None
    deletes_at_once: str = ""


def variants(table: Table, row: Row) -> tuple[Variant, Variant]:
    """Return the variant of slslab's workers, and of the code that the row was measured with. Logs are as short as
    possible, since the length of the authors' logs is unknown."""
    inputs = table.inputs_of(row)
    log_bytes = 0 if "log_traffic" in inputs else None
    released = Variant(RELEASED, "released", log_bytes, str(inputs.get("deletes_at_once", "")))
    return Variant(CANONICAL, "adaptive"), released


@dataclass(frozen=True)
class Comparison:
    """One row in one variant: `modelled` seconds of a round by pattern.

    `share` is latency × bandwidth ÷ size of the row's gradients; `intervals` give the winner at other values."""

    row: Row
    variant: Variant
    workers: int
    size: int
    modelled: Mapping[str, float]
    share: float
    intervals: tuple[Interval, ...]

    @property
    def winners(self) -> dict[str, str]:
        """Return the faster pattern, modelled and (if any) published; empty for a tie."""
        modelled = {"modelled": winner(self.modelled)}
        if not self.row.published:
            return modelled
        return {"published": winner({name: float(self.row.published[name]) for name in PATTERNS}), **modelled}


def read(setup: Setup) -> list[Comparison]:
    """Play both patterns for all rows, each in its variants."""
    table = setup.paper.table(TABLES[setup.study.name])
    compare = compare_rounds(table, setup.profile)
    return [
        compare(row, variant)
        for row in setup.watched("playing both patterns", table.rows)
        for variant in variants(table, row)
    ]


def compare_rounds(table: Table, profile: Profile) -> Callable[[Row, Variant], Comparison]:
    """Return a function that plays a round of each pattern for a row with `workers` and `bytes`, by workers that need
    no CPU time.

    RequestError for a profile without a latency or a bandwidth for gets."""
    if not pipe_share(profile, 1):
        raise RequestError(f"The profile {profile.name} has no latency for object.get.", "choose another --profile.")
    costs = {name: without_compute(architectures()[name]) for name in PATTERNS}

    @cache
    def seconds(workers: int, size: int, variant: Variant) -> Mapping[str, float]:
        rounds = {
            name: Round(costs[name], workers, size, variant.polling, variant.deletes_at_once == name, variant.log_bytes)
            for name in PATTERNS
        }
        return {name: entry.seconds(profile) for name, entry in rounds.items()}

    @cache
    def swept(workers: int, variant: Variant, begin: float, end: float) -> tuple[Interval, ...]:
        return sweep(lambda share: winner(seconds(workers, size_at(profile, share), variant)), begin, end, PLACES)

    def compare(row: Row, variant: Variant) -> Comparison:
        workers, size = (int(table.inputs_of(row)[name]) for name in ("workers", "bytes"))
        share = pipe_share(profile, size)
        return Comparison(
            row,
            variant,
            workers,
            size,
            seconds(workers, size, variant),
            share,
            swept(workers, variant, min(SWEPT[0], share), max(SWEPT[1], share)),
        )

    return compare


def build(setup: Setup, comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return the document of compared rows."""
    paper, profile, table = setup.paper, setup.profile, TABLES[setup.study.name]
    return make_document(
        setup,
        paper.table(table),
        COLUMNS,
        [_row(each, recompute_row(paper, table, each.row)) for each in comparisons],
        _notes(comparisons, profile),
        profile=profile,
    )


def _row(comparison: Comparison, again: Sequence[Recomputed]) -> ReproducedRow:
    cells = {
        name: cell_of(
            comparison.row, again, name, modelled=Estimate(comparison.modelled[name]), reason=_reason(comparison, name)
        )
        for name in PATTERNS
    }
    printed = tuple(each for each in again if (each.column, each.way) == (RATIO, SLOWER))
    modelled = comparison.modelled["allreduce"] / comparison.modelled["scatterreduce"]
    winners = comparison.winners
    # A ratio agrees if both name the same faster pattern, or both a tie.
    cells[RATIO] = Cell(
        recomputed=printed,
        modelled=Estimate(modelled),
        follows=printed[0].value if printed else None,
        agrees=winners.get("published") == winners["modelled"],
    )
    more = {
        "winner": {basis: name or None for basis, name in winners.items()},
        "latency_bandwidth_size": comparison.share,
        "intervals": _intervals(comparison),
    }
    return ReproducedRow(
        f"{comparison.workers} workers", comparison.row.name, comparison.variant.name, cells, comparison.row.note, more
    )


def _reason(comparison: Comparison, name: str) -> str:
    if name not in comparison.row.published:
        return ""
    longest, published = architectures()[name].longest_chain, comparison.row.published[name]
    assert longest is not None
    chain = longest(comparison.workers)
    number, size = chain.puts + chain.gets, comparison.size / chain.parts
    each, ours = (float(value) / number * 1e3 for value in (published, comparison.modelled[name]))
    return (
        f"{NAMES[name]} has {number} puts and gets in a row, of {_size(size)} each. The published {published} s "
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


def _notes(comparisons: Sequence[Comparison], profile: Profile) -> Iterator[str]:
    ways = {comparison.variant.name: comparison.variant for comparison in comparisons}
    polling = ", ".join(f"{comparison.polling} ({name})" for name, comparison in ways.items())
    yield (
        f"Modelled: one round on {profile.name} of {profile.date}, until the last worker has the sum, no CPU time; "
        f"polling {polling}. Seconds agree up to {percent(Cell.tolerance)}. A ratio agrees if both name the same "
        f"winner, or both a tie, a difference of less than {percent(TIE)}."
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
