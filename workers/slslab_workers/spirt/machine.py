"""The state machine of one peer and epoch: eight states and b branches, as released (docs/protocols.md, "SPIRT")."""

import json
from collections.abc import Mapping
from typing import Any

# The states in order, spelled as in the authors' code, with the function that each calls.
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
    """Return the machine in Amazon States Language; `functions` maps the names in STATES to ARNs.

    Every Task takes its parameters from the execution's input and discards its output, so that payloads don't grow. The
    last output is the execution's. It doesn't use Retry, which would store a gradient twice.
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
