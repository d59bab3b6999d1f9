"""KubeML's accuracy by global batch: what is trained, what is compared, and the command."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from tests import commands
from tests.lab.studies.setups import setup

from slslab_lab.studies.catalogue import STUDIES
from slslab_lab.studies.kubeml import accuracy as kubeml_accuracy
from slslab_lab.studies.kubeml.accuracy import (
    BATCH_SIZES,
    FUNCTIONS,
    SAMPLES,
    Accuracies,
    Series,
    Setting,
    build,
    measure,
    order,
    settings_of,
)
from slslab_lab.studies.trainings import learn
from slslab_workers.architecture import architectures
from slslab_workers.kubeml.settings import epoch_of

STUDY = STUDIES["kubeml-accuracy"]


def series(functions: int, batch_size: int, *last: float) -> Series:
    accuracies = {seed: (0.1, accuracy) for seed, accuracy in enumerate(last)}
    return Series(functions=functions, batch_size=batch_size, accuracies=accuracies)


def test_all_settings_train_with_the_same_images() -> None:
    settings = settings_of(*STUDY.effort["full"])
    assert len(settings) == len(FUNCTIONS) * len(BATCH_SIZES) * 3
    for setting in settings:
        plan = setting.plan()
        assert plan.workers * plan.batches * plan.batch_size == SAMPLES
        assert (plan.epochs, plan.options["k"]) == (30, -1)
        assert epoch_of(plan, plan.workers).documents == 56
        architectures()["kubeml"].requirements(plan)


def test_settings_learn_and_equal_seeds_learn_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(functions=1, batch_size=16, seed=0, epochs=1)
    [accuracy] = learn(setting)
    assert accuracy > 0.6
    monkeypatch.setattr(kubeml_accuracy, "learn", lambda each: (0.5 + each.seed / 10,))
    found = measure(setup(STUDY.name, fidelity="full"))
    assert len(found.series) == 12
    assert found.series[0].accuracies == {0: (0.5,), 1: (0.6,), 2: (0.7,)}


@pytest.mark.parametrize(
    ("small", "large", "verdict"),
    [((0.9, 0.8), (0.7, 0.7), "holds"), ((0.9, 0.7), (0.7, 0.8), "does not hold"), ((0.9,), (0.9,), "does not hold")],
)
def test_an_order_holds_if_it_does_from_every_seed(
    small: tuple[float, ...], large: tuple[float, ...], verdict: str
) -> None:
    found = order([series(2, 16, *small), series(2, 128, *large)])
    assert (found.verdict, found.of) == (verdict, "2 functions")


def test_the_paper_stands_beside_and_no_accuracy_is_compared() -> None:
    members = tuple(
        series(functions, size, 1 - functions * size / 1000) for functions in FUNCTIONS for size in BATCH_SIZES
    )
    made = Accuracies(measured=date(2026, 11, 25), host={"cores": 2}, versions={"torch": "any"}, series=members)
    document = build(setup(STUDY.name), made)
    assert [each["verdict"] for each in document["orders"]] == ["holds"] * 3
    assert [row["cells"]["accuracy"]["verdict"] for row in document["rows"]] == [""] * 24
    published = [row for row in document["rows"] if row["cells"]["accuracy"]["published"]]
    assert {row["group"] for row in published} == {"2 functions", "4 functions", "8 functions"}


def test_the_command_reads_the_projects_own_and_says_where_they_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("reproduce", "kubeml-accuracy", "--out", str(tmp_path))
    document: dict[str, Any] = commands.slslab(*command, "--fidelity", "replayed", "--json").document
    assert [each["of"] for each in document["orders"]] == ["1 function", "2 functions", "4 functions"]
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".csv", ".html"}
    missing = commands.slslab(*command, "--fidelity", "replayed", "--recordings", str(tmp_path))
    assert (missing.code, "cannot be read" in missing.err) == (2, True)
    refused = commands.slslab(*command, "--recordings", str(tmp_path))
    assert (refused.code, "--recordings needs --fidelity replayed" in refused.err) == (2, True)
    monkeypatch.setattr(kubeml_accuracy, "learn", lambda _: (0.5,))
    made = commands.slslab(*command)
    assert made.code == 0
    assert len(json.loads((tmp_path / "accuracies.json").read_text())["series"]) == 12
