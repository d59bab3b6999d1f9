"""Combine several recordings of one plan: means, and 80 % ranges that include the differences between recordings."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from statistics import fmean, stdev

from slslab.errors import RequestError
from slslab.predict.anchors import Z80
from slslab.predict.uncertainty import SPREAD, Uncertainty
from slslab_lab.replay.measured import Measured
from slslab_lab.replay.whatif import Row, Valued
from slslab_workers.plan import Plan

CONFIDENCE = 0.8


def check_one_plan(runs: Sequence[Measured]) -> None:
    """Raise RequestError unless these are different recordings of the same plan; it names the difference."""
    first = runs[0].plan
    for number, run in enumerate(runs[1:], 1):
        if run.plan.run in [before.plan.run for before in runs[:number]]:
            raise RequestError(f"{run.plan.run} is given twice.", "name each recording once.")
        if (differs := next(_differences(first, run.plan), None)) is not None:
            raise RequestError(
                f"{first.run} and {run.plan.run} are not recordings of one plan: {differs} differs.",
                "replay them one by one, or see `slslab compare`.",
            )


def _differences(first: Plan, second: Plan) -> Iterator[str]:
    one, other = first.to_document(), second.to_document()
    for name in sorted((one.keys() | other.keys()) - {"run", "options"}):
        if one.get(name) != other.get(name):
            yield name
    for name in sorted(first.options.keys() | second.options.keys()):
        if first.options.get(name) != second.options.get(name):
            yield name


def combine(rows: Sequence[Row]) -> Row:
    """Combine the same row of several recordings into one, with the bill of the recording closest to the mean cost.

    Figures are means. A modelled figure's 80 % range uses the spread between recordings instead of the recordings' own
    errors if the spread is wider. A measured figure's range is the spread.
    """
    if len(rows) == 1:
        return rows[0]
    if (refused := next((row for row in rows if row.trouble), None)) is not None:
        return refused
    uncertainties = {
        name: _joined([row.uncertainties[name] for row in rows], [row.number(name) for row in rows])
        for name in rows[0].uncertainties
    }
    figures = {
        name: _combined([row.figures[name] for row in rows], uncertainties.get(name)) for name in rows[0].figures
    }
    middle = min(rows, key=lambda row: abs(Decimal(row.figures["cost"].value) - Decimal(figures["cost"].value)))
    late = tuple(call for row in rows for call in row.late)
    return replace(
        rows[0], figures=figures, bill=middle.bill, bases=middle.bases, late=late, uncertainties=uncertainties
    )


def _joined(uncertainties: Sequence[Uncertainty], values: Sequence[float]) -> Uncertainty:
    """Return the uncertainty of the mean: averaged errors, with the spread in place of own errors if it is wider."""

    def mean(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
        return {name: fmean(part.get(name, 0.0) for part in parts) for name in {**parts[0], **parts[-1]}}

    shared, own = mean([each.shared for each in uncertainties]), mean([each.own for each in uncertainties])
    spread = math.log1p(half_width(values) / fmean(values)) / Z80 if any(values) else 0.0
    return Uncertainty(shared, own if math.hypot(*own.values()) >= spread else {SPREAD: spread})


def _combined(valued: Sequence[Valued], uncertainty: Uncertainty | None) -> Valued:
    values = [one.value for one in valued]
    numbers = list(map(float, values))
    mean, alike = fmean(numbers), len(set(values)) == 1
    exact = isinstance(values[0], Decimal)
    value = values[0] if alike else Decimal(f"{mean:.12g}") if exact else mean
    if uncertainty is not None:
        return Valued(value, valued[0].basis, *uncertainty.around(mean))
    if alike or valued[0].basis == "modelled":
        return Valued(value, valued[0].basis)
    half = half_width(numbers)
    return Valued(value, valued[0].basis, max(0.0, mean - half), mean + half)


def half_width(numbers: Sequence[float]) -> float:
    """Return half of the 80 % prediction interval for the next recording (Student's t)."""
    from scipy.stats import t

    width = float(t.ppf((1 + CONFIDENCE) / 2, len(numbers) - 1))
    return width * stdev(numbers) * math.sqrt(1 + 1 / len(numbers))


def likelihood(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the probability that the first mean is smaller than the second, by Welch's t."""
    from scipy.stats import ttest_ind_from_stats

    if not any(map(stdev, (first, second))):
        difference = fmean(second) - fmean(first)
        return 0.5 + 0.5 * ((difference > 0) - (difference < 0))
    moments = [moment for values in (second, first) for moment in (fmean(values), stdev(values), len(values))]
    return float(ttest_ind_from_stats(*moments, equal_var=False, alternative="less").pvalue)
