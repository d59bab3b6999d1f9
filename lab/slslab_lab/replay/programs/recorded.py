"""Turn a recorded run into a program: its trace without its times.

The program keeps CPU seconds, bytes, requests, the order of each worker's events, and which events waited for which. It
drops sleeps and polls that found nothing, since they only show how long a worker waited; the kernel makes its own. The
start of an invocation is kept as an order: after invocations that had ended, if the driver called it, otherwise after
the event that called it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from slslab.run.metrics import grouped
from slslab.run.run import Run
from slslab_lab.replay.kernel.kernel import TRANSITION
from slslab_lab.replay.kernel.program import Gathering, Polling, Program, Step, Track
from slslab_lab.replay.programs.alone import SoloCosts
from slslab_lab.replay.programs.recording import BESIDE, Databases, Event, find_calls, operation
from slslab_lab.replay.programs.stragglers import with_recorded_stragglers
from slslab_workers.channels.polling import poll_policy
from slslab_workers.trace.operations import ALL_REDUCE, KEYED
from slslab_workers.training import released_log
from slslab_workers.training.keys import GLOBAL

# Operations that may stand between two parts that a worker gathers.
PUTS, GETS, DELETES = (tuple(f"{channel}.{name}" for channel in KEYED) for name in ("put", "get", "delete"))
BETWEEN = (*DELETES, "reduce")
# Operations with messages that arrive in any order without a list: queue messages, and objects of stores where a
# worker asks for one key after the other.
IN_ANY_ORDER = ("queue.deliver", *(op for op in GETS if op != "object.get"))


def make_program(recording: Run) -> Program:
    """Return the program of a recording, using CPU times that were measured alone where they exist.

    Workers that the plan's faults slow down take a multiple of their CPU time.
    """
    return with_recorded_stragglers(read_program(recording), recording.plan)


def read_program(recording: Run) -> Program:
    """Return the program as if no fault of the plan slowed a worker down."""
    return _Reader(recording).program()


class _Reader:
    def __init__(self, recording: Run) -> None:
        self.recording = recording
        self.costs = SoloCosts(recording)
        self.events = self.costs.events()
        self.gates: list[int] = []
        self.records = {record["request_id"]: record for record in recording.invocations}
        # Each function's events, by invocation.
        self.work = grouped((e["invocation"], e) for e in self.events if e["worker"] >= 0 and e["op"] not in BESIDE)
        # Gates, by invocation and by event.
        self.began = {invocation: self._gate() for invocation in self.records}
        self.ended = {invocation: self._gate() for invocation in self.records}
        self.made: dict[int, int] = {}
        self.databases = Databases(self.events)
        self.calls = find_calls(self.events)
        puts = sorted((e for e in self.events if e["op"] in PUTS), key=lambda e: -e["end_ns"])
        self.first_puts = {e["resource"]: int(e["event"]) for e in puts if not e["failed"]}
        self.poll_cpu: dict[str, list[int]] = {"get": [], "list": []}

    def program(self) -> Program:
        plan = self.recording.plan
        executions = self._executions()
        tracks = [
            *self._invocations(executions),
            *(self._instance(one) for one in self.recording.instances),
            *executions.values(),
        ]
        return Program(
            plan.architecture,
            plan.workers,
            tuple(self._opening(track) for track in tracks),
            tuple(self.gates),
            poll_policy(plan).gets,
            {kind: round(fmean(cpu_ns)) for kind, cpu_ns in self.poll_cpu.items() if cpu_ns},
            plan.epochs,
            plan.batches,
        )

    def _gate(self) -> int:
        self.gates.append(1)
        return len(self.gates) - 1

    def _invocations(self, executions: Mapping[str, Track]) -> Iterator[Track]:
        starts = {e["environment"] or e["resource"]: e for e in self.events if e["op"] == "environment.start"}
        init = grouped((event["function"], event["cpu_ns"]) for event in starts.values())
        called = set(self.calls.values())
        by_states = {gate for track in executions.values() for step in track.flat_steps() for gate in step.opens}
        after = self._driver_order([i for i in self.records if i not in called and self.began[i] not in by_states])
        for invocation, record in self.records.items():
            start = starts.get(record["environment"]) if record["cold_start"] else None
            init_ns = start["cpu_ns"] if start else 0
            average = round(fmean(init[record["function"]])) if init[record["function"]] else 0
            events = self.work[invocation]
            steps = list(self._steps(events))
            # The recording's own times add up to what was metered.
            own = self.recording.events
            own_init_ns = own[start["event"]]["cpu_ns"] if start else 0
            rest = round(record["cpu_ms"] * 1e6) - own_init_ns - _cpu_ns(own[event["event"]] for event in events)
            if rest > 0:
                steps.append(Step("return", "other", rest))
            yield Track(
                record["function"],
                "invocation",
                events[0]["worker"] if events else -1,
                gather(steps),
                record["memory_mb"],
                record["ephemeral_mb"],
                init_ns or average,
                "image" if self.recording.plan.environment == "docker" else "zip",
                after.get(invocation, (self.began[invocation],)),
                (self.ended[invocation],),
                events[0]["epoch"] if events else -1,
            )

    def _instance(self, record: Mapping[str, Any]) -> Track:
        # An instance's work before its first event: Python starts and imports torch.
        steps = [Step("start", "init", self.costs.init_ns(record)), *self._steps(self.work[record["id"]])]
        return Track(record["type"], "instance", record["worker"], gather(steps), self.recording.plan.memory_mb)

    def _driver_order(self, called: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """Return the gates that the driver's invocations waited for: the last invocations that had ended before."""
        spans = {e["invocation"]: e for e in self.events if e["op"] == "invoke" and e["worker"] < 0}
        ends = sorted((spans[i]["end_ns"], spans[i]["start_ns"], self.ended[i]) for i in self.records if i in spans)
        return {i: _last_before(ends, spans[i]["start_ns"]) if i in spans else () for i in called}

    def _executions(self) -> dict[str, Track]:
        """Return the state machines' executions: transitions that start their invocations and wait for them."""
        executions = grouped((e["resource"].partition("/")[0], e) for e in self.events if e["op"] == TRANSITION)
        started = {e["resource"]: self._opens(e["event"]) for e in self.events if e["op"] == "execute"}
        ended = {name: self._gate() for name in executions}
        begins = {name: min(e["start_ns"] for e in inside) for name, inside in executions.items()}
        ends = sorted((max(e["end_ns"] for e in executions[name]), begins[name], ended[name]) for name in executions)
        tracks = {}
        for name, transitions in executions.items():
            states = _nested(sorted(transitions, key=lambda e: (e["start_ns"], -e["end_ns"])))
            steps = tuple(step for state, inside in states for step in self._state(state, inside))
            fields = {"worker": transitions[0]["worker"], "epoch": transitions[0]["epoch"], "steps": steps}
            # The driver starts an execution after others have ended; a function starts one when it reaches that line.
            awaits = (started[name],) if name in started else _last_before(ends, begins[name])
            tracks[name] = Track(name, "execution", awaits=awaits, opens=(ended[name],), **fields)
        return tracks

    def _state(self, state: Event, inside: Sequence[Event]) -> Iterator[Step]:
        when = {"epoch": state["epoch"], "event": state["event"]}
        tasks = [e["invocation"] for e in (state, *inside) if e["invocation"] in self.records]
        begins = tuple(self.began[task] for task in tasks)
        yield Step(TRANSITION, "other", requests=1, bytes=state["bytes"], opens=() if inside else begins, **when)
        if inside:
            # The branches begin together.
            size = sum(event["bytes"] for event in inside)
            yield Step(TRANSITION, "other", requests=len(inside), bytes=size, opens=begins, **when)
        if tasks:
            yield Step("join", "wait", awaits=tuple(self.ended[task] for task in tasks), **when)

    def _opens(self, event: int) -> int:
        if event not in self.made:
            self.made[event] = self._gate()
        return self.made[event]

    def _awaits(self, event: Event) -> tuple[int, ...]:
        """Return the gates of an event's causes in other invocations.

        Any version of a global model will do, so its reader only waits for the first.
        """
        if event["op"] in GETS and event["resource"].endswith(f"/{GLOBAL}"):
            first = self.first_puts[event["resource"]]
            return () if self.events[first]["invocation"] == event["invocation"] else (self._opens(first),)
        return tuple(
            self._opens(cause)
            for cause in event["causes"]
            if self.events[cause]["invocation"] != event["invocation"] and self.events[cause]["worker"] >= 0
        )

    def _steps(self, events: Sequence[Event]) -> Iterator[Step]:
        last_poll: Polling = ""
        # CPU time of sleeps, to be added to the poll or step after them.
        carried_ns = 0
        for index, event in enumerate(events):
            op, cpu_ns = event["op"], event["cpu_ns"] + event["cpu_before_ns"]
            if op == "wait":
                carried_ns += cpu_ns
                continue
            poll = self._poll(events, index)
            if poll:
                self.poll_cpu[poll].append(cpu_ns + carried_ns)
                last_poll = poll
            else:
                awaits = self._awaits(event)
                polling: Polling = (last_poll or "get") if awaits and op in GETS else ""
                if not polling and op not in BETWEEN:
                    last_poll = ""
                # Sleeps before a step that polls belong to polls, which the kernel makes itself.
                yield from self._step(event, cpu_ns if polling else cpu_ns + carried_ns, awaits, polling)
            carried_ns = 0

    def _step(self, event: Event, cpu_ns: int, awaits: tuple[int, ...], polling: Polling) -> Iterator[Step]:
        op = event["op"]
        when = {"epoch": event["epoch"], "step": event["step"], "event": event["event"]}
        if op == ALL_REDUCE:
            # All of it happens after the last peer has arrived, not just after the last message.
            yield Step("join", "wait", awaits=awaits, **when)
            awaits = ()
        callee = self.calls.get(event["event"])
        opens = () if callee is None else (self.began[callee],)
        yield Step(
            operation(event),
            event["phase"],
            cpu_ns,
            op == "compute",
            event["requests"],
            event["bytes"],
            awaits,
            opens,
            polling,
            at=self.databases.owner(event),
            server_cpu_ns=self.databases.server_ns(event),
            **when,
        )
        if callee is not None and self.records[callee]["invocation_type"] != "Event":
            yield Step("join", "wait", awaits=(self.ended[callee],), **when)

    def _poll(self, events: Sequence[Event], index: int) -> Polling:
        """Return how this event polled, if it found that something hadn't arrived yet; otherwise an empty text."""
        event = events[index]
        if event["op"] in GETS:
            # A log is read before its first line is written. No worker waits for it.
            return "get" if event["failed"] and event["phase"] != released_log.PHASE else ""
        if event["op"] != "object.list" or event["failed"]:
            return ""
        for later in events[index + 1 :]:
            if later["op"] in GETS and not later["failed"]:
                return "list" if self._awaits(later) else ""
            if later["op"] not in ("wait", "object.list", "object.get"):
                return ""
        return ""

    def _opening(self, track: Track) -> Track:
        """Return the track with each step opening the gate at which others wait for it."""

        def opening(step: Step) -> Step:
            gate = self.made.get(step.event)
            return step if gate is None or step.op == "join" else replace(step, opens=(*step.opens, gate))

        return track.with_steps(opening)


def _cpu_ns(events: Iterable[Event]) -> int:
    """Return the CPU time of events, including their process's time before each of them."""
    return sum(event["cpu_ns"] + event["cpu_before_ns"] for event in events)


def _last_before(ends: Sequence[tuple[int, int, int]], start_ns: int) -> tuple[int, ...]:
    """Return the gates of the last things that had ended before a time. `ends` are end, start and gate, in order."""
    before = ends[: bisect_left(ends, (start_ns, 0, 0))]
    latest = max((start for _, start, _ in before), default=0)
    return tuple(gate for end, _, gate in before if end > latest)


def gather(steps: Sequence[Step]) -> tuple[Step | Gathering, ...]:
    """Return the steps, turning runs of messages or objects that may arrive in any order into gatherings."""
    items: list[Step | Gathering] = []
    groups: list[list[Step]] = []

    def close() -> None:
        if len(groups) > 1:
            items.append(Gathering(tuple(tuple(group) for group in groups)))
        elif groups:
            items.extend(groups[0])
        groups.clear()

    for step in steps:
        if len(step.awaits) == 1 and (step.polling == "list" or step.op in IN_ANY_ORDER):
            groups.append([step])
        elif groups and step.op in BETWEEN and not step.awaits:
            groups[-1].append(step)
        else:
            close()
            items.append(step)
    close()
    return tuple(items)


def _nested(transitions: Sequence[Event]) -> list[tuple[Event, list[Event]]]:
    """Return the states in their order, each with the states that it spans (the branches of a Parallel state)."""
    states: list[tuple[Event, list[Event]]] = []
    for event in transitions:
        if states and event["end_ns"] <= states[-1][0]["end_ns"]:
            states[-1][1].append(event)
        else:
            states.append((event, []))
    return states
