"""Step Functions: Standard workflows whose Lambda Tasks run in this emulator, with AWS's limits and names of errors.

The interpreter of the Amazon States Language is moto's (LocalStack's own code); the code around it enforces what AWS
does and moto does not. It runs in a process of its own (`python -m slslab.statemachines`); docs/services.md lists
what is enforced and what is not. This module itself does not import moto.
"""

from collections.abc import Iterable, Mapping
from typing import Any

ENTERED = "StateEntered"
# Events with which an attempt at a state's work begins.
ATTEMPTS = frozenset(
    ("LambdaFunctionScheduled", "TaskScheduled", "ActivityScheduled", "ParallelStateStarted", "MapStateStarted")
)


def transitions(history: Iterable[Mapping[str, Any]]) -> int:
    """Count the state transitions that an execution is billed for, in its whole history from GetExecutionHistory.

    One for each state entered (a Parallel or Map state once for itself, and each state inside each time it is entered)
    and one for each retry; start and end of the execution do not count.
    https://aws.amazon.com/step-functions/pricing/: "Step Functions counts a state transition each time a step of your
    workflow is executed. You are charged for the total number of state transitions across all your state machines,
    including retries."
    """
    types: dict[int, str] = {}
    count = 0
    for event in sorted(history, key=lambda event: int(event["id"])):
        kind = types[event["id"]] = event["type"]
        # The first attempt follows the entry into its state, every further one the failure of the attempt before.
        retry = kind in ATTEMPTS and not types.get(event["previousEventId"], "").endswith(ENTERED)
        count += kind.endswith(ENTERED) or retry
    return count
