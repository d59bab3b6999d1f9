"""Small trainings over many cores learn the same bits as one after another, and are kept."""

from importlib.metadata import version
from pathlib import Path
from platform import python_version

import pytest

from slslab_lab.runs.planning import architectures
from slslab_lab.studies import trainings
from slslab_lab.studies.byzantine import ARCHITECTURE, Setting
from slslab_lab.studies.kept import versions
from slslab_lab.studies.trainings import train
from slslab_workers.training.samples import Samples


def ignore(*_: object) -> None:
    """Ignore progress."""


def learn(setting: Setting) -> tuple[float, ...]:
    """Return the parameters after two minibatches of each of five workers."""
    plan, kind = setting.plan(), architectures()[ARCHITECTURE].replicas()
    assert kind is not None
    replicas = kind(plan, Samples(plan))
    for _ in range(2):
        replicas.advance()
    return tuple(replicas.parameters().tolist())


def test_what_is_learnt_is_the_same_wherever_it_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    settings = [Setting(rule, "sign-flip", 1, 0) for rule in ("median", "trimmed-mean")]
    told: list[tuple[str, int, int]] = []
    alone = train(learn, settings, None, lambda *each: told.append(each))
    assert told == [("training small models", done, 2) for done in (1, 2)]
    assert len({values for by_seed in alone.values() for values in by_seed.values()}) == 2
    assert list(tmp_path.iterdir()) == []
    for _ in ("computed", "read"):
        assert train(learn, settings, "local", ignore) == alone
    assert len(list(tmp_path.rglob("*.pickle"))) == 2


def test_what_other_versions_learnt_is_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("slslab_lab.runs.sweeps.results.LEAST_S", 0)
    settings, computed = [Setting("median", "none", 0, 0)], []

    def count(_: Setting) -> tuple[float, ...]:
        computed.append(versions())
        return (float(len(computed)),)

    assert [train(count, settings, "local", ignore) for _ in range(2)] == [{settings[0]: {0: (1.0,)}}] * 2
    assert computed == [{**{name: version(name) for name in ("torch", "numpy")}, "python": python_version()}]
    monkeypatch.setattr(trainings, "versions", lambda: {**computed[0], "torch": "another"})
    assert train(count, settings, "local", ignore) == {settings[0]: {0: (2.0,)}}
