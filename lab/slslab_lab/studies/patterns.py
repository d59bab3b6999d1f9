"""Published times of AllReduce and ScatterReduce compared with measured and modelled ones, by row and variant.

Published values come from `papers/`. The model plays a round on a profile that is chosen before the comparison and is
the same for all rows. Nothing is fitted to a row."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from slslab.errors import RequestError
from slslab.predict.profiles.profile import Profile
from slslab_lab.papers.paper import PaperError, Row, Table
from slslab_lab.replay.crossings import Interval, pipe_share, winner
from slslab_lab.replay.rounds import Round, SizedChain, chain, size_at, sweep, without_compute
from slslab_lab.runs.planning import architectures
from slslab_lab.studies.accuracy_by_time import CANONICAL, RELEASED
from slslab_lab.studies.measured_rounds import PATTERNS, Exchange, read_exchanges
from slslab_lab.studies.study import Setup
from slslab_workers.architecture import title

# The paper's table, by study.
TABLES = {"lambdaml-table3": "table3", "fig2": "fig2"}
NAMES = {"": "a tie", **{name: title(name) for name in PATTERNS}}
# The range of latency × bandwidth ÷ size to sweep (wider if a row lies outside), and the number of values to try.
SWEPT = (1e-3, 1e3)
PLACES = 25
# A recorded run has a row's model if their gradients differ by at most this share.
SAME_SIZE = 0.01


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
    """One row in one variant: seconds of a round by pattern, `measured` (may be empty) and `modelled`; and the longest
    `chains` of its puts and gets.

    `share` is latency × bandwidth ÷ size of the row's gradients; `intervals` give the winner at other values."""

    row: Row
    variant: Variant
    workers: int
    size: int
    modelled: Mapping[str, float]
    chains: Mapping[str, SizedChain]
    share: float
    intervals: tuple[Interval, ...]
    measured: Mapping[str, Exchange] = field(default_factory=dict)

    @property
    def winners(self) -> dict[str, str]:
        """Return the faster pattern, modelled and (if any) published; empty for a tie."""
        modelled = {"modelled": winner(self.modelled)}
        if not self.row.published:
            return modelled
        return {"published": winner({name: float(self.row.published[name]) for name in PATTERNS}), **modelled}

    @property
    def differs(self) -> bool:
        """Return whether a winner is published and the modelled winner is different or a tie."""
        winners = self.winners
        return winners.get("published", winners["modelled"]) != winners["modelled"]

    @property
    def reason(self) -> str:
        """Return, for a row that differs, where the model would give the published winner; otherwise an empty text."""
        if not self.differs:
            return ""
        published, modelled = self.winners["published"], self.winners["modelled"]
        difference = f"published is {NAMES[published]}, modelled {NAMES[modelled]}"
        able = [interval for interval in self.intervals if interval.winner == published]
        if not able:
            return f"{difference}; the model gives that at no latency × bandwidth ÷ size."
        nearest = min((edge for interval in able for edge in (interval.begin, interval.end)), key=self._distance)
        times, way = self._distance(nearest), "smaller" if nearest < self.share else "larger"
        return (
            f"{difference}; in the model that winner begins at a latency × bandwidth ÷ size of {nearest:.3g}, "
            f"{times:,.{0 if times >= 100 else 1}f} times {way} than this row's."
        )

    def _distance(self, share: float) -> float:
        return max(share / self.share, self.share / share)


def read(setup: Setup) -> list[list[Comparison]]:
    """Play both patterns for all rows, each in its variants."""
    table = setup.paper.table(TABLES[setup.study.name])
    compare = compare_rounds(table, setup.profile, read_exchanges(setup.options.get("recordings")))
    compared = []
    for number, row in enumerate(table.rows, 1):
        compared.append([compare(row, variant) for variant in variants(table, row)])
        setup.watcher.report("playing both patterns", number, len(table.rows))
    return compared


def compare_rounds(
    table: Table, profile: Profile, exchanges: Iterable[Exchange] = ()
) -> Callable[[Row, Variant], Comparison]:
    """Return a function that plays a round of each pattern for a row with `workers` and `bytes`, by workers that need
    no CPU time, next to measured `exchanges` of the same model, workers and variant.

    RequestError for a profile without a latency or a bandwidth for gets."""
    if not pipe_share(profile, 1):
        raise RequestError(f"The profile {profile.name} has no latency for object.get.", "choose another --profile.")
    known, costs = tuple(exchanges), {name: without_compute(architectures()[name]) for name in PATTERNS}

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
        workers, size = (count_of(table, row, name) for name in ("workers", "bytes"))
        share = pipe_share(profile, size)
        return Comparison(
            row,
            variant,
            workers,
            size,
            seconds(workers, size, variant),
            {name: chain(name, workers, size) for name in PATTERNS},
            share,
            swept(workers, variant, min(SWEPT[0], share), max(SWEPT[1], share)),
            {
                entry.pattern: entry
                for entry in known
                if (entry.workers, entry.polling, entry.logged)
                == (workers, variant.polling, variant.log_bytes is not None)
                and abs(size - entry.size) <= SAME_SIZE * size
            },
        )

    return compare


def count_of(table: Table, row: Row, name: str) -> int:
    """Return an input that is a whole number; PaperError, naming the row, for anything else."""
    value = table.inputs_of(row).get(name)
    if not isinstance(value, int) or value < 1:
        raise PaperError(f"The row {row.name!r} of {table.source} has no {name}.", f"add {name} to it.")
    return value
