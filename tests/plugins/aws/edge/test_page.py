"""docs/endpoint.md is followed as it stands, in one shell, up to its templates."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests import commands

pytestmark = [pytest.mark.server, pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")]

PAGE = Path(__file__).parents[4] / "docs" / "endpoint.md"
# Version 1 of the CLI ignores AWS_ENDPOINT_URL for SQS, as the page says.
SETTING = """
set -euo pipefail
shopt -s expand_aliases
aws() { command aws --endpoint-url "$AWS_ENDPOINT_URL" "$@"; }
"""


def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    state = commands.in_a_shell(SLSLAB_STATE=str(tmp_path / "state"), SLSLAB_RUNS=str(tmp_path / "runs"))
    text = PAGE.read_text().partition("\n## Deploy a template\n")[0]
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    up, session = blocks[0].splitlines()[0], "".join(blocks).partition("\n")[2]
    started = commands.slslab(
        *up.split()[2:], "--port", "0", "--s3-port", "0", "--edge-port", "0", "--json", variables=state
    )
    endpoint = started.document["endpoints"]["aws"]
    script = SETTING + script_of(session).replace("http://127.0.0.1:4566", endpoint)
    try:
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env=state, capture_output=True, text=True, timeout=300, check=False
        )
    finally:
        commands.slslab("down", variables=state)
        os.waitpid(started.document["pid"], 0)
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
    for said in said_by(session):
        assert said in done.stdout


def script_of(session: str) -> str:
    """The commands of the page: what follows a `$`, with its here-documents and continued lines."""
    lines, ending, goes_on = [], "", False
    for line in session.splitlines():
        if ending or goes_on or line.startswith("$ "):
            text = line if ending or goes_on else line[2:]
            lines.append(text)
            goes_on = not ending and text.endswith(("\\", "|", " do"))
            if ending and text == ending:
                ending = ""
            elif found := re.search(r"<<'(\w+)'$", text):
                ending = found[1]
    return "\n".join(lines) + "\n"


def said_by(session: str) -> list[str]:
    """The lines of output that the page shows whole."""
    commands_only = set(script_of(session).splitlines())
    shown = [line for line in session.splitlines() if not line.startswith("$ ") and line not in commands_only]
    return [line for line in shown if "…" not in line and not line.startswith("2026-")]
