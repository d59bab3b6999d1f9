"""Keep the history of a running execution: AWS's event limit, the execution's end, and its billed transitions.

`read_transitions` reads the transitions from the history (GetExecutionHistory) of a service without our own trace.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from slslab.statemachines import ATTEMPTS, ENTERED
from slslab_workers.trace.event import Event

EXITED = "StateExited"
STATUSES = {
    "ExecutionSucceeded": "SUCCEEDED",
    "ExecutionFailed": "FAILED",
    "ExecutionAborted": "ABORTED",
    "ExecutionTimedOut": "TIMED_OUT",
}
DATA = ("input", "output")
FAILED = ("Failed", "TimedOut")
SCHEDULED = "lambdaFunctionScheduledEventDetails"
# The function and environment of transitions in a trace.
OWNER = "states"


class ExecutionOver(Exception):
    """The execution has ended, and nothing more may happen in it."""


class History:
    """Events in order, until a terminal one closes the history; the interpreter's event manager.

    `limit` is the maximum number of events: the last one is then ExecutionFailed. `record` receives every transition
    that has ended. `over` is called once, when something other than its interpreter has ended the execution. A state is
    identified by the interpreter's context, which is the same object from the state's entry to its exit.
    """

    def __init__(self, limit: int, record: Callable[[Event], None], over: Callable[[], None]) -> None:
        self.events: list[dict[str, Any]] = []
        self.end: dict[str, Any] | None = None
        self._limit = limit
        self._record = record
        self._over = over
        self._lock = threading.Lock()
        self._open: dict[Any, Event] = {}
        self._attempted: set[Any] = set()
        # Maps an event's number to its state's context, and the context to the number of the entry event.
        self._states: dict[int, Any] = {}
        self._entries: dict[Any, int] = {}

    @property
    def status(self) -> str:
        """The API's ExecutionStatus."""
        return "RUNNING" if self.end is None else STATUSES[self.end["type"]]

    def add_event(
        self,
        context: Any,
        event_type: str,
        event_details: Mapping[str, Any] | None = None,
        timestamp: Any = None,  # noqa: ARG002 - the interpreter's signature
        update_source_event_id: bool = True,
    ) -> int:
        """Append an event and return its number; ExecutionOver if the execution has ended."""
        if event_type is None:
            return int(context.last_published_event_id)  # AWS records this failure only as the execution's own
        kind = getattr(event_type, "value", event_type)  # the interpreter's types are an Enum
        with self._lock:
            if self.end is not None:
                if kind in STATUSES:
                    return int(self.end["id"])  # the first of two ends counts
                raise ExecutionOver
            full = kind not in STATUSES and len(self.events) == self._limit - 1
            if full:
                # assumed: error and cause as users report them; AWS only documents that the execution fails.
                cause = f"The execution reached the maximum number of history events ({self._limit})."
                event_details = {"executionFailedEventDetails": {"error": "States.Runtime", "cause": cause}}
                kind = "ExecutionFailed"
            number = self._append(context, kind, event_details or {})
            context.last_published_event_id = number
            if update_source_event_id:
                context.source_event_id = number
        if full:
            self._over()
            raise ExecutionOver
        return number

    def close(self, kind: str, details: Mapping[str, Any]) -> bool:
        """End the execution from outside with an event of this type; False if it has ended already."""
        with self._lock:
            if self.end is not None:
                return False
            self._add(kind, details, 0)
        self._over()
        return True

    def fail_unseen(self, error: str, cause: str) -> None:
        """End the execution with an error, without an event."""
        with self._lock:
            if self.end is not None:
                return
            details = {"executionFailedEventDetails": {"error": error, "cause": cause}}
            self._end({**details, "id": 0, "type": "ExecutionFailed", "timestamp": round(time.time(), 3)})
        self._over()

    def entry(self, context: Any) -> int:
        """Return the number of the event in which this context's state was entered, or 0."""
        with self._lock:
            state = context if context in self._open else self._states.get(context.source_event_id)
            return self._entries.get(state, 0)

    def attempt(self, context: Any) -> None:
        """Begin an attempt at a state's work; each attempt after the first is a transition of its own."""
        with self._lock:
            if (transition := self._open.get(context)) is None:
                return
            if context in self._attempted:
                self._record(transition)
                self._open[context] = begun(transition.resource, time.monotonic_ns(), transition.bytes)
            self._attempted.add(context)

    def attempt_failed(self, context: Any) -> None:
        """Mark the latest attempt as failed."""
        with self._lock:
            if (transition := self._open.get(context)) is not None:
                transition.failed = True
                transition.end_ns = time.monotonic_ns()

    def invoked(self, context: Any, request_id: str) -> None:
        """Record the Lambda invocation of a Task's attempt; `context` is the attempt's."""
        with self._lock:
            transition = self._open.get(self._states.get(context.source_event_id))
            if transition is not None:
                transition.invocation = request_id

    def page(self, first: int, size: int, *, backwards: bool, data: bool) -> list[dict[str, Any]]:
        """Return `size` events from this position on, forwards or backwards, with or without their data."""
        with self._lock:
            events = (self.events[::-1] if backwards else self.events)[first : first + size]
        return events if data else [_without_data(event) for event in events]

    def _append(self, context: Any, kind: str, details: Mapping[str, Any]) -> int:
        if kind.endswith(ENTERED) and len(self.events) == 1:
            # measured: the first state's input is the execution's input verbatim, including white space.
            given = self.events[0]["executionStartedEventDetails"]["input"]
            details = {"stateEnteredEventDetails": {**details["stateEnteredEventDetails"], "input": given}}
        number = self._add(kind, details, context.source_event_id)
        if kind.endswith(ENTERED):
            self._open[context] = entered(details, time.monotonic_ns())
            self._attempted.discard(context)
            self._entries[context] = number
        # An attempt's events have a context of their own, and follow an event of the state.
        self._states[number] = context if context in self._open else self._states.get(context.source_event_id)
        if kind.endswith(EXITED):
            transition = self._open.pop(context)
            transition.end_ns = time.monotonic_ns()
            self._record(transition)
        return number

    def _add(self, kind: str, details: Mapping[str, Any], previous: int) -> int:
        number = len(self.events) + 1
        # Milliseconds, as AWS stores them; on the wire, timestamps are in seconds.
        self.events.append(
            {**details, "id": number, "previousEventId": previous, "type": kind, "timestamp": round(time.time(), 3)}
        )
        if kind in STATUSES:
            self._end(self.events[-1])
        return number

    def _end(self, event: dict[str, Any]) -> None:
        self.end = event
        for transition in self._open.values():
            # A failed state has no exit event; a state at work ends with the execution.
            transition.failed = True
            transition.end_ns = transition.end_ns or time.monotonic_ns()
            self._record(transition)
        self._open.clear()


def begun(state: str, now: int, size: int) -> Event:
    """Return an attempt at a state with an input of `size` bytes, which AWS bills as one state transition."""
    return Event(op="transition", phase="other", start_ns=now, requests=1, bytes=size, resource=state, overhead=False)


def entered(event: Mapping[str, Any], now: int) -> Event:
    """Return the first attempt at a state, given its entry event."""
    details = event["stateEnteredEventDetails"]
    # GetExecutionHistory omits inputs on request.
    return begun(details["name"], now, len(details.get("input", "").encode()))


def _without_data(event: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: {k: v for k, v in value.items() if k not in DATA} if isinstance(value, dict) else value
        for key, value in event.items()
    }


def transition_event(execution: str, document: Any, transition: Event) -> dict[str, Any]:
    """Return the trace record of a transition in an execution with this input (docs/trace.md)."""
    worker, epoch = labels(document)
    resource = f"{execution}/{transition.resource}"
    event = replace(transition, resource=resource, worker=worker, epoch=epoch, function=OWNER, environment=OWNER)
    return {"record": "event", **event.record()}


def labels(document: Any) -> tuple[int, int]:
    """Return worker and epoch from an execution's input, or -1 if they are missing."""
    fields = document if isinstance(document, dict) else {}
    worker, epoch = (value if type(value := fields.get(key)) is int else -1 for key in ("rank", "epoch"))
    return worker, epoch


def read_transitions(history: Iterable[Mapping[str, Any]], clock: Callable[[datetime], int]) -> list[Event]:
    """Return all transitions of a complete history, each with the function that it invoked.

    Their number equals `slslab.statemachines.transitions` and what our API records. `clock` converts a timestamp to
    nanoseconds of CLOCK_MONOTONIC; times have the history's resolution, milliseconds.
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
