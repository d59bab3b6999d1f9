"""Rounds of GradsSharding, λ-FL and LIFL on a profile, and the fit of a profile's network to rounds measured on AWS.

Four figures are fitted, and were named before the fit: the speed of one connection, how fast a function's network
refills, how much it may move at once, and how much the functions of a round differ. Latencies come from the base
profile. CPU time per byte was measured on this project's host and scaled, as its sources say.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import NormalDist, fmean

from scipy.optimize import minimize

from slslab.predict.environment import NS
from slslab.predict.profiles.profile import Figure, Network, Profile, with_figures
from slslab.run.metrics import grouped
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.program import Program, Step, Track
from slslab_lab.replay.outcome import outcome
from slslab_lab.replay.whatif import with_concurrency
from slslab_workers.gradssharding.topology import Aggregator, levels, slices

# Common to the papers' rounds: clients, and the concurrency of the account.
CLIENTS, CONCURRENCY = 20, 10
# CPU seconds of a function's init on one processor of the platform. Importing numpy and boto3 takes 0.31 on this
# project's host; it is scaled like adding.
INIT_S = 1.1
# Start of the fit: 10⁶ bytes a second of a connection and of the refill, and 10⁶ bytes.
GUESS = (100.0, 60.0, 100.0)
POINTS = 2_000


@dataclass(frozen=True)
class Setting:
    """Setting of a round: gradients of `parameters` float32 numbers, and functions of `memory_mb`."""

    model: str
    parameters: int
    topology: str
    shards: int
    memory_mb: int
    clients: int = CLIENTS


@dataclass(frozen=True)
class Round:
    """One round: seconds from first acceptance to last end, and of its slowest function; its requests."""

    wall_s: float
    slowest_s: float
    gets: int
    puts: int

    def usd(self, memory_mb: int, seconds: float) -> float:
        """Return the cost as released if functions take this many seconds: without Lambda's requests and init."""
        return memory_mb / 1024 * seconds * 1.66667e-5 + self.gets * 4e-7 + self.puts * 5e-6


def make_program(setting: Setting, add_s_per_gb: float, cold: bool) -> Program:
    """Return one round as a program. Its functions add 10⁹ bytes in `add_s_per_gb` CPU seconds of the platform. Unless
    it is cold, an earlier invocation has made its environments."""
    gates: list[int] = []
    tracks: list[Track] = []

    def gate(arrivals: int) -> int:
        gates.append(arrivals)
        return len(gates) - 1

    tree = levels(setting.topology, setting.clients, setting.shards)
    begins: tuple[int, ...] = ()
    if not cold:
        begins = (gate(sum(map(len, tree))),)
        tracks += [
            replace(_track(one, setting, add_s_per_gb), steps=(), opens=begins, epoch=-1) for one in chain(*tree)
        ]
    for level in tree:
        ends = (gate(len(level)),)
        tracks += [replace(_track(one, setting, add_s_per_gb), awaits=begins, opens=ends) for one in level]
        begins = ends
    return Program("gradssharding", setting.clients, tuple(tracks), tuple(gates), recorded=False)


def _track(one: Aggregator, setting: Setting, add_s_per_gb: float) -> Track:
    return Track(
        f"{one.level}-{one.number}",
        "invocation",
        one.number,
        tuple(_steps(one, setting, add_s_per_gb)),
        setting.memory_mb,
        init_cpu_ns=round(INIT_S * NS),
        epoch=0,
    )


def _steps(one: Aggregator, setting: Setting, add_s_per_gb: float) -> Iterator[Step]:
    size = 4 * setting.parameters
    if one.shard is not None:
        part = slices(setting.parameters, setting.shards)[one.shard]
        size = 4 * (part.stop - part.start)
    # Read one, add it, read the next, and so on.
    for _ in one.inputs:
        yield Step("object.get", "synchronise", requests=1, bytes=size)
        yield Step("reduce", "synchronise", round(add_s_per_gb * size))
    yield Step("object.put", "synchronise", requests=1, bytes=size)


def play_round(
    setting: Setting, add_s_per_gb: float, profile: Profile, spread: float = 0.0, *, cold: bool = False
) -> Round:
    """Return one round on a profile, with warm or cold environments and the account's concurrency.

    `spread` is the standard deviation of the logarithm of the times of equal functions. A level of the tree takes the
    expected time of its slowest function.
    """
    timeline = play(make_program(setting, add_s_per_gb, cold=cold), with_concurrency(profile, CONCURRENCY))
    tracks = zip(timeline.program.tracks, timeline.calls, strict=True)
    of_levels = grouped((track.name.partition("-")[0], call) for track, call in tracks if track.epoch == 0)
    wall = slowest = 0.0
    for calls in of_levels.values():
        lasted = [(call.ended - call.began) / NS for call in calls]
        slower = math.exp(spread * slowest_of(len(calls)))
        wall += slower * (max(call.ended for call in calls) - min(call.accepted for call in calls)) / NS
        slowest = max(slowest, slower * max(lasted))
    requests = outcome(timeline).usage.object_requests
    return Round(wall, slowest, requests["object.get"], requests["object.put"])


def slowest_of(number: int) -> float:
    """Return the expected maximum of `number` standard normal numbers."""
    normal = NormalDist()
    return fmean(normal.inv_cdf(((point + 0.5) / POINTS) ** (1 / number)) for point in range(POINTS))


@dataclass(frozen=True)
class Observed:
    """A round measured on AWS: rates of one function's gets and puts (10⁶ bytes a second, medians over functions),
    seconds of the round with their standard deviation over runs, and seconds of its slowest function."""

    setting: Setting
    get_mb_s: float
    put_mb_s: float
    add_s_per_gb: float
    wall_s: float
    deviation_s: float
    slowest_s: float

    @property
    def function_s(self) -> float:
        """Return the seconds of one function, from the medians of its parts."""
        read, written = self.moved
        return read / self.get_mb_s + written / self.put_mb_s + self.add_s_per_gb * read / 1e3

    @property
    def moved(self) -> tuple[float, float]:
        """Return the bytes that one function reads and writes, in 10⁶."""
        written = 4 * self.setting.parameters / self.setting.shards / 1e6
        return self.setting.clients * written, written


@dataclass(frozen=True)
class Fitted:
    """The four fitted figures: 10⁶ bytes a second of one connection and of the refill of a function's network, the 10⁶
    bytes that it may move at once, and the spread of functions."""

    connection_mb_s: float
    refill_mb_s: float
    burst_mb: float
    spread: float

    def applied(self, base: Profile, source: str) -> Profile:
        """Return the base profile with this network and this connection to its object store."""

        def figure(value: float) -> Figure:
            return Figure(value=float(f"{value:.4g}"), status="fitted", source=source)

        network = Network(rate_mb_s=figure(self.refill_mb_s), burst_mb=figure(self.burst_mb))
        functions = base.functions.model_copy(update={"network": network})
        rate, rates = figure(self.connection_mb_s), "channels.object.operations.*.bandwidth_mb_s"
        return with_figures(base.model_copy(update={"functions": functions}), lambda *_: rate, rates)


def fit_network(observed: Sequence[Observed], base: Profile) -> Fitted:
    """Fit the four figures to measured rounds; their functions have one connection and always enough CPU.

    The three network figures minimise the squared logarithms of modelled ÷ measured time of all gets and of the put of
    one function per round. The spread is fitted to the slowest function's time ÷ the time from the medians.
    """

    def errors(guess: Sequence[float]) -> float:
        connection, refill, burst = map(math.exp, guess)
        profile = Fitted(connection, refill, burst, 0.0).applied(base, "a step of the fit")
        return sum(
            math.log(modelled / measured) ** 2
            for one in observed
            for modelled, measured in zip(
                transfers(one.setting, profile, one.add_s_per_gb),
                (read / rate for read, rate in zip(one.moved, (one.get_mb_s, one.put_mb_s), strict=True)),
                strict=True,
            )
        )

    found = minimize(
        errors, [math.log(value) for value in GUESS], method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-8}
    )
    numbers = [slowest_of(one.setting.shards) for one in observed]
    slower = [math.log(one.slowest_s / one.function_s) for one in observed]
    spread = sum(number * log for number, log in zip(numbers, slower, strict=True)) / sum(n**2 for n in numbers)
    connection, refill, burst = map(math.exp, found.x)
    return Fitted(connection, refill, burst, spread)


def transfers(setting: Setting, profile: Profile, add_s_per_gb: float) -> tuple[float, float]:
    """Return the seconds of one function's gets and of its put."""
    one = replace(setting, shards=1, topology="shards", parameters=setting.parameters // setting.shards)
    timeline = play(make_program(one, add_s_per_gb, cold=True), profile)
    took = [(end - begin) / NS for begin, end in zip(timeline.begin, timeline.end, strict=True)]
    reading, writing = (
        sum(seconds for step, seconds in zip(timeline.steps, took, strict=True) if step.op == wanted)
        for wanted in ("object.get", "object.put")
    )
    return reading, writing
