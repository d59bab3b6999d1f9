"""Malicious or unlucky functions and clients don't harm the emulator or its other callers."""

import base64
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionError, HTTPClientError
from tests.namespaces import without_namespaces

from slslab.aws.clients import signed_headers
from slslab.aws.limits import lambda_limits
from slslab.lambda_.emulator import Emulator
from slslab.run.records import InvocationRecord
from slslab.testing import create_function, packaged

pytestmark = pytest.mark.server

Deploy = Callable[..., str]
Invoke = Callable[..., Any]
RETURN = "def handler(event, context):\n    return event\n"


def called(client: Any, name: str, payload: bytes = b"{}") -> Any:
    return json.loads(client.invoke(FunctionName=name, Payload=payload)["Payload"].read())


@pytest.mark.parametrize("template", [(), ("decimal",)])
def test_a_function_holds_its_own_descriptors_and_no_others(template: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "import os\n\n"
        "def handler(event, context):\n"
        "    found = {fd: os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd')\n"
        "             if os.path.islink(f'/proc/self/fd/{fd}')}\n"
        "    return sorted(name.partition(':')[0] for fd, name in found.items()\n"
        "                  if fd not in '0123' and name != found['1']  # the runtime's log is on the same pipe\n"
        "                  and not name.startswith(('socket', 'anon_inode', '/proc/')))\n"
    )
    with Emulator(template=template, code_roots=[tmp_path]) as emulator:
        client = emulator.client("lambda")
        create_function(client, "f", tmp_path)
        assert called(client, "f") == []
        client.close()


def test_the_kernels_files_cannot_be_opened_for_writing_nor_roots_be_read(
    emulator: Emulator, deploy: Deploy, invoke: Invoke
) -> None:
    if not emulator.isolation.mode:
        pytest.skip(emulator.isolation.description)
    name = deploy(
        """
        import os

        def opened(path, flags):
            try:
                os.close(os.open(path, flags))
                return path
            except OSError:
                return None

        def handler(event, context):
            written = ["/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger"]
            read = ["/proc/1/environ", "/proc/1/root/etc/passwd"]
            shadow = open("/etc/shadow").read() if opened("/etc/shadow", os.O_RDONLY) else ""
            return [opened(p, os.O_WRONLY) for p in written], [opened(p, os.O_RDONLY) for p in read], shadow
        """
    )
    assert invoke(name).payload == [[None, None, None], [None, None], ""]


def test_a_templates_forks_know_nothing_of_the_emulators_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-host")
    (tmp_path / "app.py").write_text(
        "def handler(event, context):\n    return 'of-the-host' in open('/proc/self/environ').read()\n"
    )
    with without_namespaces(), Emulator(template=("decimal",), code_roots=[tmp_path]) as emulator:
        client = emulator.client("lambda")
        create_function(client, "f", tmp_path)
        assert called(client, "f") is False
        client.close()


def test_evicting_while_invoking_ends_no_invocation(deploy: Deploy, emulator: Emulator, lambda_client: Any) -> None:
    name = deploy("import time\n\ndef handler(event, context):\n    time.sleep(0.05)\n    return 'done'\n")
    stop = threading.Event()

    def evict() -> int:
        evicted = 0
        while not stop.is_set():
            evicted += emulator.evict(name)
        return evicted

    with ThreadPoolExecutor(5) as pool:
        evicting = pool.submit(evict)
        answers = list(pool.map(lambda _: called(lambda_client, name), range(24)))
        stop.set()
    assert answers == ["done"] * 24
    assert evicting.result() > 0


def test_packages_go_with_their_last_use_and_not_before() -> None:
    with Emulator(budget_mb=600) as emulator:
        client = emulator.client("lambda")
        slow = "import time\n\ndef handler(event, context):\n    time.sleep(event)\n    return 'old'\n"
        create_function(client, "busy", slow, MemorySize=512)
        create_function(client, "waits", slow, MemorySize=512)
        with ThreadPoolExecutor(2) as pool:
            busy = pool.submit(called, client, "busy", b"2")
            while not list((emulator.home / "environments").glob("busy-*")):
                time.sleep(0.01)
            waiting = pool.submit(called, client, "waits", b"0")
            time.sleep(0.5)
            for number in range(5):
                client.update_function_code(FunctionName="waits", ZipFile=packaged(f"{slow}# {number}"))
                client.update_function_code(FunctionName="waits", ZipFile=packaged(slow), DryRun=True)
            assert (busy.result(), waiting.result()) == ("old", "old"), "the version that was accepted runs"
        assert called(client, "waits", b"0") == "old"
        packages = emulator.home / "functions"
        emulator.packages.settle()
        assert sorted(path.suffix for path in packages.iterdir()) == ["", "", ".zip", ".zip"]
        for name in ("busy", "waits"):
            client.delete_function(FunctionName=name)
        emulator.wait_for(emulator.service.pool.end())
        emulator.packages.settle()
        assert list(packages.iterdir()) == []
        client.close()


def test_closing_while_environments_start_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(RETURN)
    for delay_ms in (2, 8, 16, 30):
        emulator = Emulator(code_roots=[tmp_path])
        with ThreadPoolExecutor(6) as pool:
            emulator.__enter__()
            client = emulator.client("lambda")
            create_function(client, "f", tmp_path)
            calls = [pool.submit(client.invoke, FunctionName="f", Payload=b"{}") for _ in range(6)]
            time.sleep(delay_ms / 1000)
            emulator.__exit__(None, None, None)
            for call in calls:
                # Answered, refused, or cut off: whatever it is, it has an end.
                with suppress(ClientError, ConnectionError, HTTPClientError):
                    call.result()["Payload"].read()
            client.close()
        assert not emulator.home.exists()


def test_forged_reports_do_not_reach_the_next_caller(deploy: Deploy, invoke: Invoke) -> None:
    name = deploy(
        """
        import os, urllib.error, urllib.request

        def handler(event, context):
            if event != "forge":
                return event
            refused = []
            for path in ("init/error", "init/error", "invocation/other/response"):
                url = f"http://{os.environ['AWS_LAMBDA_RUNTIME_API']}/2018-06-01/runtime/{path}"
                try:
                    urllib.request.urlopen(urllib.request.Request(url, data=b"{}", method="POST"))
                except urllib.error.HTTPError as error:
                    refused.append(error.code)
            return refused
        """
    )
    assert invoke(name, "a").payload == "a"
    assert invoke(name, "forge").payload == [403, 403, 400]
    assert [invoke(name, text).payload for text in ("b", "c")] == ["b", "c"]


def test_trace_records_cannot_be_forged_nor_fill_the_memory(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "import json, os\n\n"
        "NUMBERS = 'start_ns end_ns cpu_ns bytes requests worker epoch step'.split()\n"
        "TEXTS = 'phase resource etag invocation'.split()\n\n"
        "def write(event):\n"
        "    os.write(3, json.dumps(event).encode() + b'\\n')\n\n"
        "def handler(event, context):\n"
        "    good = dict.fromkeys(NUMBERS, 1) | dict.fromkeys(TEXTS, 'x')\n"
        "    good |= {'op': 'compute', 'overhead': False, 'failed': False}\n"
        "    write(good | {'record': 'invocation', 'environment': 'another'})\n"
        "    write(good | {'start_ns': 'soon'})\n"
        "    write([[[]]])\n"
        "    os.write(3, b'\\xff' * 100_000)\n"
        "    write(good)\n"
    )
    events: list[dict[str, Any]] = []
    with Emulator(on_event=events.append, code_roots=[tmp_path]) as emulator:
        client = emulator.client("lambda")
        create_function(client, "f", tmp_path)
        assert called(client, "f") is None
        client.close()
    own = [event for event in events if event.get("op") == "compute"]
    assert [(event["record"], event["environment"]) for event in own] == [("event", "f-0001")]


def test_an_environment_that_cannot_even_begin_gives_its_memory_back(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(RETURN)
    (tmp_path / "logs").write_text("a file where the logs should be")
    with Emulator(budget_mb=600, logs=tmp_path / "logs", code_roots=[tmp_path]) as emulator:
        client = emulator.client("lambda")
        create_function(client, "f", tmp_path, MemorySize=512)
        for _ in range(3):
            with pytest.raises(ClientError, match="The environment could not start"):
                client.invoke(FunctionName="f", Payload=b"{}")
        client.close()


def test_paging_while_deleting_skips_nothing(lambda_client: Any, deploy: Deploy) -> None:
    for _ in range(7):
        deploy(RETURN)
    for page in lambda_client.get_paginator("list_functions").paginate(PaginationConfig={"PageSize": 3}):
        for function in page["Functions"]:
            lambda_client.delete_function(FunctionName=function["FunctionName"])
    assert lambda_client.list_functions()["Functions"] == []


@pytest.mark.parametrize("payload", [b"{", b"NaN", b"[Infinity]", "{}".encode("utf-16"), b"[" * 100_000])
def test_payloads_that_are_no_json_are_refused(lambda_client: Any, deploy: Deploy, payload: bytes) -> None:
    name = deploy(RETURN)
    with pytest.raises(ClientError) as caught:
        lambda_client.invoke(FunctionName=name, Payload=payload)
    assert caught.value.response["Error"]["Code"] == "InvalidRequestContentException"


@pytest.mark.parametrize("value", ["with \0 in it", "\ud800"])
def test_variables_that_no_process_can_have_are_refused(emulator: Emulator, value: str) -> None:
    client = emulator.client("lambda", parameter_validation=False)
    with pytest.raises(ClientError) as caught:
        create_function(client, "f", RETURN, Environment={"Variables": {"KEY": value}})
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    client.close()


def test_a_damaged_archive_is_no_zip(lambda_client: Any) -> None:
    archive = bytearray(packaged(RETURN * 200))
    middle = len(archive) // 3
    archive[middle : middle + 20] = os.urandom(20)
    with pytest.raises(ClientError, match="Could not unzip"):
        lambda_client.create_function(
            FunctionName="f",
            Runtime="python3.11",
            Role="arn:aws:iam::000000000000:role/r",
            Handler="app.handler",
            Code={"ZipFile": bytes(archive)},
        )


def test_a_signal_without_a_name_and_a_context_over_several_lines(
    lambda_client: Any, deploy: Deploy, invoke: Invoke
) -> None:
    name = deploy(
        "import os\n\n"
        "def handler(event, context):\n"
        "    event and os.kill(os.getpid(), 40)\n"
        "    return context.client_context.custom\n"
    )
    assert invoke(name, 1, check=False).payload["errorMessage"].endswith("Runtime exited with error: signal: 40")
    context = base64.b64encode(json.dumps({"custom": {"a": 1}}, indent=1).encode()).decode()
    answer = lambda_client.invoke(FunctionName=name, ClientContext=context, Payload=b"null")
    assert json.loads(answer["Payload"].read()) == {"a": 1}


def test_a_client_that_hangs_up_leaves_a_metered_invocation(
    deploy: Deploy, emulator: Emulator, invocations: Sequence[InvocationRecord]
) -> None:
    name = deploy("import time\n\ndef handler(event, context):\n    time.sleep(1)\n")
    code = (
        "import json, sys, urllib.request\n"
        "headers = json.loads(sys.argv[2])\n"
        "urllib.request.urlopen(urllib.request.Request(sys.argv[1], b'{}', headers, method='POST'), timeout=0.3)"
    )
    url = f"{emulator.endpoint}/2015-03-31/functions/{name}/invocations"
    headers = json.dumps(signed_headers(emulator.keys.owner, "POST", url, b"{}"))
    subprocess.run([sys.executable, "-c", code, url, headers], stderr=subprocess.DEVNULL, check=False)
    deadline = time.monotonic() + 20
    while not invocations and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [record.status for record in invocations] == ["success"]


def test_events_end_when_they_are_too_old(tmp_path: Path) -> None:
    limits = lambda_limits().changed(event_retry_base_s=61)
    (tmp_path / "app.py").write_text("received = []\n\ndef handler(event, context):\n    1 / 0\n")
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / "app.py").write_text(
        "received = []\n\n"
        "def handler(event, context):\n"
        "    received.append(event)\n"
        "    return [entry.get('requestContext', {}).get('condition') for entry in received]\n"
    )
    with Emulator(limits=limits, code_roots=[tmp_path]) as emulator:
        client = emulator.client("lambda")
        create_function(client, "f", tmp_path)
        create_function(client, "keeper", tmp_path / "keep")
        # Its environment is free a little after its record is there; a second one would know nothing of the event.
        client.put_function_concurrency(FunctionName="keeper", ReservedConcurrentExecutions=1)
        destination = {"OnFailure": {"Destination": "arn:aws:lambda:us-east-1:000000000000:function:keeper"}}
        client.put_function_event_invoke_config(
            FunctionName="f", MaximumEventAgeInSeconds=60, DestinationConfig=destination
        )
        client.invoke(FunctionName="f", InvocationType="Event", Payload=b"{}")
        deadline = time.monotonic() + 20
        while not [record for record in emulator.records if record.function == "keeper"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        answer = None
        while answer is None:
            assert time.monotonic() < deadline
            with suppress(client.exceptions.TooManyRequestsException):
                answer = called(client, "keeper")
        assert answer[0] == "EventAgeExceeded"
        client.close()
