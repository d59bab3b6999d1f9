"""Fit the profile `this-host` of the host that recorded a run to the run's own trace.

An operation's latency is the time its requests took on the Lambda clock minus the client's CPU time and the CPU time of
a script in the database. For cold starts, transitions and invocations it is the time beyond what runs inside them. In
each period a few requests take longer because the CPU share is used up. The kernel models the share itself, so the fit
ignores the slowest tenth.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from functools import partial
from statistics import fmean, median
from typing import Any

import numpy as np
import numpy.typing as npt

from slslab.predict.invocation import FORMER_PERIOD_MS
from slslab.predict.profiles.profile import Channel, Compute, Figure, Functions, Instances, Operation, Profile
from slslab.run.metrics import lambda_clock_ns
from slslab.run.run import Run
from slslab_lab.replay.kernel.kernel import TRANSITION
from slslab_lab.replay.programs.recording import BESIDE, Databases, Event, find_calls, operation
from slslab_workers.plan import VCPU_MB

# A request: bytes, wall ms on the Lambda clock, and wall ms of CPU time.
Sample = tuple[int, float, float]
# An operation's requests: the first ones of each environment, and the rest.
Samples = tuple[list[Sample], list[Sample]]
NAME = "this-host"
KEPT = 0.9
# Bandwidths to try, in 10⁶ bytes a second: from a slow disk's to memory's.
BANDWIDTHS = np.geomspace(10, 20_000, 153)
# The operations of a channel that move bytes.
MOVING = ("put", "get", "set")


def fit(recordings: Sequence[Run], epochs: int, on: date, parallel: Figure | None = None) -> Profile:
    """Return the profile of the host of these recordings, fitted to what happened before epoch `epochs` of each.

    `parallel` is the share of a training step that threads do in parallel,
    which one run can't show; without it the whole step counts as parallel.
    """
    source = f"fitted to epochs 0 to {epochs - 1} of {', '.join(recording.plan.run for recording in recordings)}"

    def figure(value: float) -> Figure:
        return Figure(value=float(f"{max(0.0, value):.6g}"), status="fitted", source=source)

    quota = partial(Figure, status="documented", source="the emulator's own CPU quota (docs/design.md)")
    at_once = partial(Figure, status="assumed", source="environments start at once")
    databases = ((recording, Databases(recording.events)) for recording in recordings)
    events = [(event, served.server_ns(event)) for recording, served in databases for event in recording.events]
    records = [record for recording in recordings for record in recording.invocations]
    init_shares = [record["init_cpu_share"] for record in records if record.get("init_cpu_share")]
    period_ms = _period_ms(records[0]) if records else FORMER_PERIOD_MS
    shares = {record["request_id"]: (record["cpu_share"], _period_ms(record)) for record in records}
    # Fit an operation that the first epochs lack (an update, while none is significant) to all epochs.
    samples = _samples(events, shares) | _samples((each for each in events if each[0]["epoch"] < epochs), shares)
    around = _around(recordings, epochs)
    channels = _channels(samples, figure)
    channels["lambda"] = Channel(
        description="Lambda's API", operations={"invoke": Operation(latency_ms=figure(around["invoke"]))}
    )
    return Profile(
        name=NAME,
        date=on,
        description="The host that recorded the run, with the share of its processors that Lambda would grant.",
        compute=Compute(
            speed=figure(1.0),
            parallel=parallel or Figure(value=1.0, status="assumed", source="nothing was measured at two memory sizes"),
            period_ms=quota(value=period_ms),
            vcpu_mb=Figure(value=VCPU_MB, status="documented", source="AWS Lambda developer guide, memory"),
            init_vcpus=quota(value=min(init_shares)) if init_shares else None,
        ),
        functions=Functions(
            cold_zip_ms=figure(around["cold"]),
            cold_image_ms=figure(around["cold"]),
            warm_ms=figure(around["warm"]),
            concurrency=Figure(
                value=1e6, status="assumed", source="the emulator's account limit is not reached by runs on one host"
            ),
            burst=at_once(value=1e6),
            ramp_per_s=at_once(value=1e6),
        ),
        transition_ms=figure(around["transition"]),
        channels=channels,
        instances={
            one["type"]: Instances(boot_s=figure(0), compute_speed=figure(1), host_speed=figure(1))
            for recording in recordings
            for one in recording.instances
        },
    )


def _samples(events: Iterable[tuple[Event, int]], shares: Mapping[str, tuple[float, int]]) -> dict[str, Samples]:
    samples: dict[str, Samples] = defaultdict(lambda: ([], []))
    seen = set()
    for event, server_ns in events:
        op = operation(event)
        # A call that waits for the answer lasts as long as the invocation it makes.
        if event["worker"] >= 0 and "." in op and not event["failed"] and op not in (*BESIDE, "lambda.invoke"):
            wall_ms = (lambda_clock_ns(event) - server_ns) / 1e6
            cpu_ms = _busy_ms(event["cpu_ns"], *shares.get(event["invocation"], (1.0, FORMER_PERIOD_MS)))
            of_environment = (op, event["environment"])
            samples[op][of_environment in seen].append((event["bytes"], wall_ms, cpu_ms))
            seen.add(of_environment)
    return samples


def _channels(samples: Mapping[str, Samples], figure: Any) -> dict[str, Channel]:
    channels: dict[str, dict[str, Operation]] = defaultdict(dict)
    for channel in sorted({op.partition(".")[0] for op in samples}):
        by_name = {op.partition(".")[2]: requests for op, requests in samples.items() if op.startswith(f"{channel}.")}
        # Operations with a single size can't show a bandwidth, so they share the other operations' bandwidth.
        bandwidth = _bandwidth([later or first for name, (first, later) in by_name.items() if name in MOVING])
        for name, (first, later) in by_name.items():
            per_byte = 1e3 / bandwidth if bandwidth and name in MOVING else 0.0
            latency = _beyond_cpu(later or first, per_byte, _trimmed_mean)
            channels[channel][name] = Operation(
                latency_ms=figure(latency),
                first_ms=figure(_beyond_cpu(first, per_byte, median) - latency),
                bandwidth_mb_s=figure(bandwidth) if per_byte else None,
            )
    return {
        name: Channel(description=f"{name} on this host", operations=operations, per_worker=name == "tensor")
        for name, operations in channels.items()
    }


def _beyond_cpu(samples: Sequence[Sample], per_byte: float, typical: Callable[[list[float]], float]) -> float:
    return typical([wall - max(cpu, size * per_byte / 1e6) for size, wall, cpu in samples])


def _period_ms(record: Mapping[str, Any]) -> int:
    return int(record.get("quota_period_ms") or FORMER_PERIOD_MS)


def _busy_ms(cpu_ns: int, share: float, period_ms: int) -> float:
    """Return the wall ms of CPU time that starts with a period, given this share of one processor."""
    quota_ns = min(1.0, share) * period_ms * 1e6
    periods, rest = divmod(cpu_ns, quota_ns)
    return periods * period_ms + rest / 1e6


def _bandwidth(samples: Sequence[Sequence[Sample]]) -> float | None:
    """Return the bandwidth in MB/s at which the wall times are closest to latency + max(CPU, bytes ÷ bandwidth).

    Each operation has its own latency. None if no operation moved different sizes.
    """
    tables = [np.array(requests) for requests in samples]
    if all(len(np.unique(table[:, 0])) == 1 for table in tables):
        return None
    errors = [sum(_spread(table, bandwidth) for table in tables) for bandwidth in BANDWIDTHS]
    return float(BANDWIDTHS[int(np.argmin(errors))])


def _spread(table: npt.NDArray[np.float64], bandwidth: float) -> float:
    latencies = table[:, 1] - np.maximum(table[:, 2], table[:, 0] / 1e3 / bandwidth)
    return float(np.abs(latencies - np.median(latencies)).sum())


def _trimmed_mean(values: Sequence[float]) -> float:
    return fmean(sorted(values)[: max(1, round(len(values) * KEPT))])


def _around(recordings: Sequence[Run], epochs: int) -> dict[str, float]:
    """Return the mean ms that a cold start takes in addition to its init, and that a warm start, a call and a
    transition take."""
    times: dict[str, list[float]] = {"cold": [], "warm": [], "invoke": [], "transition": []}
    for recording in recordings:
        records = {record["request_id"]: record for record in recording.invocations}
        spans = {e["invocation"]: e for e in recording.events if e["op"] == "invoke" and e["worker"] < 0}
        starts = {e["invocation"]: e for e in recording.events if e["op"] == "environment.start"}
        for invocation in spans.keys() & records.keys():
            record = records[invocation]
            before_ms = (record["start_ns"] - spans[invocation]["start_ns"]) / 1e6
            if not record["cold_start"]:
                times["warm"].append(before_ms)
            elif invocation in starts:
                times["cold"].append(before_ms - _wall_ns(starts[invocation]) / 1e6)
        for number, invocation in find_calls(recording.events).items():
            event, inside = recording.events[number], spans[invocation]
            # An asynchronous call ends before the invocation it makes.
            inside_ns = min(event["end_ns"], inside["end_ns"]) - inside["start_ns"]
            record = records[event["invocation"]]
            cpu_ms = _busy_ms(event["cpu_ns"], record["cpu_share"], _period_ms(record))
            times["invoke"].append((_wall_ns(event) - inside_ns) / 1e6 - cpu_ms)
        for event in recording.events:
            if event["op"] == TRANSITION and event["invocation"] in spans and 0 <= event["epoch"] < epochs:
                times["transition"].append((_wall_ns(event) - _wall_ns(spans[event["invocation"]])) / 1e6)
    return {name: _trimmed_mean(values) if values else 0.0 for name, values in times.items()}


def _wall_ns(event: Event) -> int:
    return int(event["end_ns"] - event["start_ns"])
