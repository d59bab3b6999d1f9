"""Asynchronous invocations: retries, ages and destinations, on a clock that moves by what is slept."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.emulator.lambda_.registry import make_functions

from slslab.aws.errors import ServiceError, invalid, throttled
from slslab.lambda_ import events
from slslab.lambda_.events import Asynchronous, EventInvokeConfigs, Request, Response
from slslab.lambda_.functions import Functions, Target
from slslab.lambda_.references import function_arn
from slslab.lambda_.stack_client import Attributes, StackClient

BUCKET = {"DestinationConfig": {"OnFailure": {"Destination": "arn:aws:s3:::failures"}}}
THROTTLED = throttled("ConcurrentInvocationLimitExceeded", 1)
FAILED = Response(b'{"errorType": "RuntimeError"}', "Unhandled", "$LATEST")
DONE = Response(b'"done"', None, "$LATEST")
Outcome = Response | ServiceError


class Platform:
    """Answers attempts with these outcomes, the last one again and again, and notes what was asked of it."""

    def __init__(self, functions: Functions, *outcomes: Outcome) -> None:
        self.outcomes = list(outcomes)
        self.invoked: list[tuple[str, bytes]] = []
        self.stored: list[tuple[str, str, dict[str, Any]]] = []
        self.sent: list[tuple[str, bytes, Attributes, str]] = []
        self.slept: list[float] = []
        self.queue = Asynchronous(functions, self.invoke, cast(StackClient, self))

    async def invoke(self, request: Request) -> Response:
        self.invoked.append((request.target.function.name, request.payload))
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, ServiceError):
            raise outcome
        return outcome

    def store(self, bucket: str, key: str, body: bytes) -> None:
        self.stored.append((bucket, key, json.loads(body)))

    def send(self, queue: str, body: bytes, attributes: Attributes, trace_id: str) -> None:
        self.sent.append((queue, body, attributes, trace_id))

    def run(self, target: Target, payload: bytes = b'{"n": 1}') -> str:
        """Accept an event and wait until it and what follows from it are over; its request id."""

        async def accept() -> str:
            request_id = self.queue.accept(target, payload, "Root=1-0-0")
            while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(tasks)
            return request_id

        return asyncio.run(accept())

    @property
    def record(self) -> dict[str, Any]:
        """The one record in the bucket for failures."""
        [(bucket, key, record)] = self.stored
        assert bucket == "failures"
        assert key.startswith("aws/lambda/async/f/")
        return record


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Platform]:
    """Make a platform on which to sleep only moves the clock."""
    clock = SimpleNamespace(now=1000.0)
    made: list[Platform] = []
    pause = asyncio.sleep

    async def sleep(delay_s: float) -> None:
        clock.now += delay_s
        made[-1].slept.append(delay_s)
        await pause(0)

    monkeypatch.setattr(events, "time", SimpleNamespace(monotonic=lambda: clock.now))

    # Not asyncio's own `sleep`: an emulator that other tests share runs on another thread.
    @asynccontextmanager
    async def timeout(seconds: float) -> AsyncIterator[None]:
        await sleep(seconds)
        raise TimeoutError
        yield

    monkeypatch.setattr(events, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep, "timeout": timeout}))

    def call(functions: Functions, *outcomes: Outcome) -> Platform:
        made.append(Platform(functions, *outcomes))
        return made[-1]

    return call


def configured(**request: Any) -> Functions:
    functions = make_functions("f", "sink")
    EventInvokeConfigs(functions).put("f", None, {**BUCKET, **request}, keep=False)
    return functions


def test_a_success_is_one_attempt(make: Callable[..., Platform]) -> None:
    functions = configured()
    platform = make(functions, DONE)
    platform.run(functions.resolve("f"))
    assert platform.invoked == [("f", b'{"n": 1}')]
    assert (platform.slept, platform.stored) == ([], [])


def test_failures_are_retried_after_one_and_two_minutes_and_then_recorded(make: Callable[..., Platform]) -> None:
    functions = configured()
    platform = make(functions, FAILED)
    request_id = platform.run(functions.resolve("f"))
    assert len(platform.invoked) == 3
    assert platform.slept == [60, 120]
    assert platform.record["requestContext"] == {
        "requestId": request_id,
        "functionArn": function_arn("f", "$LATEST"),
        "condition": "RetriesExhausted",
        "approximateInvokeCount": 3,
    }
    assert platform.record["requestPayload"] == {"n": 1}
    context = {"statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled"}
    assert platform.record["responseContext"] == context
    assert platform.record["responsePayload"] == {"errorType": "RuntimeError"}


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (1, 2)])
def test_a_function_may_have_fewer_retries(retries: int, attempts: int, make: Callable[..., Platform]) -> None:
    functions = configured(MaximumRetryAttempts=retries)
    platform = make(functions, FAILED)
    platform.run(functions.resolve("f"))
    assert len(platform.invoked) == attempts
    assert platform.record["requestContext"]["approximateInvokeCount"] == attempts


def test_throttles_are_no_attempts_and_wait_twice_as_long_each_time(make: Callable[..., Platform]) -> None:
    functions = configured()
    platform = make(functions, THROTTLED, ServiceError(500, "ServiceException", ""), THROTTLED, FAILED, DONE)
    platform.run(functions.resolve("f"))
    assert platform.slept == [1, 2, 4, 60]
    assert platform.stored == []


def test_throttled_events_take_turns_as_soon_as_one_has_ended() -> None:
    """With one execution at a time, 15 events are done after 15 executions, and none waits its minutes alone."""

    async def run() -> list[bytes]:
        running, done = 0, []

        async def invoke(request: Request) -> Response:
            nonlocal running
            if running:
                raise THROTTLED
            running += 1
            await asyncio.sleep(0.001)
            running -= 1
            done.append(request.payload)
            return DONE

        queue = Asynchronous(functions, invoke, cast(StackClient, None))  # neither stores nor sends
        for number in range(15):
            queue.accept(functions.resolve("f"), b"%d" % number, "Root=1-0-0")
        async with asyncio.timeout(10):
            while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(tasks)
        return done

    functions = configured()
    assert asyncio.run(run()) == [b"%d" % number for number in range(15)]


def test_throttles_wait_five_minutes_at_most_until_the_event_is_too_old(make: Callable[..., Platform]) -> None:
    functions = configured()
    platform = make(functions, THROTTLED)
    platform.run(functions.resolve("f"))
    assert platform.slept[:10] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    assert set(platform.slept[9:]) == {300}
    assert 21_600 - 300 < sum(platform.slept) <= 21_600
    assert platform.record["requestContext"]["condition"] == "EventAgeExceeded"
    assert platform.record["requestContext"]["approximateInvokeCount"] == 0
    assert "responseContext" not in platform.record


@pytest.mark.parametrize(("age_s", "attempts"), [(60, 2), (179, 2), (180, 3)])
def test_a_retry_beyond_the_age_is_not_waited_for(age_s: int, attempts: int, make: Callable[..., Platform]) -> None:
    functions = configured(MaximumEventAgeInSeconds=age_s)
    platform = make(functions, FAILED)
    platform.run(functions.resolve("f"))
    assert len(platform.invoked) == attempts
    condition = "RetriesExhausted" if attempts == 3 else "EventAgeExceeded"
    assert platform.record["requestContext"]["condition"] == condition


def test_an_event_of_a_function_without_concurrency_fails_at_once(make: Callable[..., Platform]) -> None:
    functions = configured()
    functions.entry("f").reserved = 0
    platform = make(functions, THROTTLED)
    platform.run(functions.resolve("f"))
    assert platform.slept == []
    assert platform.record["requestContext"]["condition"] == "ZeroReservedConcurrency"


def test_a_function_as_destination_receives_the_record(make: Callable[..., Platform]) -> None:
    sink = {"OnSuccess": {"Destination": function_arn("sink")}}
    functions = configured(DestinationConfig=sink)
    platform = make(functions, DONE)
    platform.run(functions.resolve("f"))
    [_, (name, payload)] = platform.invoked
    record = json.loads(payload)
    assert (name, record["requestContext"]["condition"], record["responsePayload"]) == ("sink", "Success", "done")
    assert "functionError" not in record["responseContext"]


def test_a_qualifier_has_a_configuration_of_its_own(make: Callable[..., Platform]) -> None:
    functions = configured()
    functions.entry("f").aliases["live"] = {"Name": "live", "FunctionVersion": "$LATEST"}
    EventInvokeConfigs(functions).put("f", "live", {"MaximumRetryAttempts": 0}, keep=False)
    platform = make(functions, FAILED)
    platform.run(functions.resolve("f", "live"))
    assert (len(platform.invoked), platform.stored) == (1, [])


def test_what_the_emulator_cannot_run_is_logged(
    make: Callable[..., Platform], caplog: pytest.LogCaptureFixture
) -> None:
    functions = configured()
    platform = make(functions, invalid("It is wrong."))
    with caplog.at_level(logging.ERROR, "slslab.lambda_.events"):
        platform.run(functions.resolve("f"))
    assert (len(platform.invoked), platform.stored) == (1, [])
    assert "could not be carried out: It is wrong." in caplog.text


def test_no_attempt_follows_once_the_emulator_ends(make: Callable[..., Platform]) -> None:
    functions = configured()
    platform = make(functions, FAILED)

    async def end() -> int:
        platform.queue.accept(functions.resolve("f"), b"{}", "")
        tasks = platform.queue.close()
        await asyncio.wait(tasks)
        return len(tasks)

    assert asyncio.run(end()) == 1
    assert len(platform.invoked) == 1
    assert (platform.slept, platform.stored) == ([], [])


@pytest.mark.parametrize(
    ("payload", "recorded"),
    [
        (b"no JSON", "no JSON"),
        (b"\xff", "\ufffd"),
        (b"NaN", "NaN"),
        ("{}".encode("utf-16"), "\ufffd\ufffd{\0}\0"),
        (b"[" * 100_000, "[" * 100_000),
        (b'{"n": 1e400, "n": 12345678901234567890123}', {"n": 12345678901234567890123}),
    ],
)
def test_a_response_that_is_no_json_is_recorded_as_a_text(
    payload: bytes, recorded: Any, make: Callable[..., Platform]
) -> None:
    """Such a failure was recorded nowhere."""
    functions = configured(MaximumRetryAttempts=0)
    platform = make(functions, Response(payload, "Unhandled", "$LATEST"))
    platform.run(functions.resolve("f"), b'{"deep": ' + b"[" * 900 + b"]" * 900 + b"}")
    assert platform.record["responsePayload"] == recorded
    assert "deep" in platform.record["requestPayload"]


QUEUE = "arn:aws:sqs:us-east-1:000000000000:letters"


@pytest.mark.parametrize("message", ["It is wrong.", "x" * 2000])
def test_an_event_that_failed_goes_to_the_dead_letter_queue(make: Callable[..., Platform], message: str) -> None:
    functions = make_functions("f", DeadLetterConfig={"TargetArn": QUEUE})
    failure = json.dumps({"errorType": "E", "errorMessage": message}).encode()
    platform = make(functions, Response(failure, "Unhandled", "$LATEST"))
    request_id = platform.run(functions.resolve("f"))
    attributes = {
        "RequestID": ("String", request_id),
        "ErrorCode": ("Number", "200"),
        "ErrorMessage": ("String", message[:1024]),
    }
    assert platform.sent == [(QUEUE, b'{"n": 1}', attributes, "Root=1-0-0")]


def test_a_dead_letter_is_sent_also_if_the_destination_fails(make: Callable[..., Platform]) -> None:
    functions = make_functions("f", "sink", DeadLetterConfig={"TargetArn": QUEUE})
    sink = {"DestinationConfig": {"OnFailure": {"Destination": function_arn("sink")}}}
    EventInvokeConfigs(functions).put("f", None, sink, keep=False)
    functions.delete("sink", None)
    platform = make(functions, FAILED)
    platform.run(functions.resolve("f"))
    assert [queue for queue, *_ in platform.sent] == [QUEUE]


def test_a_success_is_no_dead_letter(make: Callable[..., Platform]) -> None:
    functions = make_functions("f", DeadLetterConfig={"TargetArn": QUEUE})
    platform = make(functions, DONE)
    platform.run(functions.resolve("f"))
    assert platform.sent == []


def test_a_queue_as_destination_receives_the_record(make: Callable[..., Platform]) -> None:
    functions = configured(DestinationConfig={"OnSuccess": {"Destination": QUEUE}})
    platform = make(functions, DONE)
    platform.run(functions.resolve("f"))
    [(queue, record, *rest)] = platform.sent
    assert (queue, json.loads(record)["requestContext"]["condition"], rest) == (QUEUE, "Success", [{}, "Root=1-0-0"])
