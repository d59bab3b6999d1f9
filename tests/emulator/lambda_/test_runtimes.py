"""What a function runs on: the Python that it asks for, what that finds where, and which packages it has."""

import json
import os
import platform
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.namespaces import without_namespaces

from slslab.errors import RequestError
from slslab.lambda_ import runtimes
from slslab.lambda_.configuration import RUNTIMES
from slslab.lambda_.emulator import Emulator
from slslab.lambda_.references import function_arn
from slslab.lambda_.runtimes import OWN, Runtimes, find_interpreter, obstacle
from slslab.run.metrics import host_imports
from slslab.run.records import InvocationRecord, check_metered, check_record
from slslab.testing import create_function
from slslab.up import doctor

pytestmark = pytest.mark.server

Deploy = Callable[..., str]
Invoke = Callable[..., Any]
OTHERS = [name for name in RUNTIMES if name != OWN]
ABOUT = """
import json, os, platform, subprocess, sys
import boto3, botocore.session

def found(name):
    try:
        __import__(name)
    except ImportError as error:
        return type(error).__name__
    return "found"

def handler(event, context):
    if event == "fail":
        raise ValueError("Größe ☃")
    told = subprocess.run(["python3", "-c", "import platform; print(platform.python_version())"], capture_output=True)
    return {
        "version": platform.python_version(),
        "python3": told.stdout.decode().strip(),
        "boto3": [boto3.__version__, os.path.dirname(boto3.__file__)],
        "region": boto3.client("s3").meta.region_name,
        "client": type(boto3.client("lambda")).__name__,
        "numpy": found("numpy"),
        "awscrt": found("awscrt"),
        "path": sys.path,
        "prefix": sys.prefix,
        "event": event,
        "custom": context.client_context.custom if context.client_context else None,
        "remaining_ms": context.get_remaining_time_in_millis(),
        "context": [
            *(context.function_name, context.function_version, context.invoked_function_arn),
            *(context.memory_limit_in_mb, context.aws_request_id, context.log_group_name, context.log_stream_name),
            *(context.identity.cognito_identity_id, context.identity.cognito_identity_pool_id),
        ],
    }
"""


def asked(emulator: Emulator) -> None:
    if emulator.containers is not None:
        pytest.skip("containers have the Python of their image")


def log_of(emulator: Emulator, name: str) -> str:
    return "".join(path.read_text() for path in sorted(emulator.logs.glob(f"{name}-*.log")))


def test_l18_a_runtime_that_could_not_be_made_is_made_again_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_runtime: object) -> None:
        raise OSError("No space left on device")

    making = runtimes._make_folder
    monkeypatch.setattr(runtimes, "_make_folder", fail)
    with Runtimes(tmp_path, strict=False) as made:
        with pytest.raises(OSError, match="No space left"):
            made.start_making(OWN).result()
        monkeypatch.setattr(runtimes, "_make_folder", making)
        for name in ("python3.99", OWN):  # the first is not installed: the emulator's own stands for it
            runtime = made.start_making(name).result()
            assert (runtime.folder / "bootstrap.py").is_file()
            assert (runtime.lang / runtime.command).exists()


@pytest.mark.parametrize("runtime", OTHERS)
def test_l18_the_python_that_was_asked_for_runs_the_function(
    runtime: str, emulator: Emulator, deploy: Deploy, invoke: Invoke
) -> None:
    if reason := obstacle(runtime):
        pytest.skip(reason)
    name = deploy(ABOUT, Runtime=runtime, Timeout=60)
    found = find_interpreter(runtime)
    assert found is not None
    answer = invoke(name, {"key": "Größe ☃"}, ClientContext="eyJjdXN0b20iOiB7ImEiOiAxfX0=").payload
    assert 0 < answer.pop("remaining_ms") <= 60_000
    *about, request_id, group, stream, identity, pool = answer.pop("context")
    assert about == [name, "$LATEST", function_arn(name), "1769"]
    assert (group, identity, pool) == (f"/aws/lambda/{name}", None, None)
    assert str(UUID(request_id)) == request_id
    assert re.fullmatch(r"\d{4}/\d\d/\d\d/\[\$LATEST][0-9a-f]{32}", stream)
    stdlib = [path for path in answer["path"] if not path.startswith(("/var", "/opt"))]
    assert found.version.startswith(runtime.removeprefix("python") + ".")
    assert stdlib
    assert all(runtime in path or runtime.replace(".", "") in path for path in stdlib)
    first = ["/var/task", f"/opt/python/lib/{runtime}/site-packages", "/opt/python", "/var/runtime"]
    assert answer == {
        "version": found.version,
        "python3": found.version,
        "boto3": [version("boto3"), "/var/runtime/boto3"],
        "region": "us-east-1",
        "client": "Lambda",
        "numpy": "ModuleNotFoundError",
        "awscrt": "ModuleNotFoundError",
        "path": [*first, *stdlib, f"/var/lang/lib/{runtime}/site-packages"],
        "prefix": "/var/lang",
        "event": {"key": "Größe ☃"},
        "custom": {"a": 1},
    }
    failed = invoke(name, "fail", check=False)
    assert {key: failed.payload[key] for key in ("errorType", "errorMessage")} == {
        "errorType": "ValueError",
        "errorMessage": "Größe ☃",
    }
    assert re.search(rf"INIT_START Runtime Version: python:{found.version}\tLog Stream: \S+\n", log_of(emulator, name))


def test_l18_another_python_beside_a_template_and_without_namespaces() -> None:
    installed = [name for name in OTHERS if not obstacle(name)]
    if not installed:
        pytest.skip("no other Python is installed that could run a function")
    code = "import platform\n\ndef handler(event, context):\n    return platform.python_version()\n"
    for template, namespaces in ((("decimal",), nullcontext()), ((), without_namespaces())):
        with namespaces, Emulator(template=template) as emulator:
            client = emulator.client("lambda")
            for runtime in (installed[-1], OWN):
                create_function(client, runtime.replace(".", "-"), code, Runtime=runtime)
                answer = client.invoke(FunctionName=runtime.replace(".", "-"))
                assert json.loads(answer["Payload"].read()).startswith(runtime.removeprefix("python") + ".")
            client.close()


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A host with two empty folders in PATH, `first` and `second`, and without any Python of pyenv or uv."""
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, folders)))
    for name in ("PYENV_ROOT", "UV_PYTHON_INSTALL_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    find_interpreter.cache_clear()
    yield tmp_path
    find_interpreter.cache_clear()


def install(path: Path, number: str, kind: str = "CPython") -> Path:
    """Make a program that says that it is this Python."""
    path.parent.mkdir(parents=True, exist_ok=True)
    about = json.dumps([kind, number, str(path), str(path.parents[1])])
    path.write_text(f"#!/bin/sh\necho '{about}'\n")
    path.chmod(0o755)
    return path


@pytest.mark.usefixtures("bare")
def test_l18_the_emulators_own_python_stands_for_one_that_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    wanted = next(name for name in reversed(RUNTIMES) if name != OWN)
    assert obstacle(wanted) == f"no {wanted} is installed"
    assert obstacle(OWN) == ""
    with Emulator() as emulator:
        client = emulator.client("lambda")
        create_function(client, "f", ABOUT, Runtime=wanted, Timeout=60)
        assert json.loads(client.invoke(FunctionName="f")["Payload"].read())["version"] == platform.python_version()
        client.close()
        said = f"python:{platform.python_version()} of the host, for {wanted} (no {wanted} is installed)"
        assert f"INIT_START Runtime Version: {said}\t" in log_of(emulator, "f")
    assert [record.getMessage() for record in caplog.records if "INIT_START" in record.getMessage()] == [
        f"INIT_START of f: Runtime Version: {said}"
    ]
    (finding,) = (found for found in doctor.examine() if found.subject == "runtimes")
    assert finding.found == f"functions run on Python {platform.python_version()}"
    assert f"{wanted} (no {wanted} is installed)" in finding.hint
    assert finding.hint.startswith(f"{platform.python_version()} replaces ")


def test_l18_a_python_that_awslambdaric_does_not_know_counts_as_missing(bare: Path) -> None:
    install(bare / "second/python3.8", "3.8.18")
    assert find_interpreter("python3.8") is not None
    assert re.fullmatch(r"awslambdaric \S+ needs Python 3\.\d+", obstacle("python3.8"))


def test_a_python_is_looked_for_on_path_and_where_pyenv_and_uv_keep_theirs(bare: Path) -> None:
    name = "python3.14"
    shim = bare / "first" / name
    shim.write_text("#!/bin/sh\necho 'pyenv: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    assert find_interpreter(name) is None
    for place, number, kind in (
        ("UV_PYTHON_INSTALL_DIR/cpython-3.14.1-linux-x86_64-gnu", "3.14.1", "CPython"),
        ("PYENV_ROOT/versions/3.14.9", "3.14.9", "PyPy"),
        ("PYENV_ROOT/versions/3.14.10", "3.14.10", "CPython"),
    ):
        program = install(bare / place / "bin" / name, number, kind)
        find_interpreter.cache_clear()
        found = find_interpreter(name)
        assert found is not None
        if kind == "CPython":
            assert (found.version, found.program) == (number, str(program))
            assert str(program.parents[1]) in found.paths
    install(bare / "second" / name, "3.14.0")
    find_interpreter.cache_clear()
    found = find_interpreter(name)
    assert found is not None
    assert found.version == "3.14.0"


def test_what_functions_of_the_own_python_see_is_the_hosts_packages_after_lambdas(
    emulator: Emulator, deploy: Deploy, invoke: Invoke
) -> None:
    asked(emulator)
    name = deploy(f"import yaml\n{ABOUT}", Runtime=OWN)
    answer = invoke(name)
    assert (answer.payload["numpy"], answer.payload["awscrt"]) == ("found", "ModuleNotFoundError")
    assert answer.payload["boto3"] == [version("boto3"), "/var/runtime/boto3"]
    assert answer.payload["path"][:4] == [
        *("/var/task", f"/opt/python/lib/{OWN}/site-packages", "/opt/python", "/var/runtime")
    ]
    invoke(name)
    said = re.findall("slslab: imported from the host, not from the package: (.*)", log_of(emulator, name))
    assert "yaml" in said[0]
    assert not {"boto3", "certifi"} & set(", ".join(said).split(", "))
    assert "numpy" in said[1].split(", ")
    assert len(said) == 2


def test_strict_packages_are_the_standard_library_lambdas_and_the_functions_own() -> None:
    with Emulator(strict_packages=True) as emulator:
        asked(emulator)
        client = emulator.client("lambda")
        create_function(client, "f", ABOUT)
        answer = json.loads(client.invoke(FunctionName="f")["Payload"].read())
        assert answer["numpy"] == "ModuleNotFoundError"
        assert answer["boto3"] == [version("boto3"), "/var/runtime/boto3"]
        assert answer["version"] == answer["python3"] == platform.python_version()
        for module in ("numpy", "yaml", "slslab"):
            create_function(client, module, f"import {module}\n\ndef handler(event, context):\n    return 1\n")
            failed = client.invoke(FunctionName=module)
            assert failed["FunctionError"] == "Unhandled"
            assert json.loads(failed["Payload"].read()) == {
                "errorMessage": f"Unable to import module 'app': No module named '{module}'",
                "errorType": "Runtime.ImportModuleError",
                "requestId": "",
                "stackTrace": [],
            }
        client.close()


def test_strict_packages_leave_the_distributions_of_a_layer() -> None:
    events: list[dict[str, Any]] = []
    with (
        Emulator(strict_packages=True, layer_packages=("numpy", "pytest")) as emulator,
        emulator.listening(on_event=events.append),
    ):
        client = emulator.client("lambda")
        create_function(client, "f", ABOUT)
        create_function(client, "yaml", "import yaml\n\ndef handler(event, context):\n    return 1\n")
        assert json.loads(client.invoke(FunctionName="f")["Payload"].read())["numpy"] == "found"
        assert client.invoke(FunctionName="yaml")["FunctionError"] == "Unhandled"
        assert "imported from the host" not in log_of(emulator, "f")
        client.close()
    assert not [event for event in events if event.get("op") == "import"]


def test_what_is_imported_from_the_host_and_is_in_no_layer_is_traced() -> None:
    """What redis and jinja2 import, if it is installed, isn't the function's."""
    source = (
        "import jinja2, numpy, redis, yaml\nfrom itertools import count\n\nNUMBERS = count()\n\n"
        "def handler(event, context):\n    if next(NUMBERS) == 1:\n        import sortedcontainers\n"
    )
    events: list[dict[str, Any]] = []
    with Emulator(layer_packages=("numpy", "redis")) as emulator, emulator.listening(on_event=events.append):
        client = emulator.client("lambda")
        create_function(client, "f", source)
        for _ in range(3):
            client.invoke(FunctionName="f")
        client.close()
    imported = [event for event in events if event.get("op") == "import"]
    assert [(event["function"], event["resource"], event["requests"]) for event in imported] == [
        ("f", "jinja2", 0), ("f", "yaml", 0), ("f", "sortedcontainers", 0)
    ]  # fmt: skip
    for event in imported:
        check_record(event)
    assert host_imports(imported) == {"f": ["jinja2", "sortedcontainers", "yaml"]}


GPU = """
import sys
from types import SimpleNamespace

left = [700 * 2**20 + 1, 300 * 2**20, 500 * 2**20]
cuda = SimpleNamespace(
    is_initialized=lambda: len(left) < 3 or 'a mock',
    current_device=lambda: 1,
    get_device_name=lambda device: "Tesla T4",
    max_memory_allocated=lambda device: left[0],
    reset_peak_memory_stats=lambda device: left.pop(0),
)
sys.modules["torch"] = SimpleNamespace(cuda=cuda)

def handler(event, context):
    if event["compute"]:
        left.pop(0)
    if event["fail"]:
        raise ValueError("no")
"""


def test_an_invocation_that_used_a_gpu_has_its_most_memory() -> None:
    """torch's counters stand in here; the first invocation doesn't use the GPU."""
    events, records = list[dict[str, Any]](), list[InvocationRecord]()
    with Emulator() as emulator, emulator.listening(on_event=events.append, on_record=records.append):
        client = emulator.client("lambda")
        create_function(client, "f", GPU)
        for compute, fail in ((False, False), (True, False), (False, True)):
            client.invoke(FunctionName="f", Payload=json.dumps({"compute": compute, "fail": fail}))
        client.close()
    none, *used = (record.as_document() for record in records)
    assert not {"gpu", "max_gpu_memory_mb"} & none.keys(), "absent, not zero"
    assert [(one["gpu"], one["max_gpu_memory_mb"]) for one in used] == [
        ("cuda:1 Tesla T4", 300),
        ("cuda:1 Tesla T4", 500),
    ]
    for record in (none, *used):
        check_metered(record, "invocation")
    assert "gpu.memory" not in {event.get("op") for event in events}


def test_strict_packages_and_a_template_exclude_each_other() -> None:
    with pytest.raises(RequestError, match="strict packages hide"), Emulator(strict_packages=True, template=["json"]):
        pytest.fail("it started")
