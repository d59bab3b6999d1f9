"""Plans: what they refuse, and that they travel through JSON and TOML unchanged."""

import json
import tomllib
from typing import Any

import pytest
import tomli_w

from slslab_workers.plan import Assignment, Plan, PlanError

DOCUMENT: dict[str, Any] = {
    "run": "r",
    "architecture": "allreduce",
    "model": "lenet",
    "dataset": "digits",
    "batch_size": 64,
    "batches": 5,
    "memory_mb": 1024,
}


@pytest.mark.parametrize(
    "more", [{}, {"until_accuracy": 0.5, "options": {"combine": "sum", "x": 1.5, "y": True}}, {"lr": 1}]
)
def test_plan_travels_unchanged(more: dict[str, Any]) -> None:
    plan = Plan.from_document(DOCUMENT | more)
    assert Plan.from_document(json.loads(json.dumps(plan.to_document()))) == plan
    assert Plan.from_document(tomllib.loads(tomli_w.dumps(plan.to_document()))) == plan
    assert ("until_accuracy" in plan.to_document()) == ("until_accuracy" in more)


def test_assignment_travels_unchanged() -> None:
    assignment = Assignment(Plan.from_document(DOCUMENT), "bucket", 3, 5, 10, False)
    assert Assignment.from_event(json.loads(json.dumps(assignment.to_event()))) == assignment


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"workers": 0}, "workers is 0"),
        ({"workers": "4"}, "workers is '4'"),
        ({"workers": True}, "workers is True"),
        ({"batches": 2.0}, "batches is 2.0"),
        ({"seed": -1}, "seed is -1"),
        ({"memory_mb": 0}, "--memory is 0"),
        ({"timeout": 0}, "--timeout is 0"),
        ({"lr": 0.0}, "lr is 0.0"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"momentum": -0.1}, "momentum is -0.1"),
        ({"platform": "modal-t4", "stack": "compose"}, "Functions of a --platform are processes of this host"),
        ({"platform": "modal-t4", "environment": "docker"}, "Functions of a --platform are processes of this host"),
        ({"mode": "fast"}, "no mode 'fast'"),
        ({"mode": "per-batch", "invoke": "event"}, "must wait for each"),
        ({"memory_format": "channels_last"}, "no memory format 'channels_last'"),
        ({"until_accuracy": 80.0}, "--until-accuracy is 80.0"),
        ({"until_accuracy": 0.8, "evaluation": False}, "can only stop early if"),
        ({"until_accuray": 0.8}, "no field 'until_accuray'"),
    ],
)
def test_wrong_plans_are_refused_with_a_hint(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError) as refused:
        Plan.from_document(DOCUMENT | wrong)
    assert says in refused.value.message
    assert refused.value.hint.endswith(".")


def test_a_plan_written_before_there_were_memory_formats_has_the_default() -> None:
    assert "memory_format" not in DOCUMENT
    assert Plan.from_document(DOCUMENT).memory_format == "default"


def test_missing_field_is_named() -> None:
    with pytest.raises(PlanError, match="has no model"):
        Plan.from_document({name: value for name, value in DOCUMENT.items() if name != "model"})
