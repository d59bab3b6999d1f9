"""MLLess with its filter and without, by hand: epochs × seconds, messages and bytes by the closed form."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from tests.lab.replay.platform import platform
from tests.lab.studies.learnt import write_curve
from tests.lab.studies.setups import setup

from slslab.run.bill import load_book
from slslab_lab.studies.curves import read_curves
from slslab_lab.studies.experiments import Experiment
from slslab_lab.studies.filtering import build
from slslab_lab.studies.replayed_rows import Calibration, EpochTime, Recordings
from slslab_lab.studies.table3 import Learnt

SIZE = 4 * 3_217_226


@dataclass(frozen=True)
class Linear:
    """Recordings with half of the gradients sent. Their epoch lasts 20 s, and 80 s more if all gradients are sent."""

    released: bool = True

    platform = platform()
    calibration = Calibration(0.5, ["a", "b"])
    book = load_book("aws-us-east-1")

    def epoch(self, experiment: Experiment, share: float | None = None) -> EpochTime:
        if experiment.released and not self.released:
            return EpochTime(None, None, reason="it is not recorded")
        sent = 0.5 if share is None else share
        return EpochTime(20 + 80 * sent, 1.0, sent)


def document(directory: Path, target: float | None = None, *, released: bool = True) -> dict[str, Any]:
    learnt = Learnt(read_curves(directory), cast(Recordings, Linear(released)))
    return build(setup("mlless-filter", target=target), learnt)


def cells(found: dict[str, Any], variant: str = "canonical") -> dict[str, dict[str, Any]]:
    return {row["name"]: row["cells"] for row in found["rows"] if row["variant"] == variant}


def test_ratio(tmp_path: Path) -> None:
    """60 % after 2 epochs of 100 s without the filter, and after 3 of 40 s with a quarter of 96 gradients sent."""
    write_curve(tmp_path, "allreduce", [0.5, 0.6])
    write_curve(tmp_path, "mlless", [0.3, 0.5, 0.64, 0.64], sent=24)
    found = document(tmp_path)
    assert json.loads(json.dumps(found)) == found
    assert found["target"] == {"common": 0.6, "chosen": False}
    own = cells(found)
    assert own["without the filter"]["seconds"]["modelled"]["value"] == 200
    assert own["with the filter"]["seconds"]["modelled"]["value"] == 120
    assert (own["without the filter"]["seconds"]["published"], own["with the filter"]["seconds"]["published"]) == (
        "113379", "8667",
    )  # fmt: skip
    ratio = own["without ÷ with"]["ratio"]
    assert ratio["modelled"]["value"] == pytest.approx(200 / 120)
    assert (ratio["published"], ratio["verdict"], ratio["recomputed"][0]["value"][:5]) == ("13", "differs", "13.08")
    assert [own[arm]["epochs"]["measured"]["value"] for arm in ("without the filter", "with the filter")] == [2, 3]
    assert [own[arm]["epoch_seconds"]["modelled"]["value"] for arm in ("without the filter", "with the filter")] == [
        100, 40,
    ]  # fmt: skip
    assert own["without ÷ with"]["change"]["modelled"]["value"] == pytest.approx(-40)
    assert any("allreduce stands for MLLess without a filter" in note for note in found["notes"])


def test_a_target_that_one_does_not_reach(tmp_path: Path) -> None:
    write_curve(tmp_path, "gpu", [0.5, 0.7])
    write_curve(tmp_path, "mlless", [0.3, 0.4], sent=24)
    own = cells(document(tmp_path, 0.7))
    assert own["with the filter"]["seconds"]["modelled"] is None
    ratio = own["without ÷ with"]["ratio"]
    assert (ratio["modelled"], ratio["verdict"], ratio["reason"]) == (
        None, "", "with the filter, 70 % not reached in 2 epochs",
    )  # fmt: skip
    assert own["with the filter"]["epoch_seconds"]["modelled"]["value"] == 40, "the share of the whole curve"


def test_as_released_only_the_filter_differs(tmp_path: Path) -> None:
    """Adam and S3 in both arms, whatever the canonical curves are."""
    write_curve(tmp_path, "gpu", [0.6])
    write_curve(tmp_path, "mlless", [0.1], sent=24)
    write_curve(tmp_path, "mlless", [0.2, 0.6], sent=96, as_released=True, name="released")
    own = cells(document(tmp_path, 0.6), "as released")
    assert own["without ÷ with"]["ratio"]["reason"] == "no curve with the filter"
    filtered = {"filter": "norm-ratio"}
    write_curve(tmp_path, "mlless", [0.4, 0.5, 0.6], sent=24, as_released=True, options=filtered, name="filtered")
    found = document(tmp_path, 0.6)
    own = cells(found, "as released")
    assert own["without ÷ with"]["ratio"]["modelled"]["value"] == pytest.approx(2 * 100 / (3 * 40))
    assert own["with the filter"]["share"]["measured"]["value"] == 25
    assert any("defines but doesn't call" in note for note in found["notes"])
    unrecorded = cells(document(tmp_path, 0.6, released=False), "as released")
    assert unrecorded["without ÷ with"]["ratio"]["reason"] == "it is not recorded"


def test_without_curves_of_both_there_is_a_reason(tmp_path: Path) -> None:
    write_curve(tmp_path, "spirt", [0.9])
    found = document(tmp_path)
    assert found["target"]["common"] is None
    assert cells(found)["without ÷ with"]["ratio"]["reason"] == (
        "no curve without the filter; no curve with the filter"
    )
