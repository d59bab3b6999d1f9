"""`slslab check`: recordings hold, runs that did not come to their end, and what the command prints."""

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.commands import slslab
from tests.lab.checks.planting import OWN, TABLE1, recorded
from tests.lab.checks.plants import PLANTS
from tests.lab.replay.recordings import TRACES, write_log

from slslab.report.page import Table
from slslab.run.directory import RunDirectory
from slslab.run.run import read_run
from slslab_lab.checks.run import RULES, check
from slslab_lab.pages.check import checked

ROOT = Path(__file__).parents[3]
RECORDINGS = sorted(path.parent for folder in (OWN, TRACES, ROOT / "results") for path in folder.rglob("trace.parquet"))
PAGE = ROOT / "docs" / "trace.md"


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_recording_of_the_project_holds(recording: Path) -> None:
    checked = check(read_run(RunDirectory(recording)))
    assert checked.violations == ()
    assert {*checked.rules, *checked.not_checked} == set(RULES)
    # A rule that says nothing of a run has its reason.
    architecture = checked.run.split("-")[2]
    allowed = {"counts"} if architecture == "mlless" else {"barrier"} if recording.name == "s-asp" else set()
    assert set(checked.not_checked) <= allowed


def test_there_are_recordings_of_every_kind() -> None:
    assert len(RECORDINGS) >= 47
    assert TABLE1 in {recording.parent for recording in RECORDINGS}


def test_a_check_takes_a_few_times_as_long_as_reading_the_run() -> None:
    def seconds(function: Callable[[], object]) -> float:
        began = time.process_time()
        function()
        return time.process_time() - began

    directory, run = RunDirectory(TRACES / "spirt"), recorded("spirt")
    assert min(seconds(lambda: check(run)) for _ in range(3)) < 10 * seconds(lambda: read_run(directory).events)


def test_the_page_lists_all_rules_and_how_many_violations_are_planted() -> None:
    page = PAGE.read_text().partition("\n## Rules\n")[2]
    assert tuple(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == RULES
    assert f"plant {len(PLANTS)} violations" in page


def test_the_command_answers_first_and_exits_with_0_if_all_holds() -> None:
    done = slslab("check", TRACES / "allreduce", TRACES / "mlless")
    assert done.code == 0
    run = recorded("allreduce")
    assert done.out.startswith(f"Holds: {len(RULES)} rules over {len(run.events)} events: {run.id}\nHolds: ")
    assert "Not checked: counts: a filter or the clock decides how many messages are sent." in done.out


@pytest.fixture
def violated(tmp_path: Path) -> Path:
    """A run with a line in its bill that differs from its trace."""
    directory = tmp_path / "run"
    shutil.copytree(TRACES / "gpu", directory)
    document = json.loads((directory / "run.json").read_text())
    document["cost"]["lines"][0]["quantity"] = "1"
    (directory / "run.json").write_text(json.dumps(document))
    return directory


def test_the_command_names_violations_and_exits_with_1(violated: Path) -> None:
    done = slslab("check", violated)
    assert done.code == 1
    events = len(read_run(RunDirectory(violated)).events)
    assert done.out.startswith(f"Violated: 1 of {len(RULES)} rules over {events:,} events, 2 times: ")
    assert "bill" in done.out
    printed = slslab("check", TRACES / "gpu", violated, "--json")
    assert printed.code == 1
    document = printed.printed
    assert (document["schema"], document["holds"]) == (1, False)
    assert [run["holds"] for run in document["runs"]] == [True, False]
    assert {violation["rule"] for violation in document["runs"][1]["violations"]} == {"bill"}


def test_violations_that_differ_only_in_numbers_are_one_row() -> None:
    sentences = [f"Worker {rank} never deletes model/e0/s{rank}." for rank in range(3)]
    places = {"event": None, "worker": -1, "epoch": -1, "step": -1}
    violations = [{"rule": "deleted", "sentence": sentence, **places} for sentence in sentences]
    other = {**violations[0], "rule": "taken"}
    run = {"run": "r", "events": 9, "rules": ["deleted", "taken", "bill"], "holds": False, "not_checked": {}}
    headline, table = checked([{**run, "violations": [*violations, other]}])
    assert headline == "Violated: 2 of 3 rules over 9 events, 4 times: r"
    assert isinstance(table, Table)
    assert [(row[0], row[-1]) for row in table.rows] == [
        ("deleted", f"{sentences[0]} 2 more like it (all with --json)."),
        ("taken", sentences[0]),
    ]


def test_every_run_that_a_test_makes_is_checked(violated: Path) -> None:
    directory = RunDirectory(violated)
    lock = directory.lock()
    with pytest.raises(AssertionError, match="rule='bill'"):
        directory.unlock(lock)


def test_what_is_no_run_is_a_wrong_request(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = slslab("check", tmp_path / "empty")
    assert done.code == 2
    assert "Hint: list them with `slslab runs`." in done.err


def test_a_killed_run_is_checked_by_what_is_left_of_it(tmp_path: Path) -> None:
    write_log(tmp_path / "killed")
    done = slslab("check", tmp_path / "killed", "--json")
    (run,) = done.printed["runs"]
    assert run["not_checked"]["bill"] == "the run's command was killed before it wrote a document"
    assert {violation["rule"] for violation in run["violations"]} <= {"stray", "altered"}
