"""Sweeps on Ray: a small one of this host, and a cluster that is there; equal results, Ctrl-C, and what is refused.

Skipped where Ray is not installed, unless SLSLAB_RAY=required says that it must be.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
from tests.commands import Done, slslab
from tests.slslab.replay.recordings import TRACES

from slslab.installation import installed

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(
        not installed("ray") and os.environ.get("SLSLAB_RAY") != "required", reason="no Ray: pip install 'slslab[ray]'"
    ),
]

RUN = TRACES / "mobilenet-idle"
GRID = ("replay", RUN, "--workers", "2,3,4,5,6", "--memory", "1500,1769,3008", "--json")
# A command of another version.
NEWER = "import slslab.installation; slslab.installation.__version__ = '9'; from slslab.cli.main import main; main()"
COMMAND = "from slslab.cli.main import main; main()"
START_S, END_S = 60, 10


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: Ray has sockets in it."""
    with TemporaryDirectory(prefix="ray", dir="/tmp") as name:
        yield Path(name)


def run(folder: Path, *arguments: object, program: str = COMMAND) -> Done:
    """Run a command in a process of its own, whose temporary files and results are in the folder."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, env=variables(folder), capture_output=True, text=True, timeout=180)
    return Done(done.returncode, done.stdout, done.stderr)


def variables(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "HOME": str(folder)}


def processes(folder: Path) -> list[psutil.Process]:
    """Processes whose files are in the folder."""
    return [each for each in psutil.process_iter() if str(folder) in " ".join(_command(each))]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def assert_ended(folder: Path) -> None:
    """Assert that no process and no folder of a Ray is left."""
    end = time.monotonic() + END_S
    while processes(folder) and time.monotonic() < end:
        time.sleep(0.1)
    assert processes(folder) == []
    assert list(folder.glob("slslab-ray-*")) == []


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster of one node with two processors."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as folder:
        command = ["ray", "start", "--head", "--block", "--port=0", "--num-cpus=2"]
        command += [f"--ray-client-server-port={port}", "--include-dashboard=false", f"--temp-dir={folder}"]
        # The second one has its servers listen on the loopback interface alone.
        environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
        program = str(Path(sys.executable).with_name(command[0]))
        with subprocess.Popen([program, *command[1:]], env=environment, stdout=subprocess.DEVNULL) as process:
            try:
                end = time.monotonic() + START_S
                while not _answers(port) and time.monotonic() < end:
                    assert process.poll() is None
                    time.sleep(0.2)
                yield f"ray://127.0.0.1:{port}"
            finally:
                process.terminate()


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def alone() -> str:
    """The document of the grid, played in this process."""
    return slslab(*GRID).out


def test_a_grid_on_a_ray_of_this_host_is_equal_bit_for_bit(folder: Path, alone: str) -> None:
    done = run(folder, *GRID, "--on", "ray")
    assert (done.code, done.out, done.err) == (0, alone, "playing variants: 15 done\n\n")
    assert_ended(folder)


def test_a_grid_on_a_cluster_is_equal_bit_for_bit(folder: Path, cluster: str, alone: str) -> None:
    done = run(folder, *GRID, "--on", cluster)
    assert (done.code, done.out, done.err) == (0, alone, "playing variants: 15 done\n\n")


def test_an_error_on_ray_is_the_same_as_here(folder: Path) -> None:
    command = ("ask", "gpu", TRACES / "spirt", "--workers", "3,4")
    here, there = run(folder, *command), run(folder, *command, "--on", "ray")
    assert (here.code, here.out) == (2, "")
    assert there == here


def test_nodes_of_another_version_are_refused(folder: Path, cluster: str) -> None:
    done = run(folder, *GRID, "--on", cluster, program=NEWER)
    assert (done.code, done.out) == (3, "")
    assert f"All nodes of {cluster} need slslab 9, and 127.0.0.1 has 0.1.0." in done.err
    assert "pip install 'slslab[ray,report]==9'" in done.err


@pytest.mark.parametrize("listens", [False, True])
def test_what_is_no_cluster_is_refused(folder: Path, listens: bool) -> None:
    """Nothing, and something that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"ray://127.0.0.1:{server.getsockname()[1]}"
        if not listens:
            server.close()
        done = run(folder, *GRID, "--on", address)
    assert (done.code, done.out) == (3, "")
    assert address in done.err
    assert done.err.count("Hint: ") == 1
    assert "Traceback" not in done.err


def test_ctrl_c_ends_the_ray_of_this_host(folder: Path) -> None:
    large = ("replay", RUN, "--workers", ",".join(str(number) for number in range(2000, 2200)), "--on", "ray")
    command = [sys.executable, "-c", COMMAND, *map(str, large)]
    with subprocess.Popen(
        command,
        env=variables(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        while not list(folder.rglob("*.pickle")):
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        ports = [port for each in processes(folder) for port in each.net_connections() if port.status == "LISTEN"]
        assert ports
        assert all(port.laddr.ip.removeprefix("::ffff:") == "127.0.0.1" for port in ports)
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert time.monotonic() - began < END_S
    assert (process.returncode, out, err.strip()) == (130, "", "")
    assert_ended(folder)
