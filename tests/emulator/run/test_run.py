"""A run is read the same way wherever its directory is, whatever it is called, and however old or torn it is."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.emulator.run.test_predictions import ABOUT
from tests.lab.pages.live.growing import metered
from tests.lab.replay.recordings import TRACES, make_plan, write_log

from slslab.errors import RequestError, RunError
from slslab.run.bill import DEFAULT_BOOK, load_book
from slslab.run.directory import LOCK, RunDirectory
from slslab.run.events import own_event
from slslab.run.log import LOG, SERVICE, TABLE, TraceWriter
from slslab.run.records import launch_record
from slslab.run.run import Run, read_run
from slslab.run.service import open_run

ROOT = Path(__file__).parents[3]
KEPT = sorted(path.parent for folder in ("results", "tests/lab") for path in (ROOT / folder).rglob("run.json"))
# Of schema 1, and of schema 2 without and with digests of its files.
OF_EACH_SCHEMA = (TRACES / "allreduce", ROOT / "results/lambdaml-table1/lr-s3", ROOT / "results/atlas/lenet-spirt")


def parts(run: Run) -> list[Any]:
    """All that is read of a run."""
    read = [run.id, run.plan, run.events, run.torn, run.document, run.complete, run.usage(), run.summary()]
    return [*read, list(run.invocations), list(run.instances)]


def test_every_kept_run_is_opened_by_its_document() -> None:
    assert len(KEPT) >= 104
    for path in KEPT:
        run = read_run(RunDirectory(path))
        assert run.summary() is run.document
        assert run.summary()["schema"] == 2, "documents of schema 1 are read as of schema 2"
        assert run.id == run.plan.run == run.summary()["run"] == RunDirectory(path).id
        assert run.parts().keys() == {"document", "plan"}, "a document is read without its trace"


@pytest.mark.parametrize("path", OF_EACH_SCHEMA, ids=lambda path: path.name)
def test_a_run_that_was_copied_and_renamed_is_the_same(path: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(path, tmp_path / "another name", copy_function=shutil.copyfile)
    run = read_run(RunDirectory(path))
    assert parts(read_run(RunDirectory(copy))) == parts(run)
    assert run.complete
    assert run.cost(load_book(run.plan.prices))["lines"] == run.summary()["cost"]["lines"]
    # What was read is kept, and the rest is read when it is asked for.
    moved = read_run(RunDirectory(copy))
    assert moved.events
    assert moved.replace(complete=False).parts().keys() >= {"events", "document", "complete"}
    (copy / TABLE).unlink()
    assert moved.replace(instances=[]).events == run.events
    again = Run(RunDirectory(copy))
    assert again.summary() == run.summary()
    with pytest.raises(RunError, match="has no trace"):
        again.events  # noqa: B018


def test_a_run_that_is_half_written_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    plan = write_log(tmp_path / "half")
    log = tmp_path / "half" / LOG
    whole = log.read_bytes()
    log.write_bytes(whole[:-5])
    # As a command that was killed leaves it, and as a copy has it.
    (tmp_path / "half" / LOCK).write_text("1")
    copy = shutil.copytree(tmp_path / "half", tmp_path / "copied")
    run, copied = (read_run(RunDirectory(path)) for path in (tmp_path / "half", copy))
    assert parts(copied) == parts(run)
    assert (run.plan, run.torn, run.document, run.complete) == (plan, True, None, False)
    assert len(run.invocations) == 1, "the record of the other is half a line"
    document = run.summary()
    assert (document["status"], document["trace_torn"], document["invocations"]) == ("interrupted", True, 1)
    assert document["error"]["type"] == "Killed"
    assert not log.exists(), "reading compacts it"
    assert parts(read_run(RunDirectory(tmp_path / "half"))) == parts(run)


def test_a_killed_run_of_a_model_that_is_unknown_here_has_a_document(tmp_path: Path) -> None:
    """As of another package's architecture, which has models of its own."""
    write_log(tmp_path / "killed")
    run = read_run(RunDirectory(tmp_path / "killed"))
    assert run.summary()["parameters"] is not None
    unknown = run.replace(plan=replace(run.plan, model="theirs"))
    assert (unknown.summary()["parameters"], unknown.summary()["gradient_bytes"]) == (None, None)


def test_a_run_without_a_trace_has_its_plan(tmp_path: Path) -> None:
    plan = write_log(tmp_path / "begun")
    (tmp_path / "begun" / LOG).unlink()
    run = read_run(RunDirectory(tmp_path / "begun"))
    assert (run.plan, run.id, list(run.invocations), list(run.instances)) == (plan, plan.run, [], [])
    with pytest.raises(RunError, match="has no trace"):
        run.summary()


def test_a_run_that_goes_on_and_what_follows_no_plan_are_refused(tmp_path: Path) -> None:
    write_log(tmp_path / "running")
    directory = RunDirectory(tmp_path / "running")
    lock = directory.lock()
    with pytest.raises(RequestError, match="is still running"):
        read_run(directory)
    directory.unlock(lock)
    (directory.path / SERVICE).write_text("{}")
    with pytest.raises(RequestError, match="has no plan"):
        read_run(directory)


def test_a_run_in_memory_has_what_it_is_given() -> None:
    run = Run(plan=make_plan(), events=[])
    assert (list(run.invocations), list(run.instances), run.document) == ([], [], None)
    assert (run.torn, run.complete, run.alone, run.arch, run.peak_memory_mb) == (False, False, None, "x86_64", 0)
    assert run.cost(load_book(DEFAULT_BOOK))["total"] == "0"
    (other,) = run.replace(invocations=[{"architecture": "arm64", "memory_mb": 1769, "max_memory_mb": 9}]).invocations
    assert other["architecture"] == "arm64"
    with pytest.raises(RunError):
        Run(plan=make_plan()).events  # noqa: B018


def test_a_service_that_was_copied_and_torn_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "up").mkdir()
    (tmp_path / "up" / SERVICE).write_text(json.dumps({**ABOUT, "ended_at": "2026-11-28T10:05:00.000+00:00"}))
    with TraceWriter(tmp_path / "up" / LOG, "up") as writer:
        for record in (
            metered(0, 1000, 2000.0, 40.0) | {"init_cpu_ms": 40.0},
            launch_record("host", "0", "m5.large", 1),
            own_event("object.put", 5, "", resource="bucket/key", function="own") | {"end_ns": 2_500_000_001},
        ):
            writer.write(record)
    copy = shutil.copytree(tmp_path / "up", tmp_path / "another name")
    with (copy / LOG).open("a") as log:
        log.write('{"record": "eve')
    whole, torn = (open_run(RunDirectory(path)).summary() for path in (tmp_path / "up", copy))
    assert (whole["run"], whole["status"], whole["trace_torn"]) == ("up", "done", False)
    assert whole["seconds"]["measured"] == 300
    assert torn == {**whole, "run": "another name", "trace_torn": True}
    lines = {line["item"]: line["quantity"] for line in whole["cost"]["lines"]}
    # Its host counts until the last record.
    assert (lines["Host m5.large"], lines["Lambda duration, x86_64"]) == ("60", "2.04")


HOST = dict.fromkeys(("cores", "cpu_share_enforced", "own_cpu_seconds", "stack", "confinement", "package"))


def test_a_run_for_a_platform_with_gpus_tells_what_it_computed_on_and_prices_containers() -> None:
    recorded = Run(RunDirectory(TRACES / "allreduce"))
    run = recorded.replace(plan=replace(recorded.plan, platform="modal-t4"), document=None)
    document = run.describe(HOST, None, None, 1.0, load_book("modal"))
    assert (document["device"], document["gpu"]) == ("cpu", {"kind": "T4", "memory_mb": 15258})
    cost = document["cost"]
    assert cost["notes"] == ["ran on the CPU, not on a GPU, though containers of modal-t4 are billed"]
    quantities = {line["item"]: float(line["quantity"]) for line in cost["lines"]}
    lives_s = [(one["end_ns"] - one["start_ns"]) / 1e9 + (one["init_ms"] or 0) / 1000 for one in recorded.invocations]
    assert len({one["environment"] for one in recorded.invocations}) == len(lives_s), "each ran once"
    # Each container waits for a minute to be stopped, and is billed by the second.
    assert quantities["GPU T4"] == sum(math.ceil(life_s + 60) for life_s in lives_s)
    assert quantities["vCPUs of containers"] == 2 * quantities["GPU T4"]
    assert not [item for item in quantities if "Lambda" in item]

    used = [{**one, "gpu": "cuda:0 NVIDIA H200", "max_gpu_memory_mb": 812 - n} for n, one in enumerate(run.invocations)]
    document = run.replace(invocations=used).describe(HOST, None, None, 1.0, load_book("modal"))
    assert (document["device"], document["gpu"]["peak_memory_mb"]) == ("cuda:0 NVIDIA H200", 812)
    (note,) = document["cost"]["notes"]
    assert note == "ran on cuda:0 NVIDIA H200: these are its times, and containers of modal-t4 are billed for them"
    killed = Run(run.directory, plan=replace(run.plan, prices="modal"), document=None).summary()
    assert killed["cost"]["book"]["name"] == "modal"
    usual = recorded.replace(document=None).describe(HOST, None, None, 1.0, load_book(DEFAULT_BOOK))
    assert (usual["device"], "gpu" in usual) == (None, False)
