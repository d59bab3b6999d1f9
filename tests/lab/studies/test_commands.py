"""`slslab reproduce table2` on the project's own recordings, and what it refuses."""

import csv
import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from slslab_lab.studies import table2
from slslab_lab.studies.experiments import Experiment, Sets
from slslab_lab.studies.study import Setup

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module", autouse=True)
def build_once() -> Iterator[None]:
    """Build the table of the same recordings once."""
    built: dict[tuple[Experiment, ...], Any] = {}
    build = table2.build

    def build_or_copy(setup: Setup, runs: Sets) -> Any:
        key = tuple(runs[0])
        if key not in built:
            built[key] = build(setup, runs)
        return deepcopy(built[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table2, "build", build_or_copy)
        yield


def test_recordings_are_replayed(slslab: Run, tmp_path: Path) -> None:
    code, out, err = slslab("reproduce", "table2", "--fidelity", "replayed", "--model", "mobilenet", "--json")
    document = json.loads(out)
    assert code == 0
    assert {row["group"] for row in document["rows"]} == {"MobileNet"}
    assert {row["variant"] for row in document["rows"]} == {"canonical", "as released"}
    published = {row["name"]: row["cells"]["epoch_seconds"]["published"] for row in document["rows"]}
    assert published == {
        "SPIRT": "370.56", "ScatterReduce": "344.23", "AllReduce": "345.17", "MLLess": "1666.20", "GPU": "92.00",
    }  # fmt: skip
    saved = tmp_path / "runs" / "reproduce-table2-replayed"
    assert json.loads((saved / "table2.json").read_text()) == document
    with (saved / "table2.csv").open() as file:
        records = list(csv.DictReader(file))
    assert {record["row"] for record in records} == published.keys()
    assert "<title>" in (saved / "table2.html").read_text()
    assert "Saved: " in err


def test_printed(slslab: Run) -> None:
    code, out, _ = slslab("reproduce", "table2", "--fidelity", "replayed", "--model", "mobilenet")
    assert code == 0
    assert len(out.splitlines()) <= 20
    assert out.rstrip().endswith("Every figure: --full, or the page")
    code, out, _ = slslab("reproduce", "table2", "--fidelity", "replayed", "--model", "mobilenet", "--full")
    assert "Ranking: cost of an epoch, MobileNet (USD)" in out
    assert "ResNet-18" not in out


def test_refusals(slslab: Run, tmp_path: Path) -> None:
    code, _, err = slslab("reproduce", "table2", "--recordings", str(tmp_path))
    assert code == 2
    assert "--recordings needs --fidelity replayed." in err
    code, _, err = slslab("reproduce", "table2", "--fidelity", "replayed", "--recordings", str(tmp_path))
    assert code == 1
    assert f"{tmp_path} has no recordings of Table 2." in err
    assert "Hint: record them with --fidelity sampled." in err
    code, _, err = slslab("reproduce", "table2", "--batches", "2")
    assert code == 2
    assert "not in the range" in err
