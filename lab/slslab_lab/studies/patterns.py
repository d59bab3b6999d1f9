"""Published times of AllReduce and ScatterReduce compared with measured and modelled ones, by row and variant.

Published values come from `papers/`. The model plays a round on a profile that is chosen before the comparison and is
the same for all rows. Nothing is fitted to a row."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from slslab.errors import RequestError
from slslab.predict.profiles.profile import Profile
from slslab.run.directory import resolve
from slslab_lab.papers.paper import PaperError, Row, Table
from slslab_lab.replay.crossings import Interval, pipe_share, winner
from slslab_lab.replay.measured import Measured, read_measured
from slslab_lab.replay.programs.step_costs import StepCosts
from slslab_lab.replay.programs.transfers import transfer
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
# The longest logs to try in search of a winner, and the precision of where it changes.
LONGEST_LOG, NARROW = 10**10, 1.01


@dataclass(frozen=True)
class Variant:
    """Details of a round: its polling; the length of logs at its begin, with log traffic (`log_bytes`); and the pattern
    in which the merging worker `deletes_at_once` the objects it has read."""

    name: str
    polling: str
    log_bytes: int | None = None
    deletes_at_once: str = ""


def variants(table: Table, row: Row, polling: str | None = None) -> tuple[Variant, Variant]:
    """Return the variant of slslab's workers, and of the code that the row was measured with; both with another
    `polling` if given. Logs are as short as possible, since the length of the authors' logs is unknown."""
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
class Comparison:
    """One row in one variant: seconds of a round by pattern, `measured` (may be empty) and `modelled`; and the longest
    `chains` of its puts and gets.

    `share` is latency × bandwidth ÷ size of the row's gradients; `intervals` give the winner at other values.
    `unlogged` are the modelled seconds without log traffic, if the variant has any. `long_log` gives the logs with
    which a row that differs would agree, and the seconds by pattern with them; None if logs wouldn't help."""

    row: Row
    variant: Variant
    workers: int
    size: int
    modelled: Mapping[str, float]
    chains: Mapping[str, SizedChain]
    share: float
    intervals: tuple[Interval, ...]
    measured: Mapping[str, Exchange] = field(default_factory=dict)
    unlogged: Mapping[str, float] = field(default_factory=dict)
    long_log: tuple[int, Mapping[str, float]] | None = None

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
            return f"{difference}; the model gives that at no latency × bandwidth ÷ size.{self._logs(published)}"
        nearest = min((edge for interval in able for edge in (interval.begin, interval.end)), key=self._distance)
        times, way = self._distance(nearest), "smaller" if nearest < self.share else "larger"
        return (
            f"{difference}; in the model that winner begins at a latency × bandwidth ÷ size of {nearest:.3g}, "
            f"{times:,.{0 if times >= 100 else 1}f} times {way} than this row's.{self._logs(published)}"
        )

    def _logs(self, published: str) -> str:
        if not self.unlogged:
            return ""
        without, having = (
            seconds["allreduce"] / seconds["scatterreduce"] for seconds in (self.unlogged, self.modelled)
        )
        changed = f" Log traffic changes AllReduce ÷ ScatterReduce from {without:.2f} to {having:.2f}"
        if self.long_log is None:
            return f"{changed}; logs of any length don't make it {NAMES[published]}."
        length, at = self.long_log
        seconds = " and ".join(f"{at[name]:.1f} s" for name in PATTERNS)
        return (
            f"{changed}; only logs of {length / 1e6:,.0f} MB make it {NAMES[published]}, at {seconds} "
            f"instead of the published {' and '.join(f'{self.row.published[name]} s' for name in PATTERNS)}."
        )

    def _distance(self, share: float) -> float:
        return max(share / self.share, self.share / share)


@dataclass(frozen=True)
class Compared:
    """Rows, each in its variants; and the run that the CPU seconds come from, None if workers need none."""

    rows: Sequence[Sequence[Comparison]]
    run: str | None = None


def read(setup: Setup) -> Compared:
    """Play both patterns for all rows, or for the rows with the model of a given run."""
    options, table = setup.options, setup.paper.table(TABLES[setup.study.name])
    run, costs, rows = None, free_costs(), table.rows
    if "run" in options:
        found = resolve(options["run"])
        measured = read_measured(found.path, architectures())
        run, costs, rows = found.id, _costs(measured), _rows_of(measured, table)
    exchanges = read_exchanges(options.get("recordings"))
    compare = compare_rounds(table, setup.profile, costs, options.get("polling"), exchanges)
    compared = []
    for number, row in enumerate(rows, 1):
        compared.append(compare(row))
        setup.watcher.report("playing both patterns", number, len(rows))
    return Compared(compared, run)


def _costs(measured: Measured) -> dict[str, StepCosts]:
    """Return each pattern's step costs from a run of one of them; RequestError for a run of another architecture."""
    architecture = measured.plan.architecture
    if architecture not in PATTERNS:
        raise RequestError(f"{measured.plan.run} ran {architecture}.", f"name one of {' or '.join(PATTERNS)}.")
    return {
        name: measured.costs if name == architecture else transfer(measured.costs, architectures()[name], measured.plan)
        for name in PATTERNS
    }


def _rows_of(measured: Measured, table: Table) -> tuple[Row, ...]:
    """Return the rows with a run's model; RequestError if no row has it."""
    size = int(measured.document["gradient_bytes"])
    sizes = [count_of(table, row, "bytes") for row in table.rows]
    rows = tuple(row for row, row_size in zip(table.rows, sizes, strict=True) if is_same_size(size, row_size))
    if not rows:
        raise RequestError(
            f"{measured.plan.run} has gradients of {size:,} bytes, unlike all rows of {table.source}.",
            f"name a run of a model with {' or '.join(f'{each:,}' for each in dict.fromkeys(sizes))} bytes.",
        )
    return rows


def free_costs() -> dict[str, StepCosts]:
    """Return the costs of workers that need no CPU time."""
    return {name: without_compute(architectures()[name]) for name in PATTERNS}


def compare_rounds(
    table: Table,
    profile: Profile,
    costs: Mapping[str, StepCosts],
    polling: str | None = None,
    exchanges: Iterable[Exchange] = (),
) -> Callable[[Row], tuple[Comparison, ...]]:
    """Return a function that plays a round of each pattern, in each variant, for a row with `workers` and `bytes`, next
    to measured `exchanges` of the same model, workers and variant.

    RequestError for a profile without a latency or a bandwidth for gets."""
    if not pipe_share(profile, 1):
        raise RequestError(f"The profile {profile.name} has no latency for object.get.", "choose another --profile.")
    known = tuple(exchanges)

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
        comparison = Comparison(
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
                and is_same_size(entry.size, size)
            },
        )
        if variant.log_bytes is None:
            return comparison
        comparison = replace(comparison, unlogged=seconds(workers, size, replace(variant, log_bytes=None)))
        if not comparison.differs:
            return comparison
        long_log = find_log(
            lambda log: seconds(workers, size, replace(variant, log_bytes=log)), comparison.winners["published"]
        )
        return replace(comparison, long_log=long_log)

    return lambda row: tuple(compare(row, variant) for variant in variants(table, row, polling))


def find_log(seconds: Callable[[int], Mapping[str, float]], pattern: str) -> tuple[int, Mapping[str, float]] | None:
    """Return the shortest logs, in bytes, with which this pattern wins (or both tie), and the seconds with them; None
    if logs up to LONGEST_LOG don't."""
    low, high = 1, 2
    while winner(seconds(high)) != pattern:
        if high >= LONGEST_LOG:
            return None
        low, high = high, 2 * high
    while high > max(NARROW * low, low + 1):
        middle = round((low * high) ** 0.5)
        if winner(seconds(middle)) == pattern:
            high = middle
        else:
            low = middle
    return high, seconds(high)


def is_same_size(size: int, other: int) -> bool:
    """Return whether gradients of these sizes in bytes belong to the same model."""
    return abs(size - other) <= SAME_SIZE * other


def count_of(table: Table, row: Row, name: str) -> int:
    """Return an input that is a whole number; PaperError, naming the row, for anything else."""
    value = table.inputs_of(row).get(name)
    if not isinstance(value, int) or value < 1:
        raise PaperError(f"The row {row.name!r} of {table.source} has no {name}.", f"add {name} to it.")
    return value
