"""The profile of the host that recorded a run, fitted to the run's own trace: `this-host`.

Of each operation it is what the request took on the Lambda clock beyond the client's own CPU time, and a script's in
its database; of a cold start, a transition and an invocation what they took beyond what runs inside. A few requests in
a period find the CPU share used up and take longer by that; the kernel has its own account of the share, so the slowest
tenth is left out.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from statistics import fmean, median
from typing import Any

import numpy as np
import numpy.typing as npt

from slslab.errors import RequestError
from slslab.replay.databases import Databases
from slslab.replay.kernel import TRANSITION
from slslab.replay.profiles import Channel, Compute, Figure, Functions, Instances, Operation, Profile
from slslab.replay.recording import BESIDE, Event, Recording, find_calls, operation
from slslab_workers.plan import VCPU_MB

Sample = tuple[int, float, float]
NAME = "this-host"
PERIOD_MS = 100.0
KEPT = 0.9
# Candidates of a bandwidth, 10⁶ bytes a second: from a slow disk's to memory's.
BANDWIDTHS = np.geomspace(10, 20_000, 153)
# Of a channel's operations those that move bytes.
MOVING = ("put", "get", "set")


def fit(recordings: Sequence[Recording], epochs: int, on: date, parallel: Figure | None = None) -> Profile:
    """The profile of the host of these recordings, from what happened before epoch `epochs` of each.

    RequestError if there is nothing to fit. `parallel` is the share of a training step that several threads do at once,
    which one run cannot tell; without it, all of it is assumed.
    """
    source = f"fitted to epochs 0 to {epochs - 1} of {', '.join(recording.plan.run for recording in recordings)}"

    def figure(value: float) -> Figure:
        return Figure(value=float(f"{max(0.0, value):.6g}"), status="measured", source=source)

    def given(value: float, why: str) -> Figure:
        return Figure(value=value, status="assumed", source=why)

    events = [each for recording in recordings for each in _served(recording)]
    # What the first epochs did not ask for (an update, while none is significant) is fitted to all that did.
    shares = {one["request_id"]: one["cpu_share"] for recording in recordings for one in recording.invocations}
    samples = _samples(events, shares) | _samples((each for each in events if each[0]["epoch"] < epochs), shares)
    if not samples:
        raise RequestError("There is no request to fit a profile to.", "fit it to a run with at least one epoch.")
    around = _around(recordings, epochs)
    channels = _channels(samples, figure)
    channels["lambda"] = Channel(
        description="Lambda's API", operations={"invoke": Operation(latency_ms=figure(around["invoke"]))}
    )
    return Profile(
        name=NAME,
        date=on,
        description="The host that recorded the run, with the share of its processors that Lambda would give.",
        compute=Compute(
            speed=figure(1.0),
            parallel=parallel or given(1.0, "nothing was measured at two memory sizes"),
            period_ms=Figure(
                value=PERIOD_MS, status="documented", source="the emulator's own CPU quota (docs/design.md)"
            ),
            vcpu_mb=Figure(value=VCPU_MB, status="documented", source="AWS Lambda developer guide, memory"),
        ),
        functions=Functions(
            cold_zip_ms=figure(around["cold"]),
            cold_image_ms=figure(around["cold"]),
            warm_ms=figure(around["warm"]),
            concurrency=given(1e6, "the emulator's account limit is not reached by runs on one host"),
            burst=given(1e6, "environments start at once"),
            ramp_per_s=given(1e6, "environments start at once"),
        ),
        transition_ms=figure(around["transition"]),
        channels=channels,
        instances={
            one["type"]: Instances(boot_s=figure(0), compute_speed=figure(1), host_speed=figure(1))
            for recording in recordings
            for one in recording.instances
        },
    )


@dataclass
class Samples:
    """Bytes, wall ms on the Lambda clock, and those of the CPU time, of an operation's requests.

    `first` are each environment's first ones, `later` the rest.
    """

    first: list[Sample] = field(default_factory=list)
    later: list[Sample] = field(default_factory=list)

    @property
    def usual(self) -> list[Sample]:
        """Those that tell what the operation usually takes."""
        return self.later or self.first


def _served(recording: Recording) -> Iterator[tuple[Event, int]]:
    """Each event, with the CPU ns that a database spent on its script."""
    databases = Databases(recording.events)
    return ((event, databases.script_ns(event)) for event in recording.events)


def _samples(events: Iterable[tuple[Event, int]], shares: Mapping[str, float]) -> dict[str, Samples]:
    """Of each operation its requests that succeeded."""
    found: dict[str, Samples] = defaultdict(Samples)
    seen = set()
    for event, served_ns in events:
        op = operation(event)
        # A call that waits for the answer lasts as long as what it calls.
        if event["worker"] >= 0 and "." in op and not event["failed"] and op not in (*BESIDE, "lambda.invoke"):
            wall_ms = (event["end_ns"] - event["start_ns"] - event["host_delay_ns"] - served_ns) / 1e6
            cpu_ms = _busy_ms(event["cpu_ns"], shares.get(event["invocation"], 1.0))
            known = (op, event["environment"]) in seen
            seen.add((op, event["environment"]))
            kept = found[op].later if known else found[op].first
            kept.append((event["bytes"], wall_ms, cpu_ms))
    return found


def _channels(samples: Mapping[str, Samples], figure: Any) -> dict[str, Channel]:
    channels: dict[str, dict[str, Operation]] = defaultdict(dict)
    for channel in sorted({op.partition(".")[0] for op in samples}):
        own = {op.partition(".")[2]: found for op, found in samples.items() if op.startswith(f"{channel}.")}
        # Operations of one size only say nothing of bandwidth; they share that of the others.
        bandwidth = _bandwidth([found.usual for name, found in own.items() if name in MOVING])
        for name, found in own.items():
            per_byte = 1e3 / bandwidth if bandwidth and name in MOVING else 0.0
            latency = _beyond_cpu(found.usual, per_byte, _trimmed_mean)
            channels[channel][name] = Operation(
                latency_ms=figure(latency),
                first_ms=figure(_beyond_cpu(found.first, per_byte, median) - latency),
                bandwidth_mb_s=figure(bandwidth) if per_byte else None,
            )
    return {
        name: Channel(description=f"{name} on this host", operations=operations, per_worker=name == "tensor")
        for name, operations in channels.items()
    }


def _beyond_cpu(samples: Sequence[Sample], per_byte: float, typical: Callable[[list[float]], float]) -> float:
    return typical([wall - max(cpu, size * per_byte / 1e6) for size, wall, cpu in samples])


def _busy_ms(cpu_ns: int, share: float) -> float:
    """Wall ms of so much CPU time begun at the beginning of a period, with this share of one processor."""
    quota_ns = min(1.0, share) * PERIOD_MS * 1e6
    periods, rest = divmod(cpu_ns, quota_ns)
    return periods * PERIOD_MS + rest / 1e6


def _bandwidth(samples: Sequence[Sequence[Sample]]) -> float | None:
    """The bandwidth, MB/s, with which the walls of all these requests differ least from latency + max(CPU, bytes ÷ it).

    Each operation has its own latency. None if no operation moved different sizes.
    """
    sets = [np.array(found) for found in samples]
    if all(len(np.unique(found[:, 0])) == 1 for found in sets):
        return None
    errors = [sum(_spread(found, bandwidth) for found in sets) for bandwidth in BANDWIDTHS]
    return float(BANDWIDTHS[int(np.argmin(errors))])


def _spread(found: npt.NDArray[np.float64], bandwidth: float) -> float:
    rest = found[:, 1] - np.maximum(found[:, 2], found[:, 0] / 1e3 / bandwidth)
    return float(np.abs(rest - np.median(rest)).sum())


def _trimmed_mean(values: Sequence[float]) -> float:
    return fmean(sorted(values)[: max(1, round(len(values) * KEPT))])


def _around(recordings: Sequence[Recording], epochs: int) -> dict[str, float]:
    """Mean ms around an invocation: of a cold start beside its init, of a warm one, of its call, of its transition."""
    found: dict[str, list[float]] = {"cold": [], "warm": [], "invoke": [], "transition": []}
    for recording in recordings:
        records = {record["request_id"]: record for record in recording.invocations}
        spans = {e["invocation"]: e for e in recording.events if e["op"] == "invoke" and e["worker"] < 0}
        starts = {e["invocation"]: e for e in recording.events if e["op"] == "environment.start"}
        for invocation, span in spans.items():
            record = records.get(invocation)
            if record is None:
                continue
            before = (record["start_ns"] - span["start_ns"]) / 1e6
            if not record["cold_start"]:
                found["warm"].append(before)
            elif invocation in starts:
                start = starts[invocation]
                init = (start["end_ns"] - start["start_ns"]) / 1e6
                found["cold"].append(before - init)
        for number, invocation in find_calls(recording.events).items():
            event, inside = recording.events[number], spans[invocation]
            # A call that is answered at once (an event) does not span what it calls.
            took = event["end_ns"] - event["start_ns"] - (min(event["end_ns"], inside["end_ns"]) - inside["start_ns"])
            found["invoke"].append(took / 1e6 - _busy_ms(event["cpu_ns"], records[event["invocation"]]["cpu_share"]))
        for event in recording.events:
            if event["op"] == TRANSITION and event["invocation"] in spans and 0 <= event["epoch"] < epochs:
                inside = spans[event["invocation"]]
                took = event["end_ns"] - event["start_ns"] - (inside["end_ns"] - inside["start_ns"])
                found["transition"].append(took / 1e6)
    return {name: _trimmed_mean(values) if values else 0.0 for name, values in found.items()}
