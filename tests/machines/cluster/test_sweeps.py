"""Sweeps over a cluster's processors, from a node and from outside: equal results, Ctrl-C, losses, what is refused."""

import os
import pickle
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.commands import slslab
from tests.lab.replay.recordings import TRACES
from tests.machines.cluster.conftest import need_cluster
from tests.machines.cluster.network import BIN, LIMIT_S, Nodes, other_version

from slslab.installation import __version__

RUN = TRACES / "mobilenet-idle"
GRID = ("replay", str(RUN), "--workers", "2,3,4,5,6", "--memory", "1500,1769,3008", "--json")
# What takes minutes.
LARGE = ("replay", str(RUN), "--workers", ",".join(str(number) for number in range(2000, 4000)))
# What takes half a minute of a processor, in some sixty batches.
MIDDLE = ("replay", str(RUN), "--workers", ",".join(str(number) for number in range(2000, 2060)), "--json")
# s; what is within a moment on a host that others load.
MOMENT_S = 10
# s; a head that does not answer is given up after half a minute.
LOST_S = 120


@pytest.fixture(scope="module")
def alone() -> str:
    """The document of the grid, played in this process."""
    return slslab(*GRID).out


@pytest.mark.parametrize(
    ("number", "place"), [(0, "ray"), pytest.param(1, "ray://{head}:10001", marks=pytest.mark.exhaustive)]
)
def test_a_grid_on_a_cluster_is_equal_bit_for_bit(
    nodes: Nodes, alone: str, number: int, place: str, tmp_path: Path
) -> None:
    command = [str(BIN / "slslab"), *GRID, "--on", place.format(head=nodes.address(0))]
    done = nodes.run(number, command, variables={"XDG_CACHE_HOME": str(tmp_path)})
    assert (done.returncode, done.stdout) == (0, alone)
    assert done.stderr.endswith("playing variants: 15 of 15\n")


def test_an_error_on_a_cluster_is_the_same_as_here(nodes: Nodes, tmp_path: Path) -> None:
    command = ("ask", "gpu", str(TRACES / "spirt"), "--workers", "3,4")
    here = slslab(*command)
    done = nodes.run(0, [str(BIN / "slslab"), *command, "--on", "ray"], variables={"XDG_CACHE_HOME": str(tmp_path)})
    assert (done.returncode, done.stdout, done.stderr) == (2, "", here.err)


def test_a_cluster_with_a_node_of_another_version_is_refused_by_its_name(nodes: Nodes, tmp_path: Path) -> None:
    variables = {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(other_version(tmp_path))}
    done = nodes.run(0, [str(BIN / "slslab"), *GRID, "--on", "ray"], variables=variables)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"({nodes.address(1)}): it has slslab {__version__}, but this host has 9" in done.stderr
    assert done.stderr.count("Hint: ") == 1


def test_what_is_no_cluster_is_refused(tmp_path: Path) -> None:
    need_cluster()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"ray://127.0.0.1:{server.getsockname()[1]}"
    done = slslab(*GRID, "--on", address, variables={"XDG_CACHE_HOME": str(tmp_path)})
    assert (done.code, done.out) == (3, "")
    assert f"The Ray cluster at {address} can't be used: " in done.err
    assert done.err.count("Hint: ") == 1


@contextmanager
def sweeping(
    nodes: Nodes, number: int, place: str, cache: Path, grid: Sequence[str] = LARGE
) -> Iterator[subprocess.Popen[str]]:
    """A sweep in its middle, from a node."""
    command = ["env", f"XDG_CACHE_HOME={cache}", str(BIN / "slslab"), *grid, "--on", place]
    running = nodes.popen(number, command)
    try:
        while not list(cache.rglob("*.pickle")):
            assert running.poll() is None, running.communicate()
            time.sleep(0.1)
        yield running
    finally:
        running.kill()
        running.wait()


@pytest.mark.exhaustive
def test_ctrl_c_gives_the_cluster_its_processors_back(nodes: Nodes, alone: str, tmp_path: Path) -> None:
    began = time.monotonic()
    with sweeping(nodes, 0, "ray", tmp_path) as running:
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=60)
        assert (running.returncode, out, err.strip()) == (130, "", "")
    end = time.monotonic() + MOMENT_S
    while (busy := workers(nodes, 0, 1, 2)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not busy, time.monotonic() - began
    done = nodes.run(0, [str(BIN / "slslab"), *GRID, "--on", "ray"], variables={"XDG_CACHE_HOME": str(tmp_path)})
    assert (done.returncode, done.stdout) == (0, alone)


def workers(nodes: Nodes, *numbers: int) -> list[str]:
    """The processes of some nodes that compute."""
    return [line for number in numbers for line in nodes.lines(number) if line.startswith("ray::compute_batch")]


@pytest.mark.exhaustive
@pytest.mark.parametrize("place", ["ray", "ray://{head}:10001"])
def test_a_lost_head_ends_the_sweep_and_what_is_done_is_kept(place: str, tmp_path: Path) -> None:
    need_cluster()
    with Nodes(2) as nodes, sweeping(nodes, 1, place.format(head=nodes.address(0)), tmp_path) as running:
        nodes.kill(0)
        out, err = running.communicate(timeout=LOST_S)
    assert (running.returncode, out) == (3, ""), err
    assert err.count("\n") == 3, err
    error, hint = err.strip().splitlines()
    assert error.startswith("Error: The Ray cluster at ")
    assert f"{nodes.address(0)}:" in error
    assert hint == "Hint: the same command continues where it stopped."
    for path in tmp_path.rglob("*.pickle"):
        pickle.loads(path.read_bytes())


@pytest.mark.exhaustive
def test_what_a_lost_node_computed_is_computed_elsewhere(tmp_path: Path) -> None:
    need_cluster()
    alone = slslab(*MIDDLE)
    with Nodes(2) as nodes, sweeping(nodes, 0, "ray", tmp_path, MIDDLE) as running:
        # It has points that are lost with it.
        while not workers(nodes, 1):
            assert running.poll() is None, running.communicate()
            time.sleep(0.1)
        nodes.kill(1)
        out, err = running.communicate(timeout=LIMIT_S)
    assert (running.returncode, out, err) == (0, alone.out, alone.err)
