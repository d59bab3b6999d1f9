"""Measured runs on a cluster's nodes, each alone: documents as of runs made there, Ctrl-C, and lost nodes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.machines.cluster.conftest import need_cluster
from tests.machines.cluster.network import Nodes
from tests.machines.cluster.test_runs import assert_nothing_left

from slslab.run.directory import DOCUMENT, RunDirectory
from slslab.run.run import read_run
from slslab_lab.checks.run import check

SCRIPT = Path(__file__).with_name("tiny_table2.py")
LIMIT_S = 240
# Minibatches: as few as can be, and as many as the data set has.
FEW, MANY = 3, 44

pytestmark = pytest.mark.exhaustive


def command(rows: int, batches: int, place: str, out: Path) -> list[str]:
    """Return the command for a table of this many rows."""
    given = ["reproduce", "table2", "--on", place, "--out", str(out), "--json"]
    return [sys.executable, str(SCRIPT), str(rows), str(batches), *given]


def documents(out: Path) -> dict[str, dict[str, Any]]:
    """Return the documents of the runs that are there, by the names of their directories."""
    return {path.parent.name: json.loads(path.read_text()) for path in out.glob(f"*/{DOCUMENT}")}


def hosts(out: Path) -> list[str]:
    """Return the nodes that have made the runs."""
    return sorted(document["host"]["name"] for document in documents(out).values())


@pytest.mark.parametrize(("number", "place"), [(0, "ray"), (1, "ray://{head}:10001")])
def test_rows_of_a_table_are_runs_of_two_nodes(nodes: Nodes, number: int, place: str, tmp_path: Path) -> None:
    done = nodes.run(number, command(2, FEW, place.format(head=nodes.address(0)), tmp_path))
    assert done.returncode == 0, done.stderr
    assert len(set(hosts(tmp_path))) == 2, done.stderr
    for name, document in documents(tmp_path).items():
        run = RunDirectory(tmp_path / name)
        assert (run.status(), run.locked(), document["status"]) == ("done", False, "done")
        assert document["host"]["cpu_share_enforced"] is True
        assert list(run.logs.iterdir())
        assert not check(read_run(run)).violations
        assert f"{name}: " in done.stderr
        assert f" on {document['host']['name']}; " in done.stderr
    table = json.loads(done.stdout)
    assert [note for note in table["notes"] if note.startswith("The `measured` column mixes 2 hosts")]
    assert_nothing_left(nodes)
    # What is there is kept, and no cluster is needed for it.
    again = nodes.run(number, command(2, FEW, "ray://127.0.0.1:1", tmp_path))
    assert (again.returncode, again.stdout) == (0, done.stdout), again.stderr


@contextmanager
def making(nodes: Nodes, number: int, *given: Any) -> Iterator[subprocess.Popen[str]]:
    """A command that makes runs, from a node."""
    running = nodes.popen(number, command(*given))
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def wait_until(condition: Callable[[], object], running: subprocess.Popen[str]) -> None:
    """Wait until something has come about while a command runs."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < end
        time.sleep(0.1)


def makes_a_run(nodes: Nodes, number: int) -> bool:
    """Return whether a run is in its middle on a node: there are the reapers of its task and of its stack."""
    return sum("host/reaper.py" in line for line in nodes.lines(number)) > 1


@pytest.mark.parametrize("place", ["ray", "ray://{head}:10001"])
def test_ctrl_c_keeps_the_runs_that_are_done_and_frees_the_nodes(nodes: Nodes, place: str, tmp_path: Path) -> None:
    place = place.format(head=nodes.address(0))
    with making(nodes, 0, 4, 30, place, tmp_path) as running:
        wait_until(lambda: documents(tmp_path), running)
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=LIMIT_S)
    assert (running.returncode, out) == (130, ""), err
    kept = documents(tmp_path)
    assert f"Interrupted: {len(kept)} of 4 runs exist; the same command makes the others." in err
    assert {path.name for path in tmp_path.iterdir()} == set(kept)
    assert_nothing_left(nodes)
    done = nodes.run(0, command(4, 30, place, tmp_path))
    assert done.returncode == 0, done.stderr
    assert len(documents(tmp_path)) == 4
    assert documents(tmp_path).items() >= kept.items()


def test_the_run_of_a_lost_node_is_made_on_another(tmp_path: Path) -> None:
    need_cluster()
    with Nodes(2) as nodes, making(nodes, 0, 2, MANY, "ray", tmp_path) as running:
        wait_until(lambda: makes_a_run(nodes, 1), running)
        nodes.kill(1)
        out, err = running.communicate(timeout=LIMIT_S)
        assert running.returncode == 0, err
        assert f"({nodes.address(1)}) is not used: it was lost: " in err
        assert [nodes.address(0) in name for name in hosts(tmp_path)] == [True] * 2
        assert len(json.loads(out)["rows"]) == 2
        assert not any("mixes" in note for note in json.loads(out)["notes"])


@pytest.mark.parametrize("place", ["ray", "ray://{head}:10001"])
def test_a_lost_head_ends_the_command_by_name(place: str, tmp_path: Path) -> None:
    need_cluster()
    with Nodes(2) as nodes, making(nodes, 1, 2, MANY, place.format(head=nodes.address(0)), tmp_path) as running:
        wait_until(lambda: makes_a_run(nodes, 1), running)
        nodes.kill(0)
        out, err = running.communicate(timeout=LIMIT_S)
    assert (running.returncode, out) == (3, ""), err
    error, hint = err.strip().splitlines()[-2:]
    assert error.startswith("Error: The Ray cluster at ")
    assert hint == "Hint: the same command goes on where it stopped."
    assert set(documents(tmp_path)) == {path.name for path in tmp_path.iterdir()}
