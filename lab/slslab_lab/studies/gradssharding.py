"""GradsSharding's rounds on AWS: five that the profile is fitted to (RQ2), and eight that were predicted (RQ3).

The measurements are in papers/gradssharding-2026.toml. RQ3's predictions are kept in gradssharding.toml as they were
committed, before the comparison. Nothing is fitted to RQ3.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from slslab.predict.profiles.profile import Profile, load_profile
from slslab.report.formats import percent
from slslab.toml_files import DataFiles, TomlTable
from slslab_lab.papers.paper import Paper
from slslab_lab.studies.aggregation import Fitted, Observed, Setting, fit_network, play_round
from slslab_lab.studies.documents import Cell, Estimate, ReproducedRow, make_document
from slslab_lab.studies.study import Setup

FITTED_TO, BLIND = "rq2", "rq3"
PROFILE, BASE = "aws-us-east-1-2026", "aws-us-east-1"
PREDICTIONS = Path(__file__).with_suffix(".toml")
# RQ2's means are over 14 warm rounds.
RUNS = 14
CONFIDENCE = 0.8
COLUMNS = (
    ("wall_seconds", "Time of a round", "s", 1),
    ("slowest_seconds", "Time of the slowest function", "s", 1),
    ("usd", "Cost of a round", "USD", 6),
)
# Names in `comparison`: the predictions' seconds and dollars.
SECONDS, USD = "seconds", "usd"


class Prediction(TomlTable):
    """Prediction of a round: seconds with their interval, seconds of the slowest function, USD, baselines' seconds."""

    model: str
    topology: str
    shards: int
    seconds: float
    low: float
    high: float
    slowest_seconds: float
    usd: float
    baselines: Mapping[str, float]


class Predictions(TomlTable):
    """RQ3's predictions, with the commit that made them and their profile."""

    commit: str
    date: date
    profile: str
    rows: tuple[Prediction, ...]


@dataclass(frozen=True)
class Compared:
    """A round: the predicted figures, or modelled ones with a `fitted` profile; and the measurements by column."""

    ours: Prediction
    measured: Mapping[str, Decimal]
    fitted: bool

    @property
    def measured_s(self) -> float:
        """Return the measured seconds of the round."""
        return float(self.measured["wall_seconds"])

    def errors(self) -> dict[str, float]:
        """Return the relative errors of seconds, of USD, and of the seconds from baselines."""
        seconds = {SECONDS: self.ours.seconds, **self.ours.baselines}
        errors = {name: value / self.measured_s - 1 for name, value in seconds.items()}
        return {**errors, USD: self.ours.usd / float(self.measured["usd"]) - 1}


@cache
def predictions() -> Predictions:
    """Return RQ3's predictions as they were committed."""
    return DataFiles(Predictions, "file of predictions", schema=1).load(PREDICTIONS)


def observations(paper: Paper) -> list[Observed]:
    """Return RQ2's rounds."""
    names = ("get_rate", "put_rate", "sum_rate", "wall", "wall_deviation", "slowest")
    return [
        Observed(_setting(values), *(float(values[name]) for name in names)) for values in _values(paper, FITTED_TO)
    ]


def _values(paper: Paper, table: str) -> Iterator[dict[str, Any]]:
    for row in paper.table(table).rows:
        yield {**paper.table(table).inputs_of(row), **row.published}


def _setting(values: Mapping[str, Any]) -> Setting:
    model, topology = str(values["model"]), str(values["topology"])
    return Setting(
        model, int(values["parameters"]), topology, *(int(values[name]) for name in ("shards", "memory_mb", "clients"))
    )


def build(setup: Setup, _: None = None) -> dict[str, Any]:
    """Return the document: RQ3's predictions with their errors, RQ2's rounds, and the fit with leave-one-out errors."""
    paper, profile = setup.paper, setup.profile
    observed = observations(paper)
    base = load_profile(BASE)
    fit = fit_network(observed, base)
    left_out = _leave_one_out(observed, base, profile)
    factor = _factor(left_out, observed)
    fitted = [
        _of_rq2(one, values, profile, fit, factor)
        for one, values in zip(observed, _values(paper, FITTED_TO), strict=True)
    ]
    predicted = [_of_rq3(values) for values in _values(paper, BLIND)]
    tables = [paper.table(name) for name in (BLIND, FITTED_TO)]
    comparison = _compare(predicted)
    return make_document(
        setup,
        tables[0],
        [*COLUMNS, *((name, f"Time of a round, {_baseline(name)}", "s", 1) for name in predicted[0].ours.baselines)],
        map(_row, [*fitted, *predicted]),
        _notes(profile, fit, left_out, fitted),
        table={
            "title": "Rounds of GradsSharding, λ-FL and LIFL on AWS Lambda",
            "source": "RQ2 and RQ3, the measurements released with the paper",
            "notes": [note for table in tables for note in table.notes],
        },
        profile=profile,
        findings=list(_findings(comparison)),
        fit={**vars(fit), "left_out": left_out},
        comparison=comparison,
    )


def _leave_one_out(observed: Sequence[Observed], base: Profile, profile: Profile) -> list[dict[str, float]]:
    left_out = []
    for one in observed:
        fit = fit_network([other for other in observed if other is not one], base)
        others = fit.applied(profile, "all rounds but one")
        modelled = play_round(one.setting, one.add_s_per_gb, others, fit.spread)
        left_out.append(
            {
                "shards": one.setting.shards,
                "wall_seconds": modelled.wall_s,
                "error": modelled.wall_s / one.wall_s - 1,
                "slowest_error": modelled.slowest_s / one.slowest_s - 1,
            }
        )
    return left_out


def _factor(left_out: Sequence[Mapping[str, float]], observed: Sequence[Observed]) -> float:
    """Return the factor of an interval in both directions: RQ2's mean of warm runs, for a round outside the fit."""
    from scipy.stats import t

    errors = [math.log1p(row["error"]) for row in left_out]
    runs = [math.log1p(one.deviation_s / one.wall_s) for one in observed]
    unseen, run = (fmean(value**2 for value in values) for values in (errors, runs))
    width = t.ppf((1 + CONFIDENCE) / 2, len(observed) - 1)
    return math.exp(width * math.sqrt(unseen + run / RUNS))


def _of_rq2(one: Observed, values: Mapping[str, Any], profile: Profile, fit: Fitted, factor: float) -> Compared:
    setting, modelled = one.setting, play_round(one.setting, one.add_s_per_gb, profile, fit.spread)
    ours = Prediction(
        model=setting.model,
        topology=setting.topology,
        shards=setting.shards,
        seconds=modelled.wall_s,
        low=modelled.wall_s / factor,
        high=modelled.wall_s * factor,
        slowest_seconds=modelled.slowest_s,
        # As released: every function is billed as if it were the slowest.
        usd=modelled.usd(setting.memory_mb, modelled.slowest_s * setting.shards),
        baselines={},
    )
    return Compared(ours, _measured(values), fitted=True)


def _measured(values: Mapping[str, Any]) -> dict[str, Decimal]:
    names = {"wall_seconds": "wall", "slowest_seconds": "slowest", "usd": "cost"}
    return {column: values[name] for column, name in names.items() if name in values}


def _of_rq3(values: Mapping[str, Any]) -> Compared:
    setting = _setting(values)
    key = (setting.model, setting.topology, setting.shards)
    prediction = next(row for row in predictions().rows if (row.model, row.topology, row.shards) == key)
    return Compared(prediction, _measured(values), fitted=False)


def _compare(rows: Sequence[Compared]) -> dict[str, Any]:
    made = predictions()
    errors = [row.errors() for row in rows]
    inside = [row.ours.low <= row.measured_s <= row.ours.high for row in rows]
    return {
        "commit": made.commit,
        "date": made.date.isoformat(),
        "profile": made.profile,
        "rows": [
            {**row.ours.model_dump(include={"model", "topology", "shards"}), "inside": within, "errors": of_row}
            for row, within, of_row in zip(rows, inside, errors, strict=True)
        ],
        "errors": {name: _summary([of_row[name] for of_row in errors]) for name in errors[0]},
        "confidence": CONFIDENCE,
        "covered": sum(inside),
        "of": len(rows),
    }


def _summary(errors: Sequence[float]) -> dict[str, float]:
    sizes, low = [abs(error) for error in errors], sum(error < 0 for error in errors)
    return {"mean": fmean(sizes), "worst": max(sizes), "bias": fmean(errors), "too_low": low}


def _row(one: Compared) -> ReproducedRow:
    ours, measured = one.ours, one.measured
    cells = {
        "wall_seconds": Cell(
            measured["wall_seconds"], modelled=Estimate(ours.seconds, ours.low, ours.high, 0), fitted=one.fitted
        ),
        "slowest_seconds": Cell(
            measured.get("slowest_seconds"), modelled=Estimate(ours.slowest_seconds, samples=0), fitted=one.fitted
        ),
        "usd": Cell(measured["usd"], modelled=Estimate(ours.usd, samples=0), fitted=one.fitted),
        # Baselines are compared, but get no verdict, either.
        **{
            name: Cell(measured["wall_seconds"], modelled=Estimate(seconds, samples=0), fitted=True)
            for name, seconds in ours.baselines.items()
        },
    }
    topology = f"{ours.topology}, M = {ours.shards}" if ours.topology == "shards" else ours.topology
    return ReproducedRow(topology, ours.model, "RQ2, fitted" if one.fitted else "RQ3, predicted", cells)


def _baseline(name: str) -> str:
    return f"{'bytes ÷' if name.endswith('MB/s') else 'profile'} {name}"


def _findings(comparison: Mapping[str, Any]) -> Iterator[str]:
    errors, of = comparison["errors"], comparison["of"]
    seconds, usd = errors[SECONDS], errors[USD]
    yield (
        f"RQ3's {of} rounds were predicted on {comparison['date']} (commit {comparison['commit'][:7]}), before the "
        f"comparison: their seconds are off by {_size(seconds)}, and {comparison['covered']} of {of} intervals of "
        f"{percent(comparison['confidence'])} contain the measured time."
    )
    bias = percent(seconds["bias"], "+.1")
    yield f"{seconds['too_low']} of {of} predicted times are too low; the mean error is {bias}."
    yield f"Predicted costs are off by {_size(usd)}; {usd['too_low']} of {of} are too low."
    yield (
        "Baselines: "
        + "; ".join(
            f"{_baseline(name)} is off by {_size(error)}"
            for name, error in errors.items()
            if name not in (SECONDS, USD)
        )
        + "."
    )


def _size(error: Mapping[str, float]) -> str:
    return f"{percent(error['mean'], '.1')} on average (at most {percent(error['worst'], '.1')})"


def _notes(
    profile: Profile, fit: Fitted, left_out: Sequence[Mapping[str, float]], fitted: Sequence[Compared]
) -> Iterator[str]:
    sizes = [abs(row.errors()[SECONDS]) for row in fitted]
    others = [abs(row["error"]) for row in left_out]
    yield (
        f"RQ2's rounds are modelled on {profile.name} of {profile.date}. The network of {PROFILE} and the spread "
        f"of functions are fitted to these rounds: they are {percent(fmean(sizes))} off on average (at most "
        f"{percent(max(sizes))}), each left out of the fit {percent(fmean(others))} ({percent(max(others))})."
    )
    rounds = (
        f"M = {row['shards']} takes {row['wall_seconds']:.1f} s ({percent(row['error'], '+.1')}, its slowest function "
        f"{percent(row['slowest_error'], '+.1')})"
        for row in left_out
    )
    yield (
        f"By the fit, a connection moves {fit.connection_mb_s:.1f} MB/s; a function's network refills at "
        f"{fit.refill_mb_s:.1f} MB/s and holds {fit.burst_mb:.0f} MB; the logarithms of functions' times have a "
        f"standard deviation of {fit.spread:.3f}. These four were named before the fit. Each round by a fit to the "
        f"other four: {'; '.join(rounds)}."
    )
    yield (
        "RQ3's measurements were public when the predictions were made. We declare that we hadn't looked at them; "
        "this can't be proved. Nothing is fitted to RQ3; a fitted figure would have to be marked."
    )
    yield (
        f"Intervals of {percent(CONFIDENCE)} cover the leave-one-out error and the deviation of repeated runs; RQ3's "
        "also an error of 60 % in the CPU time per byte. They apply to one author's account, in one region. RQ2's "
        "functions have 3,008 MB, RQ3's 472 to 2,665 MB; RQ2's objects have 34 to 537 MB, RQ3's 11 to 774 MB."
    )
    yield (
        "As released, RQ2's costs use the slowest function for all and RQ3's the sum of all functions, without "
        "Lambda's requests and init."
    )
