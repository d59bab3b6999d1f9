"""What docs/cloud.md says about AWS works as written, in one shell, except for the commands that need an account."""

import re
import subprocess
from pathlib import Path

import pytest
from tests import commands
from tests.plugins.aws.edge.test_page import said_by, script_of

pytestmark = pytest.mark.server

PAGE = Path(__file__).parents[4] / "docs" / "cloud.md"
TEXT = PAGE.read_text(encoding="utf-8").partition("\n## AWS, and back\n")[2]


@pytest.mark.exhaustive
def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    state = commands.in_a_shell(SLSLAB_STATE=str(tmp_path / "state"), SLSLAB_RUNS=str(tmp_path / "runs"))
    session = "".join(re.findall(r"^```console\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL))
    script = script_of(session).replace("up --detach", "up --detach --port 0 --s3-port 0 --edge-port 0")
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=tmp_path,
            env=state,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    finally:
        commands.slslab("down", variables=state)
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
    for said in said_by(session):
        assert said in done.stdout


def test_commands_that_cost_money_are_marked() -> None:
    blocks = re.findall(r"^```\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        for command in block.replace("\\\n", "").splitlines():
            assert ("# AWS" in command) is command.startswith(("aws ", "docker ", "python driver.py"))
