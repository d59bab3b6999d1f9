"""The document of a run, which `--json` prints: how it is made from the trace, and how it is read again."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Literal, cast

from slslab.aws.limits import lambda_limits
from slslab.errors import RequestError, RunError
from slslab.report.services import Recorded, read_recorded, service_document
from slslab.run import metrics
from slslab.run.bill import DEFAULT_BOOK, Book, Usage, compute_bill, load_book
from slslab.run.directory import list_runs, resolve
from slslab.run.document import (
    SCHEMA,
    Alone,
    Cost,
    Details,
    Failure,
    Host,
    Modelled,
    NotAlone,
    NotModelled,
    RunDocument,
    Totals,
    not_modelled,
)
from slslab.run.faults import blame, injected, last_activity
from slslab.run.log import instances, invocations, load
from slslab.run.records import notes, seconds_used
from slslab.run.table import Trace
from slslab_workers.architecture import Outcome, RunFailed, read_plan
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training.models import spec

# Memory sizes are suggested in these steps, MB.
STEP_MB = 64
# What a predicted bill rests on.
BASIS = ("kind", "profile", "processor", "notes")
NOT_ENDED = not_modelled("The run did not come to its end, and so its trace has none.")
METRICS = ("loss", "accuracy", "counts", "bytes", "overheads", "phases", "per_worker")


def make_document(
    plan: Plan,
    trace: Trace,
    records: list[dict[str, Any]],
    launched: list[dict[str, Any]],
    host: Mapping[str, Any],
    outcome: Outcome | None,
    failure: RunFailed | None,
    seconds: float,
    book: Book,
    alone: Alone | NotAlone | None = None,
    processor: Mapping[str, Any] | None = None,
    on_lambda: Modelled | NotModelled = NOT_ENDED,
) -> RunDocument:
    """Return the document of a run by its trace, what its driver computed, the system that it ran on, what was measured
    before it, the host's processor next to Lambda's, and what it takes and costs there."""
    events = trace.events
    totals = metrics.totals(events, records, launched)
    held_up = totals.pop("host")
    parameters = outcome.parameters if outcome else spec(plan.model).parameters
    return {
        "schema": SCHEMA,
        "run": plan.run,
        "status": _status(failure),
        "error": _error(failure, plan, events, records) if failure else None,
        "lambda": on_lambda,
        "architecture": plan.architecture,
        "model": plan.model,
        "dataset": plan.dataset,
        "workers": plan.workers,
        "batch_size": plan.batch_size,
        "batches": plan.batches,
        "epochs": plan.epochs,
        "memory_mb": plan.memory_mb,
        "seed": plan.seed,
        "plan": plan.to_document(),
        "parameters": parameters,
        "gradient_bytes": None if parameters is None else 4 * parameters,
        "parameters_sha256": outcome.parameters_sha256 if outcome else None,
        "replicas_equal": outcome.replicas_equal if outcome else None,
        "epochs_trained": outcome.epochs if outcome else None,
        "updates": outcome.updates if outcome else None,
        "threads": outcome.threads if outcome else None,
        "details": cast(Details, dict(outcome.details) if outcome else {}),
        "torch": version("torch") if outcome else None,
        "loss": list(outcome.loss) if outcome else [],
        "accuracy": list(outcome.accuracy) if outcome else [],
        "host": cast(
            Host,
            {
                **held_up,
                **{name: host[name] for name in ("cores", "cpu_share_enforced", "own_cpu_seconds")},
                **{name: host[name] for name in ("name", "processors", "nodes", "stolen_share") if name in host},
            },
        ),
        "stack": host["stack"],
        "environment": plan.environment,
        "confinement": host["confinement"],
        "package": host["package"],
        "seconds": {
            "measured": round(seconds, 3),
            "span": round(metrics.span_seconds(events, launched), 3),
        },
        **cast(Totals, totals),
        "alone": alone,
        "processor": dict(processor) if processor else None,
        "cost": make_bill(events, records, launched, book),
        "faults": injected(events, plan.faults),
        "trace_torn": trace.torn,
    }


def _status(failure: RunFailed | None) -> Literal["done", "failed", "interrupted"]:
    if failure is None:
        return "done"
    return "interrupted" if failure.type in ("Interrupted", "Killed") else "failed"


def make_bill(events: metrics.Rows, records: list[dict[str, Any]], launched: list[dict[str, Any]], book: Book) -> Cost:
    """Return what these events, metered invocations and metered instances of this host cost by a book."""
    usage = Usage(
        records,
        metrics.object_requests(events),
        metrics.transitions(events),
        hosts=tuple((instance["type"], seconds_used(instance)) for instance in launched),
        service_hosts=tuple(metrics.hosts(events)),
    )
    return cast(Cost, {**compute_bill(usage, book).as_document(), "notes": notes(launched)})


def _error(failure: RunFailed, plan: Plan, events: metrics.Rows, records: list[dict[str, Any]]) -> Failure:
    position = metrics.last_position(events, failure.worker)
    error: Failure = {
        "type": failure.type,
        "message": failure.message,
        "hint": blame(events, failure.worker) or _hint(failure, plan, records),
        "worker": failure.worker,
        "epoch": position[0] if position else None,
        "step": position[1] if position else None,
    }
    if failure.worker is not None:
        error["last_activity"] = last_activity(events, failure.worker)
    return error


def _hint(failure: RunFailed, plan: Plan, records: list[dict[str, Any]]) -> str:
    if failure.type == "Runtime.OutOfMemory":
        limits = {record["memory_mb"] for record in records if record["error_type"] == failure.type}
        if limits and plan.memory_mb not in limits:
            which = f"which --memory does not set: see `slslab run {plan.architecture} --help`."
            return f"killed at its limit of {max(limits):,} MB, {which}"
        return _larger(plan.memory_mb, _finished_peak_mb(plan), _usual_mb(plan.model))
    if failure.type == "Sandbox.Timedout":
        return f"a step and its waits did not fit into {plan.timeout} s: give more --timeout, or more --memory (CPU)."
    if failure.type == "Interrupted":
        return "run it again; `slslab show` has what was measured."
    return "`slslab logs` prints what its functions wrote."


def _usual_mb(model: str) -> int:
    """Return the memory size that functions have by default with a model, MB; 0 for a model of another package."""
    try:
        return spec(model).memory_mb
    except PlanError:
        return 0


def _larger(memory_mb: int, peak_mb: int | None, usual_mb: int) -> str:
    """Return the hint for functions that were killed at a memory size: the next to try, and the known peak, if any.

    Without a peak it is twice the size, and at least the model's usual one.
    """
    killed = f"killed at its limit of {memory_mb:,} MB; "
    largest = lambda_limits().memory_mb.maximum
    if memory_mb >= largest:
        return killed + "Lambda has no larger memory size: give a smaller --batch-size."
    doubled = f"try --memory {min(2 * memory_mb, largest)}."
    if peak_mb is None:
        return killed + (doubled if usual_mb <= 2 * memory_mb else f"try --memory {usual_mb}, the model's default.")
    fits = min((peak_mb // STEP_MB + 1) * STEP_MB, largest)
    peaked = f"the last run of this plan that finished peaked at {peak_mb:,} MB: "
    return killed + peaked + (f"try --memory {fits}." if fits > memory_mb else doubled)


def _finished_peak_mb(plan: Plan) -> int | None:
    """Return the peak memory, MB, of the latest finished run of this plan with any memory size, seed and length."""
    same = ("architecture", "model", "dataset", "workers", "batch_size")
    for directory in list_runs():
        document = None
        with suppress(RunError):  # another run, which is damaged
            document = directory.document()
        if document is None or document["status"] != "done":
            continue
        # Runs of before there were memory formats had the default one.
        formatted = document["plan"].get("memory_format", "default") == plan.memory_format
        if formatted and all(document[name] == getattr(plan, name) for name in same):
            return int(document["peak_memory_mb"])
    return None


def read_document(run: str, kind: str | None = None) -> RunDocument:
    """Return the document of a run; that of one that was killed is made from its trace, as far as that goes.

    That of a service (`slslab up`), which may be running, has no keys of a plan, and no result. `kind` is the kind of
    work of its functions' handlers; RequestError if it is given for a run.
    """
    directory = resolve(run)
    if (about := directory.service()) is not None:
        recorded = read_recorded(directory, about)
        bill = biller(recorded, load_book(DEFAULT_BOOK))
        return cast(RunDocument, service_document(directory.id, recorded, bill, kind))
    refuse_kind(directory.id, kind)
    document = directory.document()
    if document is not None:
        return cast(RunDocument, document)
    if directory.status() == "running":
        raise RequestError(f"The run {directory.id} is still going on.", "wait for its end.")
    plan = read_plan(directory.plan())
    records = invocations(directory.path)
    trace = load(directory.path)
    if records:
        directory.write_invocations(records)
    unknown: dict[str, Any] = {
        "cores": None,
        "cpu_share_enforced": None,
        "confinement": None,
        "package": None,
        "stack": {},
        "own_cpu_seconds": None,
    }
    failure = RunFailed("Killed", "The command was killed before the run ended; this is what its trace holds.")
    last = trace.events
    seconds = (max(e["end_ns"] for e in last) - min(e["start_ns"] for e in last)) / 1e9 if last else 0.0
    launched = instances(directory.path)
    killed = make_document(plan, trace, records, launched, unknown, None, failure, seconds, load_book(DEFAULT_BOOK))
    assert killed["error"] is not None
    killed["error"]["hint"] = (
        "invocations and instances that were running when it was killed are in the trace, and are not priced."
    )
    return killed


def biller(recorded: Recorded, book: Book) -> Callable[[metrics.Records], Cost]:
    """Return what makes a service's bill: that of these invocations and of all that was used besides."""
    return lambda records: make_bill(recorded.events, [*map(dict, records)], [], book)


def refuse_kind(run: str, kind: str | None) -> None:
    """Raise RequestError if a kind of work is given for a run."""
    if kind is not None:
        raise RequestError(
            f"{run} is a run, whose operations have kinds of their own.", "leave out --kind, or name `up`."
        )


def service_bill(predicted: Mapping[str, Any], cost: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bill of a service: Lambda's with its 80 % range, or why there is none; `host` is what was metered."""
    if predicted["status"] == "modelled":
        return {"schema": 1, **predicted["cost"], **{name: predicted[name] for name in BASIS}, "host": dict(cost)}
    return {"schema": 1, **predicted, "host": dict(cost)}


def bill_document(replayed: Modelled | NotModelled, cost: Cost) -> dict[str, Any]:
    """Return the bill of a run: Lambda's with its 80 % range, or why there is none.

    `host` is what the usage of the host that ran it would cost, by the same prices.
    """
    if replayed["status"] == "modelled":
        return {
            "schema": 1,
            **replayed["cost"],
            "profile": replayed["profile"],
            "range": replayed["ranges"]["cost"],
            "uncertainty": replayed["uncertainty"]["cost"],
            "host": cost,
        }
    return {"schema": 1, **replayed, "host": cost}
