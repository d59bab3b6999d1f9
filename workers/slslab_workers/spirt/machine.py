"""The state machine of a peer and epoch: eight states and b branches, as released (protocol reference 2.2, V1)."""

import json
from collections.abc import Mapping
from typing import Any

# The states in their order, spelled as in the authors' code, each with the function that it calls.
STATES: Mapping[str, str] = {
    "Authentification": "auth",
    "ComputeGradients": "compute_gradients",
    "AverageGradients": "average_gradients",
    "CheckHeartbeat": "check_heartbeat",
    "Aggregation": "aggregation",
    "Update": "update_model",
    "CheckConvergence": "check_convergence",
    "trigger_next": "trigger_next_epoch",
}
PARALLEL = "ComputeGradients"
INPUT = {"input.$": "$$.Execution.Input"}


def definition(functions: Mapping[str, str], batches: int) -> str:
    """Amazon States Language; `functions` are ARNs by the names in STATES.

    Every Task takes its parameters from the execution's input and its output is thrown away, so that payloads do not
    grow; the last one's is the execution's. There is no Retry: a retried gradient would be stored twice.
    """
    names = list(STATES)
    states: dict[str, Any] = {}
    for name, following in zip(names, [*names[1:], None], strict=True):
        onward = {"Next": following} if following else {"End": True}
        arn = functions[STATES[name]]
        if name == PARALLEL:
            states[name] = {"Type": "Parallel", "Branches": _branches(arn, batches), "ResultPath": None, **onward}
        else:
            states[name] = {"Type": "Task", "Resource": arn, "Parameters": INPUT, **onward}
            if following:
                states[name]["ResultPath"] = None
    return json.dumps({"Comment": "SPIRT: one epoch of one peer", "StartAt": names[0], "States": states})


def _branches(arn: str, batches: int) -> list[dict[str, Any]]:
    branches = []
    for number in range(1, batches + 1):
        name = f"Batch{number}"
        task = {"Type": "Task", "Resource": arn, "Parameters": {**INPUT, "batch": number - 1}, "End": True}
        branches.append({"StartAt": name, "States": {name: task}})
    return branches
