"""`slslab logs`: what the functions of a run wrote."""

import shutil
from pathlib import Path

import pytest
from tests.commands import slslab

RECORDED = Path(__file__).parents[2] / "lab" / "replay" / "traces" / "allreduce"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    shutil.copytree(RECORDED, directory)
    logs = directory / "logs"
    logs.mkdir()
    (logs / "worker-0002.log").write_bytes(b"START\nno\xff text\nlast")
    (logs / "worker-0001.log").write_text("START\n\n")
    (logs / "supervisor-10000.log").write_text("of another\n")
    (logs / "i-0ab1.log").write_text("of an instance\n")
    return directory


def test_every_line_tells_its_environment(run: Path) -> None:
    assert slslab("logs", run).out == (
        "i-0ab1  of an instance\n"
        "supervisor-10000  of another\n"
        "worker-0001  START\n"
        "worker-0001  \n"
        "worker-0002  START\n"
        "worker-0002  no\N{REPLACEMENT CHARACTER} text\n"
        "worker-0002  last\n"
    )


def test_a_function_has_its_environments_and_an_environment_itself(run: Path) -> None:
    found = slslab("logs", run, "worker", "--json").document
    assert {name: found[name] for name in ("schema", "run")} == {
        "schema": 1,
        "run": "20261121-204856-allreduce-lenet-0f1b",
    }
    assert found["logs"] == [
        {"function": "worker", "environment": "worker-0001", "text": "START\n\n"},
        {"function": "worker", "environment": "worker-0002", "text": "START\nno\N{REPLACEMENT CHARACTER} text\nlast"},
    ]
    assert slslab("logs", run, "worker-0002").out == "START\nno\N{REPLACEMENT CHARACTER} text\nlast\n"
    assert slslab("logs", run, "supervisor").out == "of another\n"


def test_escape_sequences_of_functions_are_printed_as_such(run: Path) -> None:
    written = "\x1b]0;title\x07\x1b[2Jgone\rover\ttab \x9b31m\x7f\n"
    (run / "logs" / "worker-0001.log").write_bytes(written.encode())
    said = slslab("logs", run, "worker-0001")
    assert said.out == "\\x1b]0;title\\x07\\x1b[2Jgone\nover\ttab \\x9b31m\\x7f\n"
    document = slslab("logs", run, "worker-0001", "--json").document
    assert document["logs"][0]["text"] == written.replace("\r", "\n")


def test_what_is_not_there_is_one_sentence(run: Path) -> None:
    wrong = slslab("logs", run, "work")
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err == (
        "Error: 20261121-204856-allreduce-lenet-0f1b has no logs of 'work'.\n"
        "Hint: choose from i-0ab1, supervisor, worker.\n"
    )
    none = slslab("logs", RECORDED)
    assert (none.code, none.out) == (2, "")
    assert none.err.startswith("Error: 20261121-204856-allreduce-lenet-0f1b has no logs.\nHint: ")
