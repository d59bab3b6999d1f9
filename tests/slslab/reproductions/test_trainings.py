"""Small trainings over many cores learn the same bits as one after another, and are kept."""

from pathlib import Path

import pytest

from slslab.reproductions.byzantine import Setting, learn
from slslab.reproductions.trainings import train, versions


def test_what_is_learnt_is_the_same_wherever_it_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    settings = [Setting(rule, "sign-flip", 1, 0) for rule in ("median", "trimmed-mean")]
    told: list[tuple[str, int, int]] = []
    alone = train(learn, settings, None, lambda *each: told.append(each))
    assert told[-1] == ("training small models", 2, 2)
    assert len(set(alone)) == 2
    assert list(tmp_path.iterdir()) == []
    for _ in ("computed", "read"):
        assert train(learn, settings, "local", lambda *_: None) == alone
    assert len(list(tmp_path.rglob("*.pickle"))) == 2


def test_versions_are_of_what_computes() -> None:
    assert versions().keys() == {"torch", "numpy", "python"}
