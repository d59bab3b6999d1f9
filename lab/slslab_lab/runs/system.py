"""What a plan runs on, whichever stack that is: the protocol, and the hosts that AWS would bill beside Lambda."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from slslab.run.events import own_event
from slslab.run.records import launch_record
from slslab_lab.runs.recorder import Recorder
from slslab_workers.architecture import Cloud, Requirements


@dataclass(frozen=True)
class Running:
    """A system that runs: the driver's view of it, what it is, and its end.

    `finish` waits for all records of the finished invocations, and returns what else the document says of the host: how
    it was until then, and what the system itself has taken, `package` and `own_cpu_seconds`. `watched` is a context
    that raises RunFailed when the run cannot go on.
    """

    cloud: Cloud
    host: dict[str, Any]
    finish: Callable[[], dict[str, Any]]
    watched: Callable[[], AbstractContextManager[None]]


class Started(Protocol):
    """A system that has started. Runs are made on it one after the other.

    `budgets_mb` is the memory that environments may take together on each of its hosts.
    """

    budgets_mb: list[int]

    def ready(self) -> None:
        """Wait until nothing starts any more in the background."""

    def high_priority(self) -> AbstractContextManager[bool]:
        """Return a context in which everything here runs at the highest priority; it yields whether that is allowed."""

    def running(self, recorder: Recorder, logs: Path) -> AbstractContextManager[Running]:
        """Return a context in which a run can be driven and is recorded."""

    def clear(self) -> None:
        """End and remove all that the last run has left, so that the next finds nothing, and record the last of it."""


class System(Protocol):
    """What a plan can run on.

    `budgets_mb` is what `Started` has, before it is known exactly; `automatic` has what an option that is `auto`
    becomes here.
    """

    budgets_mb: list[int]
    automatic: Mapping[str, str]

    def start(self) -> AbstractContextManager[Started]:
        """Return a context in which the system runs; afterwards nothing of it is left."""


def host_meter(requirements: Requirements, on_event: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
    """Return a function that records, from now until it is called, the hosts that AWS would bill beside Lambda, S3 and
    Step Functions."""
    began_ns = time.monotonic_ns()
    for number, instance_type in enumerate(requirements.hosts):
        on_event(launch_record("host", str(number), instance_type, began_ns))

    def record() -> None:
        for instance_type in requirements.hosts:
            on_event(own_event("host.run", began_ns, "", resource=instance_type, function="stack"))

    return record
