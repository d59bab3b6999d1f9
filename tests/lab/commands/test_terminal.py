"""What a person at a terminal sees: bars during a run, then tables; the terminal is a real one (pty)."""

import os
import pty
import subprocess
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.commands import forked_environments

from slslab.cli import terminal
from slslab.cli.root import execute
from slslab.cli.terminal import print_document
from slslab.predict.processor import UNANCHORED
from slslab.report.page import Table
from slslab_lab.runs import processor


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    return {"SLSLAB_RUNS": str(tmp_path / "runs"), "TERM": "xterm-256color", "COLUMNS": "160"}


class Terminal:
    """A terminal: `theirs` is the descriptor that programs write to."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()
        self._shown = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while chunk := os.read(self._ours, 65_536):
                self._shown += chunk
        except OSError:
            pass  # Linux raises it when the last program has left the terminal

    def left(self) -> str:
        """Leave the terminal; return everything that appeared on it."""
        os.close(self.theirs)
        self._reader.join()
        os.close(self._ours)
        return self._shown.decode(errors="replace")


def at_terminal(variables: dict[str, str], *arguments: str) -> tuple[int, str]:
    """Exit code and everything that appeared on the terminal."""
    screened = Terminal()
    with (
        os.fdopen(os.dup(screened.theirs), "w", buffering=1) as screen,
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(screen),
        redirect_stderr(screen),
    ):
        for name, value in variables.items():
            patch.setenv(name, value)
        code = execute(arguments)
    return code, screened.left()


EPOCHS = ["evaluating epochs: 1 of 2", "evaluating epochs: 2 of 2"]


def test_stages_are_lines_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: now))
    with terminal.Bar() as bar:
        bar.report("alone", 0, 96)
        for now in range(96):
            bar.report("alone", now + 1, 96)
        bar.report("deploy", 0, 1)
        bar.report("deploy", 1, 1)
        for epoch in range(2):
            bar.report("evaluate", epoch + 1, 2)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:3] == [f"measuring steps alone: {done} of 96" for done in (0, 11, 21)]
    assert lines[10:] == ["measuring steps alone: 96 of 96", "deploying functions: 1 of 1", *EPOCHS]


@pytest.mark.server
def test_a_run_shows_its_stages_while_they_go_on_and_then_its_tables(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[bool] = []
    monkeypatch.setattr(processor, "load_processor", lambda: UNANCHORED)
    monkeypatch.setattr(processor, "measure_processor", lambda short, **_: measured.append(short))
    plan = ("run", "allreduce", "--workers", "1", "--batches", "1", "--epochs", "1", "--record", "together")
    with forked_environments():
        code, shown = at_terminal(variables, *plan)
    assert code == 0, shown
    assert measured == [True], "the first run on a terminal measures the processor"
    assert "training (worker steps)" in shown, "other stages may be over before they can be shown"
    assert "\x1b[" in shown, "bars move"
    assert shown.rindex("bill, USD") > shown.rindex("training (worker steps)"), "they are gone when the tables come"
    code, listed = at_terminal(variables, "runs")
    assert code == 0
    assert "allreduce" in listed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("doctor",), ("torch", "memory limit", "Lambda clock", "isolation")),
        (("limits",), ("memory_mb", "128 to 10,240", "documented", "assumed")),
        (("runs",), ("architecture", "accuracy")),
        (("--help",), ("slslab show", "doctor")),
    ],
    ids=lambda part: part[0] if len(part) == 1 else "",
)
def test_other_commands_show_tables(
    arguments: tuple[str, ...], words: tuple[str, ...], variables: dict[str, str]
) -> None:
    code, shown = at_terminal(variables, *arguments)
    assert code == 0, shown
    for word in words:
        assert word in shown


def test_a_program_of_its_own_finds_the_terminal() -> None:
    terminal = Terminal()
    done = subprocess.run(
        [sys.executable, "-m", "slslab", "--version"], stdin=terminal.theirs, stdout=terminal.theirs,
        stderr=terminal.theirs, check=False,
    )  # fmt: skip
    shown = terminal.left()
    assert done.returncode == 0, shown
    assert "slslab" in shown


def test_a_table_leaves_control_characters_out(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b]52;c;Zm9v\x07name\x9b2J"
    print_document({}, lambda: Table(("name",), [(hostile,)]), as_json=False)
    printed = capsys.readouterr().out
    assert "]52;c;Zm9vname2J" in printed
    assert not {"\x1b", "\x07", "\x9b"} & set(printed)
