"""Published rows next to a run's own figures, calculated by hand."""

from pathlib import Path
from typing import Any

import pytest

from slslab_lab.pages import published
from slslab_lab.pages.published import find_published, own_figures, published_card

PAPER = """
schema = 1
name = "a-paper"
title = "A Paper"
authors = "A. Author"
published = "2025"

[tables.table2]
title = "Per epoch"
source = "Table 2"
units = { function_seconds = "s", memory_mb = "MB", total_cost = "USD", other = "s" }
inputs = { dataset = "CIFAR-10", workers = 4, batches = 3 }

[[tables.table2.rows]]
name = "SPIRT"
inputs = { architecture = "spirt", model = "ResNet-18" }
published = { function_seconds = 28.55, memory_mb = 3200, total_cost = 0.1460, other = 1 }

[[tables.table2.rows]]
name = "MLLess"
inputs = { architecture = "mlless", model = "ResNet-18" }
published = { other = 1 }
"""


@pytest.fixture(autouse=True)
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a-paper.toml"
    path.write_text(PAPER)
    monkeypatch.setattr(published, "paper_names", lambda: (str(path),))


def document(**more: Any) -> dict[str, Any]:
    """2 workers of 12 s in handlers, 2 epochs of 3 minibatches."""
    lines = [{"item": "Lambda duration, x86_64", "amount": "0.24"}, {"item": "S3 PUT requests", "amount": "9"}]
    phases = {"init": 5.0, "compute": 10.0, "wait": 2.0}
    return {
        "architecture": "spirt", "model": "resnet18", "dataset": "cifar10", "workers": 2, "batches": 3, "epochs": 9,
        "epochs_trained": 2, "peak_memory_mb": 1500, "cost": {"lines": lines},
        "per_worker": [{"worker": 0, "phases": phases}, {"worker": 1, "phases": phases}],
    } | more  # fmt: skip


def test_figures_are_means_over_workers_epochs_and_minibatches() -> None:
    found = own_figures(document())
    assert all(modelled is None for _, modelled in found.values())
    assert {column: measured for column, (measured, _) in found.items()} == pytest.approx(
        {
            "function_seconds": 24 / 12,
            "epoch_seconds": 24 / 4,
            "memory_mb": 1500,
            "function_cost": 0.02,
            "worker_cost": 0.06,
            "total_cost": 0.12,
        }
    )
    modelled = {
        "status": "modelled", "per_worker": [{"seconds": 30.0}, {"seconds": 6.0}],
        "cost": {"lines": [{"item": "Lambda duration, x86_64", "amount": "0.36"}]},
    }  # fmt: skip
    found = own_figures(document(**{"lambda": modelled}))
    assert found["function_seconds"][1] == pytest.approx(3)
    assert found["total_cost"][1] == pytest.approx(0.18)


def test_instances_are_what_an_instance_costs() -> None:
    found = own_figures(document(cost={"lines": [{"item": "Host g4dn.xlarge", "amount": "0.24"}]}))
    assert found["worker_cost"][0] == pytest.approx(0.06)


def test_a_row_is_found_by_architecture_and_model() -> None:
    assert [match.row.name for match in find_published(document())] == ["SPIRT"]
    assert find_published(document(model="mobilenet")) == []


def test_the_card_has_what_can_be_compared_and_says_what_differs() -> None:
    card = published_card(document())
    assert card is not None
    [table] = card.tables
    assert [tuple(row) for row in table.rows] == [
        ("time of a function, a minibatch, s", "28.55", "–", "2.000"),
        ("memory, MB", "3200", "–", "1,500"),
        ("duration's cost, an epoch, USD", "0.1460", "–", "0.1200"),
    ]
    assert card.notes == ("Table 2 is of 4 workers: compare ratios before amounts.",)


def test_there_is_no_card_without_comparable_numbers() -> None:
    assert published_card(document(architecture="mlless")) is None
    assert published_card({"architecture": "spirt", "model": "resnet18"}) is None
