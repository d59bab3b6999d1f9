"""What a shell completes: commands, and the names of runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from slslab.cli.root import root
from slslab.run.directory import list_runs

TABLE = Path(__file__).parents[3] / "results" / "table2"
COMMAND = Path(sys.executable).with_name("slslab")


def completed(*words: str) -> list[tuple[str, str]]:
    *before, incomplete = words
    found = ShellComplete(root, {}, "slslab", "_SLSLAB_COMPLETE").get_completions(list(before), incomplete)
    return [(item.type, item.value) for item in found]


def test_bash_gets_its_script_and_what_completes() -> None:
    script = subprocess.check_output([COMMAND], env=os.environ | {"_SLSLAB_COMPLETE": "bash_source"}, text=True)
    assert "complete -o nosort -F _slslab_completion slslab" in script
    asked = {"_SLSLAB_COMPLETE": "bash_complete", "COMP_WORDS": "slslab sh", "COMP_CWORD": "1"}
    assert subprocess.check_output([COMMAND], env=os.environ | asked, text=True) == "plain,show\n"


@pytest.mark.parametrize(
    "command", ["show", "logs", "rm", "compare last", "export", "replay", "calibrate", "ask gpu last"]
)
def test_runs_are_completed_by_their_names(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLSLAB_RUNS", str(TABLE))
    words = command.split()
    assert completed(*words, "20261122-0822") == [("plain", "20261122-082220-allreduce-resnet18-8ed6")]
    ids = [run.id for run in list_runs()]
    assert [value for _, value in completed(*words, "")] == ["last", "up", *ids]
    assert completed(*words, "./ru") == [("file", "./ru")]
