"""A Lambda handler that combines random vectors, to measure how long workers take to combine gradients."""

from collections.abc import Mapping
from itertools import cycle, islice
from typing import Any

import torch

from slslab_workers.channels.events import Tracer
from slslab_workers.plan import Plan, thread_count
from slslab_workers.training import aggregation
from slslab_workers.training.options import COMBINE

TIMES = 9
# Enough vectors to exceed the caches, and enough summands to show the cost of each.
VECTORS, SUMMANDS = 4, 16


def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """Copy, add, sum up and combine vectors (P,) as the workers of the plan do."""
    plan = Plan.from_document(event["plan"])
    torch.set_num_threads(thread_count(plan.memory_mb))
    tracer = Tracer(run=plan.run, worker=0, invocation=context.aws_request_id)
    combine = aggregation.RULES[str(COMBINE.of(plan.options))]
    vectors = [torch.rand(int(event["parameters"])) for _ in range(VECTORS)]
    size, summands = vectors[0].nbytes, min(plan.workers, SUMMANDS)
    for number in range(TIMES):
        with tracer.span("reduce", "synchronise", "copy", bytes=size):
            total = vectors[number % VECTORS].clone()
        with tracer.span("reduce", "synchronise", "add", bytes=size):
            total.add_(vectors[(number + 1) % VECTORS])
        with tracer.span("reduce", "synchronise", "sum", bytes=summands * size):
            total = aggregation.sum_in_rank_order(islice(cycle(vectors), summands))
        with tracer.span("reduce", "synchronise", "mean", bytes=size):
            combine(total, plan.workers, plan.workers)
    return {"status": "finished"}
