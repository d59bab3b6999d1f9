"""What a person at a terminal sees: bars while a run goes on, then tables; the terminal is a real one (pty)."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "slslab"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return os.environ | {"SLSLAB_RUNS": str(tmp_path / "runs"), "TERM": "xterm-256color", "COLUMNS": "160"}


def at_terminal(environment: dict[str, str], *arguments: str) -> tuple[int, str]:
    """Exit code and everything that appeared on the terminal."""
    ours, theirs = pty.openpty()
    shown = bytearray()
    with subprocess.Popen(
        [*COMMAND, *arguments], env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        try:
            while chunk := os.read(ours, 65_536):
                shown += chunk
        except OSError:
            pass  # what Linux says when the last process has left the terminal
        finally:
            os.close(ours)
    return process.returncode, shown.decode(errors="replace")


@pytest.mark.server
def test_a_run_shows_its_stages_while_they_go_on_and_then_its_tables(environment: dict[str, str]) -> None:
    code, shown = at_terminal(environment, "run", "allreduce", "--workers", "1", "--batches", "1", "--epochs", "1")
    assert code == 0, shown
    assert "training (worker steps)" in shown, "other stages may be over before they can be shown"
    assert "\x1b[" in shown, "bars move"
    assert shown.rindex("Bill") > shown.rindex("training (worker steps)"), "they are gone when the tables come"
    code, listed = at_terminal(environment, "runs")
    assert code == 0
    assert "allreduce" in listed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("doctor",), ("torch", "memory limit", "Lambda clock", "isolation")),
        (("limits",), ("memory_mb", "128 to 10,240", "documented", "assumed")),
        (("runs",), ("architecture", "accuracy")),
        (("--help",), ("slslab show", "doctor")),
        (("--version",), ("slslab",)),
    ],
    ids=lambda part: part[0] if len(part) == 1 else "",
)
def test_other_commands_show_tables(
    arguments: tuple[str, ...], words: tuple[str, ...], environment: dict[str, str]
) -> None:
    code, shown = at_terminal(environment, *arguments)
    assert code == 0, shown
    for word in words:
        assert word in shown
