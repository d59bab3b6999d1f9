"""Run a plan on a running compose stack."""

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

import botocore.exceptions

from slslab.aws.accounts import DEFAULT
from slslab.aws.clients import aws_client
from slslab.aws.keys import Pair
from slslab.compose.client import RemoteEmulator, RemoteRecording, emulator_url
from slslab.compose.services import answering
from slslab.errors import HostError, RequestError, counted, writable
from slslab.installation import __version__
from slslab.run.events import clock_domain
from slslab.stack import Stack
from slslab.statemachines.history import labels, read_transitions, transition_event
from slslab_lab.runs.recorder import Recorder
from slslab_lab.runs.system import Running, System, host_meter
from slslab_lab.runs.watch import Watch
from slslab_workers.architecture import Cloud, Fleet, Requirements, RunFailed
from slslab_workers.driver.deployment import package
from slslab_workers.models import own_packages
from slslab_workers.plan import Plan
from slslab_workers.trace.event import Event

# The operations that create something, the parameter with its name, and its kind.
MAKING = {
    "lambda": ("CreateFunction", "FunctionName", "function"),
    "s3": ("CreateBucket", "Bucket", "bucket"),
    "sfn": ("CreateStateMachine", "name", "machine"),
    "dynamodb": ("CreateTable", "TableName", "table"),
}

# A history's times are exact to the millisecond.
TOLERANCE_NS = 2_000_000
# The commands that start a channel's server, with the stack's password if it needs one.
START_CHANNEL = {
    "memcached": "docker compose up -d memcached",
    "redis": 'eval "$(slslab env)" && docker compose up -d redis',
    "dynamodb": "docker compose up -d dynamodb",
    "parameter-server": 'eval "$(slslab env)" && docker compose up -d parameter-server',
}


class ComposeSystem(System):
    """A running compose stack; HostError or RequestError if the plan can't run on it.

    The end of a run's recording removes what it named, and the next one empties the databases.
    """

    def __init__(self, plan: Plan, requirements: Requirements) -> None:
        super().__init__(plan, requirements)
        self._emulator = RemoteEmulator(emulator_url())
        self._about = self._emulator.about()
        self._services = {service["part"]: service for service in self._about["services"]}
        self.budgets_mb = [int(self._about["memory_budget_mb"])]
        # Instances' devices are known only after their launch, from their records.
        self.automatic["queue"] = self._queue_kind()
        self._check()

    @contextmanager
    def running(self, recorder: Recorder, logs: Path) -> Iterator[Running]:
        """Record what the stack does for the run in this context."""
        requirements, about = self._requirements, self._about
        began, watch = time.process_time(), Watch(logs)
        recorder.broken = watch.fail
        received, databases = (
            Received(recorder, logs, requirements.instances, watch.check),
            requirements.tensor_databases,
        )
        asked = (self._plan.run, received.record, databases, requirements.channel)
        with watch, self._emulator.record(*asked) as recording:
            _check_replicas(databases, len(recording.tensors))
            clients = _Clients(self._services, self._emulator.pair, recording)
            record_hosts = host_meter(requirements, recorder.event)

            def finish() -> dict[str, Any]:
                clients.read_executions()
                end = recording.finish()
                if received.unwritten is not None:
                    raise received.unwritten
                record_hosts()
                for execution in clients.executions:
                    for event in received.transitions(*execution):
                        recorder.event(event)
                seconds = {"emulator": end["cpu_seconds"], "driver": round(time.process_time() - began, 3)}
                return {"package": end["package"], "own_cpu_seconds": seconds}

            tensors = _host_addresses(recording.tensors, self._services["tensors"], databases)
            queue = self._services["queue"]["host"] if requirements.queue else None
            stack = Stack(self._services["s3"]["host"], tensors, queue)
            host = {name: about[name] for name in ("cores", "cpu_share_enforced", "confinement")}
            host["stack"] = {
                "channel" if part == requirements.channel else part: self._services[part]["name"]
                for part in self._parts()
            }
            launcher = None
            if requirements.instances is not None:
                received.recording, launcher = recording, received
                host["stack"]["instances"] = f"containers of {about['image']}"
            cloud = Cloud(clients.client, recorder.driver_event, stack.worker_environment(), launcher)
            yield Running(cloud, host, finish, partial(watch.watched, {}))

    def _parts(self) -> list[str]:
        required = self._requirements
        needed = {"tensors": required.tensor_databases, "queue": required.queue, "states": required.state_machines}
        channel = [required.channel] if required.channel else []
        return ["lambda", "s3", *(part for part, need in needed.items() if need), *channel]

    def _check(self) -> None:
        about, required = self._about, self._requirements
        if required.instances is not None and about["environment"] != "docker":
            raise HostError(
                f"The emulator at {self._emulator.url} can't launch instances, because it doesn't run containers.",
                "--stack embedded launches them as processes on this host.",
            )
        if about["environment"] != self._plan.environment:
            raise RequestError(
                f"The emulator at {self._emulator.url} runs functions as {about['environment']}, but the plan wants "
                f"{self._plan.environment}.",
                f"type --environment {about['environment']}.",
            )
        if self._plan.account != DEFAULT:
            raise RequestError(
                f"The emulator at {self._emulator.url} can't change its limits while it runs.",
                "leave out --account, or choose --stack embedded.",
            )
        if about["version"] != __version__:
            raise RequestError(
                f"The emulator at {self._emulator.url} is slslab {about['version']}, but this is {__version__}.",
                "rebuild the stack's images, or use that version.",
            )
        if about["clock"] != clock_domain():
            raise HostError(
                f"The emulator at {self._emulator.url} runs on another host with another clock.",
                "run the command on that host.",
            )
        if required.tensor_databases:
            # Check this first: a service scaled to zero doesn't count as unhealthy.
            _check_replicas(required.tensor_databases, len(self._services["tensors"]["inside"].split()))
        if required.channel and required.channel not in self._services:
            raise HostError(f"The stack's {required.channel} isn't running.", START_CHANNEL[required.channel])
        for part in self._parts():
            if not self._services[part]["healthy"]:
                raise HostError(
                    f"The stack's {part} at {self._services[part]['inside']} doesn't answer: "
                    f"{self._services[part]['trouble']}.",
                    "see `docker compose ps` and `docker compose logs`.",
                )
        if required.queue not in ("", "auto", self._queue_kind()):
            raise RequestError(
                f"The stack's queue is {self._services['queue']['name']}, but the plan wants {required.queue}.",
                "type --queue auto to use the stack's.",
            )

    def _queue_kind(self) -> str:
        return "rabbitmq" if self._services["queue"]["inside"].startswith("amqp") else "embedded"


class _Clients:
    """The driver's boto3 clients. They tell the recording the name of what they create before they create it, and read
    the histories of state machines' executions before they delete them."""

    def __init__(self, services: Mapping[str, Any], pair: Pair, recording: RemoteRecording) -> None:
        self._services = services
        self._pair = pair
        self._recording = recording
        self._machines: dict[str, Any] = {}
        # The name, input and transitions of each.
        self.executions: list[tuple[str, Any, list[Event]]] = []

    def client(self, service: str) -> Any:
        """Return a client of `lambda`, `s3`, `stepfunctions` or `dynamodb`."""
        part = "states" if service == "stepfunctions" else service
        client = aws_client(service, self._services[part]["host"], self._pair)
        if service == "stepfunctions":
            client.meta.events.register("provide-client-params.sfn.DeleteStateMachine", partial(self._deleting, client))
            client.meta.events.register("after-call.sfn.CreateStateMachine", partial(self._created, client))
        identifier = client.meta.service_model.service_id.hyphenize()
        operation, parameter, kind = MAKING[identifier]

        def name(params: Mapping[str, Any], **_: Any) -> None:
            self._recording.name(kind, params[parameter])

        client.meta.events.register(f"provide-client-params.{identifier}.{operation}", name)
        return client

    def read_executions(self) -> None:
        """Read the executions of the machines that still exist."""
        try:
            for arn, client in list(self._machines.items()):
                self._read(client, arn)
        except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError) as error:
            raise HostError(
                f"Step Functions at {self._services['states']['host']} can't be read: {error}.",
                "see `docker compose ps` and `docker compose logs`.",
            ) from error

    def _created(self, client: Any, parsed: Mapping[str, Any], **_: Any) -> None:
        if "stateMachineArn" in parsed:
            self._machines[parsed["stateMachineArn"]] = client

    def _deleting(self, client: Any, params: Mapping[str, Any], **_: Any) -> None:
        if params["stateMachineArn"] in self._machines:
            self._read(client, params["stateMachineArn"])

    def _read(self, client: Any, machine: str) -> None:
        del self._machines[machine]
        pages = client.get_paginator("list_executions").paginate(stateMachineArn=machine)
        for execution in [execution for page in pages for execution in page["executions"]]:
            arn = execution["executionArn"]
            input_ = json.loads(client.describe_execution(executionArn=arn)["input"])
            history = client.get_paginator("get_execution_history").paginate(executionArn=arn)
            transitions = read_transitions((event for page in history for event in page["events"]), _monotonic_ns)
            self.executions.append((execution["name"], input_, transitions))


class Received:
    """Passes a recording's records to the trace and the logs, and keeps those by which transitions find invocations.

    It is also an `InstanceLauncher` of the `recording`, and `Instances` of its latest launch. An instance has ended
    when its metered record is received. `check` raises the run's first failure: the recording has a record `failed` for
    an instance that fails.
    """

    recording: RemoteRecording

    def __init__(self, recorder: Recorder, logs: Path, fleet: Fleet | None, check: Callable[[], None]) -> None:
        self._recorder, self._logs, self._fleet, self.check = recorder, logs, fleet, check
        # Why a log can't be written.
        self.unwritten: HostError | None = None
        # Of instances that haven't ended.
        self._left = 0
        self._changed = threading.Condition()
        self._workers: dict[str, int] = {}
        self._invocations: list[dict[str, Any]] = []

    def record(self, record: dict[str, Any]) -> None:
        """Take a record."""
        kind = record["record"]
        if kind == "failed":
            self._recorder.broken(RunFailed(*(record[name] for name in ("type", "message", "worker", "log_tail"))))
            return
        if kind == "log":
            path = self._logs / f"{record['environment']}.log"
            try:
                with writable(path, "free some space there, and run the plan again.", HostError):
                    self._logs.mkdir(parents=True, exist_ok=True)
                    with path.open("ab") as file:
                        file.write(record["text"].encode("latin-1"))
            except HostError as error:
                self.unwritten = error
            return
        self._recorder.event(record)
        if kind == "instance":
            with self._changed:
                self._left -= 1
                self._changed.notify_all()
        elif kind == "event" and record["worker"] >= 0:
            self._workers.setdefault(record["invocation"], record["worker"])
        elif kind == "event" and record["op"] == "invoke":
            self._invocations.append(record)

    @contextmanager
    def launch(self, module: str, events: Sequence[Mapping[str, Any]], variables: Mapping[str, str]) -> Iterator[Self]:
        """Launch one instance per event, in containers of the worker's image."""
        self._left, plan = len(events), events[0].get("plan")
        others = own_packages(Plan.from_document(plan)) if plan else ()
        code, fleet = base64.b64encode(package(module, *others)).decode(), vars(self._fleet)
        launch = {"fleet": fleet, "module": module, "code": code, "events": events, "variables": variables}
        self.recording.ask("POST", "/instances", **launch)
        try:
            yield self
        finally:
            self.recording.ask("DELETE", "/instances")
            self._wait()

    def join(self) -> None:
        """Wait until all instances have succeeded; raises RunFailed as soon as one of them fails."""
        self._wait()
        self.check()

    def _wait(self) -> None:
        """Wait until all instances have ended, or the emulator has."""
        with self._changed:
            # Bounded waits, so that Ctrl-C takes effect.
            while self._left and self.recording.receives():
                self._changed.wait(0.5)

    def transitions(self, name: str, input_: Any, transitions: list[Event]) -> Iterator[dict[str, Any]]:
        """Yield the trace's events of an execution.

        A history doesn't name invocations, so a Task gets the first unclaimed invocation of its function and worker
        that lies within it. If parallel branches run one function for one worker, the assignment is arbitrary, but the
        execution's time, which sums over them, doesn't depend on it.
        """
        worker, _ = labels(input_)
        left = [event for event in self._invocations if self._workers.get(event["invocation"]) == worker]
        left.sort(key=lambda event: event["start_ns"])
        for entry in sorted(transitions, key=lambda entry: entry.end_ns):
            first, last = entry.start_ns - TOLERANCE_NS, entry.end_ns + TOLERANCE_NS
            for invoked in left:
                if invoked["function"] == entry.function and first <= invoked["start_ns"] <= invoked["end_ns"] <= last:
                    entry.invocation = invoked["invocation"]
                    left.remove(invoked)
                    break
            yield transition_event(name, input_, entry)


def _check_replicas(needed: int, there: int) -> None:
    if there < needed:
        raise HostError(
            f"The plan needs {counted(needed, 'tensor database')}, but the stack has {there}.",
            f"docker compose up -d --scale tensors={needed}",
        )


def _host_addresses(tensors: Mapping[str, str], service: Mapping[str, Any], needed: int) -> tuple[str, ...]:
    """Return the first databases' addresses on the host, in the same order as inside the network.

    Docker publishes replicas on the host's ports in any order; a server's id tells which port it has.
    """
    if not needed:
        return ()
    addresses = {run: address for address, run in answering(service["host"].split()).items()}
    reached = [addresses[run] for run in tensors.values() if run in addresses]
    if len(reached) < len(tensors):
        raise HostError(
            f"Only {len(reached)} of the stack's {len(tensors)} tensor databases have a port on this host "
            f"({service['host']}).",
            "publish enough ports: SLSLAB_TENSORS_PORTS=6379-6410.",
        )
    return tuple(reached[:needed])


def _monotonic_ns(stamp: datetime) -> int:
    return round(stamp.timestamp() * 1e9) - time.time_ns() + time.monotonic_ns()
