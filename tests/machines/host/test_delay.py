"""The Lambda clock on a busy host: what is billed is what Lambda would have taken."""

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from slslab.lambda_.emulator import Emulator
from slslab.lambda_.process_sandbox import ProcessSandboxes
from slslab.run.records import InvocationRecord

BURN = """
    import time

    def handler(event, context):
        start = time.process_time()
        while time.process_time() - start < event["cpu"]:
            pass
        time.sleep(event.get("sleep", 0))
        return context.get_remaining_time_in_millis()
"""


@pytest.fixture
def busy_host() -> Iterator[None]:
    """Four busy loops for every core: a control group competes with each of them as if it were one more."""
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(4 * (os.cpu_count() or 2))]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


@pytest.mark.usefixtures("busy_host")
@pytest.mark.parametrize("memory_mb", [884, 1769])
def test_billed_duration_is_cpu_time_over_share(
    memory_mb: int, emulator: Emulator, deploy: Callable[..., str], invoke: Callable[..., Any]
) -> None:
    name = deploy(BURN, MemorySize=memory_mb)
    invoke(name, {"cpu": 0})
    # The least of three: a hypervisor may take processors away from this whole machine, which no account of it shows.
    records = []
    for _ in range(3):
        assert invoke(name, {"cpu": 0.5}).error is None
        records.append(emulator.records[-1])
    longest_ms = 500 * 1769 / memory_mb
    # What is left of the quota of the period in which it begins comes on top: up to all of it.
    shortest_ms = max(500, longest_ms - 100)
    assert 0.98 * shortest_ms < min(record.duration_ms for record in records) < 1.08 * longest_ms
    if memory_mb == 1769:
        assert max(record.host_delay_ms for record in records) > 10, "the host was busy indeed"


@pytest.mark.usefixtures("busy_host")
def test_a_busy_host_causes_no_timeout_that_lambda_would_not(
    deploy: Callable[..., str], invoke: Callable[..., Any]
) -> None:
    """0.8 s of CPU time take more than 1 s of wall time here, and fit into 1 s of Lambda time."""
    name = deploy(BURN, Timeout=1)
    invoke(name, {"cpu": 0})
    # One of three, as above.
    answers = [invoke(name, {"cpu": 0.8}, check=False) for _ in range(3)]
    assert not all(answer.error for answer in answers), answers
    assert invoke(name, {"cpu": 1.2}, check=False).payload["errorType"] == "Sandbox.Timedout"


@pytest.mark.usefixtures("busy_host")
def test_sleeping_is_billed_as_it_is(deploy: Callable[..., str], invoke: Callable[..., Any]) -> None:
    name = deploy(BURN)
    invoke(name, {"cpu": 0})
    duration = re.search(r"Duration: (\d+\.\d+) ms", invoke(name, {"cpu": 0, "sleep": 0.5}).log)
    assert duration is not None
    assert 500 <= float(duration[1]) < 560


def test_an_emulator_held_up_by_its_host_invents_no_time_out(
    deploy: Callable[..., str],
    invoke: Callable[..., Any],
    emulator: Emulator,
    invocations: Sequence[InvocationRecord],
) -> None:
    name = deploy("import time\n\ndef handler(event, context):\n    time.sleep(event)\n", Timeout=1)
    invoke(name, 0)
    held = threading.Timer(0.3, emulator._server.loop.call_soon_threadsafe, (time.sleep, 2))
    held.start()
    assert invoke(name, 0.5).error is None
    # Less by what the clock takes for delay while threads wait for each other.
    assert 495 <= invocations[-1].duration_ms < 560
    held.join()


def test_a_spawner_held_up_by_its_host_lengthens_no_initialisation(
    deploy: Callable[..., str], invoke: Callable[..., Any], emulator: Emulator
) -> None:
    """Nor ends one: here the whole time that it may take passes before its processes are there."""
    name = deploy("def handler(event, context):\n    return event\n")
    hosts = emulator._hosts
    assert isinstance(hosts, ProcessSandboxes)
    spawner = hosts.spawner._process
    spawner.send_signal(signal.SIGSTOP)
    try:
        going_on = threading.Timer(emulator.limits.init_s + 1, spawner.send_signal, (signal.SIGCONT,))
        going_on.start()
        answer = invoke(name, 1)
    finally:
        spawner.send_signal(signal.SIGCONT)
    going_on.join()
    assert (answer.payload, answer.log.count("INIT_REPORT")) == (1, 0)
    assert (emulator.records[-1].init_ms or 0) < 1000
