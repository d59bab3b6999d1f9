"""The process: its options, its ends, one peer's end, its trace; and as the embedded stack's."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha1
from importlib.metadata import version
from typing import Any

import psutil
import pytest
from tests.emulator.tensordb.wire import AVERAGE, Wire, encode, error

from slslab.errors import HostError
from slslab.installation import __version__
from slslab.run.log import read_log
from slslab.stack.tensors import EmbeddedTensorDatabases
from slslab.tensordb.__main__ import PROGRAM, main, size
from slslab_workers.channels.scripts import LUA_AVERAGE

pytestmark = pytest.mark.server

COMMAND = [sys.executable, "-m", "slslab.tensordb"]
STORE = ("AI.SCRIPTSTORE", "s", "CPU", "ENTRY_POINTS", 1, "average", "SOURCE", AVERAGE)


@contextmanager
def started(*options: str, **popen: Any) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The process, and its endpoints."""
    with subprocess.Popen([*COMMAND, *options], stdout=subprocess.PIPE, text=True, **popen) as process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())["endpoints"]
        finally:
            process.kill()


def until(condition: Callable[[], bool], limit_s: float = 20.0) -> bool:
    """Whether the condition came true within the limit."""
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


def test_one_peer_ends_and_the_others_go_on() -> None:
    with started("--peers", "3", "--maxmemory", "1gb") as (process, endpoints):
        resident = psutil.Process(process.pid).memory_info
        with Wire(endpoints[0]) as first, Wire(endpoints[1]) as second:
            first("SET", "own", 1)
            assert second("GET", "own") is None
            assert b"\r\nmaxmemory:1073741824\r\n" in second("INFO", "memory")
            second("AI.TENSORSET", "t", "FLOAT", 25_000_000, "BLOB", bytes(100_000_000))
            assert resident().rss > 100_000_000
            second.send(encode("SHUTDOWN"))
            assert second.rest() == b""
            with pytest.raises(ConnectionRefusedError):
                Wire(endpoints[1])
            assert until(lambda: resident().rss < 100_000_000)
            assert first("GET", "own") == b"1"
            first.send(encode("SHUTDOWN"))
        assert process.poll() is None
        with Wire(endpoints[2]) as third:
            third.send(encode("SHUTDOWN"))  # the last one
        assert process.wait(20) == 0


IMPATIENT = """
from slslab.tensordb import executions

executions.LIMIT_S = executions.GRACE_S = 0.5
from slslab.tensordb.__main__ import main

main([])
"""
ENDLESS = """
def average(tensors: List[Tensor], keys: List[str], args: List[str]):
    while tensors[0].size(0) > 0:
        pass
    return tensors[0].clone()
"""


def test_torchscript_that_does_not_end_ends_the_process_with_a_sentence() -> None:
    command = [sys.executable, "-c", IMPATIENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            with Wire(json.loads(process.stdout.readline())["endpoints"][0]) as wire:
                assert wire("AI.SCRIPTSTORE", "s", "CPU", "ENTRY_POINTS", 1, "average", "SOURCE", ENDLESS) == "OK"
                assert wire("AI.TENSORSET", "t", "FLOAT", 1) == "OK"
                wire.send(encode("AI.SCRIPTEXECUTE", "s", "average", "INPUTS", 1, "t", "OUTPUTS", 1, "u"))
                assert process.wait(60) == 4
        finally:
            process.kill()
        assert "A script ran for more than 0.5 s and cannot be interrupted." in process.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_cleanly(number: int) -> None:
    with started(stderr=subprocess.PIPE) as (process, endpoints), Wire(endpoints[0]) as wire:
        wire.send(encode("BLPOP", "a", 0))
        process.send_signal(number)
        assert process.wait(20) == 0
        # A socket that is closed before its last command was read resets the connection.
        with suppress(ConnectionResetError):
            assert wire.rest() == b""
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--peers", "0"], "'--peers': 0 is not in the range 1<=x<=256"),
        (["--peers", "many"], "'--peers': 'many' is not a valid integer range"),
        (["--port", "70000"], "'--port': 70000 is not in the range 0<=x<=65535"),
        (["--port", "65535", "--peers", "2"], "there are no 2 ports from 65535 on"),
        (["--maxmemory", "4 apples"], "'--maxmemory': '4 apples' is not a size"),
        (["--password", ""], "the password is empty"),
        (["--nonsense"], "No such option"),
    ],
)
def test_a_bad_option_gets_one_sentence_and_a_hint(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(options)
    printed = capsys.readouterr()
    assert (code, printed.out) == (2, "")
    assert words in printed.err
    assert printed.err.endswith(f"\nHint: type `{PROGRAM} --help`.\n")
    assert printed.err.count("\n") == 2


def test_a_port_that_is_taken_and_help() -> None:
    with started() as (_, endpoints):
        port = endpoints[0].rpartition(":")[2]
        done = subprocess.run([*COMMAND, "--port", port], capture_output=True, text=True)
        assert done.returncode == 3
        assert "cannot listen on 127.0.0.1" in done.stderr
    done = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "AI.SCRIPTEXECUTE s twice" in done.stdout


@pytest.mark.parametrize(
    ("text", "bytes_"), [("0", 0), ("123", 123), ("2kb", 2048), ("2k", 2000), ("100MB", 100 << 20), ("4gb", 4 << 30)]
)
def test_sizes_are_those_of_redis_conf(text: str, bytes_: int) -> None:
    assert size(text) == bytes_


def test_one_without_a_reader_of_its_trace_ends_while_a_script_runs_for_days() -> None:
    """One process, and its scripts import torch once."""
    scripts = """
def add(tensors: List[Tensor], keys: List[str], args: List[str]):
    return tensors[0] + 1

def long(tensors: List[Tensor], keys: List[str], args: List[str]):
    x = torch.ones(1)
    for _ in range(1000000000000):
        x = x + 1
    return x
"""
    reading, writing = os.pipe()
    options, variables = ("--parent-pipe",), {"SLSLAB_TRACE_FD": str(writing)}
    popen = {"pass_fds": [writing], "stdin": subprocess.PIPE, "env": {**os.environ, **variables}}
    with (
        started(*options, **popen) as (process, endpoints),
        Wire(endpoints[0]) as wire,
    ):
        os.close(writing)
        os.close(reading)
        assert wire("AI.SCRIPTSTORE", "s", "CPU", "ENTRY_POINTS", 2, "add", "long", "SOURCE", scripts) == "OK"
        # That nobody reads the trace any more stops no script.
        for number in (1, 2):
            wire("AI.TENSORSET", "t", "INT32", 2, "VALUES", number, 2)
            assert wire("AI.SCRIPTEXECUTE", "s", "add", "INPUTS", 1, "t", "OUTPUTS", 1, "o") == "OK"
            assert wire("AI.TENSORGET", "o", "VALUES") == [number + 1, 3]
        with Wire(endpoints[0]) as other:
            other.send(encode("AI.SCRIPTEXECUTE", "s", "long", "INPUTS", 0, "OUTPUTS", 1, "o"))
            # The next one waits for its turn, for a time.
            add = ("AI.SCRIPTEXECUTE", "s", "add", "INPUTS", 1, "t", "OUTPUTS", 1, "o", "TIMEOUT", 1)
            while wire(*add) != "TIMEDOUT":
                pass
            assert wire("PING") == "PONG"
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(20) == 0


def test_the_embedded_databases_tell_of_every_execution(tmp_path: Any) -> None:
    events: list[dict[str, Any]] = []
    mark = {"SLSLAB_TEST_MARK": "here"}
    with EmbeddedTensorDatabases(2, password="a b/ü", environment=mark, on_event=events.append) as databases:
        assert len(set(databases.endpoints)) == 2
        assert databases.version == f"tensordb {__version__}, torch {version('torch')}"
        process = psutil.Process(databases.pid)
        assert process.environ()["SLSLAB_TEST_MARK"] == "here"
        assert not any("a b" in word for word in process.cmdline())
        assert {c.laddr.ip for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
        assert "torch" not in "".join(region.path for region in process.memory_maps())
        with Wire(databases.endpoints[1]) as wire:
            assert wire(*STORE) == "OK"
            wire("AI.TENSORSET", "t", "FLOAT", 1000)
            for _ in range(2):
                wire("AI.SCRIPTEXECUTE", "s", "average", "INPUTS", 3, "t", "t", "t", "OUTPUTS", 1, "avg:0")
            assert error(wire, "AI.SCRIPTEXECUTE", "s", "average", "INPUTS", 1, "absent", "OUTPUTS", 1, "o")
            wire("RPUSH", "texts", "[1, 2.5]", "[2, 0]")
            assert wire("EVAL", LUA_AVERAGE, 1, "texts", 2) == b"[1.5,1.25]"
            assert error(wire, "EVAL", LUA_AVERAGE, 1, "absent", 2)
        pid = databases.pid
    assert not psutil.pid_exists(pid)
    assert [(event["op"], event["resource"], event["worker"], event["bytes"]) for event in events] == [
        ("tensor.script.run", "s/average avg:0", 1, 12_000),
        ("tensor.script.run", "s/average avg:0", 1, 12_000),
        ("tensor.script.run", f"lua/{sha1(LUA_AVERAGE.encode()).hexdigest()} texts", 1, 14),
    ]
    assert all(event["cpu_ns"] > 0 and event["overhead"] for event in events)
    header = {"record": "header", "schema": 2, "run": "r", "clock": "c"}
    log = tmp_path / "trace.jsonl"
    log.write_text("".join(json.dumps(record) + "\n" for record in [header, *events]))
    assert len(read_log(log)[0]) == 4


def test_it_dies_with_a_killed_parent() -> None:
    script = """
        import time
        from slslab.stack.tensors import EmbeddedTensorDatabases
        with EmbeddedTensorDatabases(1) as databases:
            print(databases.pid, flush=True)
            time.sleep(600)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
    assert until(lambda: not psutil.pid_exists(pid))


def test_a_script_that_never_ends_dies_with_a_killed_database() -> None:
    with started() as (process, endpoints), Wire(endpoints[0]) as wire:
        wire.send(encode("EVAL", "while true do end", 0))
        database = psutil.Process(process.pid)
        assert until(lambda: any(child.cpu_times().user > 1 for child in database.children()))
        (script,) = database.children()
        process.kill()
        assert until(lambda: not script.is_running())


def test_one_that_does_not_start_is_an_error_with_its_last_words() -> None:
    with pytest.raises(HostError, match=r"did not start: .*0 is not in the range 1<=x<=256"):
        EmbeddedTensorDatabases(0).__enter__()
