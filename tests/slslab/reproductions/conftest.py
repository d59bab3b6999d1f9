"""What the tests of `slslab reproduce` share."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slslab.cli.main import main


@pytest.fixture
def slslab(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """The command line, with runs of its own: its exit code, and what it wrote to stdout and stderr."""
    monkeypatch.setenv("SLSLAB_RUNS", str(tmp_path / "runs"))
    before = signal.getsignal(signal.SIGTERM)

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    yield call
    signal.signal(signal.SIGTERM, before)
