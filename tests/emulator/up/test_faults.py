"""`slslab up --faults`: one's own functions meet the faults of a plan, and `show up` says what happened."""

import json
import os
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests import commands

from slslab.aws.clients import aws_client
from slslab.aws.keys import Pair
from slslab.testing import create_function

pytestmark = pytest.mark.server

PLAN = """
seed = 1

[[fault]]
kind = "throttle"
function = "resize"
invocation = 0

[[fault]]
kind = "kill"
function = "resize"
invocation = 2
seconds = 0.1

[[fault]]
kind = "timeout"
function = "other"
"""


def test_ones_own_functions_meet_the_faults_of_a_plan(tmp_path: Path) -> None:
    (tmp_path / "faults.toml").write_text(PLAN)
    (tmp_path / "app.py").write_text("import time\n\ndef handler(event, _):\n    time.sleep(event)\n    return event\n")
    variables = commands.state_in(tmp_path)

    def slslab(*arguments: object) -> commands.Done:
        return commands.slslab(*arguments, variables=variables, directory=tmp_path)

    ports = ("--port", "0", "--s3-port", "0", "--edge-port", "0")
    with ExitStack() as undo:
        started = slslab("up", "--detach", *ports, "--faults", "faults.toml", "--json").document
        undo.callback(os.waitpid, started["pid"], 0)
        undo.callback(slslab, "down")
        described = slslab("status", "--json").document
        pair = Pair.of(slslab("env", "--json").document["variables"])
        assert pair is not None
        client: Any = undo.enter_context(closing(aws_client("lambda", described["endpoints"]["lambda"], pair)))
        create_function(client, "resize", tmp_path)

        def invoke(seconds: float) -> Any:
            return client.invoke(FunctionName="resize", Payload=json.dumps(seconds).encode())

        with pytest.raises(ClientError) as refused:
            invoke(0)
        assert refused.value.response["Error"]["Code"] == "TooManyRequestsException"
        assert "FunctionError" not in invoke(0)
        assert json.loads(invoke(5)["Payload"].read())["errorType"] == "Runtime.ExitError"
        faults = slslab("show", "up", "--json").document["faults"]
        assert [(fault["kind"], fault["times"], fault["function"]) for fault in faults] == [
            ("throttle", 1, "resize"), ("kill", 1, "resize"), ("timeout", 0, None),
        ]  # fmt: skip
        lines = [" ".join(line.split()) for line in slslab("show", "up").out.splitlines()]
        assert "1 throttle 1 function resize 0.000" in lines
        assert "3 timeout 0 did not happen 0.000" in lines


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (PLAN.replace("throttle", "flood"), "Fault 1 is of kind 'flood', which does not exist."),
        (PLAN.replace("invocation = 2", "step = 2"), "Fault 2 (kill) has 'step', which does not apply to it."),
    ],
)
def test_a_wrong_plan_is_refused_before_anything_starts(plan: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "faults.toml").write_text(plan)
    variables = commands.state_in(tmp_path)
    for more in ((), ("--detach",)):
        done = commands.slslab("up", "--faults", "faults.toml", *more, variables=variables, directory=tmp_path)
        assert done.code == 2
        assert says in " ".join(done.err.split())
    assert not (tmp_path / "runs").exists()
