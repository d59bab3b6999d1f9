"""The document of a running run, by hand."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.lab.pages.live.growing import FUNCTION, MS, PLAN, TOTAL, begin, did, half, metered, sample

from slslab.errors import RunError
from slslab.run.bill import load_book
from slslab.run.log import LOG, GrowingLog, TraceWriter, unmetered
from slslab.run.records import launch_record
from slslab.run.run import Run
from slslab_lab.pages.live.underway import Now, describe, losses, progress
from slslab_lab.pages.run_page import content_of

START = datetime(2026, 11, 21, tzinfo=UTC)
AT = Now(START + timedelta(seconds=90), 4000 * MS)
HEADER = {"record": "header", "schema": 2, "run": PLAN.run, "clock": "c", "started": START.isoformat()}


def read(folder: Path, records: Sequence[dict[str, Any]]) -> GrowingLog:
    (folder / LOG).write_text("".join(json.dumps(record) + "\n" for record in (HEADER, *records)))
    log = GrowingLog(folder / LOG)
    assert log.read()
    return log


def underway(log: GrowingLog, at: Now = AT) -> Run:
    return describe(PLAN.run, PLAN.to_document(), log.records, load_book("aws-us-east-1"), at)


def test_the_bill_so_far_is_what_was_metered_so_far(tmp_path: Path) -> None:
    found = underway(read(tmp_path, half()))
    document = found.summary()
    assert document["status"] == "running"
    lines = {line["item"]: line["quantity"] for line in document["cost"]["lines"]}
    assert lines == {"Lambda duration, x86_64": "3.601", "Lambda requests": "2", "S3 PUT requests": "3"}
    assert document["cost"]["total"] == TOTAL
    price = "the price of this host's seconds is the one so far: "
    said = f"{price}what is running (1 invocation) counts as if it ended now"
    assert document["cost"]["notes"] == [said]
    ended, open_ = found.invocations
    assert (ended["billed_ms"], open_["billed_ms"], open_["duration_ms"]) == (2040, 1561, 1500.0)
    # Of the invocation's own samples, not of the init's before it.
    assert (open_["max_memory_mb"], document["peak_memory_mb"]) == (950, 950)
    assert (open_["status"], open_["end_ns"]) == ("running", AT.monotonic_ns)
    assert document["seconds"] == {"measured": 90.0, "span": 3.0}
    assert document["lambda"]["status"] == "not modelled", "it goes on"
    # Of the second worker what it computed last, of four minibatches that are two epochs of one.
    assert document["loss"] == [pytest.approx((2 + 1 + 4) / 3)]


def test_without_a_plan_there_is_no_bill_yet(tmp_path: Path) -> None:
    log = read(tmp_path, half())
    document = describe(PLAN.run, {}, log.records, load_book("aws-us-east-1"), AT).summary()
    assert document["status"] == "running"
    assert "cost" not in document


def test_containers_of_a_platform_are_priced_by_its_own_book(tmp_path: Path) -> None:
    log, plan = read(tmp_path, half()), {**PLAN.to_document(), "platform": "modal-t4", "prices": "modal"}
    cost = describe(PLAN.run, plan, log.records, load_book("aws-us-east-1"), AT).summary()["cost"]
    assert "GPU T4" in {line["item"] for line in cost["lines"]}
    assert not cost["not_billed"]


def test_faults_and_imports_so_far_are_told(tmp_path: Path) -> None:
    fault = did(0, "fault", 1400, 1500) | {"resource": "1 refused put"}
    imported = did(0, "import", 1400, 1500) | {"resource": "numpy", "function": FUNCTION}
    plan = {**PLAN.to_document(), "faults": {"fault": [{"kind": "refused"}]}}
    log = read(tmp_path, [*half(), fault, imported])
    document = describe(PLAN.run, plan, log.records, load_book("aws-us-east-1"), AT).summary()
    assert [(each["kind"], each["times"]) for each in document["faults"]] == [("refused", 1)]
    assert document["host_imports"] == {FUNCTION: ["numpy"]}


def test_what_happens_now(tmp_path: Path) -> None:
    now = underway(read(tmp_path, half())).summary()["now"]
    assert now["invocations"] == [
        {"worker": 1, "function": FUNCTION, "memory_mb": 1024, "peak_memory_mb": 950, "seconds": 3.0}
    ]
    zero, one = now["workers"]
    assert (zero["under_way"], zero["op"], zero["step"], zero["seconds_ago"]) == (False, "object.put", 1, 1.6)
    assert (one["under_way"], one["op"], one["step"], one["seconds_ago"]) == (True, "compute", 0, 1.4)


def test_a_page_can_be_made_of_it_at_any_time(tmp_path: Path) -> None:
    records = half()
    for count in range(len(records) + 1):
        found = underway(read(tmp_path, records[:count]))
        text = content_of(found)
        assert "running" in text
        assert ("the one so far" in text.lower()) == ("cost" in found.summary())
    assert "950 MB" in text
    assert "None" not in text


def test_an_ended_invocation_is_no_longer_under_way_and_a_second_attempt_is(tmp_path: Path) -> None:
    log = read(tmp_path, [begin(0, 1000, None), metered(0, 1000, 500.0, 0.0)])
    assert unmetered(log.records)["invocation"] == {}
    again = read(tmp_path, [begin(0, 1000, None), metered(0, 1000, 500.0, 0.0), begin(0, 2000, None)])
    assert list(unmetered(again.records)["invocation"]) == ["i0"]
    # Without a sample of its own it has no time yet; it is a request all the same.
    bill = underway(again).summary()["cost"]
    assert {line["item"]: line["quantity"] for line in bill["lines"]} == {
        "Lambda duration, x86_64": "0.5",
        "Lambda requests": "2",
    }


def test_instances_and_hosts_are_billed_until_now(tmp_path: Path) -> None:
    records = [
        launch_record("instance", "i-1", "g4dn.xlarge", 1000 * MS, 0, "cpu"),
        launch_record("host", "0", "m5.large", 500 * MS),
        launch_record("host", "1", "m5.large", 500 * MS),
    ]
    log = read(tmp_path, records)
    late = Now(START + timedelta(seconds=90), 91_000 * MS)
    found = underway(log, late)
    document = found.summary()
    assert "Host m5.large" in content_of(found)
    quantities = {line["item"]: line["quantity"] for line in document["cost"]["lines"]}
    # 90 s of an instance, and of each host 90.5 s, of which each begun one counts.
    assert quantities == {"Host g4dn.xlarge": "90", "Host m5.large": "182"}
    assert "(1 instance, 2 hosts)" in document["cost"]["notes"][0]
    assert document["instances"][0]["device"] == "cpu"
    ended = {"record": "instance", "id": "i-1", "type": "g4dn.xlarge", "device": "cpu", "worker": 0,
             "start_ns": 1000 * MS, "end_ns": 3000 * MS, "billed_seconds": 60, "peak_memory_mb": 10,
             "host_delay_ms": 0.0, "function": "", "started_at": "2026-11-21T00:00:01.000+00:00",
             "status": "success"}  # fmt: skip
    gone = did(-1, "host.run", 500, 2500, resource="m5.large")
    log = read(tmp_path, [*records, ended, gone])
    begun = unmetered(log.records)
    assert (begun["instance"], list(begun["host"])) == ({}, ["1"])
    quantities = {line["item"]: line["quantity"] for line in underway(log, late).summary()["cost"]["lines"]}
    # The minimum of a launch is 60 s.
    assert quantities == {"Host g4dn.xlarge": "60", "Host m5.large": "151"}


def test_how_far_a_run_is_and_how_long_it_takes() -> None:
    plan = {"architecture": "allreduce", "workers": 2, "epochs": 4, "batches": 5}
    ready = "Getting ready: data is uploaded, and environments start cold"
    assert progress(plan, [], AT) == f"{ready}."
    begun = [begin(0, 500, 10.0), begin(1, 500, 10.0)]
    assert progress(plan, begun, AT) == f"{ready}; 2 invocations begun."
    # Of 2 × 20 minibatches worker 0 has done 8 since second 1, and worker 1 none: after 3 s a fifth is done.
    first = did(0, "compute", 1000, 1100, epoch=0, step=0)
    done = [
        *begun,
        first,
        did(0, "compute", 3000, 3100, epoch=1, step=3),
        did(1, "compute", 1000, 1200, epoch=0, step=0),
    ]
    assert progress(plan, done, AT) == "Epoch 2 of 4, 20 % done; 12.00 s left at this pace."
    until = plan | {"until_accuracy": 0.8}
    assert progress(until, done, AT) == "Epoch 2 of at most 4, 20 % done; at most 12.00 s left at this pace."
    assert progress(plan, [*begun, first], AT) == "Epoch 1 of 4, 0 % done."


def test_before_the_trace_there_is_the_plan(tmp_path: Path) -> None:
    run = underway(GrowingLog(tmp_path / LOG))
    document = run.summary()
    assert (document["status"], document["architecture"], document["workers"]) == ("running", "allreduce", 2)
    assert "cost" not in document
    assert document["progress"].startswith("Getting ready: ")
    assert '<p class="answer">Getting ready: ' in content_of(run)


def test_a_line_counts_when_it_is_whole(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path / LOG)
    with TraceWriter(tmp_path / LOG, PLAN.run) as writer:
        writer.write(sample(0, 1, 0, 1))
    text = (tmp_path / LOG).read_bytes()
    (tmp_path / LOG).write_bytes(text[:-5])
    assert log.read()
    assert [record["record"] for record in log.records] == ["header"]
    (tmp_path / LOG).write_bytes(text)
    assert log.read()
    assert [record["record"] for record in log.records] == ["header", "clock"]
    assert not log.read()
    # A compacted log leaves what was read of it.
    (tmp_path / LOG).unlink()
    with pytest.raises(FileNotFoundError):
        log.read()
    assert len(log.records) == 2


def test_a_line_that_is_no_record_is_told(tmp_path: Path) -> None:
    (tmp_path / LOG).write_text("{}\n")
    with pytest.raises(RunError, match="is not a trace record"):
        GrowingLog(tmp_path / LOG).read()


def test_losses_are_told_up_to_the_first_epoch_without_any() -> None:
    first, third = did(0, "compute", 1, 2, loss=0.5), did(0, "compute", 3, 4, epoch=2, loss=0.25)
    assert losses([first, third]) == [0.5]
    assert losses([did(0, "compute", 1, 2)]) == []
