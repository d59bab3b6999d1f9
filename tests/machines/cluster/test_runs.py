"""Runs with environments on a cluster's nodes: they learn, send and are billed like on one host."""

import json
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.machines.cluster.network import BIN, Nodes

from slslab.run.log import load, metered_records

LIMIT_S = 240.0
LEFT_S = 30.0
MARK = b"SLSLAB_EMULATOR="
SMALL = ("--model", "lr", "--dataset", "breast-cancer", "--workers", "3", "--epochs", "2", "--batches", "2")
ARCHITECTURES = {
    "allreduce": ("--memory", "512"),
    "scatterreduce": ("--memory", "512"),
    "mlless": ("--memory", "512"),
    "spirt": ("--memory", "512", "--light-memory", "512"),
    "gradssharding": ("--memory", "512"),
    "kubeml": ("--memory", "512", "--job-memory", "512", "--batch-size", "64"),
}
# ms; packets between nodes take so much more, each way.
DELAY_MS = 0.5
RUNS = [
    pytest.param(DELAY_MS, name, marks=() if name == "allreduce" else pytest.mark.exhaustive) for name in ARCHITECTURES
]


def command(architecture: str, out: Path, *more: str) -> list[str]:
    """Return the command of a small run that leaves its files in `out`."""
    given = ("--batch-size", "16") if architecture != "kubeml" else ()
    plan = [*SMALL, *given, *ARCHITECTURES[architecture], *more]
    return [str(BIN / "slslab"), "run", architecture, *plan, "--out", str(out), "--json"]


def run(nodes: Nodes, architecture: str, out: Path, *more: str) -> dict[str, Any]:
    """Make a run on the first node and return its document."""
    done = nodes.run(0, command(architecture, out, *more), limit_s=LIMIT_S)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def requests(out: Path) -> Counter[tuple[str, str]]:
    """Return the number of requests by operation and phase, without the ones that depend on time."""
    return Counter(
        (event["op"], event["phase"])
        for event in load(out).events
        if event["op"].endswith((".put", ".publish", ".set")) or event["op"] in ("invoke", "forward", "backward")
    )


@pytest.mark.parametrize(("nodes", "architecture"), RUNS, indirect=["nodes"])
def test_a_run_on_nodes_is_that_of_one_host_and_leaves_nothing(nodes: Nodes, architecture: str, tmp_path: Path) -> None:
    # Nodes make no solo profile, either.
    here = run(nodes, architecture, tmp_path / "here", "--environment", "process", "--record", "together")
    there = run(nodes, architecture, tmp_path / "there", "--environment", "ray")
    for same in ("parameters_sha256", "loss", "replicas_equal", "invocations"):
        assert there[same] == here[same], same
    assert requests(tmp_path / "there") == requests(tmp_path / "here")
    assert [line["item"] for line in there["cost"]["lines"]] == [line["item"] for line in here["cost"]["lines"]]
    found = {node["name"]: node for node in there["host"]["nodes"]}
    assert len(found) == 3
    assert all(node["clock_error_ms"] < 50 for node in found.values())
    environments = {record["environment"] for record in metered_records(tmp_path / "there")}
    assert len(environments) > 1
    assert_nothing_left(nodes)


def assert_nothing_left(nodes: Nodes, left_s: float = LEFT_S) -> None:
    """Assert that no process of slslab is on any node, or will not be in a moment."""
    deadline = time.monotonic() + left_s
    while (found := ours(nodes)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not found


def ours(nodes: Nodes) -> list[str]:
    """Return the processes on nodes that an emulator or a node of it has started: they have its mark."""
    found = []
    for pid in (pid for number in range(nodes.count) for pid in nodes.pids(number)):
        try:
            if MARK in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def test_a_command_without_a_cluster_says_how_to_begin_one(tmp_path: Path) -> None:
    done = subprocess.run(
        command("allreduce", tmp_path / "run", "--environment", "ray"),
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "This machine isn't a node of a Ray cluster" in done.stderr
    assert "ray start --head" in done.stderr
