"""The messages that workers exchange in a run: which workers take and delete each, and where all wait.

`slslab check` compares a run's trace with it. It is derived from the keys of an architecture's signals. If workers
decide during the run what they send, the architecture declares it itself (`Architecture.exchange`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from typing import Protocol as Interface

from slslab_workers.patterns import ALL, ANYONE, OWN, Activity, Pattern, Place, Role, Signal, activities, places
from slslab_workers.plan import Plan
from slslab_workers.trace.operations import OPERATIONS

Event = Mapping[str, Any]
# An epoch and a step; -1 means outside any.
Where = tuple[int, int]
DRIVER = -1
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
    at: Where | None = None
    deleted_by: int | None = None
    overhead: bool = False


@dataclass(frozen=True)
class Wait:
    """A barrier: no event of `then` begins before the making of all messages of `until` has begun."""

    place: Where
    until: tuple[Name, ...]
    then: tuple[int, ...]


@dataclass(frozen=True)
class Protocol:
    """What an architecture's protocol expects of a run.

    `minibatches` must be computed, by worker, epoch and step. In `drawn` steps, a worker takes any one unclaimed
    message. `places` gives events without a step the step that they belong to. Pushes to a key of `appended` add to it,
    others replace it. Epochs from `judged` on are left out, for the reason `unjudged`. `cleared` are the workers and
    epochs in which one command deletes several tensors, which a trace doesn't name.
    """

    messages: tuple[Message, ...]
    waits: tuple[Wait, ...] = ()
    minibatches: frozenset[tuple[int, int, int]] = frozenset()
    drawn: frozenset[tuple[int, int, int]] = frozenset()
    places: Mapping[int, Where] = field(default_factory=dict)
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
    def entered(self, worker: int, after: Where) -> int | None: ...


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


def derive(pattern: Pattern, run: Recorded) -> Protocol:
    """Derive the protocol of a run from the keys of its pattern's signals."""
    return _Derived(pattern, run).protocol()


# A signal in one step, epoch or run: its name, its place, and its owner.
Instance = tuple[str, int, int]


@dataclass(frozen=True)
class _Moved:
    """A signal that a rank makes or takes there."""

    signal: Signal
    rank: int
    place: Where
    activity: Activity


class _Derived:
    """Collect who makes, takes and deletes each signal's message by walking through everything that workers do."""

    def __init__(self, pattern: Pattern, run: Recorded) -> None:
        self.run, self.plan, self.batches = run, run.plan, run.plan.batches
        self.steps = steps_taken(run, open_ended=pattern.open_ended)
        self.made: dict[Instance, list[_Moved]] = defaultdict(list)
        self.taken: dict[Instance, list[_Moved]] = defaultdict(list)
        self.removed: dict[Instance, list[int]] = defaultdict(list)
        self.drawn: set[tuple[int, int, int]] = set()
        # Messages that any worker may take.
        self.shared: set[str] = set()
        self.minibatches: set[tuple[int, int, int]] = set()
        # The phase of the update in which workers use the messages of a step.
        self.used: dict[Where, str] = defaultdict(str)
        for role in pattern.roles:
            for place, parts in places(role, pattern.workload):
                if place.epoch * self.batches + max(0, place.step) < self.steps:
                    exchanged = False
                    for activity in activities(parts, place):
                        self._note(role, place, activity)
                        exchanged |= any(each.key for each in (*activity.makes, *activity.needs, *activity.takes))
                        if exchanged and activity.op == "update":
                            self.used[place.epoch, place.step] = activity.phase

    def _note(self, role: Role, place: Place, activity: Activity) -> None:
        where = place.epoch, place.step
        if activity.op == "compute":
            self.minibatches.update((rank, *where) for rank in role.ranks)
        for signal in (*activity.needs, *activity.takes):
            if signal.of == ANYONE:
                self.shared.add(signal.name)
                self.drawn.update((rank, *where) for rank in role.ranks)
            elif signal.key:
                for rank in role.ranks:
                    entry = _Moved(signal, rank, where, activity)
                    self.taken[self._instance(signal, place, rank)].append(entry)
        for signal in (each for each in activity.makes if each.key):
            for rank in role.ranks:
                self.made[self._instance(signal, place, rank)].append(_Moved(signal, rank, where, activity))
        for signal in activity.removes:
            for rank in role.ranks:
                self.removed[self._instance(signal, place, rank)].append(rank)

    def _instance(self, signal: Signal, place: Place, rank: int) -> Instance:
        return signal.name, signal.position(place, self.batches), rank if signal.of == OWN else signal.of

    def protocol(self) -> Protocol:
        """Return the protocol, by step, and within a step in order of making."""
        order = list(dict.fromkeys(name for name, _, _ in self.made))
        found = [message for instance, makers in self.made.items() for message in self._messages(instance, makers)]
        found.sort(key=lambda each: (each.name[2:], order.index(each.kind), each.name.maker))
        by_place: dict[Where, dict[str, list[Message]]] = defaultdict(lambda: defaultdict(list))
        for message in found:
            if message.takers is not None and message.name.step >= 0:
                by_place[message.name[2:]][message.kind].append(message)
        waits = [self._wait(place, kinds) for place, kinds in sorted(by_place.items())]
        return Protocol(tuple(found), tuple(waits), frozenset(self.minibatches), frozenset(self.drawn))

    def _messages(self, instance: Instance, makers: list[_Moved]) -> Iterator[Message]:
        takers = [taker for taker in self.taken.get(instance, ()) if taker.activity.times]
        for one in makers:
            # Each worker may delete its own of what all make.
            removers = self.removed[instance] or self.removed[*instance[:2], one.rank]
            mine = [taker for taker in takers if taker.rank != one.rank or _takes_own(taker, len(makers))]
            if "{taker}" not in one.signal.key:
                yield self._message(one, mine, one.activity.bytes, removers)
                continue
            for taker in mine:
                times, whole = taker.activity.times, taker.activity.bytes
                size = None if whole is None else whole // times
                yield self._message(one, [taker], size, set(removers) & {taker.rank}, taker=taker.rank)

    def _message(
        self, one: _Moved, takers: Sequence[_Moved], size: int | None, removers: Iterable[int], **fields: int
    ) -> Message:
        epoch, step = one.place
        run, architecture = self.plan.run, self.plan.architecture
        key = one.signal.key.format(
            run=run, architecture=architecture, epoch=epoch, step=step, maker=one.rank, **fields
        )
        name = Name(key, one.rank, epoch, step)
        if self.run.parameters is None:
            size = None
        if one.signal.name in self.shared:
            return Message(one.signal.name, name, None, size)
        at = takers[0].place if takers else one.place
        counted, overhead = dict(Counter(taker.rank for taker in takers)), not one.activity.protocol
        return Message(one.signal.name, name, counted, size, at, next(iter(removers), None), overhead)

    def _wait(self, place: Where, kinds: Mapping[str, Sequence[Message]]) -> Wait:
        """Return a step's barrier: workers continue only after every worker has made its message."""
        ranks = {rank for rank, *_ in self.minibatches}
        until = [m.name for all_ in kinds.values() if {m.name.maker for m in all_} >= ranks for m in all_]
        used = (
            number for rank in sorted(ranks) for number in self.run.updated.get((rank, *place, self.used[place]), ())
        )
        gone = (self.run.entered(rank, place) for rank in sorted(ranks))
        return Wait(place, tuple(until), (*used, *(number for number in gone if number is not None)))


def _takes_own(taker: _Moved, makers: int) -> bool:
    activity = taker.activity
    return taker.signal.of != ALL or activity.op in READING or activity.times == makers
