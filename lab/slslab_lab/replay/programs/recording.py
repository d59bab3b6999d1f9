"""Read a recorded run for replay, and check its plan, events and metered records."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slslab.errors import RunError
from slslab.predict.processor import Processor
from slslab.run import metrics
from slslab.run.directory import RunDirectory
from slslab.run.oversubscription import delayed
from slslab.run.run import Run, read_run
from slslab_lab.replay.programs.disturbance import widen
from slslab_workers.channels.scripts import PREFIX
from slslab_workers.faults.plan import kinds_left_out

Event = Mapping[str, Any]
# Operations that have another name in profiles.
NAMES = {"ping": "tensor.command", "execute": "states.execute", "invoke": "lambda.invoke"}
# Events that happen on a worker's behalf, but outside it.
BESIDE = metrics.BESIDE
# Operations inside a parameter server.
SUMMING = ("parameter.deserialise", "parameter.merge", "parameter.serialise")


def read_recording(directory: Path) -> Run:
    """Read a run directory; RunError, naming the record, if the trace is incomplete or contradicts itself.

    RequestError as `read_run` raises it.
    """
    run = read_run(RunDirectory(directory))
    name, document = run.directory.id, run.document
    if document is None or document["status"] != "done":
        status = "failed" if document is not None and document["status"] == "failed" else "was interrupted"
        raise RunError(f"{name} {status}, so its trace is incomplete.", "replay a finished run.")
    if kinds := kinds_left_out(document.get("faults", ())):
        raise RunError(
            f"Faults were injected into {name}: {', '.join(kinds)}.", "leave out all faults except stragglers."
        )
    if run.torn:
        raise RunError(f"The trace of {name} breaks off in its last line.", "run the plan again.")
    check(run)
    return run


def processor_of(run: Run) -> Processor | None:
    """Return the processor that recorded a run, with the host's disturbance meanwhile; None if it wasn't measured."""
    document = run.document or {}
    if not (processor := document.get("processor")):
        return None
    stolen_share = document.get("host", {}).get("stolen_share", 0.0)
    delayed_share = delayed(run.invocations, run.instances)
    return widen(Processor.from_dict(processor), document.get("alone"), delayed_share, stolen_share)


def operation(event: Event) -> str:
    """Return the name of an event's operation in a profile; a script is stored by the same call that runs it."""
    if event["op"] == "tensor.script" and event["overhead"]:
        return "tensor.compile"
    return str(NAMES.get(event["op"], event["op"]))


def find_calls(events: Sequence[Event]) -> dict[int, str]:
    """Map the number of each worker's `invoke` event to the invocation it made: the one accepted during the call."""
    accepted = metrics.grouped(
        (e["function"], (e["start_ns"], e["invocation"])) for e in events if e["op"] == "invoke" and e["worker"] < 0
    )
    calls = {}
    for event in events:
        if event["op"] == "invoke" and event["worker"] >= 0:
            invocations = accepted[event["resource"].rpartition(":")[2]]
            index = bisect_left(invocations, (event["start_ns"], ""))
            if index < len(invocations) and invocations[index][0] <= event["end_ns"]:
                calls[event["event"]] = invocations.pop(index)[1]
    return calls


class Databases:
    """The tensor databases or the parameter server of a recorded run: their owners, and their CPU time per request.

    Ask about events in their order, since each execution of a script is counted once.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        asked = metrics.grouped(
            (event["resource"].partition("/")[0], event["worker"])
            for event in events
            if event["op"].startswith("tensor.") and event["worker"] >= 0 and "/" in event["resource"]
        )
        # For each database address, the worker that asks it most. A single shared database belongs to the first worker.
        self._owners = {
            address: 0 if len(asked) == 1 else Counter(workers).most_common(1)[0][0]
            for address, workers in asked.items()
        }
        # By worker and the key that the script writes (of texts: reads), which follows the names in the resource.
        self._executions = metrics.grouped(
            ((event["worker"], event["resource"].partition(" ")[2]), event["cpu_ns"])
            for event in events
            if event["op"] == "tensor.script.run"
        )
        # By worker (-1 for sums that any worker may pull) and the key of the sum.
        self._sums = metrics.grouped(
            ((event["worker"], event["resource"]), event["cpu_ns"]) for event in events if event["op"] in SUMMING
        )

    def owner(self, event: Event) -> int:
        """Return the worker that owns the database this event asked; -1 if it didn't ask one."""
        return self._owners.get(event["resource"].partition("/")[0], -1)

    def server_ns(self, event: Event) -> int:
        """Return the CPU time of the script that this event ran, or of the parameter server's work for a push or pull;
        0 without such work or if it failed.

        If the database doesn't report it, return the caller's waiting time, which includes work for other clients.
        """
        if event["op"] == "parameter.push":
            return sum(self._sums.get((event["worker"], event["resource"].rpartition("/")[0]), ()))
        if event["op"] == "parameter.pull":
            written = self._sums.get((-1, event["resource"]))
            return written.pop(0) if written else 0
        key = event["resource"].partition("/")[2]
        if event["op"] != "tensor.script" or event["failed"] or key.startswith(PREFIX):
            return 0
        executions = self._executions[self.owner(event), key]
        return executions.pop(0) if executions else max(0, metrics.lambda_clock_ns(event) - int(event["cpu_ns"]))


def check(recorded: Run) -> None:
    """Raise RunError if an event of a worker belongs to an invocation that was never metered."""
    known = {record["request_id"] for record in recorded.invocations}
    known |= {instance["id"] for instance in recorded.instances}
    for event in recorded.events:
        if event["worker"] >= 0 and event["op"] not in BESIDE and event["invocation"] not in known:
            raise RunError(
                f"Event {event['event']} ({event['op']}) of {recorded.plan.run} belongs to invocation "
                f"{event['invocation']!r}, which was never metered.",
                "the trace was changed, or recorded by a defect; run the plan again.",
            )
