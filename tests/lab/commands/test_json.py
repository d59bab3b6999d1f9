"""What commands print with --json: one object, which says its schema."""

from pathlib import Path

import pytest
from tests.commands import slslab

RUN = Path(__file__).parents[1] / "replay" / "traces" / "allreduce"
PLAIN = {
    "runs": {"runs"},
    f"compare {RUN} {RUN}": {"runs"},
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
    both = slslab("compare", RUN, RUN, "--json").document["runs"]
    assert both == [slslab("show", RUN, "--json").document] * 2
    assert both[0]["schema"] == 2


def test_a_bill_has_a_schema() -> None:
    assert slslab("bill", RUN, "--json").document["schema"] == 1
