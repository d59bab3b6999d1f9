"""The environments of a replay: how many may exist, and which one an invocation gets."""

import math
from collections import defaultdict
from heapq import heappop, heappush

from slslab.predict.environment import NS, Environment
from slslab.predict.profiles.profile import Profile, to_ns
from slslab_lab.replay.kernel.program import Track
from slslab_lab.replay.kernel.timeline import Call
from slslab_workers.trace.kinds import INIT


class Pool:
    """The environments of all functions, within the account's concurrency and each function's scaling rate."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        functions = profile.functions
        self._warm_ns = to_ns(functions.warm_ms)
        # The number of further invocations that may begin.
        self.free = int(functions.concurrency.value)
        # Heaps: the environments of ending invocations, by end; by function the idle ones, the last returned first.
        self._ending: list[tuple[int, int, str, Environment]] = []
        self._idle: dict[str, list[tuple[int, Environment]]] = defaultdict(list)
        # Decreases, so that the last one returned has the smallest number.
        self._number = 0
        # The burst is a bucket that the ramp refills: a time for each function, which each start moves forward.
        self._ramp_ns = math.ceil(NS / functions.ramp_per_s.value)
        self._burst_ns = int(functions.burst.value) * self._ramp_ns
        self._started: dict[str, int] = {}

    def take(self, track: Track, call: Call, now: int) -> int | None:
        """Give an invocation an environment; or return when a new one may start (ns). Call it only if some are free."""
        if idle := self._idle[track.name]:
            _, call.environment = heappop(idle)
            call.began = now + self._warm_ns
            self.free -= 1
            return None
        allowed = self._started.get(track.name, -self._burst_ns) + self._ramp_ns
        if allowed > now:
            return allowed
        self._started[track.name] = max(allowed, now - self._burst_ns)
        self.free -= 1
        compute, functions = self._profile.compute, self._profile.functions
        memory_mb, share = self._profile.size(track.memory_mb)
        init_share = max(share, compute.init_vcpus.value) if compute.init_vcpus else share
        call.environment = Environment(init_share, memory_mb, self._profile, compute.speeds())
        ready = now + functions.cold_ns(track.package)
        inited = call.environment.compute(ready, track.init_cpu_ns, INIT) + functions.init_wait_ns(track.package)
        call.environment.limit_cpu(share)
        call.init_ns = inited - ready
        call.cold = True
        call.began = inited + self._warm_ns
        return None

    def give_back(self, function: str, when: int, environment: Environment) -> None:
        """Take the environment of an invocation that ends at `when` (ns); `release` makes it idle."""
        self._number -= 1
        heappush(self._ending, (when, self._number, function, environment))

    def release(self) -> None:
        """Make the environment that ends first idle. Call it once for each that was given back, when it ends."""
        _, number, function, environment = heappop(self._ending)
        heappush(self._idle[function], (number, environment))
        self.free += 1
