"""Keep the history of a running execution: AWS's event limit, the execution's end, and its billed transitions.

`read_transitions` reads the transitions from any complete history (GetExecutionHistory).
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from slslab_workers.trace.event import Event

ENTERED = "StateEntered"
# Events that begin an attempt at a state's work.
ATTEMPTS = frozenset(
    ("LambdaFunctionScheduled", "TaskScheduled", "ActivityScheduled", "ParallelStateStarted", "MapStateStarted")
)
STATUSES = {
    "ExecutionSucceeded": "SUCCEEDED",
    "ExecutionFailed": "FAILED",
    "ExecutionAborted": "ABORTED",
    "ExecutionTimedOut": "TIMED_OUT",
}
FAILED = ("Failed", "TimedOut")
# The function and environment of transitions in a trace.
OWNER = "states"


class ExecutionOver(Exception):
    """The execution has ended, and nothing more may happen in it."""


class History:
    """Events in order, until a terminal one closes the history; the interpreter's event manager.

    `limit` is the maximum number of events: the last one is then ExecutionFailed. `record` receives every transition
    that has ended. `over` is called once, when something other than its interpreter has ended the execution. The
    interpreter's context has the number of the event that precedes the next one.
    """

    def __init__(self, limit: int, record: Callable[[Event], None], over: Callable[[], None]) -> None:
        self.events: list[dict[str, Any]] = []
        self.end: dict[str, Any] | None = None
        self._limit = limit
        self._over = over
        self._lock = threading.Lock()
        self._transitions = Transitions(record)

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
            if kind.endswith(ENTERED) and len(self.events) == 1 and event_details:
                # measured: the first state's input is the execution's input verbatim, including white space.
                given = self.events[0]["executionStartedEventDetails"]["input"]
                event_details = {
                    "stateEnteredEventDetails": {**event_details["stateEnteredEventDetails"], "input": given}
                }
            number = self._add(kind, event_details or {}, context.source_event_id)
            context.last_published_event_id = number
            if update_source_event_id:
                context.source_event_id = number
        if full:
            self._over()
            raise ExecutionOver
        return number

    def close(self, kind: str, details: Mapping[str, Any], *, seen: bool = True) -> bool:
        """End the execution from outside, with an event of this type if it is `seen`; False if it has ended already."""
        with self._lock:
            if self.end is not None:
                return False
            if seen:
                self._add(kind, details, 0)
            else:
                self.end = {**details, "id": 0, "type": kind, "timestamp": round(time.time(), 3)}
                self._transitions.close(time.monotonic_ns())
        self._over()
        return True

    def entry(self, context: Any, state: str) -> int:
        """Return the number of the event in which this state, where the context is, was entered, or 0."""
        with self._lock:
            return self._transitions.entry(context.source_event_id, state)

    def attempt(self, context: Any, state: str) -> None:
        """Begin an attempt at this state's work; each attempt after the first is a transition of its own."""
        with self._lock:
            self._transitions.attempt(self._transitions.entry(context.source_event_id, state), time.monotonic_ns())

    def attempt_failed(self, context: Any, state: str) -> None:
        """Mark the latest attempt at this state as failed."""
        with self._lock:
            entry = self._transitions.entry(context.source_event_id, state)
            self._transitions.fail(entry, time.monotonic_ns())

    def invoked(self, context: Any, request_id: str) -> None:
        """Record the Lambda invocation of a Task's attempt; `context` is the attempt's."""
        with self._lock:
            transition = self._transitions.open.get(self._transitions.entry(context.source_event_id))
            if transition is not None:
                transition.invocation = request_id

    def _add(self, kind: str, details: Mapping[str, Any], previous: int) -> int:
        number = len(self.events) + 1
        # Milliseconds, as AWS stores them; on the wire, timestamps are in seconds.
        self.events.append(
            {**details, "id": number, "previousEventId": previous, "type": kind, "timestamp": round(time.time(), 3)}
        )
        self._transitions.add(self.events[-1], time.monotonic_ns())
        if kind in STATUSES:
            self.end = self.events[-1]
        return number


class Transitions:
    """Finds an execution's billed transitions in its events. `record` receives each transition that has ended."""

    def __init__(self, record: Callable[[Event], object]) -> None:
        # Maps the number of the event in which a state was entered to the state's latest attempt.
        self.open: dict[int, Event] = {}
        self._record = record
        # Entries of states whose latest attempt has been scheduled.
        self._scheduled: set[int] = set()
        # Maps an event's number to the entry of its state, and an entry to the state's name and the entry before it.
        self._entries: dict[int, int] = {}
        self._states: dict[int, tuple[str, int]] = {}

    def entry(self, number: int, state: str | None = None) -> int:
        """Return the entry of the state that an event is part of, or 0.

        `state` names the state: it may contain the one that the event is part of, or be followed by it.
        """
        entry = self._entries.get(number, 0)
        while entry and state not in (None, self._states[entry][0]):
            entry = self._states[entry][1]
        return entry

    def add(self, event: Mapping[str, Any], now_ns: int) -> None:
        """Read the next event."""
        number, kind, previous = int(event["id"]), event["type"], int(event["previousEventId"])
        entry = self.entry(previous)
        if kind.endswith(ENTERED):
            details = event["stateEnteredEventDetails"]
            self._states[number] = (details["name"], entry)
            # GetExecutionHistory omits inputs on request.
            self._begin(number, now_ns, len(details.get("input", "").encode()))
            entry = number
        elif kind.endswith("StateExited"):
            entry = self.entry(previous, event["stateExitedEventDetails"]["name"])
            transition = self.open.pop(entry)
            transition.end_ns = now_ns
            self._record(transition)
        elif kind in ATTEMPTS:
            self.attempt(entry, now_ns)
            self._scheduled.add(entry)
            arn = event.get("lambdaFunctionScheduledEventDetails", {}).get("resource", "")
            self.open[entry].function = arn.partition(":function:")[2].partition(":")[0]
        elif kind in STATUSES:
            self.close(now_ns)
        elif kind.endswith(FAILED):
            self.fail(entry, now_ns)
        self._entries[number] = entry

    def _begin(self, entry: int, now_ns: int, size: int) -> None:
        """Begin an attempt at a state with an input of `size` bytes, which AWS bills as one state transition."""
        name = self._states[entry][0]
        self.open[entry] = Event(
            op="transition", phase="other", start_ns=now_ns, requests=1, bytes=size, resource=name, overhead=False
        )

    def attempt(self, entry: int, now_ns: int) -> None:
        """Begin another attempt at the state with this entry, if the latest one has been scheduled or has failed."""
        transition = self.open.get(entry)
        if transition is not None and (transition.failed or entry in self._scheduled):
            self._record(transition)
            self._begin(entry, now_ns, transition.bytes)
            self._scheduled.discard(entry)

    def fail(self, entry: int, now_ns: int) -> None:
        """Mark the latest attempt at the state with this entry as failed, if it is at work."""
        if (transition := self.open.get(entry)) is not None:
            transition.failed = True
            transition.end_ns = now_ns

    def close(self, now_ns: int) -> None:
        """End all transitions: a failed state has no exit event, and a state at work ends with the execution."""
        for transition in self.open.values():
            transition.failed = True
            transition.end_ns = transition.end_ns or now_ns
            self._record(transition)
        self.open.clear()


def without_data(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event without its inputs and outputs."""
    return {
        key: {k: v for k, v in value.items() if k not in ("input", "output")} if isinstance(value, dict) else value
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


def read_transitions(
    history: Iterable[Mapping[str, Any]], clock: Callable[[Any], int] = lambda _timestamp: 0
) -> list[Event]:
    """Return the billed state transitions of a complete history, each with the function that it invoked.

    Each state entered is one (a Parallel or Map state counts once, and each state inside each time it is entered), and
    so is each retry. The execution's start and end don't count. https://aws.amazon.com/step-functions/pricing/: "Step
    Functions counts a state transition each time a step of your workflow is executed. You are charged for the total
    number of state transitions across all your state machines, including retries."

    They equal what our API records, which also sees several attempts in a row that fail before their work is scheduled.
    `clock` converts a timestamp to nanoseconds of CLOCK_MONOTONIC; times have the history's resolution, milliseconds.
    """
    found: list[Event] = []
    transitions, now_ns = Transitions(found.append), 0
    for event in sorted(history, key=lambda event: int(event["id"])):
        now_ns = clock(event["timestamp"])
        transitions.add(event, now_ns)
    transitions.close(now_ns)
    return found
