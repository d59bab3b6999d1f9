"""Faults in a worker's process: which event they happen before, what its client sees, and what the trace has."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import botocore.exceptions
import pytest

from slslab_workers.channels import injection
from slslab_workers.channels.channel import Channel
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.injection import Injector
from slslab_workers.channels.objects import Objects
from slslab_workers.channels.queues import Queues
from slslab_workers.channels.stream import Unreachable
from slslab_workers.channels.tensors import TensorDatabase
from slslab_workers.faults.plan import FaultPlan

Records = list[dict[str, Any]]
Inject = Callable[..., tuple[Tracer, Records]]


@pytest.fixture
def inject(monkeypatch: pytest.MonkeyPatch) -> Inject:
    """Have faults happen, and return a tracer of worker 1 with its records."""

    def start(*faults: dict[str, Any], seed: int = 0) -> tuple[Tracer, Records]:
        records: Records = []
        injector = Injector(FaultPlan.from_document({"seed": seed, "fault": list(faults)}), records.append)
        monkeypatch.setattr(Tracer, "fault", injector.at)
        monkeypatch.setattr(Channel, "fault", injector.request)
        monkeypatch.setattr(Channel, "copies", injector.copies)
        return Tracer(records.append, "run", 1, "invocation"), records

    return start


@pytest.fixture
def sleeping_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have time pass in sleeps alone."""
    now_ns = [0]

    def sleep(seconds: float) -> None:
        now_ns[0] += round(seconds * 1e9)

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns[0])


class Store:
    """An S3 client that has every object."""

    def __init__(self) -> None:
        self.puts = 0

    def put_object(self, **_: Any) -> dict[str, str]:
        self.puts += 1
        return {"ETag": "e"}


def faults(records: Records) -> list[str]:
    return [record["resource"] for record in records if record["op"] == "fault"]


def test_a_worker_dies_before_the_first_event_at_its_moment(inject: Inject, monkeypatch: pytest.MonkeyPatch) -> None:
    class Died(BaseException):
        pass

    def die(kind: str) -> None:
        raise Died(kind)

    monkeypatch.setattr(injection, "_die", die)
    tracer, records = inject({"kind": "kill", "worker": 1, "epoch": 0, "step": 1, "phase": "compute"})
    for step in range(2):
        tracer.epoch, tracer.step = 0, step
        with tracer.span("object.get", "fetch"):
            pass
        if step == 0:
            with tracer.span("compute", "compute"):
                pass
    with pytest.raises(Died, match="kill"), tracer.span("compute", "compute"):
        raise AssertionError("it was to be dead")
    assert [(r["op"], r["epoch"], r["step"], r["phase"]) for r in records] == [
        ("object.get", 0, 0, "fetch"),
        ("compute", 0, 0, "compute"),
        ("object.get", 0, 1, "fetch"),
        ("fault", 0, 1, "compute"),
    ]
    assert (records[-1]["resource"], records[-1]["worker"]) == ("1 kill", 1)
    assert (records[-1]["run"], records[-1]["invocation"]) == ("run", "invocation")


def test_a_killed_worker_is_killed_by_a_signal() -> None:
    code = "from slslab_workers.channels.injection import _die; _die('kill')"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL


def test_a_process_takes_the_plan_from_its_environment() -> None:
    """As the emulator starts it; without the variable nothing is there that could inject."""
    code = (
        "import sys\n"
        "from slslab_workers.channels.objects import Objects\n"
        "from slslab_workers.channels.events import Tracer\n"
        "print('slslab_workers.channels.injection' in sys.modules, flush=True)\n"
        "tracer = Tracer(worker=0)\n"
        "tracer.epoch = 0\n"
        "with tracer.span('compute', 'compute'): pass\n"
        "print('alive')"
    )
    plan = '{"fault": [{"kind": "kill", "worker": 0, "epoch": 0}]}'
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLSLAB_")}

    def run(**more: str) -> Any:
        command = [sys.executable, "-c", code]
        return subprocess.run(command, env=environment | more, capture_output=True, text=True, check=False)

    killed, whole = run(SLSLAB_FAULTS=plan), run()
    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout.startswith("True\n")
    assert '"op":"fault"' in killed.stdout
    assert "alive" not in killed.stdout
    assert whole.stdout.startswith("False\n")
    assert whole.stdout.endswith("alive\n")


def test_s3_that_is_too_busy_answers_as_boto3_reports_it(inject: Inject, slept: list[float]) -> None:
    """The client repeats the request, twice at most."""
    tracer, records = inject({"kind": "slow-down", "op": "object.put", "count": 2, "step": 0})
    store = Store()
    objects = Objects(store, "bucket", tracer)
    objects.put("key", b"1", "synchronise", overhead=False)
    assert faults(records) == [], "not in this step"
    tracer.epoch = tracer.step = 0
    objects.put("key", b"1", "synchronise", overhead=False)
    requests = [record for record in records if record["op"] == "object.put"]
    assert [request["failed"] for request in requests] == [False, True, True, False]
    assert [request["overhead"] for request in requests] == [False, True, True, False]
    assert faults(records) == ["1 slow-down object.put"] * 2
    assert (store.puts, len(slept)) == (2, 2)
    objects.put("key", b"1", "synchronise")
    assert store.puts == 3, "the first requests at a place have failed"
    for event, following in pairwise(records):
        assert event["end_ns"] <= following["start_ns"] <= following["end_ns"]


@pytest.mark.usefixtures("slept")
def test_a_store_that_stays_too_busy_fails_with_its_own_code(inject: Inject) -> None:
    tracer, _ = inject({"kind": "slow-down", "count": 3})
    with pytest.raises(botocore.exceptions.ClientError) as refused:
        Objects(Store(), "bucket", tracer).put("key", b"1", "synchronise")
    assert refused.value.response["Error"]["Code"] == "SlowDown"
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503


@pytest.mark.usefixtures("sleeping_clock")
def test_a_slow_store_takes_longer_before_the_request(inject: Inject) -> None:
    tracer, records = inject({"kind": "slow-store", "seconds": 0.05})
    Objects(Store(), "bucket", tracer).put("key", b"1", "synchronise")
    fault, request = records
    assert (fault["op"], fault["resource"]) == ("fault", "1 slow-store object.put")
    assert fault["end_ns"] - fault["start_ns"] == 50_000_000
    assert fault["end_ns"] == request["start_ns"] == request["end_ns"]


@pytest.mark.usefixtures("slept")
def test_a_server_is_cut_off_as_its_client_reports_it(inject: Inject) -> None:
    tracer, records = inject(
        {"kind": "unreachable", "op": "tensor.get", "count": 9}, {"kind": "unreachable", "op": "object.put", "count": 9}
    )
    with pytest.raises(Unreachable, match="cannot be reached"):
        TensorDatabase("redis://127.0.0.1:1", tracer).get("key", "synchronise")
    with pytest.raises(botocore.exceptions.EndpointConnectionError):
        Objects(Store(), "bucket", tracer).put("key", b"1", "synchronise")
    assert faults(records) == ["1 unreachable tensor.get", *["2 unreachable object.put"] * 3]


@pytest.mark.usefixtures("sleeping_clock")
def test_a_straggler_takes_its_factor_of_its_cpu_time(inject: Inject) -> None:
    """On a share of one vCPU, which a process outside functions has."""
    tracer, records = inject({"kind": "straggler", "factor": 3, "phase": "compute"})
    began = time.process_time()
    with tracer.span("compute", "compute"):
        while time.process_time() - began < 0.05:
            pass
    with tracer.span("update", "update"):
        while time.process_time() - began < 0.1:
            pass
    with tracer.span("wait", "wait"):
        pass
    assert [record["op"] for record in records] == ["compute", "fault", "update", "wait"]
    held_up_s = (records[1]["end_ns"] - records[1]["start_ns"]) / 1e9
    used_s = (records[0]["cpu_ns"]) / 1e9
    assert 2 * used_s <= held_up_s < 2.1 * used_s
    assert records[1]["phase"] == "compute"


@pytest.mark.usefixtures("slept")
def test_equal_seeds_give_equal_faults_whatever_the_run_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def met(run: str, seed: int) -> list[str]:
        records: Records = []
        document = {"seed": seed, "fault": [{"kind": "slow-down", "probability": 0.3}]}
        injector = Injector(FaultPlan.from_document(document), records.append)
        monkeypatch.setattr(Channel, "fault", injector.request)
        objects = Objects(Store(), f"slslab-{run}", Tracer(records.append, run, 1))
        for number in range(50):
            objects.put(f"{run}/gradient/{number}", b"1", "synchronise")
        failed = [r["resource"] for r in records if r["op"] == "object.put" and r["failed"]]
        return [resource.rpartition("/")[2] for resource in failed]

    assert 5 < len(met("first", 1)) < 30
    assert met("first", 1) == met("second", 1) != met("first", 2)


def test_messages_are_lost_or_sent_twice(inject: Inject) -> None:
    tracer, records = inject(
        {"kind": "message-lost", "step": 0}, {"kind": "message-duplicated", "step": 1, "phase": "synchronise"}
    )
    sent: list[str] = []
    broker: Any = SimpleNamespace(publish=lambda queue, _id, _body: sent.append(queue))
    queues = Queues(broker, tracer)
    tracer.epoch = 0
    for tracer.step in range(3):
        queues.publish(f"q{tracer.step}", b"", "synchronise")
    assert sent == ["q1", "q1", "q2"]
    assert faults(records) == ["1 message-lost queue.publish", "2 message-duplicated queue.publish"]
    assert [record["failed"] for record in records if record["op"] == "queue.publish"] == [False] * 3
    queues.publish("q0", b"", "synchronise")
    assert sent[-1] == "q0", "the first message at a place was lost"
