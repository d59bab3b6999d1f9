"""Table 2 of Barrak et al. made again: time, memory and cost of an epoch of the five architectures with two models.

Measured are recorded runs of some of the 24 minibatches; modelled is what their traces say of Lambda, with Table 2's
memory sizes and one speed of its processors for all rows; costs are Table 2's own arithmetic on modelled seconds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from slslab.billing import Book
from slslab.errors import RequestError
from slslab.expressions import Expression
from slslab.papers import Paper, Row
from slslab.recomputing import Recomputed, recompute
from slslab.replay.environment import NS
from slslab.replay.kernel import play
from slslab.replay.outcome import waits
from slslab.replay.profiles import Profile
from slslab.replay.timeline import Timeline
from slslab.reproductions.bills import BillLine, bill
from slslab.reproductions.calls import Estimate, cpu_calls, estimate, measured_calls, peak_memory_mb, played_calls
from slslab.reproductions.documents import AGREES_MEMORY, Cell, ReproducedRow, head
from slslab.reproductions.experiments import BATCHES, GPU, Experiment, Runs, experiments
from slslab.reproductions.orders import rank_costs
from slslab.reproductions.played import MEMORY, TIME, Played, differences, fit_speed
from slslab.reproductions.speeds import Calibration
from slslab_workers.plan import PlanError

TABLE = "table2"
EPOCH, COST = "epoch_seconds", "total_cost"
COSTS = ("function_cost", "worker_cost", COST)
COLUMNS = (
    (TIME, "Time per function", "s", 2),
    (EPOCH, "Time per worker", "s", 1),
    (MEMORY, "Peak memory", "MB", 0),
    ("function_cost", "Cost per function", "USD", 6),
    ("worker_cost", "Cost per worker", "USD", 4),
    (COST, "Total cost", "USD", 4),
)
NAMES = {"mobilenet": "MobileNet", "resnet18": "ResNet-18"}


def build(
    paper: Paper,
    runs: Runs,
    profile: Profile,
    book: Book,
    fidelity: str,
    report: Callable[[str, int, int], None],
) -> dict[str, Any]:
    """The document of the table, made from these runs; those that failed have rows without figures of ours.

    `report` hears what has been done of how much."""
    table = paper.table(TABLE)
    played = [Played(experiment, measured, find_row(paper, experiment)) for experiment, measured in runs.done.items()]
    calibration = fit_speed(played, profile)
    platform = calibration.apply(profile)
    again = recompute(paper, TABLE)
    found: dict[Experiment, tuple[ReproducedRow, tuple[tuple[BillLine, ...], str]]] = {}
    for number, one in enumerate(played, 1):
        own = _row(paper, one, platform, again[table.rows.index(one.row)])
        found[one.experiment] = own, _bill(one, platform, book)
        report("playing runs", number, len(played))
    for experiment, why in runs.failed.items():
        row = find_row(paper, experiment)
        own = _failed_row(experiment, row, why, again[table.rows.index(row)])
        found[experiment] = own, ((), f"There is no run: {why}.")
    order = [one for one in experiments(dict.fromkeys(one.model for one in found)) if one in found]
    bills = [found[one][1] for one in order]
    rows = [found[one][0] for one in order]
    rows = [_beside_released(row, rows) for row in rows]
    return {
        **head(TABLE, fidelity, paper, table),
        "profile": {"name": profile.name, "date": profile.date.isoformat(), "description": profile.description},
        "calibration": calibration.as_document(),
        "columns": [dict(zip(("name", "title", "unit", "digits"), column, strict=True)) for column in COLUMNS],
        "rows": [row.as_document() for row in rows],
        "rankings": [one.as_document() for one in rank_costs(paper, TABLE, COST, rows, [lines for lines, _ in bills])],
        "bills": [
            {
                "name": row.name,
                "group": row.group,
                "variant": row.variant,
                "lines": [line.as_document() for line in lines],
                "reason": reason,
            }
            for row, (lines, reason) in zip(rows, bills, strict=True)
        ],
        "curves": [],
        "notes": _notes(played, calibration, profile),
    }


def find_row(paper: Paper, experiment: Experiment) -> Row:
    """The row of an architecture with a model; RequestError if the paper has none."""
    table = paper.table(TABLE)
    for row in table.rows:
        inputs = table.inputs_of(row)
        if (inputs.get("architecture"), inputs.get("model")) == (experiment.architecture, experiment.model):
            return row
    raise RequestError(
        f"{table.source} of {paper.name} has no row of {experiment.architecture} with {experiment.model}.",
        "add it to the paper's file.",
    )


def _row(paper: Paper, one: Played, platform: Profile, again: Sequence[Recomputed]) -> ReproducedRow:
    recording, row = one.measured.recording, one.row
    timeline = play(one.program, platform)
    seconds = estimate(played_calls(timeline, recording), BATCHES)
    measured = estimate(measured_calls(recording), BATCHES)
    modelled = {TIME: seconds, EPOCH: seconds.scaled(BATCHES), **_costs(paper, one, seconds)}
    here = {TIME: measured, EPOCH: measured.scaled(BATCHES)}
    if one.memory_mb is not None:
        here[MEMORY] = Estimate(float(peak_memory_mb(recording)), None, None, len(recording.invocations))
    parts = _parts(timeline, one)
    reason = _reason(one, seconds, parts)
    cells = {}
    for name, *_ in COLUMNS:
        cells[name] = Cell(
            row.published.get(name),
            tuple(found for found in again if found.column == name),
            here.get(name),
            modelled.get(name),
            AGREES_MEMORY if name == MEMORY else Cell.tolerance,
            _memory_reason(one) if name == MEMORY else reason,
        )
    more = {
        "recorded": {
            "run": one.measured.plan.run,
            "batches": one.measured.plan.batches,
            "memory_mb": one.measured.plan.memory_mb,
            "oversubscribed": one.measured.document["host"]["oversubscribed"],
            "cpu_seconds": estimate(cpu_calls(recording), BATCHES).as_document(),
        },
        "parts": parts,
    }
    return ReproducedRow(row.name, row.group, one.experiment.variant, cells, row.note, more)


def _failed_row(experiment: Experiment, row: Row, why: str, again: Sequence[Recomputed]) -> ReproducedRow:
    cells = {
        name: Cell(
            row.published.get(name),
            tuple(found for found in again if found.column == name),
            missing=f"There is no run: {why}." if name in row.published else "",
        )
        for name, *_ in COLUMNS
    }
    return ReproducedRow(row.name, row.group, experiment.variant, cells, row.note)


def _costs(paper: Paper, one: Played, seconds: Estimate) -> dict[str, Estimate]:
    """The table's own arithmetic on other seconds."""
    formulas, known = paper.table(TABLE).formulas, paper.values(TABLE, one.row)
    ways = next(ranking.ways for ranking in paper.table(TABLE).rankings if ranking.column == COST)
    found = {}
    for column in COSTS:
        able = (formulas[column][way] for way in ways if way in formulas.get(column, {}))
        expression = next((each for each in able if known.keys() >= set(each.names)), None)
        if expression is None or column not in one.row.published:
            continue

        def priced(value: float | None, expression: Expression = expression) -> float | None:
            if value is None:
                return None
            own = Decimal(repr(value))
            return float(expression.evaluate({**known, TIME: own, EPOCH: own * BATCHES}))

        value = priced(seconds.value)
        assert value is not None
        found[column] = Estimate(value, priced(seconds.low), priced(seconds.high), seconds.samples)
    return found


def _parts(timeline: Timeline, one: Played) -> dict[str, float]:
    """Modelled seconds of a minibatch by what they are spent on, means of all that are no first ones."""
    waited = waits(timeline)
    events = one.measured.recording.events
    usual = {(c.worker, c.epoch, c.step) for c in played_calls(timeline, one.measured.recording) if not c.first}
    spent = {"compute": 0.0, "transfer": 0.0, "waiting": 0.0}
    for entry, step in enumerate(timeline.steps):
        event = events[step.event] if step.event >= 0 else None
        if event is None or (event["worker"], event["epoch"], event["step"]) not in usual:
            continue
        busy = timeline.end[entry] - timeline.begin[entry] - int(waited[entry])
        spent["waiting"] += int(waited[entry]) / NS
        spent["transfer" if "." in step.op else "compute"] += busy / NS
    return {name: value / len(usual) for name, value in spent.items()}


def _reason(one: Played, seconds: Estimate, parts: Mapping[str, float]) -> str:
    """Why time and cost differ: what the modelled time is made of, and what of the published is in none of it."""
    published = float(one.row.published.get(TIME) or one.row.published[EPOCH] / BATCHES)
    made_of = ", ".join(f"{name} {value:.1f} s" for name, value in parts.items())
    missing = published - seconds.value
    rest = (
        f"{missing:.1f} s of the published {published:.1f} s are in none of these"
        if missing > 0
        else f"that is {-missing:.1f} s more than the published {published:.1f} s"
    )
    assumed = " The GPU's speed is assumed, not measured." if one.experiment.architecture == GPU else ""
    return f"A minibatch is modelled as {made_of}; {rest}.{assumed}"


def _beside_released(row: ReproducedRow, rows: Sequence[ReproducedRow]) -> ReproducedRow:
    """A canonical row whose time differs tells if the released code's does not: then what it does otherwise is why."""
    other = next((one for one in rows if (one.name, one.group) == (row.name, row.group) and one is not row), None)
    if other is None or row.variant == "as released" or row.cells[TIME].verdict != "differs":
        return row
    released = other.cells[TIME]
    if released.verdict != "agrees" or released.modelled is None:
        return row
    seconds = released.modelled.value
    added = f" As released it takes {seconds:.1f} s, which agrees: between them is what the authors' code does beyond."
    cells = {
        name: cell if name == MEMORY else replace(cell, reason=cell.reason + added) for name, cell in row.cells.items()
    }
    return replace(row, cells=cells)


def _memory_reason(one: Played) -> str:
    plan = one.measured.plan
    return (
        f"Measured with PyTorch {one.measured.document['torch']}, minibatches of {plan.batch_size}, in functions of "
        f"{plan.memory_mb:,} MB; the paper says neither its PyTorch nor whether this is the allocated size or the peak."
    )


def _bill(one: Played, platform: Profile, book: Book) -> tuple[tuple[BillLine, ...], str]:
    """The whole modelled bill of an epoch, or why there is none."""
    try:
        return bill(one.measured, platform, one.memory_mb, BATCHES, book), ""
    except (RequestError, PlanError) as error:
        return (), error.message


def _notes(played: Sequence[Played], calibration: Calibration, profile: Profile) -> list[str]:
    plans = [one.measured.plan for one in played]
    batches = sorted({plan.batches for plan in plans})
    some = played[0].measured.document
    busy = sum(bool(one.measured.document["host"]["oversubscribed"]) for one in played)
    notes = [
        f"Measured: {', '.join(map(str, batches))} of {BATCHES} minibatches of each worker, {plans[0].workers} "
        f"workers, minibatches of {plans[0].batch_size}, on {some['host']['cores']} processors with PyTorch "
        f"{some['torch']}; the first minibatch of an environment is left out. Intervals are of 95 %, Student's, by "
        "steps, of a finite epoch.",
        f"{busy} of {len(plans)} runs were oversubscribed: their measured seconds hold waits for workers whom the host "
        "delayed; the model has none of that.",
        f"Modelled: the traces on {profile.name} of {profile.date}, with the published memory sizes and one speed of "
        f"processors for all rows: a vCPU of Lambda is {calibration.speed:.3g} times one processor of the recording "
        f"host, by which half of the {len(calibration.rows)} rows of functions are modelled longer than published. "
        "Costs are the paper's arithmetic on modelled seconds.",
        *differences(played, calibration, profile),
        "SPIRT's functions are those of the second epoch that found their environment warm.",
        "As released: what the authors' code does where it decides the result, with its log traffic to S3.",
    ]
    for one in played:
        if deaths := one.measured.document["details"].get("deaths"):
            notes.append(
                f"{one.key}: {len(deaths)} of {one.measured.plan.workers} peers were taken for dead while it was "
                "recorded, and nobody waited for them from then on. In its whole bill all live."
            )
    if any(plan.options.get("gradients") == "json" for plan in plans):
        notes.append(
            "SPIRT as released keeps gradients as JSON. A text is made in parts here; the released code makes it in "
            "one piece, out of a list that takes Python 32 bytes a number: its peak is higher than what is measured."
        )
    formats = sorted({plan.memory_format for plan in plans})
    if formats != ["default"]:
        notes.append(f"Memory formats: {', '.join(formats)}; the papers' code has PyTorch's default.")
    return notes
