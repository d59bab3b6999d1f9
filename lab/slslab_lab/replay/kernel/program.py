"""What replay plays: tracks of steps, and the gates at which one step waits for others.

A program holds what a timeline needs and no times: CPU seconds, bytes, requests, and who waits for whom. It is made of
a recorded trace (`recorded.py`) or of an architecture's communication pattern (`scaling.py`), and the kernel plays
both.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

# Kinds of tracks: an invocation of a function (it needs an environment and is billed), an instance (billed by the
# second), an execution of a state machine (its steps are transitions).
Kind = Literal["invocation", "instance", "execution"]
# How a step finds that what it waits for is there: it blocks until then (a read, an answer), or it polls, by getting
# the object or by listing, with growing pauses in between.
Polling = Literal["", "get", "list"]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a track does, after the steps before it have ended.

    `cpu_ns` is CPU time of its process at the recording host's speed, with what it did since the step before.
    `parallel` marks what runs on all the worker's threads (forward, backward); everything else has one. `bytes` are
    those of all `requests` together: k requests are made one after another. `at` is the worker whose server is asked,
    where each has its own, and -1 for the track's own worker; `server_cpu_ns` is CPU time that the server spends (a
    script).

    It waits until all gates in `awaits` are open; of several requests only the last waits: those before take what is
    there already. Its end counts as an arrival at the gates in `opens`. `event` is the recorded event, -1 if there is
    none.
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
        """Return the operation of its polls."""
        return f"{self.op.partition('.')[0]}.{self.polling}"


@dataclass(frozen=True, slots=True)
class Gathering:
    """Groups of steps, each of which begins with one that waits; they run in the order in which their gates open.

    So does a worker that lists what has arrived, or takes messages from a queue.
    """

    groups: tuple[tuple[Step, ...], ...]


@dataclass(frozen=True, slots=True)
class Track:
    """Steps one after another: an invocation, an instance, or an execution of a state machine.

    It begins once all gates in `awaits` are open; its end counts as an arrival at the gates in `opens`. `init_cpu_ns`
    is CPU time of its environment's init, spent in a cold start. `name` is the function's name, the instance's type, or
    the execution's name.
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
        """Yield all steps, those of a gathering in the order of its groups."""
        for item in self.steps:
            yield from (item,) if isinstance(item, Step) else chain.from_iterable(item.groups)


@dataclass(frozen=True)
class Program:
    """Tracks, and how many arrivals open each gate.

    `polls` are the pauses between polls that found nothing, in seconds: first, factor, limit
    (`slslab_workers.channels.objects`). `poll_cpu_ns` is the client's CPU time of one such poll, by polling (`get`,
    `list`). `recorded` is false for a program that was generated.
    """

    architecture: str
    workers: int
    tracks: tuple[Track, ...]
    gates: tuple[int, ...]
    polls: tuple[float, float, float] = (0.01, 1.5, 0.1)
    poll_cpu_ns: Mapping[str, int] = field(default_factory=dict)
    epochs: int = 1
    batches: int = 1
    recorded: bool = True
