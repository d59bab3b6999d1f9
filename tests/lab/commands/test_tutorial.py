"""docs/tutorial.md is followed as it stands, from its first run to its last bill."""

import re
import shlex
import webbrowser
from pathlib import Path

import pytest
from tests.commands import forked_environments, slslab

pytestmark = pytest.mark.server

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial.md"
FOLLOWED = TUTORIAL.read_text(encoding="utf-8").partition("\n## Next\n")[0]


def test_the_tutorial_can_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setenv("SLSLAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    commands = [shlex.split(line) for line in re.findall(r"^\$ slslab (.*)$", FOLLOWED, re.MULTILINE)]
    assert [command[0] for command in commands].count("run") == 2
    said = {}
    for command in commands:
        with forked_environments():
            done = slslab(*command)
        # `doctor` finds what it finds on this machine.
        assert done.code == 0 or command[0] == "doctor", (command, done.err, done.out)
        said[" ".join(command[:2])] = done.out
    assert len(opened) == 1
    # What the text says of them.
    first, second, *_ = said["run allreduce"].splitlines()
    assert first.startswith("On AWS Lambda (us-east-1, modelled): ")
    assert "of the billed time is waiting" in second
    assert "is the cheapest size" in said["ask cheapest"]
    assert "ScatterReduce" in said["ask patterns"] or "scatterreduce" in said["ask patterns"]
    assert (tmp_path / "compared.html").exists()
