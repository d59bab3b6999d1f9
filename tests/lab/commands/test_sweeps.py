"""`--on`: the same documents as without it, bit for bit; Ctrl-C; and what is refused."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from tests.commands import slslab
from tests.lab.replay.recordings import TRACES

from slslab.installation import install_command

RUN = TRACES / "mobilenet-idle"
# As many points as `slslab replay` should be given over many cores: 25 numbers of workers with 20 memory sizes.
GRID = (
    *("replay", RUN, "--workers", ",".join(str(number) for number in range(2, 27))),
    *("--memory", ",".join(str(size) for size in range(1000, 3000, 100))),
)
# What takes minutes.
LARGE = ("replay", RUN, "--workers", ",".join(str(number) for number in range(2000, 2200)), "--on", "local")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where results are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "slslab" / "sweeps"


@pytest.mark.exhaustive
def test_a_grid_of_500_replays_is_equal_bit_for_bit(cache: Path) -> None:
    alone = slslab(*GRID, "--json")
    assert len(alone.document["rows"]) == 502
    assert not cache.exists(), "without --on nothing is kept"
    for _ in ("computed", "read"):
        spread = slslab(*GRID, "--on", "local", "--json")
        assert spread.out == alone.out
        assert spread.err.endswith("playing variants: 500 of 500\n")
    assert list(cache.rglob("*.pickle"))


@pytest.mark.parametrize(
    "question",
    [
        "memory {run} --memory 1769,3008,5307",
        "cheapest {run} --deadline 1000",
        "patterns {run} --workers 2,4",
        "gpu {run} --workers 2,4",
        "model {run} --workers 1,2,4",
    ],
)
def test_a_question_has_the_same_answer(question: str) -> None:
    command = ("ask", *question.format(run=RUN).split(), "--json")
    assert slslab(*command, "--on", "local").out == slslab(*command).out


def test_what_is_kept_of_other_epochs_is_no_answer() -> None:
    for epochs in ("1,2", "5"):
        command = ("ask", "gpu", RUN, "--workers", "2,4", "--epochs", epochs, "--json")
        assert slslab(*command, "--on", "local").out == slslab(*command).out


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (f"replay {RUN} --workers 2,4 --on dask", "--on 'dask' is not a place to compute."),
        (f"replay {RUN} --on local", "--on needs a list to spread over many cores."),
        (
            "reproduce byzantine --fidelity replayed --on local",
            "--on doesn't apply here: measured runs need the host to themselves",
        ),
        ("reproduce table2 --fidelity replayed --on ray", "--on doesn't apply here: measured runs need"),
        ("reproduce table2 --on dask", "--on 'dask' is not a place to compute."),
        ("reproduce kubeml-accuracy --on ray://head:10001", "Invalid value for '--on'"),
        ("atlas --check --out checks --on local", "need the host to themselves"),
    ],
)
def test_what_is_refused(command: str, says: str, tmp_path: Path) -> None:
    done = slslab(*command.split(), directory=tmp_path, variables={"SLSLAB_RUNS": str(tmp_path / "runs")})
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert done.err.count("Hint: ") == 1
    assert list(tmp_path.iterdir()) == []


def test_ray_that_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # so it can be neither found nor imported
    done = slslab("replay", RUN, "--workers", "2,4", "--on", "ray")
    assert done.code == 3
    assert done.err.lstrip() == f"Error: The package ray is not installed.\nHint: {install_command('ray')}\n"


@contextmanager
def sweeping(folder: Path, *command: object) -> Iterator[subprocess.Popen[str]]:
    """A command in the middle of its sweep, which keeps results in a folder, in a session as at a terminal."""
    with subprocess.Popen(
        [sys.executable, "-m", "slslab", *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            while not list(folder.rglob("*.pickle")):
                assert process.poll() is None, process.communicate()
                time.sleep(0.05)
            yield process
        finally:
            for each in members(process.pid):
                each.kill()


def members(session: int) -> list[psutil.Process]:
    """The processes of a session that live."""
    found = []
    for each in psutil.process_iter():
        try:
            if os.getsid(each.pid) == session and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def assert_ended(session: int) -> None:
    """Assert that the processes of a session end, long before their work would."""
    end = time.monotonic() + 60
    while members(session) and time.monotonic() < end:
        time.sleep(0.05)
    assert members(session) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_of_the_job_ends_it_before_the_next_points(number: signal.Signals, cache: Path) -> None:
    with sweeping(cache, *LARGE) as process:
        os.killpg(process.pid, number)
        computed = len(list(cache.rglob("*.pickle")))
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err.strip()) == (128 + number, "", "")
        assert_ended(process.pid)
    # What each process was about to write, of 200 points.
    assert len(list(cache.rglob("*.pickle"))) <= computed + (os.cpu_count() or 1)
    assert all(path.suffix == ".pickle" for path in cache.rglob("*") if path.is_file()), "each is whole"


def test_processes_end_with_a_command_that_is_killed(cache: Path) -> None:
    with sweeping(cache, *LARGE) as process:
        assert len(members(process.pid)) > 2
        process.kill()
        process.wait()
        assert_ended(process.pid)
