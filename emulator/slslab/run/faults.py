"""What a run's faults did, and what a failed worker did last, both from the trace."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

# As in `document`.
from typing_extensions import TypedDict

from slslab.run.metrics import grouped
from slslab_workers.faults.plan import DEATHS, LOSSES, MESSAGES, REFUSALS
from slslab_workers.trace.operations import MOVES

Event = Mapping[str, Any]


class Injected(TypedDict):
    """What one entry of a fault plan did.

    It happened `times` times and delayed workers for `held_up_seconds` in total. The other fields say where it first
    happened: None if it never did, -1 for a part that doesn't apply (a function that isn't a worker).
    """

    number: int
    kind: str
    times: int
    function: str | None
    worker: int | None
    epoch: int | None
    step: int | None
    phase: str | None
    held_up_seconds: float


def injected(events: Sequence[Event], plan: Mapping[str, Any] | None) -> list[Injected]:
    """Return what each entry of a fault plan's document did, in the plan's order; empty without a plan."""
    happened = grouped((int(e["resource"].partition(" ")[0]), e) for e in events if e["op"] == "fault")
    found: list[Injected] = []
    for number, entry in enumerate(plan["fault"] if plan else (), 1):
        times = happened[number]
        first: Mapping[str, Any] = times[0] if times else {}
        found.append(
            {
                "number": number,
                "kind": str(entry["kind"]),
                "times": len(times),
                "function": first.get("function"),
                "worker": first.get("worker"),
                "epoch": first.get("epoch"),
                "step": first.get("step"),
                "phase": first.get("phase"),
                "held_up_seconds": round(sum(e["end_ns"] - e["start_ns"] for e in times) / 1e9, 6),
            }
        )
    return found


def blame(events: Sequence[Event], worker: int | None) -> str | None:
    """Return which fault made this worker, or the whole run, fail, as a sentence; None if no fault did.

    That is the worker's own death, or a refusal right before it failed, or else another worker's death or the loss of
    a database or message.
    """
    faults = [event for event in events if event["op"] == "fault"]
    own = [e for e in events if e["worker"] == worker and e["worker"] >= 0 and e["function"] != "driver"]
    own = _that_died(own) or own
    for event in own[-2:] if own and own[-1]["failed"] else own[-1:]:
        if event["op"] == "fault" and _kind(event) in (*DEATHS, *REFUSALS):
            return f"{_name(event)} in the fault plan caused this."
    for event in faults:
        if _kind(event) in (*DEATHS, *LOSSES, *MESSAGES):
            return f"{_name(event)} in the fault plan happened to worker {event['worker']} before this."
    return None


def epochs_with_losses(events: Iterable[Event]) -> Iterator[int]:
    """Yield the epochs in which a fault plan removed a database or a message that peers wait for."""
    for event in events:
        if event["op"] == "fault" and _kind(event) in (*LOSSES, "message-lost"):
            yield int(event["epoch"])


def _that_died(own: Sequence[Event]) -> list[Event]:
    """Return the events of the invocations that a fault killed; a worker may have several at once."""
    deaths = {event["invocation"] for event in own if event["op"] == "fault" and _kind(event) in DEATHS}
    return [event for event in own if event["invocation"] in deaths]


def _kind(event: Event) -> str:
    return str(event["resource"].split()[1])


def _name(event: Event) -> str:
    number, kind = event["resource"].split()[:2]
    return f"fault {number} ({kind})"


def last_activity(events: Sequence[Event], worker: int) -> str:
    """Return a sentence on what a worker did last: its epoch and step, and what it waited for if it polled."""
    own = [e for e in events if e["worker"] == worker and e["function"] != "driver"]
    own = [e for e in _that_died(own) or own if e["op"] not in ("wait", "fault", "transition")]
    if not own:
        return f"Worker {worker} had done nothing yet."
    last = max(own, key=lambda event: int(event["end_ns"]))
    at = [f"{name} {last[name]}" for name in ("epoch", "step") if last[name] >= 0]
    if MOVES.get(last["op"]) == "out" and last["failed"]:
        did = f"it waited for {last['resource']}"
    elif last["op"] == "object.list":
        did = f"it waited for objects {last['resource']}*"
    else:
        did = f"its last event was {last['op']} ({last['phase']})"
        did += f" of {last['resource']}" if last["resource"] else ""
    return f"Worker {worker} was in {', '.join(at) or 'no epoch'}: {did}."
