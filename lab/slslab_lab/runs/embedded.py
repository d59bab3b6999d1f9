"""Run a plan on an embedded stack and its own emulator; `slslab_lab.runs.compose` has the other system."""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from slslab.aws.arns import REGION
from slslab.errors import RequestError
from slslab.host.server_process import LazyServer
from slslab.installation import cluster, require
from slslab.lambda_.emulator import Emulator, memory_budget_mb
from slslab.stack.assembly import EmbeddedStack
from slslab.stack.instances.fleet import choose_devices
from slslab.stack.instances.processes import ProcessLauncher
from slslab.stack.queues import queue_kind
from slslab.stack.state_machines import EmbeddedStateMachines
from slslab_lab.runs.platforms import gpu_variables, limits_of
from slslab_lab.runs.recorder import Recorder
from slslab_lab.runs.system import Running, System, host_meter
from slslab_lab.runs.throttling import Throttling
from slslab_lab.runs.watch import Watch
from slslab_workers.architecture import Cloud, Requirements
from slslab_workers.driver.dependencies import layer_distributions
from slslab_workers.faults.plan import VARIABLE, FaultPlan
from slslab_workers.models import own_packages
from slslab_workers.plan import Plan


class EmbeddedSystem(System):
    """The parts of the embedded stack that the plan requires, and an emulator of the run's own; `strict` hides this
    host's packages from functions."""

    def __init__(self, plan: Plan, requirements: Requirements, *, strict: bool = False) -> None:
        super().__init__(plan, requirements)
        self._strict = strict
        self._limits = limits_of(plan)
        if requirements.queue:
            self.automatic["queue"] = queue_kind(requirements.queue)
        if requirements.channel == "dynamodb":
            require("aiohttp")
        if requirements.instances is not None:
            if plan.environment != "process":
                raise RequestError(
                    "With the embedded stack, instances are processes of this host.",
                    "--stack compose launches them as containers.",
                )
            self.automatic["device"] = choose_devices(requirements.instances.device)[0].partition(":")[0]
        # Taken once: what is admitted must also fit when the stack itself has taken its memory.
        self.budgets_mb = [memory_budget_mb()] if plan.environment != "ray" else cluster().budgets_mb()

        self._recorder: Recorder | None = None
        self._states: EmbeddedStateMachines | None = None

    def _enter(self, stack: ExitStack) -> None:
        self._began = time.process_time()
        requirements = self._requirements
        self._watch = stack.enter_context(Watch(Path()))
        # Servers wait more than they compute while they start.
        imports = threading.Thread(target=_import_torch, name="slslab-imports")
        imports.start()
        stack.callback(imports.join)
        self._stack = stack.enter_context(EmbeddedStack(requirements, on_event=self._on_event))
        self._servers = self._stack.servers
        self._emulator = self._stack.start_emulator(
            Emulator(
                session=self._stack.session,
                **self._hosts(),
                keys=self._stack.keys,
                variables={**self._stack.client_environment(), **gpu_variables(self._plan)},
                limits=self._limits,
                budget_mb=sum(self.budgets_mb),
            )
        )
        self._stack.versions["lambda"] += f" with awslambdaric {version('awslambdaric')}"
        self.budgets_mb = self._emulator.service.pool.hosts.budgets_mb()  # without the nodes that were refused
        if requirements.state_machines:
            self._states = self._servers["state_machines"] = self._stack.start_state_machines()
        if requirements.channel == "dynamodb":
            edge = self._stack.start_edge(lazy=False)  # so that its end can be watched
            self._emulator.add_variables({"AWS_ENDPOINT_URL_DYNAMODB": edge.endpoint})
            self._stack.versions["channel"], self._servers["dynamodb_server"] = f"moto {version('moto')}", edge.services
        imports.join()
        self._start_cpu = self._own_cpu_seconds()

    def _hosts(self) -> dict[str, Any]:
        """Return the emulator's arguments that say where environments are."""
        packages = {"strict_packages": self._strict, "layer_packages": layer_distributions()}
        if self._plan.environment == "ray":
            pack = self._plan.placement == "pack"
            return {"hosts": cluster().Cluster(self._stack.session, self._limits, pack=pack, **packages)}
        return {"environment": self._plan.environment, **packages}

    def ready(self) -> None:
        """Wait until nothing starts any more in the background."""
        for server in self._servers.values():
            if isinstance(server, LazyServer):
                server.ready()
        self._start_cpu = self._own_cpu_seconds()

    def high_priority(self) -> AbstractContextManager[bool]:
        """Return a context in which the driver and all parts run at the highest priority, if the host allows that."""
        return self._emulator.high_priority()

    @contextmanager
    def running(self, recorder: Recorder, logs: Path) -> Iterator[Running]:
        """Record a run; its last records come when the stack ends, or is cleared."""
        watch, emulator, requirements, faults = self._watch, self._emulator, self._requirements, recorder.plan.faults
        watch.logs = emulator.logs = logs
        self._recorder, recorder.broken = recorder, watch.fail
        emulator.listeners = ((recorder.event, lambda record: recorder.event(record.as_record())),)
        injected = {} if faults is None else {VARIABLE: json.dumps(faults)}
        emulator.add_variables(injected)
        emulator.service.pool.fault = None
        if faults is not None:
            plan, retry_after_s = FaultPlan.from_document(faults), self._limits.retry_after_s
            emulator.service.pool.fault = Throttling(plan, recorder.plan.run, retry_after_s, recorder.event).check
        versions, launcher = dict(self._stack.versions), None
        if requirements.instances is not None:
            # A process in another directory doesn't find modules of the working directory.
            path = {"PYTHONPATH": os.pathsep.join(sys.path)} if own_packages(self._plan) else {}
            own = {**injected, **path, **self._stack.keys.function("instance").variables(), "AWS_REGION": REGION}
            launcher = ProcessLauncher(
                requirements.instances,
                session=self._stack.session,
                variables={**self._stack.client_environment(), **own},
                logs=logs,
                on_event=recorder.event,
            )
            versions["instances"] = launcher.name

        record_hosts, before = host_meter(requirements, recorder.event), self._own_cpu_seconds()

        def finish() -> dict[str, Any]:
            record_hosts()
            # CPU time between the start and this run belongs to another run.
            used = {
                name: round(self._start_cpu[name] + seconds - before[name], 3)
                for name, seconds in self._own_cpu_seconds().items()
            }
            return {**emulator.host(), "package": emulator.packages.sizes(), "own_cpu_seconds": used}

        cloud = Cloud(self._client, recorder.driver_event, self._stack.worker_environment(), launcher)
        yield Running(cloud, {"stack": versions}, finish, partial(watch.watched, self._servers))

    def clear(self) -> None:
        """Stop and remove everything that a run has left, and pass on its last records."""
        self._emulator.end_environments()
        self._emulator.packages.largest_bytes = 0
        self._stack.settle()
        for address in (*self._stack.tensor_urls, self._stack.queue_url or "", self._stack.channel_url or ""):
            # In Memcached and parameter servers, keys contain their run's name, and scripts don't persist.
            if address.startswith("redis:"):
                from slslab.compose.services import UNANSWERED, empty  # their clients take long to import

                with suppress(*UNANSWERED):  # it has ended, so the next run will fail, too
                    empty(address)

    def _client(self, service: str) -> Any:
        if service == "stepfunctions" and self._states is not None:
            self._states.ready()  # it has started in the background
        client = self._emulator.client(service)
        # Don't wait for a part that has ended: what the driver would still remove goes with the stack.
        client.meta.events.register("before-send", self._watch.check)
        return client

    def _own_cpu_seconds(self) -> dict[str, float]:
        """Return the CPU time of each server, of the emulator and of the driver since the start, s."""
        seconds = {name: _cpu_seconds(server.pid) for name, server in self._servers.items()}
        emulating = self._emulator.cpu_seconds()
        return {**seconds, "emulator": emulating, "driver": time.process_time() - self._began - emulating}

    def _on_event(self, record: dict[str, Any]) -> None:
        if self._recorder is not None:
            self._recorder.event(record)


def _import_torch() -> None:
    """Import what most drivers need, which takes seconds."""
    if find_spec("torch") is not None:
        import torch  # noqa: F401


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far, s; 0 for one that has ended."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return round(times.user + times.system, 3)
