"""Lists of operations: complete, by botocore's model, and what they say is what the service answers."""

import json
import re
from pathlib import Path

import pytest
from docs.pages.markdown import BEGIN, END, insert, render
from docs.pages.operations import describe_operations, lambda_operations

from slslab.aws.keys import OWNER
from slslab.aws.limits import lambda_limits
from slslab.aws.requests import own_models
from slslab.statemachines.api import OPERATIONS, StatesApi
from slslab.statemachines.executions import Machines

PAGE = Path(__file__).parents[2] / "docs" / "services.md"


def listed(text: str) -> dict[str, str]:
    """Return the title of the list in which each operation stands."""
    found: dict[str, str] = {}
    for title, rest in re.findall(r"^\*\*(.+?)\*\*(.*?)(?=^\*\*|\Z)", text, re.MULTILINE | re.DOTALL):
        for operation in re.findall(r"`(\w+)`", re.sub(r"with `\w+`", "", rest)):
            assert operation not in found
            found[operation] = title
    return found


def test_every_operation_stands_there_once() -> None:
    operations = own_models().load_service_model("stepfunctions", "service-2")["operations"]
    notes = {"StopExecution": "note", "ListExecutions": "other"}
    text = render(describe_operations("stepfunctions", OPERATIONS, "`X`", notes))
    titles = listed(text)
    assert sorted(titles) == sorted(operations)
    assert titles["StartExecution"] == "Emulated"
    assert "**Emulated, with a difference**:\n\n- `ListExecutions`: other\n- `StopExecution`: note\n" in text
    assert titles["RedriveExecution"] == "Refused"
    assert "**Refused** with `X`: " in text


@pytest.mark.parametrize(
    ("emulated", "notes", "problem"),
    [
        (["Nothing"], {}, "has no operation Nothing"),
        ([], {"TestState": "note"}, "TestState is not emulated"),
    ],
)
def test_names_that_do_not_fit(emulated: list[str], notes: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        list(describe_operations("stepfunctions", emulated, "", notes))


def test_a_page_without_marks_is_refused() -> None:
    begin, end = BEGIN.format("part"), END.format("part")
    with pytest.raises(ValueError, match="lacks the marks <!-- part"):
        insert("# Page\n", "part", "new")
    assert insert(f"# Page\n{begin}\nold\n{end}\nafter\n", "part", "new") == f"# Page\n{begin}\n\nnew\n\n{end}\nafter\n"


def test_what_the_page_calls_refused_is_refused_and_nothing_else() -> None:
    api = StatesApi(Machines(lambda_limits(), lambda _record: None))
    begin, end = BEGIN.format("stepfunctions"), END.format("stepfunctions")
    here = listed(PAGE.read_text().partition(begin)[2].partition(end)[0])
    for operation in own_models().load_service_model("stepfunctions", "service-2")["operations"]:
        status, document = api._call(operation, json.dumps({}).encode(), OWNER)
        refused = document.get("__type") == "UnknownOperationException"
        assert refused == here[operation].startswith("Refused")
        assert status == 200 if operation == "ListStateMachines" else status == 400
        assert not refused or operation in document["message"]


def test_lambdas_operations_are_those_of_all_groups() -> None:
    assert {"CreateFunction", "Invoke", "PublishLayerVersion", "CreateFunctionUrlConfig"} <= set(lambda_operations())
    assert len(lambda_operations()) == len(set(lambda_operations()))
