"""GradsSharding's trigger script: it invokes the functions of a level at once, and level after level."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slslab_workers.architecture import (
    Cloud,
    Outcome,
    Progress,
    Requirements,
    ResidentPhase,
)
from slslab_workers.driver.deployment import Deployment, FunctionArchitecture, FunctionSpec, refuse_modes
from slslab_workers.driver.job import UPLOADERS
from slslab_workers.gradssharding import topology
from slslab_workers.gradssharding.aggregator import Task
from slslab_workers.gradssharding.pattern import pattern
from slslab_workers.gradssharding.settings import (
    AVERAGING,
    GRADIENTS,
    SHARDS,
    TOPOLOGY,
    UPLOADED,
    gradient_key,
    mean_keys,
    round_prefix,
    shards_of,
    tree_of,
)
from slslab_workers.gradssharding.topology import Aggregator
from slslab_workers.models import spec
from slslab_workers.option import Option
from slslab_workers.plan import MOST_MEMORY_MB, Plan, PlanError
from slslab_workers.training import attacks, robust

# How many times its largest input an aggregator's memory is for ResNet-18, in the released code.
RESNET18, RESNET18_INPUTS = "resnet18", 2
# What clients and aggregators ask of S3; the driver deletes.
OBJECTS = ("s3:GetObject", "s3:PutObject")
# A thread of the driver for each.
MOST_SHARDS = 4096


class GradsSharding(FunctionArchitecture):
    """GradsSharding, and the trees that it is compared with, λ-FL and LIFL."""

    name = "gradssharding"
    title = "GradsSharding"
    paper = "Barrak 2026"
    summary = (
        "GradsSharding, λ-FL and LIFL over S3: functions read the gradients of all clients, and store their mean.\n\n"
        "A client is a worker: --clients is --workers. --as-released averages LIFL's averages unweighted, which is no "
        "mean where groups differ in size, as with 20 clients. In all else the default does what the released code "
        "does: the levels, one read after another, memory sizes, repeated invocations; but objects are raw float32 "
        "and no .npy files, and a gradient's slices differ by one number at most."
    )
    workers_also = ("--clients",)
    options = (
        TOPOLOGY,
        SHARDS,
        GRADIENTS,
        Option(
            "parameters",
            int,
            0,
            "Numbers of an uploaded gradient, such as 134301514 for VGG-16; 0 for the model's.",
        ),
        AVERAGING,
        robust.option(
            "What becomes of all clients' gradients: mean; or, to withstand Byzantine clients, median, trimmed-mean or "
            "meamed of each slice (docs/byzantine.md)."
        ),
        robust.BYZANTINE,
        attacks.ATTACK,
        Option(
            "aggregator-memory",
            int,
            0,
            "Memory size of an aggregator, MB; 0 for the released rule: 3 × its largest input (2 × with resnet18) and "
            f"{topology.BASE_MIB} MB, {topology.MOST_MB:,} MB at most; or, with a rule that withstands Byzantine "
            f"clients, {robust.HELD} × all its inputs and {robust.BASE_MB} MB. --memory is the clients'.",
            memory=True,
        ),
    )
    messages = staticmethod(pattern)
    exchange = "slslab_workers.gradssharding.protocol:protocol"
    learns = "slslab_workers.gradssharding.replicas:GradsShardingReplicas"

    def requirements(self, plan: Plan) -> Requirements:
        """Return nothing beside Lambda and S3; PlanError for a plan that cannot be carried out."""
        options, uploaded = plan.options, plan.options["gradients"] == UPLOADED
        refuse_modes(plan, "GradsSharding's driver invokes all functions anew in each step, and waits for them.")
        if uploaded and plan.gradual:
            raise PlanError(
                "Uploaded gradients train no model that could be evaluated.",
                "leave out --until-accuracy and --early-stopping, or --gradients uploaded.",
            )
        if int(options["parameters"]) and not uploaded:
            raise PlanError("Trained gradients are as long as the model.", "give --gradients uploaded, too.")
        if int(options["parameters"]) < 0:
            raise PlanError(f"parameters is {options['parameters']}.", "give how many numbers a gradient has.")
        known = _known_parameters(plan)
        if known is None and (uploaded or not int(options["aggregator-memory"])):
            raise PlanError(
                f"How large the gradients of {plan.model} are is not known before it is built.",
                "give --parameters." if uploaded else "give --aggregator-memory, in MB.",
            )
        most = min(known or MOST_SHARDS, MOST_SHARDS)
        if not 1 <= shards_of(plan) <= most:
            raise PlanError(f"shards is {options['shards']}.", f"give the slices of a gradient, 1 to {most:,}.")
        _check_rule(plan)
        return Requirements()

    def resident_set(self, plan: Plan) -> tuple[ResidentPhase, ...]:
        """Return one function of each kind: none waits for another that has not ended."""
        aggregator = ResidentPhase("an aggregator", 0, _aggregator_mb(plan))
        return (aggregator,) if plan.options["gradients"] == UPLOADED else (ResidentPhase("a client", 1), aggregator)

    def participant(self, plan: Plan, worker: int) -> str:
        """Return who has a number in the trace: after the clients the aggregators."""
        own = worker < plan.workers
        return super().participant(plan, worker) if own else f"aggregator {worker - plan.workers}"

    def deployment(self, plan: Plan, cloud: Cloud, progress: Progress) -> Deployment:
        """Return aggregators, and clients unless gradients are uploaded."""
        kind = UploadedGradients if plan.options["gradients"] == UPLOADED else TrainedGradients
        return kind(plan, cloud, progress)


class _Rounds(Deployment):
    def __init__(self, plan: Plan, cloud: Cloud, progress: Progress) -> None:
        super().__init__(plan, "slslab_workers.gradssharding.client.handler", cloud, progress)
        self._aggregator = f"{self.function[:54]}-aggregate"
        self._tree = tree_of(plan)
        # As many threads as there are functions to begin at once.
        self._invokers = ThreadPoolExecutor(max(plan.workers, *map(len, self._tree)), thread_name_prefix="invoke")

    def functions(self) -> list[FunctionSpec]:
        handler = "slslab_workers.gradssharding.aggregator.handler"
        return [FunctionSpec(self._aggregator, handler, _aggregator_mb(self.plan), OBJECTS)]

    def _pauses_s(self) -> Iterator[float]:
        """Yield 1, 2, 4 … s, until a pause would be longer than a function may last: others end meanwhile."""
        pause_s = 1.0
        while pause_s <= self.plan.timeout:
            yield pause_s
            pause_s *= 2

    def _aggregate(self, position: int) -> None:
        """Have the mean of this step's gradients made, and delete what the step before left: it has been read."""
        for level in self._tree:
            self._first_failure_ends([self._invokers.submit(self._call_aggregator, position, one) for one in level])
        if position:
            self._delete(round_prefix(self.plan, position - 1))

    def _call_aggregator(self, position: int, one: Aggregator) -> dict[str, Any]:
        task = Task(self.plan, self.bucket, position, one.level, one.number)
        return self.call(self._aggregator, task.to_event(), self.kind, task.worker)

    def _delete(self, prefix: str) -> None:
        keys = self._objects.list(prefix, "other")
        for _ in self._invokers.map(lambda key: self._objects.delete(key, "other"), keys):
            pass


class TrainedGradients(_Rounds):
    """Clients that are functions: one invocation for each step, and one at the end of each epoch."""

    def functions(self) -> list[FunctionSpec]:
        """Return the clients' function, and the aggregators'."""
        return [FunctionSpec(self.function, self.handler, self.plan.memory_mb, OBJECTS), *super().functions()]

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


class UploadedGradients(_Rounds):
    """Random gradients, which the driver stores once for all rounds; a step is a round."""

    def train(self) -> Outcome:
        """Have the mean made in every round, and return its fingerprint."""
        plan, rounds = self.plan, self.plan.epochs * self.plan.batches
        self._upload_gradients()
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

    def _upload_gradients(self) -> None:
        with ThreadPoolExecutor(UPLOADERS, thread_name_prefix="upload") as pool:
            for done, _ in enumerate(pool.map(self._upload_gradient, self.ranks), 1):
                self._progress.report("upload", done, len(self.ranks))

    def _upload_gradient(self, client: int) -> None:
        for shard, part in enumerate(random_gradient(self.plan, client)):
            self._objects.put(gradient_key(self.plan, 0, client, shard), part.data.cast("B"), "other")


def _check_rule(plan: Plan) -> None:
    attacks.check(plan)
    robust.check(plan)
    why = "a function of GradsSharding has a part of each"
    robust.refuse_inseparable(plan, why)
    attacks.refuse_omniscient(plan.options, "clients end before any could read others'", "choose gpu.")
    if plan.options["topology"] != "shards":
        robust.refuse(plan, "a function of a tree has the gradients of some clients only", "choose --topology shards.")
    if plan.options["gradients"] == UPLOADED and attacks.Attack.of(plan) is not None:
        raise PlanError("Uploaded gradients are the driver's, so no client attacks.", "leave out --attack.")
    memory_mb = _aggregator_mb(plan)
    if memory_mb > MOST_MEMORY_MB:
        raise PlanError(
            f"A function that holds its slice of {plan.workers} gradients needs {memory_mb:,} MB, and Lambda has "
            f"{MOST_MEMORY_MB:,}.",
            "give more --shards.",
        )


def random_gradient(plan: Plan, client: int) -> Iterator[NDArray[np.float32]]:
    """Yield the slices of a client's gradient: float32 of a normal distribution, the same however many slices."""
    generator = np.random.default_rng([plan.seed, client])
    for part in topology.slices(_parameters(plan), shards_of(plan)):
        yield generator.standard_normal(part.stop - part.start, dtype=np.float32)


def _known_parameters(plan: Plan) -> int | None:
    return int(plan.options["parameters"]) or spec(plan.model).parameters


def _parameters(plan: Plan) -> int:
    known = _known_parameters(plan)
    assert known is not None, "requirements() refuses such a plan"
    return known


def _aggregator_mb(plan: Plan) -> int:
    if chosen := int(plan.options["aggregator-memory"]):
        return chosen
    # The first slice is the largest.
    largest = topology.slices(_parameters(plan), shards_of(plan))[0].stop
    if robust.name_of(plan.options) is not None:
        return robust.memory_mb(plan.workers, largest)
    inputs = RESNET18_INPUTS if plan.model.endswith(RESNET18) else topology.INPUTS
    return topology.memory_mb(4 * largest, inputs)
