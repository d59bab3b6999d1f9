"""GradsSharding's trigger script: it invokes all functions of a level at once, and one level after another."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slslab_workers.architecture import Cloud, Outcome, Progress, Requirements, ResidentPhase
from slslab_workers.driver.deployment import Deployment, FunctionArchitecture, FunctionSpec, refuse_modes
from slslab_workers.gradssharding import topology
from slslab_workers.gradssharding.aggregator import Task
from slslab_workers.gradssharding.pattern import pattern
from slslab_workers.gradssharding.settings import (
    AVERAGING,
    GRADIENTS,
    SHARDS,
    TOPOLOGY,
    UNWEIGHTED,
    UPLOADED,
    gradient_key,
    mean_keys,
    round_prefix,
    shards_of,
    tree_of,
)
from slslab_workers.models import exchanged_buffers, spec_of
from slslab_workers.option import Option
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training import attacks, buffers, robust
from slslab_workers.training.buffers import AVERAGED, LOCAL
from slslab_workers.training.options import PARTITION

# In the released code, a ResNet-18 aggregator's memory is this many times its largest input.
RESNET18, RESNET18_INPUTS = "resnet18", 2
# The actions that clients and aggregators need in S3. The driver deletes objects.
OBJECTS = ("s3:GetObject", "s3:PutObject")
# The driver's threads, one per function.
MOST_SHARDS = 4096
# Functions average whole slices, and can't tell rank 0's buffers from gradients.
BUFFERS = buffers.option("averaged makes them the mean of all workers' in each exchange.", LOCAL, AVERAGED)


def _parameters(plan: Plan) -> int:
    """Return the length of a gradient, with the buffers behind it."""
    return (int(plan.options["parameters"]) or spec_of(plan).parameters) + exchanged_buffers(plan)


def _needed_mb(plan: Plan) -> int:
    # The first slice is the largest.
    largest = topology.slices(_parameters(plan), shards_of(plan))[0].stop
    if robust.name_of(plan.options) is not None:
        return robust.memory_mb(plan.workers, largest)
    inputs = RESNET18_INPUTS if plan.model.endswith(RESNET18) else topology.INPUTS
    return topology.memory_mb(4 * largest, inputs)


AGGREGATOR_MEMORY = Option(
    "aggregator-memory",
    int,
    0,
    "Memory size of an aggregator, MB. 0 means the released rule: 3 × its largest input (2 × with resnet18) "
    f"plus {topology.BASE_MIB} MB, at most {topology.MOST_MB:,} MB; or with a rule that withstands Byzantine "
    f"clients {robust.HELD} × all its inputs plus {robust.BASE_MB} MB, less with more --shards. --memory is "
    "for clients.",
    memory=True,
    needed_mb=_needed_mb,
    chosen=("aggregators need", "give more --shards"),
)


class GradsShardingDeployment(Deployment):
    """Deploys the aggregators and, unless gradients are uploaded, the clients.

    Clients are invoked once per step and once more at the end of each epoch. Uploaded gradients are random and stored
    once for all rounds; each step is a round.
    """

    def __init__(self, plan: Plan, handler: str, cloud: Cloud, progress: Progress) -> None:
        super().__init__(plan, handler, cloud, progress)
        self._aggregator = f"{self.function[:54]}-aggregate"
        self._tree = tree_of(plan)
        # 1, 2, 4 … s, up to the time-out: by then other functions have ended.
        self.pauses_s = [2.0**number for number in range(plan.timeout.bit_length())]
        # As many threads as functions that start at once.
        self._invokers = ThreadPoolExecutor(max(plan.workers, *map(len, self._tree)), thread_name_prefix="invoke")

    def functions(self) -> list[FunctionSpec]:
        handler = "slslab_workers.gradssharding.aggregator.handler"
        aggregator = FunctionSpec(self._aggregator, handler, AGGREGATOR_MEMORY.size_mb(self.plan), OBJECTS)
        if self.plan.options["gradients"] == UPLOADED:
            return [aggregator]
        return [FunctionSpec(self.function, self.handler, self.plan.memory_mb, OBJECTS), aggregator]

    def train(self) -> Outcome:
        """Train all epochs; or average uploaded gradients in every round, and return the mean's fingerprint."""
        plan, rounds = self.plan, self.plan.epochs * self.plan.batches
        if plan.options["gradients"] != UPLOADED:
            return super().train()
        self.upload_all(self._upload_gradient, self.ranks, len(self.ranks))
        for position in range(rounds):
            self._aggregate(position)
            self._progress.report("train", position + 1, rounds)
        mean = hashlib.sha256()
        for key in mean_keys(plan, rounds - 1):
            mean.update(self._objects.get(key, "other").body)
        return Outcome(
            loss=(),
            accuracy=(),
            parameters=_parameters(plan),
            parameters_sha256=mean.hexdigest(),
            replicas_equal=None,
            epochs=0,
            updates=0,
            threads=1,
        )

    def _upload_gradient(self, client: int) -> None:
        for shard, part in enumerate(random_gradient(self.plan, client)):
            self._objects.put(gradient_key(self.plan, 0, client, shard), part.data.cast("B"), "other")

    def _stretch(self, first: int, until: int, *, keep: bool) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = []
        for position in range(first, until):
            self._call_clients(position, position + 1, keep=True)
            self._aggregate(position)
            if (position + 1) % self.plan.batches == 0:
                results = self._call_clients(position + 1, position + 1, keep=keep or position + 1 < until)
        return results

    def _call_clients(self, first: int, until: int, *, keep: bool) -> list[dict[str, Any]]:
        futures = [self._invokers.submit(self._invoke, rank, first, until, self.kind, keep=keep) for rank in self.ranks]
        return self._first_failure_ends(futures)

    def _aggregate(self, position: int) -> None:
        """Have this step's gradients averaged, and delete the previous step's output, which has been read."""
        for level in self._tree:
            self._first_failure_ends([self._invokers.submit(self._call_aggregator, position, one) for one in level])
        if position:
            self._delete(round_prefix(self.plan, position - 1))

    def _call_aggregator(self, position: int, aggregator: topology.Aggregator) -> dict[str, Any]:
        task = Task(self.plan, self.bucket, position, aggregator.level, aggregator.number)
        return self.call(self._aggregator, task.to_event(), self.kind, task.worker)

    def _delete(self, prefix: str) -> None:
        keys = self._objects.list(prefix, "other")
        for _ in self._invokers.map(lambda key: self._objects.delete(key, "other"), keys):
            pass


class GradsSharding(FunctionArchitecture):
    """GradsSharding, and the trees λ-FL and LIFL that it is compared with."""

    name = "gradssharding"
    title = "GradsSharding"
    paper = "Barrak 2026"
    colour = "6"
    summary = (
        "GradsSharding, λ-FL and LIFL over S3: functions read the gradients of all clients, and store their mean.\n\n"
        "A client is a worker: --clients is --workers. --as-released averages LIFL's averages unweighted, which isn't "
        "the mean if groups differ in size, as with 20 clients. Otherwise the default does what the released code "
        "does: the levels, one read after another, memory sizes, repeated invocations. But objects are raw float32 "
        "instead of .npy files, and a gradient's slices differ by one number at most."
    )
    workers_also = ("--clients",)
    options = (
        TOPOLOGY,
        SHARDS,
        GRADIENTS,
        Option(
            "parameters", int, 0, "Parameters of an uploaded gradient, such as 134301514 for VGG-16; 0 for the model's."
        ),
        AVERAGING,
        robust.option(
            "How the clients' gradients are combined: mean, or to withstand Byzantine clients median, trimmed-mean or "
            "meamed, slice by slice (docs/byzantine.md)."
        ),
        robust.BYZANTINE,
        attacks.ATTACK,
        AGGREGATOR_MEMORY,
        PARTITION,
        BUFFERS,
    )
    handler = "slslab_workers.gradssharding.client.handler"
    deploys = GradsShardingDeployment
    messages = staticmethod(pattern)
    learns = "slslab_workers.gradssharding.replicas:GradsShardingReplicas"

    def requirements(self, plan: Plan) -> Requirements:
        """Return no requirements except Lambda and S3; PlanError if the plan can't run."""
        options, uploaded = plan.options, plan.options["gradients"] == UPLOADED
        refuse_modes(plan, "GradsSharding's driver invokes all functions anew in each step, and waits for them.")
        if uploaded and plan.gradual:
            raise PlanError(
                "Uploaded gradients don't train a model, so there's nothing to evaluate.",
                "leave out --until-accuracy and --early-stopping, or --gradients uploaded.",
            )
        for option in (PARTITION, BUFFERS, attacks.ATTACK):
            if uploaded and option.of(options) != option.default:
                raise PlanError(
                    f"Uploaded gradients don't train a model, so --{option.name} doesn't apply.", "leave it out."
                )
        if BUFFERS.of(options) == AVERAGED and len(tree_of(plan)) == 3 and AVERAGING.of(options) == UNWEIGHTED:
            raise PlanError(
                "LIFL's unweighted averages aren't the mean of the clients' buffers.",
                f"choose --averaging {AVERAGING.default}, or --buffers {BUFFERS.default}.",
            )
        if int(options["parameters"]) and not uploaded:
            raise PlanError("Trained gradients are as long as the model.", "give --gradients uploaded, too.")
        if int(options["parameters"]) < 0:
            raise PlanError(f"parameters is {options['parameters']}.", "give the number of parameters of a gradient.")
        most = min(_parameters(plan), MOST_SHARDS)
        if not 1 <= shards_of(plan) <= most:
            raise PlanError(f"shards is {options['shards']}.", f"give 1 to {most:,} slices.")
        _check_rule(plan)
        return Requirements()

    def resident_set(self, plan: Plan) -> tuple[ResidentPhase, ...]:
        """Return one function of each kind: functions never wait for others that are running."""
        aggregator = ResidentPhase("an aggregator", 0, AGGREGATOR_MEMORY.size_mb(plan))
        return (aggregator,) if plan.options["gradients"] == UPLOADED else (ResidentPhase("a client", 1), aggregator)

    def participant(self, plan: Plan, worker: int) -> str:
        return f"aggregator {worker - plan.workers}" if worker >= plan.workers else super().participant(plan, worker)


def _check_rule(plan: Plan) -> None:
    robust.check(plan, "clients end before any can read the others'", "choose gpu.")
    robust.refuse_inseparable(plan, "a function of GradsSharding has a part of each")
    if plan.options["topology"] != "shards":
        robust.refuse(plan, "a tree's functions have only some clients' gradients", "choose --topology shards.")


def random_gradient(plan: Plan, client: int) -> Iterator[NDArray[np.float32]]:
    """Yield the slices of a client's gradient: normally distributed float32, the same for any number of slices."""
    generator = np.random.default_rng([plan.seed, client])
    for part in topology.slices(_parameters(plan), shards_of(plan)):
        yield generator.standard_normal(part.stop - part.start, dtype=np.float32)
