"""SPIRT's trigger script: peers are born, start their own state machines, and are followed from epoch to epoch."""

import json
import secrets
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slslab_workers import datasets, endpoints
from slslab_workers.architecture import (
    Architecture,
    Cloud,
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
from slslab_workers.job import gradient_mb
from slslab_workers.keys import result_key, validation_key
from slslab_workers.objects import Absent
from slslab_workers.plan import Plan, PlanError
from slslab_workers.queues import QUEUE, QueueError, Queues, open_queues
from slslab_workers.samples import HELD_OUT
from slslab_workers.spirt.counts import counts
from slslab_workers.spirt.machine import STATES, definition
from slslab_workers.spirt.pattern import pattern
from slslab_workers.spirt.roster import JOIN, Roster
from slslab_workers.spirt.settings import (
    PING_INTERVAL_S,
    PINGS,
    Execution,
    Keys,
    Settings,
    execution_name,
    password_queue,
    waiting_queue,
)
from slslab_workers.tensors import TensorDatabase, TensorError, Unreachable

# Step Functions has no way to wait for an execution.
DESCRIBE_INTERVAL_S = 0.2
VALIDATION = 2048
MEMBERSHIP = ("init_peers", "auth", "check_heartbeat")
LEARNING = ("init_model", "compute_gradients", "check_convergence")
SMALLEST_MB = 128
SCANNED = 1000
# In gradients of float32: the JSON text of one, one that a function reads as text, and a mean that is written as text.
TEXT, READ_TEXT, WRITTEN_TEXT = 6, 20, 32
LIGHT_MEMORY = Option(
    "light-memory",
    int,
    0,
    "Memory size, MB, of the functions that need no torch: membership, average, aggregation, update, next epoch; 0 for "
    "256 MB and four gradients, or twenty where a mean comes as JSON.",
)

if TYPE_CHECKING:
    from slslab_workers.replicas import Replicas


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
            "gradients",
            str,
            "tensor",
            "How gradients are kept: as tensors, or as JSON in a list as in the released code, whose Lua script then "
            "averages them in the database and whose mean makes a round trip.",
            ("tensor", "json"),
            released="json",
        ),
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
        JOIN,
        LIGHT_MEMORY,
        QUEUE,
    )

    def requirements(self, plan: Plan) -> Requirements:
        """A tensor database per peer, a queue and state machines."""
        if plan.mode != "long-running" or plan.invoke != "sync":
            raise PlanError("SPIRT's functions are invoked by its state machines.", "leave out --mode and --invoke.")
        settings = Settings.of(plan)
        settings.check()
        settings.roster.check(plan.epochs)
        light_mb = int(plan.options.get(LIGHT_MEMORY.name, LIGHT_MEMORY.default))
        if light_mb and not SMALLEST_MB <= light_mb <= plan.memory_mb:
            raise PlanError(
                f"Functions without torch cannot have {light_mb} MB.",
                f"choose {SMALLEST_MB} to {plan.memory_mb} MB (--memory), or 0 for the default.",
            )
        if _has_texts(plan) and plan.options.get("averaging", "round-trip") != "round-trip":
            raise PlanError("JSON gradients are averaged by a round trip.", "leave out --averaging.")
        queue = str(plan.options.get(QUEUE.name, QUEUE.default))
        return Requirements(tensor_databases=plan.workers, queue=queue, state_machines=True)

    def resident_set(self, plan: Plan) -> tuple[ResidentPhase, ...]:
        """n small functions wait at the barrier for whoever computes last; n databases hold all gradients."""
        # Parameters, momentum, average and aggregate beside the minibatches' gradients.
        kept = TEXT * plan.batches + WRITTEN_TEXT if _has_texts(plan) else plan.batches
        database_mb = (kept + 4) * gradient_mb(plan)
        return (ResidentPhase(self.name, 1, plan.workers * (_light_mb(plan) + database_mb)),)

    counts = staticmethod(counts)
    pattern = staticmethod(pattern)

    def replicas(self) -> "type[Replicas]":
        """One update an epoch."""
        from slslab_workers.spirt.replicas import SpirtReplicas

        return SpirtReplicas

    def drive(self, plan: Plan, cloud: Cloud, progress: Progress) -> Outcome:
        """Deploy, have the peers begin, follow them, evaluate."""
        try:
            return deploy_and_train(SpirtDeployment(plan, cloud, progress))
        except (QueueError, TensorError, Unreachable) as error:
            raise RunFailed(type(error).__name__, str(error)) from error


class SpirtDeployment(Deployment):
    """The functions of all states, the state machine, and the queues between peers."""

    def __init__(self, plan: Plan, cloud: Cloud, progress: Progress) -> None:
        super().__init__(plan, "", cloud, progress)
        self._states = cloud.client("stepfunctions")
        self._environment: Mapping[str, str] = cloud.environment
        self._tracer = Tracer(cloud.emit, plan.run)
        self._machine = ""
        self._admission = secrets.token_hex(16)
        self._epoch = 0
        self._deaths: dict[int, dict[str, Any]] = {}
        self._roster = Roster.of(plan.workers, plan.options)
        # The first epoch of every peer that takes part, or is going to.
        self._first_epochs = dict.fromkeys(self._roster.founders, 0)
        self._births: dict[int, Future[dict[str, Any]]] = {}

    def functions(self) -> list[FunctionSpec]:
        """A function for each state, and the two by which a peer is born."""
        specs = []
        for name in ("init_peers", "init_model", *STATES.values()):
            heavy = name in LEARNING
            module = "membership" if name in MEMBERSHIP else "learning" if heavy else "rounds"
            memory_mb = self.plan.memory_mb if heavy else _light_mb(self.plan)
            specs.append(FunctionSpec(self._name(name), f"slslab_workers.spirt.{module}.{name}", memory_mb))
        return specs

    def create(self) -> None:
        """Functions, state machine, and the queues before anybody sends to them."""
        super().create()
        arns = {name: self.arns[self._name(name)] for name in STATES.values()}
        created = self._states.create_state_machine(
            name=self.function, definition=definition(arns, self.plan.batches), roleArn=ROLE
        )
        self._machine = created["stateMachineArn"]
        with self._queues() as queues:
            prepare_epoch(queues, self.plan.run, 0, self._roster.founders)
            for queue in self._own_queues():
                queues.declare(queue)
        self._store_validation()

    def train(self) -> Outcome:
        """All epochs; a peer that dies leaves the others to go on."""
        plan = self.plan
        decides = plan.until_accuracy is not None
        self.upload([0] if decides else range(plan.epochs))
        self._give_birth()
        while self._follow(self._epoch):
            if decides:
                if self.evaluate(self._epoch):
                    break
                self.upload([self._epoch + 1])
                self._start(self._epoch + 1)
            self._epoch += 1
        for finished in range(len(self.accuracies), self._epoch + 1):
            self.evaluate(finished)
        return self._judged(self._epoch + 1)

    def evaluate(self, epoch: int) -> bool:
        """As all rooms do; RunFailed if the peer that was to store the epoch's model died before it had."""
        try:
            return super().evaluate(epoch)
        except Absent as error:
            raise RunFailed(
                "ModelLost", f"the model of epoch {epoch} died with the peer that was to store it"
            ) from error

    def remove(self) -> None:
        """State machines first, so that nothing calls the functions, queues and tensors that go after them."""
        with ExitStack() as rest:
            rest.callback(self._remove_keys)
            rest.callback(self._remove_queues)
            rest.callback(super().remove)
            self._remove_machine()

    def _give_birth(self) -> None:
        """Have every founder born; the last thing that each does is to start its first execution."""
        self._bear_newcomers(0)
        self._first_failure_ends([self._submit_birth(rank, 0) for rank in self._roster.founders])

    def _bear_newcomers(self, epoch: int) -> None:
        """Begin the births of those who are to be admitted in this epoch."""
        for rank in sorted(self._roster.asking(epoch)):
            self._births[rank] = self._submit_birth(rank, epoch)

    def _submit_birth(self, rank: int, epoch: int) -> "Future[dict[str, Any]]":
        event = {
            "init_model": self._name("init_model"),
            "admission": self._admission,
            "input": self._execution(rank, epoch).to_input(),
        }
        return self._invokers.submit(self._bear, self._name("init_peers"), event, rank)

    def _check_births(self) -> None:
        """Newcomers are born while others train: a birth that failed has failed the run, but for a death."""
        for rank in [rank for rank, birth in self._births.items() if birth.done()]:
            error = self._births.pop(rank).exception()
            if error is not None:
                if self._is_alive(rank):
                    raise error
                self._died(rank, self._epoch, time.time())

    def _bear(self, function: str, event: Mapping[str, Any], rank: int) -> dict[str, Any]:
        answer = self.call(function, event, "RequestResponse", rank)
        if answer["failure"] is not None:
            raise _failed(answer["failure"], rank)
        return answer

    def _follow(self, epoch: int) -> bool:
        """Wait for every living peer's execution of an epoch; whether there is another.

        All are looked at in turn: while one has failed, the others wait at the barrier for their time-out. Those who
        are to join after the next epoch are born meanwhile, so that their requests are there when it begins.
        """
        self._bear_newcomers(epoch + 1)
        waiting = self._living(epoch)
        following: dict[int, int | None] = {}
        while waiting:
            self._check_births()
            unstarted = []
            for rank in list(waiting):
                described = self._describe(rank, epoch)
                if described is None:
                    unstarted.append(rank)
                    continue
                if described["status"] == "RUNNING":
                    continue
                waiting.remove(rank)
                if described["status"] == "SUCCEEDED":
                    output = json.loads(described["output"])
                    following[rank] = output["next"]
                    for newcomer in output["newcomers"]:
                        self._first_epochs.setdefault(newcomer, epoch + 1)
                elif self._is_alive(rank):
                    raise self._failure(rank, described)
                else:
                    self._died(rank, epoch, described["stopDate"].timestamp())
            if waiting and waiting == unstarted:
                # All others are through, so nobody is left to start them in this epoch.
                for rank in waiting:
                    self._put_off(rank, epoch)
                break
            if waiting:
                time.sleep(DESCRIBE_INTERVAL_S)
        if not following:
            raise RunFailed("AllPeersDied", f"no peer is left in epoch {epoch}", None, None)
        if len(set(following.values())) > 1:
            raise RunFailed("PeersDisagree", f"only some peers go on after epoch {epoch}: {following}", None, None)
        return None not in following.values()

    def _put_off(self, rank: int, epoch: int) -> None:
        """A newcomer was not started: it has died, or the others have not all known that it takes part."""
        if self._is_alive(rank):
            self._first_epochs[rank] = epoch + 1
        else:
            self._died(rank, epoch, time.time())

    def _living(self, epoch: int) -> list[int]:
        """The ranks that take part in an epoch, as far as the driver knows."""
        taking_part = (rank for rank, first in self._first_epochs.items() if first <= epoch)
        return sorted(rank for rank in taking_part if rank not in self._deaths)

    def _died(self, rank: int, epoch: int, when: float) -> None:
        self._deaths[rank] = {"epoch": epoch, "time": when, "found_by": "driver"}

    def _describe(self, rank: int, epoch: int) -> dict[str, Any] | None:
        """A peer's execution; None if it was not started, as a newcomer's first may not be yet."""
        machine = self._machine.replace(":stateMachine:", ":execution:")
        name = execution_name(self.plan, rank, epoch)
        try:
            return dict(self._states.describe_execution(executionArn=f"{machine}:{name}"))
        except self._states.exceptions.ExecutionDoesNotExist:
            return None

    def _is_alive(self, rank: int) -> bool:
        """By the rule that peers go by, too: three pings in a row without an answer are a death."""
        with TensorDatabase(endpoints.tensor_urls(self._environment)[rank], self._tracer) as database:
            for attempt in range(PINGS):
                if attempt:
                    time.sleep(PING_INTERVAL_S)
                if database.ping():
                    return True
        return False

    def _failure(self, rank: int, described: Mapping[str, Any]) -> RunFailed:
        """A failed execution as the failure of its peer; a function's own error is told by its payload."""
        cause = str(described.get("cause", ""))
        with suppress(ValueError):
            payload = json.loads(cause)
            if isinstance(payload, dict) and "errorType" in payload:
                return _failed(payload, rank)
        return RunFailed(str(described.get("error", described["status"])), cause, rank)

    def _judged(self, epochs: int) -> Outcome:
        """The outcome by the peers that live, with who joined and who died when."""
        results = [
            json.loads(self._objects.get(result_key(self.plan, rank), "other").body)
            for rank in self._living(epochs - 1)
        ]
        joined: dict[int, int] = {}
        for result in results:
            for rank, death in result["deaths"].items():
                self._deaths.setdefault(int(rank), death)
            for rank, epoch in result["joined"].items():
                joined[int(rank)] = max(epoch, joined.get(int(rank), epoch))
        outcome = self.outcome(results)
        deaths = [{"worker": rank, **death} for rank, death in sorted(self._deaths.items())]
        joins = [{"worker": rank, "epoch": joined.get(rank)} for rank in sorted(self._roster.joins)]
        return replace(outcome, epochs=epochs, details={**outcome.details, "deaths": deaths, "joins": joins})

    def _start(self, epoch: int) -> None:
        """Start an epoch of every living peer, where the driver decides whether there is one; newcomers' are started by
        whoever hands them the model."""
        for rank in self._living(epoch - 1):
            execution = self._execution(rank, epoch)
            self._states.start_execution(
                stateMachineArn=self._machine, name=execution.name, input=json.dumps(execution.to_input())
            )

    def _execution(self, rank: int, epoch: int) -> Execution:
        return Execution(self.plan, self.bucket, rank, epoch, self._machine)

    def _name(self, function: str) -> str:
        return f"{self.function[:44]}-{function}"

    def _store_validation(self) -> None:
        """What the convergence check judges by: the held-out images, or some of the training images."""
        import numpy as np

        samples = self._samples
        if samples.validation is not None:
            images, labels = samples.validation
        else:
            count = min(max(1, len(samples.labels) // HELD_OUT), VALIDATION)
            chosen = np.random.default_rng([self.plan.seed, 1, HELD_OUT]).permutation(len(samples.labels))[:count]
            images, labels = samples.images[chosen], samples.labels[chosen]
        body, metadata = datasets.encode_minibatch(images, labels, samples.dataset.policy)
        self._objects.put(validation_key(self.plan), body, "other", metadata=metadata)

    def _queues(self) -> Queues:
        return open_queues(endpoints.queue_url(self._environment), self._tracer)

    def _own_queues(self) -> list[str]:
        names = (waiting_queue, password_queue)
        return [name(self.plan, rank) for name in names for rank in range(self.plan.workers)]

    def _remove_machine(self) -> None:
        if not self._machine:
            return
        pages = self._states.get_paginator("list_executions")
        for page in pages.paginate(stateMachineArn=self._machine, statusFilter="RUNNING"):
            for execution in page["executions"]:
                self._states.stop_execution(executionArn=execution["executionArn"])
        # Those that a last function may have started meanwhile end with the machine.
        self._states.delete_state_machine(stateMachineArn=self._machine)

    def _remove_queues(self) -> None:
        with suppress(QueueError), self._queues() as queues:
            for queue in self._own_queues():
                queues.delete(queue)
            # Peers delete their queues as they go, and prepare the next epoch's; what dead peers left is here.
            for epoch in range(self._epoch + 3):
                remove_epoch(queues, self.plan.run, epoch, range(self.plan.workers))

    def _remove_keys(self) -> None:
        """Delete what the run has in the databases that can be reached; those of dead peers are gone with them."""
        prefix = Keys(self.plan).prefix
        for url in endpoints.tensor_urls(self._environment):
            with suppress(Unreachable), TensorDatabase(url, self._tracer) as database:
                cursor = b"0"
                while True:
                    found, keys = database.command("SCAN", cursor, "COUNT", SCANNED)
                    own = [name for name in (bytes(key) for key in keys) if name.startswith(prefix.encode())]
                    if own:
                        database.command("DEL", *own)
                    cursor = bytes(found)
                    if cursor == b"0":
                        break


def _failed(payload: Mapping[str, Any], rank: int) -> RunFailed:
    """A function's own error, as Lambda put it into the payload."""
    return RunFailed(str(payload.get("errorType", "Unknown")), str(payload.get("errorMessage", "")), rank)


def _has_texts(plan: Plan) -> bool:
    return Settings.of(plan).gradients == "json"


def _light_mb(plan: Plan) -> int:
    """Memory size of the functions that need no torch, MB: two vectors are held at a time, two are in flight."""
    enough_mb = 256 + (READ_TEXT if _has_texts(plan) else 4) * gradient_mb(plan)
    return min(int(plan.options.get(LIGHT_MEMORY.name, LIGHT_MEMORY.default)) or enough_mb, plan.memory_mb)
