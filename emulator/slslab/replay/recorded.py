"""A recorded run as a program: its trace without its times.

Kept are CPU seconds, bytes, requests, the order of each worker's events, and who waited for whom. What only says how
long somebody waited goes: sleeps, and polls that found nothing; the kernel makes others in their place. When an
invocation began is kept as an order: after those that had ended, if the driver called it, else after what called it.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from slslab.replay.databases import Databases
from slslab.replay.kernel import TRANSITION
from slslab.replay.program import Gathering, Polling, Program, Step, Track
from slslab.replay.recording import BESIDE, Event, Recording, find_calls, operation
from slslab_workers import logs
from slslab_workers.polling import poll_policy

PARALLEL = ("compute",)
# What a worker does between two parts that it gathers.
BETWEEN = ("object.delete", "reduce")


def make_program(recording: Recording) -> Program:
    """The program of a recording."""
    return _Reader(recording).program()


class _Reader:
    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.events = recording.events
        self.gates: list[int] = []
        self.records = {record["request_id"]: record for record in recording.invocations}
        self.own: dict[str, list[Event]] = defaultdict(list)
        for event in self.events:
            if event["worker"] >= 0 and event["op"] not in BESIDE:
                self.own[event["invocation"]].append(event)
        self.began = {invocation: self._gate() for invocation in self.records}
        self.ended = {invocation: self._gate() for invocation in self.records}
        self.made: dict[int, int] = {}
        self.databases = Databases(self.events)
        self.calls = find_calls(self.events)
        self.poll_cpu: dict[str, list[int]] = {"get": [], "list": []}

    def program(self) -> Program:
        plan = self.recording.plan
        executions = self._executions()
        tracks = [
            *self._invocations(executions),
            *(self._instance(one) for one in self.recording.instances),
            *executions.values(),
        ]
        poll = poll_policy(plan).gets
        return Program(
            plan.architecture,
            plan.workers,
            tuple(self.opened(tracks)),
            tuple(self.gates),
            (poll.first, poll.factor, poll.limit),
            {kind: round(fmean(found)) for kind, found in self.poll_cpu.items() if found},
            plan.epochs,
            plan.batches,
        )

    def _gate(self, arrivals: int = 1) -> int:
        self.gates.append(arrivals)
        return len(self.gates) - 1

    def _invocations(self, executions: Mapping[str, Track]) -> list[Track]:
        starts = {e["environment"] or e["resource"]: e for e in self.events if e["op"] == "environment.start"}
        init = defaultdict(list)
        for event in starts.values():
            init[event["function"]].append(event["cpu_ns"])
        called = set(self.calls.values())
        stepped = {gate for track in executions.values() for step in _flat(track.steps) for gate in step.opens}
        after = self._driver_order(
            [i for i in self.records if i not in called and self.began[i] not in stepped],
        )
        tracks = []
        for invocation, record in self.records.items():
            began = starts.get(record["environment"]) if record["cold_start"] else None
            init_ns = began["cpu_ns"] if began else 0
            average = round(fmean(init[record["function"]])) if init[record["function"]] else 0
            events = self.own[invocation]
            steps = self._steps(events)
            known = sum(e["cpu_ns"] + e["cpu_before_ns"] for e in events)
            rest = round(record["cpu_ms"] * 1e6) - init_ns - known
            if rest > 0:
                steps.append(Step("return", "other", rest))
            awaits = after[invocation] if invocation in after else (self.began[invocation],)
            tracks.append(
                Track(
                    record["function"],
                    "invocation",
                    events[0]["worker"] if events else -1,
                    gather(steps),
                    record["memory_mb"],
                    record["ephemeral_mb"],
                    init_ns or average,
                    "image" if self.recording.plan.environment == "docker" else "zip",
                    awaits,
                    (self.ended[invocation],),
                    events[0]["epoch"] if events else -1,
                )
            )
        return tracks

    def _instance(self, record: Mapping[str, Any]) -> Track:
        events = self.own[record["id"]]
        known = sum(e["cpu_ns"] + e["cpu_before_ns"] for e in events)
        # What a machine does before its first event: Python starts, torch is imported.
        rest = max(0, round(record["cpu_seconds"] * 1e9) - known)
        steps = [Step("start", "init", rest), *self._steps(events)]
        memory_mb = self.recording.plan.memory_mb
        return Track(record["type"], "instance", record["worker"], gather(steps), memory_mb)

    def _driver_order(self, called: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """What each of the driver's invocations waited for: those that had ended when it began, of these the last."""
        spans = {e["invocation"]: e for e in self.events if e["op"] == "invoke" and e["worker"] < 0}
        ends = sorted((spans[i]["end_ns"], spans[i]["start_ns"], i) for i in self.records if i in spans)
        found: dict[str, tuple[int, ...]] = {}
        for invocation in called:
            if invocation not in spans:
                found[invocation] = ()
                continue
            before = ends[: bisect_left(ends, (spans[invocation]["start_ns"], 0, ""))]
            latest = max((start for _, start, _ in before), default=0)
            found[invocation] = tuple(self.ended[i] for end, _, i in before if end > latest)
        return found

    def _executions(self) -> dict[str, Track]:
        """State machines' executions: a transition each, which begins its invocation, and waits for it to end."""
        found: dict[str, list[Event]] = defaultdict(list)
        for event in self.events:
            if event["op"] == TRANSITION:
                found[event["resource"].partition("/")[0]].append(event)
        started = {e["resource"]: self._opens(e["event"]) for e in self.events if e["op"] == "execute"}
        tracks = {}
        for name, transitions in found.items():
            steps: list[Step] = []
            for state, inside in _nested(sorted(transitions, key=lambda e: (e["start_ns"], -e["end_ns"]))):
                steps += self._state(state, inside)
            first = transitions[0]
            awaits = (started[name],) if name in started else ()
            tracks[name] = Track(name, "execution", first["worker"], tuple(steps), awaits=awaits, epoch=first["epoch"])
        return tracks

    def _state(self, state: Event, inside: Sequence[Event]) -> list[Step]:
        place = {"epoch": state["epoch"], "event": state["event"]}
        tasks = [e["invocation"] for e in (state, *inside) if e["invocation"] in self.records]
        begins = tuple(self.began[task] for task in tasks)
        steps = [Step(TRANSITION, "other", requests=1, opens=() if inside else begins, **place)]
        if inside:
            # The branches begin together.
            steps.append(Step(TRANSITION, "other", requests=len(inside), opens=begins, **place))
        if tasks:
            steps.append(Step("join", "wait", awaits=tuple(self.ended[task] for task in tasks), **place))
        return steps

    def _opens(self, event: int) -> int:
        """The gate that this event opens."""
        if event not in self.made:
            self.made[event] = self._gate()
        return self.made[event]

    def _awaits(self, event: Event) -> tuple[int, ...]:
        """Gates of those causes that are not this invocation's own."""
        return tuple(
            self._opens(cause)
            for cause in event["causes"]
            if self.events[cause]["invocation"] != event["invocation"] and self.events[cause]["worker"] >= 0
        )

    def _steps(self, events: Sequence[Event]) -> list[Step]:
        """An invocation's events as steps, without waits and polls."""
        steps: list[Step] = []
        asked: Polling = ""
        carried = 0
        for place, event in enumerate(events):
            op, cpu_ns = event["op"], event["cpu_ns"] + event["cpu_before_ns"]
            if op == "wait":
                carried += cpu_ns
                continue
            poll = self._poll(events, place)
            if poll:
                self.poll_cpu[poll].append(cpu_ns + carried)
                asked, carried = poll, 0
                continue
            awaits = self._awaits(event)
            polling: Polling = (asked or "get") if awaits and op == "object.get" else ""
            if not polling and op not in BETWEEN:
                asked = ""
            if polling:
                # The sleeps that were carried belong to polls.
                carried = 0
            steps += self._step(event, cpu_ns + carried, awaits, polling)
            carried = 0
        return steps

    def _step(self, event: Event, cpu_ns: int, awaits: tuple[int, ...], polling: Polling) -> list[Step]:
        op = event["op"]
        place = {"epoch": event["epoch"], "step": event["step"], "event": event["event"]}
        callee = self.calls.get(event["event"])
        opens = () if callee is None else (self.began[callee],)
        step = Step(
            operation(event),
            event["phase"],
            cpu_ns,
            op in PARALLEL,
            event["requests"],
            event["bytes"],
            awaits,
            opens,
            polling,
            at=self.databases.owner(event),
            server_cpu_ns=self.databases.script_ns(event),
            **place,
        )
        if callee is None or self.records[callee]["invocation_type"] == "Event":
            return [step]
        return [step, Step("join", "wait", awaits=(self.ended[callee],), **place)]

    def _poll(self, events: Sequence[Event], place: int) -> Polling:
        """Whether this event only found that what is waited for is not there yet, and by what."""
        event = events[place]
        if event["op"] == "object.get":
            # Before the first line of a log there is none, and nobody waits for one.
            return "get" if event["failed"] and event["phase"] != logs.PHASE else ""
        if event["op"] != "object.list" or event["failed"]:
            return ""
        for later in events[place + 1 :]:
            if later["op"] == "object.get" and not later["failed"]:
                return "list" if self._awaits(later) else ""
            if later["op"] not in ("wait", "object.list", "object.get"):
                return ""
        return ""

    def opened(self, tracks: Iterable[Track]) -> list[Track]:
        """The tracks, with each step opening the gate that others wait at for it."""
        return [replace(track, steps=tuple(_opening(item, self.made) for item in track.steps)) for track in tracks]


def _opening(item: Step | Gathering, made: Mapping[int, int]) -> Step | Gathering:
    if isinstance(item, Gathering):
        return Gathering(tuple(tuple(_opening_step(step, made) for step in group) for group in item.groups))
    return _opening_step(item, made)


def _opening_step(step: Step, made: Mapping[int, int]) -> Step:
    gate = made.get(step.event)
    return step if gate is None or step.op == "join" else replace(step, opens=(*step.opens, gate))


def gather(steps: Sequence[Step]) -> tuple[Step | Gathering, ...]:
    """Steps, with those runs of them as gatherings whose order is that in which messages or objects came."""
    items: list[Step | Gathering] = []
    groups: list[list[Step]] = []

    def close() -> None:
        if len(groups) > 1:
            items.append(Gathering(tuple(tuple(group) for group in groups)))
        elif groups:
            items.extend(groups[0])
        groups.clear()

    for step in steps:
        if len(step.awaits) == 1 and (step.polling == "list" or step.op == "queue.deliver"):
            groups.append([step])
        elif groups and step.op in BETWEEN and not step.awaits:
            groups[-1].append(step)
        else:
            close()
            items.append(step)
    close()
    return tuple(items)


def _flat(items: Iterable[Step | Gathering]) -> Iterable[Step]:
    for item in items:
        if isinstance(item, Step):
            yield item
        else:
            for group in item.groups:
                yield from group


def _nested(transitions: Sequence[Event]) -> list[tuple[Event, list[Event]]]:
    """States in their order, each with those that it spans (the branches of a Parallel state)."""
    found: list[tuple[Event, list[Event]]] = []
    for event in transitions:
        if found and event["end_ns"] <= found[-1][0]["end_ns"]:
            found[-1][1].append(event)
        else:
            found.append((event, []))
    return found
