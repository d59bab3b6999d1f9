"""The priority of what is measured: raised while it is, inherited, and given back."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from slslab.host import priority
from slslab.host.cgroups import Hierarchy, detect
from slslab.host.priority import HIGHEST, cpu_weight, high_priority, niceness, take_niceness, weigh_session

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may raise a priority")


def own_weight(hierarchy: Hierarchy) -> int:
    name = "cpu.shares" if hierarchy.version == 1 else "cpu.weight"
    return int((hierarchy.parents["cpu"] / name).read_text())


@ROOT
def test_threads_and_processes_inherit_it_and_nothing_keeps_it() -> None:
    before, inside, stop = niceness(), threading.Event(), threading.Event()
    seen: list[int] = []

    def work() -> None:
        seen.append(niceness())
        inside.set()
        stop.wait()
        seen.append(niceness())

    thread = threading.Thread(target=work)
    with high_priority() as raised:
        assert raised
        thread.start()
        inside.wait()
        program = "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"
        assert int(subprocess.check_output([sys.executable, "-c", program])) == niceness() == HIGHEST
    stop.set()
    thread.join()
    assert seen == [HIGHEST, before]
    assert niceness() == before


def competing(pid: int) -> tuple[int, str]:
    """Return the niceness of a process, and of its session; the latter is empty if the kernel doesn't group sessions,
    or began to only after this one."""
    autogroup = Path(f"/proc/{pid}/autogroup")
    grouped = autogroup.read_text().split() if autogroup.exists() else []
    return os.getpriority(os.PRIO_PROCESS, pid), grouped[-1] if grouped else ""


@ROOT
def test_what_runs_already_is_raised_if_it_is_named_and_lowered_again() -> None:
    """A process in a session of its own, which is weighed, and its child in the same one; but not another child."""
    program = "import subprocess, sys; child = subprocess.Popen(['sleep', '60']); print(child.pid, flush=True)"
    command = [sys.executable, "-c", f"{program}; child.wait()"]
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    with (
        subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True) as process,
        subprocess.Popen(["sleep", "60"], start_new_session=True) as other,
    ):
        assert process.stdout is not None
        named = process.pid, int(process.stdout.readline())
        # As slslab does with each session that it makes: this process may have another niceness than 0.
        weigh_session(process.pid)
        rest = other.pid, thread.native_id or 0, os.getpid()
        try:
            before = [competing(pid) for pid in (*named, *rest)]
            with high_priority(named[:1]):
                raised = [competing(pid) for pid in (*named, *rest)]
            after = [competing(pid) for pid in (*named, *rest)]
        finally:
            stop.set()
            for pid in (*named, other.pid):
                os.kill(pid, signal.SIGKILL)
    assert raised[:2] == [(HIGHEST, session and str(HIGHEST)) for _, session in before[:2]]
    assert raised[2] == before[2], "it is another's"
    assert raised[3:] == [(HIGHEST, session) for _, session in before[3:]]
    assert after == before


def test_a_session_is_weighed_again_until_the_kernel_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []

    def write(_path: Path, data: bytes) -> None:
        written.append(data)
        if len(written) < 3:
            raise BlockingIOError

    monkeypatch.setattr(Path, "write_bytes", write)
    monkeypatch.setattr(priority, "niceness", lambda: 5)
    weigh_session(1)
    assert written == [b"5"] * 3


def test_a_host_that_does_not_allow_it_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    before = niceness()
    monkeypatch.setattr(os, "setpriority", refuse)
    with high_priority() as raised:
        assert not raised
        assert niceness() == before


@ROOT
def test_all_threads_take_the_priority_of_another_process() -> None:
    program = """
import os, threading
from slslab.host.priority import niceness, take_niceness

stop = threading.Event()
thread = threading.Thread(target=stop.wait)
thread.start()
print(niceness(), take_niceness(os.getppid()), niceness(), os.getpriority(os.PRIO_PROCESS, thread.native_id))
stop.set()
"""
    done = subprocess.run(
        ["nice", "-n", "5", sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(niceness() + 5), "True", str(niceness()), str(niceness())]


def test_a_higher_priority_may_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", refuse)
    assert not take_niceness(os.getppid())


@pytest.mark.parametrize(("nice", "weight"), [(-20, 8674), (0, 100), (19, 2)])
def test_a_group_weighs_as_much_as_the_kernel_gives_the_niceness(
    nice: int, weight: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(priority, "niceness", lambda: nice)
    assert cpu_weight(100, 10_000) == weight
    assert cpu_weight(100, 50) == min(50, weight)


@ROOT
def test_groups_made_at_a_high_priority_outweigh_others_and_later_ones_do_not() -> None:
    hierarchy = detect()
    if "cpu" not in hierarchy.parents:
        pytest.skip("no control group for CPU time can be made")
    weights, changed = [], []
    for number in range(2):
        if number == 0:
            with high_priority():
                nested = hierarchy.nested(f"slslab-priority-{os.getpid()}-{number}")
        else:
            nested = hierarchy.nested(f"slslab-priority-{os.getpid()}-{number}")
        weights.append(own_weight(nested))
        with high_priority():
            nested.weigh()
        changed.append(own_weight(nested))
        nested.weigh()
        changed.append(own_weight(nested))
        for path in set(nested.parents.values()):
            path.rmdir()
    assert weights[0] > 50 * weights[1]
    assert changed == weights * 2, "also of a group that is there already"


@ROOT
@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel groups no sessions")
def test_a_session_of_its_own_competes_like_the_thread_that_started_it() -> None:
    def weigh() -> str:
        process = subprocess.Popen(["sleep", "60"], start_new_session=True)
        try:
            weigh_session(process.pid)
            return Path(f"/proc/{process.pid}/autogroup").read_text().split()[-1]
        finally:
            process.kill()
            process.wait()

    with high_priority():
        assert weigh() == str(HIGHEST)
    assert weigh() == str(niceness())
