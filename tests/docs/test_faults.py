"""The fault table: committed whole, and what it says."""

import json
from pathlib import Path
from typing import Any

import pytest
from docs.pages.faults import build, survived
from docs.pages.markdown import render
from tests import fault_table

from slslab_lab.runs.planning import architectures


@pytest.fixture(scope="module")
def document() -> Any:
    return json.loads(fault_table.DATA.read_text(encoding="utf-8"))


def test_every_fault_has_its_cell_in_every_phase_of_every_system(document: Any) -> None:
    cells = [(cell["fault"], cell["system"], cell["phase"]) for cell in document["cells"]]
    assert cells == list(fault_table.keys())
    assert {one["system"] for one in document["without"]} == set(fault_table.SYSTEMS)
    assert {system.partition("/")[0] for system in fault_table.SYSTEMS} == set(architectures())
    assert document["run"] == fault_table.RUN
    assert document["systems"] == {name: [*values] for name, values in fault_table.SYSTEMS.items()}


def test_what_cannot_be_is_said_and_all_else_ran_within_its_bound(document: Any) -> None:
    ran = [cell for cell in document["cells"] if cell["status"] != "not applicable"]
    assert all(cell["reason"] for cell in document["cells"] if cell not in ran)
    assert len(ran) > 200
    assert all(cell["times"] and cell["seconds"] < fault_table.BOUND_S for cell in ran)
    # Every architecture met every kind that can be there: instances have no limits of Lambda's, four have no queue.
    kinds = {(cell["system"], cell["fault"].partition(" ")[0]) for cell in ran}
    for system in fault_table.SYSTEMS:
        assert (system, "kill") in kinds or "/" in system
        assert ((system, "out-of-memory") in kinds) == ((system, "throttle") in kinds)


def cell(system: str, phase: str, status: str, **more: Any) -> dict[str, Any]:
    made = {"fault": "kill", "system": system, "phase": phase, "status": status, "seconds": 7.0, **more}
    return made if status == "not applicable" else {"billed_seconds": 1.0, "usd": 1e-6, **made}


def test_the_table_says_where_phases_differ_and_what_was_lost(tmp_path: Path) -> None:
    cells = [
        cell("one", "fetch", "survived", equal=True, billed_seconds=0.25),
        cell("one", "update", "failed"),
        cell("one", "wait", "not applicable", reason="no worker has such a phase"),
        cell("two", "fetch", "survived", equal=True),
        cell("two", "update", "survived", equal=False),
        cell("two/more", "fetch", "not applicable", reason="no worker has such a phase"),
    ]
    without = [{"system": name, "billed_seconds": [3.0, 4.0, 6.0], "usd": [1e-5] * 3} for name in ("one", "two")]
    document = {
        "run": fault_table.RUN, "command": "make fault-table", "date": "2026-11-25", "seconds": 120, "worker": 0,
        "bound_seconds": 100, "systems": {"one": [], "two": [], "two/more": []}, "without": without, "cells": cells,
    }  # fmt: skip
    path = tmp_path / "faults.json"
    path.write_text(json.dumps(document))
    text = render(build(path))
    words = " ".join(text.split())
    assert "3 of 4 runs that met a fault finished, 2 of them with the parameters of a run without faults" in words
    assert "1 ended with a sentence" in words
    assert "| `kill` | equal: fetch; ends: update | equal: fetch; continues: update |" in text
    assert "| none | 3.0 to 6.0 s | 3.0 to 6.0 s |" in text
    assert "| `kill` | +0.2 s, $1.0e-06; 5.0 s, $1.1e-05 lost | +1.0 s, $1.0e-06 |" in text
    assert survived(path) == {"one": "0 of 1", "two": "1 of 1"}
