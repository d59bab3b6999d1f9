"""An exported run on `slslab up`: emulator.yaml's functions, and the driver as a program, give what the run gave."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests import commands
from tests.choices import chosen
from tests.lab.runs.sam.test_export import EXPORTED, allowed, asked, templates
from tests.recorded_runs import RecordedRuns

from slslab.run import metrics
from slslab.run.log import load

pytestmark = pytest.mark.server


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    return commands.state_in(tmp_path)


@contextmanager
def service(state: dict[str, str], *options: object) -> Iterator[dict[str, str]]:
    """A stack in the background, and the variables with which programs find it."""
    ports = [word for name in ("--port", "--s3-port", "--edge-port") for word in (name, 0)]
    pid = commands.slslab("up", "--detach", *ports, *options, "--json", variables=state).document["pid"]
    try:
        yield {**state, **commands.slslab("env", "--json", variables=state).document["variables"]}
    finally:
        commands.slslab("down", variables=state)
        os.waitpid(pid, 0)


def drive(folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "driver.py")]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("architecture", chosen(EXPORTED, "allreduce"))
def test_the_driver_gives_what_the_run_gave(
    architecture: str, tmp_path: Path, state: dict[str, str], recorded_runs: RecordedRuns
) -> None:
    recorded, ran = recorded_runs[architecture]
    folder = tmp_path / "cloud"
    assert commands.slslab("export", "sam", recorded, "--out", folder, variables=state).code == 0
    # Torch is imported once, and not by each of up to 20 environments.
    with service(state, "--tensor-databases", 2, "--template", "torch") as variables:
        early = drive(folder, variables)
        stack = (folder / "emulator.yaml", "--stack-name", "exported")
        assert commands.slslab("deploy", *stack, variables=variables).code == 0
        # The functions stay for another run.
        outcomes = [drive(folder, variables) for _ in range(2)]
        # Its bucket can be removed, since the driver has left nothing in it.
        assert commands.slslab("deploy", *stack, "--delete", variables=variables).code == 0
    assert (early.returncode, early.stdout) == (1, "")
    assert re.fullmatch("Error: .* Function not found: .*\nHint: README.md .*\n", early.stderr)
    counts: Counter[str] = Counter()
    for done in outcomes:
        assert done.returncode == 0, done.stderr
        outcome = json.loads(done.stdout)
        for figure in ("parameters_sha256", "loss", "accuracy", "replicas_equal", "updates"):
            assert outcome[figure] == ran[figure]
        counts.update(outcome["counts"])
    # The stores count the same requests once more.
    events = [event for event in load(tmp_path / "runs" / "up").events if event["invocation"]]
    counts.update(metrics.protocol(events)["counts"])
    assert counts == {op: 2 * number for op, number in ran["counts"].items()}
    rights = allowed(templates(folder)[1])
    for function, actions in asked(recorded, set(rights)).items():
        assert actions <= rights[function]
