"""The Lambda handler of all aggregators: it reads, adds, divides and stores float32 vectors.

It imports NumPy, but torch only for a robust rule, so that it needs little memory besides its inputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import ObjectChannel, Objects, environment_client
from slslab_workers.channels.tensors import Vector
from slslab_workers.gradssharding.settings import divisor, gradient_key, output_key, tree_of
from slslab_workers.plan import InvocationInput, Plan
from slslab_workers.training import robust

PHASE = "synchronise"


@dataclass(frozen=True)
class Task(InvocationInput):
    """The input of one invocation: one aggregator's part of one round.

    `position` counts the run's steps; `level` and `number` are the aggregator's.
    """

    bucket: str
    position: int
    level: int
    number: int

    @property
    def worker(self) -> int:
        """Return the aggregator's rank in the trace."""
        return tree_of(self.plan)[self.level - 1][self.number].rank


def aggregate(task: Task, objects: ObjectChannel) -> None:
    """Read and add the inputs one after another, divide, and store.

    It holds the sum and one input, or with a robust rule all inputs.
    """
    plan, tree = task.plan, tree_of(task.plan)
    one = tree[task.level - 1][task.number]
    if one.level == 1:
        keys = [gradient_key(plan, task.position, client, one.shard or 0) for client in one.inputs]
    else:
        keys = [output_key(plan, task.position, one.level - 1, number) for number in one.inputs]
    rule = robust.name_of(plan.options)
    if rule is not None:
        made = _withstand(plan, rule, objects, keys)
    else:
        made = _read(objects, keys[0])
        for key in keys[1:]:
            _add(objects, made, key)
        by = divisor(one, tree, str(plan.options["averaging"]))
        if by > 1:
            with objects.tracer.span("reduce", PHASE):
                made /= np.float32(by)
    key = output_key(plan, task.position, one.level, one.number)
    objects.put(key, made.data.cast("B"), PHASE, overhead=False)


def _withstand(plan: Plan, rule: str, objects: ObjectChannel, keys: Sequence[str]) -> Vector:
    import torch

    parts = [torch.from_numpy(_read(objects, key)) for key in keys]
    with objects.tracer.span("reduce", PHASE, rule):
        made: Vector = robust.aggregate(rule, parts, int(robust.BYZANTINE.of(plan.options))).numpy()
    return made


def _read(objects: ObjectChannel, key: str) -> Vector:
    return np.frombuffer(objects.get(key, PHASE, overhead=False).body, dtype="<f4")


def _add(objects: ObjectChannel, total: Vector, key: str) -> None:
    # A separate function, so that this input is freed before the next one is read.
    part = _read(objects, key)
    with objects.tracer.span("reduce", PHASE):
        total += part


def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """Do the event's task (AWS Lambda's entry point)."""
    task = Task.from_event(event)
    tracer = Tracer(run=task.plan.run, worker=task.worker, invocation=context.aws_request_id)
    tracer.epoch, tracer.step = divmod(task.position, task.plan.batches)
    with tracer.span("connect", "other"):
        client = environment_client()
        robust.load(task.plan.options)
    aggregate(task, Objects(client, task.bucket, tracer))
    return {}
