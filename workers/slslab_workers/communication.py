"""What the workers of an architecture do in training and what they wait for, declared for any number of them.

A pattern says of every kind of worker what it does one thing after another: its requests, how many bytes they move,
what it computes, and which of the others' activities must have ended first. It says nothing of how long that takes.
Replay makes the programs of runs that were never made out of it; whoever writes a sixth architecture may give one, too.

What is equal is said once: workers that do the same share a role, steps that repeat are one list of activities, and
requests that follow each other are one activity.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from slslab_workers.architecture import Counts
from slslab_workers.plan import Value

Scope = Literal["step", "epoch", "run"]
# Of whom a signal is: there is one for all, or each worker has its own; or else it is that of a rank.
ALL, OWN = -1, -2
STORES = ("object.put", "tensor.set")
READS = ("object.get", "tensor.get")


@dataclass(frozen=True)
class Workload:
    """What is trained by how many, as in a plan: `batches` minibatches per worker and epoch, a model of so many
    parameters, the architecture's options; and the `share` of the gradients that a filter lets pass."""

    workers: int
    batches: int
    epochs: int
    parameters: int
    options: Mapping[str, Value] = field(default_factory=dict)
    share: float = 1.0

    @property
    def steps(self) -> int:
        """Steps of the run."""
        return self.batches * self.epochs


@dataclass(frozen=True)
class Signal:
    """Something to wait for. It is there as soon as all activities that make it have ended, whosever they are.

    There is one in each step, epoch or run, `of` all, or of a rank: OWN is the rank of whoever makes or needs it. One
    that is `ahead` belongs to so many steps or epochs later.
    """

    name: str
    each: Scope = "step"
    of: int = ALL
    ahead: int = 0


@dataclass(frozen=True)
class Activity:
    """One kind of request or computation, named by `op` and `phase` as in the trace, made `times` times in a row.

    `bytes` are those that all requests move, None if a recording must tell; `work` is how many bytes a computation goes
    over, where its CPU time grows with them and it moves none (of a script: in the database). `at` is the rank whose
    database is asked, where every worker has its own. `protocol` marks the training protocol, which `counts` predicts.

    It `needs` signals before it can end: of several requests only the last one does, those before it take what is
    there. With `polling` it asks again and again, by getting or by listing; else it is told. At its end it `makes`
    signals.

    It takes place in those steps of the run (epochs, in what is done once an epoch) that a slice from `since` to
    `until` leaves: since=1 is all but the first, until=-1 all but the last. An `optional` one depends on the model, and
    is left out if a recording has none of it.
    """

    op: str
    phase: str
    times: int = 1
    bytes: int | None = 0
    work: int = 0
    needs: tuple[Signal, ...] = ()
    makes: tuple[Signal, ...] = ()
    polling: Literal["", "get", "list"] = ""
    at: int = OWN
    protocol: bool = False
    optional: bool = False
    since: int = 0
    until: int | None = None

    def takes_place(self, place: "Place") -> bool:
        """Whether it does so there."""
        return self.times > 0 and place.number in range(place.total)[self.since : self.until]


@dataclass(frozen=True)
class Gathering:
    """Groups of activities, each beginning with one that needs something: they come in the order in which that does."""

    groups: tuple[tuple[Activity, ...], ...]


Part = Activity | Gathering


@dataclass(frozen=True)
class Role:
    """What workers of these ranks do in one function, instance, or execution of a state machine, all the same.

    `function` is what the function's name ends with, empty for the architecture's first one. There is one invocation
    of it for each rank and run; or `each` epoch, or each step. It begins when what it `needs` is there, and its end
    `makes` signals. In a run it does `start`, in every step one of `steps` (several take turns), after each epoch
    `epoch`, and `end`. In an epoch or a step it does `start` alone.
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


@dataclass(frozen=True)
class Pattern:
    """The roles of all workers of a workload.

    `filtered` names, by op and phase, what is left out where a filter finds nothing worth sending; `driver` counts
    messages of the training protocol that the driver sends or takes, who is no worker."""

    workload: Workload
    roles: tuple[Role, ...]
    filtered: tuple[str, str] | None = None
    driver: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """Where a part takes place: epoch and step (-1: in none), and which one this is of so many where it could."""

    epoch: int
    step: int
    number: int
    total: int


def places(role: Role, workload: Workload) -> Iterator[tuple[Place, tuple[Part, ...]]]:
    """What one worker of a role does in the whole run, in its order, and where; whatever the number of invocations."""
    batches, epochs = workload.batches, workload.epochs
    if role.each != "run":
        for epoch in range(epochs):
            for step in range(batches) if role.each == "step" else (-1,):
                yield Place(epoch, step, epoch, epochs), role.start
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
    """Those of these parts that take place there."""
    for part in parts:
        for activity in (part,) if isinstance(part, Activity) else itertools.chain.from_iterable(part.groups):
            if activity.takes_place(place):
                yield activity


def count(pattern: Pattern) -> Counts:
    """Messages and bytes of the training protocol over all epochs: what the architecture's `counts` must predict."""
    operations, moved = Counter(pattern.driver), Counter[str]()
    for role in pattern.roles:
        for place, parts in places(role, pattern.workload):
            for activity in activities(parts, place):
                if activity.protocol:
                    operations[activity.op] += activity.times * len(role.ranks)
                    moved[activity.op] += (activity.bytes or 0) * len(role.ranks)
    return Counts(+operations, sum(moved[op] for op in STORES), sum(moved[op] for op in READS))


# What `training.Trainer` does, in whatever architecture.
CONNECT = Activity("connect", "other")
BUILD = Activity("build", "other")
MINIBATCH = (
    Activity("object.get", "fetch", bytes=None),
    Activity("prepare", "fetch"),
    Activity("compute", "compute"),
)
UPDATE = Activity("update", "update")
RESULT = Activity("object.put", "other", bytes=None)


def store_model(parameters: int) -> tuple[Part, ...]:
    """A worker stores the model for all; its buffers (BatchNorm statistics), below a hundredth of it, are left out."""
    return (Activity("serialise", "other"), Activity("object.put", "other", bytes=4 * parameters))


def trainer(
    ranks: range,
    parameters: int,
    *synchronise: tuple[Part, ...],
    start: tuple[Part, ...] = (CONNECT, BUILD),
    kind: Literal["invocation", "instance"] = "invocation",
) -> Role:
    """Workers that train a minibatch in each step and then synchronise, which is all that architectures say of them.

    Several ways to synchronise take turns. Rank 0 stores the model after each epoch; all store a result at the end.
    """
    return Role(
        ranks,
        kind=kind,
        start=start,
        steps=tuple((*MINIBATCH, *parts) for parts in synchronise),
        epoch=store_model(parameters) if 0 in ranks else (),
        end=(RESULT,),
    )
