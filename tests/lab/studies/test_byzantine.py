"""Accuracy under Byzantine workers: what is trained, what is refused, what is said, and the command."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from tests import commands
from tests.lab.studies.setups import setup

from slslab_lab.pages.reproduction import tables
from slslab_lab.studies import byzantine
from slslab_lab.studies.byzantine import (
    ATTACKERS,
    MODELS,
    RULES,
    Accuracies,
    Cost,
    Series,
    Setting,
    build,
    is_possible,
    settings_of,
    time_rule,
)
from slslab_lab.studies.catalogue import STUDIES
from slslab_lab.studies.trainings import learn
from slslab_workers.training.attacks import NAMES

FALLEN = {("mean", "sign-flip", 1): 0.1, ("krum", "ipm", 1): 0.5, ("median", "alie", 2): 0.3}


def made() -> Accuracies:
    """Accuracies of 0.9, except for the collapsed ones."""
    keys = dict.fromkeys((each.rule, each.attack, each.attackers) for each in settings_of(1))
    series = tuple(
        Series(rule=rule, attack=attack, attackers=number, accuracies={0: (FALLEN.get((rule, attack, number), 0.9),)})
        for rule, attack, number in keys
    )
    costs = tuple(
        Cost(rule=rule, model=model, parameters=1, memory_mb=1024, seconds=(0.001 if rule == "mean" else 0.003,))
        for model in MODELS
        for rule in RULES
    )
    return Accuracies(
        measured=date(2026, 11, 25), host={"cores": 2}, versions={"torch": "any"}, series=series, costs=costs
    )


def test_settings_are_all_that_preconditions_allow() -> None:
    assert [rule for rule in RULES if not is_possible(rule, 2)] == ["krum", "multi-krum"]
    settings = settings_of(2)
    assert len(settings) == 2 * (9 + 9 * 9 + 7 * 9)
    plan = Setting("trimmed-mean", "alie", 2, 1).plan()
    assert (plan.options["byzantine"], plan.options["attack"], plan.seed) == (2, "alie:3,4", 1)
    assert Setting("krum", "none", 0, 0).plan().options["byzantine"] == 1
    assert Setting("median", "nan", 1, 0).plan().options["attack"] == "nan:4"


def test_an_attack_is_what_makes_the_mean_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(byzantine.TRAINING, "epochs", 3)
    assert learn(Setting("mean", "none", 0, 0))[-1] > 0.3
    assert learn(Setting("mean", "sign-flip", 1, 0))[-1] < 0.2
    assert learn(Setting("multi-krum", "sign-flip", 1, 0))[-1] > 0.3


def test_rules_are_timed_on_gradients_of_a_model() -> None:
    for rule in RULES:
        cost = time_rule(rule, "lenet")
        assert (cost.parameters, len(cost.seconds)) == (61_706, byzantine.TIMES)
        assert min(cost.seconds) > 0


def test_what_falls_is_said_and_what_is_refused_too() -> None:
    document = build(setup("byzantine"), made())
    first, *others = document["findings"]
    assert "the mean fails to learn: 10.0 %, against 90.0 % without attack" in first
    assert "8 of 8 rules stay within 3 points" in first
    by_attack = {sentence.partition(":")[0]: sentence for sentence in others}
    assert "are lost with krum (50.0 %)" in by_attack["IPM by 1 of 5"]
    assert "are lost with median (30.0 %)" in by_attack["ALIE by 2 of 5"]
    assert "are lost with no rule" in by_attack["ALIE by 1 of 5"]
    grids = list(tables(document))
    assert [grid.columns for grid in grids[:2]] == [("rule", "no attack", *NAMES)] * len(ATTACKERS)
    rows = {row[0]: row for row in grids[1].rows}
    assert rows["krum"][1:] == ("90.0", *["refused"] * len(NAMES))
    # 1,000 times 0.003 s of 1 GB.
    assert {row[0]: row for row in grids[2].rows}["median"][1:4] == ("3.00", "3.0", "≈0.000050")


def test_the_projects_own_show_what_was_asked() -> None:
    """The mean fails under one sign flip of five, and at least three rules stay within 3 points of no attack."""
    found = STUDIES["byzantine"].read()
    means = {(each.rule, each.attack, each.attackers): sum(each.last) / len(each.last) for each in found.series}
    usual = means[("mean", "none", 0)]
    assert means[("mean", "sign-flip", 1)] < 20
    assert sum(means[(rule, "sign-flip", 1)] >= usual - 3 for rule in RULES[1:]) >= 3
    assert {(each.rule, each.attack, each.attackers) for each in settings_of(1)} == means.keys()


def test_the_command_reads_the_projects_own_and_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("reproduce", "byzantine", "--out", str(tmp_path))
    document: dict[str, Any] = commands.slslab(*command, "--fidelity", "replayed", "--json").document
    assert len(document["matrices"]) == 3
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".csv", ".html"}
    assert "Accuracy with 1 of 5 workers attacking" in (tmp_path / "byzantine.html").read_text()
    shown = commands.slslab(*command, "--fidelity", "replayed")
    assert "With one sign-flipping worker of 5" in " ".join(shown.out.split())
    missing = commands.slslab(*command, "--fidelity", "replayed", "--recordings", str(tmp_path))
    assert (missing.code, "cannot be read" in missing.err) == (2, True)
    refused = commands.slslab(*command, "--recordings", str(tmp_path))
    assert (refused.code, "--recordings needs --fidelity replayed" in refused.err) == (2, True)
    monkeypatch.setattr(byzantine, "learn", lambda _: (0.5,))
    monkeypatch.setattr(
        byzantine,
        "time_rule",
        lambda rule, model: Cost(rule=rule, model=model, parameters=1, memory_mb=1024, seconds=(0.1,)),
    )
    made = commands.slslab(*command)
    assert made.code == 0
    assert len(json.loads((tmp_path / "accuracies.json").read_text())["series"]) == 153
