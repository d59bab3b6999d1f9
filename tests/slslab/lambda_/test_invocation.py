"""Leases, admission to the host's memory, and what becomes of asynchronous failures."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slslab.aws.errors import ServiceError
from slslab.aws.keys import Keyring
from slslab.aws.limits import lambda_limits
from slslab.aws.requests import READ_AT_ONCE
from slslab.host.session import Session
from slslab.lambda_ import invocation, memory_waits
from slslab.lambda_.service.emulator import Emulator
from slslab.stack.object_store import EmbeddedObjectStore
from slslab.testing import create_function

pytestmark = pytest.mark.server

QUICK = lambda_limits().changed(event_retry_base_s=0.01)
SOURCE = """
import time, uuid

environment = uuid.uuid4().hex

def handler(event, context):
    if event.get("fail"):
        raise RuntimeError("as asked")
    time.sleep(event.get("sleep", 0))
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


@pytest.fixture
def small(code: Path) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    """A client of an emulator with memory for two environments of 512 MB, and its trace."""
    events: list[dict[str, Any]] = []
    with Emulator(budget_mb=1100, on_event=events.append, code_roots=[code]) as emulator:
        client = emulator.client("lambda")
        create_function(client, "one", code, MemorySize=512)
        create_function(client, "two", code, MemorySize=512)
        yield client, events
        client.close()


def test_parallel_invocations_take_environments_of_their_own_and_reuse_them(
    small: tuple[Any, list[dict[str, Any]]],
) -> None:
    client, _ = small
    with ThreadPoolExecutor(2) as pool:
        pids = set(pool.map(lambda _: call(client, "one", sleep=0.3), range(2)))
    assert len(pids) == 2
    assert call(client, "one") in pids


def test_idle_environments_hold_what_is_resident_and_stay_warm(small: tuple[Any, list[dict[str, Any]]]) -> None:
    client, events = small
    with ThreadPoolExecutor(2) as pool:
        first = set(pool.map(lambda _: call(client, "one", sleep=1.0), range(2)))
    call(client, "two")
    with ThreadPoolExecutor(2) as pool:
        assert set(pool.map(lambda _: call(client, "one", sleep=1.0), range(2))) == first
    assert not [event for event in events if event.get("op") in ("environment.kill", "host.wait")]


def test_idle_environments_make_room(small: tuple[Any, list[dict[str, Any]]]) -> None:
    client, events = small
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: call(client, "one", sleep=0.3), range(2)))
    started = [event for event in events if event.get("op") == "environment.start"]
    client.update_function_configuration(FunctionName="two", MemorySize=1099)
    call(client, "two")
    killed = [event for event in events if event.get("op") == "environment.kill"]
    assert [event["function"] for event in killed] == ["one"] * len(started)
    assert not [event for event in events if event.get("op") == "host.wait"]


def test_waiting_for_the_host_is_an_event_and_no_duration(small: tuple[Any, list[dict[str, Any]]]) -> None:
    client, events = small
    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(call, client, "one", sleep=1.5) for _ in range(2)]
        while len([event for event in events if event.get("op") == "environment.start"]) < 2:
            time.sleep(0.01)
        waiting = pool.submit(call, client, "two")
        assert len({future.result() for future in [*running, waiting]}) == 3
    [wait] = [event for event in events if event.get("op") == "host.wait"]
    assert wait["end_ns"] - wait["start_ns"] > 200_000_000
    assert (wait["function"], wait["bytes"], wait["failed"]) == ("two", 512 << 20, False)
    [begun] = [event for event in events if event["record"] == "begin" and event["id"] == wait["invocation"]]
    assert begun["start_ns"] - begun["init_ms"] * 1_000_000 > wait["end_ns"], "the wait is before init and duration"


def test_a_wait_is_said_once(
    small: tuple[Any, list[dict[str, Any]]], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, events = small
    monkeypatch.setattr(memory_waits, "SAID_AFTER_S", 0.05)
    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(call, client, "one", sleep=2) for _ in range(2)]
        while len([event for event in events if event.get("op") == "environment.start"]) < 2:
            time.sleep(0.01)
        running += [pool.submit(call, client, "two") for _ in range(2)]
        for future in running:
            future.result()
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
    assert "three cannot run beside" in str(refused)
    assert "1 × 512 MB of two + 1 × 512 MB of one + 512 MB = 1,536 MB" in str(refused)
    [wait] = [event for event in events if event.get("op") == "host.wait"]
    assert (wait["function"], wait["failed"]) == ("three", True)


def test_a_function_that_can_never_fit_is_refused(small: tuple[Any, list[dict[str, Any]]]) -> None:
    client, _ = small
    client.update_function_configuration(FunctionName="one", MemorySize=2048)
    with pytest.raises(ClientError, match="at most 1100 MB here, and the function needs 2048 MB"):
        call(client, "one")


def test_a_changed_configuration_takes_new_environments(small: tuple[Any, list[dict[str, Any]]]) -> None:
    client, _ = small
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
            target=lambda: client.invoke(FunctionName="one", Payload=b'{"sleep": 50}'), daemon=True
        )
        caller.start()
        while not list((emulator.home / "environments").glob("one-0002")):
            time.sleep(0.01)
        time.sleep(0.3)
    caller.join(10)
    assert [record.status for record in emulator.records] == ["success", "error"]
    client.close()


def test_asynchronous_failures_land_in_the_destination_bucket(tmp_path: Path, code: Path) -> None:
    keys = Keyring()
    with Session() as session, EmbeddedObjectStore(tmp_path / "s3", keys, session.mark) as store:
        variables = {"AWS_ENDPOINT_URL_S3": store.endpoint}
        with Emulator(session=session, keys=keys, variables=variables, limits=QUICK, code_roots=[code]) as emulator:
            client = emulator.client("lambda")
            bucket = emulator.client("s3")
            bucket.create_bucket(Bucket="failures")
            create_function(client, "one", code, MemorySize=512)
            client.put_function_event_invoke_config(
                FunctionName="one",
                MaximumRetryAttempts=1,
                DestinationConfig={"OnFailure": {"Destination": "arn:aws:s3:::failures"}},
            )
            with pytest.raises(ClientError, match="is not emulated"):
                client.put_function_event_invoke_config(
                    FunctionName="one",
                    DestinationConfig={
                        "OnFailure": {"Destination": "arn:aws:events:us-east-1:000000000000:event-bus/bus"}
                    },
                )
            accepted = client.invoke(FunctionName="one", InvocationType="Event", Payload=b'{"fail": true, "n": 1}')
            deadline = time.monotonic() + 20
            listed: list[dict[str, Any]] = []
            while not listed and time.monotonic() < deadline:
                listed = bucket.list_objects_v2(Bucket="failures", Prefix="aws/lambda/async/one/").get("Contents", [])
            [entry] = listed
            record = json.loads(bucket.get_object(Bucket="failures", Key=entry["Key"])["Body"].read())
            client.close()
            bucket.close()
    assert record["requestContext"]["requestId"] == accepted["ResponseMetadata"]["RequestId"]
    assert record["requestContext"]["condition"] == "RetriesExhausted"
    assert record["requestContext"]["approximateInvokeCount"] == 2
    assert record["requestPayload"] == {"fail": True, "n": 1}
    assert record["responseContext"]["functionError"] == "Unhandled"
    assert record["responsePayload"]["errorType"] == "RuntimeError"


def test_a_large_payload_that_is_not_json_is_explained_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def explain(_payload: bytes) -> str:
        threads.append(threading.current_thread())
        return "why"

    monkeypatch.setattr(invocation, "explain", explain)
    for size in (10, READ_AT_ONCE + 1):
        with pytest.raises(ServiceError, match="why"):
            asyncio.run(invocation._checked(b"x" * size, "Event", size))
    assert [thread is threading.current_thread() for thread in threads] == [True, False]
