"""Describe what an architecture's workers do in training and what they wait for, for any number of workers.

A pattern lists, for every kind of worker, what it does in order: its requests, their bytes, its computations, and which
activities of other workers must have ended first; but not how long these take. Replay turns it into programs of runs
that were never made. Your own architecture may have one, too.

Workers that do the same share a role, steps that repeat share one list of activities, and consecutive requests are one
activity.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from string import Formatter
from typing import Literal

from slslab_workers.plan import Value
from slslab_workers.trace.operations import moves


@dataclass(frozen=True)
class Counts:
    """Messages and bytes of the training protocol; `bytes_in` go to stores or peers, `bytes_out` come from them."""

    operations: Mapping[str, int]
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True)
class Chain:
    """The puts and gets of a round that follow each other, each of one of `parts` of a message; `published` tells
    whether a paper counts them so."""

    puts: int
    gets: int
    parts: int = 1
    published: bool = False


Scope = Literal["step", "epoch", "run"]
Polling = Literal["", "get", "list"]
# The driver, which isn't a worker.
DRIVER = -1
# Owner of a signal: one for all, one per worker, or any worker; else it is a rank.
ALL, OWN, ANYONE = -1, -2, -3
# The phase in which workers exchange messages.
PHASE = "synchronise"
# Fields in braces that a signal's key may contain.
KEY_FIELDS = ("run", "architecture", "epoch", "step", "maker", "taker")


@dataclass(frozen=True)
class Workload:
    """What is trained by how many workers, as in a plan.

    `batches` counts minibatches per worker and epoch, of `batch_size` samples each. The model has `parameters`, and its
    state_dict has `tensors` entries with `buffers` other numbers. `options` are the architecture's,
    `share` is the share of gradients that pass a filter, and `evaluation` tells whether epochs are evaluated.
    """

    workers: int
    batches: int
    epochs: int
    parameters: int
    options: Mapping[str, Value] = field(default_factory=dict)
    share: float = 1.0
    batch_size: int = 64
    tensors: int = 1
    buffers: int = 0
    evaluation: bool = True

    @property
    def steps(self) -> int:
        """Return the number of steps of the run."""
        return self.batches * self.epochs


@dataclass(frozen=True)
class Signal:
    """Something to wait for. It is available as soon as all activities that make it have ended, on any worker.

    There is one in each step, epoch or run, `of` all workers or of a rank: OWN is the rank of the worker that makes or
    needs it. A signal that is `ahead` belongs to a step or epoch that many later. With -1 it belongs to the one before,
    and nothing waits for it in the first. Activities of a whole epoch say in which `step` of it they make or need it.

    `key` names the object, tensor or queue that carries it, with {run}, {architecture}, {epoch} and {step}, with
    {maker} if each worker makes one, and with {taker} if it makes one for each other. `name` then describes the
    message. Without a key, a signal only orders activities. If only some ranks of a role take it, they are in `to`.
    """

    name: str
    each: Scope = "step"
    of: int = ALL
    ahead: int = 0
    key: str = ""
    to: tuple[int, ...] = ()
    step: int = -1

    def __post_init__(self) -> None:
        for _, name, *_ in Formatter().parse(self.key):
            if name not in (None, *KEY_FIELDS):
                raise ValueError(f"the key {self.key!r} has {{{name}}}, but can only have {', '.join(KEY_FIELDS)}")

    def position(self, slot: "Slot", batches: int) -> int:
        """Return the step or epoch of the run that it belongs to in this slot; below 0 for one before the first."""
        # A signal made before the first step belongs to the first step.
        position = 0 if self.each == "run" else max(0, slot.epoch)
        if self.each == "step":
            position = position * batches + max(0, slot.step, self.step)
        return position + self.ahead


@dataclass(frozen=True)
class Activity:
    """One kind of request or computation, named by `op` and `phase` as in the trace, done `times` times in a row.

    `bytes` counts all requests together, None if only a recording knows. `work` is how many bytes a computation reads
    and writes, if its CPU time grows with them (a script's: in the database). `at` is the rank of the database, if
    every worker has its own. `protocol` marks the training protocol, which `counts` predicts.

    It `needs` signals before it can end. Among several requests, only the last one waits. With `polling` it asks
    repeatedly, by getting or by listing; otherwise it blocks. At its end it `makes` signals. It `takes` available
    signals without waiting, and `removes` signals by deleting their objects; with `of=OWN` each worker deletes the one
    that it made.

    It runs in the steps of the run (or the epochs, if it runs once an epoch) in the slice from `since` to `until`:
    since=1 skips the first, until=-1 the last. An `optional` one depends on the model, and is left out if a recording
    doesn't have it.
    """

    op: str
    phase: str
    times: int = 1
    bytes: int | None = 0
    work: int = 0
    needs: tuple[Signal, ...] = ()
    makes: tuple[Signal, ...] = ()
    takes: tuple[Signal, ...] = ()
    removes: tuple[Signal, ...] = ()
    polling: Polling = ""
    at: int = OWN
    protocol: bool = False
    optional: bool = False
    since: int = 0
    until: int | None = None

    def runs_in(self, slot: "Slot") -> bool:
        """Return whether it runs in this slot."""
        return self.times > 0 and slot.number in range(slot.total)[self.since : self.until]


@dataclass(frozen=True)
class Gathering:
    """Groups of activities in any order; each begins when its first activity's needs are available."""

    groups: tuple[tuple[Activity, ...], ...]


Part = Activity | Gathering


@dataclass(frozen=True)
class Role:
    """What all workers of these ranks do in one function, instance, or execution of a state machine.

    `function` is the end of the function's name, empty for the architecture's first one. It is invoked once for each
    rank and run, or for `each` epoch or step. An invocation begins when its `needs` are available, and its end `makes`
    signals. An invocation for a run does `start`, in every step one of `steps` (in turns), after each epoch `epoch`,
    and finally `end`. One for a step does `start` and then one of `steps`, if there are any; one for an epoch only
    `start`. A role that isn't there in all epochs is there in the slice from `since` to `until`.
    """

    ranks: range
    function: str = ""
    kind: Literal["invocation", "instance", "execution"] = "invocation"
    each: Scope = "run"
    needs: tuple[Signal, ...] = ()
    makes: tuple[Signal, ...] = ()
    start: tuple[Part, ...] = ()
    steps: tuple[tuple[Part, ...], ...] = ()
    epoch: tuple[Part, ...] = ()
    end: tuple[Part, ...] = ()
    since: int = 0
    until: int | None = None

    def activities(self) -> Iterator[Activity]:
        """Yield all of its activities."""
        yield from activities((*self.start, *itertools.chain.from_iterable(self.steps), *self.epoch, *self.end))


@dataclass(frozen=True)
class Kept:
    """Bytes that a server keeps at once: `least` whatever the timing is, and at most `most`."""

    least: int = 0
    most: int = 0


@dataclass(frozen=True)
class Pattern:
    """The roles of all workers of a workload.

    `filtered` names, by op and phase, what is left out if a filter finds nothing worth sending. `driver` is what the
    driver does; replay doesn't play it, as the driver isn't a worker. An `open_ended` pattern may end before its last
    step, since workers decide when they are done. `tensors` are the vectors in one tensor database; what the keys
    of signals name follows from them (`slslab_workers.patterns.kept`).
    """

    workload: Workload
    roles: tuple[Role, ...]
    filtered: tuple[str, str] | None = None
    driver: tuple[Role, ...] = ()
    open_ended: bool = False
    tensors: Kept = Kept()

    @property
    def names_messages(self) -> bool:
        """Return whether it names the keys of workers' messages to each other."""
        return any(made.key for role in self.roles for activity in role.activities() for made in activity.makes)

    def needed(self) -> frozenset[str]:
        """Return the names of all signals that any activity waits for."""
        begin = (signal for role in self.roles for signal in role.needs)
        within = (signal for role in self.roles for activity in role.activities() for signal in activity.needs)
        return frozenset(signal.name for signal in itertools.chain(begin, within))


@dataclass(frozen=True)
class Slot:
    """When a part runs: epoch and step (-1: outside any), and its `number` among the `total` of such slots."""

    epoch: int
    step: int
    number: int
    total: int


def slots(role: Role, workload: Workload) -> Iterator[tuple[Slot, tuple[Part, ...]]]:
    """Yield what one worker of a role does in the whole run, in order, with its slots, over all invocations."""
    batches, epochs = workload.batches, workload.epochs
    there = range(epochs)[role.since : role.until]
    if role.each != "run":
        turns = role.steps or ((),)
        for epoch in there:
            for step in range(batches) if role.each == "step" else (-1,):
                yield Slot(epoch, step, epoch, epochs), role.start + turns[(batches * epoch + step) % len(turns)]
        return
    if there.start == 0:
        yield Slot(-1, -1, 0, 1), role.start
    for epoch in there:
        for number in range(epoch * batches, (epoch + 1) * batches) if role.steps else ():
            yield Slot(epoch, number % batches, number, workload.steps), role.steps[number % len(role.steps)]
        if role.epoch:
            yield Slot(epoch, -1, epoch, epochs), role.epoch
    if there.stop == epochs:
        yield Slot(-1, -1, 0, 1), role.end


def activities(parts: Iterable[Part], slot: Slot | None = None) -> Iterator[Activity]:
    """Yield the activities of these parts; with a slot, only if they run in it."""
    for part in parts:
        for activity in (part,) if isinstance(part, Activity) else itertools.chain.from_iterable(part.groups):
            if slot is None or activity.runs_in(slot):
                yield activity


def count(*patterns: Pattern) -> Counts:
    """Count the training protocol's messages and bytes over all epochs of these patterns, without bytes that only a
    recording knows."""
    operations, moved = Counter[str](), Counter[str]()
    for pattern in patterns:
        for role in (*pattern.roles, *pattern.driver):
            for slot, parts in slots(role, pattern.workload):
                for activity in activities(parts, slot):
                    if activity.protocol:
                        operations[activity.op] += activity.times * len(role.ranks)
                        moved[activity.op] += (activity.bytes or 0) * len(role.ranks)
    ways: tuple[Literal["in", "out"], ...] = ("in", "out")
    return Counts(+operations, *(sum(size for op, size in moved.items() if moves(op, way)) for way in ways))


# What `training.loop.Trainer` does in every architecture.
CONNECT = Activity("connect", "other")
BUILD = Activity("build", "other")
MINIBATCH = (Activity("object.get", "fetch", bytes=None), Activity("prepare", "fetch"), Activity("compute", "compute"))
UPDATE = Activity("update", "update")
# Before and after exchanging what was trained locally.
MESSAGE = Activity("serialise", "synchronise")
RECEIVE = Activity("update", "synchronise")
RESULT = Activity("object.put", "other", bytes=None)


def store_model(parameters: int) -> tuple[Part, ...]:
    """Return how a worker stores the model, without buffers (BatchNorm statistics), which are less than 1 % of it."""
    return (Activity("serialise", "other"), Activity("object.put", "other", bytes=4 * parameters))


def trainer(
    ranks: range,
    parameters: int,
    *synchronise: tuple[Part, ...],
    start: tuple[Part, ...] = (CONNECT, BUILD),
    kind: Literal["invocation", "instance"] = "invocation",
) -> Role:
    """Return the role of workers that train a minibatch in each step and then do `synchronise`, the architecture's own.

    With several, steps take turns. Rank 0 stores the model after each epoch; all workers store a result at the end.
    """
    return Role(
        ranks,
        kind=kind,
        start=start,
        steps=tuple((*MINIBATCH, *parts) for parts in synchronise),
        epoch=store_model(parameters) if 0 in ranks else (),
        end=(RESULT,),
    )
