"""What is kept of sweeps: by function, inputs, code and point; nothing that takes less than reading it."""

from functools import partial
from pathlib import Path

import pytest
from tests.lab.runs.sweeps.functions import noted, square

from slslab.errors import HostError
from slslab_lab.runs.sweeps import results
from slslab_lab.runs.sweeps.results import LEAST_S, Results, folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_what_is_kept_is_read_again() -> None:
    Results(square, ["a"]).keep((2, None), {"result": 4}, 1)
    assert Results(square, ["a"]).read([(1, None), (2, None)]) == {1: {"result": 4}}


def test_another_function_other_inputs_and_other_code_have_others(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Results(square, ["a"])
    kept.keep(2, 4, 1)
    assert Results(partial(square), ["a"]).read([2]) == {0: 4}, "what is bound is among the inputs"
    for other in (Results(noted, ["a"]), Results(square, ["b"]), Results(square, ["a", ""]), Results(square, [])):
        assert other.read([2]) == {}
    assert Results(square, ["a"], ["json"]).read([2]) == {}
    monkeypatch.setattr(results, "_source", lambda _: "another version")
    assert Results(square, ["a"]).read([2]) == {}


def test_what_takes_less_than_reading_is_not_kept() -> None:
    kept = Results(square, ["a"])
    kept.keep(2, 4, LEAST_S / 2)
    assert kept.read([2]) == {}
    assert not folder().exists()


@pytest.mark.parametrize("damage", [b"", b"\x80", b"no pickle"])
def test_a_file_that_cannot_be_read_is_computed_again(damage: bytes) -> None:
    kept = Results(square, ["a"])
    kept.keep(2, 4, 1)
    [path] = folder().rglob("*.pickle")
    path.write_bytes(damage)
    assert kept.read([2]) == {}
    kept.keep(2, 4, 1)
    assert kept.read([2]) == {0: 4}
    assert list(folder().rglob("*.*")) == [path], "nothing else is left"


def test_a_cache_that_cannot_be_written_is_the_hosts(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(HostError, match=r"cannot be written: Not a directory") as raised:
        Results(square, ["a"]).keep(2, 4, 1)
    assert "XDG_CACHE_HOME" in raised.value.hint
