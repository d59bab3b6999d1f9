"""Model an execution environment on Lambda: its share of processors, its speeds, and its network."""

import math
from collections.abc import Mapping

from slslab.predict.profiles.profile import Profile, to_ns
from slslab_workers.plan import thread_count
from slslab_workers.trace.kinds import REQUESTS, Kind

NS = 1_000_000_000


class Environment:
    """An environment or an instance, with a quota of CPU nanoseconds a period, and the operations `seen` so far."""

    __slots__ = (
        "buckets", "network", "period", "period_ns", "processors", "quota", "seen", "serial", "speeds", "threads",
        "used",
    )  # fmt: skip

    def __init__(self, share: float, memory_mb: int, profile: Profile, speeds: Mapping[Kind, float]) -> None:
        """Take the `speeds` by kind of work; an infinite share means an instance."""
        self.period_ns = to_ns(profile.compute.period_ms)
        self.limit_cpu(share)
        self.threads = thread_count(memory_mb)
        # The thread figures were measured on Lambda only.
        self.processors = profile.compute.processors(self.threads) if math.isfinite(share) else self.threads
        self.speeds = speeds
        self.serial = 1.0 - profile.compute.parallel.value
        self.seen: set[str] = set()
        self.period = 0
        self.used = 0
        self.network = profile.functions.network if math.isfinite(share) else None
        # By direction, the bytes that may still be moved at once, and since when (ns).
        self.buckets: dict[bool, tuple[float, int]] = {}

    def limit_cpu(self, share: float) -> None:
        """Limit the processors to this share from now on."""
        self.quota = round(share * self.period_ns) if math.isfinite(share) else 0

    def transfer(self, now: int, size: int, sends: bool, least_ns: int) -> int:
        """Return how long it takes to move `size` bytes, begun at `now`, if the connection takes `least_ns`."""
        if self.network is None or not size:
            return least_ns
        # 10⁶ bytes a second are bytes per 1,000 ns.
        rate, most = self.network.rate_mb_s.value / 1e3, self.network.burst_mb.value * 1e6
        held, since = self.buckets.get(sends, (most, now))
        held = min(most, held + (now - since) * rate)
        took = max(least_ns, math.ceil((size - held) / rate))
        self.buckets[sends] = (min(most, held + took * rate - size), now + took)
        return took

    def compute(self, now: int, cpu_ns: int, kind: Kind, parallel: bool = False) -> int:
        """Return when work of `cpu_ns`, begun at `now`, is done; `parallel` work runs on all threads."""
        work = round(cpu_ns / self.speeds[kind])
        if not parallel or self.threads == 1:
            return self._spend(now, work, 1)
        serial = round(work * self.serial)
        return self._spend(self._spend(now, serial, 1), work - serial, self.processors)

    def repeat(self, now: int, cpu_ns: int, pause_ns: int, until: int) -> tuple[int, int]:
        """Repeat a request of `cpu_ns` followed by a pause as long as it begins before `until`; return when the next
        repetition would begin, and how many ran."""
        work = round(cpu_ns / self.speeds[REQUESTS])
        spaced, times = work + pause_ns, 0
        # After two periods, earlier use no longer counts; then all take equally long, if the share allows it.
        settled = now + 2 * self.period_ns
        lasts = not self.quota or (self.period_ns // max(1, spaced) + 2) * work <= self.quota
        while now < until:
            if lasts and now >= settled and (skipped := (until - 2 * self.period_ns - now) // max(1, spaced)) > 0:
                # The last ones are simulated one by one, so that their use of each period is known.
                now += skipped * spaced
                times += skipped
                lasts = False
            now = self.compute(now, cpu_ns, REQUESTS) + pause_ns
            times += 1
        return now, times

    def _spend(self, now: int, work: int, rate: float) -> int:
        if not self.quota or self.quota >= rate * self.period_ns:
            return now + int(-(-work // rate))
        while work > 0:
            period = now // self.period_ns
            if period != self.period:
                self.period, self.used = period, 0
                # Whole periods are skipped at once.
                if whole := (work - 1) // self.quota if now == period * self.period_ns else 0:
                    now += whole * self.period_ns
                    work -= whole * self.quota
                    self.period += whole
            end = (self.period + 1) * self.period_ns
            able = min(self.quota - self.used, int((end - now) * rate))
            if work <= able:
                self.used += work
                return now + int(-(-work // rate))
            self.used += able
            work -= able
            now = end
        return now
