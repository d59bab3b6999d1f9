"""The Lambda API, driven by boto3 alone."""

import base64
import io
import json
import re
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore import xform_name
from botocore.exceptions import ClientError

from slslab.aws.limits import lambda_limits
from slslab.lambda_.emulator import Emulator
from slslab.testing import create_function


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("app.py", "def handler(event, context): pass")
    return buffer.getvalue()


Deploy = Callable[..., str]
Invoke = Callable[..., Any]

ECHO = """
    calls = 0

    def handler(event, context):
        global calls
        calls += 1
        print("call", calls)
        return {"event": event, "calls": calls, "memory": context.memory_limit_in_mb,
                "remaining": context.get_remaining_time_in_millis(), "arn": context.invoked_function_arn}
"""
REPORT = re.compile(
    r"REPORT RequestId: (\S+)\tDuration: (\d+\.\d\d) ms\tBilled Duration: (\d+) ms\t"
    r"Memory Size: (\d+) MB\tMax Memory Used: (\d+) MB(?:\tInit Duration: (\d+\.\d\d) ms)?(.*)\n"
)


def error_of(call: Callable[..., Any], **members: str) -> tuple[int, str, str]:
    with pytest.raises(ClientError) as caught:
        call(**members)
    response = caught.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"], response["Error"]["Message"]


def test_create_get_list_update_delete(lambda_client: Any, deploy: Deploy) -> None:
    name = deploy(ECHO, MemorySize=512, Timeout=7, Environment={"Variables": {"KEY": "value"}}, Description="echo")
    configuration = lambda_client.get_function(FunctionName=name)["Configuration"]
    assert configuration["FunctionArn"] == f"arn:aws:lambda:us-east-1:000000000000:function:{name}"
    assert (configuration["MemorySize"], configuration["Timeout"]) == (512, 7)
    assert configuration["Environment"] == {"Variables": {"KEY": "value"}}
    assert configuration["State"] == "Active"
    assert name in [function["FunctionName"] for function in lambda_client.list_functions()["Functions"]]
    updated = lambda_client.update_function_configuration(FunctionName=name, MemorySize=640)
    assert (updated["MemorySize"], updated["Timeout"]) == (640, 7)
    assert updated["RevisionId"] != configuration["RevisionId"]
    by_arn = lambda_client.get_function_configuration(FunctionName=configuration["FunctionArn"])
    assert by_arn["MemorySize"] == 640
    deploy(ECHO, FunctionName="function-1")
    lambda_client.delete_function(FunctionName="function-1")
    assert error_of(lambda: lambda_client.get_function(FunctionName="function-1"))[:2] == (
        404,
        "ResourceNotFoundException",
    )
    deploy(Path(__file__).parent, FunctionName="function-1", Handler="registry.handler")


def test_listing_pages_through_all_functions(lambda_client: Any, deploy: Deploy) -> None:
    names = [deploy(ECHO) for _ in range(5)]
    pages = list(lambda_client.get_paginator("list_functions").paginate(PaginationConfig={"PageSize": 2}))
    assert [len(page["Functions"]) for page in pages] == [2, 2, 1]
    assert [function["FunctionName"] for page in pages for function in page["Functions"]] == names


@pytest.mark.parametrize(
    ("request_change", "expected"),
    [
        ({"Runtime": "nodejs20.x"}, (400, "InvalidParameterValueException")),
        ({"Code": {"ZipFile": b"not a zip"}}, (400, "InvalidParameterValueException")),
        ({"Code": {"S3Bucket": "other", "S3Key": "key"}}, (400, "InvalidParameterValueException")),
        ({"Code": {"S3Bucket": "hot-reload", "S3Key": "/nowhere"}}, (400, "InvalidParameterValueException")),
        ({"MemorySize": 10_241}, (400, "ValidationException")),
        ({"Timeout": 901}, (400, "ValidationException")),
        ({"Environment": {"Variables": {"BIG": "x" * 4096}}}, (400, "InvalidParameterValueException")),
        ({"Environment": {"Variables": {"AWS_REGION": "x"}}}, (400, "InvalidParameterValueException")),
        ({"FunctionName": "taken"}, (409, "ResourceConflictException")),
    ],
)
def test_bad_creations_are_refused_as_on_aws(
    lambda_client: Any, request_change: dict[str, Any], expected: tuple[int, str]
) -> None:
    good = {
        "FunctionName": "refused",
        "Runtime": "python3.11",
        "Role": "arn:aws:iam::000000000000:role/lambda",
        "Handler": "app.handler",
        "Code": {"ZipFile": zipped()},
    }
    lambda_client.create_function(**good | {"FunctionName": "taken"})
    try:
        assert error_of(lambda: lambda_client.create_function(**good | request_change))[:2] == expected
        assert error_of(lambda: lambda_client.get_function(FunctionName="refused"))[0] == 404
    finally:
        lambda_client.delete_function(FunctionName="taken")


def test_invocation_returns_payload_and_log_and_reuses_the_environment(deploy: Deploy, invoke: Invoke) -> None:
    name = deploy(ECHO, MemorySize=1024)
    first, second = invoke(name, {"x": 1}), invoke(name, {"x": 2})
    assert (first.status, first.error) == (200, None)
    assert first.payload["event"] == {"x": 1}
    assert first.payload["memory"] == "1024"
    assert 9_000 < first.payload["remaining"] <= 10_000
    assert (first.payload["calls"], second.payload["calls"]) == (1, 2)
    lines = first.log.splitlines()
    assert lines[0] == f"START RequestId: {first.request_id} Version: $LATEST"
    assert lines[1] == "call 1"
    assert lines[2] == f"END RequestId: {first.request_id}"
    cold, warm = REPORT.search(first.log), REPORT.search(second.log)
    assert cold is not None
    assert warm is not None
    assert cold[6] is not None, "a cold start reports its init duration"
    assert warm[6] is None
    assert int(cold[3]) == -(-round(float(cold[2]) * 100 + float(cold[6]) * 100) // 100), "billed = ceil(sum)"
    assert int(warm[3]) == -(-round(float(warm[2]) * 100) // 100)
    assert cold[4] == "1024"


def test_handler_exception(deploy: Deploy, invoke: Invoke) -> None:
    name = deploy("def handler(event, context):\n    raise ValueError('boom')\n")
    answer = invoke(name, check=False)
    assert (answer.status, answer.error) == (200, "Unhandled")
    assert answer.payload["errorType"] == "ValueError"
    assert answer.payload["errorMessage"] == "boom"
    assert answer.payload["requestId"] == answer.request_id
    assert any("raise ValueError" in line for line in answer.payload["stackTrace"])


def test_import_error_is_an_init_error(deploy: Deploy, invoke: Invoke) -> None:
    answer = invoke(deploy("import no_such_module\n"), check=False)
    assert answer.error == "Unhandled"
    assert answer.payload["errorType"] == "Runtime.ImportModuleError"
    assert "no_such_module" in answer.payload["errorMessage"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (0, "Runtime exited without providing a reason"),
        (3, "Runtime exited with error: exit status 3"),
    ],
)
def test_exit(deploy: Deploy, invoke: Invoke, code: int, message: str) -> None:
    name = deploy(f"import os\ndef handler(event, context):\n    os._exit({code})\n")
    answer = invoke(name, check=False)
    assert answer.error == "Unhandled"
    assert answer.payload == {
        "errorType": "Runtime.ExitError",
        "errorMessage": f"RequestId: {answer.request_id} Error: {message}",
    }
    assert invoke(name, check=False).payload["errorType"] == "Runtime.ExitError", (
        "a new environment serves the next invocation"
    )


def test_timeout(deploy: Deploy, invoke: Invoke) -> None:
    name = deploy("import time\ndef handler(event, context):\n    time.sleep(event)\n    return 1\n", Timeout=1)
    answer = invoke(name, 30, check=False)
    assert (answer.status, answer.error) == (200, "Unhandled")
    message = f"RequestId: {answer.request_id} Error: Task timed out after 1.00 seconds"
    assert answer.payload == {"errorType": "Sandbox.Timedout", "errorMessage": message}
    report = REPORT.search(answer.log)
    assert report is not None
    assert report[2] == "1000.00"
    assert report[7].strip() == "Status: timeout"
    assert f"{answer.request_id} Task timed out after 1.00 seconds" in answer.log
    assert invoke(name, 0).payload == 1


def test_out_of_memory(deploy: Deploy, invoke: Invoke) -> None:
    name = deploy("def handler(event, context):\n    return len(bytes(range(256)) * (event << 12))\n", MemorySize=256)
    answer = invoke(name, 400, check=False)
    assert answer.error == "Unhandled"
    message = f"RequestId: {answer.request_id} Error: Runtime exited with error: signal: killed"
    assert answer.payload == {"errorType": "Runtime.OutOfMemory", "errorMessage": message}
    report = REPORT.search(answer.log)
    assert report is not None
    assert report[5] == "256"
    assert report[7].strip() == "Status: error\tError Type: Runtime.OutOfMemory"


def test_max_memory_used_is_what_the_handler_touched(deploy: Deploy, invoke: Invoke) -> None:
    name = deploy("def handler(event, context):\n    return len(bytes(range(256)) * (event << 12))\n")
    small, large, after = invoke(name, 1), invoke(name, 200), invoke(name, 1)
    used = []
    for answer in (small, large, after):
        report = REPORT.search(answer.log)
        assert report is not None
        used.append(int(report[5]))
    assert 195 <= used[1] - used[0] <= 206
    assert used[2] < used[0] + 20, "the peak of one invocation is not the peak of the next"


def test_payload_limits(lambda_client: Any, deploy: Deploy, invoke: Invoke) -> None:
    name = deploy("def handler(event, context):\n    return 'x' * event if isinstance(event, int) else len(event)\n")
    assert invoke(name, "x" * 6_000_000).payload == 6_000_000
    too_large = b'"' + b"x" * 6_291_456 + b'"'
    assert error_of(lambda: lambda_client.invoke(FunctionName=name, Payload=too_large))[0] == 413
    event = b'"' + b"x" * 1_048_576 + b'"'
    call = {"FunctionName": name, "Payload": event, "InvocationType": "Event"}
    assert error_of(lambda: lambda_client.invoke(**call))[0] == 413
    assert len(invoke(name, 6_000_000).payload) == 6_000_000
    answer = invoke(name, 7_000_000, check=False)
    assert answer.payload["errorType"] == "Function.ResponseSizeTooLarge"
    assert (
        error_of(lambda: lambda_client.invoke(FunctionName=name, Payload=b"{"))[1] == "InvalidRequestContentException"
    )


def test_cpu_share_is_memory_over_1769(deploy: Deploy, invoke: Invoke, emulator: Emulator) -> None:
    if "cpu" not in emulator.hierarchy.parents:
        pytest.skip("this host gives no CPU control group: the share is not enforced, and the run says so")
    name = deploy(
        """
        import time

        def handler(event, context):
            wall, cpu = time.monotonic(), time.process_time()
            while time.process_time() - cpu < 0.5:
                pass
            return (time.process_time() - cpu) / (time.monotonic() - wall)
        """,
        MemorySize=884,
    )
    assert invoke(name).payload <= 884 / 1769 * 1.15


def test_a_first_init_has_a_whole_vcpu_and_an_invocation_its_share(
    deploy: Deploy, invoke: Invoke, emulator: Emulator
) -> None:
    name = deploy(
        """
        import os, time

        def burn(seconds):
            begin = time.process_time()
            while time.process_time() - begin < seconds:
                pass

        burn(0.15)

        def handler(event, context):
            burn(0.05)
            if event == "exit":
                os._exit(1)
        """,
        MemorySize=128,
        Timeout=30,
    )
    invoke(name, "exit", check=False)
    first = emulator.records[-1]
    # 128 MB are 0.072 vCPU: 0.15 s of init would take 2.1 s, and 0.05 s of the handler take 0.69 s.
    assert first.init_ms is not None
    assert 150 <= first.init_ms < 1000
    assert first.duration_ms > 600
    assert (first.init_cpu_share, first.quota_period_ms) == (1.0, 20)
    # The init that is repeated belongs to the invocation, and has its share.
    invoke(name)
    assert emulator.records[-1].init_ms is None
    assert emulator.records[-1].duration_ms > 4 * 600


def test_event_invocations_retry_and_then_end(lambda_client: Any, deploy: Deploy, emulator: Emulator) -> None:
    name = deploy("def handler(event, context):\n    raise RuntimeError('again')\n")
    config = lambda_client.put_function_event_invoke_config(FunctionName=name, MaximumRetryAttempts=1)
    assert config["MaximumRetryAttempts"] == 1
    assert lambda_client.get_function_event_invoke_config(FunctionName=name)["MaximumRetryAttempts"] == 1
    before = len(emulator.records)
    response = lambda_client.invoke(FunctionName=name, InvocationType="Event", Payload=b"{}")
    assert response["StatusCode"] == 202
    deadline = time.monotonic() + 20
    while len(emulator.records) < before + 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.2)
    attempts = list(emulator.records)[before:]
    assert [record.invocation_type for record in attempts] == ["Event", "Event"]
    assert {record.request_id for record in attempts} == {response["ResponseMetadata"]["RequestId"]}


def test_init_beyond_its_limit_is_repeated_within_the_invocation(
    tmp_path: Path, emulator_settings: dict[str, Any]
) -> None:
    assert lambda_limits().init_s == 10
    (tmp_path / "app.py").write_text(
        """
import os, time

if not os.path.exists(os.path.join(os.environ["LAMBDA_TASK_ROOT"], "second")):
    print("asleep", flush=True)
    time.sleep(30)

def handler(event, context):
    return "initialised again"
"""
    )
    limits = lambda_limits().changed(init_s=2)
    with (
        Emulator(**emulator_settings | {"limits": limits, "code_roots": [tmp_path]}) as emulator,
        ThreadPoolExecutor(1) as pool,
    ):
        client = emulator.client("lambda")
        create_function(client, "f", tmp_path)
        invoked = pool.submit(client.invoke, FunctionName="f", LogType="Tail")
        while "asleep" not in "".join(log.read_text() for log in emulator.logs.glob("f-*.log")):
            time.sleep(0.01)
        (tmp_path / "second").touch()
        answer = invoked.result()
        assert json.loads(answer["Payload"].read()) == "initialised again"
        report = REPORT.search(base64.b64decode(answer["LogResult"]).decode())
        assert report is not None
        # The time of the first init is not in it twice; waits for a disk that others keep busy are (no time limit
        # counts them).
        assert 2000 <= float(report[6]) < 4000
        client.close()


@pytest.mark.parametrize(
    ("operation", "members"),
    [
        ("ListCapacityProviders", {}),
        ("ListCodeSigningConfigs", {}),
        ("GetFunctionRecursionConfig", {"FunctionName": "f"}),
        ("PutRuntimeManagementConfig", {"FunctionName": "f", "UpdateRuntimeOn": "Auto"}),
    ],
)
def test_unknown_operations_say_so(lambda_client: Any, operation: str, members: dict[str, str]) -> None:
    status, code, message = error_of(getattr(lambda_client, xform_name(operation)), **members)
    assert (status, code) == (404, "UnknownOperationException")
    assert message == f"slslab does not emulate {operation}; docs/services.md lists what it does."


@pytest.mark.parametrize("kind", [{}, {"InvocationType": "DryRun"}])
def test_a_response_stream_has_the_answer_and_then_its_end(
    lambda_client: Any, deploy: Deploy, invocations: Any, kind: dict[str, str]
) -> None:
    name = deploy("def handler(event, context):\n    print('line')\n    return event")
    answer = lambda_client.invoke_with_response_stream(FunctionName=name, Payload=b'{"x": 1}', LogType="Tail", **kind)
    assert (answer["StatusCode"], answer["ExecutedVersion"]) == (200, "$LATEST")
    assert answer["ResponseStreamContentType"] == "application/vnd.amazon.eventstream"
    assert answer["ResponseMetadata"]["HTTPHeaders"]["x-amzn-remapped-content-type"] == "application/json"
    chunk, end = list(answer["EventStream"])
    assert chunk == {"PayloadChunk": {"Payload": b'{"x": 1}'}}
    log = base64.b64decode(end["InvokeComplete"].pop("LogResult")).decode()
    assert end == {"InvokeComplete": {}}
    assert "line\n" in log
    assert [record.request_id for record in invocations] == [answer["ResponseMetadata"]["RequestId"]]


def test_a_response_stream_has_the_error_of_a_function_as_its_payload(lambda_client: Any, deploy: Deploy) -> None:
    name = deploy("def handler(event, context):\n    raise ValueError('no')")
    answer = lambda_client.invoke_with_response_stream(FunctionName=name)
    chunk, end = list(answer["EventStream"])
    assert json.loads(chunk["PayloadChunk"]["Payload"])["errorMessage"] == "no"
    assert end == {"InvokeComplete": {}}
    told = error_of(lambda: lambda_client.invoke_with_response_stream(FunctionName="none"))
    assert told[:2] == (404, "ResourceNotFoundException")
