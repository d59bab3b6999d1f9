"""What the workers of an architecture do in training and what they wait for, declared for any number of workers.

A pattern lists, for every kind of worker, what it does in order: its requests, how many bytes they move, what it
computes, and which activities of other workers must have ended first; not how long these take. From it replay makes
the programs of runs that have not been made. An architecture of your own may have one, too.

What is equal is said once: workers that do the same share a role, steps that repeat are one list of activities, and
requests that follow each other are one activity.
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
    """The puts and gets of a round that follow each other, each of one of so many `parts` of a message; `published`
    tells whether a paper counts them so."""

    puts: int
    gets: int
    parts: int = 1
    published: bool = False


Scope = Literal["step", "epoch", "run"]
Polling = Literal["", "get", "list"]
# Whose a signal is: there is one for all, or each worker has its own, or it does not matter; else it is a rank's.
ALL, OWN, ANYONE = -1, -2, -3
# What a signal's key may name in braces.
KEY_FIELDS = ("run", "architecture", "epoch", "step", "maker", "taker")


@dataclass(frozen=True)
class Workload:
    """What is trained by how many workers, as in a plan.

    `batches` counts minibatches per worker and epoch, of `batch_size` samples, `parameters` those of the model;
    `options` are the architecture's, and `share` is the share of the gradients that a filter lets pass. The model's
    state_dict has so many `tensors` (0 if that is not known), with `buffers` numbers beside the parameters;
    `evaluation` tells whether epochs are evaluated.
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
        """Return the steps of the run."""
        return self.batches * self.epochs


@dataclass(frozen=True)
class Signal:
    """Something to wait for; it is there as soon as all activities that make it have ended, of whichever worker.

    There is one in each step, epoch or run, `of` all, or of a rank: OWN is the rank of the worker that makes or needs
    it. A signal that is `ahead` belongs to a step or epoch that many later; -1 is the one before, and before the first
    there is nothing to wait for.

    `key` names the object, tensor or queue by which it travels, with {run}, {architecture}, {epoch} and {step}, and
    with {maker} and {taker} if each worker makes one, or one for each other; `name` is then what that is. Without a key
    it only orders what workers do.
    """

    name: str
    each: Scope = "step"
    of: int = ALL
    ahead: int = 0
    key: str = ""

    def __post_init__(self) -> None:
        for _, name, *_ in Formatter().parse(self.key):
            if name not in (None, *KEY_FIELDS):
                raise ValueError(f"the key {self.key!r} has {{{name}}}, and can have {', '.join(KEY_FIELDS)}")

    def position(self, place: "Place", batches: int) -> int:
        """Return which of the run's steps or epochs it belongs to at a place; below 0 for one before the first."""
        # A signal that is made before the first step belongs to it.
        position = 0 if self.each == "run" else max(0, place.epoch)
        if self.each == "step":
            position = position * batches + max(0, place.step)
        return position + self.ahead


@dataclass(frozen=True)
class Activity:
    """One kind of request or computation, named by `op` and `phase` as in the trace, made `times` times in a row.

    `bytes` are those that all requests move together, None if only a recording knows; `work` is how many bytes a
    computation reads and writes, if its CPU time grows with them (a script's: in the database). `at` is the rank whose
    database is asked, if every worker has its own. `protocol` marks the training protocol, which `counts` predicts.

    It `needs` signals before it can end: of several requests only the last one does, the others find what they need.
    With `polling` it asks repeatedly, by getting or by listing; otherwise it blocks. At its end it `makes` signals. It
    `takes` those that it finds there without waiting, and `removes` those whose objects it deletes.

    It takes place in the steps of the run (or epochs, if it is done once an epoch) in the slice from `since` to
    `until`: since=1 is all but the first, until=-1 all but the last. An `optional` one depends on the model, and is
    left out if a recording has none of it.
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

    def takes_place(self, place: "Place") -> bool:
        """Return whether it takes place there."""
        return self.times > 0 and place.number in range(place.total)[self.since : self.until]


@dataclass(frozen=True)
class Gathering:
    """Groups of activities, each of which begins when what its first activity needs is there, in whatever order."""

    groups: tuple[tuple[Activity, ...], ...]


Part = Activity | Gathering


@dataclass(frozen=True)
class Role:
    """What all workers of these ranks do in one function, instance, or execution of a state machine.

    `function` is the end of the function's name, empty for the architecture's first one. There is one invocation of it
    for each rank and run, or for `each` epoch or step. It begins when what it `needs` is there, and its end `makes`
    signals. An invocation for a run does `start`, in every step one of `steps` (several take turns), after each epoch
    `epoch`, and finally `end`; one for a step does `start` and then one of `steps`, if there are any, and one for an
    epoch `start` alone.
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

    def activities(self) -> Iterator[Activity]:
        """Yield all activities that it has somewhere."""
        for part in (*self.start, *itertools.chain.from_iterable(self.steps), *self.epoch, *self.end):
            yield from (part,) if isinstance(part, Activity) else itertools.chain.from_iterable(part.groups)


@dataclass(frozen=True)
class Pattern:
    """The roles of all workers of a workload.

    `filtered` names, by op and phase, what is left out if a filter finds nothing worth sending; `driver` counts
    messages of the training protocol that the driver, which is not a worker, sends or takes. An `open_ended` one may
    end before its last step, since workers find that they are done.
    """

    workload: Workload
    roles: tuple[Role, ...]
    filtered: tuple[str, str] | None = None
    driver: Mapping[str, int] = field(default_factory=dict)
    open_ended: bool = False

    @property
    def names_messages(self) -> bool:
        """Return whether it says under which keys workers make something for each other."""
        return any(made.key for role in self.roles for activity in role.activities() for made in activity.makes)

    def needed(self) -> frozenset[str]:
        """Return the names of the signals that somebody waits for."""
        begin = (signal for role in self.roles for signal in role.needs)
        within = (signal for role in self.roles for activity in role.activities() for signal in activity.needs)
        return frozenset(signal.name for signal in itertools.chain(begin, within))


@dataclass(frozen=True)
class Place:
    """Where a part takes place: epoch and step (-1: outside any), and its `number` among the `total` of such places."""

    epoch: int
    step: int
    number: int
    total: int


def places(role: Role, workload: Workload) -> Iterator[tuple[Place, tuple[Part, ...]]]:
    """Yield what one worker of a role does in the whole run, in order, with its place, over all invocations."""
    batches, epochs = workload.batches, workload.epochs
    if role.each != "run":
        turns = role.steps or ((),)
        for epoch in range(epochs):
            for step in range(batches) if role.each == "step" else (-1,):
                yield Place(epoch, step, epoch, epochs), role.start + turns[(batches * epoch + step) % len(turns)]
        return
    yield Place(-1, -1, 0, 1), role.start
    for number in range(workload.steps):
        epoch, step = divmod(number, batches)
        if role.steps:
            yield Place(epoch, step, number, workload.steps), role.steps[number % len(role.steps)]
        if role.epoch and step == batches - 1:
            yield Place(epoch, -1, epoch, epochs), role.epoch
    yield Place(-1, -1, 0, 1), role.end


def activities(parts: Iterable[Part], place: Place) -> Iterator[Activity]:
    """Yield the activities of these parts that take place there."""
    for part in parts:
        for activity in (part,) if isinstance(part, Activity) else itertools.chain.from_iterable(part.groups):
            if activity.takes_place(place):
                yield activity


def count(*patterns: Pattern) -> Counts:
    """Count messages and bytes of the training protocol over all epochs of these patterns; bytes that only a recording
    knows are not in it."""
    operations, moved = Counter[str](), Counter[str]()
    for pattern in patterns:
        operations.update(pattern.driver)
        for role in pattern.roles:
            for place, parts in places(role, pattern.workload):
                for activity in activities(parts, place):
                    if activity.protocol:
                        operations[activity.op] += activity.times * len(role.ranks)
                        moved[activity.op] += (activity.bytes or 0) * len(role.ranks)
    ways: tuple[Literal["in", "out"], ...] = ("in", "out")
    return Counts(+operations, *(sum(size for op, size in moved.items() if moves(op, way)) for way in ways))


# What `training.loop.Trainer` does in every architecture.
CONNECT = Activity("connect", "other")
BUILD = Activity("build", "other")
MINIBATCH = (
    Activity("object.get", "fetch", bytes=None),
    Activity("prepare", "fetch"),
    Activity("compute", "compute"),
)
UPDATE = Activity("update", "update")
# Around an exchange of what was trained locally.
MESSAGE = Activity("serialise", "synchronise")
RECEIVE = Activity("update", "synchronise")
RESULT = Activity("object.put", "other", bytes=None)


def store_model(parameters: int) -> tuple[Part, ...]:
    """Return how a worker stores the model; its buffers (BatchNorm statistics), less than 1 % of it, are left out."""
    return (Activity("serialise", "other"), Activity("object.put", "other", bytes=4 * parameters))


def trainer(
    ranks: range,
    parameters: int,
    *synchronise: tuple[Part, ...],
    start: tuple[Part, ...] = (CONNECT, BUILD),
    kind: Literal["invocation", "instance"] = "invocation",
) -> Role:
    """Return the role of workers that train a minibatch in each step and then do `synchronise`, the architecture's own.

    If several are given, steps take turns. Rank 0 stores the model after each epoch; all store a result at the end.
    """
    return Role(
        ranks,
        kind=kind,
        start=start,
        steps=tuple((*MINIBATCH, *parts) for parts in synchronise),
        epoch=store_model(parameters) if 0 in ranks else (),
        end=(RESULT,),
    )
