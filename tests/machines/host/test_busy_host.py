"""A whole run on a host that is busy with something else."""

import os
import subprocess
from pathlib import Path

import pytest
from tests import commands

from slslab.run.log import load


def test_a_busy_host_changes_no_billed_compute(tmp_path: Path) -> None:
    """Busy loops on all cores: no failure, marked oversubscribed, and compute is billed as its CPU time.

    Compared with the CPU seconds of the same steps and not with another run: on a shared machine equal steps differ in
    CPU seconds by more than the 5 % in question. One thread at 1,769 MB has a whole vCPU, so that on an idle host its
    compute seconds are its CPU seconds.
    """
    plan = ["run", "allreduce", "--model", "mobilenet", "--dataset", "synthetic", "--workers", "1", "--memory", "1769"]
    plan += ["--batch-size", "128", "--batches", "2", "--no-evaluation", "--json", "--out", str(tmp_path / "run")]
    # Each in a session of its own, among which the kernel may share processors out, and not among processes.
    busy = ["sh", "-c", "while :; do :; done"]
    loops = [subprocess.Popen(busy, start_new_session=True) for _ in range(os.cpu_count() or 2)]
    try:
        with commands.forked_environments():
            document = commands.slslab(*plan, variables={"CUDA_VISIBLE_DEVICES": ""}).document
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    assert document["host"]["oversubscribed"] is True
    events = load(tmp_path / "run").events
    compute = [event for event in events if event["op"] == "compute"]
    wall = sum(event["end_ns"] - event["start_ns"] for event in compute) / 1e9
    cpu = sum(event["cpu_ns"] for event in compute) / 1e9
    assert document["phases"]["compute"] == pytest.approx(cpu, rel=0.05)
    assert wall > 1.05 * cpu, "the host was busy indeed"
