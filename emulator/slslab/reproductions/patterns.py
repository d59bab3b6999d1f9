"""Published times of AllReduce and ScatterReduce beside modelled ones, row by row, and what they agree on.

Published values are copied from `papers/`; everything else is modelled, on a profile that is chosen before the
comparison and is the same for all rows. No figure is fitted to a row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any

from slslab.errors import RequestError
from slslab.papers import PaperError, Row, Table
from slslab.replay.crossings import Interval, pipe_share
from slslab.replay.profiles import Profile
from slslab.replay.rounds import Round, formula, size_at, sweep, winner
from slslab.replay.scaling import StepCosts

PATTERNS = ("allreduce", "scatterreduce")
NAMES = {"allreduce": "AllReduce", "scatterreduce": "ScatterReduce", "": "a tie"}
# From where to where latency × bandwidth ÷ size is swept, and further if a row lies beyond; and at how many places.
SWEPT = (1e-3, 1e3)
PLACES = 25
AGREES, TIED, DIFFERS = "agrees", "tie", "differs"


@dataclass(frozen=True)
class Comparison:
    """One row: seconds of a round by pattern, `published` (empty if there are none), `modelled`, and by `formula`.

    `share` is latency × bandwidth ÷ size of the row's gradients; `intervals` say who would win at others."""

    row: Row
    workers: int
    size: int
    modelled: Mapping[str, float]
    formula: Mapping[str, float]
    share: float
    intervals: tuple[Interval, ...]
    published: Mapping[str, Decimal] = field(default_factory=dict)

    @property
    def winners(self) -> dict[str, str]:
        """The faster pattern, modelled, and published if anything is; empty for a tie."""
        printed = {name: float(value) for name, value in self.published.items()}
        modelled = {"modelled": winner(self.modelled)}
        return {"published": winner(printed), **modelled} if printed else modelled

    @property
    def verdict(self) -> str:
        """Whether both name the same winner, or both a tie; empty if nothing is published."""
        if not self.published:
            return ""
        published, modelled = self.winners["published"], self.winners["modelled"]
        if published != modelled:
            return DIFFERS
        return AGREES if published else TIED

    @property
    def reason(self) -> str:
        """Of a row that differs: where the model would say what was published; else empty."""
        if self.verdict != DIFFERS:
            return ""
        published, modelled = self.winners["published"], self.winners["modelled"]
        said = f"published is {NAMES[published]}, modelled {NAMES[modelled]}"
        able = [one for one in self.intervals if one.winner == published]
        if not able:
            return f"{said}; the model says so at no latency × bandwidth ÷ size."
        nearest = min((edge for one in able for edge in (one.begin, one.end)), key=self._distance)
        times, way = self._distance(nearest), "smaller" if nearest < self.share else "larger"
        return (
            f"{said}; in the model that begins at a latency × bandwidth ÷ size of {nearest:.3g}, "
            f"{times:,.{0 if times >= 100 else 1}f} times {way} than this row's."
        )

    def _distance(self, share: float) -> float:
        return max(share / self.share, self.share / share)


def compare_rounds(
    table: Table, profile: Profile, costs: Mapping[str, StepCosts], polling: str
) -> Callable[[Row], Comparison]:
    """What compares a row of a table whose rows have `workers` and `bytes`: a round of each pattern is played.

    RequestError for a profile whose gets have no latency or no bandwidth."""
    if not pipe_share(profile, 1):
        raise RequestError(f"The profile {profile.name} gives object.get no latency.", "choose another --profile.")

    @cache
    def seconds(workers: int, size: int, at_once: str) -> Mapping[str, float]:
        rounds = {name: Round(costs[name], workers, size, polling, at_once == name) for name in PATTERNS}
        return {name: one.seconds(profile) for name, one in rounds.items()}

    @cache
    def swept(workers: int, at_once: str, begin: float, end: float) -> tuple[Interval, ...]:
        def winner_at(share: float) -> str:
            return winner(seconds(workers, size_at(profile, share), at_once))

        return sweep(winner_at, begin, end, PLACES)

    def compare(row: Row) -> Comparison:
        workers, size = (count_of(table, row, name) for name in ("workers", "bytes"))
        at_once = str(table.inputs_of(row).get("deletes_at_once", ""))
        share = pipe_share(profile, size)
        return Comparison(
            row,
            workers,
            size,
            seconds(workers, size, at_once),
            {name: formula(name, profile, workers, size) for name in PATTERNS},
            share,
            swept(workers, at_once, min(SWEPT[0], share), max(SWEPT[1], share)),
            row.published,
        )

    return compare


def count_of(table: Table, row: Row, name: str) -> int:
    """An input that is a whole number; PaperError, naming the row, if it is none."""
    value = table.inputs_of(row).get(name)
    if not isinstance(value, int) or value < 1:
        raise PaperError(f"The row {row.name!r} of {table.source} does not say its {name}.", f"add {name} to it.")
    return value


def as_document(one: Comparison) -> dict[str, Any]:
    """A row as JSON: published values as the digits that were printed; an interval ends with null where the sweep
    does."""
    first, second = PATTERNS
    known: dict[str, Mapping[str, Any]] = {"published": one.published} if one.published else {}
    known["modelled"] = one.modelled
    last = len(one.intervals) - 1
    return {
        "row": one.row.name,
        "workers": one.workers,
        "bytes": one.size,
        "note": one.row.note,
        "published": {name: {"value": str(value), "basis": "published"} for name, value in one.published.items()},
        "modelled": {name: {"value": value, "basis": "modelled"} for name, value in one.modelled.items()},
        "formula": dict(one.formula),
        "ratio": {basis: float(seconds[first] / seconds[second]) for basis, seconds in known.items()},
        "winner": {basis: name or None for basis, name in one.winners.items()},
        "verdict": one.verdict or None,
        "reason": one.reason or None,
        "latency_bandwidth_size": one.share,
        "intervals": [
            {
                "begin": None if number == 0 else interval.begin,
                "end": None if number == last else interval.end,
                "winner": interval.winner or None,
            }
            for number, interval in enumerate(one.intervals)
        ],
    }
