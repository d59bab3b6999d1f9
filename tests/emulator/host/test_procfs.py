"""What /proc says of a process of our own, and of one that has exited."""

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from slslab.host.procfs import (
    KeptFiles,
    files_bytes,
    memory_files_bytes,
    peak_resident_bytes,
    process_tree,
    proportional_bytes,
    reset_peak_resident,
    resident_sets,
    take_sample,
)

CHILD = "import subprocess, sys; child = subprocess.Popen(['sleep', '600']); print(child.pid, flush=True); child.wait()"


@pytest.fixture
def family() -> Iterator[list[int]]:
    """The ids of a process and its child."""
    parent = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    yield [parent.pid, child]
    os.kill(child, 9)
    parent.wait()
    parent.stdout.close()


@pytest.fixture
def exited() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_tree_is_the_process_and_its_descendants(family: list[int], exited: int) -> None:
    assert process_tree(family[0]) == family
    assert process_tree(exited) == []


def test_a_sample_has_the_times_of_every_thread(family: list[int], exited: int) -> None:
    sample = take_sample(7, [*family, exited], None)
    assert (sample.wall_ns, sample.throttled_ns, sorted(sample.threads)) == (7, 0, sorted(family))
    assert sample.cpu_ns == sum(times.cpu_ns for times in sample.threads.values())
    assert sample.threads[family[0]].cpu_ns > 0


def test_resident_memory_and_its_peak(exited: int) -> None:
    pids = [os.getpid(), exited]
    block = bytearray(b"x") * (64 << 20)
    assert resident_sets(pids).keys() == {os.getpid()}
    held = resident_sets(pids)[os.getpid()]
    assert held.peak >= held.anonymous + held.file + held.shared > held.anonymous > len(block)
    del block
    with closing(KeptFiles()) as files:
        reset_peak_resident(pids, files.write)
    assert peak_resident_bytes(pids) <= held.peak


def test_pages_that_forks_share_count_once() -> None:
    """Anonymous and shared ones."""
    block, shared = bytearray(64 << 20), mmap.mmap(-1, 32 << 20)
    block[::4096] = bytes([1]) * (len(block) // 4096)
    shared[::4096] = bytes([1]) * (len(shared) // 4096)
    reading, writing = os.pipe()
    ready, touched = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.close(writing)
            assert shared[::4096] == bytes([1]) * (len(shared) // 4096)
            os.write(touched, b".")
            os.read(reading, 1)
        finally:
            os._exit(0)
    os.close(touched)
    assert os.read(ready, 1) == b"."
    os.close(ready)
    pids = [os.getpid(), child]
    alone, _ = proportional_bytes(pids[:1])
    both, both_shared = proportional_bytes(pids)
    os.close(writing)
    os.close(reading)
    os.waitpid(child, 0)
    anonymous = [resident_sets([os.getpid()])[os.getpid()].anonymous, alone]
    assert alone < anonymous[0] - (30 << 20), "half of each page is the child's"
    # The child has pages of its own as soon as Python counts references.
    assert anonymous[0] - (4 << 20) < both < anonymous[0] + (32 << 20)
    assert len(shared) <= both_shared < len(shared) + (4 << 20)


def test_files_in_memory_alone_count_once(exited: int) -> None:
    before = memory_files_bytes([os.getpid(), exited])
    descriptor = os.memfd_create("held")
    os.write(descriptor, bytes(8 << 20))
    again = os.dup(descriptor)
    assert memory_files_bytes([os.getpid(), exited]) - before == 8 << 20
    os.close(descriptor)
    os.close(again)
    assert memory_files_bytes([os.getpid(), exited]) == before


def test_files_of_a_process_that_has_exited_take_nothing(exited: int) -> None:
    assert files_bytes([exited]) is None
    assert files_bytes([exited, os.getpid()]) is not None
