"""The whole modelled bill of an epoch of Table 2, line by line, marking the part that the paper counts.

The paper counts seconds of minibatches × memory × rate, and instances for an epoch. A bill also includes init, time for
the first minibatch and the model, other functions, requests, transitions, and the hosts of databases and queues. Lines
use AWS's arithmetic (1 GB = 1,024 MB), so the first one is 2.3 % below the paper's."""

from collections import Counter
from decimal import Decimal
from typing import Any

from slslab.predict.environment import NS
from slslab.predict.profiles.profile import Profile
from slslab.run.bill import Book, compute_bill
from slslab.run.metrics import gb_seconds, grouped
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.timeline import Timeline
from slslab_lab.replay.measured import Measured
from slslab_lab.replay.outcome import Totals, outcome
from slslab_lab.replay.programs.scaling import generate
from slslab_lab.replay.whatif import modelled_usage, with_memory

COUNTED = "Minibatches"


# A line of a bill for JSON, decimals as strings; `in_paper` marks a line that the paper counts.
BillLine = dict[str, Any]


def _line(item: str, quantity: Decimal, unit: str, amount: Decimal) -> BillLine:
    amounts = {"quantity": format(quantity, "f"), "unit": unit, "amount": format(amount, "f")}
    return {"item": item, **amounts, "in_paper": item == COUNTED}


def bill(measured: Measured, profile: Profile, memory_mb: int | None, batches: int, book: Book) -> tuple[BillLine, ...]:
    """Return the bill of an epoch of `batches` minibatches in functions of this memory size, or on instances (None).

    RequestError if the run can't be scaled, PlanError for options that its pattern doesn't cover."""
    program = generate(measured.costs, measured.plan.workers, batches, 1)
    timeline = play(with_memory(program, measured.plan.memory_mb, memory_mb), profile)
    result = outcome(timeline, measured.arch)
    counted = _minibatch_seconds(timeline)
    parts: list[BillLine] = []
    for line in compute_bill(modelled_usage(measured, timeline, result), book).lines:
        if line.unit == "GB-second" and memory_mb is not None and line.item.startswith("Lambda duration"):
            parts += _functions(measured, result, memory_mb, counted, line.price)
        elif memory_mb is None and line.item == f"Host {result.instances[0]['type']}":
            rest = line.quantity - counted
            parts.append(_line(COUNTED, counted, line.unit, counted * line.price))
            parts.append(_line("Instances outside minibatches, boot included", rest, line.unit, rest * line.price))
        else:
            parts.append(_line(line.item, line.quantity, line.unit, line.amount))
    return tuple(parts)


def _minibatch_seconds(timeline: Timeline) -> Decimal:
    """Return the seconds of all workers' minibatches; if a function has one minibatch, of the whole invocation."""
    program = timeline.program
    entries = grouped(
        ((track, step.epoch, step.step), entry)
        for entry, (track, step) in enumerate(zip(timeline.track, timeline.steps, strict=True))
        if step.step >= 0 and 0 <= program.tracks[track].worker < program.workers
    )
    minibatches = Counter(track for track, _, _ in entries)
    total = 0
    for (track, _, _), of_step in entries.items():
        call, span = timeline.calls[track], timeline.end[of_step[-1]] - timeline.begin[of_step[0]]
        total += call.ended - call.began if minibatches[track] == 1 else span
    return Decimal(total) / NS


def _functions(measured: Measured, result: Totals, memory_mb: int, counted: Decimal, price: Decimal) -> list[BillLine]:
    workers, gb = measured.plan.workers, Decimal(memory_mb) / 1024
    init_ms = total_ms = others = Decimal(0)
    for invocation in result.invocations:
        if invocation["memory_mb"] == memory_mb and 0 <= invocation["worker"] < workers:
            init_ms += Decimal(repr(invocation["init_ms"] or 0.0))
            total_ms += invocation["billed_ms"]
        else:
            others += gb_seconds([invocation])
    init = init_ms / 1000 * gb
    minibatches = counted * gb
    rest = total_ms / 1000 * gb - init - minibatches
    amounts = {
        COUNTED: minibatches,
        "Init of functions of this size": init,
        "Functions of this size outside minibatches": rest,
        "Other functions": others,
    }
    return [_line(item, quantity, "GB-second", quantity * price) for item, quantity in amounts.items() if quantity]
