"""The priority of what is measured: raised while it is, inherited, and given back."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from slslab.host import priority
from slslab.host.cgroups import Hierarchy, detect
from slslab.host.priority import HIGHEST, cpu_weight, high_priority, niceness, weigh_session

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


def test_a_host_that_does_not_allow_it_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    before = niceness()
    monkeypatch.setattr(os, "setpriority", refuse)
    with high_priority() as raised:
        assert not raised
        assert niceness() == before


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
    weights = []
    for number in range(2):
        if number == 0:
            with high_priority():
                nested = hierarchy.nested(f"slslab-priority-{os.getpid()}-{number}")
        else:
            nested = hierarchy.nested(f"slslab-priority-{os.getpid()}-{number}")
        weights.append(own_weight(nested))
        for path in set(nested.parents.values()):
            path.rmdir()
    assert weights[0] > 50 * weights[1]


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
