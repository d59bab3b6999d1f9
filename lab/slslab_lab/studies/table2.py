"""Table 2 of Barrak et al. reproduced: time, memory and cost of an epoch of the five architectures with two models."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from functools import partial
from statistics import fmean
from typing import Any

from slslab.errors import RequestError
from slslab.predict.environment import NS
from slslab.predict.profiles.profile import Profile
from slslab.run.bill import Book
from slslab.run.metrics import grouped
from slslab_lab.papers.expressions import Expression
from slslab_lab.papers.paper import Paper
from slslab_lab.papers.recomputation import rank, recompute_row
from slslab_lab.replay.combining import half_width, likelihood
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.timeline import Timeline
from slslab_lab.replay.outcome import waits
from slslab_lab.studies.documents import (
    AGREES_MEMORY,
    Cell,
    Estimate,
    ReproducedRow,
    cell_of,
    make_document,
    mixed_hosts,
)
from slslab_lab.studies.epoch_bill import BillLine, bill
from slslab_lab.studies.experiments import BATCHES, GPU, Sets
from slslab_lab.studies.minibatches import estimate, measured_calls, played_calls
from slslab_lab.studies.rankings import Standing, by_variant, rank_rows
from slslab_lab.studies.replayed_rows import MEMORY, TIME, Calibration, Played, prepare
from slslab_lab.studies.study import Setup
from slslab_workers.plan import PlanError

TABLE = "table2"
EPOCH, COST = "epoch_seconds", "total_cost"
# The paper's own arithmetic: the first of these formulas that a row can be recomputed by.
WAYS = ("decimal", "instance")
COLUMNS = (
    (TIME, "Time per function", "s", 2),
    (EPOCH, "Time per worker", "s", 1),
    (MEMORY, "Peak memory", "MB", 0),
    ("function_cost", "Cost per function", "USD", 6),
    ("worker_cost", "Cost per worker", "USD", 4),
    (COST, "Total cost", "USD", 4),
)


def build(setup: Setup, recorded: Sets) -> dict[str, Any]:
    """Return the document of the table, made from these runs."""
    paper, profile, table = setup.paper, setup.profile, setup.paper.table(TABLE)
    # Each set is fitted with its own host's speed.
    sets = [prepare(paper, of_set, profile, setup.book) for of_set in recorded]
    calibration, *further = (of_set.calibration for of_set in sets)
    recordings = grouped(
        (experiment, (run, of_set.platform)) for of_set in sets for experiment, run in of_set.played.items()
    )
    watched = setup.watched("playing runs", recordings.values())
    made = [(_row(paper, of_row), _bill(*of_row[0], setup.book)) for of_row in watched]
    rows = [row for row, _ in made]
    return make_document(
        setup,
        table,
        COLUMNS,
        rows,
        [*_notes([*sets[0].played.values()], calibration, profile), *_notes_of_sets(recorded, further)],
        rankings=rank_costs(paper, rows, [lines for _, (lines, _) in made]),
        bills=[
            {
                **{name: getattr(row, name) for name in ("name", "group", "variant")},
                "lines": list(lines),
                "reason": reason,
            }
            for row, (lines, reason) in made
        ],
        profile=profile,
        calibration={**asdict(calibration), "further": list(map(asdict, further))},
        fitted=(
            f"One speed of processors is fitted to the {len(calibration.rows)} rows of functions, so half of them are "
            "close to the published figures in any case."
        ),
    )


def rank_costs(
    paper: Paper, rows: Sequence[ReproducedRow], bills: Sequence[Sequence[BillLine]]
) -> Iterator[dict[str, Any]]:
    """Yield one ranking for each group of rows: recomputed, modelled, and by the whole modelled bill.

    A row with one variant (instances) is in the order of each variant."""
    published, recomputed = rank(paper, TABLE, COST), rank(paper, TABLE, COST, WAYS)
    for group, members in grouped((row.group, (row, lines)) for row, lines in zip(rows, bills, strict=True)).items():
        bases = {"recomputed": {name: float(value) for name, value in recomputed[group]}}
        for variant, named in by_variant((row.name, row.variant, (row, lines)) for row, lines in members).items():
            costs = {name: row.cells[COST].modelled for name, (row, _) in named.items()}
            bases[f"modelled, {variant}"] = {name: cost.value for name, cost in costs.items() if cost}
            bases[f"whole bill, {variant}"] = {
                name: float(sum(Decimal(line["amount"]) for line in lines))
                for name, (_, lines) in named.items()
                if lines
            }
        printed = {name: float(value) for name, value in published[group]}
        # Only compare complete orders.
        standings = {
            basis: {name: Standing(value) for name, value in figures.items()}
            for basis, figures in bases.items()
            if figures.keys() == printed.keys()
        }
        ranking = rank_rows(
            f"cost of an epoch, {group}", "USD", printed, standings, "{first} costs {ratio} times as much as {second}"
        )
        yield {**ranking, "holds": _holds(ranking, [row for row, _ in members])}


def _costs_of_recordings(row: ReproducedRow) -> list[float]:
    """Return a row's modelled cost by recording, in proportion to their seconds; empty for a single recording."""
    mean = row.cells[COST].modelled
    seconds = row.more.get("modelled_recordings", [])
    return [] if mean is None else [mean.value * value / fmean(seconds) for value in seconds]


def _holds(ranking: Mapping[str, Any], rows: Sequence[ReproducedRow]) -> dict[str, list[Any]]:
    """Return, by basis, the probability that each row costs less than the next one, where both have recordings."""
    found = {}
    for variant, named in by_variant((row.name, row.variant, row) for row in rows).items():
        costs = {name: _costs_of_recordings(row) for name, row in named.items()}
        order = [name for name, _ in ranking.get(f"modelled, {variant}", ())]
        found[f"modelled, {variant}"] = [
            [first, second, likelihood(costs[first], costs[second])]
            for first, second in itertools.pairwise(order)
            if min(len(costs[first]), len(costs[second])) > 1
        ]
    return {basis: pairs for basis, pairs in found.items() if pairs}


def _row(paper: Paper, recordings: Sequence[tuple[Played, Profile]]) -> ReproducedRow:
    """Return a row as the mean of its recordings, each on the platform of its set; all else is the first one's."""
    run, platform = recordings[0]
    recording, row, again = run.measured, run.row, recompute_row(paper, TABLE, run.row)
    here = [estimate(measured_calls(each.measured), BATCHES) for each, _ in recordings]
    there = [each.seconds(of_set) for each, of_set in recordings]
    measured, modelled = _epoch(_together(here)), _epoch(_together(there)) | _costs(paper, run, _together(there))
    if run.memory_mb is not None:
        measured[MEMORY] = Estimate(float(recording.peak_memory_mb), samples=len(recording.invocations))
    parts = _parts(play(run.program, platform), run)
    reason = _reason(run, there[0], parts)
    cells = {
        name: cell_of(
            row,
            again,
            name,
            measured=measured.get(name),
            modelled=modelled.get(name),
            tolerance=AGREES_MEMORY if name == MEMORY else Cell.tolerance,
            reason=_memory_reason(run) if name == MEMORY else reason,
        )
        for name, *_ in COLUMNS
    }
    more = {"parts": parts, "modelled_recordings": [each.value for each in there]}
    return ReproducedRow(row.name, row.group, run.experiment.variant, cells, row.note, more)


def _epoch(seconds: Estimate) -> dict[str, Estimate]:
    return {TIME: seconds, EPOCH: seconds.mapped(lambda value: value * BATCHES)}


def _together(estimates: Sequence[Estimate]) -> Estimate:
    """Return the mean of recordings' estimates, with an interval that includes theirs and, by 80 %, the next value."""
    if len(estimates) == 1:
        return estimates[0]
    values = [one.value for one in estimates]
    mean, half = fmean(values), half_width(values)
    within = [bound for one in estimates for bound in (one.low, one.high) if bound is not None]
    return Estimate(
        mean, min([mean - half, *within]), max([mean + half, *within]), sum(one.samples for one in estimates)
    )


def _costs(paper: Paper, run: Played, seconds: Estimate) -> dict[str, Estimate]:
    formulas, known = paper.table(TABLE).formulas, paper.values(TABLE, run.row)

    def priced(expression: Expression, seconds: float) -> float:
        minibatch_s = Decimal(repr(seconds))
        return float(expression.evaluate({**known, TIME: minibatch_s, EPOCH: minibatch_s * BATCHES}))

    costs = {}
    for column in ("function_cost", "worker_cost", COST):
        able = (formulas[column][way] for way in WAYS if way in formulas.get(column, {}))
        expression = next((each for each in able if known.keys() >= set(each.names)), None)
        if expression is None or column not in run.row.published:
            continue
        costs[column] = seconds.mapped(partial(priced, expression))
    return costs


def _parts(timeline: Timeline, run: Played) -> dict[str, float]:
    waited = waits(timeline)
    events = run.measured.events
    usual = {(c.worker, c.epoch, c.step) for c in played_calls(timeline, run.measured) if not c.first}
    spent = {"compute": 0.0, "transfer": 0.0, "waiting": 0.0}
    for entry, step in enumerate(timeline.steps):
        event = events[step.event] if step.event >= 0 else None
        if event is None or (event["worker"], event["epoch"], event["step"]) not in usual:
            continue
        busy = timeline.end[entry] - timeline.begin[entry] - int(waited[entry])
        spent["waiting"] += int(waited[entry]) / NS
        spent["transfer" if "." in step.op else "compute"] += busy / NS
    return {name: value / len(usual) for name, value in spent.items()}


def _reason(run: Played, seconds: Estimate, parts: Mapping[str, float]) -> str:
    """Return why time and cost differ: the modelled time's parts, and the published time that they don't explain."""
    published = float(run.row.published.get(TIME) or run.row.published[EPOCH] / BATCHES)
    made_of = ", ".join(f"{name} {value:.1f} s" for name, value in parts.items())
    missing = published - seconds.value
    rest = (
        f"{missing:.1f} s of the published {published:.1f} s remain unexplained"
        if missing > 0
        else f"that is {-missing:.1f} s more than the published {published:.1f} s"
    )
    assumed = " The GPU's speed is assumed, not measured." if run.experiment.architecture == GPU else ""
    return f"A minibatch is modelled as {made_of}; {rest}.{assumed}"


def _memory_reason(run: Played) -> str:
    plan = run.measured.plan
    return (
        f"Measured with PyTorch {run.measured.document['torch']}, minibatches of {plan.batch_size}, in functions of "
        f"{plan.memory_mb:,} MB. The paper states neither its PyTorch version nor whether this is the allocated size "
        "or the peak."
    )


def _bill(run: Played, platform: Profile, book: Book) -> tuple[tuple[BillLine, ...], str]:
    try:
        return bill(run.measured, platform, run.memory_mb, BATCHES, book), ""
    except (RequestError, PlanError) as error:
        return (), error.message


def _notes_of_sets(recorded: Sets, speeds: Sequence[Calibration]) -> Iterator[str]:
    if speeds:
        numbers = Counter(experiment for one in recorded[1:] for experiment in one)
        several = " or ".join(map(str, sorted({1 + number for number in numbers.values()})))
        yield (
            f"{len(numbers)} of {len(recorded[0])} rows have {several} recordings: their figures are means, and their "
            "intervals include each recording's and, by 80 %, the value of the next one. Rankings come with "
            "the probability that the means of two rows are in this order (Welch's t). Each further set is fitted "
            f"with its own host's speed: {', '.join(f'{one.cpu_speed:.3g}' for one in speeds)}."
        )
    sets = [[run.document["host"] for run in one.values()] for one in recorded]
    if mixed := list(dict.fromkeys(sentence for one in sets for sentence in mixed_hosts(one))):
        yield from mixed
        yield "One speed of processors is fitted to a set even so, so its modelled figures also differ between hosts."


def _notes(played: Sequence[Played], calibration: Calibration, profile: Profile) -> list[str]:
    plans = [run.measured.plan for run in played]
    batches = sorted({plan.batches for plan in plans})
    some = played[0].measured.document
    busy = sum(bool(run.measured.document["host"]["oversubscribed"]) for run in played)
    notes = [
        f"Measured: {', '.join(map(str, batches))} of {BATCHES} minibatches of each worker, {plans[0].workers} "
        f"workers, minibatches of {plans[0].batch_size}, on {some['host']['cores']} processors with PyTorch "
        f"{some['torch']}; the first minibatch of an environment is left out. Intervals are 95 % (Student's), over "
        "the steps of a finite epoch of one run.",
        f"{busy} of {len(plans)} runs were oversubscribed: their measured seconds include waits for workers that the "
        "host delayed; the model has no such waits.",
        f"Modelled: the traces on {profile.name} of {profile.date}, with the published memory sizes and one speed of "
        f"processors for all rows. A vCPU of Lambda is {calibration.cpu_speed:.3g} times one processor of the "
        f"recording host; with that, half of the {len(calibration.rows)} rows of functions are modelled longer than "
        "published. Costs are the paper's arithmetic on modelled seconds.",
        "SPIRT's functions are taken from the second epoch, if their environment was warm.",
        "As released: what the authors' code does where that affects the result, with its log traffic to S3.",
    ]
    notes += [
        f"{run.key}: {len(deaths)} of {run.measured.plan.workers} peers were declared failed during its recording, and "
        "the others stopped waiting for them. Its whole bill includes all peers."
        for run in played
        if (deaths := run.measured.document["details"].get("deaths"))
    ]
    if any(plan.options.get("gradients") == "json" for plan in plans):
        notes.append(
            "SPIRT as released keeps gradients as JSON. Here a text is made in parts. The released code makes it in "
            "one piece from a list, which takes Python 32 bytes a number, so its peak is higher than the measured "
            "one."
        )
    return notes
