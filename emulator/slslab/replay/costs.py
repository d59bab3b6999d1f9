"""What the operations of a profile take, in whole nanoseconds."""

from slslab.replay.profiles import Profile


class Cost:
    """What one operation takes.

    Latency, half of it, and what an environment's first one takes beyond it, ns; ns per byte; of its channel how many requests are
    served at once (0: all), whether each worker has a server of its own, and how long a request occupies one.
    """

    __slots__ = (
        "channel",
        "first",
        "half",
        "latency",
        "per_byte",
        "per_worker",
        "server",
        "service",
        "service_per_byte",
    )
        "channel",
        "first",
        "half",
        "latency",
        "per_byte",
        "per_worker",
        "server",
        "service",
        "service_per_byte",
    )

    def __init__(self, profile: Profile, op: str) -> None:
        found = profile.operation(op)
        self.channel = op.partition(".")[0]
        channel = profile.channels[self.channel]
        self.latency = round(found.latency_ms.value * 1e6)
        self.half = self.latency // 2
        self.first = round(found.first_ms.value * 1e6) if found.first_ms else 0
        self.per_byte = 1e3 / found.bandwidth_mb_s.value if found.bandwidth_mb_s else 0.0
        self.per_worker = channel.per_worker
        self.server, self.service, self.service_per_byte = 0, 0, 0.0
        if channel.server is not None:
            self.server = int(channel.server.servers.value)
            self.service = round(channel.server.service_ms.value * 1e6)
            bandwidth = channel.server.bandwidth_mb_s
            self.service_per_byte = 1e3 / bandwidth.value if bandwidth else 0.0
