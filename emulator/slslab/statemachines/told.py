"""Transitions out of an execution's history as GetExecutionHistory tells it, for services that write no trace of ours.

There are as many as `slslab.statemachines.transitions` counts, and as our own front records. Times are exact to the
history's milliseconds.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slslab.statemachines import ATTEMPTS, ENTERED
from slslab.statemachines.history import EXITED, STATUSES, Transition

FAILED = ("Failed", "TimedOut")
SCHEDULED = "lambdaFunctionScheduledEventDetails"


@dataclass
class Told:
    """A transition, and the function that its Task's attempt invoked, if it was one."""

    transition: Transition
    function: str = ""


def told_transitions(history: Iterable[Mapping[str, Any]], clock: Callable[[datetime], int]) -> list[Told]:
    """Every transition of a whole history; `clock` turns a timestamp into nanoseconds of CLOCK_MONOTONIC."""
    events = {int(event["id"]): event for event in history}
    # The event by which the state was entered that an event happened in.
    entries: dict[int, int] = {}
    latest: dict[int, Told] = {}
    attempted: set[int] = set()
    found: list[Told] = []
    ended = 0

    def begin(entry: int, state: str, now: int) -> None:
        latest[entry] = Told(Transition(state, now))
        found.append(latest[entry])

    for number, event in sorted(events.items()):
        kind, now = event["type"], clock(event["timestamp"])
        ended = max(ended, now)
        if kind.endswith(ENTERED):
            entries[number] = number
            begin(number, event["stateEnteredEventDetails"]["name"], now)
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
                begin(entry, latest[entry].transition.state, now)
            attempted.add(entry)
            arn = event.get(SCHEDULED, {}).get("resource", "")
            latest[entry].function = arn.partition(":function:")[2].partition(":")[0]
        transition = latest[entry].transition
        if kind.endswith(FAILED):
            transition.failed, transition.end_ns = True, now
        elif kind.endswith(EXITED):
            transition.end_ns = now
    for one in found:
        if not one.transition.end_ns:
            # A state that was at work ends with the execution.
            one.transition.failed, one.transition.end_ns = True, ended
    return found


def _entry_of(state: str, entry: int | None, events: Mapping[int, Any], entries: Mapping[int, int]) -> int | None:
    """Where the state was entered that is left: an exit may follow an event of a state inside it, or of one before."""
    while entry is not None and events[entry]["stateEnteredEventDetails"]["name"] != state:
        entry = entries.get(int(events[entry]["previousEventId"]))
    return entry
