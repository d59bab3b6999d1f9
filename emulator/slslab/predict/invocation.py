"""Predict how long one metered invocation takes on Lambda: init, duration and billed time, each with its 80 % range.

Its parts are predicted separately. CPU time is multiplied by the processor's factor for its kind of work, and lasts as
long as Lambda's quota makes it. Requests that our S3 server answered take the profile's time. All other waits stay as
measured on this host.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from slslab.aws.limits import billed_ms
from slslab.errors import RequestError, RunError
from slslab.predict.accuracy import mean_errors
from slslab.predict.anchors import Z80, Architecture
from slslab.predict.processor import UNKNOWN, Factor, Processor
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import Profile, load_profile
from slslab.predict.uncertainty import PER_MEAN_ERROR
from slslab_workers.trace.kinds import HANDLER_KINDS, INIT
from slslab_workers.trace.operations import BILLED, billed_requests

# Sources of a range, in addition to the kinds of work.
REQUESTS, HOST_WAITS, QUOTA, THREADS = "requests", "host waits", "quota", "threads"
# The period of records from before 28 November 2026, which don't contain it; init ran with the memory size's share.
FORMER_PERIOD_MS = 100
# A phase may begin anywhere in a period: 80 % of all moments are at most this share of the period from its middle.
MIDDLE_80 = 0.4
# Work that used more processors than ONE_THREAD ran in several threads. Where it could have had fewer than ENOUGH
# processors, it may have threads that didn't show.
ONE_THREAD, ENOUGH = 1.05, 1.25
TIMED_OUT = "Sandbox.Timedout"
S3 = "object."
Record = Mapping[str, Any]
Moved = Mapping[str, float]


@dataclass(frozen=True)
class Range:
    """A figure and the ends of its 80 % range."""

    value: float
    low: float
    high: float

    def __add__(self, other: "Range") -> "Range":
        """Return the sum with a figure that has the same errors, so that the ends add up, too."""
        return Range(self.value + other.value, self.low + other.low, self.high + other.high)


NOTHING = Range(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Request:
    """A request that one of our servers answered for a function, or for the event source that invokes it.

    `op` is its operation as in a trace (`object.get`), and `size` the bytes that it moved. Times are ns of
    CLOCK_MONOTONIC.
    """

    op: str
    start_ns: int
    end_ns: int
    size: int

    @property
    def is_poll(self) -> bool:
        """Whether an event source made it, outside any invocation."""
        return self.op.endswith("poll")

    @property
    def took_ms(self) -> float:
        """How long the request took here, ms."""
        return (self.end_ns - self.start_ns) / 1e6


@dataclass(frozen=True)
class Prediction:
    """The predicted times of an invocation on Lambda, ms.

    `parts` are the milliseconds of `init`, and of the duration's `cpu`, `requests` and other `waits`. `timed_out` means
    that the function was stopped at its timeout here, so its duration on Lambda may be anything up to the timeout.
    """

    init_ms: Range | None
    duration_ms: Range
    billed_ms: Range
    parts: Mapping[str, float]
    timed_out: bool = False


@dataclass(frozen=True)
class _Quota:
    share: float
    period_ms: float

    def wall_ms(self, cpu_ms: float) -> float:
        """Return how long one thread takes for this much CPU time, if it begins with a period."""
        work, period = round(cpu_ms * 1e6), round(self.period_ms * 1e6)
        quota = round(min(1.0, self.share) * period) or period
        return (work + max(0, work - 1) // quota * (period - quota)) / 1e6

    def holds_back(self, cpu_ms: float) -> bool:
        return self.share < 1 and cpu_ms > self.share * self.period_ms


@dataclass(frozen=True)
class _Phase:
    """An init or an invocation as measured here, ms, with the quotas that hold it back here and on Lambda."""

    kind: str
    took_ms: float
    cpu_ms: float
    uncertain_ms: float
    requests: Sequence[Request]
    requests_ms: float
    here: _Quota
    there: _Quota
    lambda_waits_ms: float = 0.0
    # Whether more threads may run at once there than could here.
    more_threads: bool = False

    @cached_property
    def busy_ms(self) -> float:
        """The part of the time that the CPU time took, held back by the quota; the rest is waits."""
        return min(self.took_ms, self.here.wall_ms(self.cpu_ms))

    @cached_property
    def waits_ms(self) -> float:
        """Waits for anything except our servers and Lambda itself."""
        waits_ms = self.took_ms - self.busy_ms - sum(request.took_ms for request in self.requests)
        return max(0.0, waits_ms) + self.lambda_waits_ms

    def computing_ms(self, factor: float) -> float:
        """Return how long the CPU time takes on Lambda, if a CPU second here is `factor` seconds there."""
        if not (alone_ms := self.here.wall_ms(self.cpu_ms)):
            return 0.0
        # Below 1 if threads ran at once, or if the phase began in the middle of a period.
        share = self.busy_ms / alone_ms
        return max(share * self.there.wall_ms(self.cpu_ms * factor), self.least_ms(factor))

    def least_ms(self, factor: float) -> float:
        """Return the least that the CPU time takes on Lambda: threads share the quota that one of them would have."""
        if self.there.share < 1 and self.cpu_ms > self.took_ms:
            return self.there.wall_ms(self.cpu_ms * factor)
        return self.cpu_ms * factor / max(1.0, self.there.share)

    def sources(self, factor: float) -> list[str]:
        present = (
            (self.kind, self.cpu_ms),
            (REQUESTS, self.requests_ms),
            (HOST_WAITS, self.uncertain_ms),
            (QUOTA, self.there.holds_back(self.cpu_ms * factor)),
            (THREADS, self.more_threads),
        )
        return [source for source, matters in present if matters]

    def parts(self, factor: Factor, requests_deviation: float, moved: Moved) -> dict[str, float]:
        """Return the parts on Lambda, ms, with sources of error moved by these standard scores."""
        there = factor.value * math.exp(factor.deviation * moved.get(self.kind, 0.0))
        swing_ms = moved.get(QUOTA, 0.0) / Z80 * MIDDLE_80 * self.there.period_ms
        if not self.there.holds_back(self.cpu_ms * there):
            swing_ms = 0.0
        hidden_ms = min(self.uncertain_ms, self.waits_ms) if moved.get(HOST_WAITS, 0.0) < 0 else 0.0
        at_once = self.more_threads and moved.get(THREADS, 0.0) < 0
        computing_ms = self.least_ms(there) if at_once else self.computing_ms(there)
        return {
            "cpu": max(self.least_ms(there), computing_ms + swing_ms),
            "requests": self.requests_ms * math.exp(requests_deviation * moved.get(REQUESTS, 0.0)),
            "waits": self.waits_ms - hidden_ms,
        }


@dataclass(frozen=True)
class Model:
    """An invocation as Lambda would run it. Figures of several can be moved together by the errors that they share.

    `moved` are standard scores by source of error: the kinds of work, REQUESTS, HOST_WAITS, QUOTA and THREADS.
    """

    phases: Mapping[str, _Phase]
    factors: Mapping[str, Factor]
    requests_deviation: float

    @property
    def sources(self) -> list[str]:
        """The sources of error that matter to it."""
        phases = self.phases.values()
        return list(dict.fromkeys(name for phase in phases for name in phase.sources(self.factors[phase.kind].value)))

    def figures(self, moved: Moved) -> dict[str, float]:
        """Return ms of init (if there is one) and duration, and their total."""
        sums = {name: sum(parts.values()) for name, parts in self._parts(moved).items()}
        return {**sums, "total": sum(sums.values())}

    def prediction(self) -> Prediction:
        """Return its figures with their ranges."""
        ranges, plain = _ranges(self.figures, self.sources), self._parts({})
        init_ms = sum(plain.get("init", {}).values())
        parts = {"init": init_ms, **plain["duration"]}
        return Prediction(ranges.get("init"), ranges["duration"], _billed(ranges["total"]), parts)

    def _parts(self, moved: Moved) -> dict[str, dict[str, float]]:
        deviation = self.requests_deviation
        return {name: phase.parts(self.factors[phase.kind], deviation, moved) for name, phase in self.phases.items()}


@dataclass(frozen=True)
class Predictor:
    """Predicts the times on Lambda of invocations that were metered on one host.

    `processor` compares the host's processor with Lambda's. If the profile's speed was measured or fitted (to AWS's
    REPORT lines), that speed is used instead. `kind` is the handlers' kind of work. `enforced` tells whether the host
    held functions to their CPU share.
    """

    processor: Processor
    profile: Profile
    kind: str = UNKNOWN
    enforced: bool = True

    def predict(self, record: Record, requests: Sequence[Request] = ()) -> Prediction:
        """Return an invocation's predicted times on Lambda, from its metered record and its requests to our servers.

        RunError as for `model`.
        """
        prediction = self.model(record, requests).prediction()
        return _stopped(prediction, record["duration_ms"]) if record["error_type"] == TIMED_OUT else prediction

    def model(
        self, record: Record, requests: Sequence[Request] = (), memory_mb: int | None = None, cores: int | None = None
    ) -> Model:
        """Return the invocation as Lambda would run it, with another memory size if one is given.

        `cores` are this host's processors. With more vCPUs than the invocation could have here, more threads may run at
        once; only if it had clearly more than one and used no more than that, it has one thread.

        RunError for a cold start from before 0.2, which doesn't separate init's CPU time from the invocation's.
        """
        init_cpu_ms = record.get("init_cpu_ms")
        if record["init_ms"] is not None and init_cpu_ms is None:
            raise RunError(
                f"{record['function']} was recorded by a version before 0.2, without the CPU time of its init.",
                "invoke it again, in another `slslab up`.",
            )
        # The profile doesn't know SQS, so waits for it stay as measured.
        made = _clipped([request for request in requests if request.op.startswith(S3)], record["end_ns"])
        uncertain_ms = record.get("uncertain_ms") or 0.0
        cpu_ms = max(0.0, record["cpu_ms"] - (init_cpu_ms or 0.0))
        later = [request for request in made if request.start_ns >= record["start_ns"]]
        shares = record["cpu_share"], (memory_mb or record["memory_mb"]) / self.profile.compute.vcpu_mb.value
        duration = self._phase(record, self.kind, record["duration_ms"], cpu_ms, uncertain_ms, later, shares)
        if memory_mb is not None:
            able = min(duration.here.share, cores or math.inf)
            several = able < ENOUGH or cpu_ms > ONE_THREAD * record["duration_ms"]
            duration = replace(duration, more_threads=several and shares[1] > max(1.0, able))
        phases = {"duration": duration}
        if init_cpu_ms is not None:
            left_ms = max(0.0, uncertain_ms - duration.waits_ms)
            early = _clipped([request for request in made if request not in later], record["start_ns"])
            full = self.profile.compute.init_vcpus
            shares = record.get("init_cpu_share") or shares[0], max(shares[1], full.value if full else 0.0)
            init = self._phase(record, INIT, record["init_ms"], init_cpu_ms, left_ms, early, shares)
            known_ms = self.profile.functions.init_wait_ms
            phases["init"] = init if known_ms is None else replace(init, lambda_waits_ms=known_ms.value)
        factors = {phase.kind: self.factor(phase.kind, record["architecture"]) for phase in phases.values()}
        return Model(phases, factors, self._requests_deviation)

    def factor(self, kind: str, architecture: Architecture) -> Factor:
        """Return the factor of a kind of work; from AWS's own times if the profile was fitted to them."""
        speed = self.profile.compute.speed
        if speed.status != "assumed":
            return Factor(1 / speed.value)
        return self.processor.factor(kind, architecture)

    @cached_property
    def _requests_deviation(self) -> float:
        tested = mean_errors(self.profile.name, instances=False).profile
        return tested["seconds"] * PER_MEAN_ERROR if tested else 0.0

    def _phase(
        self,
        record: Record,
        kind: str,
        took_ms: float,
        cpu_ms: float,
        uncertain_ms: float,
        requests: Sequence[Request],
        shares: tuple[float, float],
    ) -> _Phase:
        here = shares[0] if self.enforced else math.inf
        there = _Quota(shares[1], self.profile.compute.period_ms.value)
        return _Phase(
            kind,
            took_ms,
            cpu_ms,
            uncertain_ms,
            requests,
            sum(self._request_ms(request, there) for request in requests),
            _Quota(here, record.get("quota_period_ms") or FORMER_PERIOD_MS),
            there,
        )

    def _request_ms(self, request: Request, there: _Quota) -> float:
        """Return what a request takes on Lambda, where TLS needs its share of the function's processor time."""
        operation = self.profile.operation(request.op)
        latency_ms = operation.latency_ms.value
        bandwidth, encryption = operation.bandwidth_mb_s, operation.cpu_ms_per_mb
        moving_ms = request.size / bandwidth.value / 1e3 if bandwidth else 0.0
        return latency_ms + max(moving_ms, there.wall_ms(request.size / 1e6 * encryption.value) if encryption else 0.0)


def make_predictor(
    processor: Processor, kind: str | None, enforced: bool | None, profile: str | Path = DEFAULT_PROFILE
) -> Predictor:
    """Return the predictor of a host, by the host's processor, the handlers' kind of work and a profile's name or file.

    `enforced` tells whether the host held functions to their CPU share; None counts as true. RequestError for a kind of
    work that handlers don't have.
    """
    if kind not in (None, *HANDLER_KINDS):
        raise RequestError(f"There is no kind of work {kind!r}.", f"choose one of {', '.join(HANDLER_KINDS)}.")
    return Predictor(processor, load_profile(profile), kind or UNKNOWN, enforced is not False)


def billed(requests: Iterable[Request]) -> Counter[str]:
    """Return how many requests AWS charges for, by operation."""
    asked = Counter[str]()
    for request in requests:
        if request.op in BILLED:
            asked[request.op] += billed_requests(request.op, 1, request.size)
    return asked


def match_requests(records: Sequence[Record], requests: Mapping[str, Sequence[Request]]) -> list[list[Request]]:
    """Return the own requests of each invocation in `records`; `requests` are by function.

    If several invocations of a function ran at once, a request counts for the one that began last.
    """
    matched: list[list[Request]] = [[] for _ in records]
    windows: dict[str, list[tuple[int, int, int]]] = {}
    for position, record in enumerate(records):
        # Init came first, and took at most this long.
        before_ms = record["init_ms"] + record["host_delay_ms"] if record["init_ms"] is not None else 0.0
        window = (record["start_ns"] - round(before_ms * 1e6), record["end_ns"], position)
        windows.setdefault(record["function"], []).append(window)
    for function, made in requests.items():
        waiting = sorted(windows.get(function, ()), reverse=True)
        begun: list[tuple[int, int, int]] = []
        for request in sorted(made, key=lambda request: request.start_ns):
            if request.is_poll:
                continue
            while waiting and waiting[-1][0] <= request.start_ns:
                begun.append(waiting.pop())
            while begun and begun[-1][1] < request.start_ns:
                begun.pop()
            if begun:
                matched[begun[-1][2]].append(request)
    return matched


def _clipped(requests: Sequence[Request], end_ns: int) -> list[Request]:
    ordered = sorted(requests, key=lambda request: request.start_ns)
    following = [*(request.start_ns for request in ordered[1:]), max(end_ns, 0)]
    return [
        replace(request, end_ns=max(request.start_ns, min(request.end_ns, until)))
        for request, until in zip(ordered, following, strict=False)
    ]


def _stopped(prediction: Prediction, limit_ms: float) -> Prediction:
    duration = Range(limit_ms, min(limit_ms, prediction.duration_ms.low), limit_ms)
    total = duration + (prediction.init_ms or NOTHING)
    return replace(prediction, duration_ms=duration, billed_ms=_billed(total), timed_out=True)


def _ranges(figures: Callable[[Moved], dict[str, float]], sources: Sequence[str]) -> dict[str, Range]:
    """Return each figure with its 80 % range; its sources of error are independent."""
    plain = figures({})
    ends = [(figures({source: -Z80}), figures({source: Z80})) for source in sources]
    return {
        name: Range(
            value,
            max(0.0, value - math.hypot(*(max(0.0, value - low[name]) for low, _ in ends))),
            value + math.hypot(*(max(0.0, high[name] - value) for _, high in ends)),
        )
        for name, value in plain.items()
    }


def _billed(total: Range) -> Range:
    return Range(*(float(billed_ms(value, None)) for value in (total.value, total.low, total.high)))
