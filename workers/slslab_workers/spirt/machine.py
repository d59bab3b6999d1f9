"""The state machine of a peer and epoch: eight states and b branches, as released (docs/protocols.md, "SPIRT")."""

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
    """Return the machine in Amazon States Language; `functions` are ARNs by the names in STATES.

    Every Task takes its parameters from the execution's input and its output is discarded, so that payloads do not
    grow; the last one's output is the execution's. There is no Retry: a retried gradient would be stored twice.
    """
    names = list(STATES)
    states: dict[str, Any] = {}
    for name, following in zip(names, [*names[1:], None], strict=True):
        onward = {"Next": following} if following else {"End": True}
        arn = functions[STATES[name]]
        if name == PARALLEL:
            branches = [_branch(arn, number) for number in range(batches)]
            states[name] = {"Type": "Parallel", "Branches": branches, "ResultPath": None, **onward}
        else:
            states[name] = {"Type": "Task", "Resource": arn, "Parameters": INPUT, **onward}
            if following:
                states[name]["ResultPath"] = None
    return json.dumps({"Comment": "SPIRT: one epoch of one peer", "StartAt": names[0], "States": states})


def _branch(arn: str, batch: int) -> dict[str, Any]:
    name = f"Batch{batch + 1}"
    task = {"Type": "Task", "Resource": arn, "Parameters": {**INPUT, "batch": batch}, "End": True}
    return {"StartAt": name, "States": {name: task}}
