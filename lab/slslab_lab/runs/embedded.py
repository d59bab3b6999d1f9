"""Run a plan on an embedded stack and an emulator of its own; `slslab_lab.runs.compose` has the other system."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from slslab.aws.accounts import account_limits
from slslab.aws.arns import REGION
from slslab.aws.keys import Keyring
from slslab.errors import RequestError
from slslab.host.session import Session
from slslab.installation import ENDPOINTS, HOSTS, plugin, require
from slslab.lambda_.service.emulator import Emulator, memory_budget_mb
from slslab.stack.assembly import start_stack
from slslab.stack.instances.devices import choose_devices
from slslab.stack.instances.processes import ProcessLauncher
from slslab.stack.queues import queue_kind
from slslab.stack.state_machines import EmbeddedStateMachines
from slslab_lab.runs.recorder import Recorder
from slslab_lab.runs.system import Running, host_meter
from slslab_lab.runs.throttling import Throttling
from slslab_lab.runs.watch import Watch
from slslab_workers.architecture import Cloud, Requirements
from slslab_workers.faults.plan import VARIABLE, FaultPlan
from slslab_workers.plan import Plan


class EmbeddedSystem:
    """The embedded stack and an emulator of the run's own."""

    def __init__(self, plan: Plan, requirements: Requirements) -> None:
        self._environment, self._placement = plan.environment, plan.placement
        self._run, self._faults = plan.run, plan.faults
        self._limits = account_limits(plan.account)
        if plan.memory_mb > self._limits.memory_mb.maximum:
            raise RequestError(
                f"The account {plan.account} has functions of at most {self._limits.memory_mb.maximum:,} MB, and the "
                f"plan wants {plan.memory_mb:,} MB.",
                "choose a smaller --memory, or leave out --account.",
            )
        self._requirements = requirements
        automatic = {"queue": queue_kind(requirements.queue)} if requirements.queue else {}
        if requirements.channel_host:
            automatic["channel-host"] = requirements.channel_host
        if requirements.channel == "dynamodb":
            require("aiohttp")
        if requirements.instances is not None:
            if plan.environment != "process":
                raise RequestError(
                    "Instances are processes of this host with the embedded stack.",
                    "--stack compose launches them as containers.",
                )
            automatic["device"] = choose_devices(requirements.instances.device)[0].partition(":")[0]
        self.automatic: Mapping[str, str] = automatic
        # Taken once: what is admitted must also fit when the stack itself has taken its memory.
        self.budgets_mb = [memory_budget_mb()] if self._environment != "ray" else _cluster().budgets_mb()

    def _hosts(self, session: Session) -> dict[str, Any]:
        """Return the emulator's arguments that say where environments are."""
        if self._environment == "ray":
            return {"places": _cluster().Cluster(session, self._limits, pack=self._placement == "pack")}
        return {"environment": self._environment}

    @contextmanager
    def running(self, recorder: Recorder, logs: Path) -> Iterator[Running]:
        """Start the parts that the plan requires and the emulator; they are stopped after the block."""
        requirements = self._requirements
        began = time.process_time()
        with ExitStack() as parts:
            watch = parts.enter_context(Watch(logs))
            recorder.broken = watch.fail
            session, keys = parts.enter_context(Session()), Keyring()
            stack, servers = start_stack(parts, session, requirements, keys, on_event=recorder.event)
            variables = stack.client_environment()
            if self._faults is not None:
                variables[VARIABLE] = json.dumps(self._faults)
            emulator = Emulator(
                session=session,
                **self._hosts(session),
                keys=keys,
                variables=variables,
                logs=logs,
                limits=self._limits,
                budget_mb=sum(self.budgets_mb),
                on_event=recorder.event,
                on_record=recorder.invocation,
            )
            parts.enter_context(emulator)
            self.budgets_mb = emulator.service.pool.admission.budgets_mb()  # without the nodes that were refused
            if self._faults is not None:
                plan, retry_after_s = FaultPlan.from_document(self._faults), self._limits.retry_after_s
                emulator.service.pool.fault = Throttling(plan, self._run, retry_after_s, recorder.event).check
            states: EmbeddedStateMachines | None = None
            emulated = f"slslab {version('slslab')} with awslambdaric {version('awslambdaric')}"
            versions = {"lambda": emulated, **stack.versions}
            if requirements.state_machines:
                states = EmbeddedStateMachines(
                    emulator.endpoint, keys, session.mark, limits=emulator.limits, on_event=recorder.event
                )
                parts.enter_context(states)
                emulator.add_variables(states.client_environment())
                versions["states"], servers["state_machines"] = states.name, states

            if requirements.channel == "dynamodb":
                edge = plugin(ENDPOINTS, "aws").Edge(0, session.home, emulator.endpoints, keys, session.mark)
                # Both start at once, so that their ends can be watched.
                edge.on_demand = edge.services.on_demand = False
                parts.enter_context(edge)
                emulator.add_variables({"AWS_ENDPOINT_URL_DYNAMODB": edge.endpoint})
                versions["channel"], servers["dynamodb_server"] = f"moto {version('moto')}", edge.services

            launcher: ProcessLauncher | None = None
            if requirements.instances is not None:
                launcher = ProcessLauncher(
                    requirements.instances,
                    session=session,
                    variables={**variables, **keys.function("instance").variables(), "AWS_REGION": REGION},
                    logs=logs,
                    on_event=recorder.event,
                    on_record=recorder.instance,
                )
                versions["instances"] = launcher.name

            def client(service: str) -> Any:
                if service == "stepfunctions" and states is not None:
                    states.ready()  # it has started in the background
                made = emulator.client(service)
                # What the driver would still remove goes with the stack: nothing waits for a part that has ended.
                made.meta.events.register("before-send", watch.check)
                return made

            record_hosts = host_meter(requirements, recorder.event)

            def finish() -> dict[str, Any]:
                record_hosts()
                seconds = {name: _cpu_seconds(server.pid) for name, server in servers.items()}
                emulating = emulator.cpu_seconds()
                driving = time.process_time() - began - emulating
                seconds |= {"emulator": round(emulating, 3), "driver": round(driving, 3)}
                return {**emulator.host(), "package": emulator.packages.sizes(), "own_cpu_seconds": seconds}

            cloud = Cloud(client, recorder.driver_event, stack.worker_environment(), launcher)
            yield Running(cloud, {"stack": versions}, finish, partial(watch.watched, servers))


def _cluster() -> Any:
    """Return the module of clusters, whose engine is needed nowhere else; HostError without it."""
    require("ray")
    return plugin(HOSTS, "ray")


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far, s; 0 for one that has ended."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return round(times.user + times.system, 3)
