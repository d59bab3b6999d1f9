"""Generate the program of n workers from an architecture's pattern and the steps of small runs.

The pattern (`slslab_workers.patterns`), which is tested against the architecture's closed form, gives the messages of
the training protocol exactly: their number, bytes, and which steps wait for them. CPU times are modelled
(`step_costs.py`). Sizes outside the protocol are the recorded ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from slslab.errors import RequestError
from slslab_lab.replay.kernel.program import Gathering, Program, Step, Track
from slslab_lab.replay.programs.step_costs import Cost, StepCosts, is_first, is_request, name_of, unit_of
from slslab_workers import patterns
from slslab_workers.architecture import Architecture
from slslab_workers.patterns import OWN, Activity, Part, Pattern, Role, Signal, Slot
from slslab_workers.plan import Plan

# Steps without an event: an instance's time before its first event, an invocation's after its last one.
BEFORE, AFTER = ("start", "init"), ("return", "other")


def generate(costs: StepCosts, workers: int, batches: int, epochs: int) -> Program:
    """Return the program for these numbers of workers, batches per worker and epoch, and epochs."""
    return _Generator(costs.pattern(workers=workers, batches=batches, epochs=epochs), costs).program()


def transfer(costs: StepCosts, architecture: Architecture, plan: Plan) -> StepCosts:
    """Return the costs of a recording for another architecture with its default options; `plan` is the recording's.

    Both train the same model, and a put, get, sum or update takes a worker the same CPU time in both. The cost of a
    step that only the other architecture has is unknown, so its program is refused. An instance starts like an
    environment: Python, then torch. Its type is the one that the architecture asks for.
    """
    functions, known = dict(costs.functions), dict(costs.costs)
    options = architecture.complete({})
    fleet = architecture.requirements(replace(plan, architecture=architecture.name, options=options)).instances
    if fleet is not None:
        example = max(functions.values(), key=lambda track: track.memory_mb)
        functions["instance"] = replace(example, name=fleet.instance_type, kind="instance", memory_mb=plan.memory_mb)
        known["instance", *BEFORE, False] = Cost(example.init_cpu_ns, 0.0, 0.0, 0.0, 0.0, False, 0.0)
    workload = replace(costs.workload, options=options, share=1.0)
    return replace(costs, architecture=architecture, workload=workload, costs=known, functions=functions)


class _Generator:
    def __init__(self, pattern: Pattern, costs: StepCosts) -> None:
        self.pattern = pattern
        self.workload = pattern.workload
        self.costs = costs
        self.needed = pattern.needed()
        self.gates: list[int] = []
        self.known: dict[tuple[str, int, int], int] = {}
        # Steps without their gates and slots, by the identity of an activity, which the pattern keeps alive.
        self.templates: dict[tuple[str, int, bool], Step | None] = {}

    def program(self) -> Program:
        tracks = tuple(track for role in self.pattern.roles if role.ranks for track in self._tracks(role))
        for (name, _, _), gate in self.known.items():
            if not self.gates[gate]:
                raise RequestError(
                    f"In the pattern of {self.costs.architecture.name} an activity needs {name!r}, but none makes it.",
                    "correct the architecture's pattern.",
                )
        return Program(
            self.costs.architecture.name,
            self.workload.workers,
            tracks,
            tuple(self.gates),
            self.costs.polls,
            self.costs.poll_cpu_ns,
            self.workload.epochs,
            self.workload.batches,
            recorded=False,
        )

    def _tracks(self, role: Role) -> Iterator[Track]:
        unit = unit_of(role)
        template = self.costs.functions.get(unit)
        if template is None:
            raise RequestError(
                f"The recording has no invocation of {unit}, so its cost is unknown.", "record a whole run."
            )
        slots = list(patterns.slots(role, self.workload))
        # A track's own slot, and the slots where it does something.
        tracks = [(Slot(-1, -1, 0, 1), slots)] if role.each == "run" else [(each[0], [each]) for each in slots]
        for slot, within in tracks:
            for rank, steps in self._items(role, unit, within):
                yield self._track(role, template, rank, slot, steps)

    def _track(self, role: Role, template: Track, rank: int, slot: Slot, steps: tuple[Step | Gathering, ...]) -> Track:
        name = f"{self.costs.architecture.name}-p{rank}-e{slot.epoch}" if role.kind == "execution" else template.name
        return replace(
            template,
            name=name,
            worker=rank,
            steps=steps,
            awaits=self._gates_of(role.needs, slot, rank),
            opens=self._makes(role.makes, slot, rank, 1),
            epoch=slot.epoch,
        )

    def _items(
        self, role: Role, unit: str, slots: Sequence[tuple[Slot, tuple[Part, ...]]]
    ) -> Iterator[tuple[int, tuple[Step | Gathering, ...]]]:
        """Yield each rank with its steps; steps that are the same for all ranks are made once."""
        entries: list[Step | Gathering | tuple[Slot, Part, bool]] = [*self._beside(unit, BEFORE)]
        for slot, parts in slots:
            first = is_first(role, slot)
            for part in parts:
                if _is_personal(part):
                    entries.append((slot, part, first))
                elif (item := self._item(unit, part, slot, first, OWN, len(role.ranks))) is not None:
                    entries.append(item)
        entries += self._beside(unit, AFTER)
        shared = tuple(entry for entry in entries if not isinstance(entry, tuple))
        if len(shared) == len(entries):
            yield from ((rank, shared) for rank in role.ranks)
            return
        for rank in role.ranks:
            items = (
                self._item(unit, entry[1], entry[0], entry[2], rank, 1) if isinstance(entry, tuple) else entry
                for entry in entries
            )
            yield rank, tuple(item for item in items if item is not None)

    def _beside(self, unit: str, step: tuple[str, str]) -> list[Step]:
        """Return the step that a recording has before its first event or after its last one, if any."""
        cost = self.costs.costs.get((unit, *step, False))
        return [Step(*step, round(cost.fixed))] if cost is not None else []

    def _item(self, unit: str, part: Part, slot: Slot, first: bool, rank: int, tracks: int) -> Step | Gathering | None:
        if isinstance(part, Activity):
            return self._step(unit, part, slot, first, rank, tracks)
        groups = []
        # Most groups have the same activities after the first one.
        steps: dict[int, Step | None] = {}
        for activities in part.groups:
            group = []
            for activity in activities:
                if activity.needs or activity.makes or id(activity) not in steps:
                    steps[id(activity)] = self._step(unit, activity, slot, first, rank, tracks)
                if (step := steps[id(activity)]) is not None:
                    group.append(step)
            if group:
                groups.append(tuple(group))
        return Gathering(tuple(groups)) if groups else None

    def _step(self, unit: str, activity: Activity, slot: Slot, first: bool, rank: int, tracks: int) -> Step | None:
        """Return the step of an activity shared by `tracks` tracks; None if it doesn't run."""
        if not activity.runs_in(slot):
            return None
        key = (unit, id(activity), first)
        if key not in self.templates:
            self.templates[key] = self._template(unit, activity, first)
        template = self.templates[key]
        if template is None:
            return None
        return replace(
            template,
            awaits=self._gates_of(activity.needs, slot, rank),
            opens=self._makes(activity.makes, slot, rank, tracks),
            epoch=slot.epoch,
            step=slot.step,
        )

    def _template(self, unit: str, activity: Activity, first: bool) -> Step | None:
        op, phase = name_of(activity), activity.phase
        if activity.optional and (unit, op, phase) in self.costs.left_out:
            return None
        cost = self.costs.of(unit, op, phase, first)
        size = round(cost.bytes * activity.times) if activity.bytes is None else activity.bytes
        cpu_ns = cost.fixed * activity.times + cost.per_byte * size + cost.per_work * activity.work
        return Step(
            op,
            phase,
            round(cpu_ns),
            cost.parallel,
            activity.times if is_request(op) else 0,
            size,
            polling=activity.polling,
            at=-1 if activity.at == OWN else activity.at,
            server_cpu_ns=round(cost.server_fixed * activity.times + cost.server_per_work * activity.work),
        )

    def _gate(self, signal: Signal, position: int, rank: int) -> int:
        key = (f"{signal.each} {signal.name}", position, rank if signal.of == OWN else signal.of)
        if key not in self.known:
            self.known[key] = len(self.gates)
            self.gates.append(0)
        return self.known[key]

    def _gates_of(self, signals: tuple[Signal, ...], slot: Slot, rank: int) -> tuple[int, ...]:
        positions = ((signal, signal.position(slot, self.workload.batches)) for signal in signals)
        return tuple(self._gate(signal, position, rank) for signal, position in positions if position >= 0)

    def _makes(self, signals: tuple[Signal, ...], slot: Slot, rank: int, tracks: int) -> tuple[int, ...]:
        # Skip signals that only name a message, since no step waits for them.
        gates = self._gates_of(tuple(signal for signal in signals if signal.name in self.needed), slot, rank)
        for gate in gates:
            self.gates[gate] += tracks
        return gates


def _is_personal(part: Part) -> bool:
    """Return whether a signal depends on the rank, so that each rank has its own steps."""
    activities = (part,) if isinstance(part, Activity) else (one for group in part.groups for one in group)
    return any(signal.of == OWN for activity in activities for signal in (*activity.needs, *activity.makes))
