"""Tables of operations: complete, by botocore's model, and what they say is what the service answers."""

import json
from pathlib import Path

import pytest
from docs.pages.operations import BEGIN, END, describe_operations, insert_operations, lambda_operations

from slslab.aws.keys import OWNER
from slslab.aws.limits import lambda_limits
from slslab.aws.requests import own_models
from slslab.statemachines.api import OPERATIONS, StatesApi
from slslab.statemachines.executions import Machines

PAGE = Path(__file__).parents[2] / "docs" / "services.md"


def test_every_operation_stands_there_once() -> None:
    operations = own_models().load_service_model("stepfunctions", "service-2")["operations"]
    lines = describe_operations("stepfunctions", OPERATIONS, "`X`", {"TestState": "why"}, {"StopExecution": "note"})
    rows = dict(line.strip("| ").split(" | ") for line in lines.splitlines()[2:])
    assert [*rows] == [f"`{operation}`" for operation in sorted(operations)]
    assert rows["`StartExecution`"] == "emulated"
    assert rows["`StopExecution`"] == "emulated: note"
    assert rows["`TestState`"] == "kept without effect: why"
    assert rows["`RedriveExecution`"] == "refused: `X`"


@pytest.mark.parametrize(
    ("emulated", "stored", "notes", "problem"),
    [
        (["Nothing"], {}, {}, "has no operation Nothing"),
        (["TestState"], {"TestState": "why"}, {}, "TestState is not emulated, or stored as well"),
        ([], {}, {"TestState": "note"}, "TestState is not emulated"),
    ],
)
def test_names_that_do_not_fit(
    emulated: list[str], stored: dict[str, str], notes: dict[str, str], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        describe_operations("stepfunctions", emulated, "", stored, notes)


def test_a_page_without_marks_is_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    with pytest.raises(ValueError, match=r"page\.md lacks the marks"):
        insert_operations(page, "stepfunctions", [], "")
    page.write_text(f"# Page\n{BEGIN}\nold\n{END}\nafter\n")
    built = insert_operations(page, "stepfunctions", OPERATIONS, "`X`")
    assert built.startswith(f"# Page\n{BEGIN}\n\n| operation | here |\n")
    assert built.endswith(f"\n\n{END}\nafter\n")


def test_what_the_page_calls_refused_is_refused_and_nothing_else() -> None:
    api = StatesApi(Machines(lambda_limits(), lambda _record: None))
    table = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    here = {name.strip("`"): what for name, what in rows}
    for operation in own_models().load_service_model("stepfunctions", "service-2")["operations"]:
        status, document = api._call(operation, json.dumps({}).encode(), OWNER)
        refused = document.get("__type") == "UnknownOperationException"
        assert refused == here[operation].startswith("refused: ")
        assert status == 200 if operation == "ListStateMachines" else status == 400
        assert not refused or operation in document["message"]


def test_lambdas_operations_are_those_of_all_groups() -> None:
    assert {"CreateFunction", "Invoke", "PublishLayerVersion", "CreateFunctionUrlConfig"} <= set(lambda_operations())
    assert len(lambda_operations()) == len(set(lambda_operations()))


def test_an_operation_may_be_refused_with_an_error_of_its_own() -> None:
    table = describe_operations("lambda", (), "`All`", {}, {}, {"Invoke": "`Own`"})
    assert "| `Invoke` | refused: `Own` |" in table
    assert "| `GetPolicy` | refused: `All` |" in table
