"""Questions about one variant of a run: its waiting and the cost of that, its critical path, its timeline as a file."""

from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from slslab.errors import RequestError
from slslab.predict.environment import NS
from slslab.predict.profiles.profile import Profile
from slslab.run.bill import ARCHITECTURES, HOST, METERS, Bill, compute_bill, describe_meter, is_of_container
from slslab_lab.pages.pictures import draw_timeline
from slslab_lab.questions.setup import Asked, ReplaySetup, figure, read_memory
from slslab_lab.replay.kernel.timeline import Timeline
from slslab_lab.replay.outcome import Totals, waits
from slslab_lab.replay.path import critical_path, describe, parts
from slslab_lab.replay.perfetto import write_perfetto
from slslab_lab.replay.ranges import figures_of, play_with_ranges
from slslab_lab.replay.whatif import modelled_usage

# The totals, bill and waiting of a timeline.
Played = tuple[Totals, Bill, list[dict[str, Any]]]


def waiting(asked: Asked, memory: int | None, workers: int | None) -> dict[str, Any]:
    """Answer `slslab ask waiting`."""
    setup, document = _variant(asked, memory, workers)

    def play(profile: Profile) -> Played:
        timeline, result = setup.simulate(profile)
        bill = compute_bill(modelled_usage(setup.run, timeline, result), setup.prices)
        return result, bill, find_waiting(timeline, result, bill)

    def figures(played: Played) -> dict[str, float]:
        result, bill, rows = played
        waited = {"waiting_seconds": result.waiting_seconds, "waiting_cost": sum(row["cost"] for row in rows)}
        return figures_of(result, bill) | waited

    like = {"waiting_seconds": "billed_seconds", "waiting_cost": "cost"}
    (result, bill, rows), errors = play_with_ranges(play, figures, setup.platform.profile, setup.run, like)
    cost = Decimal(format(sum(row["cost"] for row in rows), ".10f"))
    return {
        **document,
        "billed_seconds": figure(result.billed_seconds, errors["billed_seconds"]),
        "cost": figure(bill.total, errors["cost"]),
        "waiting_seconds": figure(result.waiting_seconds, errors["waiting_seconds"]),
        "waiting_share": figure(result.waiting_share),
        "waiting_cost": figure(cost, errors["waiting_cost"]),
        "uncertainty": {name: error.as_document() for name, error in errors.items()},
        "measured_share": {"value": setup.run.waiting_share, "basis": "measured"},
        "rows": rows,
    }


def path(asked: Asked, memory: int | None, workers: int | None) -> dict[str, Any]:
    """Answer `slslab ask path`."""
    timeline, document = _played(asked, memory, workers)
    critical = critical_path(timeline)
    return {**document, "summary": describe(critical), "rows": parts(critical)}


def timeline(
    asked: Asked, perfetto: Path | None, plot: Path | None, memory: int | None, workers: int | None
) -> dict[str, Any]:
    """Answer `slslab ask timeline`: write the files."""
    if perfetto is None and plot is None:
        raise RequestError("The timeline needs a file.", "give --perfetto FILE.json.gz, --plot FILE.svg, or both.")
    played, document = _played(asked, memory, workers)
    if perfetto is not None:
        write_perfetto(played, perfetto)
    if plot is not None:
        label = f" with {document['variant']}" if document["variant"] else ""
        draw_timeline(played, f"{asked.setup.name}{label}, modelled on {played.profile.name}", plot)
    files = {name: None if file is None else str(file) for name, file in (("perfetto", perfetto), ("plot", plot))}
    return {**document, "steps": len(played.steps), **files}


def _variant(asked: Asked, memory: int | None, workers: int | None) -> tuple[ReplaySetup, dict[str, Any]]:
    """Return the variant with this memory size and number of workers, and the beginning of its document."""
    sizes = read_memory(asked.setup, None if memory is None else str(memory))
    varied = asked.setup.vary(memory_mb=sizes[0] if sizes else None, workers=workers)
    return varied, {"variant": varied.variant.label or None, **asked.warned([workers])}


def _played(asked: Asked, memory: int | None, workers: int | None) -> tuple[Timeline, dict[str, Any]]:
    """Return the variant's timeline, and the beginning of its document with its seconds."""
    setup, document = _variant(asked, memory, workers)
    (played, result), errors = play_with_ranges(
        setup.simulate, lambda each: {"seconds": each[1].seconds}, setup.platform.profile, setup.run
    )
    error = errors["seconds"]
    seconds = {"seconds": figure(result.seconds, error), "uncertainty": {"seconds": error.as_document()}}
    return played, {**document, **seconds}


def find_waiting(timeline: Timeline, result: Totals, bill: Bill) -> list[dict[str, Any]]:
    """Return which part of a timeline's bill is waiting, by worker and phase: seconds, their share of all that the
    worker was billed for, and USD.

    A waited second costs a function's memory at the bill's price of a GB-second, the mean price of a container's
    second, or an instance's price of a second. A waiting state machine costs nothing.
    """
    prices = {line.item: float(line.amount / line.quantity) for line in bill.lines if line.quantity}
    # All functions in a bill have the same architecture.
    durations = (METERS[f"lambda.duration.{arch}"][0] for arch in ARCHITECTURES)
    gb_s = next((prices[item] for item in durations if item in prices), 0.0)
    container_s = sum(float(line.amount) for line in bill.lines if is_of_container(line)) / (result.billed_seconds or 1)
    rates = [
        container_s or gb_s * track.memory_mb / 1024
        if track.kind == "invocation"
        else prices.get(describe_meter(HOST + track.name)[0], 0.0)
        for track in timeline.program.tracks
    ]
    billed_s = {worker["worker"]: worker["billed_seconds"] for worker in result.workers}
    seconds: dict[tuple[int, str], float] = defaultdict(float)
    costs: dict[tuple[int, str], float] = defaultdict(float)
    waited = waits(timeline)
    for entry in np.flatnonzero(waited).tolist():
        number = timeline.track[entry]
        track = timeline.program.tracks[number]
        if track.kind != "execution":
            key = (track.worker, timeline.steps[entry].phase)
            seconds[key] += int(waited[entry]) / NS
            costs[key] += int(waited[entry]) / NS * rates[number]
    return [
        {
            "worker": worker,
            "phase": phase,
            "seconds": total,
            "share": total / billed_s[worker] if billed_s.get(worker) else 0.0,
            "cost": costs[worker, phase],
            "basis": "modelled",
        }
        for (worker, phase), total in sorted(seconds.items())
    ]
