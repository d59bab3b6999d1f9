"""Average a peer's gradients alone in a tensor database, to time it: without functions, but with a run's sizes."""

import numpy as np

from slslab_workers.architecture import Cloud
from slslab_workers.channels import endpoints
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.tensors import TensorDatabase
from slslab_workers.plan import Plan
from slslab_workers.spirt.settings import Keys

TIMES = 3


def time_averaging(plan: Plan, cloud: Cloud, parameters: int) -> None:
    """Average the gradients (P,) of one peer and epoch in the first database, if the plan averages there.

    Raises Refused or Unreachable if the database fails.
    """
    if plan.options["averaging"] == "naive":
        return
    keys, phase = Keys(plan), "synchronise"
    gradient = np.random.default_rng(plan.seed).standard_normal(parameters, np.float32)
    names = [keys.gradient(epoch=0, batch=batch) for batch in range(plan.batches)]
    texts, average = keys.json_gradients(epoch=0), keys.average(epoch=0)
    with TensorDatabase(endpoints.tensor_urls(cloud.environment)[0], Tracer(cloud.emit, plan.run)) as database:
        if plan.options["gradients"] == "json":
            for _ in names:
                database.push_json(texts, gradient, phase)
            # Once is enough: it takes seconds.
            database.average_json(texts, len(names), phase)
        else:
            for name in names:
                database.set(name, gradient, phase)
            for _ in range(TIMES):
                database.execute("average", names, [average], phase)
        database.command("DEL", *names, texts, average)
