"""MLLess's significance filter: seconds to an accuracy with and without it, and where the difference comes from."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slslab.report.formats import percent
from slslab_lab.papers.paper import Paper
from slslab_lab.papers.recomputation import recompute_row
from slslab_lab.studies import NAMES
from slslab_lab.studies.curves import LOWEST_TARGET, PROOFS, Curve, Point, common_target, curve_of, rule_of, target_note
from slslab_lab.studies.documents import Cell, ReproducedRow, cell_of, make_curve, make_document
from slslab_lab.studies.experiments import BATCHES, Experiment
from slslab_lab.studies.replayed_rows import EpochTime, Recordings, find_row
from slslab_lab.studies.study import Setup
from slslab_lab.studies.table3 import ACCURACY, MODEL, Learnt, platform, whole

TABLE, ARCHITECTURE = "optimizations", "mlless"
ARMS = ("without", "with")
WORDS = {"without": "without the filter", "with": "with the filter"}


@dataclass(frozen=True)
class Arm:
    """Training with or without the filter: its curve, where it reaches the target, and an epoch until then; modelled
    seconds to the target, or why they are missing."""

    name: str
    curve: Curve | None
    point: Point | None
    share: float | None
    epoch: EpochTime
    seconds: float | None
    missing: str


def build(setup: Setup, learnt: Learnt) -> dict[str, Any]:
    """Return the document; the option `target` (0..1) is the accuracy of both, by default the common one."""
    paper, recordings, target = setup.paper, learnt.recordings, setup.options.get("target")
    pairs = _pairs(learnt.curves)
    accuracy = target if target is not None else common_target(curve for pair in pairs for curve in pair[1:] if curve)
    rows: list[ReproducedRow] = []
    notes: list[str] = []
    for experiment, without, with_ in pairs:
        arms = {
            name: _arm(name, curve, recordings, experiment, accuracy)
            for name, curve in zip(ARMS, (without, with_), strict=True)
        }
        rows += _rows(paper, experiment, arms)
        notes += _notes(arms, experiment)
    notes = [
        *dict.fromkeys(notes),
        *target_note(accuracy, target is not None),
        f"Modelled on {recordings.platform.name} from one recording per variant for both arms. The canonical one "
        "includes the CPU time of filtering, the one as released doesn't. Shares are counted in the curves; the model "
        "spreads them evenly over workers and steps, rounded to sixteenths or simpler. The published seconds are until "
        "training has converged; the paper states neither their accuracy nor their threshold.",
    ]
    return make_document(
        setup,
        paper.table(TABLE),
        _columns(accuracy),
        rows,
        notes,
        curves=[_picture(pairs)],
        **platform(recordings),
        target={"common": accuracy, "chosen": target is not None},
    )


def _pairs(curves: Sequence[Curve]) -> list[tuple[Experiment, Curve | None, Curve | None]]:
    """Return curves without and with the filter: canonical, and as released if that has a curve. As released they
    differ only in the filter, which the released code defines but doesn't use."""
    pairs = []
    for experiment in (Experiment(ARCHITECTURE, MODEL, False), Experiment(ARCHITECTURE, MODEL, True)):
        without, with_ = (
            curve_of(curves, rule_of(experiment, {"filter": filter_}), ARCHITECTURE)
            for filter_ in ("none", "norm-ratio")
        )
        if without or with_ or not experiment.released:
            pairs.append((experiment, without, with_))
    return pairs


def _arm(name: str, curve: Curve | None, recordings: Recordings, experiment: Experiment, accuracy: float | None) -> Arm:
    """Return an arm; a curve of another architecture has no count of significant updates: all are sent."""
    point = curve.reach(accuracy) if curve is not None and accuracy is not None else None
    if curve is None:
        missing = f"no curve {WORDS[name]}"
    elif accuracy is None:
        missing = f"no curve reaches {LOWEST_TARGET} %"
    else:
        missing = "" if point else f"{WORDS[name]}, {percent(accuracy)} not reached in {curve.last.epoch} epochs"
    share = 1.0 if name == "without" else None
    if curve is not None and name == "with":
        share = curve.share(point or curve.last)
    epoch = recordings.epoch(experiment, share)
    seconds = None if point is None or epoch.seconds is None else point.epoch * epoch.seconds
    return Arm(name, curve, point, share, epoch, seconds, missing or epoch.reason)


def _columns(accuracy: float | None) -> list[tuple[str, str, str]]:
    until = "" if accuracy is None else f" to {percent(accuracy)}"
    return [
        ("seconds", f"Time{until} (published: until it converges)", "s"),
        ("ratio", "Time without the filter ÷ with it", "×"),
        ("change", "Change of the time by the filter", "%"),
        ("epochs", f"Epochs{until}", "epochs"),
        ("updates", f"Updates of the model{until}", "updates"),
        ("steps", f"Steps{until}", "steps"),
        ("epoch_seconds", "Wall time of an epoch", "s"),
        ("share", "Gradients sent", "%"),
    ]


def _rows(paper: Paper, experiment: Experiment, arms: Mapping[str, Arm]) -> Iterator[ReproducedRow]:
    row, group = find_row(paper, TABLE, architecture=ARCHITECTURE), NAMES[experiment.model]
    again = recompute_row(paper, TABLE, row)

    def compare(column: str, value: float | None, missing: str) -> Cell:
        return cell_of(row, again, column, modelled=whole(value), missing=missing)

    for name, arm in arms.items():
        point, share = arm.point, arm.share
        measured = {
            "epochs": None if point is None else point.epoch,
            "updates": None if point is None else point.updates,
            "steps": None if point is None else point.epoch * BATCHES,
            "share": None if share is None else 100 * share,
        }
        ways = tuple(way for way in again if way.column == "steps") if name == "without" else ()
        cells = {
            "seconds": compare(name, arm.seconds, arm.missing),
            **{
                column: Cell(recomputed=ways if column == "steps" else (), measured=whole(value))
                for column, value in measured.items()
            },
            "epoch_seconds": Cell(modelled=whole(arm.epoch.seconds), missing=arm.epoch.reason),
        }
        yield ReproducedRow(WORDS[name], group, experiment.variant, cells)
    without, with_ = (arms[name].seconds for name in ARMS)
    why = "; ".join(dict.fromkeys(arm.missing for arm in arms.values() if arm.missing))
    ratio = change = None
    if without and with_:
        ratio, change = without / with_, 100 * (with_ / without - 1)
    cells = {"ratio": compare("ratio", ratio, why), "change": compare("change", change, "")}
    yield ReproducedRow("without ÷ with", group, experiment.variant, cells, row.note)


def _notes(arms: Mapping[str, Arm], experiment: Experiment) -> Iterator[str]:
    for arm in arms.values():
        if arm.curve is None:
            continue
        yield f"{WORDS[arm.name].capitalize()}, {experiment.variant}: {arm.curve.name}, {arm.curve.end()}."
        if arm.name == "without" and arm.curve.plan.architecture != ARCHITECTURE:
            yield (
                f"{arm.curve.name} stands for MLLess without a filter, since its parameters are equal in every bit "
                f"({PROOFS[0]})."
            )
    if experiment.released:
        yield (
            "As released MLLess applies no filter. The arm with it uses the filter that the released code defines but "
            "doesn't call. The rest is as released: Adam, updates in S3, the mean over the senders."
        )


def _picture(pairs: Sequence[tuple[Experiment, Curve | None, Curve | None]]) -> dict[str, Any]:
    named = {
        f"{WORDS[arm]}, {experiment.variant}": curve
        for experiment, *both in pairs
        for arm, curve in zip(ARMS, both, strict=True)
        if curve
    }
    lines = [(name, [point.epoch for point in curve.points], curve.percentages) for name, curve in named.items()]
    return make_curve("Accuracy by epoch", "", ("epochs", "epochs", ""), ACCURACY, lines)
