"""The spawner's own refusals and modes; what environments see and may do is in test_conformance.py."""

import json
import os
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.namespaces import without_namespaces

from slslab.errors import HostError, RequestError
from slslab.host.namespaces import Isolation, Spawner, detect, environment_request
from slslab.lambda_.emulator import Emulator

pytestmark = pytest.mark.server


def start(spawner: Spawner, home: Path) -> list[str]:
    """Start an environment that runs the shell; return its status pipe's lines, to the end."""
    code = home / "code"
    code.mkdir(parents=True)
    request = environment_request(
        spawner.isolation, home, code, number=1, variables={}, arguments=["/bin/sh", "-c", "exit 3"], ephemeral_mb=1
    )
    read, write = os.pipe()
    with (home / "log").open("wb") as log, open(read, "rb") as status:
        spawner.spawn(request, log.fileno(), log.fileno(), write)
        os.close(write)
        return status.read().decode().splitlines()


def ended(pid: int) -> bool:
    """Whether a process has ended; burying it may be left to the host's process 1."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("mode", ["", "user", "root"])
def test_news_of_an_environment_are_its_start_and_its_end(mode: str, tmp_path: Path) -> None:
    found = detect()
    isolation = found if found.mode == mode else Isolation(mode, False)
    if mode == "root" and found.mode != "root":
        pytest.skip("only root has these namespaces")
    spawner = Spawner(isolation)
    try:
        before = time.monotonic_ns()
        (began, end, started), (_, _, again) = (sorted(start(spawner, tmp_path / name)) for name in ("one", "two"))
    finally:
        spawner.close()
    assert started.startswith("started ")
    assert started != again
    wall_ns, cpu_ns, delay_ns = map(int, began.removeprefix("began ").split())
    assert before < wall_ns < time.monotonic_ns()
    # Of this process alone, which has lived for less than that: its spawner has used more.
    assert 0 <= cpu_ns + delay_ns < wall_ns - before
    assert os.waitstatus_to_exitcode(int(end.removeprefix("exited "))) == 3


def test_what_cannot_be_built_is_told_and_the_spawner_goes_on(tmp_path: Path) -> None:
    isolation = detect()
    spawner = Spawner(isolation)
    try:
        home = tmp_path / "one"
        (home / "code").mkdir(parents=True)
        request = environment_request(
            isolation, home, home / "code", number=1, variables={}, arguments=["/bin/true"], ephemeral_mb=1
        )
        read, write = os.pipe()
        with open(os.devnull, "wb") as log, open(read, "rb") as status:
            spawner.spawn(request | {"join": ["/nowhere/cgroup.procs"]}, log.fileno(), log.fileno(), write)
            os.close(write)
            lines = status.read().decode().splitlines()
        assert [line for line in lines if line.startswith("failed ")] == [
            "failed [Errno 2] No such file or directory: '/nowhere/cgroup.procs'"
        ]
        assert len(start(spawner, tmp_path / "two")) == 3
    finally:
        spawner.close()


def test_a_template_in_a_user_namespace_becomes_its_root() -> None:
    """Started with the packages in sight, as templates are."""
    spawner = Spawner(Isolation("user", False), ("decimal",))
    spawner.close()


def test_a_template_of_a_module_that_does_not_exist_is_refused() -> None:
    with pytest.raises(HostError, match="no_such_module"), Emulator(template=("no_such_module",)):
        pytest.fail("it started")


def test_a_template_of_the_runtime_itself_is_refused() -> None:
    with (
        pytest.raises(RequestError, match="awslambdaric cannot be in a template"),
        Emulator(template=("awslambdaric",)),
    ):
        pytest.fail("it started")


def test_without_isolation_a_function_is_a_process_of_the_host(tmp_path: Path) -> None:
    """It sees the host's processes and leaves none of its own behind."""
    (tmp_path / "app.py").write_text(
        "import os, subprocess\n\n"
        "def handler(event, context):\n"
        "    child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "    return [os.getpid(), child.pid, os.path.exists(f'/proc/{event}')]\n"
    )
    with without_namespaces(), Emulator(code_roots=[tmp_path]) as emulator:
        client: Any = emulator.client("lambda")
        client.create_function(
            FunctionName="f",
            Runtime="python3.11",
            Role="arn:aws:iam::000000000000:role/r",
            Handler="app.handler",
            Code={"S3Bucket": "hot-reload", "S3Key": str(tmp_path)},
        )
        answer = client.invoke(FunctionName="f", Payload=str(os.getpid()).encode())
        runtime, child, sees_host = json.loads(answer["Payload"].read())
        assert sees_host
        assert not ended(runtime)
        assert not ended(child)
        client.delete_function(FunctionName="f")
        client.close()
    assert ended(runtime)
    assert ended(child)
