"""What containers with GPUs use, by the meters of a bill, and what a run's document says of the GPU."""

import math
from collections.abc import Iterable
from decimal import Decimal
from typing import NotRequired

# pydantic can check TypedDicts from `typing` only from Python 3.12 on.
from typing_extensions import TypedDict

from slslab.predict.environment import NS
from slslab.predict.profiles.profile import Containers
from slslab.run.bill import GPU, Hosts


class Gpu(TypedDict):
    """The GPU of a platform's functions: its kind and memory (None if unknown), MiB, and the most that an invocation
    allocated here, which is missing if functions computed on the CPU."""

    kind: str
    memory_mb: int | None
    peak_memory_mb: NotRequired[int]


def container_sizes(platform: Containers) -> dict[str, Decimal]:
    """Return what a second of a container with its GPU uses, by meter."""
    return {
        GPU + platform.gpu: Decimal(1),
        "container.vcpu": Decimal(str(platform.vcpus.value)),
        "container.memory": Decimal(int(platform.memory_mb.value)) / 1024,
    }


def container_usage(platform: Containers | None, lives: Iterable[tuple[bool, int, int]]) -> tuple[float, Hosts, Hosts]:
    """Return the billed seconds of containers, and what they used while they ran and while they waited to be stopped,
    as (meter, quantity); nothing on a platform that bills invocations.

    A life tells whether the container computes, so that it has a GPU, its billed start, and the end of its last
    invocation, ns.
    """
    if platform is None:
        return 0.0, (), ()
    unit_s, least_s, idle_s = (
        Decimal(str(figure.value)) for figure in (platform.unit_s, platform.least_s, platform.idle_s)
    )
    sizes = container_sizes(platform)
    total, running, idle = Decimal(0), dict.fromkeys(sizes, Decimal(0)), dict.fromkeys(sizes, Decimal(0))
    for computes, begun, ended in lives:
        seconds = Decimal(ended - begun) / NS
        billed = max(least_s, math.ceil((seconds + idle_s) / unit_s) * unit_s)
        total += billed
        for meter, size in sizes.items():
            if computes or not meter.startswith(GPU):
                running[meter] += (billed - idle_s) * size
                idle[meter] += idle_s * size
    return float(total), tuple(running.items()), tuple(idle.items())
