"""Execution environments in a replay: their share of processors, and how many of them there may be."""

import math
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Self

from slslab.replay.profiles import Instances, Profile
from slslab.replay.program import Track
from slslab_workers.plan import thread_count

NS = 1_000_000_000


class Environment:
    """One environment, or one instance: so many CPU nanoseconds in each period, and no more.

    `seen` holds the operations that it has asked for.
    """

    __slots__ = ("period", "period_ns", "quota", "seen", "serial", "speed", "threads", "used")

    def __init__(self, share: float, memory_mb: int, profile: Profile, speeds: tuple[float, ...]) -> None:
        """`speeds` are those of ordinary and of parallel work; an infinite share is that of a machine of its own."""
        self.period_ns = round(profile.compute.period_ms.value * 1e6)
        self.quota = round(share * self.period_ns) if math.isfinite(share) else 0
        self.threads = thread_count(memory_mb)
        self.speed = speeds
        self.serial = 1.0 - profile.compute.parallel.value
        self.seen: set[str] = set()
        self.period = 0
        self.used = 0

    @classmethod
    def of_instance(cls, known: Instances, memory_mb: int, profile: Profile) -> Self:
        """An instance, whose processors are its own."""
        return cls(math.inf, memory_mb, profile, (known.host_speed.value, known.compute_speed.value))

    def burn(self, now: int, cpu_ns: int, parallel: bool) -> int:
        """When so much work, begun now, is done."""
        work = round(cpu_ns / self.speed[parallel])
        if not parallel or self.threads == 1:
            return self._spend(now, work, 1)
        serial = round(work * self.serial)
        return self._spend(self._spend(now, serial, 1), work - serial, self.threads)

    def repeat(self, now: int, cpu_ns: int, pause_ns: int, until: int) -> tuple[int, int]:
        """Do so much work with such a pause after it, again and again, as long as it begins before `until`: when the
        next one would begin, and how many there were."""
        work = round(cpu_ns / self.speed[False])
        spaced, times = work + pause_ns, 0
        # What was used up before counts no more after a period; then all take as long, if the share lasts for them.
        settled = now + 2 * self.period_ns
        lasts = not self.quota or (self.period_ns // max(1, spaced) + 2) * work <= self.quota
        while now < until:
            if lasts and now >= settled and (skipped := (until - 2 * self.period_ns - now) // max(1, spaced)) > 0:
                # The last ones are done again, so that what they use up of their periods is known.
                now += skipped * spaced
                times += skipped
                lasts = False
            now = self.burn(now, cpu_ns, False) + pause_ns
            times += 1
        return now, times

    def _spend(self, now: int, work: int, rate: int) -> int:
        if not self.quota or self.quota >= rate * self.period_ns:
            return now + -(-work // rate)
        while work > 0:
            period = now // self.period_ns
            if period != self.period:
                self.period, self.used = period, 0
                # Whole periods in one go.
                if whole := (work - 1) // self.quota if now == period * self.period_ns else 0:
                    now += whole * self.period_ns
                    work -= whole * self.quota
                    self.period += whole
            end = (self.period + 1) * self.period_ns
            able = min(self.quota - self.used, (end - now) * rate)
            if work <= able:
                self.used += work
                return now + -(-work // rate)
            self.used += able
            work -= able
            now = end
        return now


@dataclass(frozen=True, slots=True)
class Lease:
    """An environment for one invocation: when its handler begins (ns), after an init of so many ns if it is new."""

    environment: Environment
    began: int
    init_ns: int = 0
    cold: bool = False


class _Idle:
    """Environments of a function that are given back; the one that was so last is taken first."""

    __slots__ = ("busy", "given", "ready")

    def __init__(self) -> None:
        self.given = 0
        # By when they are idle, and, once they are, the last one first.
        self.busy: list[tuple[int, int, Environment]] = []
        self.ready: list[tuple[int, Environment]] = []

    def add(self, when: int, environment: Environment) -> None:
        self.given -= 1
        heappush(self.busy, (when, self.given, environment))

    def take(self, now: int) -> Environment | None:
        while self.busy and self.busy[0][0] <= now:
            _, number, environment = heappop(self.busy)
            heappush(self.ready, (number, environment))
        return heappop(self.ready)[1] if self.ready else None


class Pool:
    """The environments of all functions, within the account's concurrency and the rate at which each scales."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        functions = profile.functions
        self._warm_ns = round(functions.warm_ms.value * 1e6)
        self._cold_ns = {
            "zip": round(functions.cold_zip_ms.value * 1e6),
            "image": round(functions.cold_image_ms.value * 1e6),
        }
        self._init_wait_ns = round(functions.init_wait_ms.value * 1e6) if functions.init_wait_ms else 0
        self._free = int(functions.concurrency.value)
        self._idle: dict[str, _Idle] = {}
        # Environments that may start grow with time, up to the burst: kept as a time that each start puts forward.
        self._ramp_ns = math.ceil(NS / functions.ramp_per_s.value)
        self._burst_ns = int(functions.burst.value) * self._ramp_ns
        self._started: dict[str, int] = {}

    def take(self, track: Track, now: int) -> Lease | int | None:
        """An environment, or when a new one may start, or None: no concurrency is left."""
        if not self._free:
            return None
        idle = self._idle.setdefault(track.name, _Idle())
        if (found := idle.take(now)) is not None:
            self._free -= 1
            return Lease(found, now + self._warm_ns)
        allowed = self._started.get(track.name, -self._burst_ns) + self._ramp_ns
        if allowed > now:
            return allowed
        self._started[track.name] = max(allowed, now - self._burst_ns)
        self._free -= 1
        compute = self._profile.compute
        share = track.memory_mb / compute.vcpu_mb.value
        environment = Environment(share, track.memory_mb, self._profile, (compute.speed.value,) * 2)
        ready = now + self._cold_ns[track.package]
        inited = environment.burn(ready, track.init_cpu_ns, False) + self._init_wait_ns
        return Lease(environment, inited + self._warm_ns, inited - ready, True)

    def give_back(self, function: str, when: int, environment: Environment) -> None:
        """From `when` on (ns) the environment is idle."""
        self._idle[function].add(when, environment)

    def release(self) -> None:
        """One more invocation may run."""
        self._free += 1
