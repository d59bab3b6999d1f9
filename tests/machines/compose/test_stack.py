"""The whole environment in containers: what a user does with it, what the architectures compute in it, and its end."""

import base64
import io
import json
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import localstack_client.session
import pytest
from tests.choices import chosen
from tests.machines.compose.conftest import ROOT, StackCommands

from slslab.aws.arns import REGION
from slslab.aws.clients import aws_client
from slslab.aws.keys import Pair
from slslab.compose.network import CHANNELS
from slslab.testing import ROLE
from slslab_lab.runs.planning import architectures

HEALTHY_S = 60
LENET = 61_706
# Plain SGD and one step: what all five compute is the same then (tests/workers/architectures/test_registered.py).
SMALL = ("--model", "lenet", "--workers", "2", "--batches", "1", "--momentum", "0", "--weight-decay", "0")
LONG = ("--workers", "2", "--batches", "10", "--epochs", "100", "--memory", "1769")
PIPES: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
# A function of 256 MB has a seventh of a core, and takes seconds to start.
OPTIONS = {"mlless": ("--filter", "none"), "spirt": ("--light-memory", "1024")}
HANDLER = """
import os, time

def handler(event, context):
    held = bytearray(event.get("megabytes", 0) << 20)
    time.sleep(event.get("seconds", 0))
    return {"held": len(held) >> 20, "memory": context.memory_limit_in_mb}
"""
MACHINE = {
    "StartAt": "Work",
    "States": {
        "Work": {
            "Type": "Task",
            "Resource": "ARN",
            "Catch": [{"ErrorEquals": ["Runtime.OutOfMemory"], "ResultPath": "$.error", "Next": "TooMuch"}],
            "End": True,
        },
        "TooMuch": {"Type": "Pass", "End": True},
    },
}


def package() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("app.py", HANDLER)
    return buffer.getvalue()


def localstack_clients(stack: StackCommands) -> dict[str, Any]:
    """LocalStack's clients, as its own library makes them."""
    host, port = stack.described["endpoints"]["states"].removeprefix("http://").split(":")
    session = localstack_client.session.Session(
        aws_access_key_id="test", aws_secret_access_key="test", region_name=REGION, localstack_host=f"{host}:{port}"
    )
    return {name: session.client(name) for name in ("lambda", "stepfunctions")}


@pytest.fixture
def clients(stack: StackCommands) -> Iterator[dict[str, Any]]:
    """LocalStack's clients; what they made is gone after the test."""
    made = localstack_clients(stack)
    yield made
    for machine in made["stepfunctions"].list_state_machines()["stateMachines"]:
        made["stepfunctions"].delete_state_machine(stateMachineArn=machine["stateMachineArn"])
    for function in made["lambda"].list_functions()["Functions"]:
        made["lambda"].delete_function(FunctionName=function["FunctionName"])


def create(client: Any, memory_mb: int = 512) -> str:
    """The function above."""
    code = {"ZipFile": package()}
    created: dict[str, str] = client.create_function(
        FunctionName="f", Runtime="python3.11", Handler="app.handler", Role=ROLE, Code=code, MemorySize=memory_mb,
        Timeout=60,
    )  # fmt: skip
    return created["FunctionArn"]


def test_it_is_healthy_soon_and_says_what_it_is(stack: StackCommands) -> None:
    assert stack.seconds < HEALTHY_S
    status = stack.slslab("status", "--json").document
    services = {service["part"]: service for service in status["services"]}
    assert services.keys() == {"lambda", "s3", "states", "tensors", "queue"}
    for service in services.values():
        assert service["healthy"], service
        assert "127.0.0.1" in service["host"]
    assert services["states"]["name"] == "LocalStack 4.14.0"
    assert services["tensors"]["name"].startswith("tensordb ")
    assert len(status["endpoints"]["tensors"]) >= 2
    assert "containers of Docker" in status["confinement"]
    table = stack.slslab("status").out
    assert "LocalStack" in table
    assert "RabbitMQ" in table


@pytest.fixture(scope="module")
def in_processes(stack: StackCommands) -> dict[str, Any]:
    """What one of the architectures computes with the embedded stack."""
    document: dict[str, Any] = stack.slslab("run", "allreduce", *SMALL, "--json").document
    assert document["status"] == "done"
    return document


ARCHITECTURES = ("allreduce", "scatterreduce", "mlless", "spirt", "gloo", "gpu")


@pytest.mark.parametrize("architecture", chosen(ARCHITECTURES, "allreduce", "spirt"))
def test_an_architecture_computes_in_containers_what_it_does_in_processes(
    architecture: str, stack: StackCommands, in_processes: dict[str, Any]
) -> None:
    asked = ("run", architecture, *SMALL, *OPTIONS.get(architecture, ()), "--json")
    there = stack.slslab(*asked, "--stack", "compose").document
    assert there["status"] == "done"
    same = ["parameters_sha256", "torch", "threads"]
    if architecture == "allreduce":
        same += ["counts", "bytes", "invocations", "loss", "accuracy", "updates"]
    assert {name: there[name] for name in same} == {name: in_processes[name] for name in same}
    expected = architectures()[architecture].counts(2, 1, 1, LENET)
    assert there["counts"] == {operation: number for operation, number in expected.operations.items() if number}
    assert (there["bytes"]["in"], there["bytes"]["out"]) == (expected.bytes_in, expected.bytes_out)
    assert (there["environment"], there["host"]["cpu_share_enforced"]) == ("docker", True)
    assert there["stack"]["s3"].startswith("SeaweedFS")
    if architecture in ("gloo", "gpu"):
        assert there["stack"]["instances"].startswith("containers of slslab/worker")
        assert [note.partition(":")[0] for note in there["cost"]["notes"]] == ["ran on the CPU"] * (
            architecture == "gpu"
        )
    else:
        # torch alone has some 200 MB resident.
        assert 150 < there["peak_memory_mb"] < there["memory_mb"]
    if architecture == "spirt":
        assert there["stack"]["states"] == "LocalStack 4.14.0"
        assert there["counts"]["transition"] == 2 * (1 + 8)


@pytest.mark.parametrize("channel", chosen(CHANNELS, "memcached"))
def test_a_channel_that_is_started_computes_what_s3_does(
    channel: str, stack: StackCommands, in_processes: dict[str, Any]
) -> None:
    stack.compose("up", "--detach", "--wait", channel)
    asked = ("run", "allreduce", *SMALL, "--channel", channel, "--json")
    there = stack.slslab(*asked, "--stack", "compose").document
    here = stack.slslab(*asked).document
    assert there["status"] == "done"
    assert there["parameters_sha256"] == in_processes["parameters_sha256"]
    assert there["bytes"] == here["bytes"]
    assert there["counts"] == here["counts"]
    assert there["cost"].keys() == here["cost"].keys()
    items = [[line["item"] for line in one["cost"]["lines"]] for one in (there, here)]
    assert items[0] == items[1]
    assert there["stack"]["channel"].split()[0] in ("Memcached", "Redis", "moto", "slslab")
    assert stack.siblings() == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("channel", CHANNELS)
def test_a_channels_server_that_dies_ends_the_run_with_its_name(channel: str, stack: StackCommands) -> None:
    stack.compose("up", "--detach", "--wait", channel)
    command = [sys.executable, "-m", "slslab", "run", "allreduce", *LONG, "--channel", channel, "--stack", "compose"]
    with subprocess.Popen(command, cwd=ROOT, env={**stack.variables, **stack.environment}, **PIPES) as process:
        while len(stack.siblings("running")) < 2:
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        time.sleep(3)  # they train
        (server,) = stack.containers("--filter", f"label=com.docker.compose.service={channel}")
        stack.docker("kill", server)
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 1, errors
    assert f"the {channel.removesuffix('-server')} server ended" in " ".join(out.split()), out
    assert stack.siblings() == []


@pytest.mark.cifar10
def test_mobilenet_trains_on_the_real_images_in_containers(stack: StackCommands, real_images: Path) -> None:
    asked = ["run", "allreduce", "--model", "mobilenet", "--dataset", f"folder:{real_images}", "--workers", "2"]
    asked += ["--batch-size", "32", "--batches", "1", "--memory", "2048", "--json"]
    there = stack.slslab(*asked, "--stack", "compose").document
    here = stack.slslab(*asked).document
    assert there["parameters_sha256"] == here["parameters_sha256"]
    assert there["counts"] == here["counts"]
    assert there["gradient_bytes"] == 12_868_904


def test_a_client_of_localstack_meets_our_limits(stack: StackCommands, clients: Any) -> None:
    arn = create(clients["lambda"])
    answer = clients["lambda"].invoke(FunctionName="f", LogType="Tail", Payload=json.dumps({"megabytes": 200}))
    assert json.loads(answer["Payload"].read()) == {"held": 200, "memory": "512"}
    log = base64.b64decode(answer["LogResult"]).decode()
    used = int(log.partition("Max Memory Used: ")[2].split()[0])
    assert 200 < used < 260, log
    machine = json.dumps(MACHINE).replace("ARN", arn)
    states = clients["stepfunctions"]
    made = states.create_state_machine(name="m", definition=machine, roleArn=ROLE)["stateMachineArn"]
    ended = {}
    for megabytes in (100, 900):
        execution = states.start_execution(
            stateMachineArn=made, name=f"e{megabytes}", input=json.dumps({"megabytes": megabytes})
        )["executionArn"]
        while (told := states.describe_execution(executionArn=execution))["status"] == "RUNNING":
            time.sleep(0.2)  # Step Functions can only be asked
        assert told["status"] == "SUCCEEDED", told
        ended[megabytes] = json.loads(told["output"])
    assert ended[100] == {"held": 100, "memory": "512"}
    assert ended[900]["error"]["Error"] == "Runtime.OutOfMemory", "the task ran under our limits"
    # The same function by the emulator's own port: LocalStack is in front of it, and has none of its own.
    pair = Pair.of(stack.environment)
    assert pair is not None
    own = aws_client("lambda", stack.described["endpoints"]["lambda"], pair)
    assert [function["FunctionName"] for function in own.list_functions()["Functions"]] == ["f"]
    own.close()


def test_what_a_killed_emulator_left_is_gone_when_it_is_up_again(stack: StackCommands, clients: Any) -> None:
    create(clients["lambda"])
    clients["lambda"].invoke(FunctionName="f", InvocationType="Event", Payload=json.dumps({"seconds": 50}))
    while not stack.siblings("running"):
        time.sleep(0.1)  # an event has no answer to wait for
    before = stack.siblings()
    stack.docker("kill", stack.emulator())
    assert stack.siblings() == before, "its reaper died with it"
    stack.compose("up", "--detach", "--wait", "emulator")
    assert stack.siblings() == []
    assert clients["lambda"].list_functions()["Functions"] == []


# The last one, as the stack is down afterwards. `slslab down` ends that of docs/compose.md (test_documentation.py).
def test_ctrl_c_leaves_nothing(stack: StackCommands) -> None:
    clients = localstack_clients(stack)
    create(clients["lambda"])
    clients["lambda"].invoke(FunctionName="f", Payload=b"{}")
    assert len(stack.siblings()) == 1, "an environment that rests"
    clients["lambda"].delete_function(FunctionName="f")
    create(clients["lambda"])
    clients["lambda"].invoke(FunctionName="f", InvocationType="Event", Payload=json.dumps({"seconds": 50}))
    while not stack.siblings("running"):
        time.sleep(0.1)
    stack.interrupt()
    assert stack.left() == []
    assert not Path(stack.variables["SLSLAB_STATE"]).exists()
