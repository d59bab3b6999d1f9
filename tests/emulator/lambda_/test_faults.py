"""Functions of any kind under a fault plan: throttled, killed, hung, as AWS answers and meters it."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

import slslab_workers
from slslab.errors import RequestError
from slslab.lambda_.emulator import Emulator
from slslab.lambda_.hosts import fault_bit
from slslab.testing import create_function
from slslab_workers.faults.plan import VARIABLE

pytestmark = pytest.mark.server

Deploy = Callable[..., str]
Invoke = Callable[..., Any]
Faults = Callable[..., None]
RETURN = "def handler(event, context):\n    return event\n"
SLEEP = "import time\n\ndef handler(event, context):\n    time.sleep(event)\n    return event\n"


def test_the_chosen_attempts_are_throttled(
    deploy: Deploy, invoke: Invoke, lambda_faults: Faults, lambda_client: Any, emulator: Emulator
) -> None:
    name, other = deploy(RETURN), deploy(RETURN)
    events: list[dict[str, Any]] = []
    with emulator.listening(on_event=events.append):
        lambda_faults({"kind": "throttle", "function": name, "invocation": 1, "count": 2})
        assert invoke(name, 1).payload == 1
        for _ in range(2):
            with pytest.raises(ClientError) as refused:
                lambda_client.invoke(FunctionName=name, Payload=b"1")
            assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 429
            assert refused.value.response["Error"]["Code"] == "TooManyRequestsException"
            answer: dict[str, Any] = {**refused.value.response}
            assert answer["Reason"] == "ConcurrentInvocationLimitExceeded"
        assert invoke(name, 2).payload == 2
        assert invoke(other, 3).payload == 3
    assert [(e["resource"], e["function"]) for e in events if e.get("op") == "fault"] == [("1 throttle", name)] * 2


@pytest.mark.parametrize("cold", [True, False])
def test_an_invocation_is_killed_as_lambda_reports_it(
    cold: bool, deploy: Deploy, invoke: Invoke, lambda_faults: Faults, invocations: Any
) -> None:
    name = deploy(SLEEP)
    if not cold:
        invoke(name, 0)
    lambda_faults({"kind": "kill", "function": name, "invocation": 0, "seconds": 0.2})
    began = time.monotonic()
    answer = invoke(name, 5, check=False)
    assert time.monotonic() - began >= 0.2
    assert answer.error == "Unhandled"
    assert answer.payload["errorType"] == "Runtime.ExitError"
    assert "signal: killed" in answer.payload["errorMessage"]
    assert invoke(name, 0).payload == 0, "the environment is started anew"
    assert invocations[-2].error_type == "Runtime.ExitError"
    # A busy host's delay is not in it.
    assert invocations[-2].duration_ms < 2000


def test_an_invocation_that_is_killed_at_once_never_answers(
    deploy: Deploy, invoke: Invoke, lambda_faults: Faults
) -> None:
    name = deploy(SLEEP)
    lambda_faults({"kind": "kill", "function": name})
    for _ in range(3):
        assert invoke(name, 1, check=False).payload["errorType"] == "Runtime.ExitError"


def test_a_function_hangs_until_its_time_out(
    deploy: Deploy, invoke: Invoke, lambda_faults: Faults, invocations: Any
) -> None:
    name = deploy(RETURN.replace("return", "import time; time.sleep(0.3); return"), Timeout=1)
    lambda_faults({"kind": "timeout", "function": name, "invocation": 0})
    answer = invoke(name, 1, check=False)
    assert answer.payload["errorType"] == "Sandbox.Timedout"
    assert "Task timed out after 1.00 seconds" in answer.payload["errorMessage"]
    assert invocations[-1].duration_ms == 1000
    assert invoke(name, 1).payload == 1


def test_what_ends_before_its_fault_does_not_meet_it(
    deploy: Deploy, invoke: Invoke, lambda_faults: Faults, emulator: Emulator
) -> None:
    name = deploy(SLEEP)
    events: list[dict[str, Any]] = []
    with emulator.listening(on_event=events.append):
        lambda_faults({"kind": "kill", "function": name, "invocation": 0, "seconds": 0.3})
        assert invoke(name, 0).payload == 0
        assert invoke(name, 0.6).payload == 0.6
    assert [event for event in events if event.get("op") == "fault"] == []


def test_an_events_retries_are_attempts_too(
    deploy: Deploy, lambda_faults: Faults, lambda_client: Any, emulator: Emulator
) -> None:
    """The first attempt is throttled; Lambda tries again, and the function runs once."""
    name = deploy(RETURN)
    lambda_faults({"kind": "throttle", "function": name, "invocation": 0})
    with emulator.recording() as records:
        assert lambda_client.invoke(FunctionName=name, InvocationType="Event", Payload=b"1")["StatusCode"] == 202
        deadline = time.monotonic() + 30
        while not records and time.monotonic() < deadline:
            time.sleep(0.05)
    assert [record.status for record in records] == ["success"]


def test_a_share_is_the_same_in_every_session(deploy: Deploy, invoke: Invoke, lambda_faults: Faults) -> None:
    name = deploy(RETURN)

    def refused(seed: int) -> list[bool]:
        lambda_faults({"kind": "throttle", "function": name, "probability": 0.5}, seed=seed)
        found = []
        for number in range(12):
            try:
                invoke(name, number)
                found.append(False)
            except ClientError:
                found.append(True)
        return found

    assert refused(1) == refused(1)
    assert True in refused(1)
    assert False in refused(1)


def test_without_the_block_there_is_no_fault(deploy: Deploy, invoke: Invoke, emulator: Emulator) -> None:
    name = deploy(RETURN)
    with emulator.faults({"fault": [{"kind": "throttle", "function": name}]}), pytest.raises(ClientError):
        invoke(name, 1)
    assert invoke(name, 1).payload == 1


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"kind": "straggler", "factor": 2}, "Fault 1 is of kind 'straggler', which does not exist."),
        ({"kind": "kill"}, "Fault 1 (kill) has no function."),
        ({"kind": "kill", "function": "f", "worker": 1}, "Fault 1 (kill) has 'worker', which does not apply to it."),
        ({"kind": "kill", "function": "f", "invocation": -1}, "Fault 1 (kill) has invocation -1."),
    ],
)
def test_a_wrong_plan_is_refused(entry: dict[str, Any], says: str, emulator: Emulator) -> None:
    with pytest.raises(RequestError) as refused, emulator.faults({"fault": [entry]}):
        pass
    assert refused.value.message == says


WORKER = """
from slslab_workers.channels.channel import Channel
from slslab_workers.channels.events import Tracer

def handler(event, context):
    tracer = Tracer(worker=event)
    tracer.epoch = 0
    with tracer.span("compute", "compute"):
        return event
"""


@pytest.mark.parametrize("warm", [False, True])
def test_a_worker_that_is_invoked_again_does_not_die_again(warm: bool, tmp_path: Path) -> None:
    """Also in another environment, which was started before."""
    (tmp_path / "app.py").write_text(WORKER)
    shutil.copytree(Path(slslab_workers.__file__).parent, tmp_path / "slslab_workers")
    plan = {"fault": [{"kind": "kill", "worker": 1, "epoch": 0}]}
    with Emulator(variables={VARIABLE: json.dumps(plan)}, code_roots=[tmp_path]) as emulator:
        client = emulator.client("lambda")
        create_function(client, "f", tmp_path)

        def invoke(worker: int) -> Any:
            return json.loads(client.invoke(FunctionName="f", Payload=str(worker).encode())["Payload"].read())

        if warm:
            assert invoke(0) == 0
        assert invoke(1)["errorType"] == "Runtime.ExitError"
        assert invoke(1) == 1
        assert invoke(0) == 0
        client.close()


@pytest.mark.parametrize(
    ("record", "bit"),
    [
        ({"op": "fault", "resource": "0 kill"}, 1),
        ({"op": "fault", "resource": "63 slow"}, 1 << 63),
        ({"op": "fault", "resource": "64 kill"}, 0),
        ({"op": "fault", "resource": "kill"}, 0),
        ({"op": "compute", "resource": "3 kill"}, 0),
        ({"record": "clock"}, 0),
    ],
)
def test_a_fault_that_a_worker_reports_has_a_bit(record: dict[str, Any], bit: int) -> None:
    assert fault_bit(record) == bit
