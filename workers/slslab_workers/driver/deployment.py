"""From a plan to running functions and back, through AWS's APIs alone; all drivers share this.

Package and deploy → store minibatches → invoke → wait for results → evaluate → clean up.
"""

import base64
import io
import json
import sys
import threading
import zipfile
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import botocore.exceptions

from slslab_workers.architecture import HOSTS, Architecture, Cloud, Outcome, Progress, RunFailed
from slslab_workers.channels import endpoints
from slslab_workers.channels.queues import QUEUE, Queues, open_queues
from slslab_workers.driver import dependencies
from slslab_workers.driver.job import Job
from slslab_workers.models import own_packages
from slslab_workers.plan import Assignment, Plan, PlanError
from slslab_workers.training.keys import result_key

ROLE = "arn:aws:iam::000000000000:role/slslab-worker"
RESULT_POLL_S = 0.1
# How long the driver waits for functions or a message before it checks whether another function has failed, s.
PATIENCE_S = 0.5
# boto3 attempts a throttled request five times by default (legacy retry mode). Clients here don't, because repeating an
# accepted invocation would start a second worker.
PAUSES_S = (1.0, 2.0, 4.0, 8.0)
THROTTLED = "TooManyRequestsException"
# Options of an architecture with a queue and tensor databases (`Requirements.with_queue`).
QUEUE_OPTIONS = (QUEUE, *HOSTS)
# Threads that wait for each other sleep instead of spinning, which would use up the CPU share.
PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE"}
# The S3 actions of a worker. Without the last, S3 answers "forbidden" for objects that don't exist yet.
OBJECTS = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket")


def package(handler: str, *others: str) -> bytes:
    """Return the Lambda package as a ZIP: this package, the handler's if that is another one, and other modules, with
    the distributions that theirs require.

    It contains all files except bytecode and the shipped data, which only the driver reads. It leaves out times, so
    that equal sources give equal bytes. PlanError if a package is missing.
    """
    workers, modules = Path(__file__).parents[1], (handler, *others)
    shipped = set((workers / "training").glob("*.npz"))
    files = dependencies.files_for(modules)
    # A package that is found elsewhere than it was installed counts.
    for root in sorted({workers, *map(dependencies.package_of, modules)}):
        files |= {name: path for name, path in dependencies.files_below(root).items() if path not in shipped}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def worker_function(plan: Plan) -> str:
    """Return the name of a run's function, which is the prefix of its other functions' names."""
    return f"slslab-{plan.run}"[:64]


@dataclass(frozen=True)
class FunctionSpec:
    """A Lambda function of an architecture, and what its role must allow: `actions` on the run's bucket and state
    machine, and invoking the function `invokes`, which is itself if it continues in another invocation."""

    name: str
    handler: str
    memory_mb: int
    actions: tuple[str, ...] = ()
    invokes: str = ""


class Deployment(Job):
    """One run's functions and bucket, and the driver's view of its workers.

    `pauses_s` are the pauses between attempts at an invocation.
    """

    pauses_s: Sequence[float] = PAUSES_S

    def __init__(self, plan: Plan, handler: str, cloud: Cloud, progress: Progress) -> None:
        super().__init__(plan, cloud, progress)
        self.handler = handler
        self.function = cloud.deployed.function if cloud.deployed else worker_function(plan)
        self._lambda = cloud.client("lambda")
        self._cloud = cloud
        self._stopping = threading.Event()
        # A thread for each worker and one for a companion.
        self._invokers = ThreadPoolExecutor(plan.workers + 1, thread_name_prefix="invoke")
        self.arns: dict[str, str] = {}
        self.kind = "Event" if plan.invoke == "event" else "RequestResponse"
        # Ranks of the workers that train.
        self.ranks = list(range(plan.workers))

    def create(self) -> None:
        """Create bucket and functions, unless they exist, and the queues. Failed asynchronous invocations aren't
        retried (a retried worker would overwrite its peers' view of a step); they leave a record in the bucket."""
        functions = self.functions() if self.deployed is None else []
        self._progress.report("deploy", 0, len(functions))
        # Deleting the queues, last, ends everything that waits for them.
        self.created.callback(self._remove_queues)
        super().create()
        for number, function in enumerate(functions, 1):
            self.arns[function.name] = create_function(self._lambda, function, self.plan)
            self.created.callback(self._delete_function, function.name)
            self._lambda.put_function_event_invoke_config(
                FunctionName=function.name,
                MaximumRetryAttempts=0,
                DestinationConfig={"OnFailure": {"Destination": f"arn:aws:s3:::{self.bucket}"}},
            )
            self._progress.report("deploy", number, len(functions))
        self.created.callback(self._stop)
        if bindings := self.bindings():
            with self._queues() as queues:
                for queue, exchange in bindings.items():
                    queues.declare(queue)
                    if exchange:
                        queues.bind(queue, exchange)

    def functions(self) -> list[FunctionSpec]:
        """Return the architecture's functions, the workers' function first."""
        return [FunctionSpec(self.function, self.handler, self.plan.memory_mb, OBJECTS, self.function)]

    def bindings(self) -> Mapping[str, str]:
        """Return the architecture's queues, each with its exchange, or an empty name."""
        return {}

    def machine(self, _arns: Mapping[str, Any]) -> str | None:
        """Return the definition of the architecture's state machine, if it has one; `arns` are by function name."""
        return None

    def _queues(self) -> Queues:
        return open_queues(endpoints.queue_url(self._cloud.environment), self._tracer)

    def train(self) -> Outcome:
        """Train all epochs, or until the plan's accuracy or patience ends training."""
        plan = self.plan
        results: list[dict[str, Any]] = []
        if plan.gradual:
            for epoch in range(plan.epochs):
                self.upload([epoch])
                first = int(results[0]["position"]) if results else 0
                results = self._stretch(first, (epoch + 1) * plan.batches, keep=True)
                if self.evaluate(epoch) or results[0]["ended"] is not None:
                    break
        else:
            self.upload(range(plan.epochs))
            results = self._stretch(0, plan.epochs * plan.batches, keep=False)
            for epoch in range(self.finished_epochs(results[0])):
                self.evaluate(epoch)
        return self.outcome(results)

    def _stop(self) -> None:
        self._stopping.set()
        self._invokers.shutdown(wait=False, cancel_futures=True)

    def _delete_function(self, name: str) -> None:
        with suppress(self._lambda.exceptions.ResourceNotFoundException):
            self._lambda.delete_function(FunctionName=name)

    def _remove_queues(self) -> None:
        if bindings := self.bindings():
            with self._queues() as queues:
                for queue in bindings:
                    queues.delete(queue)
                for exchange in filter(None, dict.fromkeys(bindings.values())):
                    queues.delete_exchange(exchange)

    def _stretch(self, first: int, until: int, *, keep: bool) -> list[dict[str, Any]]:
        work = self._each_batch if self.plan.mode == "per-batch" else self._one_invocation
        futures = [self._invokers.submit(work, rank, first, until, keep) for rank in self.ranks]
        return self._first_failure_ends(futures + self._companions(first, until))[: len(futures)]

    def _companions(self, _first: int, _until: int) -> list["Future[dict[str, Any]]"]:
        """Start what the architecture runs alongside the workers from one step to another."""
        return []

    def _one_invocation(self, rank: int, first: int, until: int, keep: bool) -> dict[str, Any]:
        answer = self._invoke(rank, first, until, self.kind, keep=keep)
        return answer if answer.get("status") == "finished" else self._await_result(rank, first)

    def _each_batch(self, rank: int, first: int, until: int, keep: bool) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        for position in range(first, until):
            if self._stopping.is_set():
                raise RunFailed("Stopped", "another worker failed first", rank)
            more = position + 1 < self.plan.epochs * self.plan.batches
            answer = self._invoke(rank, position, position + 1, "RequestResponse", keep=more or keep)
            if answer["ended"] is not None:
                break
        return answer

    def _invoke(self, rank: int, first: int, until: int, kind: str, *, keep: bool) -> dict[str, Any]:
        assignment = Assignment(self.plan, self.bucket, rank, first, until, keep)
        return self.call(self.function, assignment.to_event(), kind, rank)

    def call(self, function: str, event: Mapping[str, Any], kind: str, rank: int | None) -> dict[str, Any]:
        """Invoke a function and, unless `kind` is Event, return its answer; RunFailed of this rank if it fails.

        A throttled invocation is repeated after pauses, since nothing has run.
        """
        for pause_s in (*self.pauses_s, None):
            try:
                answer = self._lambda.invoke(
                    FunctionName=function,
                    InvocationType=kind,
                    Payload=json.dumps(event).encode(),
                    **({"LogType": "Tail"} if kind == "RequestResponse" else {}),
                )
                break
            except botocore.exceptions.ClientError as error:
                code = error.response["Error"]["Code"]
                if pause_s is None or code != THROTTLED:
                    raise RunFailed(code, str(error), rank) from error
            if self._stopping.wait(pause_s):
                raise RunFailed("Stopped", "another function failed first", rank)
        payload: dict[str, Any] = json.loads(answer["Payload"].read() or b"{}")
        if answer.get("FunctionError"):
            raise worker_failure(payload, rank, base64.b64decode(answer["LogResult"]).decode())
        return payload

    def _await_result(self, rank: int, first: int) -> dict[str, Any]:
        """Wait for a worker that continues in asynchronous invocations; return its result of the steps from `first`, or
        raise its recorded failure."""
        key = result_key(self.plan, rank=rank)
        while not self._stopping.is_set():
            if key in self._objects.list(key, "other"):
                result: dict[str, Any] = json.loads(self._objects.get(key, "other").body)
                # An earlier result is from an earlier stretch.
                if result["position"] > first:
                    return result
            self._raise_recorded(rank)
            self._stopping.wait(RESULT_POLL_S)
        raise RunFailed("Stopped", "another worker failed first", rank)

    def _raise_recorded(self, rank: int | None) -> None:
        for key in self._objects.list("aws/lambda/async/", "other"):
            record = json.loads(self._objects.get(key, "other").body)
            failed_rank = record["requestPayload"].get("rank")
            # A failed function without a rank (a supervisor) ends every worker's training.
            if failed_rank in (rank, None):
                raise worker_failure(record["responsePayload"], failed_rank)

    def _check_companion(self) -> None:
        """Raise RunFailed if a function that the driver doesn't wait for has failed."""

    def _first_failure_ends(self, futures: "list[Future[Any]]") -> list[Any]:
        """Return results by rank. A worker's failure ends the run at once, before its peers time out."""
        pending = set(futures)
        while pending:
            # Bounded, so that Ctrl-C still works.
            done, pending = wait(pending, PATIENCE_S, FIRST_COMPLETED)
            try:
                self._check_companion()
                for future in done:
                    future.result()
            except BaseException:
                self._stopping.set()
                raise
        return [future.result() for future in futures]


class FunctionArchitecture(Architecture):
    """An architecture of functions: `handler` runs on all workers. `deploys` is for one with more functions."""

    handler: ClassVar[str]
    deploys: ClassVar[type[Deployment]] = Deployment

    def deployment(self, plan: Plan, cloud: Cloud, progress: Progress) -> Deployment:
        """Return the deployment of functions and everything they need."""
        return self.deploys(plan, self.handler, cloud, progress)


def refuse_modes(plan: Plan, why: str) -> None:
    """Raise PlanError if the plan has --mode or --invoke; `why` says that the architecture itself invokes functions."""
    if plan.mode != "long-running" or plan.invoke != "sync":
        raise PlanError(why, "leave out --mode and --invoke.")


def create_function(client: Any, function: FunctionSpec, plan: Plan) -> str:
    """Create a plan's function with Lambda's client, wait until it can be invoked, and return its ARN."""
    try:
        created = client.create_function(
            FunctionName=function.name,
            # The driver's own Python version: an emulator of the same version has torch.
            Runtime=f"python3.{sys.version_info[1]}",
            Role=ROLE,
            Handler=function.handler,
            Code={"ZipFile": package(function.handler, *own_packages(plan))},
            MemorySize=function.memory_mb,
            Timeout=plan.timeout,
            Environment={"Variables": PASSIVE},
        )
    except botocore.exceptions.ClientError as error:
        message = error.response["Error"]["Message"]
        if "size must be smaller" not in message and "Request must be smaller" not in message:
            raise
        raise PlanError(
            f"The package of {function.handler} is too large for Lambda: {message}.",
            "move files that functions don't need out of your package, or require fewer packages.",
        ) from error
    client.get_waiter("function_active_v2").wait(FunctionName=function.name)
    return str(created["FunctionArn"])


def worker_failure(payload: Mapping[str, Any], rank: int | None, log_tail: str = "") -> RunFailed:
    """Return a function's own error from the payload that Lambda returned."""
    return RunFailed(str(payload.get("errorType", "Unknown")), str(payload.get("errorMessage", "")), rank, log_tail)
