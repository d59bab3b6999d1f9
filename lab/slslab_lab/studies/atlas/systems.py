"""The systems of the atlas: an architecture with a channel and an algorithm.

To add an architecture, add an entry to SYSTEMS; `slslab atlas --record` then makes its recordings.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from slslab_lab.studies.recording import channel_options
from slslab_workers.channels.choice import PARAMETER_SERVER
from slslab_workers.plan import Value
from slslab_workers.training.algorithms import ALGORITHM

S3 = "s3"
# The recorded networks, from the smallest to the largest.
MODELS = ("lenet", "mobilenet", "resnet18")


@dataclass(frozen=True)
class System:
    """An architecture, with the values of --channel and --algorithm where it has them.

    `equal` systems update every model with all workers' gradients after each minibatch, so they learn the same from the
    same data. `instances` train on machines with a fixed memory size; functions with GPUs on a `platform`.
    """

    architecture: str
    channel: str = ""
    algorithm: str = ""
    equal: bool = False
    instances: bool = False
    platform: str = ""

    @property
    def name(self) -> str:
        """Return the system's short name, such as `allreduce/memcached/ma`, or `allreduce/s3/ga on modal-t4`."""
        name = "/".join(filter(None, (self.architecture, self.channel, self.algorithm)))
        return f"{name} on {self.platform}" if self.platform else name

    @property
    def own_channel(self) -> str:
        """Return the channel that the architecture's recordings don't use, or an empty text."""
        return "" if self.channel == S3 else self.channel

    @property
    def chosen(self) -> Mapping[str, Value]:
        """Return the options that the system sets."""
        channel = channel_options(self.channel) if self.channel else {}
        return {**channel, ALGORITHM.name: self.algorithm} if self.algorithm else channel


SYSTEMS = (
    *(System("allreduce", channel, "ga", equal=True) for channel in (S3, "memcached", "redis", "dynamodb")),
    System("allreduce", PARAMETER_SERVER, "ga", equal=True),
    *(System("allreduce", channel, "ma") for channel in (S3, "memcached", PARAMETER_SERVER)),
    *(System("scatterreduce", channel, "ga", equal=True) for channel in (S3, "memcached", "redis", "dynamodb")),
    *(System("scatterreduce", channel, "ma") for channel in (S3, "memcached")),
    System("mlless"),
    System("spirt"),
    System("kubeml"),
    System("gpu", equal=True, instances=True),
    System("gloo", equal=True, instances=True),
)


def on_gpus(platform: str) -> tuple[System, ...]:
    """Return the systems with GPUs on this platform: their functions need an object store alone."""
    return tuple(System(name, S3, "ga", equal=True, platform=platform) for name in ("allreduce", "scatterreduce"))
