"""Runs with solo profiles: the CPU seconds of one worker alone, measured before the run."""

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests import commands
from tests.choices import chosen

from slslab.run.log import load
from slslab.run.metrics import grouped
from slslab.run.run import Run
from slslab_lab.replay.programs.recorded import make_program
from slslab_lab.replay.programs.recording import read_recording
from slslab_lab.runs.alone import DELAYED, SLOWDOWN, STALLED

SMALL = ("--epochs", "2", "--workers", "2", "--batches", "2", "--no-evaluation")
# The queue that starts fastest, and memory that holds what every environment has imported.
MORE = {"mlless": ("--queue", "embedded"), "spirt": ("--queue", "embedded", "--light-memory", "1024")}


def run(directory: Path, *arguments: object) -> dict[str, Any]:
    with commands.forked_environments():
        variables = {"CUDA_VISIBLE_DEVICES": "", "XDG_CACHE_HOME": str(directory.parent / "cache")}
        done = commands.slslab("run", *arguments, "--json", "--out", directory, variables=variables)
    assert ("measuring steps alone: 0 of " in done.err) == (done.document["plan"]["record"] == "alone")
    return dict(done.document)


def cpu_seconds(recording: Run, op: str) -> list[float]:
    """CPU seconds of the program's steps of an operation, in order, without what came before each."""
    events = recording.events
    steps = [step for track in make_program(recording).tracks for step in track.flat_steps() if step.op == op]
    return [(step.cpu_ns - events[step.event]["cpu_before_ns"]) / 1e9 for step in steps]


def medians(document: dict[str, Any]) -> dict[str, list[float]]:
    return grouped((kind["op"], kind["cpu_seconds"]["median"]) for kind in document["alone"]["kinds"])


ARCHITECTURES = ("allreduce", "scatterreduce", "mlless", "spirt", "gloo", "gpu")


@pytest.mark.parametrize("architecture", chosen(ARCHITECTURES, "allreduce", "spirt"))
def test_replay_takes_what_one_worker_took_alone(tmp_path: Path, architecture: str) -> None:
    document = run(tmp_path / "run", architecture, *SMALL, *MORE.get(architecture, ()), "--record", "alone")
    assert document["alone"]["status"] == "measured"
    measured = medians(document)
    assert {"build", "prepare", "compute", "environment.start"} <= measured.keys()
    taken = cpu_seconds(read_recording(tmp_path / "run"), "compute")
    assert len(taken) == 8
    for seconds in taken:
        assert min(abs(seconds - one) for one in measured["compute"]) < 1e-6
    if architecture == "spirt":
        averages = [k for k in document["alone"]["kinds"] if k["function"].endswith("/average")]
        assert {2 * 61_706 * 4} <= {k["bytes"] for k in averages}, "the two gradients of each epoch of the run"


def test_the_run_is_as_without(tmp_path: Path) -> None:
    together = run(tmp_path / "together", "allreduce", *SMALL, "--record", "together")
    began = time.monotonic()
    alone = run(tmp_path / "alone", "allreduce", *SMALL, "--record", "alone")
    seconds = time.monotonic() - began
    assert together["alone"] is None
    assert alone["seconds"]["measured"] + alone["alone"]["seconds"] < seconds, "the profile's are not the run's"
    for same in ("counts", "bytes", "parameters_sha256", "invocations", "loss"):
        assert alone[same] == together[same]
    recording = read_recording(tmp_path / "together")
    own = [event["cpu_ns"] / 1e9 for event in recording.events if event["op"] == "compute"]
    assert sorted(cpu_seconds(recording, "compute")) == pytest.approx(sorted(own))
    traced = {event["invocation"] for event in read_recording(tmp_path / "alone").events if event["worker"] >= 0}
    assert len(traced) == 2, "what was measured before is not in the run's trace"
    for same in ("package", "confinement", "stack"):
        assert alone[same] == together[same]
    folders = tmp_path / "alone" / "logs", tmp_path / "alone" / "alone" / "logs"
    logs = [{log.name for log in folder.iterdir()} for folder in folders]
    assert [len(names) for names in logs] == [2, 3], "two workers; one worker twice, and the function that combines"
    assert not logs[0] & logs[1]


def test_faults_are_the_runs_alone(tmp_path: Path) -> None:
    faults = tmp_path / "faults.toml"
    faults.write_text('[[fault]]\nkind = "throttle"\n\n[[fault]]\nkind = "slow-down"\n')
    arguments = ("--record", "alone", "--faults", faults)
    assert run(tmp_path / "run", "allreduce", *SMALL, *arguments)["alone"]["status"] == "measured"
    for folder, met in ((tmp_path / "run", {"throttle", "slow-down"}), (tmp_path / "run" / "alone", set())):
        faulty = [event["resource"] for event in load(folder).events if event["op"] == "fault"]
        assert {resource.split()[1] for resource in faulty} == met


def test_a_plan_keeps_it_and_a_host_with_busy_loops_is_marked(tmp_path: Path) -> None:
    quiet = run(tmp_path / "quiet", "allreduce", *SMALL, "--record", "alone")["alone"]
    # The machine's own neighbours and other tests' containers may be loud: then the measurement says which bound.
    over = (quiet["probe_ratio"], SLOWDOWN), (quiet["stalled_share"] or 0, STALLED), (quiet["delayed_share"], DELAYED)
    assert quiet["quiet"] is not any(share > bound for share, bound in over), quiet
    # Each in a session of its own, among which the kernel may share processors out, and not among processes.
    busy = ["sh", "-c", "while :; do :; done"]
    loops = [subprocess.Popen(busy, start_new_session=True) for _ in range(os.cpu_count() or 2)]
    try:
        loaded = run(tmp_path / "loaded", tmp_path / "quiet" / "plan.toml")
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    assert loaded["alone"]["quiet"] is False, loaded["alone"]
    assert loaded["alone"]["probe_ratio"] > 1.5
    if os.geteuid() == 0:
        assert loaded["alone"]["priority"] == "high"
        assert loaded["alone"]["delayed_share"] < 0.1, "its worker outranks the loops"
    for shown in (("show", "--full"), ("replay",)):
        for directory, marked in (("quiet", not quiet["quiet"]), ("loaded", True)):
            text = commands.slslab(*shown, tmp_path / directory).out
            assert "measured alone" in text
            assert ("NOT QUIET" in text) is marked


def test_a_worker_that_fails_alone_is_named_and_the_run_says_the_rest(tmp_path: Path) -> None:
    """128 MB do not hold PyTorch."""
    plan = ("run", "allreduce", *SMALL, "--memory", "128", "--record", "alone")
    done = commands.slslab(*plan, "--json", "--out", tmp_path / "run")
    assert done.code == 1
    assert done.printed["alone"]["status"] == "not measured"
    assert done.printed["alone"]["reason"].startswith("Runtime.OutOfMemory: ")
    assert done.printed["error"]["type"] == "Runtime.OutOfMemory"
    shown = commands.slslab("show", tmp_path / "run", "--full").out
    assert "CPU seconds weren't measured alone, so replay uses the run's own." in shown
