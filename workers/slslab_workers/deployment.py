"""From a plan to running functions and back, through AWS's APIs alone: what the rooms' trigger scripts share.

Package and deploy → store minibatches → invoke → wait for results → evaluate → clean up.
"""

import base64
import importlib.util
import io
import json
import threading
import zipfile
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slslab_workers.architecture import Cloud, Outcome, Progress, RunFailed
from slslab_workers.job import Job, aws_failures
from slslab_workers.keys import result_key
from slslab_workers.plan import Assignment, Plan, PlanError

ROLE = "arn:aws:iam::000000000000:role/slslab-worker"
RESULT_POLL_S = 0.1


def package(handler: str) -> bytes:
    """The Lambda package: this very package, and the one that the handler is in if that is another's.

    Zipped as they are but for bytecode, so that equal sources give equal bytes.
    """
    roots = {Path(__file__).parent, _package_of(handler)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for root in sorted(roots):
            for path in sorted(path for path in root.rglob("*") if path.is_file() and path.suffix != ".pyc"):
                entry = zipfile.ZipInfo(str(path.relative_to(root.parent)))
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _package_of(handler: str) -> Path:
    """Directory of the top-level package that a handler is in."""
    name = handler.partition(".")[0]
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise PlanError(f"The handler {handler} is in no package that can be imported.", "install the architecture's.")
    return Path(next(iter(found.submodule_search_locations)))


def train_data_parallel(plan: Plan, handler: str, cloud: Cloud, progress: Progress) -> Outcome:
    """Run a synchronous data-parallel architecture: n workers of one function, equal but for their rank."""
    return deploy_and_train(Deployment(plan, handler, cloud, progress))


def deploy_and_train(deployment: "Deployment") -> Outcome:
    """Create, train and remove, whatever happens; what AWS refuses is the run's failure."""
    with aws_failures():
        try:
            deployment.create()
            return deployment.train()
        finally:
            deployment.remove()


@dataclass(frozen=True)
class FunctionSpec:
    """A Lambda function of a room."""

    name: str
    handler: str
    memory_mb: int


class Deployment(Job):
    """One run's functions beside its bucket, and the driver's view of its workers."""

    def __init__(self, plan: Plan, handler: str, cloud: Cloud, progress: Progress) -> None:
        super().__init__(plan, cloud, progress)
        self.handler = handler
        self.function = f"slslab-{plan.run}"[:64]
        self._lambda = cloud.client("lambda")
        self._stopping = threading.Event()
        # The workers, and one companion at most.
        self._invokers = ThreadPoolExecutor(plan.workers + 1, thread_name_prefix="invoke")
        self.arns: dict[str, str] = {}
        # The workers that train.
        self.ranks = list(range(plan.workers))

    def create(self) -> None:
        """Bucket and function; asynchronous failures are not retried (a retried worker would overwrite its peers'
        view of a step) and leave a record in the bucket."""
        functions = self.functions()
        self._progress.report("deploy", 0, len(functions))
        self.create_bucket()
        for number, function in enumerate(functions, 1):
            self._create_function(function)
            self._progress.report("deploy", number, len(functions))

    def functions(self) -> list["FunctionSpec"]:
        """The room's functions, the workers' first."""
        return [FunctionSpec(self.function, self.handler, self.plan.memory_mb)]

    def _create_function(self, function: "FunctionSpec") -> None:
        created = self._lambda.create_function(
            FunctionName=function.name,
            Runtime="python3.11",
            Role=ROLE,
            Handler=function.handler,
            Code={"ZipFile": package(function.handler)},
            MemorySize=function.memory_mb,
            Timeout=self.plan.timeout,
            # Threads that wait for each other sleep instead of spinning: a spinning thread burns the CPU share.
            Environment={"Variables": {"OMP_WAIT_POLICY": "PASSIVE"}},
        )
        self.arns[function.name] = created["FunctionArn"]
        self._lambda.get_waiter("function_active_v2").wait(FunctionName=function.name)
        self._lambda.put_function_event_invoke_config(
            FunctionName=function.name,
            MaximumRetryAttempts=0,
            DestinationConfig={"OnFailure": {"Destination": f"arn:aws:s3:::{self.bucket}"}},
        )

    def train(self) -> Outcome:
        """All epochs, or until the plan's accuracy or patience says stop."""
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

    def remove(self) -> None:
        """Delete the functions, everything in the bucket, and the bucket; end the invoking threads."""
        self._stopping.set()
        self._invokers.shutdown(wait=False, cancel_futures=True)
        try:
            for name in self.arns:
                with suppress(self._lambda.exceptions.ResourceNotFoundException):
                    self._lambda.delete_function(FunctionName=name)
        finally:
            self.remove_bucket()

    def _stretch(self, first: int, until: int, *, keep: bool) -> list[dict[str, Any]]:
        """Have every worker train from one step to another, in the plan's mode; results of `ranks`."""
        per_batch = self.plan.mode == "per-batch"
        work = self._each_batch if per_batch else self._one_invocation
        futures = [self._invokers.submit(work, rank, first, until, keep) for rank in self.ranks]
        return self._first_failure_ends(futures + self._companions(first, until))[: len(futures)]

    def _companions(self, _first: int, _until: int) -> list["Future[dict[str, Any]]"]:
        """What else of the room runs from one step to another, beside the workers."""
        return []

    def _one_invocation(self, rank: int, first: int, until: int, keep: bool) -> dict[str, Any]:
        assignment = self._assignment(rank, first, until, resume=first > 0, keep=keep)
        if self.plan.invoke == "event":
            self._invoke(assignment, "Event")
            return self._await_result(rank, first)
        answer = self._invoke(assignment, "RequestResponse")
        return answer if answer["status"] == "finished" else self._await_result(rank, first)

    def _each_batch(self, rank: int, first: int, until: int, keep: bool) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        position, last = first, self.plan.epochs * self.plan.batches
        while position < self.actual(until, answer):
            if self._stopping.is_set():
                raise RunFailed("Stopped", "another worker failed first", rank)
            more = position + 1 < self.actual(last, answer)
            assignment = self._assignment(rank, position, position + 1, resume=position > 0, keep=more or keep)
            answer = self._invoke(assignment, "RequestResponse")
            if answer["ended"] is not None:
                break
            position += 1
        return answer

    def actual(self, planned: int, answer: Mapping[str, Any]) -> int:  # noqa: ARG002 - where workers leave, it depends
        """The step that takes the place of a planned one, as far as a worker's last answer tells (empty for none)."""
        return planned

    def _assignment(self, rank: int, first: int, until: int, *, resume: bool, keep: bool) -> Assignment:
        return Assignment(self.plan, self.bucket, rank, first, until, resume, keep, generation=0)

    def _invoke(self, assignment: Assignment, kind: str) -> dict[str, Any]:
        return self.call(self.function, assignment.to_event(), kind, assignment.rank)

    def call(self, function: str, event: Mapping[str, Any], kind: str, rank: int | None) -> dict[str, Any]:
        """Invoke a function and, unless `kind` is Event, return its answer; RunFailed of this rank if it fails."""
        answer = self._lambda.invoke(
            FunctionName=function,
            InvocationType=kind,
            Payload=json.dumps(event).encode(),
            **({"LogType": "Tail"} if kind == "RequestResponse" else {}),
        )
        payload = json.loads(answer["Payload"].read() or b"{}")
        if answer.get("FunctionError"):
            raise _worker_failure(payload, rank, base64.b64decode(answer["LogResult"]).decode())
        result: dict[str, Any] = payload
        return result

    def _await_result(self, rank: int, first: int) -> dict[str, Any]:
        """Wait for a worker that goes on in asynchronous invocations: what it left of the steps from `first`, or the
        record of its failure."""
        wanted = result_key(self.plan, rank)
        while not self._stopping.is_set():
            if wanted in self._objects.list(wanted, "other"):
                result: dict[str, Any] = json.loads(self._objects.get(wanted, "other").body)
                # Before that it is the one of an earlier stretch.
                if result["position"] > first:
                    return result
            self._raise_recorded(rank)
            self._stopping.wait(RESULT_POLL_S)
        raise RunFailed("Stopped", "another worker failed first", rank)

    def _raise_recorded(self, rank: int | None) -> None:
        """RunFailed if an asynchronous invocation of this worker has failed, or one of a function without a rank."""
        for key in self._objects.list("aws/lambda/async/", "other"):
            record = json.loads(self._objects.get(key, "other").body)
            failed = record["requestPayload"].get("rank")
            # A function without a rank (a supervisor) fails for everybody.
            if failed in (rank, None):
                raise _worker_failure(record["responsePayload"], failed, "")

    def _first_failure_ends(self, futures: list["Future[dict[str, Any]]"]) -> list[dict[str, Any]]:
        """Results by rank; a dead worker ends the run at once instead of leaving its peers to their time-outs."""
        pending: set[Future[dict[str, Any]]] = set(futures)
        while pending:
            # A bounded wait, so that Ctrl-C is heard.
            over, pending = wait(pending, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in over:
                if (error := future.exception()) is not None:
                    self._stopping.set()
                    raise error
        return [future.result() for future in futures]


def _worker_failure(payload: Mapping[str, Any], rank: int | None, log_tail: str) -> RunFailed:
    return RunFailed(
        str(payload.get("errorType", "Unknown")), str(payload.get("errorMessage", "")), rank, None, log_tail
    )
