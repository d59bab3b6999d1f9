"""Instances as containers: what they read and write, and how they are metered."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slslab.errors import HostError
from slslab.host.containers import Containers
from slslab.host.session import Session
from slslab.run.records import InstanceRecord
from slslab.stack.instances.containers import ContainerFleet
from slslab_workers.architecture import Fleet

MODULE = """
import json, os, sys, time

event = json.load(sys.stdin)
print("rank", event["rank"], "of", os.environ["STACK"], flush=True)
record = dict.fromkeys("etag".split()) | dict.fromkeys("op phase resource invocation".split(), "x")
record |= dict.fromkeys("cpu_ns bytes requests worker epoch step start_ns".split(), 1) | {"end_ns": 2}
record |= {"overhead": False, "failed": False}
os.write(int(os.environ["SLSLAB_TRACE_FD"]), json.dumps(record).encode() + b"\\n")
memory = bytearray(event.get("megabytes", 0) << 20)
if event.get("fails"):
    raise ValueError("it went wrong")
time.sleep(event.get("seconds", 0))
"""


@pytest.fixture
def containers(emulator_settings: dict[str, Any]) -> Iterator[Containers]:  # noqa: ARG001
    with Session() as session, Containers(session) as made:
        yield made


class Launch:
    """A launch of the module above, and what it left."""

    def __init__(self, containers: Containers, folder: Path, device: str = "cpu") -> None:
        code = folder / "code"
        code.mkdir(parents=True)
        (code / "trainer.py").write_text(MODULE)
        folder.chmod(0o755)
        code.chmod(0o755)
        self.events: list[dict[str, Any]] = []
        self.records: list[InstanceRecord] = []
        self.logs = folder / "logs"
        self.logs.mkdir()
        self._containers = containers
        self._folder = folder
        self._device = device

    def _fleet(self) -> ContainerFleet:
        return ContainerFleet(
            self._containers,
            Fleet("g4dn.xlarge", self._device),
            home=self._folder / "homes",
            logs=self.logs,
            code=self._folder / "code",
            variables={"STACK": "the stack"},
            on_event=self.event,
        )

    def event(self, record: dict[str, Any]) -> None:
        if record["record"] == "instance":
            self.records.append(InstanceRecord(**{name: record[name] for name in record if name != "record"}))
        else:
            self.events.append(record)

    def run(self, *events: dict[str, Any], wait: bool = True) -> tuple[str, ...]:
        """Launch them and wait for their end, or end them at once; the devices."""

        async def go() -> tuple[str, ...]:
            fleet = self._fleet()
            devices = await fleet.launch("trainer", [{"rank": rank, **event} for rank, event in enumerate(events)])
            if wait:
                await asyncio.gather(*fleet._tasks)
            await fleet.end()
            return devices

        return asyncio.run(go())


def test_instances_are_metered_from_launch_to_end(containers: Containers, tmp_path: Path) -> None:
    launch = Launch(containers, tmp_path)
    assert launch.run({"seconds": 1, "megabytes": 64}, {}) == ("cpu",)
    by_rank = {record.worker: record for record in launch.records}
    assert [by_rank[rank].status for rank in (0, 1)] == ["success", "success"]
    slow, quick = by_rank[0], by_rank[1]
    assert slow.end_ns - slow.start_ns > 1e9
    assert 64 <= slow.peak_memory_mb < 200
    assert slow.cpu_seconds > 0
    assert (slow.billed_seconds, slow.type, slow.device) == (60, "g4dn.xlarge", "cpu")
    assert (launch.logs / f"{quick.id}.log").read_text() == "rank 1 of the stack\n"
    events = [record for record in launch.events if record["record"] == "event"]
    assert sorted(event["environment"] for event in events) == sorted([slow.id, quick.id])
    assert {record["id"] for record in launch.events if record["record"] == "begin"} == {slow.id, quick.id}


def test_one_that_fails_ends_the_others(containers: Containers, tmp_path: Path) -> None:
    launch = Launch(containers, tmp_path)
    launch.run({"seconds": 600}, {"fails": True})
    assert {record.worker: record.status for record in launch.records} == {0: "ended", 1: "error"}
    (failed,) = (record for record in launch.events if record["record"] == "failed")
    assert (failed["type"], failed["message"], failed["worker"]) == ("ValueError", "it went wrong", 1)
    assert "ValueError: it went wrong" in failed["log_tail"]


def test_those_that_run_are_ended(containers: Containers, tmp_path: Path) -> None:
    launch = Launch(containers, tmp_path)
    launch.run({"seconds": 600}, {"seconds": 600}, wait=False)
    assert [record.status for record in launch.records] == ["ended", "ended"]
    assert containers.engine.api.containers(filters={"label": [f"{k}={v}" for k, v in containers.labels.items()]}) == []


def test_without_a_gpu_auto_takes_the_cpu_and_cuda_is_refused(containers: Containers, tmp_path: Path) -> None:
    if "nvidia" in containers.engine.api.info()["Runtimes"]:
        pytest.skip("this engine may have GPUs to give")
    with pytest.raises(HostError, match="No container of this engine sees a CUDA device"):
        Launch(containers, tmp_path / "cuda", device="cuda").run({})
    launch = Launch(containers, tmp_path / "auto", device="auto")
    assert launch.run({}) == ("cpu",)
    assert [record.device for record in launch.records] == ["cpu"]
