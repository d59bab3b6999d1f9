"""SPIRT's real driver and functions in threads: tensor databases, queue and S3 are real, Lambda and Step Functions not.

A cold start costs the emulator seconds and this nothing, which makes eight peers affordable. The interpreter follows
`machine.definition` to the letter and knows nothing but Task and Parallel.
"""

import copy
import io
import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import pytest
import redis
import torch

from slslab.trace.metrics import protocol
from slslab_workers.architecture import Cloud, Outcome
from slslab_workers.channels import events
from slslab_workers.channels.endpoints import QUEUE_URL, TENSOR_URLS
from slslab_workers.channels.queues import Queues, open_queues
from slslab_workers.channels.tensors import TensorDatabase
from slslab_workers.plan import Plan
from slslab_workers.spirt import architecture, membership, peer
from slslab_workers.spirt.roster import Roster
from slslab_workers.spirt.settings import Keys
from slslab_workers.training import gradients, models

LENET = 61_706
Hook = Callable[[str, int, int, Mapping[str, Any]], None]
MACHINE = "arn:aws:states:us-east-1:000000000000:stateMachine:"
EXECUTION = MACHINE.replace(":stateMachine:", ":execution:")


class FunctionFailed(Exception):
    """What a function raised, as Lambda's payload says it."""

    def __init__(self, payload: dict[str, Any]) -> None:
        super().__init__(payload)
        self.payload = payload


@dataclass
class Context:
    """A Lambda context."""

    remaining_ms: int = 60_000
    aws_request_id: str = "request"

    def get_remaining_time_in_millis(self) -> int:
        return self.remaining_ms


@dataclass
class Execution:
    """One execution: what DescribeExecution tells, and how many states it entered."""

    status: str = "RUNNING"
    output: Any = None
    error: str = ""
    cause: str = ""
    entered: list[str] = field(default_factory=list)
    stopped: datetime | None = None

    def describe(self) -> dict[str, Any]:
        """DescribeExecution's answer."""
        ended = {} if self.stopped is None else {"stopDate": self.stopped}
        if self.status == "SUCCEEDED":
            return {"status": self.status, "output": json.dumps(self.output), **ended}
        failed = {"error": self.error, "cause": self.cause} if self.status == "FAILED" else {}
        return {"status": self.status, **failed, **ended}


class Paginator:
    """ListExecutions, one page of one machine's running executions."""

    def __init__(self, states: "States") -> None:
        self._states = states

    def paginate(self, **_: Any) -> list[dict[str, Any]]:
        running = [arn for arn, execution in self._states.executions.items() if execution.status == "RUNNING"]
        return [{"executions": [{"executionArn": arn} for arn in running]}]


class States:
    """Step Functions' client: each execution on a thread of its own."""

    class exceptions:
        class ExecutionDoesNotExist(Exception):
            pass

    def __init__(self, functions: "Functions") -> None:
        self._functions = functions
        self.machines: dict[str, Any] = {}
        self.executions: dict[str, Execution] = {}
        self.threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def create_state_machine(self, *, name: str, definition: str, roleArn: str) -> dict[str, Any]:  # noqa: ARG002
        self.machines[MACHINE + name] = json.loads(definition)
        return {"stateMachineArn": MACHINE + name}

    def delete_state_machine(self, *, stateMachineArn: str) -> None:
        del self.machines[stateMachineArn]

    def get_paginator(self, operation: str) -> Paginator:
        assert operation == "list_executions"
        return Paginator(self)

    def start_execution(self, *, stateMachineArn: str, name: str, input: str) -> None:
        machine = self.machines[stateMachineArn]
        arn = f"{stateMachineArn.replace(':stateMachine:', ':execution:')}:{name}"
        with self._lock:
            assert arn not in self.executions
            execution = self.executions[arn] = Execution()
            thread = threading.Thread(target=self._run, args=(machine, execution, json.loads(input)), name=name)
            self.threads.append(thread)
        thread.start()

    def describe_execution(self, *, executionArn: str) -> dict[str, Any]:
        if executionArn not in self.executions:
            raise self.exceptions.ExecutionDoesNotExist
        return self.executions[executionArn].describe()

    def stop_execution(self, *, executionArn: str) -> None:
        self._end(self.executions[executionArn], "ABORTED")

    def join(self) -> None:
        """Wait for what still runs, as functions do whose execution was stopped."""
        for thread in self.threads:
            thread.join()

    def _end(self, execution: Execution, status: str) -> None:
        with self._lock:
            if execution.status == "RUNNING":
                execution.stopped, execution.status = datetime.now(UTC), status

    def _run(self, machine: Any, execution: Execution, document: Any) -> None:
        try:
            execution.output = self._chain(machine, execution, document)
        except FunctionFailed as failed:
            execution.error, execution.cause = failed.payload["errorType"], json.dumps(failed.payload)
            self._end(execution, "FAILED")
        except StoppedError:
            return
        else:
            self._end(execution, "SUCCEEDED")

    def _chain(self, machine: Any, execution: Execution, document: Any) -> Any:
        name, output = machine["StartAt"], None
        while True:
            if execution.status != "RUNNING":
                raise StoppedError
            state = machine["States"][name]
            execution.entered.append(name)
            if state["Type"] == "Parallel":
                with ThreadPoolExecutor(len(state["Branches"])) as pool:
                    output = list(pool.map(lambda branch: self._chain(branch, execution, document), state["Branches"]))
            else:
                assert state["Type"] == "Task"
                assert state.get("ResultPath", "$") in (None, "$")
                event = {key.removesuffix(".$"): value for key, value in state["Parameters"].items()}
                assert event["input"] == "$$.Execution.Input"
                output = self._functions.call(state["Resource"], {**event, "input": document})
            if state.get("End"):
                return output
            name = state["Next"]


class StoppedError(Exception):
    """The execution was stopped."""


class Functions:
    """Lambda's client: an invocation runs the handler where it is called; hooks are called before and after it."""

    class exceptions:
        class ResourceNotFoundException(Exception):
            pass

    def __init__(self, before: Hook | None, after: Hook | None) -> None:
        self._before, self._after = before, after
        self.handlers: dict[str, str] = {}
        self.memory: dict[str, int] = {}
        self.calls: list[str] = []

    def create_function(self, *, FunctionName: str, Handler: str, MemorySize: int, **_: Any) -> Any:
        self.handlers[FunctionName], self.memory[FunctionName] = Handler, MemorySize
        return {"FunctionArn": FunctionName}

    def get_waiter(self, _name: str) -> "Functions":
        return self

    def wait(self, **_: Any) -> None:
        """A function is active at once."""

    def put_function_event_invoke_config(self, **_: Any) -> None:
        """There are no asynchronous invocations."""

    def delete_function(self, *, FunctionName: str) -> None:
        del self.handlers[FunctionName]

    def invoke(self, *, FunctionName: str, Payload: bytes, **_: Any) -> dict[str, Any]:
        try:
            payload, failed = self.call(FunctionName, json.loads(Payload)), {}
        except FunctionFailed as failure:
            payload, failed = failure.payload, {"FunctionError": "Unhandled", "LogResult": ""}
        return {"Payload": io.BytesIO(json.dumps(payload).encode()), **failed}

    def call(self, function: str, event: Mapping[str, Any]) -> Any:
        """What the handler returns, through JSON as an event and its answer go; FunctionFailed if it raises."""
        module, _, name = self.handlers[function].rpartition(".")
        document = json.loads(json.dumps(event))
        who = (name, document["input"]["rank"], document["input"]["epoch"])
        self.calls.append(name)
        try:
            if self._before is not None:
                self._before(*who, document)
            answer = json.loads(json.dumps(getattr(import_module(module), name)(document, Context())))
            if self._after is not None:
                self._after(*who, document)
        except FunctionFailed:
            raise
        except Exception as error:
            raise FunctionFailed({"errorType": type(error).__name__, "errorMessage": str(error)}) from error
        return answer


@dataclass
class Ran:
    """What a run left: outcome, executions by peer and epoch, events, invocations by function."""

    plan: Plan
    outcome: Outcome
    executions: dict[tuple[int, int], Execution]
    events: list[dict[str, Any]]
    calls: list[str]

    @property
    def transitions(self) -> int:
        """States entered by all executions."""
        return sum(len(execution.entered) for execution in self.executions.values())


class Peers:
    """Runs plans with fresh databases for each; `parameters` has what each update made, by rank, in order."""

    def __init__(self, patch: pytest.MonkeyPatch, store: Any, urls: list[str]) -> None:
        # One queue serves all; runs have names of their own.
        self._patch, self._store, self._urls, self._queue = patch, store, urls, urls[0]
        self._pristine: dict[Any, torch.nn.Module] = {}
        self._building = threading.Lock()
        self._build = models.build
        self.events: list[dict[str, Any]] = []
        self.urls: list[str] = []
        self.plan: Plan | None = None
        self.states: States | None = None
        self.functions: Functions | None = None
        patch.setattr(models, "build", self._built)
        patch.setattr(peer, "environment_client", lambda: store)
        patch.setattr(peer, "_step_functions", lambda: self.states)
        patch.setattr(membership, "_invoke", self._invoke)
        patch.setattr(events, "environment_sink", lambda: self.events.append)
        patch.setattr("slslab_workers.spirt.learning._models", Unshared())
        # What is found dead is found dead by the same rule, sooner.
        for name in ("slslab_workers.spirt.peer", "slslab_workers.spirt.deployment"):
            patch.setattr(f"{name}.PING_INTERVAL_S", 0.01)
        for name in ("slslab_workers.spirt.membership", "slslab_workers.spirt.rounds"):
            patch.setattr(f"{name}.LOOK_S", 0.1)
        patch.setattr("slslab_workers.spirt.deployment.DESCRIBE_INTERVAL_S", 0.02)
        patch.setattr("slslab_workers.driver.deployment.package", lambda _handler: b"")

    def run(self, plan: Plan, before: Hook | None = None, after: Hook | None = None) -> Ran:
        """Drive the plan; what it raises is raised when nothing of it runs any more."""
        self.prepare(plan)
        self.functions = Functions(before, after)
        self.states = States(self.functions)
        clients = {"lambda": self.functions, "stepfunctions": self.states, "s3": self._store}
        environment = {QUEUE_URL: self._queue, TENSOR_URLS: " ".join(self.urls)}
        cloud = Cloud(clients.__getitem__, self.events.append, environment)
        architecture.requirements(plan)
        try:
            outcome = architecture.drive(plan, cloud, NoProgress())
        finally:
            self.states.join()
        executions = {}
        for arn, execution in self.states.executions.items():
            rank, epoch = arn.rsplit("-p", 1)[1].split("-e")
            executions[int(rank), int(epoch)] = execution
        return Ran(plan, outcome, executions, self.events, self.functions.calls)

    def prepare(self, plan: Plan) -> None:
        """Databases for the plan's peers, and the environment of its functions."""
        self.plan, self.events = plan, []
        assert len(self._urls) > plan.workers, "the fixture has too few databases"
        self.urls = [self._urls.pop() for _ in range(plan.workers)]
        self._patch.setenv(QUEUE_URL, self._queue)
        self._patch.setenv(TENSOR_URLS, " ".join(self.urls))

    def kill(self, rank: int) -> None:
        """SHUTDOWN of a peer's database."""
        with redis.Redis.from_url(self.urls[rank]) as client:
            client.shutdown(nosave=True)

    def parameters(self, rank: int) -> torch.Tensor:
        """A peer's parameters (P,) now."""
        assert self.plan is not None
        return self.tensor(rank, Keys(self.plan).parameters)

    def tensor(self, rank: int, key: str) -> torch.Tensor:
        """A tensor of a peer's database."""
        with self.database(rank) as database:
            return torch.from_numpy(database.get(key, "other"))

    def database(self, rank: int) -> TensorDatabase:
        """A peer's database, outside the trace."""
        return TensorDatabase(self.urls[rank], events.Tracer(lambda _: None))

    def queues(self) -> Queues:
        """The queues, outside the trace."""
        return open_queues(self._queue, events.Tracer(lambda _: None))

    def left(self) -> list[bytes]:
        """Keys that the last run left in any database that lives, or in the queue's."""
        assert self.plan is not None
        found: list[bytes] = []
        for url in [*self.urls, self._queue]:
            with redis.Redis.from_url(url) as client:
                try:
                    found += [key for key in client.scan_iter() if self.plan.run.encode() in key]
                except redis.exceptions.ConnectionError:
                    continue
        return found

    def _invoke(self, _peer: Any, function: str, event: Mapping[str, Any]) -> dict[str, Any] | None:
        assert self.functions is not None
        try:
            self.functions.call(function, event)
        except FunctionFailed as failed:
            return failed.payload
        return None

    def _built(self, *key: Any) -> torch.nn.Module:
        # Building seeds torch's one generator, which in Lambda no two functions share.
        with self._building:
            if key not in self._pristine:
                self._pristine[key] = self._build(*key)
            return copy.deepcopy(self._pristine[key])


class Unshared(threading.local):
    """The models that an environment keeps, an environment being a thread."""

    def __init__(self) -> None:
        self._kept: dict[Any, torch.nn.Module] = {}

    def __contains__(self, key: Any) -> bool:
        return key in self._kept

    def __getitem__(self, key: Any) -> torch.nn.Module:
        return self._kept[key]

    def __setitem__(self, key: Any, model: torch.nn.Module) -> None:
        self._kept[key] = model


class NoProgress:
    """Progress that is discarded."""

    def report(self, stage: str, done: int, total: int) -> None:
        """Do nothing."""


class Steps:
    """A hook that keeps every peer's parameters after each of its updates."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self.fingerprints: dict[int, list[str]] = {}
        self.last = torch.empty(0)

    def __call__(self, name: str, rank: int, _: int, __: Any) -> None:
        if name == "update_model":
            parameters = self._peers.parameters(rank)
            self.fingerprints.setdefault(rank, []).append(gradients.sha256(parameters))
            if rank == 0:
                self.last = parameters


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Relative to the length of the second."""
    return float((one - other).norm() / other.norm())


def check_counts(ran: Ran, join: str = "none") -> None:
    """The closed form, exactly: messages and bytes by the events, transitions by the executions; `join` says who joined
    when, in the option's words."""
    plan, options = ran.plan, {**ran.plan.options, "join": join}
    expected = architecture.counts(plan.workers, plan.batches, ran.outcome.epochs, LENET, options)
    roster = Roster.of(plan.workers, options)
    active = {(rank, epoch) for epoch in range(ran.outcome.epochs) for rank in roster.active(epoch)}
    counted = protocol(ran.events)
    operations = {**counted["counts"], "transition": ran.transitions}
    assert operations == dict(expected.operations)
    assert counted["bytes"] == {"in": expected.bytes_in, "out": expected.bytes_out}
    assert {len(execution.entered) for execution in ran.executions.values()} == {plan.batches + 8}
    assert ran.executions.keys() == active
    assert ran.calls.count("init_model") == len(roster.founders)
    assert len(ran.calls) == plan.workers + len(roster.founders) + len(active) * (plan.batches + 7)


def check_nothing_left(peers: Peers) -> None:
    """No execution, machine, function, queue or key."""
    assert peers.states is not None
    assert peers.functions is not None
    assert peers.states.machines == {}
    assert {execution.status for execution in peers.states.executions.values()} <= {"FAILED", "ABORTED", "SUCCEEDED"}
    assert peers.functions.handlers == {}
    assert peers.left() == []
