"""SPIRT's trigger script: peers are born, start their own state machines, and are followed from epoch to epoch."""

import json
import math
import threading
from collections.abc import Mapping
from typing import Any

from slslab_workers import datasets, endpoints
from slslab_workers.architecture import (
    Architecture,
    Cloud,
    Counts,
    Option,
    Outcome,
    Progress,
    Requirements,
    ResidentPhase,
    RunFailed,
)
from slslab_workers.barriers import prepare_epoch, remove_epoch
from slslab_workers.deployment import ROLE, Deployment, FunctionSpec, deploy_and_train
from slslab_workers.events import Tracer
from slslab_workers.keys import result_key, validation_key
from slslab_workers.plan import Plan, PlanError
from slslab_workers.queues import QUEUE, Queues, open_queues
from slslab_workers.spirt.counts import counts
from slslab_workers.spirt.machine import STATES, definition
from slslab_workers.spirt.settings import Execution, execution_name, password_queue, waiting_queue
from slslab_workers.tensors import TensorDatabase

# Step Functions has no way to wait for an execution.
DESCRIBE_INTERVAL_S = 0.2
VALIDATION = 2048
TORCH_FREE = {"init_peers": "init_peers", "auth": "auth", "check_heartbeat": "check_heartbeat"}
LIGHT_MEMORY = Option(
    "light-memory",
    int,
    1024,
    "Memory size, MB, of the functions that compute no gradients: membership, average, aggregation, update, next epoch.",
)


class Spirt(Architecture):
    """SPIRT with Step Functions, a queue and a tensor database per peer."""

    name = "spirt"
    summary = (
        "SPIRT: every peer has a tensor database and a state machine; a minibatch is an invocation, gradients are "
        "averaged and the model is updated in the database, once an epoch.\n\n"
        "One update per epoch is little: see the column `updates` beside the accuracy."
    )
    options = (
        Option(
            "averaging",
            str,
            "in-database",
            "Where a peer's gradients are averaged: in-database; round-trip, where the mean goes to the function and "
            "back as in the released code; naive, where the function fetches all of them.",
            ("in-database", "round-trip", "naive"),
            released="round-trip",
        ),
        Option("update", str, "in-database", "Where the model is updated.", ("in-database", "naive")),
        Option(
            "update-rule",
            str,
            "sgd",
            "sgd is plain, as in the paper; sgd-momentum takes the plan's momentum and weight decay.",
            ("sgd", "sgd-momentum"),
        ),
        Option("accumulate", int, 1, "Parts of a minibatch, whose gradients are added up: less memory, more time."),
        Option("barrier-timeout", float, 500.0, "A peer that is silent at the barrier for this long, s, is left out."),
        LIGHT_MEMORY,
        QUEUE,
    )

    def requirements(self, plan: Plan) -> Requirements:
        """A tensor database per peer, a queue and state machines."""
        if plan.mode != "long-running" or plan.invoke != "sync":
            raise PlanError("SPIRT's functions are invoked by its state machines.", "leave out --mode and --invoke.")
        queue = str(plan.options.get(QUEUE.name, QUEUE.default))
        return Requirements(tensor_databases=plan.workers, queue=queue, state_machines=True)

    def resident_set(self, plan: Plan) -> tuple[ResidentPhase, ...]:
        """n functions wait at the barrier for whoever computes last."""
        return (ResidentPhase(self.name, plan.workers + 1),)

    def counts(self, workers: int, batches: int, epochs: int, parameters: int) -> Counts:
        """Closed-form messages, bytes and transitions over all epochs."""
        return counts(workers, batches, epochs, parameters)

    def drive(self, plan: Plan, cloud: Cloud, progress: Progress) -> Outcome:
        """Deploy, have the peers begin, follow them, evaluate."""
        return deploy_and_train(SpirtDeployment(plan, cloud, progress))


class SpirtDeployment(Deployment):
    """The functions of all states, the state machine, and the queues between peers."""

    def __init__(self, plan: Plan, cloud: Cloud, progress: Progress) -> None:
        super().__init__(plan, "", cloud, progress)
        self._states = cloud.client("stepfunctions")
        self._environment: Mapping[str, str] = cloud.environment
        self._tracer = Tracer(cloud.emit, plan.run)
        self._machine = ""
        self._deaths: dict[int, dict[str, Any]] = {}
        self._dying = threading.Lock()

    def functions(self) -> list[FunctionSpec]:
        """A function for each state, and the two by which a peer is born."""
        light_mb = int(self.plan.options.get(LIGHT_MEMORY.name, LIGHT_MEMORY.default))
        specs = []
        for name in ("init_peers", "init_model", *STATES.values()):
            module = "membership" if name in TORCH_FREE else "rounds"
            heavy = name in ("compute_gradients", "check_convergence")
            memory_mb = self.plan.memory_mb if heavy else min(light_mb, self.plan.memory_mb)
            specs.append(FunctionSpec(self._name(name), f"slslab_workers.spirt.{module}.{name}", memory_mb))
        return specs

    def create(self) -> None:
        """Functions, state machine, and the queues before anybody sends to them."""
        super().create()
        arns = {name: self._arn(self._name(name)) for name in STATES.values()}
        created = self._states.create_state_machine(
            name=self.function, definition=definition(arns, self.plan.batches), roleArn=ROLE
        )
        self._machine = created["stateMachineArn"]
        with self._queues() as queues:
            prepare_epoch(queues, self.plan.run, 0, range(self.plan.workers))
            for queue in self._own_queues():
                queues.declare(queue)
        self._store_validation()

    def train(self) -> Outcome:
        """All epochs; a peer that dies leaves the others to go on."""
        plan = self.plan
        self._upload(range(plan.epochs))
        event = {"init_model": self._name("init_model")}
        begun = [
            self._invokers.submit(
                self.call, self._name("init_peers"), {**event, "input": self._execution(rank, 0).to_input()}, "RequestResponse", rank
            )
            for rank in range(plan.workers)
        ]
        self._first_failure_ends(begun)
        accuracies: list[float] = []
        epoch = 0
        for epoch in range(plan.epochs):
            going_on = self._follow(epoch)
            if plan.until_accuracy is not None:
                accuracies.append(self._evaluate(epoch)[0])
                if accuracies[-1] >= plan.until_accuracy:
                    break
                if epoch + 1 < plan.epochs and going_on:
                    self._start(epoch + 1)
            if not going_on:
                break
        results = self._results(epoch)
        accuracies = accuracies or [self._evaluate(one)[0] for one in range(epoch + 1)]
        return self._outcome(results, accuracies, epoch + 1)
