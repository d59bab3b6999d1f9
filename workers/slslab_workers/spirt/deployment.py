"""SPIRT's trigger script: it invokes each peer's init_peers and follows the peers' executions through the epochs."""

import json
import secrets
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from slslab_workers.architecture import Cloud, Outcome, Progress, RunFailed
from slslab_workers.channels import endpoints
from slslab_workers.channels.objects import Absent
from slslab_workers.channels.queues import QueueError
from slslab_workers.channels.queues.barriers import prepare_epoch, remove_epoch
from slslab_workers.channels.stream import Unreachable
from slslab_workers.channels.tensors import TensorDatabase
from slslab_workers.driver.deployment import ROLE, Deployment, FunctionSpec, worker_failure
from slslab_workers.driver.job import gradient_mb
from slslab_workers.option import Option
from slslab_workers.plan import Plan
from slslab_workers.spirt.machine import STATES, definition
from slslab_workers.spirt.roster import Roster
from slslab_workers.spirt.settings import PING_INTERVAL_S, PINGS, Execution, Keys, password_queue, waiting_queue
from slslab_workers.training.keys import result_key, validation_key
from slslab_workers.training.samples import HELD_OUT

# Pause between two DescribeExecution calls: Step Functions can't wait for an execution to end.
DESCRIBE_INTERVAL_S = 0.2
VALIDATION = 2048
MEMBERSHIP = ("init_peers", "auth", "check_heartbeat")
LEARNING = ("init_model", "compute_gradients", "check_convergence")
# The actions that functions need in S3 and Step Functions; functions not listed need none.
ACTIONS: Mapping[str, tuple[str, ...]] = {
    "init_model": ("states:StartExecution",),
    "compute_gradients": ("s3:GetObject",),
    "check_convergence": ("s3:GetObject", "s3:PutObject"),
    "trigger_next_epoch": ("s3:PutObject", "states:StartExecution"),
}
# Functions that may start the first execution of a joining peer.
HANDING_OVER = ("auth", "average_gradients")
# Memory, in float32 gradients: a gradient's JSON text, a function that reads one, a mean written as text.
TEXT, READ_TEXT, WRITTEN_TEXT = 6, 20, 32


def has_texts(plan: Plan) -> bool:
    """Return whether gradients are stored as JSON texts."""
    return plan.options["gradients"] == "json"


LIGHT_MEMORY = Option(
    "light-memory",
    int,
    0,
    "Memory size of functions without torch, MB: membership, average, aggregation, update, next "
    "epoch. 0 means 256 MB plus four gradients, or plus twenty if a mean is read as JSON.",
    memory=True,
    # Enough to hold two vectors and transfer two more.
    needed_mb=lambda plan: min(256 + (READ_TEXT if has_texts(plan) else 4) * gradient_mb(plan), plan.memory_mb),
)


class SpirtDeployment(Deployment):
    """Deploys the functions of all states, the state machine, and the queues between peers."""

    def __init__(self, plan: Plan, handler: str, cloud: Cloud, progress: Progress) -> None:
        super().__init__(plan, handler, cloud, progress)
        self._states = cloud.client("stepfunctions")
        self._machine = ""
        self._admission = secrets.token_hex(16)
        self._epoch = 0
        # By rank: the epoch and time of a peer's failure, and who found it.
        self._failures: dict[int, dict[str, Any]] = {}
        self._roster = Roster.of(plan.workers, plan.options)
        # By rank: the first epoch of each peer that takes part, now or later.
        self._first_epochs = dict.fromkeys(self._roster.founders, 0)
        # By rank: newcomers' running invocations of init_peers.
        self._starting: dict[int, Future[None]] = {}
        self.created.callback(self._remove_keys)

    def functions(self) -> list[FunctionSpec]:
        """Return a function for each state, plus init_peers and init_model, which set up a peer."""
        specs = []
        for name in ("init_peers", "init_model", *STATES.values()):
            heavy = name in LEARNING
            module = "membership" if name in MEMBERSHIP else "learning" if heavy else "rounds"
            memory_mb = self.plan.memory_mb if heavy else LIGHT_MEMORY.size_mb(self.plan)
            actions = ACTIONS.get(name, ())
            if self._roster.joins and name in HANDING_OVER:
                actions = ("states:StartExecution",)
            invokes = self._name("init_model") if name == "init_peers" else ""
            handler = f"slslab_workers.spirt.{module}.{name}"
            specs.append(FunctionSpec(self._name(name), handler, memory_mb, actions, invokes))
        return specs

    def bindings(self) -> dict[str, str]:
        """Return the queues through which peers admit each other."""
        queues = (
            name(self.plan, rank=rank) for name in (waiting_queue, password_queue) for rank in range(self.plan.workers)
        )
        return dict.fromkeys(queues, "")

    def machine(self, arns: Mapping[str, Any]) -> str:
        return definition({name: arns[self._name(name)] for name in STATES.values()}, self.plan.batches)

    def create(self) -> None:
        """Create functions, state machine and queues. The queues must exist before a peer sends to them."""
        super().create()
        if self.deployed is not None:
            self._machine = self.deployed.machine
        else:
            self._machine = self._states.create_state_machine(
                name=self.function, definition=self.machine(self.arns), roleArn=ROLE
            )["stateMachineArn"]
        # Before anything that it calls is deleted.
        self.created.callback(self._remove_machine)
        with self._queues() as queues:
            prepare_epoch(queues, self.plan.run, 0, self._roster.founders)
        self._store_validation()

    def train(self) -> Outcome:
        """Train all epochs. When a peer fails, the others continue without it."""
        plan = self.plan
        epoch_by_epoch = plan.until_accuracy is not None
        self.upload([0] if epoch_by_epoch else range(plan.epochs))
        self._submit_newcomers(0)
        self._first_failure_ends([self._submit(rank, 0) for rank in self._roster.founders])
        while self._follow(self._epoch):
            if epoch_by_epoch:
                if self.evaluate(self._epoch):
                    break
                self.upload([self._epoch + 1])
                self._start(self._epoch + 1)
            self._epoch += 1
        for finished in range(len(self.accuracies), self._epoch + 1):
            self.evaluate(finished)
        return self._membership_outcome(self._epoch + 1)

    def evaluate(self, epoch: int) -> bool:
        """Evaluate like every architecture. Raises RunFailed if the peer that stores the epoch's model failed first."""
        try:
            return super().evaluate(epoch)
        except Absent as error:
            raise RunFailed(
                "ModelLost", f"the peer that stores the model of epoch {epoch} failed before it had stored it"
            ) from error

    def _submit_newcomers(self, epoch: int) -> None:
        self._starting |= {rank: self._submit(rank, epoch) for rank in sorted(self._roster.asking(epoch))}

    def _submit(self, rank: int, epoch: int) -> "Future[Any]":
        return self._invokers.submit(self._init_peer, rank, self._execution(rank, epoch))

    def _init_peer(self, rank: int, execution: Execution) -> None:
        event = {"init_model": self._name("init_model"), "admission": self._admission, "input": execution.to_event()}
        failure = self.call(self._name("init_peers"), event, "RequestResponse", rank)["failure"]
        if failure is not None:
            raise worker_failure(failure, rank)

    def _check_newcomers(self) -> None:
        for rank in [rank for rank, future in self._starting.items() if future.done()]:
            error = self._starting.pop(rank).exception()
            if error is not None:
                if self._is_alive(rank):
                    raise error
                self._record_failure(rank, self._epoch, time.time())

    def _follow(self, epoch: int) -> bool:
        """Wait for every active peer's execution of an epoch; return whether another epoch follows.

        Peers are polled in turn: when one fails, the others still wait for it at the barrier. Peers that join after the
        next epoch are started now, so that their requests arrive before it begins.
        """
        self._submit_newcomers(epoch + 1)
        waiting = self._alive_in(epoch)
        following: dict[int, int | None] = {}
        while waiting:
            self._check_newcomers()
            unstarted = []
            for rank in list(waiting):
                described = self._describe(rank, epoch)
                if described is None:
                    unstarted.append(rank)
                elif described["status"] != "RUNNING":
                    waiting.remove(rank)
                    if described["status"] == "SUCCEEDED":
                        output = json.loads(described["output"])
                        following[rank] = output["next"]
                        for newcomer in output["newcomers"]:
                            self._first_epochs.setdefault(newcomer, epoch + 1)
                    elif self._is_alive(rank):
                        raise _execution_failure(rank, described)
                    else:
                        self._record_failure(rank, epoch, described["stopDate"].timestamp())
            if waiting == unstarted:
                # All other executions have ended, so no peer can start these any more.
                for rank in waiting:
                    self._put_off(rank, epoch)
                break
            time.sleep(DESCRIBE_INTERVAL_S)
        if not following:
            raise RunFailed("AllPeersDied", f"no peer is left in epoch {epoch}")
        if len(set(following.values())) > 1:
            raise RunFailed("PeersDisagree", f"only some peers continue after epoch {epoch}: {following}")
        return None not in following.values()

    def _put_off(self, rank: int, epoch: int) -> None:
        if self._is_alive(rank):
            self._first_epochs[rank] = epoch + 1
        else:
            self._record_failure(rank, epoch, time.time())

    def _alive_in(self, epoch: int) -> list[int]:
        return sorted(
            rank for rank, first in self._first_epochs.items() if first <= epoch and rank not in self._failures
        )

    def _record_failure(self, rank: int, epoch: int, when: float) -> None:
        self._failures[rank] = {"epoch": epoch, "time": when, "found_by": "driver"}

    def _describe(self, rank: int, epoch: int) -> dict[str, Any] | None:
        """Return a peer's execution, or None if it hasn't started yet, which can happen with a newcomer's first."""
        machine = self._machine.replace(":stateMachine:", ":execution:")
        try:
            execution = self._execution(rank, epoch)
            return dict(self._states.describe_execution(executionArn=f"{machine}:{execution.name}"))
        except self._states.exceptions.ExecutionDoesNotExist:
            return None

    def _is_alive(self, rank: int) -> bool:
        """Return whether a peer's database answers one of three pings, as the peers themselves decide it."""
        with TensorDatabase(endpoints.tensor_urls(self._cloud.environment)[rank], self._tracer) as database:
            for attempt in range(PINGS):
                if attempt:
                    time.sleep(PING_INTERVAL_S)
                if database.ping():
                    return True
        return False

    def _membership_outcome(self, epochs: int) -> Outcome:
        results = [
            json.loads(self._objects.get(result_key(self.plan, rank=rank), "other").body)
            for rank in self._alive_in(epochs - 1)
        ]
        joined: dict[int, int] = {}
        late: list[dict[str, int]] = []
        for result in results:
            for rank, failure in result["deaths"].items():
                self._failures.setdefault(int(rank), failure)
            for rank, epoch in result["joined"].items():
                joined[int(rank)] = max(epoch, joined.get(int(rank), epoch))
            for epoch, ranks in result["late"].items():
                late += [{"worker": rank, "epoch": int(epoch), "left_out_by": result["rank"]} for rank in ranks]
        outcome = self.outcome(results)
        deaths = [{"worker": rank, **failure} for rank, failure in sorted(self._failures.items())]
        joins = [{"worker": rank, "epoch": joined.get(rank)} for rank in sorted(self._roster.joins)]
        return replace(
            outcome, epochs=epochs, details={**outcome.details, "deaths": deaths, "joins": joins, "late": late}
        )

    def _start(self, epoch: int) -> None:
        """Start an epoch on every active peer, when the driver decides whether to continue. A newcomer's first
        execution is started by the peer that hands it the model."""
        for rank in self._alive_in(epoch - 1):
            execution = self._execution(rank, epoch)
            self._states.start_execution(
                stateMachineArn=self._machine, name=execution.name, input=json.dumps(execution.to_event())
            )

    def _execution(self, rank: int, epoch: int) -> Execution:
        return Execution(self.plan, self.bucket, rank, epoch, self._machine)

    def _name(self, function: str) -> str:
        return f"{self.function[:44]}-{function}"

    def _store_validation(self) -> None:
        samples = self._samples
        key = validation_key(self.plan)
        if samples.validation is not None:
            self.store(*samples.validation, (key, slice(None)))
        else:
            count = min(max(1, len(samples.labels) // HELD_OUT), VALIDATION)
            chosen = np.random.default_rng([self.plan.seed, 1, HELD_OUT]).permutation(len(samples.labels))[:count]
            self.store(samples.images, samples.labels, (key, chosen))

    def _remove_machine(self) -> None:
        pages = self._states.get_paginator("list_executions")
        for page in pages.paginate(stateMachineArn=self._machine, statusFilter="RUNNING"):
            for execution in page["executions"]:
                self._states.stop_execution(executionArn=execution["executionArn"])
        # If a last function has just started an execution, deleting the machine ends it.
        if self.deployed is None:
            self._states.delete_state_machine(stateMachineArn=self._machine)

    def _remove_queues(self) -> None:
        with suppress(QueueError), self._queues() as queues:
            super()._remove_queues()
            # Peers delete an epoch's queues after use and declare the next epoch's; failed peers leave theirs.
            for epoch in range(self._epoch + 3):
                remove_epoch(queues, self.plan.run, epoch, range(self.plan.workers))

    def _remove_keys(self) -> None:
        """Delete the run's keys from every reachable database; an unreachable one has lost its keys anyway."""
        prefix = Keys(self.plan).prefix
        for url in endpoints.tensor_urls(self._cloud.environment):
            with suppress(Unreachable), TensorDatabase(url, self._tracer) as database:
                database.delete_all(prefix)


def _execution_failure(rank: int, described: Mapping[str, Any]) -> RunFailed:
    cause = str(described.get("cause", ""))
    with suppress(ValueError):
        payload = json.loads(cause)
        if isinstance(payload, dict) and "errorType" in payload:
            return worker_failure(payload, rank)
    return RunFailed(str(described.get("error", described["status"])), cause, rank)
