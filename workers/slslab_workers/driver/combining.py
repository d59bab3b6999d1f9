"""Combine gradients in a function, without workers, to time it: see `training.sums`."""

import json
from typing import Any

from slslab_workers.architecture import Cloud
from slslab_workers.driver.deployment import FunctionSpec, create_function, worker_failure
from slslab_workers.driver.job import failures
from slslab_workers.plan import Plan

HANDLER = "slslab_workers.training.sums.handler"


def combining_function(plan: Plan) -> str:
    """Return the function's name."""
    return f"slslab-{plan.run}"[:59] + "-sums"


def time_combining(plan: Plan, cloud: Cloud, parameters: int) -> None:
    """Combine vectors (P,) in a function of the plan's memory size; RunFailed if it fails."""
    client, function = cloud.client("lambda"), FunctionSpec(combining_function(plan), HANDLER, plan.memory_mb)
    with failures():
        create_function(client, function, plan)
        try:
            event = {"plan": plan.to_document(), "parameters": parameters}
            answer = client.invoke(FunctionName=function.name, Payload=json.dumps(event).encode())
            payload: dict[str, Any] = json.loads(answer["Payload"].read())
        finally:
            client.delete_function(FunctionName=function.name)
    if answer.get("FunctionError"):
        raise worker_failure(payload, None)
