"""Sweeps over a cluster's processors, from a node and from outside: equal results, Ctrl-C, what is refused."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.commands import slslab
from tests.machines.cluster.conftest import need_cluster
from tests.machines.cluster.network import BIN, Nodes, other_version
from tests.slslab.replay.recordings import TRACES

RUN = TRACES / "mobilenet-idle"
GRID = ("replay", str(RUN), "--workers", "2,3,4,5,6", "--memory", "1500,1769,3008", "--json")
# What takes minutes.
LARGE = ("replay", str(RUN), "--workers", ",".join(str(number) for number in range(2000, 2200)), "--on", "ray")
# s; what is within a moment on a host that others load.
MOMENT_S = 10


@pytest.fixture(scope="module")
def alone() -> str:
    """The document of the grid, played in this process."""
    return slslab(*GRID).out


@pytest.mark.parametrize(("number", "place"), [(0, "ray"), (1, "ray://{head}:10001")])
def test_a_grid_on_a_cluster_is_equal_bit_for_bit(
    nodes: Nodes, alone: str, number: int, place: str, tmp_path: Path
) -> None:
    command = [str(BIN / "slslab"), *GRID, "--on", place.format(head=nodes.address(0))]
    done = nodes.run(number, command, variables={"XDG_CACHE_HOME": str(tmp_path)})
    assert (done.returncode, done.stdout, done.stderr) == (0, alone, "playing variants: 15 done\n\n")


def test_an_error_on_a_cluster_is_the_same_as_here(nodes: Nodes, tmp_path: Path) -> None:
    command = ("ask", "gpu", str(TRACES / "spirt"), "--workers", "3,4")
    here = slslab(*command)
    done = nodes.run(0, [str(BIN / "slslab"), *command, "--on", "ray"], variables={"XDG_CACHE_HOME": str(tmp_path)})
    assert (done.returncode, done.stdout, done.stderr) == (2, "", here.err)


def test_a_cluster_with_a_node_of_another_version_is_refused_by_its_name(nodes: Nodes, tmp_path: Path) -> None:
    variables = {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(other_version(tmp_path))}
    done = nodes.run(0, [str(BIN / "slslab"), *GRID, "--on", "ray"], variables=variables)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"({nodes.address(1)}): it has slslab 0.1.0, and this host has 9" in done.stderr
    assert done.stderr.count("Hint: ") == 1


def test_what_is_no_cluster_is_refused(tmp_path: Path) -> None:
    need_cluster()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"ray://127.0.0.1:{server.getsockname()[1]}"
    done = slslab(*GRID, "--on", address, variables={"XDG_CACHE_HOME": str(tmp_path)})
    assert (done.code, done.out) == (3, "")
    assert f"No Ray cluster at {address} takes this host: " in done.err
    assert done.err.count("Hint: ") == 1


@contextmanager
def interrupted(nodes: Nodes, cache: Path) -> Iterator[tuple[int, str, str]]:
    """A sweep that has met Ctrl-C in its middle: exit code and what it printed."""
    running = nodes.popen(0, ["env", f"XDG_CACHE_HOME={cache}", str(BIN / "slslab"), *LARGE])
    try:
        while not list(cache.rglob("*.pickle")):
            assert running.poll() is None, running.communicate()
            time.sleep(0.1)
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=60)
        yield running.returncode, out, err
    finally:
        running.kill()
        running.wait()


def test_ctrl_c_gives_the_cluster_its_processors_back(nodes: Nodes, alone: str, tmp_path: Path) -> None:
    began = time.monotonic()
    with interrupted(nodes, tmp_path) as (code, out, err):
        assert (code, out, err.strip()) == (130, "", "")
    end = time.monotonic() + MOMENT_S
    while (busy := workers(nodes)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not busy, time.monotonic() - began
    done = nodes.run(0, [str(BIN / "slslab"), *GRID, "--on", "ray"], variables={"XDG_CACHE_HOME": str(tmp_path)})
    assert (done.returncode, done.stdout) == (0, alone)


def workers(nodes: Nodes) -> list[str]:
    """The processes of joblib's pools on the nodes."""
    return [line for number in range(3) for line in nodes.lines(number) if line.startswith("ray::PoolActor")]
