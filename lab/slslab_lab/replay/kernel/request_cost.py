"""The cost of a request on a profile, in whole nanoseconds.

This is the only way by which a profile's latencies and bandwidths (S3's are in `profiles/aws-us-east-1.toml`) reach the
kernel.
"""

from dataclasses import dataclass
from typing import Self

from slslab.predict.profiles.profile import Figure, Profile, to_ns
from slslab_workers.trace.operations import ALL_REDUCE, MOVES

SENDS = frozenset(op for op, moves in MOVES.items() if moves == "in") | {"queue.publish"}


@dataclass(frozen=True, slots=True)
class RequestCost:
    """Latency (ns), transfer time and the client's minimum CPU time (ns per byte) of one operation's requests.

    `sends` says whether the bytes leave the function. `first` is the additional time of an environment's first request.
    `servers` is the number of requests that the channel serves at once (0: any number); each occupies a server for
    `service` plus its bytes times `service_per_byte`. `per_worker` says whether each worker has its own servers.
    """

    channel: str
    latency: int
    first: int
    per_byte: float
    cpu_per_byte: float
    sends: bool
    servers: int = 0
    per_worker: bool = False
    service: int = 0
    service_per_byte: float = 0.0

    @classmethod
    def of(cls, profile: Profile, op: str, machine: str = "") -> Self:
        """Return the cost of an operation such as `object.put`; RequestError if the profile doesn't know it.

        Messages between instances cost what the profile says for their type, `machine`.
        """
        name = op.partition(".")[0]
        operation = profile.between(machine) if op == ALL_REDUCE else profile.operation(op)
        # Milliseconds per 10⁶ bytes are nanoseconds per byte.
        cpu_per_byte = operation.cpu_ms_per_mb.value if operation.cpu_ms_per_mb else 0.0
        times = (to_ns(operation.latency_ms), to_ns(operation.first_ms), _per_byte(operation.bandwidth_mb_s))
        client = (name, *times, cpu_per_byte, op in SENDS)
        channel = profile.channels.get(name)
        server = channel.server if channel is not None else None
        if channel is None or server is None:
            return cls(*client)
        service = (to_ns(server.service_ms), _per_byte(server.bandwidth_mb_s))
        return cls(*client, int(server.servers.value), channel.per_worker, *service)

    @property
    def half(self) -> int:
        """How long before its end a request takes effect, in ns."""
        return self.latency // 2


def _per_byte(bandwidth_mb_s: Figure | None) -> float:
    return 1e3 / bandwidth_mb_s.value if bandwidth_mb_s else 0.0
