"""Leases, admission to the host's memory, and what becomes of asynchronous failures."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from botocore.exceptions import ClientError

from slslab.lambda_ import memory_queue
from slslab.lambda_.emulator import Emulator
from slslab.testing import create_function

pytestmark = pytest.mark.server

# An invocation that is held ends when its code has a file of this name.
SOURCE = """
import os, time, uuid

environment = uuid.uuid4().hex

def handler(event, context):
    if event.get("fail"):
        raise RuntimeError("as asked")
    while event.get("held") and not os.path.exists(os.path.join(os.environ["LAMBDA_TASK_ROOT"], "release")):
        time.sleep(0.01)
    return environment
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(SOURCE)
    return tmp_path


def call(client: Any, name: str, **event: Any) -> str:
    answer = client.invoke(FunctionName=name, Payload=json.dumps(event))
    assert "FunctionError" not in answer
    return str(json.loads(answer["Payload"].read()))


class Small(NamedTuple):
    """An emulator with memory for two environments of 512 MB: its client, its trace and its functions' code."""

    client: Any
    events: list[dict[str, Any]]
    code: Path

    def told(self, op: str) -> list[dict[str, Any]]:
        """Return the events of one kind."""
        return [event for event in self.events if event.get("op") == op]

    def begun(self) -> int:
        """Return how many invocations have begun."""
        return sum(event["record"] == "begin" for event in self.events)

    @contextmanager
    def two_running(self) -> Iterator[list[str]]:
        """Keep two invocations of "one" running during the block; its list then has their environments."""
        before, environments = self.begun(), list[str]()
        with ThreadPoolExecutor(2) as pool:
            running = [pool.submit(call, self.client, "one", held=True) for _ in range(2)]
            while self.begun() < before + 2:
                time.sleep(0.01)
            yield environments
            (self.code / "release").touch()
            environments += [future.result() for future in running]
        (self.code / "release").unlink()


@pytest.fixture
def small(code: Path) -> Iterator[Small]:
    events: list[dict[str, Any]] = []
    with Emulator(budget_mb=1100, on_event=events.append, code_roots=[code]) as emulator:
        client = emulator.client("lambda")
        create_function(client, "one", code, MemorySize=512)
        create_function(client, "two", code, MemorySize=512)
        yield Small(client, events, code)
        client.close()


def test_parallel_invocations_take_environments_of_their_own_and_stay_warm(small: Small) -> None:
    """Idle ones hold what is resident alone: "two" fits, too."""
    with small.two_running() as first:
        pass
    assert len(set(first)) == 2
    call(small.client, "two")
    with small.two_running() as second:
        pass
    assert set(second) == set(first)
    assert call(small.client, "one") in first
    assert small.told("environment.kill") == small.told("host.wait") == []


def test_idle_environments_make_room(small: Small) -> None:
    with small.two_running():
        pass
    small.client.update_function_configuration(FunctionName="two", MemorySize=1099)
    call(small.client, "two")
    assert [event["function"] for event in small.told("environment.kill")] == ["one"] * 2
    assert small.told("host.wait") == []


def test_waiting_for_the_host_is_an_event_and_no_duration(small: Small) -> None:
    with ThreadPoolExecutor(1) as pool:
        with small.two_running() as environments:
            waiting = pool.submit(call, small.client, "two")
            time.sleep(0.5)
        assert len({*environments, waiting.result()}) == 3
    [wait] = small.told("host.wait")
    assert wait["end_ns"] - wait["start_ns"] > 200_000_000
    assert (wait["function"], wait["bytes"], wait["failed"]) == ("two", 512 << 20, False)
    [begun] = [event for event in small.events if event["record"] == "begin" and event["id"] == wait["invocation"]]
    assert begun["start_ns"] - begun["init_ms"] * 1_000_000 > wait["end_ns"], "the wait is before init and duration"


def test_a_wait_is_said_once(small: Small, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_queue, "SAID_AFTER_S", 0.05)
    with ThreadPoolExecutor(2) as pool, small.two_running():
        for _ in range(2):
            pool.submit(call, small.client, "two")
        while not caplog.messages:
            time.sleep(0.01)
        time.sleep(0.3)
    [line] = caplog.messages
    assert re.search(r"for this host's memory: [12] × 512 MB for two\. Of the 1,100 MB .*: one 2 × 512 MB\.", line)
    assert "--memory-budget" in line


CHAIN = """
import asyncio
import json

import boto3
from botocore.config import Config

client = boto3.client("lambda", config=Config(retries={"total_max_attempts": 1}))

def handler(event, context):
    if not event:
        return "end"
    answer = client.invoke(FunctionName=event[0], Payload=json.dumps(event[1:]))
    return json.loads(answer["Payload"].read())
"""


def test_functions_that_wait_for_each_other_and_do_not_fit_are_refused(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(CHAIN)
    events: list[dict[str, Any]] = []
    with Emulator(budget_mb=1500, on_event=events.append, code_roots=[tmp_path]) as emulator:
        client = emulator.client("lambda")
        for name in ("one", "two", "three"):
            create_function(client, name, tmp_path, MemorySize=512, Timeout=60)
        answer = client.invoke(FunctionName="one", Payload=b'["two"]')
        assert json.loads(answer["Payload"].read()) == "end"
        refused = json.loads(client.invoke(FunctionName="one", Payload=b'["two", "three"]')["Payload"].read())
        client.close()
    assert "three cannot run next to" in str(refused)
    assert "1 × 512 MB of two + 1 × 512 MB of one + 512 MB = 1,536 MB" in str(refused)
    [wait] = [event for event in events if event.get("op") == "host.wait"]
    assert (wait["function"], wait["failed"]) == ("three", True)


def test_a_function_that_can_never_fit_is_refused_and_counts_no_more(small: Small) -> None:
    client = small.client
    client.update_function_configuration(FunctionName="one", MemorySize=2048)
    client.put_function_concurrency(FunctionName="one", ReservedConcurrentExecutions=1)
    for _ in range(2):
        with pytest.raises(ClientError, match="at most 1100 MB here, and the function needs 2048 MB"):
            call(client, "one")


def test_a_changed_configuration_takes_new_environments(small: Small) -> None:
    client = small.client
    before = call(client, "one")
    client.update_function_configuration(FunctionName="one", Timeout=9)
    assert call(client, "one") != before


def test_what_runs_when_the_emulator_ends_is_metered(code: Path) -> None:
    with Emulator(code_roots=[code]) as emulator:
        client = emulator.client("lambda")
        create_function(client, "one", code, MemorySize=512)
        call(client, "one")
        client.update_function_configuration(FunctionName="one", Timeout=60)
        caller = threading.Thread(
            target=lambda: client.invoke(FunctionName="one", Payload=b'{"held": true}'), daemon=True
        )
        caller.start()
        while not list((emulator.home / "environments").glob("one-0002")):
            time.sleep(0.01)
        time.sleep(0.3)
    caller.join(10)
    assert [record.status for record in emulator.records] == ["success", "error"]
    client.close()


def test_asynchronous_failures_land_in_the_destination_bucket(
    code: Path, lambda_client: Any, s3_client: Any, deploy: Callable[..., str]
) -> None:
    s3_client.create_bucket(Bucket="failures")
    name = deploy(code, FunctionName="one")
    lambda_client.put_function_event_invoke_config(
        FunctionName=name,
        MaximumRetryAttempts=1,
        DestinationConfig={"OnFailure": {"Destination": "arn:aws:s3:::failures"}},
    )
    accepted = lambda_client.invoke(FunctionName=name, InvocationType="Event", Payload=b'{"fail": true, "n": 1}')
    deadline = time.monotonic() + 20
    listed: list[dict[str, Any]] = []
    while not listed and time.monotonic() < deadline:
        listed = s3_client.list_objects_v2(Bucket="failures", Prefix="aws/lambda/async/one/").get("Contents", [])
    [entry] = listed
    record = json.loads(s3_client.get_object(Bucket="failures", Key=entry["Key"])["Body"].read())
    assert record["requestContext"]["requestId"] == accepted["ResponseMetadata"]["RequestId"]
    assert record["requestContext"]["condition"] == "RetriesExhausted"
    assert record["requestContext"]["approximateInvokeCount"] == 2
    assert record["requestPayload"] == {"fail": True, "n": 1}
    assert record["responseContext"]["functionError"] == "Unhandled"
    assert record["responsePayload"]["errorType"] == "RuntimeError"
