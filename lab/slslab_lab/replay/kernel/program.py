"""The input of a replay: tracks of steps, and the gates at which steps wait for each other.

A program contains CPU seconds, bytes, requests, and the order in which steps wait for each other, but no times. It is
made from a recorded trace (`recorded.py`) or from an architecture's communication pattern (`scaling.py`). The kernel
plays both.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

from slslab_workers.channels.polling import POLICIES, Poll

# Kinds of tracks: an invocation of a function (it needs an environment and is billed), an instance (billed by the
# second), an execution of a state machine (its steps are transitions).
Kind = Literal["invocation", "instance", "execution"]
# How a step waits: it blocks (a read, an answer), or it polls by getting the object or by listing, with growing pauses.
Polling = Literal["", "get", "list"]


@dataclass(frozen=True, slots=True)
class Step:
    """One action of a track. It begins after the steps before it have ended.

    `cpu_ns` is CPU time of its process at the recording host's speed, including what the process did since the step
    before. `parallel` marks work on all threads of the worker (forward, backward); everything else has one thread.
    `bytes` is the sum over all `requests`, which are made one after another. `at` is the worker that owns the server,
    if each worker has one, and -1 for the track's own worker; `server_cpu_ns` is CPU time that the server spends (a
    script).

    The step waits until all gates in `awaits` are open. Only the last of its requests waits; the others read what
    already exists. Its end counts as an arrival at the gates in `opens`. `event` is the recorded event, or -1.
    """

    op: str
    phase: str
    cpu_ns: int = 0
    parallel: bool = False
    requests: int = 0
    bytes: int = 0
    awaits: tuple[int, ...] = ()
    opens: tuple[int, ...] = ()
    polling: Polling = ""
    epoch: int = -1
    step: int = -1
    at: int = -1
    server_cpu_ns: int = 0
    event: int = -1

    @property
    def polls(self) -> str:
        """Return the operation it polls with."""
        return f"{self.op.partition('.')[0]}.{self.polling}"


@dataclass(frozen=True, slots=True)
class Gathering:
    """Groups of steps that run in the order in which their gates open; the first step of each group waits.

    This is how a worker lists arrived objects, or takes messages from a queue.
    """

    groups: tuple[tuple[Step, ...], ...]


@dataclass(frozen=True, slots=True)
class Track:
    """Steps one after another: an invocation, an instance, or an execution of a state machine.

    It begins once all gates in `awaits` are open; its end counts as an arrival at the gates in `opens`. `init_cpu_ns`
    is CPU time of its environment's init, spent in a cold start. `name` is the name of the function or execution, or
    the instance type.
    """

    name: str
    kind: Kind
    worker: int
    steps: tuple[Step | Gathering, ...]
    memory_mb: int = 0
    ephemeral_mb: int = 512
    init_cpu_ns: int = 0
    package: Literal["zip", "image"] = "zip"
    awaits: tuple[int, ...] = ()
    opens: tuple[int, ...] = ()
    epoch: int = -1

    def flat_steps(self) -> Iterator[Step]:
        """Yield all steps; a gathering's steps come in the order of its groups."""
        for item in self.steps:
            yield from (item,) if isinstance(item, Step) else chain.from_iterable(item.groups)

    def with_steps(self, change: Callable[[Step], Step]) -> "Track":
        """Return the track with each step changed."""
        items = (
            change(item)
            if isinstance(item, Step)
            else Gathering(tuple(tuple(map(change, group)) for group in item.groups))
            for item in self.steps
        )
        return replace(self, steps=tuple(items))


@dataclass(frozen=True)
class Program:
    """Tracks, and how many arrivals open each gate.

    `polls` are the pauses after polls that found nothing. `poll_cpu_ns` is the client's CPU time for such a poll, by
    polling (`get`, `list`). `recorded` is false for a generated program.
    """

    architecture: str
    workers: int
    tracks: tuple[Track, ...]
    gates: tuple[int, ...]
    polls: Poll = POLICIES["adaptive"].gets
    poll_cpu_ns: Mapping[str, int] = field(default_factory=dict)
    epochs: int = 1
    batches: int = 1
    recorded: bool = True
