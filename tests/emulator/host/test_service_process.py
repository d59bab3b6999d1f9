"""A process that serves reports once, and ends by a signal or with its parent, whenever that comes."""

import json
import signal
import subprocess
import sys

import pytest

SERVICE = """
import os, sys
from slslab.host.service_process import serve

def service():
    print("starting", flush=True)
    if sys.argv[1:] == ["early"]:
        os.kill(os.getpid(), 15)
    yield {"endpoint": "here"}
    print("left", flush=True)

serve(service(), ends_with_parent="alone" not in sys.argv)
"""
REPORT = ["starting", json.dumps({"endpoint": "here"})]


def started(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SERVICE, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().rstrip() for _ in range(count)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_by_a_signal(number: int) -> None:
    with started() as process:
        assert lines(process, 2) == REPORT
        process.send_signal(number)
        assert (process.communicate(timeout=20)[0], process.returncode) == ("left\n", 0)


def test_it_ends_with_its_parent_and_reads_what_that_sends() -> None:
    with started() as process:
        assert lines(process, 2) == REPORT
        assert process.communicate("words", timeout=20)[0] == "left\n"


def test_it_goes_on_without_a_parent_unless_it_is_tied() -> None:
    with started("alone") as process:
        assert lines(process, 2) == REPORT
        assert process.stdin is not None
        process.stdin.close()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.terminate()
        assert lines(process, 1) == ["left"]


def test_a_signal_while_it_starts_is_not_lost() -> None:
    with started("early") as process:
        assert lines(process, 3) == [*REPORT, "left"]
