"""What an environment's memory is: pages that processes share count once, and what no process maps counts, too.

`tests/machines/unshare/test_lesser_hosts.py` runs these tests without control groups.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from slslab.aws.limits import MB
from slslab.host.procfs import ResidentSet, Tasks
from slslab.host.sandbox import Sandbox
from slslab.lambda_ import memory
from slslab.lambda_.memory import FINE_TICK_S, TICK_S, MemoryMeter
from slslab.run.records import InvocationRecord

Deploy = Callable[..., str]
Invoke = Callable[..., Any]
# Each child signals by a byte, and ends when its standard input does.
FORKS = """
import mmap, os, time

block = None

def touch(megabytes, kind=mmap.MAP_PRIVATE):
    held = mmap.mmap(-1, megabytes << 20, flags=kind | mmap.MAP_ANONYMOUS)
    for page in range(0, len(held), 4096):
        held[page] = 1
    return held

def fork(count, work):
    ready, written = os.pipe()
    end, ending = os.pipe()
    children = []
    for _ in range(count):
        if (child := os.fork()) == 0:
            try:
                os.close(ending)
                held = work()
                os.write(written, b"1")
                os.read(end, 1)
            finally:
                os._exit(0)
        children.append(child)
    os.close(written)
    for _ in children:
        os.read(ready, 1)
    return children, ending

def handler(event, context):
    global block
    shared, own, seconds = event["shared"], event["own"], event["seconds"]
    block = touch(shared, getattr(mmap, event.get("kind", "MAP_PRIVATE"))) if shared else None
    children, ending = fork(event["children"], lambda: (sum(block[::4096]) if block else 0, touch(own) if own else 0))
    time.sleep(seconds)
    os.close(ending)
    for child in children:
        os.waitpid(child, 0)
    block = None
    return "done"
"""
MEMFD = """
import os, time

def handler(event, context):
    held = os.memfd_create("held")
    chunk = bytes(1 << 20)
    for _ in range(event["megabytes"]):
        os.write(held, chunk)
    time.sleep(event["seconds"])
    os.close(held)
    return "done"
"""


def test_pages_that_forks_share_count_once(
    deploy: Deploy, invoke: Invoke, invocations: Sequence[InvocationRecord]
) -> None:
    """Private pages that were there before the fork, and pages of a shared mapping."""
    name = deploy(FORKS, MemorySize=256, Timeout=60)
    for kind in ("MAP_PRIVATE", "MAP_SHARED"):
        answer = invoke(name, {"shared": 100, "children": 4, "own": 0, "seconds": 0.5, "kind": kind})
        assert answer.payload == "done", "four times 100 MB would be out of memory"
        # Counted for each it would be more than 400.
        assert 105 < invocations[-1].max_memory_mb < 200


def test_what_forks_have_of_their_own_counts_for_each(
    deploy: Deploy, invoke: Invoke, invocations: Sequence[InvocationRecord]
) -> None:
    name = deploy(FORKS, MemorySize=512, Timeout=60)
    assert invoke(name, {"shared": 60, "children": 4, "own": 50, "seconds": 1}).payload == "done"
    assert 265 < invocations[-1].max_memory_mb < 340
    assert invoke(name, {"shared": 0, "children": 1, "own": 30, "seconds": 0.3}).payload == "done"
    assert invocations[-1].max_memory_mb < 120, "the peak of one invocation is not the peak of the next"


def test_four_children_are_over_the_limit_for_moments(deploy: Deploy, invoke: Invoke) -> None:
    name = deploy(FORKS, MemorySize=256, Timeout=60)
    answer = invoke(name, {"shared": 0, "children": 4, "own": 100, "seconds": 0.04}, check=False)
    assert answer.payload["errorType"] == "Runtime.OutOfMemory"


def test_a_file_in_memory_alone_counts(deploy: Deploy, invoke: Invoke, invocations: Sequence[InvocationRecord]) -> None:
    name = deploy(MEMFD, MemorySize=256, Timeout=60)
    assert invoke(name, {"megabytes": 100, "seconds": 0.3}).payload == "done"
    assert 105 < invocations[-1].max_memory_mb < 170
    answer = invoke(name, {"megabytes": 600, "seconds": 0}, check=False)
    assert answer.payload["errorType"] == "Runtime.OutOfMemory"


class Group:
    """The accounts of a group to which `charged` MB are charged at most, and `held` now: anonymous, and shared."""

    enforces_memory = True

    def __init__(self, charged: int, anonymous: int, shared: int) -> None:
        self.charged, self.held = charged * MB, (anonymous * MB, shared * MB)
        self.reads = 0

    def out_of_memory_kills(self) -> int:
        return 0

    def peak_bytes(self) -> int:
        return self.charged

    def reset_peak(self) -> None:
        pass

    def held_bytes(self) -> tuple[int, int]:
        self.reads += 1
        return self.held


class Grouped:
    """A sandbox with this group, and with files in /tmp of these sizes, MB, one look after the other."""

    def __init__(self, accounts: Group, files: Sequence[int]) -> None:
        self.accounts = accounts
        self._files = [size * MB for size in files]

    def files_bytes(self) -> int:
        return self._files.pop(0)


def metered(
    monkeypatch: pytest.MonkeyPatch, group: Group, sets: Sequence[ResidentSet], files: Sequence[int], *, thorough: bool
) -> MemoryMeter:
    """A meter of 256 MB that has looked once."""
    monkeypatch.setattr(memory, "resident_sets", lambda pids, _read: dict(zip(pids, sets, strict=True)))
    meter, sandbox, tasks = MemoryMeter(256 * MB), cast(Sandbox, Grouped(group, files)), Tasks(list, lambda: None)
    tasks.pids = list(range(len(sets)))
    meter.look(sandbox, tasks, thorough=thorough)
    return meter


ONE = ResidentSet(40 * MB, 25 * MB, 15 * MB, 0)


@pytest.mark.parametrize(("charged", "reads"), [(230, 0), (300, 1)])
def test_the_end_of_one_process_reads_no_more_than_can_matter(
    charged: int, reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(charged, 25, 0)
    meter = metered(monkeypatch, group, [ONE], [0, 0], thorough=False)
    assert (group.reads, meter.peak_bytes, meter.exceeded, meter.tick_s) == (reads, 40 * MB, False, TICK_S)


def test_several_processes_are_looked_at_every_10_ms(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = metered(monkeypatch, Group(300, 230, 20), [ONE, ONE], [0, 0], thorough=False)
    assert (meter.tick_s, meter.peak_bytes, meter.exceeded) == (FINE_TICK_S, 265 * MB, True)
    init = ResidentSet(MB, MB // 4, MB // 2, 0)
    assert metered(monkeypatch, Group(50, 25, 0), [init, ONE], [0, 0], thorough=False).tick_s == TICK_S


@pytest.mark.parametrize("files", [(400, 400), (400, 10), (380, 400)])
def test_files_in_tmp_are_no_memory_while_they_come_and_go(
    files: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    meter = metered(monkeypatch, Group(500, 25, 405), [ONE], files, thorough=True)
    assert (meter.peak_bytes, meter.exceeded) == (45 * MB, False)
