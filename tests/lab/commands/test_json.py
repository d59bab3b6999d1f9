"""What commands print with --json: one object, which says its schema."""

import re
from pathlib import Path

import pytest
from tests.commands import slslab

RUN = Path(__file__).parents[1] / "replay" / "traces" / "allreduce"
OTHER = RUN.parent / "spirt"
PLAIN = {
    "runs": {"runs"},
    f"compare {RUN} {OTHER}": {"runs"},
    "doctor": {"findings"},
    "limits": {"version", "limits", "without_effect"},
    f"report {RUN} --out page.html": {"run", "report", "bytes"},
    "status --stack embedded": {"up", "endpoints"},
}


@pytest.mark.parametrize("command", PLAIN)
def test_a_document_without_a_version_of_its_own_has_schema_1(command: str, tmp_path: Path) -> None:
    variables = {"SLSLAB_RUNS": str(RUN.parent), "SLSLAB_STATE": str(tmp_path / "state")}
    document = slslab(*command.split(), "--json", variables=variables, directory=tmp_path).printed
    assert document.keys() == {"schema"} | PLAIN[command]
    assert document["schema"] == 1


def test_a_list_is_of_documents_as_show_prints_them() -> None:
    both = slslab("compare", RUN, OTHER, "--json").document["runs"]
    assert both == [slslab("show", run, "--json").document for run in (RUN, OTHER)]
    assert both[0]["schema"] == 2


def test_a_bill_names_the_book_that_it_is_priced_by() -> None:
    assert re.search(
        r"^Prices: paper-2025 of \d{4}-\d\d-\d\d\.$", slslab("bill", RUN, "--prices", "paper-2025").out, re.M
    )


def test_a_bill_has_a_schema() -> None:
    assert slslab("bill", RUN, "--json").document["schema"] == 1
