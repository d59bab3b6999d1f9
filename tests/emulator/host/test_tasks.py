"""The processes and threads of an environment, read again and again."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from slslab.host.procfs import KEPT_FILES, KeptFiles, Tasks, process_tree, thread_times


@contextmanager
def child() -> Iterator[int]:
    """A process that waits until the block ends."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    try:
        yield pid
    finally:
        os.close(writing)
        os.waitpid(pid, 0)


def threads(pids: list[int]) -> int:
    return sum(len(os.listdir(f"/proc/{pid}/task")) for pid in pids)


def test_nothing_is_listed_again_while_the_tasks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = []

    def find() -> list[int]:
        listed.append(1)
        return process_tree(os.getpid())

    # Servers of earlier tests may be children of this process, too.
    known = process_tree(os.getpid())
    counted = Tasks(find, lambda: threads(process_tree(os.getpid())))
    for _ in range(3):
        counted.read()
    assert (len(listed), counted.pids) == (1, known)
    with child() as pid:
        counted.read()
        assert (len(listed), set(counted.pids)) == (2, {*known, pid})
        assert pid in counted.times
    done = threading.Event()
    waiting = threading.Thread(target=done.wait)
    waiting.start()
    counted.read()
    assert waiting.native_id in counted.times
    done.set()
    waiting.join()
    # Python has joined it before the kernel has ended it.
    while os.path.exists(f"/proc/self/task/{waiting.native_id}"):
        time.sleep(0.001)
    # As many as before, and yet others: one of them cannot be read any more.
    monkeypatch.setattr(counted, "_count", lambda: len(counted.times))
    before = len(listed)
    counted.read()
    assert waiting.native_id not in counted.times
    assert len(listed) == before + 1
    counted.files.close()


def test_without_a_count_they_are_listed_each_time() -> None:
    listed: list[int] = []

    def find() -> list[int]:
        listed.append(1)
        return [os.getpid()]

    unknown = Tasks(find, lambda: None)
    unknown.read()
    unknown.read()
    assert len(listed) == 2
    unknown.files.close()


def test_files_stay_open_and_no_more_than_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = os.open

    def opening(path: str, flags: int) -> int:
        opened.append(path)
        return real(path, flags)

    monkeypatch.setattr("slslab.host.procfs.os.open", opening)
    files = KeptFiles()
    path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
    assert [thread_times({1: path}, files.read)[1].cpu_ns > 0 for _ in range(3)] == [True] * 3
    assert opened == [path]
    before = len(os.listdir("/proc/self/fd"))
    for number in range(3 * KEPT_FILES):
        files.read(f"/proc/self/{'./' * number}stat")
    assert len(os.listdir("/proc/self/fd")) < before + KEPT_FILES
    with child() as pid:
        assert files.read(f"/proc/{pid}/stat")
        files.write(f"/proc/{pid}/clear_refs", b"5")
    assert files.read(f"/proc/{pid}/stat") == b""
    files.write(f"/proc/{pid}/clear_refs", b"5")
    files.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1
