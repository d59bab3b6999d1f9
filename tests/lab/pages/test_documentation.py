"""docs/reports.md is run as it stands, on recorded runs in the place of its own."""

import re
import shlex
import shutil
import webbrowser
from pathlib import Path

import pytest
from tests.commands import slslab
from tests.lab.replay.recordings import TRACES

PAGE = Path(__file__).parents[3] / "docs" / "reports.md"


def test_the_page_of_the_documentation_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("allreduce", "scatterreduce"):
        shutil.copytree(TRACES / name, tmp_path / "runs" / name)
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setenv("SLSLAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    commands = [shlex.split(line) for line in re.findall(r"^\$ slslab (.*)$", text, re.MULTILINE)]
    # What it takes to make a run is tested elsewhere, and so is what goes on until Ctrl-C.
    commands = [command for command in commands if command[0] not in ("run", "serve")]
    assert {command[0] for command in commands} == {"report", "compare", "export"}
    for command in commands:
        done = slslab(*command)
        assert done.code == 0, (command, done.err)
    assert len(opened) == 1
    for path in ("page.html", "compared.html", "tables/epochs.csv", "mlruns", "boards"):
        assert (tmp_path / path).exists(), path
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(block, {})
    shown = capsys.readouterr().out
    assert "'epoch': [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]" in shown
