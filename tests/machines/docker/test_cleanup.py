"""Nothing of an emulator's containers outlives it, however it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from slslab.aws.limits import lambda_limits
from slslab.host.docker_engine import MARK_LABEL, OWNER_LABEL
from slslab.host.session import Session
from slslab.lambda_.container_sandbox import ContainerSandboxes

# Two environments: one that rests frozen, and one whose handler runs on.
COMMAND = """
import json, threading, time
from slslab import Emulator
from slslab.testing import create_function

with Emulator(environment="docker") as emulator:
    client = emulator.client("lambda")
    source = "import time\\n\\ndef handler(event, context):\\n    time.sleep(event)\\n"
    create_function(client, "f", source, Timeout=900)
    call = lambda seconds: client.invoke(FunctionName="f", Payload=json.dumps(seconds))
    long = threading.Thread(target=call, args=[600], daemon=True)
    long.start()
    while not any(e.state.value == "busy" for e in emulator.service.pool.environments()):
        time.sleep(0.01)
    call(0)
    reaper = emulator._session._reaper.pid
    print(json.dumps({"mark": emulator.id, "home": str(emulator.home), "reaper": reaper}), flush=True)
    threading.Event().wait()
"""


@pytest.fixture
def engine(emulator_settings: dict[str, Any]) -> Iterator[Any]:  # noqa: ARG001
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def command() -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """An emulator with two environments in a process of its own, and what it tells of itself."""
    process = subprocess.Popen([sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    yield process, told
    process.kill()
    process.wait()
    process.stdout.close()


def containers(engine: Any, mark: str) -> list[Any]:
    # One that is removed while they are listed is none.
    labelled = {"label": f"{MARK_LABEL}={mark}"}
    found: list[Any] = engine.containers.list(all=True, filters=labelled, ignore_removed=True)
    return found


def wait_until_gone(engine: Any, told: dict[str, Any], limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while containers(engine, told["mark"]) or Path(told["home"]).exists():
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_container_outlives_its_emulator(number: int, engine: Any, command: Any) -> None:
    process, told = command
    assert len(containers(engine, told["mark"])) == 2
    process.send_signal(number)
    process.wait()
    wait_until_gone(engine, told)


def test_the_next_emulator_removes_what_the_reaper_could_not(engine: Any, command: Any) -> None:
    process, told = command
    os.kill(told["reaper"], signal.SIGKILL)
    with Session() as session, ContainerSandboxes(session, lambda_limits()):
        assert len(containers(engine, told["mark"])) == 2, "its owner lives"
    process.kill()
    process.wait()
    assert len(containers(engine, told["mark"])) == 2
    with Session() as session, ContainerSandboxes(session, lambda_limits()):
        assert containers(engine, told["mark"]) == []
    subprocess.run(["rm", "-rf", told["home"]], check=True)


def test_a_container_of_somebody_else_stays(engine: Any) -> None:
    base = ContainerSandboxes(Session(), lambda_limits()).image
    other = engine.containers.create(base, labels={"somebody": "else"})
    try:
        with Session() as session, ContainerSandboxes(session, lambda_limits()):
            assert engine.containers.get(other.id).status == "created"
        assert OWNER_LABEL not in other.labels
    finally:
        other.remove()
