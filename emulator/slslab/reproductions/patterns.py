"""Published times of AllReduce and ScatterReduce beside measured and modelled ones, row by row and variant by variant,
and what they agree on.

Published values are copied from `papers/`; modelled is a round on a profile that is chosen before the comparison and is
the same for all rows. No figure is fitted to a row."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from slslab.errors import RequestError
from slslab.execution import architectures
from slslab.papers import PaperError, Row, Table
from slslab.replay.crossings import Interval, pipe_share
from slslab.replay.profiles import Profile
from slslab.replay.rounds import Chain, Round, chain, size_at, sweep, winner, without_compute
from slslab.replay.scaling import StepCosts
from slslab.reproductions.exchanges import PATTERNS, Exchange
from slslab.reproductions.progressions import CANONICAL, RELEASED

NAMES = {"allreduce": "AllReduce", "scatterreduce": "ScatterReduce", "": "a tie"}
# From where to where latency × bandwidth ÷ size is swept, and further if a row lies beyond; and at how many places.
SWEPT = (1e-3, 1e3)
PLACES = 25
# A recorded run is of the same model as a row if their gradients differ by no more.
SAME_SIZE = 0.01
# Up to which length of a worker's log the winner is looked for, and how narrowly where it changes.
LONGEST_LOG, NARROW = 10**10, 1.01


@dataclass(frozen=True)
class Variant:
    """How a round is made: with this polling; with log traffic, if `log_bytes` says how long logs are at its begin; and
    the pattern whose merging worker `deletes_at_once` what it has read."""

    name: str
    polling: str
    log_bytes: int | None = None
    deletes_at_once: str = ""


def variants(table: Table, row: Row, polling: str | None = None) -> tuple[Variant, Variant]:
    """As slslab's workers do it, and as the code that the row was measured with; both with another `polling`, if one is
    given. Logs are as short as they can be: how long those of the authors were is not known."""
    inputs = table.inputs_of(row)
    return (
        Variant(CANONICAL, polling or "adaptive"),
        Variant(
            RELEASED,
            polling or "released",
            0 if "log_traffic" in inputs else None,
            str(inputs.get("deletes_at_once", "")),
        ),
    )


@dataclass(frozen=True)
class LongLog:
    """With logs of so many bytes the model has the published winner, and takes so many `seconds` by pattern."""

    bytes: int
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Comparison:
    """One row in one variant: seconds of a round by pattern, `measured` (empty if nothing was) and `modelled`; and the
    longest `chains` of its puts and gets.

    `share` is latency × bandwidth ÷ size of the row's gradients; `intervals` say who would win at others. `unlogged`
    are the modelled seconds without log traffic, empty if there is none; `long_log` says with what logs a row that
    differs would not, None if with none."""

    row: Row
    variant: Variant
    workers: int
    size: int
    modelled: Mapping[str, float]
    chains: Mapping[str, Chain]
    share: float
    intervals: tuple[Interval, ...]
    measured: Mapping[str, Exchange] = field(default_factory=dict)
    unlogged: Mapping[str, float] = field(default_factory=dict)
    long_log: LongLog | None = None

    @property
    def winners(self) -> dict[str, str]:
        """The faster pattern, modelled, and published if anything is; empty for a tie."""
        modelled = {"modelled": winner(self.modelled)}
        if not self.row.published:
            return modelled
        return {"published": winner({name: float(self.row.published[name]) for name in PATTERNS}), **modelled}

    @property
    def differs(self) -> bool:
        """Whether something is published, and modelled is another winner, or a tie."""
        winners = self.winners
        return winners.get("published", winners["modelled"]) != winners["modelled"]

    @property
    def reason(self) -> str:
        """Of a row that differs: where the model would say what was published; else empty."""
        if not self.differs:
            return ""
        published, modelled = self.winners["published"], self.winners["modelled"]
        said = f"published is {NAMES[published]}, modelled {NAMES[modelled]}"
        able = [one for one in self.intervals if one.winner == published]
        if not able:
            return f"{said}; the model says so at no latency × bandwidth ÷ size.{self._logs(published)}"
        nearest = min((edge for one in able for edge in (one.begin, one.end)), key=self._distance)
        times, way = self._distance(nearest), "smaller" if nearest < self.share else "larger"
        return (
            f"{said}; in the model that begins at a latency × bandwidth ÷ size of {nearest:.3g}, "
            f"{times:,.{0 if times >= 100 else 1}f} times {way} than this row's.{self._logs(published)}"
        )

    def _logs(self, published: str) -> str:
        """What log traffic does to the ratio, and how long logs would have to be."""
        if not self.unlogged:
            return ""
        without, having = (
            seconds["allreduce"] / seconds["scatterreduce"] for seconds in (self.unlogged, self.modelled)
        )
        changed = f" Log traffic changes AllReduce ÷ ScatterReduce from {without:.2f} to {having:.2f}"
        if self.long_log is None:
            return f"{changed}; no length of the logs makes it {NAMES[published]}."
        seconds = " and ".join(f"{self.long_log.seconds[name]:.1f} s" for name in PATTERNS)
        return (
            f"{changed}; only logs of {self.long_log.bytes / 1e6:,.0f} MB make it {NAMES[published]}, at {seconds} "
            f"instead of the published {' and '.join(f'{self.row.published[name]} s' for name in PATTERNS)}."
        )

    def _distance(self, share: float) -> float:
        return max(share / self.share, self.share / share)


def free_costs() -> dict[str, StepCosts]:
    """Of workers who need no CPU time."""
    rooms = architectures()
    return {name: without_compute(rooms[name]) for name in PATTERNS}


def compare_rounds(
    table: Table,
    profile: Profile,
    costs: Mapping[str, StepCosts],
    polling: str | None = None,
    exchanges: Iterable[Exchange] = (),
) -> Callable[[Row], tuple[Comparison, ...]]:
    """What compares a row of a table whose rows have `workers` and `bytes`, in each variant: a round of each pattern is
    played. Those of the measured `exchanges` stand beside it that are of its model, workers and variant.

    RequestError for a profile whose gets have no latency or no bandwidth."""
    if not pipe_share(profile, 1):
        raise RequestError(f"The profile {profile.name} gives object.get no latency.", "choose another --profile.")
    known = tuple(exchanges)

    @cache
    def seconds(workers: int, size: int, variant: Variant) -> Mapping[str, float]:
        rounds = {
            name: Round(costs[name], workers, size, variant.polling, variant.deletes_at_once == name, variant.log_bytes)
            for name in PATTERNS
        }
        return {name: one.seconds(profile) for name, one in rounds.items()}

    @cache
    def swept(workers: int, variant: Variant, begin: float, end: float) -> tuple[Interval, ...]:
        def winner_at(share: float) -> str:
            return winner(seconds(workers, size_at(profile, share), variant))

        return sweep(winner_at, begin, end, PLACES)

    def compare(row: Row, variant: Variant) -> Comparison:
        workers, size = (count_of(table, row, name) for name in ("workers", "bytes"))
        share = pipe_share(profile, size)
        found = Comparison(
            row,
            variant,
            workers,
            size,
            seconds(workers, size, variant),
            {name: chain(name, workers, size) for name in PATTERNS},
            share,
            swept(workers, variant, min(SWEPT[0], share), max(SWEPT[1], share)),
            {
                one.pattern: one
                for one in known
                if (one.workers, one.polling, one.logged) == (workers, variant.polling, variant.log_bytes is not None)
                and is_same_size(one.size, size)
            },
        )
        if variant.log_bytes is None:
            return found
        found = replace(found, unlogged=seconds(workers, size, replace(variant, log_bytes=None)))
        if not found.differs:
            return found
        published = found.winners["published"]
        return replace(
            found,
            long_log=find_log(lambda log: seconds(workers, size, replace(variant, log_bytes=log)), published),
        )

    return lambda row: tuple(compare(row, variant) for variant in variants(table, row, polling))


def find_log(seconds: Callable[[int], Mapping[str, float]], wanted: str) -> LongLog | None:
    """The shortest logs, in bytes, with which this pattern wins, or both tie; None if no logs up to LONGEST_LOG do."""
    low, high = 1, 2
    while winner(seconds(high)) != wanted:
        if high >= LONGEST_LOG:
            return None
        low, high = high, 2 * high
    while high > max(NARROW * low, low + 1):
        middle = round((low * high) ** 0.5)
        if winner(seconds(middle)) == wanted:
            high = middle
        else:
            low = middle
    return LongLog(high, seconds(high))


def is_same_size(one: int, other: int) -> bool:
    """Whether gradients of so many bytes are of the same model."""
    return abs(one - other) <= SAME_SIZE * other


def count_of(table: Table, row: Row, name: str) -> int:
    """An input that is a whole number; PaperError, naming the row, if it is none."""
    value = table.inputs_of(row).get(name)
    if not isinstance(value, int) or value < 1:
        raise PaperError(f"The row {row.name!r} of {table.source} does not say its {name}.", f"add {name} to it.")
    return value
