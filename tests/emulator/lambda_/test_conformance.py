"""Limits and failures as a function meets them, driven by boto3 alone; handlers that misbehave in every way we know.

Shapes follow what AWS recorded (see the emulator's docstrings); the expected figures are Lambda's, not the table's.
"""

import base64
import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.namespaces import without_namespaces

from slslab.aws.limits import lambda_limits
from slslab.lambda_.emulator import Emulator
from slslab.run.records import InvocationRecord
from slslab.testing import create_function

pytestmark = pytest.mark.server

Deploy = Callable[..., str]
Invoke = Callable[..., Any]
REPORT = re.compile(
    r"REPORT RequestId: (?P<id>\S+)\tDuration: (?P<duration>\d+\.\d\d) ms\tBilled Duration: (?P<billed>\d+) ms\t"
    r"Memory Size: (?P<size>\d+) MB\tMax Memory Used: (?P<used>\d+) MB"
    r"(?:\tInit Duration: (?P<init>\d+\.\d\d) ms)?(?P<rest>.*)\n"
)


@pytest.fixture
def isolated(emulator: Emulator) -> Emulator:
    if not emulator.isolation.mode:
        pytest.skip(f"this host isolates nothing: {emulator.isolation.description}")
    return emulator


def called(client: Any, name: str, payload: bytes = b"{}") -> str:
    """Invoke and read the answer: an unread body keeps its connection from the pool."""
    return str(client.invoke(FunctionName=name, Payload=payload)["Payload"].read().decode())


def report(log: str) -> re.Match[str]:
    found = REPORT.search(log)
    assert found is not None, log
    return found


# --- concurrency


def throttle(client: Any, name: str) -> tuple[int, dict[str, Any], dict[str, str]]:
    with pytest.raises(ClientError) as caught:
        client.invoke(FunctionName=name, Payload=b"{}")
    answer: Any = caught.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer, answer["ResponseMetadata"]["HTTPHeaders"]


# A function in a container sees no file that would end it, so it sleeps.
HELD = """
import time

def handler(event, context):
    if event == "wait":
        time.sleep(3)
"""


def test_fifty_at_once_against_a_reservation_of_ten(
    lambda_client: Any, deploy: Deploy, invocations: Sequence[InvocationRecord]
) -> None:
    name = deploy(HELD, MemorySize=128, Timeout=30)
    lambda_client.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=10)
    gate = threading.Barrier(50)

    def call(_number: int) -> str:
        gate.wait()
        try:
            return called(lambda_client, name, b'"wait"')
        except ClientError as error:
            answer: Any = error.response
            return f"{answer['Reason']}, retry after {answer['ResponseMetadata']['HTTPHeaders']['retry-after']} s"

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(call, range(50)))
    assert answers.count("null") == 10
    assert answers.count("ReservedFunctionConcurrentInvocationLimitExceeded, retry after 1 s") == 40
    assert len(invocations) == 10


def test_the_account_and_the_scaling_rate_throttle(tmp_path: Path, emulator_settings: dict[str, Any]) -> None:
    (tmp_path / "app.py").write_text(HELD)
    limits = lambda_limits().changed(account_concurrency=1, scaling_environments=2, scaling_period_s=1000)
    with Emulator(**emulator_settings | {"limits": limits, "code_roots": [tmp_path]}) as emulator:
        client = emulator.client("lambda")
        for name in ("one", "two"):
            create_function(client, name, tmp_path, Timeout=30)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(called, client, "one", b'"wait"')
            while not list((emulator.home / "environments").glob("one-0001")):
                time.sleep(0.01)
            status, answer, headers = throttle(client, "two")
            assert (status, answer["Error"]["Code"]) == (429, "TooManyRequestsException")
            assert answer["Error"]["Message"] == "Rate Exceeded."
            assert answer["Reason"] == "ConcurrentInvocationLimitExceeded"
            assert headers["retry-after"] == "1"
            assert running.result() == "null"
        for _ in range(2):
            called(client, "one")  # warm: no start
        assert emulator.evict("one") == 1
        called(client, "one")
        emulator.evict()
        status, answer, _ = throttle(client, "one")
        assert (status, answer["Reason"]) == (429, "ConcurrentInvocationLimitExceeded"), "a third start within 1,000 s"
        client.close()


# --- life of an environment

SINCE_START = """
    import threading, time, uuid

    identity, ticks, stood = uuid.uuid4().hex, 0, 0.0

    def tick():
        global ticks, stood
        before = time.monotonic()
        while True:
            time.sleep(0.01)
            now = time.monotonic()
            ticks, stood, before = ticks + 1, max(stood, now - before), now

    threading.Thread(target=tick, daemon=True).start()

    def handler(event, context):
        global stood
        before = ticks
        time.sleep(event)
        longest, stood = stood, 0.0
        return [identity, longest, ticks - before]
"""


def test_environments_are_frozen_between_invocations(
    deploy: Deploy, invoke: Invoke, emulator: Emulator, lambda_client: Any
) -> None:
    if "freezer" not in emulator.hierarchy.parents and emulator.hierarchy.version != 2:
        pytest.skip("this host cannot freeze processes")
    name = deploy(SINCE_START)
    identity, *_ = invoke(name, 0.3).payload
    for _ in range(2):
        for rest_s in (2, 4, 16):  # a busy engine takes a second and more to pause it
            time.sleep(rest_s)
            again, stood_s, ticks = invoke(name, 0.3).payload
            assert (again, ticks > 5) == (identity, True)
            if stood_s > rest_s / 2:
                break
        assert stood_s > rest_s / 2, "a thread of the function went on between the invocations"
    lambda_client.delete_function(FunctionName=name)


def test_idle_environments_end_after_their_time(tmp_path: Path, emulator_settings: dict[str, Any]) -> None:
    (tmp_path / "app.py").write_text("def handler(event, context):\n    return 1\n")
    limits = lambda_limits().changed(idle_s=2)
    with Emulator(**emulator_settings | {"limits": limits, "code_roots": [tmp_path]}) as emulator:
        client = emulator.client("lambda")
        create_function(client, "f", tmp_path, MemorySize=128)
        for _ in range(3):
            called(client, "f")
        assert [record.cold_start for record in emulator.records] == [True, False, False]
        deadline = time.monotonic() + 20
        while list((emulator.home / "environments").iterdir()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        called(client, "f")
        assert emulator.records[-1].cold_start
        client.close()


def test_eviction_makes_the_next_invocation_cold(deploy: Deploy, invoke: Invoke, emulator: Emulator) -> None:
    name = deploy("def handler(event, context):\n    return 1\n")
    assert report(invoke(name).log)["init"] is not None
    assert report(invoke(name).log)["init"] is None
    assert emulator.evict(name) == 1
    assert report(invoke(name).log)["init"] is not None


# --- payloads and logs


def test_six_megabytes_in_and_out(lambda_client: Any, deploy: Deploy) -> None:
    name = deploy("def handler(event, context):\n    return event\n")
    payload = json.dumps("x" * (6_291_456 - 2)).encode()
    assert len(payload) == 6_291_456
    assert lambda_client.invoke(FunctionName=name, Payload=payload)["Payload"].read() == payload
    with pytest.raises(ClientError) as caught:
        lambda_client.invoke(FunctionName=name, Payload=payload + b" ")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 413
    assert caught.value.response["Error"]["Code"] == "RequestEntityTooLargeException"


def test_an_event_of_one_megabyte(lambda_client: Any, deploy: Deploy, invocations: Sequence[InvocationRecord]) -> None:
    name = deploy("def handler(event, context):\n    return len(event)\n")
    payload = json.dumps("x" * (1_048_576 - 2)).encode()
    event = {"FunctionName": name, "InvocationType": "Event"}
    assert lambda_client.invoke(**event, Payload=payload)["StatusCode"] == 202
    with pytest.raises(ClientError) as caught:
        lambda_client.invoke(**event, Payload=payload + b" ")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 413
    deadline = time.monotonic() + 20
    while not invocations and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [record.status for record in invocations] == ["success"]


def test_a_response_beyond_the_limit(deploy: Deploy, invoke: Invoke) -> None:
    name = deploy("def handler(event, context):\n    return 'x' * event\n")
    answer = invoke(name, 6_291_556, check=False)
    assert (answer.status, answer.error) == (200, "Unhandled")
    assert answer.payload == {
        "errorType": "Function.ResponseSizeTooLarge",
        "errorMessage": "Response payload size exceeded maximum allowed payload size (6291556 bytes).",
    }
    assert len(invoke(name, 6_291_554).payload) == 6_291_554


def test_a_hundred_megabytes_of_logs(deploy: Deploy, invoke: Invoke) -> None:
    name = deploy(
        """
        def handler(event, context):
            line = "x" * 999
            for _ in range(100_000):
                print(line)
            print("the end")
        """,
        Timeout=60,
    )
    answer = invoke(name)
    assert answer.error is None
    assert len(answer.log) <= 4096
    assert "the end\nEND RequestId" in answer.log
    assert report(answer.log)["id"] == answer.request_id


def test_the_client_context_reaches_the_function(lambda_client: Any, deploy: Deploy) -> None:
    name = deploy("def handler(event, context):\n    return context.client_context.custom\n")
    context = base64.b64encode(json.dumps({"custom": {"key": "value"}}).encode()).decode()
    answer = lambda_client.invoke(FunctionName=name, ClientContext=context, Payload=b"{}")
    assert json.loads(answer["Payload"].read()) == {"key": "value"}


@pytest.mark.parametrize("runtime", ["python3.8", "python3.14"])
def test_other_python_runtimes_run_on_the_hosts_with_a_line_in_the_log(
    runtime: str, deploy: Deploy, invoke: Invoke, emulator: Emulator
) -> None:
    name = deploy(
        "import os\n\ndef handler(event, context):\n    return os.environ['AWS_EXECUTION_ENV']\n", Runtime=runtime
    )
    assert invoke(name).payload == f"AWS_Lambda_{runtime}"
    newest = max((emulator.home / "logs").glob(f"{name}-*.log"), key=lambda path: path.stat().st_mtime)
    why = rf"\((no {runtime} is installed|awslambdaric \S+ needs Python 3\.\d+)\)"
    version = rf"python:3\.\d+\.\d+ of the host, for {runtime} {why}|image \S+, for {runtime}|python:3\.14\.\d+"
    stream = r"\d{4}/\d\d/\d\d/\[\$LATEST\][0-9a-f]{32}"
    assert re.match(rf"INIT_START Runtime Version: ({version})\tLog Stream: {stream}\n", newest.read_text())


# --- handlers that misbehave


def test_a_process_that_forked_away_is_gone_with_its_environment(
    isolated: Emulator, deploy: Deploy, invoke: Invoke
) -> None:
    name = deploy(
        """
        import os, signal, subprocess, sys, time

        FORKED = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(777)"

        def handler(event, context):
            if os.fork() == 0:
                subprocess.Popen([sys.executable, "-c", FORKED], start_new_session=True)
                os._exit(0)
            os.wait()
            time.sleep(0.5)
            return sum("777" in open(f"/proc/{pid}/cmdline").read() for pid in os.listdir("/proc") if pid.isdigit())
        """
    )
    assert invoke(name).payload == 1
    assert sleeping("777")
    isolated.evict(name)
    deadline = time.monotonic() + 5
    while sleeping("777") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not sleeping("777")


def sleeping(mark: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_text()
            except OSError:
                continue
            if f"time.sleep({mark})" in command:
                found.append(entry.name)
    return found


def test_sigterm_ignored_does_not_outlive_the_time_out(deploy: Deploy, invoke: Invoke) -> None:
    name = deploy(
        """
        import signal, time

        def handler(event, context):
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            while True:
                time.sleep(888)
        """,
        Timeout=1,
    )
    answer = invoke(name, check=False)
    assert answer.payload["errorType"] == "Sandbox.Timedout"
    assert report(answer.log)["duration"] == "1000.00"


def test_a_full_tmp_is_no_space_left_and_no_memory(isolated: Emulator, deploy: Deploy, invoke: Invoke) -> None:
    assert isolated.isolation.mode
    name = deploy(
        """
        import os

        def handler(event, context):
            written, block = 0, bytes(1 << 20)
            try:
                with open("/tmp/file", "wb", buffering=0) as file:
                    while True:
                        written += file.write(block)
            except OSError as error:
                os.remove("/tmp/file")
                return [error.strerror, written >> 20]
        """,
        MemorySize=256,
        Timeout=60,
    )
    answer = invoke(name)
    assert answer.error is None, "files in /tmp don't count as the function's memory"
    assert answer.payload[0] == "No space left on device"
    assert 500 <= answer.payload[1] <= 512
    assert int(report(answer.log)["used"]) < 150


def test_descriptors_and_threads_end_at_1024(deploy: Deploy, invoke: Invoke, emulator: Emulator) -> None:
    name = deploy(
        """
        import threading, time

        def handler(event, context):
            if event == "files":
                files = []
                try:
                    for _ in range(2000):
                        files.append(open("/dev/null"))
                except OSError as error:
                    return [error.strerror, len(files)]
                finally:
                    [file.close() for file in files]
            stop, threads = threading.Event(), []
            try:
                for _ in range(2000):
                    threads.append(threading.Thread(target=stop.wait))
                    threads[-1].start()
            except RuntimeError as error:
                return [str(error), len(threads)]
            finally:
                stop.set()
        """,
        Timeout=60,
    )
    reason, count = invoke(name, "files").payload
    assert reason == "Too many open files"
    assert 1000 <= count < 1024
    if "pids" in emulator.hierarchy.parents:
        reason, count = invoke(name, "threads").payload
        assert reason == "can't start new thread"
        assert 1000 <= count <= 1024


def test_nothing_can_be_written_outside_tmp(isolated: Emulator, deploy: Deploy, invoke: Invoke) -> None:
    assert isolated.isolation.mode
    name = deploy(
        """
        import os

        def handler(event, context):
            refused = {}
            for directory in ("/", "/var/task", "/usr", "/etc", "/opt", os.path.dirname(os.__file__), "/dev", "/var"):
                try:
                    open(os.path.join(directory, "written"), "w").close()
                except OSError as error:
                    refused[directory] = error.strerror
            open("/tmp/written", "w").close()
            shared = os.path.exists("/dev/shm")
            return [sorted(refused), sorted(set(refused.values())), shared, os.getcwd(), os.environ["LAMBDA_TASK_ROOT"]]
        """
    )
    refused, reasons, shared, directory, root = invoke(name).payload
    assert len(refused) == 8
    assert set(reasons) <= {"Read-only file system", "Permission denied"}
    assert not shared, "Lambda has no /dev/shm"
    assert (directory, root) == ("/var/task", "/var/task")


def test_a_neighbour_is_out_of_sight(
    isolated: Emulator, deploy: Deploy, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-host")
    secret = deploy(
        """
        def handler(event, context):
            open("/tmp/secret", "w").write("mine")
            return open("/tmp/secret").read()
        """
    )
    assert invoke(secret).payload == "mine"
    spy = deploy(
        """
        import glob, os, signal

        def handler(event, context):
            killed = []
            for pid in range(1, 40_000):
                if pid not in (os.getpid(),):
                    try:
                        os.kill(pid, 0)
                        killed.append(pid)
                    except OSError:
                        pass
            return {
                "tmp": os.listdir("/tmp"),
                "processes": sorted(int(pid) for pid in os.listdir("/proc") if pid.isdigit()),
                "reachable": killed,
                "home": os.path.exists(event["home"]),
                "root": os.path.exists("/root/.bashrc"),
                "uid": os.getuid(),
                "secrets": [v for v in os.environ.values() if "of-the-host" in v],
                "credentials": os.path.exists(os.path.expanduser("~/.aws")),
                "cgroups": os.path.exists("/sys/fs/cgroup"),
            }
        """,
        Timeout=30,
    )
    seen = invoke(spy, {"home": str(isolated.home)}).payload
    assert "secret" not in seen["tmp"]
    init, _itself = seen["processes"]
    assert init == 1
    # An engine runs a container's init as the container's user, and shows it its control groups.
    container = isolated.isolation.mode == "docker"
    assert seen["reachable"] == ([init] if container else []), "not even its own init"
    assert not any(seen[name] for name in ("home", "root", "secrets", "credentials"))
    assert seen["cgroups"] == container
    assert seen["uid"] != 0


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("os._exit(0)", "Runtime exited without providing a reason"),
        ("os._exit(3)", "Runtime exited with error: exit status 3"),
        ("os.kill(os.getpid(), 9)", "Runtime exited with error: signal: killed"),
        ("os.abort()", "Runtime exited with error: signal: aborted"),
        ("ctypes.string_at(0)", "Runtime exited with error: signal: segmentation fault"),
    ],
)
def test_the_end_of_the_runtime_has_its_reason(ending: str, reason: str, deploy: Deploy, invoke: Invoke) -> None:
    name = deploy(f"import ctypes, os\n\ndef handler(event, context):\n    {ending}\n")
    answer = invoke(name, check=False)
    assert (answer.status, answer.error) == (200, "Unhandled")
    assert answer.payload == {
        "errorType": "Runtime.ExitError",
        "errorMessage": f"RequestId: {answer.request_id} Error: {reason}",
    }
    assert report(answer.log)["rest"] == "\tStatus: error\tError Type: Runtime.ExitError"
    assert f"RequestId: {answer.request_id} Error: {reason}\nRuntime.ExitError\nEND RequestId" in answer.log


def test_a_child_out_of_memory_is_the_function_out_of_memory(
    deploy: Deploy, invoke: Invoke, emulator: Emulator
) -> None:
    if "memory" not in emulator.hierarchy.parents:
        pytest.skip("this host enforces memory by watching the resident set")
    name = deploy(
        """
        import subprocess, sys

        def handler(event, context):
            code = "import time; held = bytes(range(256)) * (4096 * 300); time.sleep(5)"
            return subprocess.run([sys.executable, "-c", code]).returncode
        """,
        MemorySize=256,
    )
    answer = invoke(name, check=False)
    assert answer.payload["errorType"] == "Runtime.OutOfMemory"
    assert report(answer.log)["used"] == "256"


def test_several_processes_share_the_memory_size(deploy: Deploy, invoke: Invoke) -> None:
    name = deploy(
        """
        import subprocess, sys

        def handler(event, context):
            code = f"held = bytes(range(256)) * (4096 * {event}); print(len(held), flush=True); input()"
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            children = [subprocess.Popen([sys.executable, "-c", code], **pipes) for _ in range(3)]
            for child in children:
                child.stdout.readline()  # all of them hold theirs at once
            return [child.communicate(b"end") and child.returncode for child in children]
        """,
        MemorySize=512,
        Timeout=30,
    )
    assert invoke(name, 100).payload == [0, 0, 0]
    assert invoke(name, 200, check=False).payload["errorType"] == "Runtime.OutOfMemory"


def test_a_template_forks_environments_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "import sys\n\n"
        "def handler(event, context):\n"
        "    return ['decimal' in sys.modules, context.function_name, context.memory_limit_in_mb]\n"
    )
    with Emulator(template=("decimal",), code_roots=[tmp_path]) as emulator:
        client = emulator.client("lambda")
        create_function(client, "f", tmp_path, MemorySize=128)
        answer = client.invoke(FunctionName="f", Payload=b"{}")
        assert json.loads(answer["Payload"].read()) == [True, "f", "128"]
        assert emulator.records[-1].template == "decimal"
        client.close()


@pytest.mark.parametrize("isolate", [True, False])
def test_a_template_may_hold_libraries_with_threads(isolate: bool, tmp_path: Path) -> None:
    """numpy's OpenBLAS starts threads on import, torch brings numpy and its own."""
    (tmp_path / "app.py").write_text(
        "import torch, numpy\n\n"
        "def handler(event, context):\n"
        "    return [float((numpy.ones((300, 300)) @ numpy.ones((300, 300))).sum()),\n"
        "            float((torch.ones(300, 300) @ torch.ones(300, 300)).sum())]\n"
    )
    namespaces = nullcontext() if isolate else without_namespaces()
    with namespaces, Emulator(template=("torch", "numpy"), code_roots=[tmp_path]) as emulator:
        client = emulator.client("lambda")
        create_function(client, "f", tmp_path, MemorySize=1024, Timeout=60)
        with ThreadPoolExecutor(2) as pool:
            answers = pool.map(lambda _: client.invoke(FunctionName="f", Payload=b"{}"), range(2))
            assert [json.loads(answer["Payload"].read()) for answer in answers] == [[300.0**3, 300.0**3]] * 2
        client.close()
