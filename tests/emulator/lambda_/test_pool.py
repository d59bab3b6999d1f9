"""The lease of an environment, as far as it is not seen from outside."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slslab.aws.errors import ServiceError
from slslab.lambda_ import environment
from slslab.lambda_.emulator import Emulator
from slslab.lambda_.events import Request
from slslab.run.records import InvocationRecord

LATE = """
import os, time
from awslambdaric.lambda_runtime_client import LambdaRuntimeClient

wait = LambdaRuntimeClient.wait_next_invocation
asks = []

def wait_late(client):
    if asks:
        time.sleep({late_s})
    asks.append(time.monotonic())
    return wait(client)

LambdaRuntimeClient.wait_next_invocation = wait_late

def handler(event, context):
    return {{"asked": asks[-1], "process": os.getpid(), "times": len(asks)}}
"""


def test_a_fault_at_the_lease_fails_the_invocation_and_nothing_after_it(
    deploy: Callable[..., str], invoke: Callable[..., Any], emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases: list[tuple[str, str]] = []

    def fail(request: Request) -> None:
        leases.append((request.target.function.name, request.request_id))
        if len(leases) == 1:
            raise ServiceError(500, "ServiceException", "as injected")

    name = deploy("def handler(event, context):\n    return context.aws_request_id\n")
    monkeypatch.setattr(emulator.service.pool, "fault", fail)
    with pytest.raises(ClientError, match="as injected"):
        invoke(name)
    assert invoke(name).payload == leases[1][1]
    assert [function for function, _ in leases] == [name, name]


@pytest.mark.server
def test_an_answer_does_not_wait_until_the_runtime_asks_again(
    deploy: Callable[..., str], invoke: Callable[..., Any], invocations: Sequence[InvocationRecord]
) -> None:
    name = deploy(LATE.format(late_s=1))
    invoke(name)
    answered = time.monotonic()
    second = invoke(name)
    assert second.payload["times"] == 2, "the same runtime"
    assert answered < second.payload["asked"]
    deadline = time.monotonic() + 20
    while len(invocations) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [record.cold_start for record in invocations] == [True, False]
    assert invocations[1].duration_ms < 1000, "what the runtime does in between belongs to no duration"


@pytest.mark.server
def test_a_runtime_that_does_not_ask_again_is_not_used_again(
    deploy: Callable[..., str],
    invoke: Callable[..., Any],
    invocations: Sequence[InvocationRecord],
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(environment, "READY_LIMIT_S", 0.2)
    name = deploy(LATE.format(late_s=3600))
    assert [invoke(name).payload["times"] for _ in range(2)] == [1, 1]
    assert [record.cold_start for record in invocations] == [True, True]
    emulator.evict(name)  # which waits for the runtime within this limit
