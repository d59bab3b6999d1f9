"""The reaper as a process of its own: what it kills, what it removes, what it leaves alone."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from slslab.host import reaper
from slslab.host.cgroups import Cgroup, detect
from slslab.host.reaper import MARK, clean, marked_processes
from slslab.host.session import Session

pytestmark = pytest.mark.server

SLEEP = ["sleep", "600"]


@pytest.fixture
def emulator_id() -> str:
    return f"{os.getpid()}-{secrets.token_hex(4)}"


@pytest.fixture
def start() -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Start a process with variables beside the test's own; it is gone after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def call(**variables: str) -> "subprocess.Popen[bytes]":
        started.append(subprocess.Popen(SLEEP, env={**os.environ, **variables}))
        return started[-1]

    yield call
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def start_reaper(emulator_id: str) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Start the script with these interpreter flags and lines on its input, which stays open."""
    started: list[subprocess.Popen[bytes]] = []

    def call(*lines: str, flags: tuple[str, ...] = ()) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen([sys.executable, *flags, reaper.__file__, emulator_id], stdin=subprocess.PIPE)
        started.append(process)
        assert process.stdin is not None
        process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        process.stdin.flush()
        return process

    yield call
    for process in started:
        with suppress(BrokenPipeError):
            process.communicate()


# `-I -S` is how the emulator starts it; without, it is measured by coverage as well.
@pytest.mark.parametrize("flags", [(), ("-I", "-S")], ids=["plain", "isolated"])
def test_when_its_input_closes_nothing_marked_or_told_is_left(
    flags: tuple[str, ...],
    emulator_id: str,
    tmp_path: Path,
    start: Callable[..., "subprocess.Popen[bytes]"],
    start_reaper: Callable[..., "subprocess.Popen[bytes]"],
) -> None:
    marked, other = start(**{MARK: emulator_id}), start(**{MARK: f"{emulator_id}0"})
    home, file, kept = tmp_path / "home with a space", tmp_path / "file.sock", tmp_path / "kept"
    (home / "below").mkdir(parents=True)
    for path in (home / "below" / "file", file, kept):
        path.touch()
    process = start_reaper(f"path {home}", f"path {file}", f"path {tmp_path / 'never made'}", flags=flags)
    assert process.stdin is not None
    assert process.poll() is None, "it waits as long as the emulator lives"
    assert marked.poll() is None
    process.stdin.close()
    assert process.wait(timeout=20) == 0
    assert marked.wait(timeout=1) == -signal.SIGKILL
    assert other.poll() is None, "the mark of another emulator only begins alike"
    assert sorted(tmp_path.iterdir()) == [kept]


def test_signals_that_end_a_command_do_not_end_its_reaper(
    tmp_path: Path, start_reaper: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    process = start_reaper(f"path {home}")
    ignored = sum(1 << (number - 1) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    status = Path(f"/proc/{process.pid}/status")
    deadline = time.monotonic() + 20
    while int(status.read_text().partition("SigIgn:")[2].split()[0], 16) & ignored != ignored:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process.send_signal(number)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(timeout=20) == 0
    assert not home.exists()


def test_a_control_group_is_emptied_and_removed_frozen_or_not(
    emulator_id: str,
    start: Callable[..., "subprocess.Popen[bytes]"],
    start_reaper: Callable[..., "subprocess.Popen[bytes]"],
) -> None:
    """Processes that shed the mark are found by their group."""
    hierarchy = detect()
    if not hierarchy.parents:
        pytest.skip("no writable control groups on this host")
    nested = hierarchy.nested(f"slslab-{emulator_id}")
    parents = sorted(set(nested.parents.values()))
    group = Cgroup(nested, "one", memory_bytes=64 * 2**20, cpu_share=0.5, processes=16)
    unmarked = start()
    for file in group.join_files:
        file.write_text(str(unmarked.pid))
    if group.freezes:
        group.freeze()
    process = start_reaper(*(f"cgroup {parent}" for parent in parents))
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(timeout=20) == 0
    assert unmarked.wait(timeout=1) == -signal.SIGKILL
    assert not [parent for parent in parents if parent.exists()]


def test_what_stays_busy_is_told_by_the_exit_code(
    emulator_id: str, tmp_path: Path, start: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    """A directory that cannot be removed as a group is, with processes that have ended already."""
    ended = start()
    ended.kill()
    ended.wait()
    (tmp_path / "cgroup.procs").write_text(f"{ended.pid}\n")
    begun = time.monotonic()
    assert clean(emulator_id, [str(tmp_path)], [], patience_s=0.1) is False
    assert 0.1 <= time.monotonic() - begun < 5
    assert clean(emulator_id, [], [str(tmp_path)], patience_s=5) is True


def test_marked_processes_are_others_than_the_asking_one(
    emulator_id: str, start: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    assert marked_processes(emulator_id) == []
    process = start(**{MARK: emulator_id})
    deadline = time.monotonic() + 20
    while not marked_processes(emulator_id):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert marked_processes(emulator_id) == [process.pid]


def test_the_end_of_a_session_waits_until_everything_is_removed(tmp_path: Path) -> None:
    with Session() as session:
        (tmp_path / "watched").mkdir()
        session.watch(tmp_path / "watched")
        groups = sorted(set(detect().nested(f"slslab-{session.id}").parents.values()))
        for group in groups:
            session.watch_cgroup(group)
    assert not [path for path in (session.home, tmp_path / "watched", *groups) if path.exists()]
