"""What replays show, made from documents by hand."""

from typing import Any

from slslab.report.page import Table
from slslab_lab.pages.replay import path


def test_a_critical_path_names_operations_and_the_workers_with_the_most_of_them() -> None:
    def part(op: str, value: float, *workers: tuple[int, float]) -> dict[str, Any]:
        named = [{"worker": worker, "seconds": seconds} for worker, seconds in workers]
        figures = {"seconds": {"value": value}, "share": value / 0.296, "stretches": 1, "workers": named}
        return {"op": op, "phase": "synchronise", **figures}

    parts = [part("object.put", 0.015, (0, 0.015)), part("compute", 0.2, (1, 0.1), (0, 0.05), (-1, 0.03), (2, 0.02))]
    document = {
        "summary": "It is short.",
        "profile": {"name": "round", "date": "2026-11-21"},
        "prices": {"name": "book", "date": "2026-11-21"},
        "seconds": {"value": 0.296, "low": 0.2, "high": 0.4},
        "rows": parts,
        **dict.fromkeys(("network", "oversubscribed", "asynchronous"), None),
    }
    table, *_ = path(document)
    assert isinstance(table, Table)
    assert table.caption == "Critical path, modelled on round: ≈0.296 s, the middle of the range"
    other, *_ = path({**document, "network": "host"})
    assert isinstance(other, Table)
    assert (
        other.caption == "Critical path, modelled on round with the network of host: ≈0.296 s, the middle of the range"
    )
    assert [tuple(row) for row in table.rows] == [
        ("object.put", "synchronise", "≈0.015", "≈5.1 %", "1", "worker 0 (100 %)"),
        (
            "compute",
            "synchronise",
            "≈0.200",
            "≈67.6 %",
            "1",
            "worker 1 (50 %), worker 0 (25 %), no worker (15 %), 1 more",
        ),
    ]
