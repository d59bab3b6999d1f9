"""Losses of small models: computed, kept in a file, and what is refused."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.lab.studies.lambdaml import made

from slslab.errors import RequestError, RunError
from slslab_lab.studies import recording
from slslab_lab.studies.catalogue import STUDIES
from slslab_lab.studies.lambdaml.losses import Training, by_epoch, by_round, collect, run
from slslab_workers.plan import PlanError

STUDY = STUDIES["lambdaml-fig7"]


class Silent:
    def report(self, stage: str, done: int, total: int) -> None:
        """Ignore the report."""


@pytest.mark.parametrize(("algorithm", "rounds"), [("ga", 14), ("ma", 2), ("admm", 1)])
def test_losses_are_before_the_first_round_and_after_each(algorithm: str, rounds: int) -> None:
    found = by_round(Training("lr", "breast-cancer", algorithm, 2, 0))
    assert len(found) == rounds + 1
    assert found == by_round(Training("lr", "breast-cancer", algorithm, 2, 0))
    assert found[0] == by_round(Training("lr", "breast-cancer", "ga", 2, 0))[0], "the same first model"
    assert found[-1] < found[0]


def test_em_has_the_loss_of_each_pass_and_ends_when_the_centroids_rest() -> None:
    found = by_round(Training("kmeans", "breast-cancer", "em", 60, 0))
    assert 10 < len(found) < 60
    assert all(after <= before for before, after in pairwise(found))


def test_epochs_are_those_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training("lr", "breast-cancer", "ga", 2, 0, workers=2)
    asked: list[Any] = []

    def run_plan(name: str, values: Any, options: Any, **more: Any) -> Any:
        asked.append((name, values, options, more["out"]))
        return {"status": "done", "run": "RUN", "loss": [0.6, 0.5]}

    monkeypatch.setattr(recording, "run_plan", run_plan)
    assert run(replace(training, synchronisation="s-asp"), Silent()) == (0.6, 0.5)
    ((name, values, options, out),) = asked
    assert (name, out, options) == ("allreduce", None, {"algorithm": "ga", "synchronisation": "s-asp"})
    assert {**values, "workers": 4} == Training("lr", "breast-cancer", "ga", 2, 0).values
    first, second = by_epoch(training)
    assert second < first


def test_a_run_that_fails_or_is_interrupted_ends_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[dict[str, Any]] = [
        {"status": "failed", "run": "RUN", "error": {"message": "no memory", "hint": "more"}},
        {"status": "interrupted"},
    ]
    monkeypatch.setattr(recording, "run_plan", lambda *_a, **_b: ends.pop(0))
    training, progress = Training("lr", "breast-cancer", "ga", 1, 0, "s-asp"), Silent()
    with pytest.raises(RunError, match="The run RUN failed: no memory"):
        run(training, progress)
    with pytest.raises(KeyboardInterrupt):
        run(training, progress)


def test_s_asp_is_not_computed_in_one_process() -> None:
    with pytest.raises(PlanError, match="depends on which worker is faster"):
        by_epoch(Training("lr", "breast-cancer", "ga", 1, 0, "s-asp"))


def test_seeds_of_a_plan_are_one_series() -> None:
    trainings = [Training("lr", "breast-cancer", algorithm, 2, seed) for algorithm in ("ga", "ma") for seed in (0, 1)]
    told: list[tuple[str, int, int]] = []
    found = collect(trainings, lambda each: (each.seed + 0.123456789,), lambda *numbers: told.append(numbers)).series
    assert [(each.algorithm, dict(each.losses)) for each in found] == [
        (name, {0: (0.123457,), 1: (1.123457,)}) for name in ("ga", "ma")
    ]
    assert told == [("training small models", number, 4) for number in (1, 2, 3, 4)]
    assert "run" not in found[0].plan


def test_losses_are_kept(tmp_path: Path) -> None:
    found = made.losses(made.series("ga", {0: [1.0, 0.5]}))
    STUDY.write(found, tmp_path)
    assert STUDY.read(tmp_path) == found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace('"schema":1', '"schema":9'), "schema"),
        (lambda text: text.replace("[1.0,0.5]", "[]"), "losses"),
        (lambda text: text[:-5], "not JSON"),
    ],
)
def test_a_file_that_is_wrong_is_refused(change: Callable[[str], str], said: str, tmp_path: Path) -> None:
    path = STUDY.write(made.losses(made.series("ga", {0: [1.0, 0.5]})), tmp_path)
    path.write_text(change(path.read_text()))
    with pytest.raises(RequestError, match=said):
        STUDY.read(tmp_path)
