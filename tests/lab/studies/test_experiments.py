"""The runs of Table 2: existing ones are kept, missing ones are made, and none is overwritten."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from tests.lab.studies.setups import Watching, setup

from slslab.errors import RequestError, RunError
from slslab.run.directory import DOCUMENT, PLAN
from slslab_lab.runs.planning import architectures, make_plan
from slslab_lab.studies import experiments, recording
from slslab_lab.studies.experiments import Experiment, is_kept, read_all
from slslab_lab.studies.recording import Recording

RECORDED = Path(__file__).parents[1] / "replay" / "traces" / "allreduce" / DOCUMENT
ALLREDUCE = Experiment("allreduce", "mobilenet", released=False)
RELEASED = Experiment("allreduce", "mobilenet", released=True)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that are made, by their folders; nothing is run, and what is read back is the folder's name."""
    names: list[str] = []

    def run_plan(name: str, values: dict[str, Any], options: object, *, out: Path, book: str, **_: object) -> Any:
        assert (name, options, book) == ("allreduce", {}, "aws-us-east-1")
        names.append(out.name)
        write(out, values)
        return {"status": "done", "error": None, "seconds": {"measured": 1.0}}

    monkeypatch.setattr(recording, "run_plan", run_plan)
    monkeypatch.setattr(experiments, "read_measured", lambda path: path.name)
    return names


def write(place: Path, values: dict[str, Any], status: str = "done") -> None:
    place.mkdir(parents=True)
    plan = make_plan(architectures()["allreduce"], values, {}).to_document()
    (place / PLAN).write_text(tomli_w.dumps(plan))
    (place / DOCUMENT).write_text(json.dumps({**json.loads(RECORDED.read_text()), "status": status}))


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., list[str]]:
    def call(*wanted: Experiment, batches: int = 4) -> list[str]:
        watching = Watching()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(experiments, "experiments", lambda _: wanted)
            options = {"fidelity": "sampled", "batches": batches, "dataset": "synthetic"}
            found = experiments.measure(setup("table2", {"watcher": watching, "out": tmp_path}, **options))
        assert set(found[0]) == set(wanted)
        return watching.said

    return call


def test_all_rows_in_both_variants() -> None:
    names = [one.name for one in experiments.experiments(("mobilenet",))]
    assert names == [
        "mobilenet-spirt",
        "mobilenet-spirt-as-released",
        "mobilenet-scatterreduce",
        "mobilenet-scatterreduce-as-released",
        "mobilenet-allreduce",
        "mobilenet-allreduce-as-released",
        "mobilenet-mlless",
        "mobilenet-mlless-as-released",
        "mobilenet-gpu",
    ]


@pytest.mark.parametrize(("batches", "filtered"), [(4, 12), (7, 21), (9, 24), (24, 24)])
def test_a_filter_has_minibatches_to_send_in(batches: int, filtered: int) -> None:
    sample = batches, "synthetic"
    found = {one.name: one.values(*sample)["batches"] for one in experiments.experiments(("mobilenet",))}
    assert {name for name, number in found.items() if number != batches} <= {"mobilenet-mlless"}
    assert found["mobilenet-mlless"] == filtered


def test_made_one_after_another(made: list[str], record: Callable[..., list[str]]) -> None:
    told = record(ALLREDUCE, RELEASED)
    assert made == ["mobilenet-allreduce", "mobilenet-allreduce-as-released"]
    assert told[0] == "2 runs to make, 0 of 2 are kept."
    assert "2 of 2 runs, about 0 min to go" in told[2]


def test_what_is_there_is_kept(made: list[str], record: Callable[..., list[str]], tmp_path: Path) -> None:
    write(tmp_path / ALLREDUCE.name, ALLREDUCE.values(4, "synthetic"))
    told = record(ALLREDUCE, RELEASED)
    assert made == ["mobilenet-allreduce-as-released"]
    assert "1 of 2 are kept" in told[0]


def test_a_run_of_schema_1_and_one_whose_queue_was_settled_are_there(tmp_path: Path) -> None:
    sample = 4, "synthetic"
    spirt = Experiment("spirt", "mobilenet", released=False)
    for experiment, change in ((ALLREDUCE, {}), (spirt, {"queue": "rabbitmq"})):
        run = Recording(experiment.name, experiment.architecture, experiment.values(*sample))
        plan = make_plan(architectures()[run.architecture], run.values, {}).to_document()
        if not change:
            del plan["schema"], plan["prices"]
        plan["options"] = plan["options"] | change if change else {}
        place = tmp_path / experiment.name
        place.mkdir()
        (place / PLAN).write_text(tomli_w.dumps(plan))
        (place / DOCUMENT).write_text(RECORDED.read_text())
        assert is_kept(place, run)


@pytest.mark.parametrize("status", ["failed", "interrupted", "killed"])
def test_what_has_not_come_to_its_end_is_made_again(
    made: list[str], record: Callable[..., list[str]], tmp_path: Path, status: str
) -> None:
    place = tmp_path / ALLREDUCE.name
    write(place, ALLREDUCE.values(4, "synthetic"), "done" if status == "killed" else status)
    if status == "killed":
        (place / DOCUMENT).unlink()
    record(ALLREDUCE)
    assert made == ["mobilenet-allreduce"]


def test_another_plan_is_never_overwritten(made: list[str], record: Callable[..., list[str]], tmp_path: Path) -> None:
    write(tmp_path / ALLREDUCE.name, ALLREDUCE.values(6, "synthetic"))
    with pytest.raises(RequestError, match="another batches"):
        record(ALLREDUCE)
    assert made == []


def test_a_run_that_fails_is_named(
    made: list[str], record: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = {"status": "failed", "error": {"type": "Unhandled", "message": "Killed.", "hint": "more --memory"}}
    monkeypatch.setattr(recording, "run_plan", lambda *_, **__: failed)
    with pytest.raises(RunError, match="mobilenet-allreduce failed: Killed"):
        record(ALLREDUCE)
    assert made == []


@pytest.mark.usefixtures("made")
def test_a_run_that_fails_does_not_keep_the_others_from_being_made_and_read(
    record: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    error = {"type": "Unhandled", "message": "Killed.", "hint": "more --memory"}

    def first_fails(_name: str, values: dict[str, Any], _options: object, *, out: Path, **_: object) -> Any:
        status = "failed" if out.name == ALLREDUCE.name else "done"
        write(out, values, status)
        return {"status": status, "error": error, "seconds": {"measured": 1.0}}

    monkeypatch.setattr(recording, "run_plan", first_fails)
    with pytest.raises(RunError, match="mobilenet-allreduce failed: Killed"):
        record(ALLREDUCE, RELEASED)
    assert set(read_all(tmp_path, [ALLREDUCE, RELEASED])[0]) == {RELEASED}


def test_an_interrupted_run_interrupts_the_others(
    made: list[str], record: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = {"type": "Interrupted", "message": "The run was interrupted.", "hint": "run it again"}
    monkeypatch.setattr(recording, "run_plan", lambda *_, **__: {"status": "interrupted", "error": error})
    with pytest.raises(KeyboardInterrupt):
        record(ALLREDUCE, RELEASED)
    assert made == []


@pytest.mark.usefixtures("made")
def test_a_further_set_must_be_whole(record: Callable[..., list[str]], tmp_path: Path) -> None:
    record(ALLREDUCE, RELEASED)
    beside = tmp_path.with_name(f"{tmp_path.name}-2")
    shutil.copytree(tmp_path / ALLREDUCE.name, beside / ALLREDUCE.name)
    with pytest.raises(RunError, match=f"{beside / RELEASED.name} has no finished run"):
        read_all(tmp_path, [ALLREDUCE, RELEASED])
    shutil.copytree(tmp_path / RELEASED.name, beside / RELEASED.name)
    found = read_all(tmp_path, [ALLREDUCE, RELEASED])
    assert [set(each) for each in found[1:]] == [{ALLREDUCE, RELEASED}]


def test_nothing_recorded(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no recordings"):
        read_all(tmp_path, [ALLREDUCE])
