"""What /proc says of a process of our own, and of one that has exited."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from slslab.host.procfs import (
    files_bytes,
    peak_resident_bytes,
    process_tree,
    reset_peak_resident,
    resident_bytes,
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
    block = bytearray(64 << 20)
    assert resident_bytes(pids).keys() == {os.getpid()}
    assert resident_bytes(pids)[os.getpid()] > len(block)
    peak = peak_resident_bytes(pids)[os.getpid()]
    del block
    reset_peak_resident(pids)
    assert peak_resident_bytes(pids)[os.getpid()] <= peak


def test_files_of_a_process_that_has_exited_take_nothing(exited: int) -> None:
    assert files_bytes(exited) == 0
    assert files_bytes(os.getpid()) > 0
