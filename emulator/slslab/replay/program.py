"""What replay plays: tracks of steps, and the gates that make one step wait for others.

A program holds what a timeline needs and no times: CPU seconds, bytes, requests, and who waits for whom. It is made of
a recorded trace (`recorded.py`) or of an architecture's communication pattern (`scaling.py`), and the kernel plays
both."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# What a track is: an invocation of a function (it needs an environment and is billed), an instance (it is billed by the
# second), or an execution of a state machine (its steps are transitions).
Kind = Literal["invocation", "instance", "execution"]
# How a step learns that what it waits for is there: it is told (a blocking read, or a wait for an answer), or it asks
# by getting the object, or by listing, with growing pauses in between.
Polling = Literal["", "get", "list"]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a track does; the ones before it on its track have ended.

    `cpu_ns` is CPU time of its process at the recording host's speed, with what it did since the step before.
    `parallel` marks what runs on all the worker's threads (forward, backward), all else has one. `bytes` are those of
    all `requests` together: a step of k requests makes them one after another. `at` is the worker whose server is
    asked, where each has its own, and -1 the track's own worker; `server_cpu_ns` is CPU time that the server spends (a
    script).

    It waits until all gates that it `awaits` are open. Of several requests only the last needs that: those before take
    what is there already. At its end it arrives at the gates that it `opens`. `event` is the recorded event, -1 if
    none."""

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


@dataclass(frozen=True, slots=True)
class Gathering:
    """Groups of steps, each beginning with one that waits: they run in the order in which what they wait for comes.

    So does a worker that lists what has arrived, or takes messages from a queue.
    """

    groups: tuple[tuple[Step, ...], ...]


@dataclass(frozen=True, slots=True)
class Track:
    """Steps one after another: an invocation, an instance, or an execution of a state machine.

    It may begin once all gates that it `awaits` are open; at its end it arrives at the gates that it `opens`.
    `init_cpu_ns` is CPU time of its environment's init, spent if it meets a cold start. `name` is the function's name,
    the instance's type, or the execution's name.
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


@dataclass(frozen=True)
class Program:
    """Tracks, and how many arrivals open each gate.

    `polls` are the pauses between polls that found nothing, in seconds: first, factor, limit
    (`slslab_workers.objects`). `poll_cpu_ns` is the client's CPU time of one such poll, by polling (`get`, `list`).
    `recorded` is false for a program that was generated."""

    architecture: str
    workers: int
    tracks: tuple[Track, ...]
    gates: tuple[int, ...]
    polls: tuple[float, float, float] = (0.01, 1.5, 0.1)
    poll_cpu_ns: Mapping[str, int] = field(default_factory=dict)
    epochs: int = 1
    batches: int = 1
    recorded: bool = True
