"""What a plan runs on: the parts of the embedded stack that it requires, and the emulator."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import psutil

from slslab.configuration import REGION
from slslab.emulator import Emulator
from slslab.instances import InstanceRecord, ProcessLauncher
from slslab.metering import InvocationRecord
from slslab.pool import own_event
from slslab.session import Session
from slslab.stack.assembly import start_stack
from slslab.stack.states import EmbeddedStateMachines
from slslab_workers.architecture import Cloud, Requirements

# What a RedisAI database of one peer and the queue would run on; the papers do not say.
TENSOR_HOST = "m5.large"
QUEUE_HOST = "mq.t3.micro"


class Recorder(Protocol):
    """Hears what happens while a run goes on."""

    def event(self, record: dict[str, Any]) -> None:
        """A trace record of a function or of a part of the stack."""

    def driver_event(self, record: dict[str, Any]) -> None:
        """A trace event of the driver."""

    def invocation(self, record: InvocationRecord) -> None:
        """A metered invocation."""

    def instance(self, record: InstanceRecord) -> None:
        """A metered instance."""


@dataclass(frozen=True)
class Running:
    """A system that runs: the driver's view of it, what it is, and (`used`) what it has taken itself so far."""

    cloud: Cloud
    host: dict[str, Any]
    used: Callable[[], dict[str, Any]]


@contextmanager
def running(requirements: Requirements, recorder: Recorder, logs: Path, budget_mb: int) -> Iterator[Running]:
    """The stack and the emulator, up for the block and gone after it, in whatever way it ends."""
    began = time.process_time()
    with ExitStack() as parts:
        session = parts.enter_context(Session())
        stack, processes = start_stack(parts, session, requirements, on_event=recorder.event)
        emulator = Emulator(
            session=session,
            variables=stack.client_environment(),
            logs=logs,
            budget_mb=budget_mb,
            on_event=recorder.event,
            on_record=recorder.invocation,
        )
        parts.enter_context(emulator)
        states: EmbeddedStateMachines | None = None
        versions = dict(stack.versions)
        if requirements.state_machines:
            states = EmbeddedStateMachines(
                emulator.endpoint, session.mark, limits=emulator.limits, on_event=recorder.event
            )
            parts.enter_context(states)
            emulator.add_variables(states.client_environment())
            versions["states"] = states.name

        launcher: ProcessLauncher | None = None
        if requirements.instances is not None:
            launcher = ProcessLauncher(
                requirements.instances,
                session=session,
                variables={**stack.client_environment(), "AWS_REGION": REGION},
                logs=logs,
                on_event=recorder.event,
                on_record=recorder.instance,
            )
            versions["instances"] = launcher.name

        def client(service: str) -> Any:
            if service == "stepfunctions" and states is not None:
                states.ready()  # it has come up in the background
            return emulator.client(service)

        began_ns = time.monotonic_ns()

        def used() -> dict[str, Any]:
            for instance_type in _hosts(requirements):
                recorder.event(own_event("host.run", began_ns, "", resource=instance_type, function="stack"))
            seconds = {name: _cpu_seconds(pid) for name, pid in processes.items()}
            if states is not None and states.pid is not None:
                seconds["state_machines"] = _cpu_seconds(states.pid)
            own = emulator.cpu_seconds()
            seconds |= {"emulator": round(own, 3), "driver": round(time.process_time() - began - own, 3)}
            return {"package": emulator.package_size(), "own_cpu_seconds": seconds}

        host = {
            "cores": len(os.sched_getaffinity(0)),
            "cpu_share_enforced": "cpu" in emulator.hierarchy.parents,
            "confinement": f"{emulator.hierarchy.description}; {emulator.isolation.description}",
            "stack": {
                "lambda": f"slslab {version('slslab')} with awslambdaric {version('awslambdaric')}",
                **versions,
            },
        }
        cloud = Cloud(client, recorder.driver_event, stack.worker_environment(), launcher)
        yield Running(cloud, host, used)


def _hosts(requirements: Requirements) -> list[str]:
    """Instance types of the hosts that the plan would need on AWS beside Lambda, S3 and Step Functions."""
    return [TENSOR_HOST] * requirements.tensor_databases + [QUEUE_HOST] * bool(requirements.queue)


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, s; 0 for one that has ended."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return round(times.user + times.system, 3)
