"""What the operations of a profile take, in whole nanoseconds, and the servers that they wait for."""

from dataclasses import dataclass
from heapq import heapreplace
from typing import Self

from slslab.replay.profiles import Profile
from slslab.replay.program import Step


@dataclass(frozen=True, slots=True)
class Cost:
    """What one operation takes: ns, and ns per byte.

    `first` is what an environment's first one takes beyond `latency`. `servers` counts how many requests the channel
    serves at once (0: all of them), of which each occupies one for `service`; `per_worker` says whether each worker has
    such servers of its own.
    """

    channel: str
    latency: int
    first: int
    per_byte: float
    servers: int = 0
    per_worker: bool = False
    service: int = 0
    service_per_byte: float = 0.0

    @classmethod
    def of(cls, profile: Profile, op: str) -> Self:
        """That of an operation such as `object.put`; ProfileError if the profile does not know it."""
        found = profile.operation(op)
        name = op.partition(".")[0]
        channel = profile.channels[name]
        own = (
            name,
            round(found.latency_ms.value * 1e6),
            round(found.first_ms.value * 1e6) if found.first_ms else 0,
            1e3 / found.bandwidth_mb_s.value if found.bandwidth_mb_s else 0.0,
        )
        server = channel.server
        if server is None:
            return cls(*own)
        per_byte = 1e3 / server.bandwidth_mb_s.value if server.bandwidth_mb_s else 0.0
        return cls(*own, int(server.servers.value), channel.per_worker, round(server.service_ms.value * 1e6), per_byte)

    @property
    def half(self) -> int:
        """When a request takes effect, before its end."""
        return self.latency // 2


class Servers:
    """What clients share: of each channel's servers, when they will be free."""

    def __init__(self) -> None:
        self._free: dict[tuple[str, int], list[int]] = {}

    def delay(self, cost: Cost, owner: int, step: Step, now: int) -> int:
        """How long a step's requests wait, ns, which arrive now at the servers of this worker, if each has its own."""
        if not cost.servers:
            return 0
        queue = self._free.setdefault((cost.channel, owner if cost.per_worker else -1), [0] * cost.servers)
        served = max(now, queue[0])
        busy = cost.service * max(1, step.requests) + round(cost.service_per_byte * step.bytes) + step.server_cpu_ns
        heapreplace(queue, served + busy)
        return served - now
