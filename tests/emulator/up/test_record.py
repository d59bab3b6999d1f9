"""The directory of what `slslab up` records, and what becomes of an earlier one."""

import asyncio
import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from slslab.aws.errors import ServiceError
from slslab.aws.keys import FUNCTION_ACTIONS, OWNER, Principal
from slslab.errors import HostError, RequestError
from slslab.predict.processor import UNANCHORED, Processor
from slslab.report.services import open_run
from slslab.run.directory import PLAN, RunDirectory, list_runs, resolve
from slslab.run.events import own_event
from slslab.run.log import TraceWriter, load
from slslab.stack import Stack
from slslab.up import record
from slslab.up.record import Record

ABOUT: dict[str, Any] = {
    "stack": {"lambda": "slslab"},
    "environment": "process",
    "cores": 2,
    "cpu_share_enforced": True,
    "confinement": "cgroup",
}


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLSLAB_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def begun(lines: list[str] | None = None) -> tuple[Record, Path]:
    started = Record(([] if lines is None else lines).append)
    started.__enter__()
    return started, started.begin(ABOUT, Stack(""))


def asked(operation: str, function: str = "", size: int = 0) -> dict[str, Any]:
    event = own_event(operation, 1, "", resource="", function=function)
    return {**event, "end_ns": 2, "bytes": size, "requests": 1, "overhead": False}


def test_a_service_replaces_what_an_ended_one_left_and_nothing_else(runs: Path) -> None:
    first, directory = begun()
    assert directory == runs / "up"
    with pytest.raises(RequestError, match="up is a run, or another service's record"):
        begun()
    assert [run.status() for run in list_runs()] == ["running"]
    first.__exit__()
    assert RunDirectory(directory).status() == "done"
    (directory / "report.html").touch()
    second, again = begun()
    assert again == directory
    assert not (directory / "report.html").exists()
    second.__exit__()


def test_a_run_of_that_name_stays(runs: Path) -> None:
    own = RunDirectory.create(runs / "up")
    own.write_plan({"run": "mine"})
    with pytest.raises(RequestError, match="up is a run, or another service's record"):
        begun()
    assert (own.path / PLAN).read_text() == 'run = "mine"\n'


def test_what_a_full_disk_left_is_used(runs: Path) -> None:
    (runs / "up").mkdir(parents=True)
    started, directory = begun()
    started.__exit__()
    assert directory == runs / "up"


def test_last_is_a_run_and_no_service(runs: Path) -> None:
    started, directory = begun()
    started.__exit__()
    with pytest.raises(RequestError, match="No run has ended yet"):
        resolve("last")
    RunDirectory.create(runs / "older").write_plan({"run": "older"})
    assert resolve("last").id == "older"
    assert resolve("up").path == directory


def test_reading_leaves_the_log_to_the_service() -> None:
    started, directory = begun()
    started.event(own_event("invoke", 1, "id", resource="f", function="f"))
    assert len(load(directory).events) == 1
    started.event(own_event("invoke", 2, "id", resource="f", function="f"))
    assert len(load(directory).events) == 2
    started.__exit__()
    assert sorted(path.name for path in directory.iterdir()) == ["service.json", "trace.jsonl"]


def test_samples_of_clocks_and_beginnings_are_left_out() -> None:
    started, directory = begun()
    started.event({"record": "clock", "environment": "f-1", "wall_ns": 1, "host_delay_ns": 0})
    started.event({"record": "begin", "of": "invocation", "id": "1", "start_ns": 1})
    started.__exit__()
    lines = (directory / "trace.jsonl").read_text().splitlines()
    assert [json.loads(line)["record"] for line in lines] == ["header"]


def test_requests_of_a_second_become_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "FLUSH_NS", 3600 * 10**9)
    started, directory = begun()
    for _ in range(1000):
        started.request(asked("object.put"))
    started.update()
    assert len(load(directory).events) == 1
    assert open_run(RunDirectory(directory)).summary()["counts"] == {"object.put": 1000}
    started.request(asked("object.get"))
    started.__exit__()
    assert open_run(RunDirectory(directory)).summary()["counts"] == {"object.get": 1, "object.put": 1000}


def test_each_request_of_a_function_is_an_event() -> None:
    started, directory = begun()
    started.request(asked("object.put", "f", 5))
    started.request(asked("object.get", "f", 7))
    started.__exit__()
    events = [json.loads(line) for line in (directory / "trace.jsonl").read_text().splitlines()][1:]
    assert [(each["function"], each["start_ns"], each["end_ns"], each["bytes"]) for each in events] == [
        ("f", 1, 2, 5),
        ("f", 1, 2, 7),
    ]
    assert open_run(RunDirectory(directory)).summary()["counts"] == {"object.get": 1, "object.put": 1}


def test_a_processor_that_is_measured_later_is_described_again(monkeypatch: pytest.MonkeyPatch) -> None:
    started, directory = begun()

    def described() -> Processor:
        return Processor.from_dict(json.loads((directory / "service.json").read_text())["processor"])

    assert not described().anchored
    monkeypatch.setattr(record, "load_processor", lambda: replace(UNANCHORED, name="this host", form="whole"))
    started.update()
    assert described().name == "this host"
    started.__exit__()
    assert described().anchored


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SLSLAB_RUNS", str(tmp_path / "file" / "runs"))
    with Record(pytest.fail) as started, pytest.raises(RequestError, match="slslab can't record in") as refused:
        started.begin(ABOUT, Stack(""))
    assert "SLSLAB_RUNS" in refused.value.hint


def test_only_the_owner_has_the_record_updated() -> None:
    started, _ = begun()
    function = Principal("arn:function", FUNCTION_ACTIONS)
    ask = started.route().endpoint
    asked = Request({"type": "http", "method": "POST", "path": record.PATH, "headers": [], "state": {}})
    asked.state.principal = function
    with pytest.raises(ServiceError, match="is not authorized to perform: slslab:UpdateRecord"):
        asyncio.run(ask(asked))
    asked.state.principal = OWNER
    assert asyncio.run(ask(asked)).status_code == 200
    started.__exit__()


def test_a_database_that_has_ended_is_named_and_the_rest_is_recorded() -> None:
    lines: list[str] = []
    with Record(lines.append) as started, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and nobody listens
        port = bound.getsockname()[1]
        directory = started.begin(ABOUT, Stack("", (f"redis://:secret@127.0.0.1:{port}",)))
        started.request(asked("object.get"))
        started.update()
        assert open_run(RunDirectory(directory)).summary()["counts"] == {"object.get": 1}
    assert f"redis://127.0.0.1:{port} doesn't answer" in lines[0]
    assert "secret" not in lines[0]


def test_a_full_disk_ends_the_record_and_not_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    started, directory = begun(lines)

    def full(_self: object, _record: object) -> None:
        raise HostError("The trace cannot be written: No space left on device.", "make room.")

    with monkeypatch.context() as patch:
        patch.setattr(TraceWriter, "write", full)
        for _ in range(2):
            started.event(own_event("invoke", 1, "id", resource="f", function="f"))
    assert len(lines) == 1
    assert "No space left on device. The record of `slslab up` ends here." in lines[0]
    with pytest.raises(HostError, match="ends here"):
        started.update()
    started.__exit__()
    assert RunDirectory(directory).status() == "interrupted"
