"""What the tests of `slslab reproduce` share."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests import commands


@pytest.fixture
def slslab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., commands.Done]:
    """The command line, with runs of its own."""
    monkeypatch.setenv("SLSLAB_RUNS", str(tmp_path / "runs"))
    return commands.slslab
