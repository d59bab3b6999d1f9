"""Read profiles: how long a platform takes for a program's operations, as dated TOML with a source for each figure.

A figure is documented (on a named page), measured (by whom and how), fitted to measurements (by whom and to which), or
assumed. No figure has a default: an operation that a profile doesn't contain is an error that names the operation.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import AfterValidator, BaseModel, Field, model_serializer, model_validator

from slslab.errors import RequestError, writable
from slslab.toml_files import DataFiles, TomlTable, shown
from slslab_workers.trace.kinds import KINDS, Kind

PROFILES = Path(__file__).parent
SCHEMA = 1
Status = Literal["documented", "measured", "fitted", "assumed"]
# Eleven days in milliseconds, and a nanosecond; this many servers at once still fit into a list in memory.
LARGEST, LEAST, MOST = 1e9, 1e-6, 1_000_000


class Figure(TomlTable):
    """One number and its source; a figure known only roughly has an 80 % range, from `low` to `high`."""

    value: Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]
    status: Status
    source: Annotated[str, Field(min_length=1)]
    low: Annotated[float, Field(ge=LEAST)] | None = None
    high: Annotated[float, Field(le=LARGEST)] | None = None

    @property
    def half_range(self) -> float:
        """Half of its range, as a logarithm; 0 without a range."""
        return 0.0 if self.low is None or self.high is None else math.log(self.high / self.low) / 2

    @model_validator(mode="after")
    def _check_range(self) -> "Figure":
        if (self.low is None) is not (self.high is None):
            raise ValueError("a range has two ends, low and high")
        if self.low is not None and self.high is not None and not self.low <= self.value <= self.high:
            raise ValueError(f"it is {self.value:g}, outside its range of {self.low:g} to {self.high:g}")
        return self

    @model_serializer(mode="wrap")
    def _leave_out_no_range(self, dump: Callable[["Figure"], dict[str, Any]]) -> dict[str, Any]:
        return {name: value for name, value in dump(self).items() if value is not None}


def to_ns(figure: Figure | None) -> int:
    """Return a figure in milliseconds as whole nanoseconds; 0 for None."""
    return round(figure.value * 1e6) if figure else 0


def _positive(figure: Figure) -> Figure:
    if figure.value < LEAST:
        raise ValueError(f"it is {figure.value:g}, and must be at least {LEAST:g}")
    return figure


def _countable(figure: Figure) -> Figure:
    if not 1 <= figure.value <= MOST or figure.value != int(figure.value):
        raise ValueError(f"it is {figure.value:g}, and must be a whole number from 1 to {MOST}")
    return figure


def _share(figure: Figure) -> Figure:
    if figure.value > 1:
        raise ValueError(f"it is {figure.value:g}, and is a share of 1")
    return figure


Positive = Annotated[Figure, AfterValidator(_positive)]
Count = Annotated[Figure, AfterValidator(_countable)]
Share = Annotated[Figure, AfterValidator(_share)]


class Operation(TomlTable):
    """The cost of one request beyond the client's own CPU time.

    `latency_ms` is an empty request's; an environment's first request takes `first_ms` more (to connect, or to
    compile a script). Bytes come on top, at one connection's `bandwidth_mb_s` (10⁶ bytes a second) and within the
    function's `Network`, while the client's CPU time overlaps with them: latency + max(CPU, bytes ÷ bandwidth).

    `cpu_ms_per_mb` is the CPU time on one of the platform's processors for 10⁶ bytes: TLS, copying, parsing. The
    client's CPU time is at least that, because a recording's requests aren't encrypted.
    """

    latency_ms: Figure
    first_ms: Figure | None = None
    bandwidth_mb_s: Positive | None = None
    cpu_ms_per_mb: Figure | None = None


class Server(TomlTable):
    """A resource that many clients share: it serves `servers` requests at once; the others wait in order of arrival.

    A request occupies a server for `service_ms` plus its bytes ÷ `bandwidth_mb_s`. That is part of the operation's
    latency; only waiting for a server comes on top. Without a server, clients never wait for each other.
    """

    servers: Count
    service_ms: Figure
    bandwidth_mb_s: Positive | None = None


class Channel(TomlTable):
    """A store, database or queue: its operations (named by the part of the trace's `op` after the dot), and its server.

    With `per_worker`, each worker has a server of its own, such as a database; otherwise all share one. `boot_s` is
    the time from a node's creation until it serves; replays begin when it does.
    """

    description: str
    operations: dict[str, Operation]
    server: Server | None = None
    per_worker: bool = False
    boot_s: Figure | None = None


class Compute(TomlTable):
    """The platform's processors.

    `speed` is their speed as a multiple of the recording host's: CPU seconds are divided by it. `kinds` are the speeds
    for kinds of work that were measured on both; the other kinds use `speed`. `parallel` is the share of a training
    step that runs on several threads at once (Amdahl's law). The CPU share is enforced per `period_ms`: a function that
    has used its share of a period waits for the next one. `vcpu_mb` is the memory size of one vCPU. Init has at least
    `init_vcpus`, whatever the memory size; without that figure it has the memory size's share. `arm_speed` is the speed
    of arm64 as a multiple of x86-64's at the same memory size; a profile without it can't model arm64. `further_thread`
    is how much each thread of a function beyond the first adds, as a share of a processor: with 0.9, two threads get at
    most 1.9 processors, whatever their CPU share. Without it, each adds a whole one.
    """

    speed: Positive
    kinds: Mapping[Kind, Positive] = {}
    parallel: Share
    period_ms: Positive
    vcpu_mb: Positive
    init_vcpus: Positive | None = None
    arm_speed: Positive | None = None
    further_thread: Share | None = None

    def speeds(self) -> dict[Kind, float]:
        """Return the speed of each kind of work."""
        return {kind: self.kinds.get(kind, self.speed).value for kind in KINDS}

    def processors(self, threads: int) -> float:
        """Return the most processors that a function's threads can use, if its CPU share allows it."""
        return threads if self.further_thread is None else 1 + (threads - 1) * self.further_thread.value


class Network(TomlTable):
    """The limit on all connections of one function together, in each direction: a token bucket.

    It holds up to `burst_mb` (10⁶ bytes), which are moved as fast as the connections can, and refills at `rate_mb_s`.
    """

    rate_mb_s: Positive
    burst_mb: Figure


class Functions(TomlTable):
    """Lambda's own time around a handler.

    A cold start takes `cold_zip_ms` or `cold_image_ms` before init, which isn't billed. Init then takes its own CPU
    seconds and `init_wait_ms`, the time in which its code is read from a store (0 if missing). `init_wait_image_ms` is
    that time for a container image, if it differs. `warm_ms` is from acceptance to the handler. `concurrency`
    environments may be busy at once; of each function, `burst` may start at once, and `ramp_per_s` more each second.
    Without `network`, only connections have a bandwidth.
    """

    cold_zip_ms: Figure
    cold_image_ms: Figure
    init_wait_ms: Figure | None = None
    init_wait_image_ms: Figure | None = None
    warm_ms: Figure
    concurrency: Count
    burst: Count
    ramp_per_s: Positive
    network: Network | None = None

    def cold_ns(self, package: Literal["zip", "image"]) -> int:
        """Return how long a cold start takes before init, ns."""
        return to_ns(self.cold_zip_ms if package == "zip" else self.cold_image_ms)

    def init_wait_ns(self, package: Literal["zip", "image"]) -> int:
        """Return how long init takes in addition to its CPU time, ns."""
        return to_ns((package == "image" and self.init_wait_image_ms) or self.init_wait_ms)


class Instances(TomlTable):
    """Long-running machines: `boot_s` from launch to the program's start; compute steps are `compute_speed` times as
    fast as on the recording host, everything else `host_speed` times. `peers` is the cost of one message to another
    machine of the type, if known."""

    boot_s: Figure
    compute_speed: Figure
    host_speed: Figure
    peers: Operation | None = None


class Containers(TomlTable):
    """Containers with a GPU that run functions. A bill counts the seconds of a container, not of an invocation.

    Each function gets `memory_mb` and `vcpus`, and if it computes a `gpu` (`slslab.predict.gpus`). A container with a
    cached image starts in `functions.cold_image_ms`, and stops `idle_s` after its last invocation. Its seconds, with
    `start_billed` of its start, are rounded up to `unit_s`, and are at least `least_s`. `prices` is the name of a price
    book.
    """

    gpu: str
    prices: str
    memory_mb: Count
    vcpus: Positive
    idle_s: Figure
    start_billed: Share
    unit_s: Positive
    least_s: Figure
    timeout_s: Positive


class Profile(TomlTable):
    """A platform.

    Each state of a state machine takes `transition_ms`. A Task that invokes a function takes `task_ms` in addition, and
    `task_ms_per_kb` for each 10³ bytes of its input; both are 0 if the profile lacks them.
    """

    schema_version: Annotated[Literal[1], Field(alias="schema")] = 1
    name: str
    date: date
    description: str
    compute: Compute
    functions: Functions
    transition_ms: Figure
    task_ms: Figure | None = None
    task_ms_per_kb: Figure | None = None
    channels: dict[str, Channel]
    instances: Mapping[str, Instances] = {}
    containers: Containers | None = None

    @property
    def gpu_containers(self) -> Containers:
        """The containers of a platform (`load_platform`)."""
        assert self.containers is not None
        return self.containers

    def size(self, memory_mb: int) -> tuple[int, float]:
        """Return the memory in MB and the vCPUs of a function with this memory size; containers have their own size."""
        if self.containers is None:
            return memory_mb, memory_mb / self.compute.vcpu_mb.value
        return int(self.containers.memory_mb.value), self.containers.vcpus.value

    def operation(self, op: str) -> Operation:
        """Return the cost of an `op` in the trace, such as `object.put`; RequestError if the profile lacks it."""
        channel, _, name = op.partition(".")
        known = self.channels.get(channel)
        if known is None or name not in known.operations:
            raise self._lacks(op, f"channels.{channel}.operations.{name}")
        return known.operations[name]

    def instance(self, type_: str) -> Instances:
        """Return an EC2 instance type; RequestError if the profile lacks it."""
        if type_ not in self.instances:
            raise self._lacks(f"the instance type {type_}", f'instances."{type_}"')
        return self.instances[type_]

    def between(self, type_: str) -> Operation:
        """Return the cost of a message between instances of this type; RequestError if the profile lacks it."""
        peers = self.instance(type_).peers
        if peers is None:
            raise self._lacks(f"messages between instances of type {type_}", f'instances."{type_}".peers')
        return peers

    def _lacks(self, what: str, entry: str) -> RequestError:
        return RequestError(f"The profile {self.name} has no entry for {what}.", f"add [{entry}] to it.")


def with_speed(profile: Profile, figure: Figure) -> Profile:
    """Return the profile with functions on processors of this speed, for all kinds of work."""
    return profile.model_copy(update={"compute": profile.compute.model_copy(update={"speed": figure, "kinds": {}})})


def figures(value: Any, entry: str = "") -> Iterator[tuple[str, Figure]]:
    """Yield a profile's figures, each with its entry, such as `channels.object.operations.put.latency_ms`, in order."""
    if isinstance(value, Figure):
        yield entry, value
    elif isinstance(value, BaseModel | Mapping):
        for name, inner in value.items() if isinstance(value, Mapping) else value:
            yield from figures(inner, f"{entry}.{name}" if entry else name)


def with_figures(profile: Profile, change: Callable[[str, Figure], Figure], pattern: str = "*") -> Profile:
    """Return the profile with each figure changed of which the entry, as in `figures`, matches `pattern`;
    `change` receives the entry and the figure."""

    def changed(value: Any, entry: str) -> Any:
        if isinstance(value, Figure):
            return change(entry, value) if fnmatchcase(entry, pattern) else value
        if not isinstance(value, BaseModel | Mapping):
            return value
        entries = value.items() if isinstance(value, Mapping) else value
        inner = {name: changed(each, f"{entry}.{name}" if entry else name) for name, each in entries}
        return inner if isinstance(value, Mapping) else value.model_copy(update=inner)

    moved: Profile = changed(profile, "")
    return moved


_FILES = DataFiles(Profile, "profile", PROFILES, SCHEMA)
profile_names, load_profile = _FILES.names, _FILES.load


def load_platform(name: str) -> Profile:
    """Return the profile of a platform that has functions with GPUs; RequestError for another one, or none."""
    platforms = [each for each in profile_names() if load_profile(each).containers is not None]
    if name not in profile_names() and not Path(name).is_file():
        raise RequestError(f"{shown(repr(name))} isn't a platform.", f"choose {', '.join(platforms)}, or a file.")
    profile = load_profile(name)
    if profile.containers is None:
        raise RequestError(
            f"{name} has no functions with GPUs.",
            f"choose {', '.join(platforms)}, or model a run on {name}: slslab replay --profile {name}",
        )
    return profile


def save_profile(profile: Profile, path: Path) -> None:
    """Write the profile as a TOML file that `load_profile` reads; RequestError if it can't be written."""
    with writable(path, "choose another --out."):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(tomli_w.dumps(profile.model_dump(by_alias=True, exclude_none=True)), encoding="utf-8")
