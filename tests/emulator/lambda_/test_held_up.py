"""Large and slow work for one caller, and what others may do meanwhile; no test takes a time."""

import asyncio
import http.client
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from slslab.aws.clients import signed_headers
from slslab.host.output import Stream
from slslab.lambda_ import packages
from slslab.lambda_.emulator import Emulator
from slslab.lambda_.memory import MemoryMeter
from slslab.lambda_.packages import READERS, Packages
from slslab.lambda_.process_sandbox import ProcessSandbox
from slslab.stack.state_machines import EmbeddedStateMachines
from slslab.testing import FunctionFailed, create_function

pytestmark = pytest.mark.server

RETURN = "def handler(event, context):\n    return event\n"
Deploy = Callable[..., str]
Invoke = Callable[..., Any]


class Gate:
    """Holds calls of a function until it opens; `reached` counts held calls."""

    def __init__(self, function: Callable[..., Any], chosen: Callable[..., bool] = lambda *_: True) -> None:
        self._function = function
        self._chosen = chosen
        self._open = threading.Event()
        self.reached = threading.Semaphore(0)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self._chosen(*arguments):
            self.reached.release()
            assert self._open.wait(60), "nobody opened it"
        return self._function(*arguments, **named)

    @contextmanager
    def held(self, count: int = 1) -> Iterator[None]:
        """Wait until this many calls are held; they continue after the block."""
        try:
            for _ in range(count):
                assert self.reached.acquire(timeout=60)
            yield
        finally:
            self._open.set()


@pytest.mark.parametrize("work", ["_extract", "_size"])
def test_invocations_do_not_wait_for_packages_that_are_read(
    emulator: Emulator, deploy: Deploy, invoke: Invoke, tmp_path: Path, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither warm nor cold ones do, nor many that would wait for each other."""
    warm, cold = deploy(RETURN), deploy(RETURN)
    invoke(warm)
    emulator.packages.allow(tmp_path)
    place = packages if work == "_extract" else Packages
    gate = Gate(getattr(place, work))
    monkeypatch.setattr(place, work, lambda *arguments: gate(*arguments))
    clients = [emulator.client("lambda") for _ in range(READERS + 4)]
    with ThreadPoolExecutor(len(clients)) as callers:
        code = RETURN if work == "_extract" else tmp_path
        created = [
            callers.submit(create_function, client, f"slow-{number}", code) for number, client in enumerate(clients)
        ]
        with gate.held(READERS):
            assert invoke(warm, 1).payload == 1
            assert invoke(cold, 2).payload == 2
            clients[0].delete_function(FunctionName=cold)
            assert not any(call.done() for call in created)
        for call in created:
            call.result()
    for client in clients:
        client.close()


def test_a_deletion_answers_before_the_files_are_gone_and_the_end_waits_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(shutil.rmtree, lambda path, *_: "functions" in Path(path).parts)
    monkeypatch.setattr(shutil, "rmtree", gate)
    with Emulator() as emulator, ThreadPoolExecutor(1) as ending:
        client = emulator.client("lambda")
        for name in ("f", "other"):
            create_function(client, name, RETURN)
        folder = emulator.home / "functions"
        client.delete_function(FunctionName="f")
        with gate.held():
            assert len([path for path in folder.iterdir() if path.is_dir()]) == 2
            assert json.loads(client.invoke(FunctionName="other", Payload=b"1")["Payload"].read()) == 1
            closed = ending.submit(emulator.packages.close)
        closed.result()
        assert [path.name.partition("-")[0] for path in folder.iterdir() if path.is_dir()] == ["other"]
        client.close()
    assert not emulator.home.exists()


def chunked(endpoint: str, path: str, keys: Any, chunks: int, **headers: str) -> tuple[int, str]:
    """Return status and message of the answer to a signed body of this many MB, sent without its length."""
    connection = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=60)
    try:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        signed = signed_headers(keys.owner, "POST", endpoint + path, b"", given)
        body = (bytes(2**20) for _ in range(chunks))
        connection.request("POST", path, body, signed, encode_chunked=True)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())["message"]
    finally:
        connection.close()


def test_a_body_without_a_length_is_refused_by_the_limit_of_its_operation(emulator: Emulator) -> None:
    functions = "/2015-03-31/functions"
    for path, limit, operation in (
        (f"{functions}/f/invocations", 6_291_456, "InvokeFunction"),
        (f"{functions}/f/versions/", 6_291_456, "versions"),
        ("/slslab/anything", 6_291_456, "anything"),
    ):
        told = chunked(emulator.endpoint, path, emulator.keys, 8)
        assert told == (413, f"Request must be smaller than {limit} bytes for the {operation} operation")
    for path, operation in ((functions, "CreateFunction"), (f"{functions}/f/code", "UpdateFunctionCode")):
        told = chunked(emulator.endpoint, path, emulator.keys, 68)
        assert told == (413, f"Request must be smaller than 70167211 bytes for the {operation} operation")


def test_a_body_without_a_length_is_refused_by_step_functions(
    emulator: Emulator, state_machines: EmbeddedStateMachines
) -> None:
    headers = {"X_Amz_Target": "AWSStepFunctions.StartExecution", "Content_Type": "application/x-amz-json-1.0"}
    told = chunked(state_machines.endpoint, "/", emulator.keys, 4, **headers)
    assert told == (400, "Request must be smaller than 3145728 bytes for the StartExecution operation")


def test_what_holds_the_emulator_up_is_no_time_of_the_function(
    deploy: Deploy, invoke: Invoke, invocations: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the invocation begins, and after it has ended; the metered times still add up."""

    def late(*_: Any) -> None:
        time.sleep(0.3)  # of the emulator's event loop

    name = deploy(RETURN)
    invoke(name)
    monkeypatch.setattr(MemoryMeter, "begin", late)
    monkeypatch.setattr(Stream, "drain", late)
    invoke(name)
    record = invocations[-1]
    wall_ms = (record.end_ns - record.start_ns) / 1e6
    assert wall_ms == pytest.approx(record.duration_ms + record.host_delay_ms, abs=0.01)
    assert record.duration_ms < 300


def test_what_is_out_of_time_does_nothing_more_while_its_end_is_held_up(
    deploy: Deploy, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its trace doesn't count for the invocation, because the record is written before the environment ends."""
    left: list[int] = []
    end = ProcessSandbox.end

    async def late(sandbox: ProcessSandbox) -> None:
        deadline = time.monotonic() + 20
        while sandbox.pids() and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        left.extend(sandbox.pids())
        await end(sandbox)

    monkeypatch.setattr(ProcessSandbox, "end", late)
    name = deploy("import time\n\ndef handler(event, context):\n    time.sleep(60)\n", Timeout=1)
    with pytest.raises(FunctionFailed, match="timed out after 1"):
        invoke(name)
    assert left == []
