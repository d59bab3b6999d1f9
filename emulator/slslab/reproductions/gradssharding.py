"""GradsSharding's rounds: those measured on AWS to which the profile was fitted, and those that it foretells.

RQ2's measurements are the paper's (papers/gradssharding-2026.toml). RQ3's are public, and were not looked at when these
predictions were made and committed: whoever has them gives them as a file, and sees the errors. That is by declaration.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from slslab.errors import RequestError
from slslab.papers.paper import Paper
from slslab.replay.profiles.profile import Profile, load_profile
from slslab.reproductions.aggregation import (
    Cost,
    Fitted,
    Observed,
    Round,
    Setting,
    fit_network,
    play_round,
)
from slslab.reproductions.documents import Cell, ReproducedRow, head, read_entries
from slslab.reproductions.minibatches import Estimate
from slslab_workers.gradssharding.topology import levels, memory_mb

NAME, PAPER, TABLE = "gradssharding", "gradssharding-2026", "rq2"
PROFILE, BASE = "aws-us-east-1-2026", "aws-us-east-1"
SCHEMA = 1
# Init of a function: numpy and boto3 are imported in 0.31 CPU seconds on this project's host; scaled as adding is.
COST_OF_INIT_S = 1.1
# The range of CPU time per byte that an interval covers, as a factor either way: adding, by which it is scaled, is
# bound by memory and takes 3.6 times as long on Lambda as here; training steps, by the fit of Table 2, 2.3 times.
CPU_RANGE = 1.6
# A line through RQ2's reads, which the reference gives: what a model without physics would say, 10⁶ bytes a second.
LINE_MB_S = 60.7
# Nine rounds were measured, in three repetitions, the first of them cold.
ROUNDS, REPETITIONS, RUNS = 9, 3, 14
CONFIDENCE = 0.8
MODELS = {"ResNet-18": 11_181_642, "VGG-16": 134_301_514, "GPT-2 Large": 774_030_080, "synthetic 5 GB": 1_342_177_280}
TREES = ("lambda-fl", "lifl")
FORETOLD = (
    *((model, "shards", 4) for model in ("ResNet-18", "VGG-16", "GPT-2 Large")),
    ("synthetic 5 GB", "shards", 8),
    *((model, tree, 1) for model in ("ResNet-18", "VGG-16") for tree in TREES),
)
COLUMNS = (
    ("wall_seconds", "a round", "s", 1),
    ("slowest_seconds", "the slowest function", "s", 1),
    ("usd", "cost of a round", "USD", 6),
)


def _measured(value: object) -> object:
    """Return what was measured, of an entry as this document has it."""
    return value.get("measured") if isinstance(value, dict) else value


class Measurement(BaseModel):
    """One row that a user has measured: this document's row, or its names and numbers alone."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    model: str
    topology: str
    shards: Annotated[int, Field(ge=1)]
    wall_seconds: Annotated[float, BeforeValidator(_measured), Field(gt=0, allow_inf_nan=False)]
    slowest_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class Measurements(BaseModel):
    """A file of measured rows."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    schema_version: Annotated[int, Field(alias="schema")] = SCHEMA
    rows: Annotated[tuple[Measurement, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Foretold:
    """A row: the round as modelled, its interval as a factor either way, what baselines say, and what was measured."""

    experiment: str
    setting: Setting
    modelled: Round
    usd: float
    factor: float
    baselines: Mapping[str, float]
    measured: Mapping[str, float | None]

    @property
    def interval(self) -> tuple[float, float]:
        """Return the interval of the round's seconds."""
        return self.modelled.wall_s / self.factor, self.modelled.wall_s * self.factor

    def errors(self) -> dict[str, float]:
        """Return the relative errors of the round's seconds, of the model and each baseline; none if not measured."""
        seconds = self.measured["wall_seconds"]
        if seconds is None:
            return {}
        said = {"modelled": self.modelled.wall_s, **self.baselines}
        return {name: value / seconds - 1 for name, value in said.items()}


def observations(paper: Paper) -> list[Observed]:
    """Return RQ2's rounds."""
    table = paper.table(TABLE)
    return [_observed({**table.inputs_of(row), **row.published}) for row in table.rows]


def _observed(values: Mapping[str, Any]) -> Observed:
    numbers = (int(values[name]) for name in ("shards", "memory_mb", "clients"))
    names = ("get_rate", "put_rate", "sum_rate", "wall", "wall_deviation", "slowest", "cold", "cost")
    setting = Setting("VGG-16", int(values["parameters"]), "shards", *numbers)
    return Observed(setting, *(float(values[name]) for name in names))


def foretold_settings() -> list[Setting]:
    """Return RQ3's rows, with the memory sizes of the released code."""
    return [
        Setting(model, MODELS[model], topology, shards, _memory(model, MODELS[model], topology, shards))
        for model, topology, shards in sorted(FORETOLD, key=lambda row: list(MODELS).index(row[0]))
    ]


def _memory(model: str, parameters: int, topology: str, shards: int) -> int:
    largest = 4 * parameters // (shards if topology == "shards" else 1)
    return memory_mb(largest, 2 if model == "ResNet-18" else 3)


def build(paper: Paper, profile: Profile, measured: Path | None) -> dict[str, Any]:
    """Return the document: RQ2's rows and RQ3's, the fit with its leave-one-out errors, and what can be compared."""
    given = {} if measured is None else _read(measured)
    observed = observations(paper)
    base = load_profile(BASE)
    fit = fit_network(observed, base)
    left_out = _leave_one_out(observed, base, profile)
    deviations = _deviations(left_out, observed)
    rows = [
        *(_of_rq2(one, profile, fit, base, deviations) for one in observed),
        *(_of_rq3(one, profile, fit, base, deviations, observed, given) for one in foretold_settings()),
    ]
    table = paper.table(TABLE)
    return {
        **head(NAME, "replayed", paper, table),
        "profile": {"name": profile.name, "date": profile.date.isoformat(), "description": profile.description},
        "fit": {**vars(fit), "left_out": left_out},
        "columns": [dict(zip(("name", "title", "unit", "digits"), column, strict=True)) for column in COLUMNS],
        "rows": [_row(one).as_document() for one in rows],
        "comparison": _compare([one for one in rows if one.experiment == "RQ3"]),
        "rankings": [],
        "bills": [],
        "curves": [],
        "bars": list(_bars(rows)),
        "notes": list(_notes(rows, left_out, profile)),
    }


def _leave_one_out(observed: Sequence[Observed], base: Profile, profile: Profile) -> list[dict[str, float]]:
    """Return, for each measured round, its seconds as foretold by a fit to the others, and the error."""
    left_out = []
    for one in observed:
        fit = fit_network([other for other in observed if other is not one], base)
        modelled = _play(one.setting, fit.applied(profile, "all rounds but one"), fit.spread, one.add_s_per_gb)
        left_out.append(
            {
                "shards": one.setting.shards,
                "wall_seconds": modelled.wall_s,
                "error": modelled.wall_s / one.wall_s - 1,
                "slowest_error": modelled.slowest_s / one.slowest_s - 1,
            }
        )
    return left_out


def _play(setting: Setting, profile: Profile, spread: float, add_s_per_gb: float, *, cold: bool = False) -> Round:
    return play_round(setting, Cost(COST_OF_INIT_S, add_s_per_gb), profile, spread, cold=cold)


@dataclass(frozen=True)
class _Deviations:
    """Standard deviations of logarithms: of what is foretold of an unseen row, and of one run of a row."""

    unseen: float
    run: float
    freedom: int


def _deviations(left_out: Sequence[Mapping[str, float]], observed: Sequence[Observed]) -> _Deviations:
    errors = [math.log1p(row["error"]) for row in left_out]
    runs = [math.log1p(one.deviation_s / one.wall_s) for one in observed]
    unseen, run = (math.sqrt(fmean(value**2 for value in values)) for values in (errors, runs))
    return _Deviations(unseen, run, len(observed) - 1)


def _factor(deviations: _Deviations, runs: int, cpu: float = 0.0) -> float:
    """Return the interval's factor either way: of a mean of so many runs, beside an error of CPU time per byte."""
    from scipy.stats import t

    width = t.ppf((1 + CONFIDENCE) / 2, deviations.freedom)
    return math.exp(width * math.sqrt(deviations.unseen**2 + deviations.run**2 / runs + cpu**2))


def _of_rq2(one: Observed, profile: Profile, fit: Fitted, base: Profile, deviations: _Deviations) -> Foretold:
    modelled = _play(one.setting, profile, fit.spread, one.add_s_per_gb)
    return Foretold(
        "RQ2",
        one.setting,
        modelled,
        # As released: every function is paid as if it were the slowest.
        modelled.usd(one.setting.memory_mb, modelled.slowest_s * one.setting.shards),
        _factor(deviations, RUNS),
        _baselines(one.setting, base, one.add_s_per_gb),
        {"wall_seconds": one.wall_s, "slowest_seconds": one.slowest_s, "usd": one.usd},
    )


def _of_rq3(
    setting: Setting,
    profile: Profile,
    fit: Fitted,
    base: Profile,
    deviations: _Deviations,
    observed: Sequence[Observed],
    given: Mapping[tuple[str, str, int], Measurement],
) -> Foretold:
    add_s_per_gb = fmean(one.add_s_per_gb for one in observed)
    warm, cold = (_play(setting, profile, fit.spread, add_s_per_gb, cold=cold) for cold in (False, True))
    wall = ((ROUNDS - 1) * warm.wall_s + cold.wall_s) / ROUNDS
    slow, fast = (
        _play(setting, _with_cpu(profile, factor), fit.spread, add_s_per_gb).wall_s
        for factor in (CPU_RANGE, 1 / CPU_RANGE)
    )
    modelled = Round(wall, warm.slowest_s, warm.total_s, warm.gets, warm.puts)
    row = given.get((setting.model, setting.topology, setting.shards))
    return Foretold(
        "RQ3",
        setting,
        modelled,
        modelled.usd(setting.memory_mb, modelled.total_s),
        _factor(deviations, REPETITIONS, math.log(slow / fast) / 2),
        _baselines(setting, base, add_s_per_gb),
        {name: getattr(row, name, None) for name, *_ in COLUMNS},
    )


def _with_cpu(profile: Profile, factor: float) -> Profile:
    """Return the profile with so many times the CPU time per byte of its object store's client."""
    objects = profile.channels["object"]
    operations = {
        name: operation
        if operation.cpu_ms_per_mb is None
        else operation.model_copy(
            update={
                "cpu_ms_per_mb": operation.cpu_ms_per_mb.model_copy(
                    update={"value": operation.cpu_ms_per_mb.value * factor}
                )
            }
        )
        for name, operation in objects.operations.items()
    }
    channel = objects.model_copy(update={"operations": operations})
    return profile.model_copy(update={"channels": {**profile.channels, "object": channel}})


def _baselines(setting: Setting, base: Profile, add_s_per_gb: float) -> dict[str, float]:
    """Return the round's seconds by what its longest chain of functions moves at one rate, and on the base profile."""
    moved = 0.0
    for level in levels(setting.topology, setting.clients, setting.shards):
        share = setting.shards if setting.topology == "shards" else 1
        moved += max(len(one.inputs) + 1 for one in level) * 4e-6 * setting.parameters / share
    return {f"{LINE_MB_S} MB/s": moved / LINE_MB_S, base.name: _play(setting, base, 0.0, add_s_per_gb).wall_s}


def _read(path: Path) -> dict[tuple[str, str, int], Measurement]:
    """Return a file's measured rows; RequestError for a row that is not foretold."""
    hint = 'give JSON: {"schema": 1, "rows": [{"model": …, "topology": …, "shards": …, "wall_seconds": …}]}.'
    rows = read_entries(path, Measurements, SCHEMA, "measurements", RequestError, hint).rows
    found = {(row.model, row.topology, row.shards): row for row in rows}
    if len(found) < len(rows):
        raise RequestError(f"{path} has a row twice.", "leave one of them out.")
    if unknown := [key for key in found if key not in FORETOLD]:
        model, topology, shards = unknown[0]
        raise RequestError(
            f"{path} has a row that is not foretold: {model}, {topology}, {shards} shards.",
            f"rows are {'; '.join(f'{model}, {topology}, {shards}' for model, topology, shards in FORETOLD)}.",
        )
    return found


def _compare(rows: Sequence[Foretold]) -> dict[str, Any] | None:
    """Return errors of the model and the baselines over what was measured, and how many intervals hold it."""
    errors = {row.setting: row.errors() for row in rows if row.errors()}
    if not errors:
        return None
    named: dict[str, list[float]] = {}
    for row in errors.values():
        for name, error in row.items():
            named.setdefault(name, []).append(abs(error))
    held = [
        row.interval[0] <= seconds <= row.interval[1]
        for row in rows
        if (seconds := row.measured["wall_seconds"]) is not None
    ]
    return {
        "rows": [
            {"model": setting.model, "topology": setting.topology, "shards": setting.shards, "errors": row}
            for setting, row in errors.items()
        ],
        "mean": {name: fmean(values) for name, values in named.items()},
        "worst": {name: max(values) for name, values in named.items()},
        "confidence": CONFIDENCE,
        "covered": sum(held),
        "of": len(held),
    }


def _row(one: Foretold) -> ReproducedRow:
    setting, (low, high) = one.setting, one.interval
    modelled = {"wall_seconds": one.modelled.wall_s, "slowest_seconds": one.modelled.slowest_s, "usd": one.usd}
    estimates = {name: Estimate(value, None, None, 0) for name, value in modelled.items()}
    estimates["wall_seconds"] = Estimate(modelled["wall_seconds"], low, high, 0)
    cells = {
        name: Cell(None if seen is None else Decimal(str(seen)), modelled=estimates[name])
        for name, seen in one.measured.items()
    }
    seconds = {"modelled": modelled["wall_seconds"], "low": low, "high": high, "measured": one.measured["wall_seconds"]}
    more = {
        "experiment": one.experiment,
        "model": setting.model,
        "topology": setting.topology,
        "shards": setting.shards,
        "memory_mb": setting.memory_mb,
        "wall_seconds": seconds,
        "slowest_seconds": modelled["slowest_seconds"],
        "usd": modelled["usd"],
        "baselines": dict(one.baselines),
    }
    name = f"{setting.topology}, M = {setting.shards}" if setting.topology == "shards" else setting.topology
    # That a row agrees to which the model was fitted shows little.
    variant = f"{one.experiment}, {'fitted' if one.experiment == 'RQ2' else 'foretold'}"
    return ReproducedRow(name, setting.model, variant, cells, more=more)


def _bars(rows: Sequence[Foretold]) -> Iterator[dict[str, Any]]:
    """Yield a chart for each experiment: seconds of a round, modelled and measured."""
    for experiment in dict.fromkeys(row.experiment for row in rows):
        members = [row for row in rows if row.experiment == experiment]
        yield {
            "title": f"{experiment}: a round",
            "axis": "time of a round",
            "unit": "s",
            "series": ["measured on AWS", "modelled"],
            "values": [
                [f"{row.setting.model}\n{row.setting.topology} {row.setting.shards}", series, seconds]
                for row in members
                for series, seconds in (
                    ("measured on AWS", row.measured["wall_seconds"]),
                    ("modelled", row.modelled.wall_s),
                )
                if seconds is not None
            ],
        }


def _notes(rows: Sequence[Foretold], left_out: Sequence[Mapping[str, float]], profile: Profile) -> Iterator[str]:
    errors = [abs(row["error"]) for row in left_out]
    fitted = [abs(row.errors()["modelled"]) for row in rows if row.experiment == "RQ2"]
    yield (
        f"Modelled on {profile.name} of {profile.date}, whose network and spread of functions are fitted to RQ2's five "
        f"rows: they are {fmean(fitted):.0%} off on average (at most {max(fitted):.0%}), each left out of the fit "
        f"{fmean(errors):.0%} ({max(errors):.0%}). RQ3's rows were foretold before any of them was looked at; they are "
        "public, so that this is by declaration."
    )
    yield (
        f"Intervals of {CONFIDENCE:.0%} hold the leave-one-out error, the deviation of repeated runs, and an error of "
        f"{CPU_RANGE - 1:.0%} in the CPU time per byte. They hold for one author's account, in one region, and say "
        "little about memory sizes and objects outside the range of the fit: RQ2's functions have 3,008 MB, RQ3's 472 "
        "to 2,665 MB; RQ2's objects have 34 to 537 MB, RQ3's 11 to 774 MB."
    )
    yield (
        "A round is the mean of nine, of which the first is cold. RQ2's cost takes the slowest function for all, RQ3's "
        "the sum of all functions, as released: without Lambda's requests and init."
    )
    comparison = _compare([row for row in rows if row.experiment == "RQ3"])
    if comparison is None:
        yield "RQ3's measured column is empty: --measured FILE fills it, and shows the errors."
        return
    worst = comparison["worst"]
    parts = "; ".join(f"{name} {mean:.0%} (at most {worst[name]:.0%})" for name, mean in comparison["mean"].items())
    yield (
        f"Errors of RQ3's rounds, mean and greatest: {parts}. {comparison['covered']} of {comparison['of']} intervals "
        "hold what was measured."
    )
