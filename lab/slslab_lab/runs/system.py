"""What plans run on, and a meter for hosts that AWS would bill in addition to Lambda."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slslab.host.managed import Managed
from slslab.run.events import own_event
from slslab.run.records import launch_record
from slslab_lab.runs.recorder import Recorder
from slslab_workers.architecture import Cloud, Requirements
from slslab_workers.plan import Plan


@dataclass(frozen=True)
class Running:
    """A running system: the driver's view of it, its description, and its end.

    `finish` waits for all records of the finished invocations, and returns more entries of the document's host, such as
    the system's own `own_cpu_seconds`, and the `package`. `watched` is a context that raises RunFailed if the run can't
    continue.
    """

    cloud: Cloud
    host: dict[str, Any]
    finish: Callable[[], dict[str, Any]]
    watched: Callable[[], AbstractContextManager[None]]


class System(Managed):
    """A system that a plan can run on: a context manager, in which runs are made one after the other.

    `budgets_mb` is the memory for all environments on each of its hosts, an estimate before it has started. `automatic`
    has the values that options set to `auto` get here. By default, everything already runs and stays.
    """

    budgets_mb: list[int]

    def __init__(self, plan: Plan, requirements: Requirements) -> None:
        self._plan, self._requirements = plan, requirements
        self.automatic = {"channel-host": requirements.channel_host} if requirements.channel_host else {}

    def _enter(self, stack: ExitStack) -> None:
        """Start everything."""

    def ready(self) -> None:
        """Wait until everything has started in the background."""

    def high_priority(self) -> AbstractContextManager[bool]:
        """Return a context in which everything runs at the highest priority; it yields whether that is allowed."""
        return nullcontext(False)

    def running(self, recorder: Recorder, logs: Path) -> AbstractContextManager[Running]:
        """Return a context in which a run can be driven, and is recorded."""
        raise NotImplementedError

    def clear(self) -> None:
        """Stop and remove everything that the last run left, and write its last records."""


def host_meter(requirements: Requirements, on_event: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
    """Return a function that records the hosts that AWS would bill in addition to Lambda, S3 and Step Functions, from
    now until it is called."""
    began_ns = time.monotonic_ns()
    for number, instance_type in enumerate(requirements.hosts):
        on_event(launch_record("host", str(number), instance_type, began_ns))

    def record() -> None:
        for instance_type in requirements.hosts:
            on_event(own_event("host.run", began_ns, "", resource=instance_type, function="stack"))

    return record
