"""The profile `this-host`: AWS's profile with the figures that were measured on this host replaced."""

import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import date

from slslab.aws.limits import QUOTA_PERIOD_NS, bases
from slslab.predict.profiles.profile import Channel, Figure, Operation, Profile, Server, load_profile
from slslab_lab.calibration.host import BATCH, MODEL, SMALL, Exercise, Request, StepTime

NAME = "this-host"
BASE = "aws-us-east-1"
# Requests of at least this many bytes show the bandwidth.
LARGE = 1_000_000


def fit_host(step: StepTime, exercises: Mapping[str, Exercise], on: date) -> Profile:
    """Return the profile `this-host`: AWS's profile with the measurements in place of its figures."""
    base = load_profile(BASE)
    where = f"slslab calibrate on {platform.node()} ({len(os.sched_getaffinity(0))} processors), {on.isoformat()}"

    def measured(value: float, how: str) -> Figure:
        return Figure(value=float(f"{max(0.0, value):.4g}"), status="measured", source=f"{where}: {how}")

    compute = base.compute.model_copy(
        update={
            "speed": measured(1, "CPU seconds are this host's own"),
            "period_ms": Figure(
                value=QUOTA_PERIOD_NS / 1e6, status="measured", source=bases()["quota_period_ms"].source
            ),
        }
        | ({} if step.parallel is None else {"parallel": measured(step.parallel, f"{MODEL}, minibatch of {BATCH}")})
    )
    channels = {name: _fit_channel(exercise, base.channels[name], measured) for name, exercise in exercises.items()}
    return base.model_copy(
        update={
            "name": NAME,
            "date": on,
            "description": f"The processors and the embedded stack of {platform.node()}; the rest is {BASE}'s",
            "compute": compute,
            "channels": {**base.channels, **channels},
        }
    )


def _fit_channel(exercise: Exercise, base: Channel, measured: Callable[[float, str], Figure]) -> Channel:
    operations = {name: _fit_operation(requests, measured) for name, requests in exercise.requests.items()}
    small, large = exercise.loads[min(exercise.loads)], exercise.loads[max(exercise.loads)]
    # Work that the server's own threads do after answering delays no client, so the shortest latency is the bound.
    shortest = min(operation.latency_ms.value for operation in operations.values())
    service_ms = min(small.cpu_ms / small.requests, shortest)
    moving_ms = large.cpu_ms - service_ms * large.requests
    spent = f"CPU time of {exercise.server}"
    return Channel(
        description=f"{exercise.server} of the embedded stack, on loopback",
        operations={**base.operations, **operations},
        server=Server(
            servers=measured(len(os.sched_getaffinity(0)), "one for each processor"),
            service_ms=measured(
                service_ms, f"{spent}, mean of {small.requests} requests of up to {SMALL} bytes, within their latency"
            ),
            # Without a bandwidth limit if the CPU time for the bytes is too small to measure.
            bandwidth_mb_s=measured(large.bytes / moving_ms / 1e3, f"{spent}, {large.bytes} bytes")
            if moving_ms > 0
            else None,
        ),
    )


def _fit_operation(requests: Sequence[Request], measured: Callable[[float, str], Figure]) -> Operation:
    small = [request for request in requests if request.bytes <= SMALL]
    latency_ms = statistics.median(request.wall_ms - request.cpu_ms for request in small)
    latency = measured(latency_ms, f"median of {len(small)} requests of up to {SMALL} bytes")
    large = [request for request in requests if request.bytes >= LARGE and request.wall_ms > latency_ms]
    if not large:
        return Operation(latency_ms=latency)
    bandwidth = statistics.median(request.bytes / (request.wall_ms - latency_ms) / 1e3 for request in large)
    return Operation(
        latency_ms=latency,
        bandwidth_mb_s=measured(bandwidth, f"median of {len(large)} requests of at least {LARGE} bytes"),
    )
