"""Read transitions from an execution's history (GetExecutionHistory), for services without our own trace.

The number of transitions equals `slslab.statemachines.transitions` and what our API records. Times have the history's
resolution, milliseconds.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from slslab.statemachines import ATTEMPTS, ENTERED
from slslab.statemachines.history import EXITED, STATUSES, begun, entered
from slslab_workers.trace.event import Event

FAILED = ("Failed", "TimedOut")
SCHEDULED = "lambdaFunctionScheduledEventDetails"


def read_transitions(history: Iterable[Mapping[str, Any]], clock: Callable[[datetime], int]) -> list[Event]:
    """Return all transitions of a complete history, each with the function that it invoked.

    `clock` converts a timestamp to nanoseconds of CLOCK_MONOTONIC.
    """
    events = {int(event["id"]): event for event in history}
    # Maps an event's number to the number of the event in which its state was entered.
    entries: dict[int, int] = {}
    latest: dict[int, Event] = {}
    attempted: set[int] = set()
    transitions: list[Event] = []
    ended = 0

    def begin(entry: int, transition: Event) -> None:
        latest[entry] = transition
        transitions.append(transition)

    for number, event in sorted(events.items()):
        kind, now = event["type"], clock(event["timestamp"])
        ended = max(ended, now)
        if kind.endswith(ENTERED):
            entries[number] = number
            begin(number, entered(event, now))
            continue
        entry = entries.get(int(event["previousEventId"]))
        if kind.endswith(EXITED):
            entry = _entry_of(event["stateExitedEventDetails"]["name"], entry, events, entries)
        if entry is None:
            continue  # the execution's own
        entries[number] = entry
        if kind in STATUSES:
            continue
        if kind in ATTEMPTS:
            if entry in attempted:
                begin(entry, begun(latest[entry].resource, now, latest[entry].bytes))
            attempted.add(entry)
            arn = event.get(SCHEDULED, {}).get("resource", "")
            latest[entry].function = arn.partition(":function:")[2].partition(":")[0]
        if kind.endswith(FAILED):
            latest[entry].failed, latest[entry].end_ns = True, now
        elif kind.endswith(EXITED):
            latest[entry].end_ns = now
    for transition in transitions:
        if not transition.end_ns:
            # A state that was at work ends with the execution.
            transition.failed, transition.end_ns = True, ended
    return transitions


def _entry_of(state: str, entry: int | None, events: Mapping[int, Any], entries: Mapping[int, int]) -> int | None:
    """Return the entry of an exited state: the exit may follow an event of a state inside it, or an earlier one."""
    while entry is not None and events[entry]["stateEnteredEventDetails"]["name"] != state:
        entry = entries.get(int(events[entry]["previousEventId"]))
    return entry
