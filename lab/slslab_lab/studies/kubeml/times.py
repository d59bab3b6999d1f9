"""KubeML's times of ResNet34 by merges: its pattern played on a profile, with one fitted constant."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from slslab.predict.environment import NS
from slslab.predict.profiles.profile import Profile, with_figures
from slslab.report.formats import percent
from slslab_lab.papers.paper import Paper, Row
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.programs.scaling import generate
from slslab_lab.replay.rounds import without_compute
from slslab_lab.studies.documents import Cell, Estimate, ReproducedRow, make_curve, make_document
from slslab_lab.studies.study import Setup
from slslab_workers.kubeml.driver import KubeML
from slslab_workers.kubeml.pattern import pattern_of
from slslab_workers.kubeml.shares import ALL, DOCUMENT, Epoch, document_count
from slslab_workers.patterns import Activity, Pattern, Workload

TABLE = "epochs"
SAMPLES = 50_000
# The numbers of functions over which the published seconds are means.
FUNCTIONS, FUNCTIONS_OF_ONE_MERGE = (2, 4), (2, 4, 8)
# Rates in 10⁶ bytes a second at which epochs are played; between them, seconds are linear in seconds per byte.
RATES = (60.0, 120.0, 240.0, 480.0, 960.0)
COLUMNS = (("seconds", "30 epochs of ResNet34 on CIFAR-10", "s", 1),)
# ResNet34 as released: torchvision's, with 1,000 classes.
PARAMETERS, TENSORS, BUFFERS = 21_797_672, 218, 17_060
MODEL_MB = 4 * (PARAMETERS + BUFFERS) / 1e6


@dataclass(frozen=True)
class Setting:
    """A published row: minibatches of `batch_size`, `k` of them between merges, and the seconds of its `epochs`."""

    row: Row
    batch_size: int
    k: int
    epochs: int
    seconds: float

    @property
    def given(self) -> bool:
        """Return whether it merges once an epoch; these rows give the time outside merging."""
        return self.k == ALL

    def of_functions(self) -> list[Epoch]:
        """Return the epochs, one per number of functions, that its seconds average over."""
        numbers = FUNCTIONS_OF_ONE_MERGE if self.given else FUNCTIONS
        return [Epoch(number, SAMPLES, self.batch_size, self.k) for number in numbers]

    @property
    def merges(self) -> float:
        """Return M, the merges of an epoch, as that mean."""
        return fmean(len(epoch.rounds) for epoch in self.of_functions())


def settings_of(paper: Paper) -> list[Setting]:
    """Return the published rows."""
    table = paper.table(TABLE)
    found = []
    for row in table.rows:
        inputs = table.inputs_of(row)
        sizes = (int(inputs["batch_size"]), int(inputs["steps"]) or ALL, int(inputs["epochs"]))
        assert (int(inputs["documents"]), int(inputs["samples"])) == (document_count(SAMPLES), DOCUMENT)
        found.append(Setting(row, *sizes, float(row.published["seconds"])))
    return found


class _Released(KubeML):
    """KubeML with the paper's documents, which needn't divide into a plan's minibatches."""

    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch

    def pattern(self, workload: Workload) -> Pattern:
        """Return the pattern of the epoch without validation, and without loading documents."""
        workload = replace(workload, parameters=PARAMETERS, tensors=TENSORS, buffers=BUFFERS, evaluation=False)
        made = pattern_of(workload, self._epoch)

        def is_kept(part: Any) -> bool:
            return not (isinstance(part, Activity) and part.op == "object.get")

        return replace(
            made, roles=tuple(replace(role, start=tuple(filter(is_kept, role.start))) for role in made.roles)
        )


def merging_seconds(epoch: Epoch, profile: Profile) -> float:
    """Return the seconds of an epoch without CPU time: the second of two, with warm environments."""
    costs = without_compute(_Released(epoch))
    functions = {name: replace(costs.functions["invocation"], name=name) for name in ("invocation", "init", "job")}
    program = generate(replace(costs, functions=functions), epoch.functions, 1, 2)
    calls = list(zip(program.tracks, play(program, profile).calls, strict=True))
    first, second = (max(call.ended for track, call in calls if track.epoch == number) for number in range(2))
    return (second - first) / NS


def with_rate(profile: Profile, rate_mb_s: float) -> Profile:
    """Return the profile with tensors that move at this rate, in 10⁶ bytes a second."""
    return with_figures(
        profile,
        lambda _, figure: figure.model_copy(update={"value": rate_mb_s}),
        "channels.tensor.operations.*.bandwidth_mb_s",
    )


def merging(settings: Sequence[Setting], profile: Profile) -> Callable[[float], list[float]]:
    """Return a function that maps a rate to the merging seconds in an epoch of each setting."""
    epochs = {epoch for setting in settings for epoch in setting.of_functions()}
    played = {epoch: [merging_seconds(epoch, with_rate(profile, rate)) for rate in reversed(RATES)] for epoch in epochs}
    inverse = [1 / rate for rate in reversed(RATES)]

    def seconds(rate_mb_s: float) -> list[float]:
        return [
            fmean(float(np.interp(1 / rate_mb_s, inverse, played[epoch])) for epoch in setting.of_functions())
            for setting in settings
        ]

    return seconds


def fit(
    settings: Sequence[Setting], merged: Callable[[float], list[float]], left_out: int | None = None
) -> tuple[float, list[float]]:
    """Fit the rate by the squared relative errors of the modelled settings, without those with `left_out` samples a
    minibatch. Return it, in 10⁶ bytes a second, with the seconds of all settings at that rate."""

    def modelled(rate_mb_s: float) -> list[float]:
        pairs = list(zip(settings, merged(rate_mb_s), strict=True))
        rest = {one.batch_size: one.seconds / one.epochs - seconds for one, seconds in pairs if one.given}
        return [one.epochs * (rest[one.batch_size] + seconds) for one, seconds in pairs]

    def squares(inverse: float) -> float:
        return sum(error**2 for error in errors_of(settings, modelled(1 / inverse), left_out))

    found = minimize_scalar(squares, bounds=(1 / RATES[-1], 1 / RATES[0]), method="bounded", options={"xatol": 1e-7})
    rate_mb_s = float(1 / found.x)
    return rate_mb_s, modelled(rate_mb_s)


def errors_of(settings: Sequence[Setting], seconds: Sequence[float], left_out: int | None = None) -> list[float]:
    """Return the relative errors of the modelled settings, without those with `left_out` samples a minibatch."""
    pairs = zip(settings, seconds, strict=True)
    return [value / one.seconds - 1 for one, value in pairs if not one.given and one.batch_size != left_out]


def straightness(settings: Sequence[Setting], seconds: Sequence[float]) -> float:
    """Return R² of seconds by merges."""
    return float(np.corrcoef([setting.merges for setting in settings], seconds)[0, 1] ** 2)


def slopes(settings: Sequence[Setting], seconds: Sequence[float]) -> list[float]:
    """Return the seconds per merge and epoch, between each K and the next of the same minibatches, without K = ∞."""
    timed = [(setting, value) for setting, value in zip(settings, seconds, strict=True) if not setting.given]
    return [
        (before - after) / (one.epochs * (one.merges - other.merges))
        for (one, before), (other, after) in pairwise(timed)
        if one.batch_size == other.batch_size
    ]


def build(setup: Setup, _: None = None) -> dict[str, Any]:
    """Return the document: all settings modelled, and lines by merges."""
    paper, profile = setup.paper, setup.profile
    settings = settings_of(paper)
    merged = merging(settings, profile)
    rate_mb_s, fitted = fit(settings, merged)
    sizes = list(dict.fromkeys(setting.batch_size for setting in settings))
    others = {size: fit(settings, merged, size)[1] for size in sizes}
    left_out = [others[setting.batch_size][number] for number, setting in enumerate(settings)]
    timings = {"published": [setting.seconds for setting in settings], "modelled": fitted}
    lines = {
        name: {
            "all": straightness(settings, seconds),
            **{str(size): straightness(*_of_size(settings, seconds, size)) for size in sizes},
        }
        for name, seconds in timings.items()
    }
    errors = {"fitted": errors_of(settings, fitted), "left_out": errors_of(settings, left_out)}
    figures: dict[str, Any] = {
        "fit": {"rate_mb_s": rate_mb_s, "errors": errors},
        "lines": lines,
        "slopes": {name: slopes(settings, seconds) for name, seconds in timings.items()},
    }
    return make_document(
        setup,
        paper.table(TABLE),
        COLUMNS,
        map(_row, settings, fitted),
        _notes(profile, rate_mb_s),
        curves=[_picture(settings, fitted, size) for size in sizes],
        fidelity="modelled",
        profile=profile,
        findings=list(_findings(figures)),
        **figures,
        fitted="The rate of tensors is fitted to the modelled rows, so their agreement doesn't test the model.",
    )


def _of_size(settings: Sequence[Setting], seconds: Sequence[float], size: int) -> tuple[list[Setting], list[float]]:
    chosen = [(setting, value) for setting, value in zip(settings, seconds, strict=True) if setting.batch_size == size]
    return [setting for setting, _ in chosen], [value for _, value in chosen]


def _row(setting: Setting, seconds: float) -> ReproducedRow:
    every = "merged once an epoch" if setting.given else f"merged every {setting.k}"
    name, group = f"{every}, M = {setting.merges:g}", f"minibatches of {setting.batch_size}"
    # These rows provide the given figures, so their agreement would show nothing.
    cells = {"seconds": Cell(setting.row.published["seconds"], modelled=None if setting.given else Estimate(seconds))}
    return ReproducedRow(name, group, "given" if setting.given else "modelled", cells)


def _picture(settings: Sequence[Setting], seconds: Sequence[float], size: int) -> dict[str, Any]:
    pairs = sorted(zip(*_of_size(settings, seconds, size), strict=True), key=lambda pair: pair[0].merges)
    merges = [one.merges for one, _ in pairs]
    lines = [
        ("published", merges, [one.seconds for one, _ in pairs]),
        ("modelled", merges, [value for _, value in pairs]),
    ]
    x, y = ("merges", "merges of an epoch", ""), ("seconds", "30 epochs", "s")
    return make_curve(f"Minibatches of {size}: seconds of 30 epochs by merges", f"minibatches of {size}", x, y, lines)


def _findings(figures: Mapping[str, Any]) -> Iterator[str]:
    lines, slopes, fitted = figures["lines"], figures["slopes"], figures["fit"]
    least = {name: min(each for size, each in found.items() if size != "all") for name, found in lines.items()}
    yield (
        f"Modelled times are linear in the merges M of an epoch: R² ≥ {_cut(least['modelled'])} for each size of "
        f"minibatches, published {_cut(least['published'])}; {_cut(lines['modelled']['all'])} and "
        f"{_cut(lines['published']['all'])} by one line for all 16."
    )
    said = {
        name: f"{fmean(found):.2f} s a merge and epoch ({min(found):.2f} to {max(found):.2f})"
        for name, found in slopes.items()
    }
    yield f"Between K = 8, 16 and 32 the slope is {said['modelled']}; published {said['published']}."
    sizes = {name: [abs(error) for error in found] for name, found in fitted["errors"].items()}
    mean = {name: percent(fmean(errors), ".1") for name, errors in sizes.items()}
    most = {name: percent(max(errors), ".1") for name, errors in sizes.items()}
    yield (
        f"With the one fitted constant, tensors that move at {fitted['rate_mb_s']:.0f} MB/s, the twelve rows with more "
        f"than one merge an epoch are {mean['fitted']} off on average (at most {most['fitted']}); "
        f"by a fit without their size of minibatches {mean['left_out']} ({most['left_out']})."
    )


def _cut(value: float) -> str:
    """Return R² cut off after four digits: 1 only if it is."""
    return f"{np.floor(value * 1e4) / 1e4:.4f}"


def _notes(profile: Profile, rate_mb_s: float) -> Iterator[str]:
    yield (
        f"Modelled: KubeML's pattern (docs/protocols.md) with {document_count(SAMPLES)} documents and ResNet34's "
        f"{TENSORS} tensors of {MODEL_MB:.1f} MB ({PARAMETERS:,} parameters and {BUFFERS:,} other numbers), played on "
        f"{profile.name} of {profile.date}, but with tensors that move at {rate_mb_s:.0f} MB/s, in functions and the "
        "job, in both directions. This is the only fitted constant; we declare that it was chosen before the fit. One "
        "thread of the database serves all; functions get and store models at once, the job gets one after another."
    )
    yield (
        "Given: for each size of minibatches, the time of an epoch outside merging is the rest of the published "
        "seconds with one merge an epoch. So these four rows aren't compared. This time doesn't depend on the number "
        "of functions, because they share two GPUs and take turns."
    )
    yield (
        "Like the published seconds, M is the mean over 2 and 4 functions, and for one merge an epoch over 2, 4 and "
        "8. Validation isn't included."
    )
