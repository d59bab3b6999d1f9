"""The shape of a run's document, and documents of schema 1, which earlier versions left."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.lab.replay.recordings import TRACES

from slslab.run.document import check_document

FIGURES = ("seconds", "billed_seconds", "cost")

# Recordings are kept as they were written.
KEPT = sorted(Path(__file__).parents[3].glob("results/table2/*/run.json"))
OF_SCHEMA_1 = json.loads((TRACES / "mobilenet-idle" / "run.json").read_text())


def of_schema_2() -> dict[str, Any]:
    """The document of a modelled run, as it is left today."""
    found = check_document(OF_SCHEMA_1)
    ranges = {name: {"low": 1.0, "high": 2.0} for name in FIGURES}
    uncertainty = {name: {"shared": {"dense work on Lambda": 0.1}, "own": {"the replay": 0.06}} for name in FIGURES}
    return found | {"lambda": found["lambda"] | {"ranges": ranges, "uncertainty": uncertainty}}


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.parent.name)
def test_kept_recordings_of_schema_1_are_read_as_of_schema_2(path: Path) -> None:
    written = json.loads(path.read_text())
    found = check_document(written)
    assert (written["schema"], found["schema"]) == (1, 2)
    assert found["lambda"] == written["modelled"]
    assert found["lambda"]["seconds"] == written["seconds"].pop("modelled")
    assert found["seconds"] == written["seconds"]
    moved = {"schema", "lambda", "modelled", "seconds"}
    assert {k: v for k, v in found.items() if k not in moved} == {k: v for k, v in written.items() if k not in moved}
    assert check_document(found) == found


def test_every_architecture_of_table_2_has_kept_recordings() -> None:
    """Two models of each; as the authors released them, too, except the GPU baseline."""
    functions = {"allreduce", "mlless", "scatterreduce", "spirt"}
    variants = {"gpu"} | functions | {f"{name}-as-released" for name in functions}
    assert {path.parent.name for path in KEPT} == {
        f"{model}-{variant}" for model in ("mobilenet", "resnet18") for variant in variants
    }


def test_a_run_of_before_there_were_models_says_so() -> None:
    before = {name: value for name, value in OF_SCHEMA_1.items() if name != "modelled"}
    found = check_document(before)["lambda"]
    assert found["status"] == "not modelled"
    assert "run `slslab replay`" in found["reason"]


def test_a_document_of_schema_2_is_what_it_was() -> None:
    document = of_schema_2()
    assert check_document(document) == document
    reason = {"status": "not modelled", "reason": "It has no end."}
    assert check_document(document | {"lambda": reason})["lambda"] == reason


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"schema": 3}, "schema"),
        ({"schema": "2"}, "schema"),
        ({"lambda": {"status": "modelled"}}, "lambda"),
        ({"lambda": {"status": "not modelled"}}, "lambda"),
        ({"lambda": None}, "lambda"),
        ({"seconds": None}, "seconds"),
        ({"seconds": {"span": 1.0}}, "seconds"),
    ],
)
def test_what_is_not_of_schema_2_is_refused(changes: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError) as caught:
        check_document(of_schema_2() | changes)
    assert {error["loc"][0] for error in caught.value.errors()} == {place}


@pytest.mark.parametrize(
    "changes", [{"ranges": {"seconds": {"low": 1.0}}}, {"ranges": None}, {"uncertainty": {"seconds": {"own": {}}}}]
)
def test_a_range_has_both_ends_and_its_deviations(changes: dict[str, Any]) -> None:
    document = of_schema_2()
    with pytest.raises(ValidationError, match="lambda"):
        check_document(document | {"lambda": document["lambda"] | changes})


def test_a_document_without_the_run_on_lambda_is_refused() -> None:
    document = {name: value for name, value in of_schema_2().items() if name != "lambda"}
    with pytest.raises(ValidationError, match="lambda"):
        check_document(document)


@pytest.mark.parametrize(
    "changes", [{"modelled": None}, {"modelled": []}, {"seconds": []}, {"modelled": {"status": 1}}]
)
def test_damage_in_schema_1_is_found(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        check_document(OF_SCHEMA_1 | changes)


def test_the_error_that_earlier_versions_stated_is_ignored() -> None:
    """As documents had it before there were ranges."""
    document = of_schema_2()
    stated = document | {"lambda": document["lambda"] | {"error": {"seconds": {"mean": 0.13, "worst": 0.25}}}}
    assert check_document(stated) == stated
