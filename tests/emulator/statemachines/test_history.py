"""The transitions of states whose attempts fail before their work is scheduled: AWS bills retries."""

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.emulator.statemachines.here import begin, finish
from tests.emulator.statemachines.written import INVOKE, Definition, chain
from tests.memory.state_machines import StateMachines

from slslab.statemachines.history import read_transitions

pytestmark = pytest.mark.usefixtures("no_process_stays")


def attempts(payload: str) -> tuple[list[bool], list[bool]]:
    """Which transitions of a Task with this payload and two retries failed, as recorded and as its events tell."""
    retry = [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 1, "MaxAttempts": 2, "BackoffRate": 1}]
    arguments = {"FunctionName": "f", "Payload": payload}
    state: Definition = {"Type": "Task", "Resource": INVOKE, "QueryLanguage": "JSONata", "Arguments": arguments}
    recorded: list[dict[str, Any]] = []

    def invoke(**_members: Any) -> dict[str, Any]:
        return {
            "StatusCode": 200,
            "Payload": io.BytesIO(b"1"),
            "ResponseMetadata": {"RequestId": "id", "HTTPHeaders": {}},
        }

    known = StateMachines(lambda: None, invoke, recorded.append).machines
    execution = finish(begin(chain({**state, "Retry": retry}), machine=known))
    history = [
        {**event, "timestamp": datetime.fromtimestamp(event["timestamp"], UTC)} for event in execution.history.events
    ]
    told = read_transitions(history, lambda stamp: round(stamp.timestamp() * 1e9))
    return [event["failed"] for event in recorded], [transition.failed for transition in told]


def test_a_retry_after_a_failed_argument_is_a_transition() -> None:
    payload = "{% $states.context.State.RetryCount = 0 ? $error('no') : 1 %}"
    assert attempts(payload) == ([True, False], [True, False])


def test_each_attempt_with_a_failed_argument_is_a_transition() -> None:
    recorded, _ = attempts("{% $error('no') %}")
    assert recorded == [True, True, True]
