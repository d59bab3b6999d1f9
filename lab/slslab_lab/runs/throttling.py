"""Refuse invocations according to a run's fault plan, with Lambda's answer to too many invocations."""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from slslab.aws.errors import throttled
from slslab.lambda_.events import Request
from slslab.run.events import own_event
from slslab_workers.faults.plan import FaultPlan

# The names of a worker's number in architectures' events.
RANKS = ("rank", "function")


@dataclass
class Throttling:
    """Throttles the first attempts of invocations that a fault plan chooses.

    Invocations are identified by their function and the numbers in their events: rank, epoch, step. `record` receives
    an event for each fault.
    """

    plan: FaultPlan
    run: str
    retry_after_s: int
    record: Callable[[dict[str, Any]], None]
    met: Counter[object] = field(default_factory=Counter)

    def check(self, request: Request) -> None:
        """Raise TooManyRequestsException if the plan says so."""
        function, numbers = request.target.function.name, _numbers(request.payload)
        worker = next((numbers[name] for name in RANKS if name in numbers), -1)
        identity = (function.replace(self.run, ""), sorted(numbers.items()))
        for fault in self.plan.of_kinds("throttle"):
            if fault.worker not in (None, worker) or not fault.is_drawn(self.plan.seed, *identity):
                continue
            self.met[fault.number, str(identity)] += 1
            if self.met[fault.number, str(identity)] <= fault.count:
                event = own_event(
                    "fault", time.monotonic_ns(), "", resource=f"{fault.number} throttle", function=function
                )
                self.record({**event, "worker": worker})
                raise throttled("ConcurrentInvocationLimitExceeded", self.retry_after_s)


def _numbers(payload: bytes) -> dict[str, int]:
    """Return the whole numbers of an architecture's event, and of its `input`."""
    found: dict[str, int] = {}
    with suppress(ValueError):
        event = json.loads(payload)
        for part in (event, event.get("input")) if isinstance(event, Mapping) else ():
            if isinstance(part, Mapping):
                found |= {name: value for name, value in part.items() if type(value) is int}
    return found
