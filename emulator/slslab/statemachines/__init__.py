"""Step Functions: Standard workflows whose Lambda Tasks run in this emulator, with AWS's limits and names of errors.

The interpreter of the Amazon States Language is moto's (LocalStack's own code); what AWS enforces and moto does not
stands around it. It runs in a process of its own (`python -m slslab.statemachines`); docs/state-machines.md tells what
is enforced and what is not. This module itself needs nothing of moto.
"""

from collections.abc import Iterable, Mapping
from typing import Any

ENTERED = "StateEntered"
# What an attempt at a state's work begins with.
ATTEMPTS = frozenset(
    ("LambdaFunctionScheduled", "TaskScheduled", "ActivityScheduled", "ParallelStateStarted", "MapStateStarted")
)


def transitions(history: Iterable[Mapping[str, Any]]) -> int:
    """State transitions that an execution is billed for, from its whole history as GetExecutionHistory returns it.

    One for each state entered (a Parallel or Map state once for itself, and each state inside each time it is entered)
    and one for each retry; start and end of the execution are none.
    https://aws.amazon.com/step-functions/pricing/: "Step Functions counts a state transition each time a step of your
    workflow is executed. You are charged for the total number of state transitions across all your state machines,
    including retries."
    """
    types: dict[int, str] = {}
    count = 0
    for event in sorted(history, key=lambda event: int(event["id"])):
        kind = types[event["id"]] = event["type"]
        # The first attempt follows the entering of its state, every further one the failure of the one before.
        retry = kind in ATTEMPTS and not types.get(event["previousEventId"], "").endswith(ENTERED)
        count += kind.endswith(ENTERED) or retry
    return count
