"""Explain why a run failed, and suggest what to do."""

from contextlib import suppress

from slslab.aws.limits import lambda_limits
from slslab.errors import RunError
from slslab.predict.profiles.profile import load_platform
from slslab.run import metrics
from slslab.run.directory import list_runs
from slslab.run.document import Failure
from slslab.run.faults import blame, last_activity
from slslab_workers.architecture import RunFailed
from slslab_workers.models import spec_of
from slslab_workers.plan import Plan, PlanError

# Suggested memory sizes are multiples of this.
STEP_MB = 64


def describe_failure(failure: RunFailed, plan: Plan, events: metrics.Rows, records: metrics.Records) -> Failure:
    """Return why a run failed, where its worker was, and what to do about it."""
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


def _hint(failure: RunFailed, plan: Plan, records: metrics.Records) -> str:
    if failure.type == "Runtime.OutOfMemory":
        limits = {record["memory_mb"] for record in records if record["error_type"] == failure.type}
        if limits and plan.memory_mb not in limits:
            which = f"which --memory does not set: see `slslab run {plan.architecture} --help`."
            return f"killed at its limit of {max(limits):,} MB, {which}"
        return _larger(plan, _finished_peak_mb(plan))
    if failure.type == "OutOfMemoryError":  # torch's, of a GPU
        return "the GPU has too little memory: give a smaller --batch-size, or fewer --workers if they share it."
    if failure.type == "Sandbox.Timedout":
        return f"a step and its waits took longer than {plan.timeout} s: raise --timeout, or --memory (more CPU)."
    if failure.type.endswith("TooManyRequestsException") and plan.faults is None:
        owner = f"platform {plan.platform}" if plan.platform else f"account {plan.account}"
        return f"it needs more functions at once than the {owner} allows: give fewer --workers."
    if failure.type == "Interrupted":
        return "run it again; `slslab show` prints what was measured."
    return "`slslab logs` prints what its functions wrote."


def _larger(plan: Plan, peak_mb: int | None) -> str:
    """Return the hint for functions that were killed at the plan's memory size: the size to try next, and its peak.

    Without a peak, that is twice the size, but at least the model's usual one.
    """
    memory_mb, containers = plan.memory_mb, plan.platform and load_platform(plan.platform).containers
    killed = f"killed at its limit of {memory_mb:,} MB; "
    largest = int(containers.memory_mb.value) if containers else lambda_limits().memory_mb.maximum
    if memory_mb >= largest:
        return killed + f"{plan.platform or 'Lambda'} has no larger memory size: give a smaller --batch-size."
    doubled = f"try --memory {min(2 * memory_mb, largest)}."
    if peak_mb is None:
        usual_mb = 0
        with suppress(PlanError):  # a model that isn't known here
            usual_mb = spec_of(plan).memory_mb
        return killed + (doubled if usual_mb <= 2 * memory_mb else f"try --memory {usual_mb}, the model's default.")
    fits = min((peak_mb // STEP_MB + 1) * STEP_MB, largest)
    peaked = f"the last run of this plan that finished peaked at {peak_mb:,} MB: "
    return killed + peaked + (f"try --memory {fits}." if fits > memory_mb else doubled)


def _finished_peak_mb(plan: Plan) -> int | None:
    """Return the peak memory, MB, of the latest finished run of this plan with any memory size, seed and length."""
    same = ("architecture", "model", "dataset", "workers", "batch_size")
    for directory in list_runs():
        document = None
        with suppress(RunError):  # skip damaged runs
            document = directory.document()
        if document is None or document["status"] != "done":
            continue
        # Older runs recorded no memory format, and used the default one.
        formatted = document["plan"].get("memory_format", "default") == plan.memory_format
        if formatted and all(document[name] == getattr(plan, name) for name in same):
            return int(document["peak_memory_mb"])
    return None
