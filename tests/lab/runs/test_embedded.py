"""One stack, and runs on it one after the other: what the first leaves does not reach the second."""

import io
import json
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slslab.host.priority import HIGHEST, niceness
from slslab.run.log import TraceWriter, read_log
from slslab_lab.runs.embedded import EmbeddedSystem
from slslab_lab.runs.planning import architectures, make_plan
from slslab_lab.runs.recorder import Recorder
from slslab_lab.runs.system import Running, System
from slslab_workers.architecture import Requirements
from slslab_workers.channels import scripts
from slslab_workers.channels.endpoints import tensor_urls
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.tensors import TensorDatabase
from slslab_workers.faults.plan import VARIABLE
from slslab_workers.plan import Plan

pytestmark = pytest.mark.server

HANDLER = f"""
import os, time

def handler(event, context):
    print("called", flush=True)
    time.sleep(event.get("sleep", 0))
    return [os.getpriority(os.PRIO_PROCESS, 0), {VARIABLE!r} in os.environ]
"""
BUSY_S = 0.5


class Silent:
    def report(self, stage: str, done: int, total: int) -> None:
        pass


@pytest.fixture(scope="module")
def plan() -> Plan:
    """A plan that has each function's first invocation refused."""
    faults = {"seed": 1, "fault": [{"kind": "throttle", "count": 1}]}
    return replace(make_plan(architectures()["mlless"], {"dataset": "digits", "workers": 2}, {}), faults=faults)


@pytest.fixture(scope="module")
def started(plan: Plan) -> Iterator[System]:
    with EmbeddedSystem(plan, Requirements(tensor_databases=1)) as started:
        started.ready()
        yield started


@contextmanager
def running(started: System, plan: Plan, folder: Path) -> Iterator[Running]:
    """Record a run in a folder, to its last record."""
    (folder / "logs").mkdir(parents=True)
    with (
        TraceWriter(folder / "trace", plan.run) as writer,
        started.running(Recorder(writer, plan, Silent()), folder / "logs") as running,
    ):
        try:
            yield running
        finally:
            started.clear()


@contextmanager
def created(running: Running, name: str, size: int = 0) -> Iterator[Any]:
    """Create a function with this many bytes in addition to its code; yield the client, and leave the function."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        archive.writestr("app.py", HANDLER)
        archive.writestr("beside", bytes(size))
    client = running.cloud.client("lambda")
    settings = {"Runtime": "python3.11", "Role": "arn:aws:iam::000000000000:role/r", "Handler": "app.handler"}
    with closing(client):
        client.create_function(
            FunctionName=name, Code={"ZipFile": body.getvalue()}, MemorySize=256, Timeout=900, **settings
        )
        yield client


def call(client: Any, name: str) -> tuple[int, bool]:
    """Return a function's niceness, and whether it gets the fault plan."""
    nice, told = json.load(client.invoke(FunctionName=name, Payload=b"{}")["Payload"])
    return nice, told


def records(folder: Path, kind: str = "event") -> list[Mapping[str, Any]]:
    return [record for record in read_log(folder / "trace")[0] if record["record"] == kind]


def operations(folder: Path) -> list[str]:
    return [str(event["op"]) for event in records(folder)]


def average(running: Running, name: str) -> set[str]:
    """Run a script in the run's database, and return which keys there are then."""
    url = tensor_urls(running.cloud.environment)[0]
    with TensorDatabase(url, Tracer(running.cloud.emit, "run")) as database:
        database.command("AI.TENSORSET", name, "FLOAT", 1, "VALUES", 1)
        database.execute("average", [name], [f"{name}-mean"], "synchronise")
        return {bytes(key).decode() for key in database.command("KEYS", "*")}


def test_a_run_holds_nothing_of_the_one_before(started: System, plan: Plan, tmp_path: Path) -> None:
    """Neither of what has ended, nor of an invocation and a database's keys that were left."""
    first, second = tmp_path / "first", tmp_path / "second"
    with running(started, replace(plan, faults=None), first) as one, created(one, "apart", size=100_000) as client:
        assert call(client, "apart")[1] is False, "it has no faults"
        client.invoke(FunctionName="apart", InvocationType="Event", Payload=b'{"sleep": 600}')
        deadline = time.monotonic() + 60
        while sum(log.read_text().count("called") for log in (first / "logs").iterdir()) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert average(one, "first") == {"first", "first-mean", scripts.KEY}
        begun = time.process_time()
        while time.process_time() - begun < BUSY_S:
            pass
        before = one.finish()
    with running(started, plan, second) as other, created(other, "own") as client:
        with pytest.raises(ClientError, match="TooManyRequestsException"):
            call(client, "own")
        assert call(client, "own")[1] is True
        assert average(other, "second") == {"second", "second-mean", scripts.KEY}
        after = other.finish()
    assert operations(first).count("environment.kill") == operations(first).count("environment.start") >= 1
    assert [record["status"] for record in records(first, "invocation")].count("success") == 1
    assert len(records(first, "invocation")) == 2, "what was ended is metered"
    assert "fault" not in operations(first)
    assert {event["function"] for event in records(second)} == {"own", "driver", "tensordb", "stack"}
    assert operations(second).count("fault") == 1
    for folder in (first, second):
        assert operations(folder).count("tensor.script.run") == 1
        stored = [e for e in records(folder) if e["op"] == "tensor.script" and e["resource"].endswith(scripts.KEY)]
        assert [event["requests"] for event in stored] == [2], "the script was stored anew"
    assert {log.name.rpartition("-")[0] for log in (first / "logs").iterdir()} == {"apart"}
    assert {log.name.rpartition("-")[0] for log in (second / "logs").iterdir()} == {"own"}
    assert before["package"]["unzipped_bytes"] > after["package"]["unzipped_bytes"] + 90_000
    own = [host["own_cpu_seconds"]["driver"] for host in (before, after)]
    assert own[0] - own[1] > BUSY_S / 2, "both have the start, and the first alone what it took"


def test_only_what_runs_meanwhile_has_a_high_priority(started: System, plan: Plan, tmp_path: Path) -> None:
    nice, without = {}, replace(plan, faults=None)
    with started.high_priority() as raised:
        if not raised:
            pytest.skip("this host allows no higher priority")
        with running(started, without, tmp_path / "first") as one, created(one, "raised") as client:
            nice["raised"] = call(client, "raised")[0]
    with running(started, without, tmp_path / "second") as other, created(other, "usual") as client:
        nice["usual"] = call(client, "usual")[0]
    assert nice == {"raised": HIGHEST, "usual": niceness()}
