"""`slslab reproduce table3 | fig4 | mlless-filter` on committed recordings of LeNet and curves made by hand."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

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
        assert minutes == pytest.approx(epochs * found["epoch"]["seconds"] / 60)
    assert rows["ScatterReduce", "canonical"]["epoch"]["reason"] == "the recording mobilenet-scatterreduce is missing"


def test_figure_is_drawn(slslab: Slslab, inputs: tuple[object, ...], tmp_path: Path) -> None:
    code, out, _ = slslab("reproduce", "fig4", *inputs, "--plot", tmp_path / "figure.svg")
    assert (code, (tmp_path / "figure.svg").exists()) == (0, True)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"fig4.json", "fig4.csv", "fig4.html"}
    assert "The paper doesn't print the data of Figure 4" in out
    with (tmp_path / "out" / "fig4.csv").open() as file:
        records = list(csv.DictReader(file))
    document = json.loads((tmp_path / "out" / "fig4.json").read_text())
    seconds = {row["name"]: row["epoch"]["seconds"] for row in document["rows"] if row["variant"] == "canonical"}
    found = [(one["variant"], one["curve"], float(one["accuracy"])) for one in records]
    expected = [("MLLess", (30.0, 40.0, 60.0)), ("AllReduce", (30.0, 60.0)), ("GPU", (30.0, 60.0))]
    assert found == [("canonical", name, one) for name, accuracies in expected for one in accuracies]
    minutes = [epoch * seconds[name] / 60 for name, accuracies in expected for epoch in range(1, len(accuracies) + 1)]
    assert [float(one["minutes"]) for one in records] == pytest.approx(minutes)


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
    code, _, err = slslab("reproduce", "fig4", *inputs, "--plot", "figure.txt")
    assert code == 2
    assert ".svg" in err
