"""Invokes a function with memory sizes until its best one is known, or can't be told apart from others."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import stdev
from typing import Any, Self

from botocore.exceptions import BotoCoreError, ClientError

from slslab.aws.limits import Range
from slslab.errors import HostError, RequestError, RunError, read_numbers
from slslab.predict.invocation import Request, match_requests
from slslab.report.formats import listed
from slslab.run.metrics import Records
from slslab.tune.decision import Estimate, may_win
from slslab.tune.estimates import Estimator, Measured, Sample, student

OUT_OF_MEMORY, TIMED_OUT = "Runtime.OutOfMemory", "Sandbox.Timedout"
LATEST = "$LATEST"
# Returns the records of all invocations until now, and the requests of each function to S3 and SQS.
Read = Callable[[], tuple[Records, Mapping[str, Sequence[Request]]]]

SIZES = (128, 256, 512, 1024, 1769, 3008)
COLD_STARTS = 5
# Rounds of warm invocations, one of each payload, until the 80 % interval of their mean is within ± CLOSE of it.
FEWEST, MOST = 5, 20
CLOSE = 0.05
# Called with a memory size, its rounds until now and the most that it may have.
Progress = Callable[[int, int, int], None]


@dataclass(frozen=True)
class Failed(Exception):
    """An invocation failed; `error_type` is Lambda's, and `message` the function's or Lambda's."""

    error_type: str
    message: str


class TunedFunction:
    """A function of an emulator, as a context manager. At the end the function has its own memory size again.

    `client` is boto3's for Lambda. RequestError for a function that isn't there, and for whatever Lambda refuses.
    """

    def __init__(self, client: Any, name: str, read: Read) -> None:
        self._client, self._read = client, read
        self.configuration = _configuration(client, name)
        self.name = str(self.configuration["FunctionName"])
        if self.configuration["Version"] != LATEST:
            raise RequestError(
                f"{name} is a version, and keeps its memory size.", f"tune the function itself: {self.name}."
            )
        self.memory_mb = int(self.configuration["MemorySize"])
        self.timeout_s = float(self.configuration["Timeout"])
        self._present_mb = self.memory_mb
        # The request ids of all invocations.
        self.made: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._present_mb != self.memory_mb:
            self.renew(self.memory_mb)

    def renew(self, memory_mb: int) -> None:
        """Give it a memory size; the next invocation is cold, also if it had this size before."""
        self._present_mb = memory_mb
        with _refusals("see the limits of the account: slslab limits."):
            self._client.update_function_configuration(FunctionName=self.name, MemorySize=memory_mb)

    def invoke(self, payload: Any) -> str:
        """Invoke it synchronously; return the request's id. Failed if the function failed."""
        with _refusals("let nothing else invoke it meanwhile, and see its concurrency: slslab limits."):
            answer = self._client.invoke(FunctionName=self.name, Payload=json.dumps(payload).encode())
        self.made.append(answer["ResponseMetadata"]["RequestId"])
        if "FunctionError" in answer:
            failure = json.loads(answer["Payload"].read())
            raise Failed(str(failure.get("errorType", "")), str(failure.get("errorMessage", "")))
        return self.made[-1]

    def samples(self, wanted: Sequence[str]) -> list[Sample]:
        """Return the invocations with these request ids, in this order; RunError if one wasn't recorded."""
        records, requests = self._read()
        own = [record for record in records if record["function"] == self.name]
        found = {str(one.record["request_id"]): one for one in map(Sample, own, match_requests(own, requests))}
        if missing := [id_ for id_ in wanted if id_ not in found]:
            raise RunError(f"Invocation {missing[0]} of {self.name} wasn't recorded.", "see `slslab status`.")
        return [found[id_] for id_ in wanted]


@contextmanager
def _refusals(hint: str) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        raise RequestError(_message(error), hint) from error
    except BotoCoreError as error:
        raise HostError(f"The service doesn't answer: {error}", "see `slslab status`.") from error


def _configuration(client: Any, name: str) -> Mapping[str, Any]:
    if not name:
        raise RequestError("The function has no name.", "give the name of a deployed one, such as slslab tune hello.")
    deploy = "deploy a function first (docs/testing.md)."
    with _refusals(deploy):
        try:
            return dict(client.get_function_configuration(FunctionName=name))
        except ClientError as error:
            pages = client.get_paginator("list_functions").paginate()
            deployed = [function["FunctionName"] for page in pages for function in page["Functions"]]
            raise RequestError(_message(error), f"deployed are {listed(deployed)}." if deployed else deploy) from error


def _message(error: ClientError) -> str:
    return f"Lambda refused: {error.response['Error']['Message'].rstrip('.')}."


@dataclass(frozen=True)
class Payload:
    """An event, and how often it comes: its share of all events."""

    weight: float
    event: Any


@dataclass
class Sizes:
    """What is known of a function's memory sizes: measured ones, and why others are left out."""

    estimator: Estimator
    memory_mb: int
    timeout_s: float
    sizes: Sequence[int]
    measured: dict[int, Measured] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)

    def estimates(self) -> list[Estimate]:
        """Return all sizes that aren't left out. A size that wasn't measured follows from the nearest one that was.

        A size at which the function would use too much memory or time is left out from now on. HostError if no CPU
        time was metered.
        """
        peak_mb = max(measured.peak_mb for measured in self.measured.values())
        if not all(measured.cpu_ms for measured in self.measured.values()):
            raise HostError("This machine can't meter CPU time: its kernel has no schedstat.", "see `slslab doctor`.")
        # The work is the same at each size. If its CPU time differs, this machine was faster or slower meanwhile.
        speeds = [math.log(measured.cpu_ms) for measured in self.measured.values()]
        drift = student(len(speeds) - 1) * stdev(speeds) if len(speeds) > 1 else 0.0
        found = []
        for size in self.sizes:
            if size in self.left_out:
                continue
            estimate = self.estimator.estimate(self._nearest(size), size, drift)
            if size not in self.measured and size < peak_mb:
                self.left_out[size] = f"the function used {peak_mb:,} MB"
            elif estimate.plain["seconds"] > self.timeout_s:
                self.left_out[size] = f"it would take {estimate.plain['seconds']:.3g} s and time out"
            else:
                found.append(estimate)
        return found

    def fail(self, size: int, failed: Failed) -> None:
        """Leave out a size at which the function failed, and smaller ones if they would fail, too."""
        reasons = {OUT_OF_MEMORY: "it ran out of memory", TIMED_OUT: f"it timed out after {self.timeout_s:g} s"}
        if failed.error_type in reasons:
            self.too_small(size, reasons[failed.error_type])
        else:
            self.left_out[size] = f"it failed: {failed.error_type}: {failed.message}"

    def too_small(self, size: int, reason: str) -> None:
        """Leave out a size, and smaller ones unless they were measured."""
        self.left_out[size] = reason
        self.left_out |= {
            other: f"{reason} at {size:,} MB already"
            for other in self.sizes
            if other < size and other not in {*self.measured, *self.left_out}
        }

    def _nearest(self, size: int) -> Measured:
        distances = {abs(math.log(size / measured)): measured for measured in sorted(self.measured)}
        return self.measured[distances[min(distances)]]


def tune(
    function: TunedFunction,
    known: Sizes,
    payloads: Sequence[Payload],
    progress: Progress,
    done: Callable[[Measured], None],
) -> None:
    """Measure sizes until no unmeasured size may be the best; `done` is called with each measured one.

    The function's own size comes first, then the smallest that fits, then any that may win. Sizes with more vCPUs
    than this host has processors are not invoked, except the function's own. The function has its own size again at
    the end, also after an exception. RequestError if the function fails at every size.
    """
    with function:
        while (size := _next(known)) is not None:
            try:
                known.measured[size] = _measure(function, known.estimator, size, payloads, progress)
            except Failed as failed:
                known.fail(size, failed)
            else:
                done(known.measured[size])
    if not known.measured:
        first = known.left_out.get(known.memory_mb) or next(iter(known.left_out.values()))
        raise RequestError(
            f"{function.name} fails at every memory size. At its own, {first.rstrip('.')}.",
            "give an event that it can handle, such as --payload '{\"key\": 1}' or --payload @event.json.",
        )


def _next(known: Sizes) -> int | None:
    """Return the size to measure next; None at the end."""
    if not known.measured:
        waiting = [size for size in known.sizes if size not in known.left_out]
        # The own size, then larger ones, then smaller ones.
        return min(waiting, key=lambda size: (size != known.memory_mb, size < known.memory_mb, size), default=None)
    estimates = known.estimates()
    open_ = [one for one in estimates if one.memory_mb not in known.measured and known.estimator.runs(one.memory_mb)]
    if open_ and open_[0] is estimates[0] and len(known.measured) == 1:
        return open_[0].memory_mb  # the smallest that fits
    promising = [one for one in open_ if may_win(one, estimates)]
    return min(promising, key=lambda one: one.value("balanced")).memory_mb if promising else None


def _measure(
    function: TunedFunction, estimator: Estimator, size: int, payloads: Sequence[Payload], progress: Progress
) -> Measured:
    events = [payload.event for payload in payloads]
    progress(size, 0, MOST)
    cold = []
    for number in range(COLD_STARTS):
        function.renew(size)
        cold.append(function.invoke(events[number % len(events)]))
    for event in events:
        function.invoke(event)
    measured = Measured(size, cold=function.samples(cold))
    for number in range(1, MOST + 1):
        round_ = function.samples([function.invoke(event) for event in events])
        # Something else may have taken its environment.
        if not any(sample.record["cold_start"] for sample in round_):
            measured.rounds.append(round_)
        progress(size, number, MOST)
        if len(measured.rounds) >= FEWEST and estimator.half_width(measured) <= CLOSE:
            break
    if len(measured.rounds) < FEWEST:
        raise RequestError(
            f"{function.name} was cold {MOST - len(measured.rounds)} of {MOST} times at {size:,} MB.",
            "don't invoke or change it while it is tuned.",
        )
    progress(size, MOST, MOST)
    return measured


def weighted(events: Sequence[tuple[float, Any]]) -> list[Payload]:
    """Return payloads with weights that add up to 1; RequestError for a weight of 0 or less."""
    for weight, _ in events:
        if not 0 < weight < math.inf:
            raise RequestError(f"An event has the weight {weight:g}.", "give it one above 0, such as 3:{}.")
    total = sum(weight for weight, _ in events)
    return [Payload(weight / total, event) for weight, event in events]


def choose_sizes(text: str | None, usual: Sequence[int], own_mb: int, limit: Range) -> tuple[int, ...]:
    """Return the sizes of a list such as 128,512, MB, or else the usual ones, and the function's own.

    RequestError for a list that is malformed, or has a size that the account can't have.
    """
    given = read_numbers("--memory", text, limit.minimum, limit.maximum, " MB")
    sizes = given or [size for size in usual if size <= limit.maximum]
    return tuple(sorted({*sizes, own_mb}))
