"""The reaper as a process of its own, and the sweep of the next session: what they kill, remove, and leave alone."""

import fcntl
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pytest

from slslab.errors import HostError
from slslab.host import reaper
from slslab.host.cgroups import Cgroup, detect
from slslab.host.reaper import MARK, clean, marked_processes
from slslab.host.session import JOURNAL, Session

pytestmark = pytest.mark.server

SLEEP = ["sleep", "600"]


@pytest.fixture
def emulator_id() -> str:
    return f"{os.getpid()}-{secrets.token_hex(4)}"


@pytest.fixture
def start() -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Start a process with variables in addition to the test's own; it is gone after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def call(**variables: str) -> "subprocess.Popen[bytes]":
        started.append(subprocess.Popen(SLEEP, env={**os.environ, **variables}))
        return started[-1]

    yield call
    for process in started:
        process.kill()
        process.wait()


class Reaping(NamedTuple):
    """A reaper, and the journal that it waits for."""

    process: "subprocess.Popen[bytes]"
    journal: BinaryIO

    def released(self) -> int:
        """Return the reaper's exit code once the journal is not locked any more."""
        self.journal.close()
        return self.process.wait(timeout=20)


@pytest.fixture
def start_reaper(emulator_id: str, tmp_path: Path) -> Iterator[Callable[..., Reaping]]:
    """Start the script with these interpreter flags, and lines in its journal, which is locked."""
    started: list[Reaping] = []

    def call(*lines: str, flags: tuple[str, ...] = ()) -> Reaping:
        home = tmp_path / "session"
        home.mkdir()
        journal = (home / "journal").open("wb", buffering=0)
        fcntl.flock(journal, fcntl.LOCK_EX)
        journal.write("".join(f"{line}\n" for line in lines).encode())
        process = subprocess.Popen([sys.executable, *flags, reaper.__file__, emulator_id, journal.name])
        started.append(Reaping(process, journal))
        return started[-1]

    yield call
    for reaping in started:
        reaping.released()


# `-I -S` is how the emulator starts it; without, it is measured by coverage as well.
@pytest.mark.parametrize("flags", [(), ("-I", "-S")], ids=["plain", "isolated"])
def test_when_its_emulator_has_ended_nothing_marked_or_told_is_left(
    flags: tuple[str, ...],
    emulator_id: str,
    tmp_path: Path,
    start: Callable[..., "subprocess.Popen[bytes]"],
    start_reaper: Callable[..., Reaping],
) -> None:
    marked, other = start(**{MARK: emulator_id}), start(**{MARK: f"{emulator_id}0"})
    kept = tmp_path / "kept"
    kept.touch()
    reaping = start_reaper(f"cgroup {tmp_path / 'never made'}", "another kind", flags=flags)
    (tmp_path / "session" / "below").mkdir()
    (tmp_path / "session" / "below" / "file").touch()
    assert reaping.process.poll() is None, "it waits as long as the emulator lives"
    assert marked.poll() is None
    assert reaping.released() == 0
    assert marked.wait(timeout=1) == -signal.SIGKILL
    assert other.poll() is None, "the mark of another emulator only begins alike"
    assert sorted(tmp_path.iterdir()) == [kept]


def test_signals_that_end_a_command_do_not_end_its_reaper(tmp_path: Path, start_reaper: Callable[..., Reaping]) -> None:
    reaping = start_reaper()
    ignored = sum(1 << (number - 1) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    status = Path(f"/proc/{reaping.process.pid}/status")
    deadline = time.monotonic() + 20
    while int(status.read_text().partition("SigIgn:")[2].split()[0], 16) & ignored != ignored:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        reaping.process.send_signal(number)
    assert reaping.released() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_control_group_is_emptied_and_removed_frozen_or_not(
    emulator_id: str,
    start: Callable[..., "subprocess.Popen[bytes]"],
    start_reaper: Callable[..., Reaping],
) -> None:
    """Processes that shed the mark are found by their group."""
    hierarchy = detect()
    if not hierarchy.parents:
        pytest.skip("no writable control groups on this host")
    nested = hierarchy.nested(f"slslab-{emulator_id}")
    parents = sorted(set(nested.parents.values()))
    group = Cgroup(nested, "one", memory_mb=64, cpu_share=0.5, processes=16)
    unmarked = start()
    for file in group.join_files:
        file.write_text(str(unmarked.pid))
    if group.freezes:
        group.freeze()
    assert start_reaper(*(f"cgroup {parent}" for parent in parents)).released() == 0
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


def test_the_end_of_a_session_waits_until_everything_is_removed() -> None:
    with Session() as session:
        groups = sorted(set(detect().nested(f"slslab-{session.id}").parents.values()))
        for group in groups:
            session.watch_cgroup(group)
    assert not [path for path in (session.home, *groups) if path.exists()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


# A session with a marked process and control groups, as long as it is not ended.
COMMAND = """
import json, os, subprocess, threading
from slslab.host.cgroups import detect
from slslab.host.session import Session

with Session() as session:
    groups = sorted(set(detect().nested(f"slslab-{session.id}").parents.values()))
    for group in groups:
        session.watch_cgroup(group)
    process = subprocess.Popen(["sleep", "600"], env={**os.environ, **session.mark})
    made = [str(path) for path in (session.home, *groups)]
    print(json.dumps([session._reaper.pid, process.pid, made]), flush=True)
    threading.Event().wait()
"""


def test_the_next_session_removes_what_is_left_where_the_reaper_was_killed_too(folder: Path) -> None:
    command = [sys.executable, "-c", COMMAND]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        reaper_pid, marked, made = json.loads(owner.stdout.readline())
        os.killpg(reaper_pid, signal.SIGKILL)
        with Session() as other:
            assert other.home.parent == folder
        assert all(os.path.exists(path) for path in made), "its owner lives"
        process = os.pidfd_open(marked)
        owner.kill()
    assert all(os.path.exists(path) for path in made)
    with Session():
        assert not [path for path in made if os.path.exists(path)]
        assert select.select([process], [], [], 0)[0], "it has ended"
    os.close(process)
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("folder")
def test_who_kills_a_command_and_its_children_does_not_keep_the_reaper_from_its_work() -> None:
    """Ray does so with a worker that it ends."""
    command = [sys.executable, "-c", COMMAND]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        reaper_pid, marked, made = json.loads(owner.stdout.readline())
        deadline = time.monotonic() + 20
        while not Path(f"/proc/{reaper_pid}/task/{reaper_pid}/children").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.005)
        for process in (owner.pid, reaper_pid, marked):
            os.kill(process, signal.SIGKILL)
    while left := [path for path in made if os.path.exists(path)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.005)


@pytest.mark.usefixtures("folder")
def test_a_session_whose_reaper_is_killed_ends_all_the_same() -> None:
    with Session() as session:
        assert session._reaper is not None
        os.killpg(session._reaper.pid, signal.SIGKILL)
        session._reaper.wait()
    assert not session.home.exists()


def test_a_sweep_touches_nothing_but_homes_of_this_user_without_an_owner(folder: Path, emulator_id: str) -> None:
    hierarchy = detect()
    if not hierarchy.parents:
        pytest.skip("no writable control groups on this host")
    groups = sorted(set(hierarchy.nested(f"slslab-{emulator_id}").parents.values()))

    def home(name: str, mode: int = 0o700, broken_off: bool = False) -> Path:
        made = folder / name
        made.mkdir()
        made.chmod(mode)
        lines = "".join(f"cgroup {group}\n" for group in groups)
        (made / JOURNAL).write_text(f"cgroup {groups[0]}" if broken_off else lines)
        return made

    others = [home("slslab-1-open", 0o770), home("another"), folder / "slslab-1-link", folder / "slslab-1-empty"]
    (folder / "slslab-1-link").symlink_to(others[1])
    (folder / "slslab-1-empty").mkdir(mode=0o700)
    if os.geteuid() == 0:
        others.append(home("slslab-1-foreign"))
        os.chown(others[-1], 12345, 12345)
    torn = home("slslab-1-torn", broken_off=True)
    with Session():
        assert all(path.is_dir() for path in groups + others)
        assert not torn.exists()
    home("slslab-1-dead")
    with Session():
        assert not [group for group in groups if group.exists()]
    shutil.rmtree(folder)


def test_where_temporary_files_cannot_be_made_one_sentence_says_so(folder: Path) -> None:
    folder.rmdir()
    with (
        pytest.raises(HostError, match=r"The temporary folder cannot be written: No such file or directory\."),
        Session(),
    ):
        pytest.fail("it began")
