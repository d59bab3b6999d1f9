"""What a plan runs on: a stack and an emulator. Here are the embedded ones; `slslab.stack.compose` has the other."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import psutil

from slslab.configuration import REGION
from slslab.emulator import Emulator, memory_budget_mb
from slslab.errors import RequestError
from slslab.instances import InstanceRecord, ProcessLauncher, choose_devices, launch_record
from slslab.metering import InvocationRecord
from slslab.pool import own_event
from slslab.session import Session
from slslab.stack.assembly import start_stack
from slslab.stack.states import EmbeddedStateMachines
from slslab_workers.architecture import Cloud, Requirements
from slslab_workers.plan import Plan

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
    """A system that runs: the driver's view of it, what it is, and its end.

    `finish` waits until everything that the finished invocations tell has arrived, and returns what the system itself
    has taken: `package` and `own_cpu_seconds`.
    """

    cloud: Cloud
    host: dict[str, Any]
    finish: Callable[[], dict[str, Any]]


class System(Protocol):
    """What a plan can run on; `budget_mb` is the memory that all its environments may take together."""

    budget_mb: int

    def running(self, recorder: Recorder, logs: Path) -> AbstractContextManager[Running]:
        """The system, ready for the plan, for the block and gone (or left by the run) after it, however it ends."""


class EmbeddedSystem:
    """The embedded stack and an emulator of the run's own."""

    def __init__(self, plan: Plan, requirements: Requirements) -> None:
        self._environment = plan.environment
        self._requirements = requirements
        if requirements.instances is not None:
            if plan.environment != "process":
                message = "Instances are processes of this host with the embedded stack."
                raise RequestError(message, "--stack compose launches them as containers.")
            choose_devices(requirements.instances.device)
        # Taken once: what is admitted must also fit when the stack itself has taken its memory.
        self.budget_mb = memory_budget_mb()

    @contextmanager
    def running(self, recorder: Recorder, logs: Path) -> Iterator[Running]:
        """The parts that the plan requires and the emulator, started here and gone after the block."""
        requirements = self._requirements
        began = time.process_time()
        with ExitStack() as parts:
            session = parts.enter_context(Session())
            stack, processes = start_stack(parts, session, requirements, on_event=recorder.event)
            emulator = Emulator(
                session=session,
                variables=stack.client_environment(),
                logs=logs,
                environment=self._environment,
                budget_mb=self.budget_mb,
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

            tell_hosts = host_meter(requirements, recorder)

            def finish() -> dict[str, Any]:
                tell_hosts()
                seconds = {name: _cpu_seconds(pid) for name, pid in processes.items()}
                if states is not None and states.pid is not None:
                    seconds["state_machines"] = _cpu_seconds(states.pid)
                own = emulator.cpu_seconds()
                seconds |= {"emulator": round(own, 3), "driver": round(time.process_time() - began - own, 3)}
                return {"package": emulator.package_size(), "own_cpu_seconds": seconds}

            host = {
                **emulator.host(),
                "stack": {
                    "lambda": f"slslab {version('slslab')} with awslambdaric {version('awslambdaric')}",
                    **versions,
                },
            }
            cloud = Cloud(client, recorder.driver_event, stack.worker_environment(), launcher)
            yield Running(cloud, host, finish)


def host_meter(requirements: Requirements, recorder: Recorder) -> Callable[[], None]:
    """Call it in the end to tell, from now until then, of the hosts that the plan would need on AWS beside Lambda, S3
    and Step Functions."""
    began_ns = time.monotonic_ns()
    hosts = [TENSOR_HOST] * requirements.tensor_databases + [QUEUE_HOST] * bool(requirements.queue)
    for number, instance_type in enumerate(hosts):
        recorder.event(launch_record("host", str(number), instance_type, began_ns))

    def tell() -> None:
        for instance_type in hosts:
            recorder.event(own_event("host.run", began_ns, "", resource=instance_type, function="stack"))

    return tell


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, s; 0 for one that has ended."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return round(times.user + times.system, 3)
