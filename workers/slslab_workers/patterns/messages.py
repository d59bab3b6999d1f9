"""The messages that workers exchange in a run: which workers take and delete each, and where all wait.

`slslab check` compares a run's trace with it. It is derived from the keys of an architecture's signals. If workers
decide during the run what they send, the architecture declares it itself (`Architecture.exchange`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from typing import Protocol as Interface

from slslab_workers.patterns import (
    ALL,
    ANYONE,
    OWN,
    Activity,
    Part,
    Pattern,
    Role,
    Signal,
    Slot,
    Workload,
    activities,
    slots,
)
from slslab_workers.plan import Plan
from slslab_workers.trace.operations import OPERATIONS

Event = Mapping[str, Any]
# An epoch and a step in it; -1 means outside any.
Step = tuple[int, int]
# Takes everything that it was told to read, at once.
READING = ("tensor.script", "parameter.pull")


class Name(NamedTuple):
    """The name of a message: its key, without bucket or host, its maker, and the epoch and step it was made in."""

    key: str
    maker: int
    epoch: int
    step: int


@dataclass(frozen=True)
class Message:
    """Something made once. `takers` says how often each worker takes it, in epoch and step `at` if given.

    Without `takers` any worker may take it. `size` is its bytes, if known. `deleted_by` deletes it; None: it stays.
    `overhead`: making it, and perhaps taking it, isn't counted in the training protocol.
    """

    kind: str
    name: Name
    takers: Mapping[int, int] | None
    size: int | None = None
    at: Step | None = None
    deleted_by: int | None = None
    overhead: bool = False


@dataclass(frozen=True)
class Wait:
    """A barrier: no event of `then` begins before the making of all messages of `until` has begun."""

    step: Step
    until: tuple[Name, ...]
    then: tuple[int, ...]


@dataclass(frozen=True)
class Protocol:
    """What an architecture's protocol expects of a run.

    `minibatches` must be computed, by worker, epoch and step. In `drawn` steps, a worker takes any one unclaimed
    message. `steps` gives events without a step the one that they belong to. Pushes to a key of `appended` add to it,
    others replace it. Epochs from `judged` on are left out, for the reason `unjudged`. `cleared` are the workers and
    epochs in which one command deletes several tensors, which a trace doesn't name.
    """

    messages: tuple[Message, ...]
    waits: tuple[Wait, ...] = ()
    minibatches: frozenset[tuple[int, int, int]] = frozenset()
    drawn: frozenset[tuple[int, int, int]] = frozenset()
    steps: Mapping[int, Step] = field(default_factory=dict)
    appended: frozenset[str] = frozenset()
    judged: int | None = None
    unjudged: str = ""
    cleared: frozenset[tuple[int, int]] = frozenset()


class Recorded(Interface):
    """What a protocol may read of a recorded run (see `slslab.run.run.Run`)."""

    @property
    def plan(self) -> Plan: ...
    @property
    def document(self) -> dict[str, Any] | None: ...
    @property
    def events(self) -> Sequence[Event]: ...
    @property
    def invocations(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def complete(self) -> bool: ...
    @property
    def parameters(self) -> int | None: ...
    @property
    def gradient_bytes(self) -> int | None: ...
    @property
    def failing(self) -> int | None: ...
    @property
    def computed(self) -> Mapping[tuple[int, int, int], Sequence[int]]: ...
    @property
    def puts(self) -> Mapping[tuple[int, int, int], Sequence[int]]: ...
    @property
    def updated(self) -> Mapping[tuple[int, int, int, str], Sequence[int]]: ...
    def entered(self, worker: int, after: Step) -> int | None: ...


def key_of(event: Event) -> str:
    """Return the name of what an event moves, without bucket or a database's host and port."""
    if OPERATIONS[event["op"]].channel in ("object", "tensor"):
        key = str(event["resource"]).partition("/")[2]
        return by_script(key) if event["op"] == "tensor.script" else key
    return str(event["resource"])


def by_script(key: str) -> str:
    """Return a script's output under a key, which a function may have made instead."""
    return f"{key} (script)"


def steps_taken(run: Recorded, *, open_ended: bool = False) -> int:
    """Return the steps of a run: the plan's, or those begun if training may end early."""
    plan = run.plan
    begun = max((epoch * plan.batches + step + 1 for _, epoch, step in run.computed), default=0)
    return begun if open_ended or plan.gradual or not run.complete else plan.epochs * plan.batches


def passing(run: Recorded, step: Step, ranks: Sequence[int], phase: str) -> tuple[int, ...]:
    """Return the events in which workers pass a step's barrier: their updates in this phase, and their next steps."""
    updates = (number for rank in ranks for number in run.updated.get((rank, *step, phase), ()))
    entered = (run.entered(rank, step) for rank in ranks)
    return (*updates, *(number for number in entered if number is not None))


def derive(pattern: Pattern, run: Recorded, steps: int | None = None) -> Protocol:
    """Derive the protocol of a run from the keys of its pattern's signals. `steps` is how many of the pattern's steps
    the run took; by default its minibatches tell."""
    return _Derived(pattern, run, steps).protocol()


# A signal in one step, epoch or run: its name and key, which of these, its number, and its owner.
Instance = tuple[str, str, str, int, int]


@dataclass(frozen=True)
class _Moved:
    """A signal that a rank makes or takes in this step of the trace; its maker's invocation makes `ends` at its end."""

    signal: Signal
    rank: int
    step: Step
    activity: Activity
    ends: tuple[Signal, ...] = ()


class _Derived:
    """Collect who makes, takes and deletes each signal's message by walking through everything that workers do."""

    def __init__(self, pattern: Pattern, run: Recorded, steps: int | None) -> None:
        self.run, self.plan, self.batches = run, run.plan, pattern.workload.batches
        computes = any(activity.op == "compute" for role in pattern.roles for activity in role.activities())
        taken = steps_taken(run, open_ended=pattern.open_ended) if computes else pattern.workload.steps
        self.steps = taken if steps is None else steps
        self.made: dict[Instance, list[_Moved]] = defaultdict(list)
        self.taken: dict[Instance, list[_Moved]] = defaultdict(list)
        self.removed: dict[Instance, list[int]] = defaultdict(list)
        self.drawn: set[tuple[int, int, int]] = set()
        # Messages that any worker may take.
        self.shared: set[str] = set()
        self.minibatches: set[tuple[int, int, int]] = set()
        self.trainers: set[int] = set()
        # How many minibatches the functions from a rank on have in an epoch that is one invocation.
        self.trained = Counter[tuple[int, int]]()
        # The phase of the update in which workers use the messages of a step.
        self.used: dict[Step, str] = defaultdict(str)
        for role in (*pattern.roles, *pattern.driver):
            for slot, parts in self._begun(role, pattern.workload):
                exchanged: Step | None = None
                for activity in activities(parts, slot):
                    exchanged = self._note(role, slot, activity) or exchanged
                    if exchanged and activity.op == "update":
                        self.used[exchanged] = activity.phase

    def _begun(self, role: Role, workload: Workload) -> Iterator[tuple[Slot, tuple[Part, ...]]]:
        """Yield a role's slots that were begun, and its next invocation, which takes what the one before made."""
        for slot, parts in slots(role, workload):
            if self._is_begun((slot.epoch, slot.step)):
                yield slot, parts
            elif role.each != "run":
                yield slot, parts
                return

    def _note(self, role: Role, slot: Slot, activity: Activity) -> Step | None:
        """Note what an activity makes, takes and deletes; return the step in which it exchanges messages, if any."""
        exchanged, here = None, (slot.epoch, slot.step)
        for signal in (*activity.needs, *activity.takes):
            step = self._traced(role, slot, signal)
            ranks = [rank for rank in signal.to or role.ranks if rank in role.ranks] if self._is_begun(step) else []
            if signal.of == ANYONE:
                self.shared.add(signal.name)
                self.drawn.update((rank, *step) for rank in ranks)
            elif signal.key:
                exchanged = step
                for rank in ranks:
                    taken = _Moved(signal, rank, step, activity)
                    self.taken[self._instance(signal, slot, rank)].append(taken)
        ranks = list(role.ranks) if self._is_begun(here) else []
        if activity.op == "compute":
            self.trained[role.ranks.start, slot.epoch] += activity.times
            steps = range(self.trained[role.ranks.start, slot.epoch]) if role.each == "epoch" else (slot.step,)
            self.minibatches.update((rank, slot.epoch, step) for rank in ranks for step in steps)
            self.trainers.update(ranks)
        for signal in (each for each in activity.makes if each.key):
            exchanged = slot.epoch, max(slot.step, signal.step)
            for rank in ranks if signal.of < 0 else {signal.of}.intersection(ranks):
                made = _Moved(signal, rank, exchanged, activity, role.makes)
                self.made[self._instance(signal, slot, rank)].append(made)
        for signal in activity.removes:
            for rank in ranks:
                self.removed[self._instance(signal, slot, rank)].append(rank)
        return exchanged

    def _traced(self, role: Role, slot: Slot, signal: Signal) -> Step:
        """Return the step under which the trace has the taking of a signal: an invocation's messages belong to the step
        that they were made in."""
        if role.each == "run" or signal.each != "step":
            return slot.epoch, max(slot.step, signal.step)
        return divmod(signal.position(slot, self.batches), self.batches)

    def _is_begun(self, step: Step) -> bool:
        return step[0] * self.batches + max(0, step[1]) < self.steps

    def _instance(self, signal: Signal, slot: Slot, rank: int) -> Instance:
        owner = rank if signal.of == OWN else signal.of
        return signal.name, signal.key, signal.each, signal.position(slot, self.batches), owner

    def protocol(self) -> Protocol:
        """Return the protocol, by step, and within a step in order of making."""
        order = list(dict.fromkeys(name for name, *_ in self.made))
        found = [
            (message, one.ends)
            for instance, makers in self.made.items()
            for one in makers
            for message in self._messages(instance, one, len(makers))
        ]
        found.sort(key=lambda each: (each[0].name[2:], order.index(each[0].kind), each[0].name.maker))
        messages = tuple(message for message, _ in found)
        return Protocol(messages, tuple(self._waits(found)), frozenset(self.minibatches), frozenset(self.drawn))

    def _messages(self, instance: Instance, one: _Moved, makers: int) -> Iterator[Message]:
        takers = [taker for taker in self.taken.get(instance, ()) if taker.activity.times]
        mine = [taker for taker in takers if taker.rank != one.rank or _takes_own(taker, makers)]
        # Each worker may delete its own of what all make.
        removers = self.removed[instance] or self.removed[*instance[:4], one.rank]
        if "{taker}" not in one.signal.key:
            yield self._message(one, mine, removers)
            return
        for taker in mine:
            yield self._message(one, [taker], set(removers) & {taker.rank}, taker=taker.rank)

    def _message(self, one: _Moved, takers: Sequence[_Moved], removers: Iterable[int], **fields: int) -> Message:
        epoch, step = one.step
        run, architecture = self.plan.run, self.plan.architecture
        key = one.signal.key.format(
            run=run, architecture=architecture, epoch=epoch, step=step, maker=one.rank, **fields
        )
        name = Name(key, one.rank, epoch, step)
        size = one.activity.bytes
        # If several are made at once, their takers know the size of each.
        if takers and (fields or one.activity.times > 1):
            whole, times = takers[0].activity.bytes, takers[0].activity.times
            size = None if whole is None else whole // times
        if self.run.parameters is None:
            size = None
        if one.signal.name in self.shared:
            return Message(one.signal.name, name, None, size)
        steps = {taker.step for taker in takers} or {one.step}
        at = steps.pop() if len(steps) == 1 else None
        counted, overhead = dict(Counter(taker.rank for taker in takers)), not one.activity.protocol
        return Message(one.signal.name, name, counted, size, at, next(iter(removers), None), overhead)

    def _waits(self, found: Iterable[tuple[Message, tuple[Signal, ...]]]) -> Iterator[Wait]:
        """Yield what waits in each step, by the signals that end the invocations which made its messages."""
        by_step: dict[Step, dict[tuple[Signal, ...], list[Message]]] = defaultdict(lambda: defaultdict(list))
        for message, ends in found:
            if message.takers is not None and message.name.step >= 0:
                by_step[message.name[2:]][ends].append(message)
        for step, levels in sorted(by_step.items()):
            for ends, made in levels.items():
                yield self._level(step, made) if ends else self._barrier(step, made)

    def _barrier(self, step: Step, made: Sequence[Message]) -> Wait:
        """Return a step's barrier: workers continue only after every worker has made its message."""
        makers: dict[str, set[int]] = defaultdict(set)
        for message in made:
            makers[message.kind].add(message.name.maker)
        until = (message.name for message in made if makers[message.kind] >= self.trainers)
        return Wait(step, tuple(until), passing(self.run, step, sorted(self.trainers), self.used[step]))

    def _level(self, step: Step, made: Sequence[Message]) -> Wait:
        """Return the wait of invocations that begin when those have ended which made these messages."""
        then: list[int] = []
        for rank in sorted({taker for message in made for taker in message.takers or ()}):
            updates = self.run.updated.get((rank, *step, self.used[step]), ())
            then += updates if rank in self.trainers else self.run.puts.get((rank, *step), ())
        return Wait(step, tuple(message.name for message in made), tuple(then))


def _takes_own(taker: _Moved, makers: int) -> bool:
    activity = taker.activity
    return taker.signal.of != ALL or activity.op in READING or activity.times == makers
