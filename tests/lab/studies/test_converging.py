"""`slslab reproduce table3 | mlless-filter` on committed recordings of LeNet and curves made by hand."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.lab.studies.learnt import link_recordings, write_curve

Slslab = Callable[..., tuple[int, str, str]]


@pytest.fixture
def inputs(tmp_path: Path) -> tuple[object, ...]:
    curves = tmp_path / "accuracy"
    write_curve(curves, "allreduce", [0.3, 0.6])
    write_curve(curves, "mlless", [0.3, 0.4, 0.6], sent=24)
    names = ("allreduce", "mlless", "spirt", "spirt-as-released", "gpu")
    recordings = link_recordings(tmp_path / "recordings", *names)
    return "--accuracy", curves, "--recordings", recordings, "--out", tmp_path / "out"


@pytest.mark.parametrize("name", ["table3", "mlless-filter"])
def test_document_is_printed_and_saved(name: str, slslab: Slslab, inputs: tuple[object, ...], tmp_path: Path) -> None:
    code, out, err = slslab("reproduce", name, *inputs, "--json")
    document = json.loads(out)
    assert (code, document["reproduces"], document["fidelity"]) == (0, name, "replayed")
    assert json.loads((tmp_path / "out" / f"{name}.json").read_text()) == document
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".json", ".csv", ".html"}
    assert "Saved: " in err


def epoch_seconds(row: Mapping[str, Any]) -> float:
    return float(row["cells"]["epoch_seconds"]["modelled"]["value"])


def test_epochs_times_seconds(slslab: Slslab, inputs: tuple[object, ...], tmp_path: Path) -> None:
    accuracies = [0.3, 0.5, 0.55, 0.6]
    options = {"gradients": "json", "averaging": "round-trip"}
    write_curve(tmp_path / "accuracy", "spirt", accuracies, as_released=True, options=options, name="released")
    code, out, _ = slslab("reproduce", "table3", *inputs, "--target", "0.6", "--json")
    assert code == 0
    rows = {(row["name"], row["variant"]): row for row in json.loads(out)["rows"]}
    reached = {
        ("AllReduce", "canonical"): 2, ("GPU", "canonical"): 2, ("MLLess", "canonical"): 3, ("SPIRT", "as released"): 4,
    }  # fmt: skip
    for name, epochs in reached.items():
        found = rows[name]
        minutes = found["cells"]["common_minutes"]["modelled"]["value"]
        assert minutes == pytest.approx(epochs * epoch_seconds(found) / 60)
    missing = rows["ScatterReduce", "canonical"]["cells"]["epoch_seconds"]
    assert (missing["modelled"], missing["reason"]) == (None, "the recording mobilenet-scatterreduce is missing")


def test_figure_4_is_drawn(slslab: Slslab, inputs: tuple[object, ...], tmp_path: Path) -> None:
    code, out, _ = slslab("reproduce", "table3", *inputs, "--plot", tmp_path / "figure.svg", "--json")
    assert (code, (tmp_path / "figure.svg").read_text()[:4]) == (0, "<svg")
    document = json.loads(out)
    (curve,) = (each for each in document["curves"] if each["title"] == "Accuracy by time, canonical")
    canonical = [row for row in document["rows"] if row["variant"] == "canonical"]
    assert {line["name"]: line["y"] for line in curve["lines"]} == {
        "MLLess": pytest.approx([30, 40, 60]), "AllReduce": pytest.approx([30, 60]), "GPU": pytest.approx([30, 60]),
    }  # fmt: skip
    for line in curve["lines"]:
        (row,) = (row for row in canonical if row["name"] == line["name"])
        minutes = [epoch * epoch_seconds(row) / 60 for epoch in range(1, len(line["y"]) + 1)]
        assert line["x"] == pytest.approx(minutes)


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (("--target", "80"), 2, "0<x<=1"),
        (("--dataset", "digits"), 1, "No curve has mobilenet on digits"),
        (("--accuracy", "nowhere"), 1, "nowhere has no accuracy curves"),
        (("--recordings", "nowhere"), 1, "nowhere has no recordings of Table 2"),
    ],
)
def test_refusals(more: tuple[str, ...], code: int, message: str, slslab: Slslab, inputs: tuple[object, ...]) -> None:
    found, out, err = slslab("reproduce", "table3", *inputs, *more)
    assert (found, out) == (code, "")
    assert message in err
    assert "Traceback" not in err


def test_a_picture_of_another_kind_is_refused_at_once(slslab: Slslab, inputs: tuple[object, ...]) -> None:
    code, _, err = slslab("reproduce", "table3", *inputs, "--plot", "figure.txt")
    assert code == 2
    assert ".svg" in err
