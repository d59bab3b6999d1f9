"""The environments of a replay: how many may exist, and which one an invocation gets."""

import math
from dataclasses import dataclass
from heapq import heappop, heappush

from slslab.predict.environment import NS, Environment
from slslab.predict.profiles.profile import Profile, to_ns
from slslab_lab.replay.kernel.program import Track
from slslab_workers.trace.kinds import INIT


@dataclass(frozen=True, slots=True)
class Lease:
    """An environment for one invocation: when its handler begins, and how long init took if it is new (both ns)."""

    environment: Environment
    began: int
    init_ns: int = 0
    cold: bool = False


class _Idle:
    """A function's returned environments; the last one returned is taken first."""

    __slots__ = ("busy", "number", "ready")

    def __init__(self) -> None:
        # Decreases, so that the last one returned has the smallest number.
        self.number = 0
        # Heaps: environments that will become idle, by time; idle environments, by number.
        self.busy: list[tuple[int, int, Environment]] = []
        self.ready: list[tuple[int, Environment]] = []

    def add(self, when: int, environment: Environment) -> None:
        self.number -= 1
        heappush(self.busy, (when, self.number, environment))

    def take(self, now: int) -> Environment | None:
        while self.busy and self.busy[0][0] <= now:
            _, number, environment = heappop(self.busy)
            heappush(self.ready, (number, environment))
        return heappop(self.ready)[1] if self.ready else None


class Pool:
    """The environments of all functions, within the account's concurrency and each function's scaling rate."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        functions = profile.functions
        self._warm_ns = to_ns(functions.warm_ms)
        # The number of further invocations that may begin.
        self.free = int(functions.concurrency.value)
        self._idle: dict[str, _Idle] = {}
        # The burst is a bucket that the ramp refills: a time for each function, which each start moves forward.
        self._ramp_ns = math.ceil(NS / functions.ramp_per_s.value)
        self._burst_ns = int(functions.burst.value) * self._ramp_ns
        self._started: dict[str, int] = {}

    def take(self, track: Track, now: int) -> Lease | int | None:
        """Return an environment; or when a new one may start (ns); or None if the concurrency is used up."""
        if not self.free:
            return None
        environment = self._idle.setdefault(track.name, _Idle()).take(now)
        if environment is not None:
            self.free -= 1
            return Lease(environment, now + self._warm_ns)
        allowed = self._started.get(track.name, -self._burst_ns) + self._ramp_ns
        if allowed > now:
            return allowed
        self._started[track.name] = max(allowed, now - self._burst_ns)
        self.free -= 1
        compute, functions = self._profile.compute, self._profile.functions
        memory_mb, share = self._profile.size(track.memory_mb)
        init_share = max(share, compute.init_vcpus.value) if compute.init_vcpus else share
        environment = Environment(init_share, memory_mb, self._profile, compute.speeds())
        ready = now + functions.cold_ns(track.package)
        inited = environment.compute(ready, track.init_cpu_ns, INIT) + functions.init_wait_ns(track.package)
        environment.limit_cpu(share)
        return Lease(environment, inited + self._warm_ns, inited - ready, True)

    def give_back(self, function: str, when: int, environment: Environment) -> None:
        """Keep the environment, which is idle from `when` (ns) on."""
        self._idle[function].add(when, environment)
