"""Time to accuracy by hand: epochs of curves × seconds of an epoch, what is not reached, and the orders."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rich.console import Console
from tests.lab.replay.platform import platform
from tests.lab.studies.learnt import write_curve
from tests.lab.studies.setups import setup

from slslab.report.terminal import render
from slslab.run.bill import load_book
from slslab_lab.pages.reproduction import reproduction
from slslab_lab.studies import table3
from slslab_lab.studies.curves import read_curves
from slslab_lab.studies.experiments import Experiment
from slslab_lab.studies.replayed_rows import Calibration, EpochTime, Recordings
from slslab_lab.studies.saving import cells
from slslab_lab.studies.table3 import Learnt

# Seconds of an epoch; one as released is half as long again. USD are a thousandth.
SECONDS = {"spirt": 60.0, "mlless": 240.0, "scatterreduce": 120.0, "allreduce": 90.0, "gpu": 30.0}


class Recorded(Recordings):
    """Recordings of all rows with these seconds, or with this reason of none."""

    reason: ClassVar[str] = ""

    def epoch(self, experiment: Experiment, share: float | None = None) -> EpochTime:
        if self.reason:
            return EpochTime(None, None, reason=self.reason)
        seconds = SECONDS[experiment.architecture]
        return EpochTime(seconds * (1.5 if experiment.released else 1), seconds / 1000, 1.0 if share is None else share)


class Unrecorded(Recorded):
    """Nothing was recorded."""

    reason = "not recorded"


def build(directory: Path, target: float | None = None, recorded: type[Recorded] = Recorded) -> dict[str, Any]:
    """Table 3 of the curves in a directory."""
    recordings = recorded({}, platform(), Calibration(0.5, ["a", "b"]), load_book("aws-us-east-1"))
    return table3.build(setup("table3", target=target), Learnt(read_curves(directory), recordings))


def write_curves(directory: Path) -> Path:
    """SPIRT reaches 32 % in four epochs, MLLess 82 % in three, the mean 81 % in two, the sum 85 % at once."""
    write_curve(directory, "spirt", [0.1, 0.2, 0.3, 0.32])
    write_curve(directory, "mlless", [0.3, 0.6, 0.82], sent=24, ended="patience")
    write_curve(directory, "allreduce", [0.4, 0.81])
    write_curve(directory, "allreduce", [0.85], as_released=True, name="allreduce-as-released")
    return directory


def rows(document: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["name"], row["variant"]): row for row in document["rows"]}


def values(document: Mapping[str, Any], column: str, basis: str) -> dict[tuple[str, str], Any]:
    found = {name: row["cells"][column][basis] for name, row in rows(document).items()}
    return {name: one and pytest.approx(one["value"]) for name, one in found.items()}


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Table 3 of all progressions, for the target that they share."""
    return build(write_curves(tmp_path_factory.mktemp("curves")))


def test_products(document: dict[str, Any]) -> None:
    assert json.loads(json.dumps(document)) == document
    expected = {
        ("SPIRT", "canonical"): None,
        ("MLLess", "canonical"): 3 * 240 / 60,
        ("ScatterReduce", "canonical"): 2 * 120 / 60,
        ("ScatterReduce", "as released"): 2 * 180 / 60,
        ("AllReduce", "canonical"): 2 * 90 / 60,
        ("AllReduce", "as released"): 135 / 60,
        ("GPU", "canonical"): 2 * 30 / 60,
    }
    assert values(document, "minutes", "modelled") == expected
    assert values(document, "epochs", "measured")["MLLess", "canonical"] == 3
    assert values(document, "steps", "measured")["GPU", "canonical"] == 48
    assert values(document, "seconds", "modelled")["AllReduce", "canonical"] == 180
    assert values(document, "whole_minutes", "modelled")["SPIRT", "canonical"] == 4
    assert values(document, "accuracy", "measured")["SPIRT", "canonical"] == 32


def test_epochs_have_the_share_that_the_curve_sent(document: dict[str, Any]) -> None:
    """24 of 96 gradients in each epoch; what has no filter has no share of its own, and no curve no row as released."""
    shares = [note for note in document["notes"] if "of the gradients" in note]
    assert [note.partition(" of the gradients")[0] for note in shares] == ["MLLess (canonical): an epoch sends 25.0 %"]
    assert ("SPIRT", "as released") not in rows(document)


def test_what_is_not_reached_has_a_reason_and_no_figure(document: dict[str, Any]) -> None:
    found = rows(document)["SPIRT", "canonical"]["cells"]["minutes"]
    assert (found["modelled"], found["difference"], found["verdict"]) == (None, None, "")
    assert (found["published"], found["reason"]) == ("84.96", "80 % not reached in 4 epochs")


def test_the_common_target(document: dict[str, Any]) -> None:
    """All four curves reach 30 %, SPIRT in three epochs with three updates."""
    assert document["target"] == {"published": 0.8, "common": 0.3, "chosen": False}
    assert values(document, "common_minutes", "modelled")["SPIRT", "canonical"] == 3
    assert values(document, "common_minutes", "modelled")["MLLess", "canonical"] == 4
    updates = values(document, "common_updates", "measured")
    assert (updates["SPIRT", "canonical"], updates["GPU", "canonical"]) == (3, 24)
    assert values(document, "common_cost", "modelled")["SPIRT", "canonical"] == pytest.approx(0.18)


def test_a_chosen_target(tmp_path: Path) -> None:
    document = build(write_curves(tmp_path), 0.5)
    assert document["target"]["chosen"]
    found = rows(document)
    assert found["SPIRT", "canonical"]["cells"]["common_minutes"]["reason"] == "50 % not reached in 4 epochs"
    assert values(document, "common_epochs", "measured")["MLLess", "canonical"] == 2
    assert not any("--target" in note for note in document["notes"])


def test_recomputed_are_chapter_13s(document: dict[str, Any]) -> None:
    found = rows(document)
    epochs = found["SPIRT", "canonical"]["cells"]["epochs"]["recomputed"]
    assert {one["way"]: round(float(one["value"]), 2) for one in epochs} == {"sequential": 13.76, "in_parallel": 330.16}
    assert found["GPU", "canonical"]["cells"]["seconds"]["recomputed"][0]["value"] == "4219.8"


def test_orders(document: dict[str, Any]) -> None:
    accuracy, time, common = document["rankings"]
    assert [name for name, _ in accuracy["published"]] == ["AllReduce", "GPU", "MLLess", "SPIRT", "ScatterReduce"]
    assert [name for name, _ in accuracy["measured, canonical"]] == [
        "MLLess", "AllReduce", "GPU", "ScatterReduce", "SPIRT",
    ]  # fmt: skip
    assert accuracy["measured, as released"][0][0] == "AllReduce"
    assert "AllReduce, GPU, ScatterReduce are equal" in accuracy["reason"]
    assert "a step is 4 times as large, as with a learning rate of 0.04" in accuracy["reason"]
    assert time["modelled, canonical"] == [["GPU", 1], ["AllReduce", 3], ["ScatterReduce", 4], ["MLLess", 12]]
    assert "SPIRT takes more than 1.33 times as long as AllReduce" in time["reason"]
    assert [name for name, _ in common["modelled, canonical"]][:2] == ["GPU", "AllReduce"]
    assert {one["verdict"] for one in (accuracy, time, common)} == {"differs"}


def test_sharing_is_told(document: dict[str, Any]) -> None:
    (shared,) = (note for note in document["notes"] if "equal in every bit (tests/workers/architectures/" in note)
    assert shared.startswith(
        "Curve allreduce, of ScatterReduce (canonical), ScatterReduce (as released), AllReduce (canonical), GPU "
    )
    lines = {picture["title"]: [line["name"] for line in picture["lines"]] for picture in document["curves"]}
    every = ["SPIRT", "MLLess", "ScatterReduce", "AllReduce", "GPU"]
    assert lines == {
        "Accuracy by epoch, canonical": ["SPIRT", "MLLess", "ScatterReduce, AllReduce, GPU"],
        "Accuracy by epoch, as released": ["SPIRT", "MLLess", "ScatterReduce, GPU", "AllReduce"],
        "Accuracy by time, canonical": every,
        "Accuracy by time, as released": every,
    }


def test_missing_curves_and_recordings(tmp_path: Path) -> None:
    alone = write_curve(tmp_path / "alone", "spirt", [0.9]).parents[1]
    document = build(alone, recorded=Unrecorded)
    found = rows(document)
    assert len(found) == 5
    assert found["SPIRT", "canonical"]["cells"]["minutes"]["reason"] == "not recorded"
    assert found["SPIRT", "canonical"]["cells"]["epochs"]["measured"]["value"] == 1
    assert found["GPU", "canonical"]["cells"]["accuracy"]["reason"] == "gpu, canonical has no curve"
    assert {one["verdict"] for one in document["rankings"]} == {"cannot be told"}


def test_printed_and_saved(document: dict[str, Any]) -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render(reproduction(document)))
    text = console.export_text()
    assert "330.1554" in text, "of SPIRT's epochs there is only what is recomputed"
    assert "80 % not reached in 4 epochs" in text
    assert {one["column"] for one in cells(document)} == {column["name"] for column in document["columns"]}
