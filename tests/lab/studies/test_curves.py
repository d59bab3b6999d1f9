"""Curves that were made before: read, chosen, and shared by architectures that learn the same."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from tests import commands
from tests.lab.studies.learnt import write_curve

from slslab.errors import RequestError, RunError
from slslab_lab.runs.planning import architectures, make_plan
from slslab_lab.studies import committed
from slslab_lab.studies.curves import (
    PROOFS,
    Curve,
    common_target,
    curve_of,
    read_curve,
    read_curves,
    rule,
    rule_of,
    select,
    target_note,
)
from slslab_lab.studies.experiments import Experiment
from slslab_workers.plan import Plan
from slslab_workers.training import gradients
from slslab_workers.training.samples import Samples


def made(directory: Path, *arguments: Any, **more: Any) -> Curve:
    return read_curve(write_curve(directory, *arguments, **more))


def test_reading(tmp_path: Path) -> None:
    """Of 96 gradients an epoch 24, then 48 were sent: a quarter until the first end, 3/8 until the second."""
    path = write_curve(tmp_path, "mlless", [0.5, 0.7, 0.6], sent=24)
    document = json.loads(path.read_text())
    document["epochs"][1]["significant_updates"] = 48
    path.write_text(json.dumps(document))
    curve = read_curve(path)
    assert (curve.name, curve.last.accuracy, curve.best.epoch, curve.dataset) == ("mlless", 0.6, 2, "cifar10")
    assert [curve.reach(accuracy) for accuracy in (0.5, 0.7, 0.8)] == [curve.points[0], curve.points[1], None]
    assert (curve.share(curve.points[0]), curve.share(curve.points[1])) == (0.25, 0.375)
    assert curve.end() == "3 epochs, all requested"


@pytest.mark.parametrize(
    ("ended", "words"), [("patience", "didn't improve for 10"), ("loss", "end threshold"), (None, "interrupted")]
)
def test_why_it_ended(tmp_path: Path, ended: str | None, words: str) -> None:
    assert words in made(tmp_path, "spirt", [0.1], ended=ended).end()


def test_without_a_filter_nothing_is_said_of_shares(tmp_path: Path) -> None:
    curve = made(tmp_path, "allreduce", [0.1])
    assert curve.share(curve.last) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "has schema 2"),
        ({"epochs": []}, "wrong at epochs"),
        ({"epochs": [{"epoch": 1, "updates": 1, "test_accuracy": 1.5}]}, r"wrong at epochs.0.test_accuracy"),
        ({"epochs": [{"epoch": 2, "updates": 1, "test_accuracy": 0.5}]}, "every epoch from 1"),
        ({"plan": {"workers": 4}}, "wrong at plan: The plan has no"),
    ],
)
def test_a_wrong_curve_is_refused_by_its_entry(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = write_curve(tmp_path, "allreduce", [0.1])
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(RequestError, match=message):
        read_curve(path)


@pytest.mark.parametrize(("text", "message"), [("{", "is not JSON"), ("[]", "no entries")])
def test_no_curve_at_all_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "curve.json"
    path.write_text(text)
    with pytest.raises(RequestError, match=message):
        read_curve(path)
    with pytest.raises(RequestError, match="cannot be read"):
        read_curve(tmp_path / "none.json")


def test_a_directory_without_curves_says_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no accuracy curves"):
        read_curves(tmp_path)


def test_a_wheel_without_curves_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slslab_lab.studies.FOLDERS", (tmp_path,))
    with pytest.raises(RunError, match="project's own accuracy is missing"):
        committed("accuracy")
    (tmp_path / "accuracy").mkdir()
    assert committed("accuracy") == tmp_path / "accuracy"


def test_what_an_epoch_is_must_be_table_2s(tmp_path: Path) -> None:
    write_curve(tmp_path, "allreduce", [0.1], batches=5)
    write_curve(tmp_path, "spirt", [0.1], dataset="folder:/data/CIFAR-10-images")
    write_curve(tmp_path, "gpu", [0.1], dataset="folder:/data/cifar100")
    curves = read_curves(tmp_path)
    assert [one.name for one in select(curves, "mobilenet", "cifar10")] == ["spirt"]
    with pytest.raises(RunError, match="No curve has resnet18 on cifar10 with 4 workers × 24 minibatches of 512"):
        select(curves, "resnet18", "cifar10")


SHARING = (Experiment("gpu", "mobilenet", False), Experiment("scatterreduce", "mobilenet", True))


def test_one_curve_stands_for_all_with_its_rule(tmp_path: Path) -> None:
    curve = made(tmp_path, "allreduce", [0.1])
    for one in (*SHARING, Experiment("scatterreduce", "mobilenet", False)):
        assert curve_of([curve], rule_of(one), one.architecture) is curve
    for other in (Experiment("allreduce", "mobilenet", True), Experiment("spirt", "mobilenet", False)):
        assert curve_of([curve], rule_of(other), other.architecture) is None
    assert curve_of([curve], rule("mlless", {"filter": "none"}), "mlless") is curve
    assert curve_of([curve], rule("mlless", {"filter": "none", "optimiser": "adam"}), "mlless") is None
    assert curve_of([curve], rule("allreduce", {"partition": "overlapping"}), "allreduce") is None
    averaged = rule("allreduce", {"buffers": "averaged"})
    assert curve_of([curve], averaged, "allreduce") is None
    assert averaged == rule("gpu", {"buffers": "averaged"})


def test_where_and_when_do_not_matter() -> None:
    assert rule("spirt", {"averaging": "naive", "queue": "embedded"}) == rule("spirt", {})
    assert rule("mlless", {"store": "s3", "log-traffic": True}) == rule("mlless", {})
    assert rule("mlless", {"threshold": 2.0}) != rule("mlless", {})
    assert rule("mlless", {"mean-over": "senders"}) != rule("mlless", {})
    for ignored in ({"threshold": 2.0}, {"mean-over": "senders"}):
        assert rule("mlless", {"filter": "none", **ignored}) == rule("mlless", {"filter": "none"})


def test_the_usual_curve_is_chosen_then_ones_own_then_the_longest(tmp_path: Path) -> None:
    wanted = rule("gpu", {})
    curves = [
        made(tmp_path, "gpu", [0.1] * 9, lr=0.05, name="fast"),
        made(tmp_path, "allreduce", [0.1] * 3, name="other"),
        made(tmp_path, "gpu", [0.1], name="short"),
        made(tmp_path, "gpu", [0.1, 0.2], name="long"),
    ]
    chosen = []
    while curves:
        found = curve_of(curves, wanted, "gpu")
        assert found is not None
        chosen.append(found.name)
        curves.remove(found)
    assert chosen == ["long", "short", "other", "fast"]
    assert curve_of([], wanted, "gpu") is None


def test_common_target(tmp_path: Path) -> None:
    """All three reach 20 %, and none of the larger multiples of 5 %."""
    curves = [
        made(tmp_path, "allreduce", [0.1, 0.82]), made(tmp_path, "mlless", [0.6]), made(tmp_path, "spirt", [0.24])
    ]  # fmt: skip
    assert common_target(curves) == 0.20
    assert common_target(curves[:2]) == 0.60
    assert common_target([made(tmp_path, "spirt", [0.149], name="guesses")]) is None, (
        "one of ten classes is right by luck"
    )
    assert "--target" in next(target_note(0.2, chosen=False))
    assert list(target_note(0.2, chosen=True)) == []
    assert "No curve" in next(target_note(None, chosen=False))


def learn(architecture: str, **options: Any) -> list[str]:
    """Fingerprints of the parameters after each of three steps."""
    values = {"model": "lenet", "dataset": "digits", "batches": 3, "batch_size": 16, "memory_mb": 640}
    plan: Plan = make_plan(architectures()[architecture], values, options)
    kind = architectures()[architecture].replicas()
    assert kind is not None
    replicas, found = kind(plan, Samples(plan)), []
    for _ in range(3):
        replicas.advance()
        found.append(gradients.sha256(replicas.parameters()))
    return found


def test_architectures_with_one_rule_learn_the_same_bits() -> None:
    expected = learn("allreduce")
    assert len(set(expected)) == 3
    assert learn("scatterreduce") == learn("gpu") == learn("mlless", filter="none") == expected
    assert learn("allreduce", combine="sum") != expected
    assert learn("mlless", filter="none", optimiser="adam") != expected


def test_each_proof_is_a_test_that_always_runs() -> None:
    """One compares architectures with each other, the other their runs with one process."""
    assert [proof.partition("::")[0] for proof in PROOFS] == [
        "tests/lab/studies/test_curves.py",
        "tests/workers/architectures/test_conformance.py",
    ]
    for file, name in (proof.split("::") for proof in PROOFS):
        body = ast.parse((Path(__file__).parents[3] / file).read_text()).body
        (test,) = [each for each in body if isinstance(each, ast.FunctionDef) and each.name == name]
        assert any(isinstance(each, ast.Assert) for each in ast.walk(test))
        assert not {"skip", "skipif", "xfail", "exhaustive"} & {
            each.attr for mark in test.decorator_list for each in ast.walk(mark) if isinstance(each, ast.Attribute)
        }


def test_a_wrong_curve_is_a_wrong_request_of_the_command(tmp_path: Path) -> None:
    path = write_curve(tmp_path, "allreduce", [0.1])
    path.write_text("{")
    done = commands.slslab("reproduce", "table3", "--accuracy", tmp_path, "--out", tmp_path / "out")
    assert (done.code, done.out) == (2, "")
    assert f"{path} is not JSON" in done.err
    assert "\nHint: " in done.err
    assert not (tmp_path / "out").exists()
