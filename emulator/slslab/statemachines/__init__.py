"""Emulate Step Functions: Standard workflows with Lambda Tasks in this emulator, and AWS's limits and error names.

moto's interpreter (LocalStack's own code) evaluates the Amazon States Language; the code around it enforces what AWS
enforces and moto doesn't. It runs in a process of its own (`python -m slslab.statemachines`); docs/services.md
lists what is enforced and what isn't. This module doesn't import moto.
"""

from collections.abc import Iterable, Mapping
from typing import Any

ENTERED = "StateEntered"
# Events that begin an attempt at a state's work.
ATTEMPTS = frozenset(
    ("LambdaFunctionScheduled", "TaskScheduled", "ActivityScheduled", "ParallelStateStarted", "MapStateStarted")
)


def transitions(history: Iterable[Mapping[str, Any]]) -> int:
    """Count an execution's billed state transitions in its complete history from GetExecutionHistory.

    Each state entered is one (a Parallel or Map state counts once, and each state inside each time it is entered), and
    so is each retry. The execution's start and end don't count. https://aws.amazon.com/step-functions/pricing/: "Step
    Functions counts a state transition each time a step of your workflow is executed. You are charged for the total
    number of state transitions across all your state machines, including retries."
    """
    types: dict[int, str] = {}
    count = 0
    for event in sorted(history, key=lambda event: int(event["id"])):
        kind = types[event["id"]] = event["type"]
        # The first attempt follows the state's entry; every later one follows the failure of the attempt before.
        retry = kind in ATTEMPTS and not types.get(event["previousEventId"], "").endswith(ENTERED)
        count += kind.endswith(ENTERED) or retry
    return count
