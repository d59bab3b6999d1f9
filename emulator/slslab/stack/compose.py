"""A plan on a running compose stack: its functions run in the stack's emulator, whose recording is the run's trace.

The driver talks to the emulator and to S3 directly and to Step Functions through LocalStack, all at the host's ports.
What it makes is named to the emulator before it is made, so that a driver that is killed leaves nothing behind.
"""

import getpass
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit

import botocore.exceptions
import localstack_client.session
import redis

from slslab import __version__
from slslab.clients import aws_client, settings
from slslab.errors import HostError, RequestError, SlslabError
from slslab.instances import InstanceRecord
from slslab.metering import InvocationRecord, clock_domain
from slslab.running import Recorder, Running, host_meter
from slslab.stack import Stack
from slslab.stack.remote_instances import RemoteLauncher
from slslab.stack.services import server_information
from slslab.statemachines.history import labels, transition_event
from slslab.statemachines.told import Told, told_transitions
from slslab_workers.architecture import Cloud, Requirements
from slslab_workers.plan import Plan

ANSWER_S = 60.0
# Containers, objects and functions of a whole run are started and removed one by one.
WORK_S = 600.0
START = "start it with `slslab up --stack compose`, or name another in SLSLAB_EMULATOR_URL."
OWNER = {"record": "event", "function": "states", "environment": "states"}
# The operations by which something is made, and the parameter that names it.
MAKING = {
    "lambda": ("CreateFunction", "FunctionName", "function"),
    "s3": ("CreateBucket", "Bucket", "bucket"),
    "sfn": ("CreateStateMachine", "name", "machine"),
}
# A history's times are exact to the millisecond.
TOLERANCE_NS = 2_000_000


def emulator_url() -> str:
    """Where the stack's emulator is for programs of this host: SLSLAB_EMULATOR_URL, or the port that is published."""
    return os.environ.get("SLSLAB_EMULATOR_URL") or f"http://127.0.0.1:{os.environ.get('SLSLAB_EMULATOR_PORT', 9001)}"


class RemoteEmulator:
    """The control API of an emulator at this address (`slslab.control`)."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        parts = urlsplit(self.url)
        try:
            self._address = (parts.hostname or "", parts.port or 80)
        except ValueError:
            self._address = ("", 0)
        if parts.scheme != "http" or not self._address[0]:
            raise RequestError(f"{url!r} is no address of an emulator.", "it looks like http://127.0.0.1:9001.")

    def about(self) -> dict[str, Any]:
        """What the stack is. Raises HostError if no emulator answers."""
        status, body = self.ask("GET", "/slslab/about")
        try:
            found: dict[str, Any] = json.loads(body)
            if status == 200 and "services" in found:
                return found
        except ValueError:
            pass
        raise HostError(f"What answers at {self.url} is no emulator of a compose stack.", START)

    def ask(self, method: str, path: str, body: Any = None, limit_s: float | None = None) -> tuple[int, bytes]:
        """One request: status and body of the answer. Raises HostError if none comes within the limit (ANSWER_S)."""
        with closing(self._connection(limit_s)) as connection:
            answer = self._answer(connection, method, path, body)
            return answer.status, answer.read()

    def record(self, run: str, tensor_databases: int) -> "RemoteRecording":
        """Begin a recording. Raises HostError if another run uses the stack."""
        by = f"{getpass.getuser()}@{socket.gethostname()} (process {os.getpid()})"
        connection = self._connection()
        try:
            asked = {"run": run, "by": by, "tensor_databases": tensor_databases}
            answer = self._answer(connection, "POST", "/slslab/recordings", asked)
            if answer.status != 200:
                message = json.loads(answer.read())["message"]
                raise HostError(message, "wait for its end, or `slslab status` shows what is wrong.")
            return RemoteRecording(self, connection, answer)
        except BaseException:
            connection.close()
            raise

    def _connection(self, limit_s: float | None = None) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(*self._address, timeout=ANSWER_S if limit_s is None else limit_s)

    def _answer(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any
    ) -> http.client.HTTPResponse:
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            message = f"No emulator answers at {self.url}: {error or type(error).__name__}."
            raise HostError(message, START) from error


class RemoteRecording:
    """A recording under way, as a context manager: left without its `finish` it is broken off.

    `path` is its own in the control API; `tensors` has the id of every tensor database's server by its address inside
    the network.
    """

    def __init__(
        self, emulator: RemoteEmulator, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse
    ) -> None:
        self._emulator = emulator
        self._answer = answer
        assert connection.sock is not None
        self._socket = connection.sock
        self._connection = connection
        first = json.loads(answer.readline())
        self.tensors: dict[str, str] = first["tensors"]
        self.path = f"/slslab/recordings/{first['id']}"
        # From now on there is silence for as long as nothing happens.
        self._socket.settimeout(None)
        self._end: dict[str, Any] | None = None
        self._failure: SlslabError | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(OSError):  # it has ended already
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._reader is not None:
            self._reader.join()
        self._answer.close()
        self._connection.close()

    def listen(self, hear: Callable[[dict[str, Any]], None], ended: Callable[[], None] = lambda: None) -> None:
        """Hand on every record from now on, on a thread of its own; then say that no more will come."""
        self._reader = threading.Thread(target=self._read, args=(hear, ended), name="recording", daemon=True)
        self._reader.start()

    def name(self, kind: str, name: str) -> None:
        """Say what belongs to the run: its records are told from now on, and it goes with the recording."""
        status, body = self._emulator.ask("POST", f"{self.path}/resources", {"kind": kind, "name": name})
        if status != 204:
            raise HostError(f"The stack's emulator has ended the recording: {body.decode()}.", START)

    def finish(self) -> dict[str, Any]:
        """End it, and wait until everything has arrived; the recording's last record."""
        assert self._reader is not None
        self._emulator.ask("DELETE", self.path, limit_s=WORK_S)
        self._reader.join()
        if self._failure is not None:
            raise self._failure
        if self._end is None:
            raise HostError(f"The emulator at {self._emulator.url} ended before the run's recording did.", START)
        return self._end

    def _read(self, hear: Callable[[dict[str, Any]], None], ended: Callable[[], None]) -> None:
        # A connection that breaks off leaves no end; `finish` says so.
        with ExitStack() as stack, suppress(OSError, http.client.HTTPException, ValueError):
            stack.callback(ended)
            for line in self._answer:
                record = json.loads(line)
                if record["record"] == "end":
                    self._end = record
                    return
                try:
                    hear(record)
                except SlslabError as error:  # the trace cannot be written
                    self._failure = error
                    return


class ComposeSystem:
    """A running compose stack, if a plan can run on it; HostError or RequestError with the reason if not."""

    def __init__(self, plan: Plan, requirements: Requirements) -> None:
        self._emulator = RemoteEmulator(emulator_url())
        self._plan = plan
        self._requirements = requirements
        self._about = self._emulator.about()
        self._services = {service["part"]: service for service in self._about["services"]}
        self.budget_mb = int(self._about["memory_budget_mb"])
        self._check()

    @contextmanager
    def running(self, recorder: Recorder, logs: Path) -> Iterator[Running]:
        """The stack, recorded for the block."""
        requirements, about = self._requirements, self._about
        began = time.process_time()
        with self._emulator.record(self._plan.run, requirements.tensor_databases) as recording:
            _check_replicas(requirements.tensor_databases, len(recording.tensors))
            launcher: RemoteLauncher | None = None
            if requirements.instances is not None:
                ask = partial(self._emulator.ask, limit_s=WORK_S)
                launcher = RemoteLauncher(requirements.instances, ask, recording.path)
            heard = _Heard(recorder, launcher)
            recording.listen(heard.record, launcher.broken if launcher is not None else lambda: None)
            clients = _Clients(self._services, about["credentials"], recording)
            tell_hosts = host_meter(requirements, recorder)

            def finish() -> dict[str, Any]:
                clients.read_executions()
                end = recording.finish()
                tell_hosts()
                for execution in clients.executions:
                    for event in heard.transitions(*execution):
                        recorder.event(event)
                heard.fetch_logs(self._emulator, logs)
                driver = time.process_time() - began
                seconds = {"emulator": end["cpu_seconds"], "driver": round(driver, 3)}
                return {"package": end["package"], "own_cpu_seconds": seconds}

            tensors = _host_addresses(recording.tensors, self._services["tensors"], requirements.tensor_databases)
            queue = self._services["queue"]["host"] if requirements.queue else None
            stack = Stack(self._services["s3"]["host"], about["credentials"], {}, tensors, queue)
            host = {name: about[name] for name in ("cores", "cpu_share_enforced", "confinement")}
            host["stack"] = {part: self._services[part]["name"] for part in self._parts()}
            if launcher is not None:
                host["stack"]["instances"] = f"containers of {self._about['image']}"
            cloud = Cloud(clients.client, recorder.driver_event, stack.worker_environment(), launcher)
            yield Running(cloud, host, finish)

    def _parts(self) -> list[str]:
        """The services that the plan needs."""
        wanted = self._requirements
        needed = {"tensors": wanted.tensor_databases, "queue": wanted.queue, "states": wanted.state_machines}
        return ["lambda", "s3", *(part for part, need in needed.items() if need)]

    def _check(self) -> None:
        about, wanted = self._about, self._requirements
        if wanted.instances is not None and about["environment"] != "docker":
            message = f"The emulator at {self._emulator.url} runs no containers, and so launches no instances."
            raise HostError(message, "--stack embedded launches them as processes of this host.")
        if about["environment"] != self._plan.environment:
            message = f"The emulator at {self._emulator.url} runs functions as {about['environment']}"
            raise RequestError(
                f"{message}, and the plan wants {self._plan.environment}.", f"--environment {about['environment']}"
            )
        if about["version"] != __version__:
            message = f"The emulator at {self._emulator.url} is slslab {about['version']}, and this is {__version__}."
            raise RequestError(message, "build the stack's images anew, or use that version.")
        if about["clock"] != clock_domain():
            message = f"The emulator at {self._emulator.url} runs on another host, whose clock is not this one's."
            raise HostError(message, "run the command on that host.")
        if wanted.tensor_databases:
            # Also where there is none: a service that is scaled to nothing is no service that is ill.
            _check_replicas(wanted.tensor_databases, len(self._services["tensors"]["inside"].split()))
        for part in self._parts():
            if not self._services[part]["healthy"]:
                message = f"The stack's {part} at {self._services[part]['inside']} does not answer"
                raise HostError(f"{message}: {self._services[part]['trouble']}.", "`docker compose ps` and `logs`.")
        if wanted.queue not in ("", "auto", self._queue_kind()):
            message = f"The stack's queue is {self._services['queue']['name']}, and the plan wants {wanted.queue}."
            raise RequestError(message, "--queue auto takes the stack's.")

    def _queue_kind(self) -> str:
        return "rabbitmq" if self._services["queue"]["inside"].startswith("amqp") else "embedded"


class _Clients:
    """The driver's boto3 clients, watched: what they make is named to the recording first, and the histories of state
    machines' executions are read before they go."""

    def __init__(self, services: Mapping[str, Any], credentials: Mapping[str, str], recording: RemoteRecording) -> None:
        self._services = services
        self._credentials = credentials
        self._recording = recording
        self._machines: dict[str, Any] = {}
        # Name, input and transitions.
        self.executions: list[tuple[str, Any, list[Told]]] = []

    def client(self, service: str) -> Any:
        """A client of `lambda`, `s3` or `stepfunctions`."""
        if service == "stepfunctions":
            client = self._localstack_client()
            client.meta.events.register("provide-client-params.sfn.DeleteStateMachine", self._deleting(client))
            client.meta.events.register("after-call.sfn.CreateStateMachine", self._created(client))
        else:
            client = aws_client(service, self._services[service]["host"], self._credentials)
        identifier = client.meta.service_model.service_id.hyphenize()
        operation, parameter, kind = MAKING[identifier]

        def name(params: Mapping[str, Any], **_: Any) -> None:
            self._recording.name(kind, params[parameter])

        client.meta.events.register(f"provide-client-params.{identifier}.{operation}", name)
        return client

    def read_executions(self) -> None:
        """Read what is left of the executions of machines that nobody deleted."""
        try:
            for arn, client in list(self._machines.items()):
                self._read(client, arn)
        except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError) as error:
            message = f"Step Functions at {self._services['states']['host']} cannot be read: {error}."
            raise HostError(message, "`docker compose ps` and `logs` tell more.") from error

    def _localstack_client(self) -> Any:
        wanted = self._services["states"]["host"]
        session = localstack_client.session.Session(
            aws_access_key_id=self._credentials["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self._credentials["AWS_SECRET_ACCESS_KEY"],
            localstack_host=urlsplit(wanted).netloc,
        )
        client = session.client("stepfunctions", **settings("stepfunctions"))
        if client.meta.endpoint_url != wanted:
            # The package prefers AWS's variable to what it is told.
            message = f"AWS_ENDPOINT_URL leads to {client.meta.endpoint_url}, and the stack's LocalStack is {wanted}."
            raise RequestError(message, "unset AWS_ENDPOINT_URL.")
        return client

    def _created(self, client: Any) -> Callable[..., None]:
        def created(parsed: Mapping[str, Any], **_: Any) -> None:
            if "stateMachineArn" in parsed:
                self._machines[parsed["stateMachineArn"]] = client

        return created

    def _deleting(self, client: Any) -> Callable[..., None]:
        def deleting(params: Mapping[str, Any], **_: Any) -> None:
            if params["stateMachineArn"] in self._machines:
                self._read(client, params["stateMachineArn"])

        return deleting

    def _read(self, client: Any, machine: str) -> None:
        del self._machines[machine]
        pages = client.get_paginator("list_executions").paginate(stateMachineArn=machine)
        for execution in [execution for page in pages for execution in page["executions"]]:
            arn = execution["executionArn"]
            given = json.loads(client.describe_execution(executionArn=arn)["input"])
            history = client.get_paginator("get_execution_history").paginate(executionArn=arn)
            told = told_transitions((event for page in history for event in page["events"]), _monotonic_ns)
            self.executions.append((execution["name"], given, told))


class _Heard:
    """Hands a recording's records to the run's recorder, and keeps what tells which invocation a transition made."""

    def __init__(self, recorder: Recorder, launcher: RemoteLauncher | None) -> None:
        self._recorder = recorder
        self._launcher = launcher
        self._environments: dict[str, None] = {}
        self._workers: dict[str, int] = {}
        self._invocations: list[dict[str, Any]] = []

    def record(self, record: dict[str, Any]) -> None:
        """A record of the recording."""
        if record["record"] == "invocation":
            self._environments[record["environment"]] = None
            self._recorder.invocation(InvocationRecord(**{k: v for k, v in record.items() if k != "record"}))
            return
        if record["record"] == "instance":
            assert self._launcher is not None
            instance = InstanceRecord(**{k: v for k, v in record.items() if k != "record"})
            self._environments[instance.id] = None
            self._recorder.instance(instance)
            self._launcher.heard(instance)
            return
        self._recorder.event(record)
        if record["record"] != "event":
            return
        if record["op"] == "environment.start":
            self._environments[record["environment"]] = None
        if record["worker"] >= 0:
            self._workers.setdefault(record["invocation"], record["worker"])
        elif record["op"] == "invoke":
            self._invocations.append(record)

    def transitions(self, name: str, given: Any, told: list[Told]) -> Iterator[dict[str, Any]]:
        """The trace's events of an execution.

        A history does not name invocations. A Task's is the one of its function and worker that lies within it, and of
        those the first that is left: branches run one function for one worker at once, and which of them had which
        invocation is not known. The execution's own time, for which they are added up, does not depend on it.
        """
        worker, _ = labels(given)
        own = [one for one in self._invocations if self._workers.get(one["invocation"]) == worker]
        own.sort(key=lambda one: one["start_ns"])
        for entry in sorted(told, key=lambda one: one.transition.end_ns):
            first, last = entry.transition.start_ns - TOLERANCE_NS, entry.transition.end_ns + TOLERANCE_NS
            for invoked in own:
                if invoked["function"] == entry.function and first <= invoked["start_ns"] <= invoked["end_ns"] <= last:
                    entry.transition.invocation = invoked["invocation"]
                    own.remove(invoked)
                    break
            yield {**transition_event(name, given, entry.transition), **OWNER}

    def fetch_logs(self, emulator: RemoteEmulator, logs: Path) -> None:
        """Keep the logs of all environments of the run."""
        logs.mkdir(parents=True, exist_ok=True)
        for environment in self._environments:
            status, body = emulator.ask("GET", f"/slslab/logs/{quote(environment)}")
            if status == 200:
                (logs / f"{environment}.log").write_bytes(body)


def _check_replicas(wanted: int, there: int) -> None:
    """HostError if there are fewer tensor databases than the plan needs."""
    if there < wanted:
        raise HostError(
            f"The plan needs {wanted} tensor databases, and the stack has {there}: {wanted - there} are missing.",
            f"docker compose up -d --scale tensors={wanted}",
        )


def _host_addresses(tensors: Mapping[str, str], service: Mapping[str, Any], wanted: int) -> tuple[str, ...]:
    """The first databases' addresses on the host, in the order of those inside the network.

    The engine publishes replicas at the host's ports in any order; their servers' ids tell which is where.
    """
    if not wanted:
        return ()
    found: dict[str, str] = {}
    for address in service["host"].split():
        with suppress(redis.RedisError):  # nothing is there, or something else
            found[server_information(address)["run_id"]] = address
    reached = [found[run] for run in tensors.values() if run in found]
    if len(reached) < len(tensors):
        message = f"Only {len(reached)} of the stack's {len(tensors)} tensor databases are at the host's ports"
        raise HostError(f"{message} {service['host']}.", "publish enough ports: SLSLAB_TENSORS_PORTS=6379-6410.")
    return tuple(reached[:wanted])


def _monotonic_ns(stamp: datetime) -> int:
    return round(stamp.timestamp() * 1e9) - time.time_ns() + time.monotonic_ns()
