"""Memory limits, passwords and sizes: what is refused is refused before it costs anything."""

import gc
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from tests.emulator.tensordb.wire import Wire, encode, error, info

from slslab.tensordb import globs, server
from slslab.tensordb.replies import CommandError
from slslab.tensordb.resp import Reader
from slslab.tensordb.server import Options

pytestmark = pytest.mark.server

MB = 1 << 20
OOM = "OOM command not allowed when used memory > 'maxmemory'."
Make = Callable[[Options], str]


def test_nothing_of_a_client_stays_until_the_collector_of_cycles_runs(
    peer: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[weakref.ref[Reader]] = []

    class Watched(Reader):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            readers.append(weakref.ref(self))

    monkeypatch.setattr(server, "Reader", Watched)
    url = peer(Options())
    gc.collect()
    gc.disable()
    try:
        with Wire(url) as wire:
            wire("SET", "k", "text")
            assert error(wire, "INCR", "k").startswith("ERR value is not an integer")
            assert error(wire, "NOTHING", "k").startswith("ERR unknown command")
            assert not [known for known in gc.get_objects() if issubclass(type(known), CommandError)]
        end = time.monotonic() + 30
        while readers[0]() is not None and time.monotonic() < end:
            time.sleep(0.01)
        assert readers[0]() is None
    finally:
        gc.enable()


def test_memory_is_counted_and_given_back(peer: Make) -> None:
    with Wire(peer(Options())) as wire:
        commands = [
            ("AI.TENSORSET", "t", "FLOAT", MB),
            ("SET", "s", bytes(100_000)),
            ("RPUSH", "l", *range(100)),
            ("LREM", "l", 0, 7),
            ("LMOVE", "l", "l2", "LEFT", "LEFT"),
            ("HSET", "h", "a", 1, "b", 2, "a", "again"),
            ("HDEL", "h", "a"),
            ("HINCRBY", "h", "b", 1000),
            ("SADD", "m", *range(50)),
            ("SREM", "m", *range(25)),
            ("INCRBY", "n", 125),
            ("SET", "n", "2", "PX", 100_000),
        ]
        for command in commands:
            wire(*command)
        assert 4 * MB < info(wire, "used_memory") < 4 * MB + 120_000
        for key, count in (("l", 98), ("l2", 1)):
            assert [wire("RPOP", key) for _ in range(count)][-1] is not None
        wire("SREM", "m", *range(25, 50))
        wire("HDEL", "h", "b")
        wire("DEL", "t", "s", "n")
        assert (wire("DBSIZE"), info(wire, "used_memory")) == (0, 0)
        assert info(wire, "used_memory_peak") > 4 * MB


def test_an_upload_for_which_there_is_no_room_is_drained_and_the_connection_lives(peer: Make) -> None:
    with Wire(peer(Options(maxmemory=10 * MB))) as wire:
        data = np.ones(2 * MB, np.float32).tobytes()
        assert wire("AI.TENSORSET", "a", "FLOAT", 2 * MB, "BLOB", data) == "OK"
        for command in (
            ("AI.TENSORSET", "b", "FLOAT", 2 * MB, "BLOB", data),
            ("AI.TENSORSET", "b", "FLOAT", 2 * MB),
            ("SET", "b", data),
            ("MSET", "b", data, "c", data),
            ("RPUSH", "b", *[bytes(10_000)] * 500),
            ("AI.DAGEXECUTE", "PERSIST", 1, "b", "|>", "AI.TENSORSET", "b", "FLOAT", 2 * MB, "BLOB", data),
        ):
            assert error(wire, *command) == OOM
        assert wire("KEYS", "*") == [b"a"]
        assert wire("AI.TENSORGET", "a", "BLOB") == data
        assert 8 * MB < info(wire, "used_memory") < 9 * MB
        assert (wire("SET", "small", "x"), wire("DEL", "a")) == ("OK", 1)
        assert wire("AI.TENSORSET", "b", "FLOAT", 2 * MB, "BLOB", data) == "OK"
        wire("MULTI")
        assert error(wire, "SET", "c", data) == OOM
        assert error(wire, "EXEC").startswith("EXECABORT")


def test_a_dag_persists_all_of_its_keys_or_none(peer: Make) -> None:
    steps = ("|>", "AI.TENSORSET", "a", "UINT8", 960, "|>", "AI.TENSORSET", "b", "UINT8", 960)
    with Wire(peer(Options(maxmemory=2000))) as wire:
        # The tensors fit, but not with their keys.
        assert error(wire, "AI.DAGEXECUTE", "PERSIST", 2, "a", "b", *steps) == OOM
        assert wire("KEYS", "*") == []


def test_what_is_on_its_way_counts(peer: Make) -> None:
    url = peer(Options(maxmemory=10 * MB))
    with Wire(url) as wire, Wire(url) as sender:
        data = bytes(8 * MB)
        request = encode("AI.TENSORSET", "a", "UINT8", 8 * MB, "BLOB", data)
        sender.send(request[: len(request) // 2])
        while info(wire, "used_memory") < 8 * MB:
            wire("BLPOP", "nothing", "0.005")
        assert error(wire, "AI.TENSORSET", "b", "UINT8", 8 * MB, "BLOB", data) == OOM
        sender.close()
        while info(wire, "used_memory"):
            wire("BLPOP", "nothing", "0.005")
        assert wire("AI.TENSORSET", "b", "UINT8", 8 * MB, "BLOB", data) == "OK"


def test_expired_memory_is_free_though_nobody_looks(peer: Make) -> None:
    with Wire(peer(Options(maxmemory=10 * MB))) as wire:
        wire("AI.TENSORSET", "a", "UINT8", 8 * MB)
        for _ in range(3000):  # each leaves a deadline behind
            wire("PEXPIRE", "a", 100_000)
        wire("PEXPIRE", "a", 1)
        wire("BLPOP", "nothing", "0.02")
        assert wire("AI.TENSORSET", "b", "UINT8", 8 * MB) == "OK"


def test_the_password(peer: Make) -> None:
    url = peer(Options(password=b"pass"))
    with Wire(url) as wire:
        assert wire("PING") == "PONG"
    with Wire(url.replace(":pass@", "")) as wire:
        for command in (("PING",), ("GET", "a"), ("SHUTDOWN",), ("CLIENT", "ID")):
            assert error(wire, *command) == "NOAUTH Authentication required."
        assert error(wire, "HELLO", 3).startswith("NOAUTH HELLO must be called with the client already authenticated")
        wrong = "WRONGPASS invalid username-password pair or user is disabled."
        assert error(wire, "AUTH", "wrong") == error(wire, "AUTH", "other", "pass") == wrong
        assert error(wire, "HELLO", 3, "AUTH", "default", "wrong") == wrong
        assert error(wire, "AUTH", "a", "b", "c") == "ERR syntax error"
        assert wire("AUTH", "default", "pass") == "OK"
        assert wire("GET", "a") is None
    with Wire(url.replace(":pass@", "")) as wire:
        assert wire("HELLO", 3, "AUTH", "default", "pass")[b"role"] == b"master"
        assert wire("GET", "a") is None


@pytest.mark.parametrize("request_", [b"*11\r\n", b"*2\r\n$4\r\nAUTH\r\n$16385\r\n"])
def test_a_stranger_may_not_send_much(peer: Make, request_: bytes) -> None:
    url = peer(Options(password=b"pass"))
    with Wire(url.replace(":pass@", "")) as wire:
        wire.send(request_)
        assert wire.rest().startswith(b"-ERR Protocol error: unauthenticated ")


def test_auth_where_there_is_no_password(peer: Make) -> None:
    with Wire(peer(Options())) as wire:
        assert error(wire, "AUTH", "x").startswith("ERR AUTH <password> called without any password configured")
        assert wire("AUTH", "default", "x") == "OK"


@pytest.mark.parametrize("line", [b"POST / HTTP/1.1", b"post /", b"GET /key HTTP/1.1\r\nHost: 127.0.0.1", b"HOST: x"])
def test_what_a_web_page_sends_is_hung_up_on(peer: Make, line: bytes) -> None:
    """Also without a password: of the lines in the body none is executed."""
    url = peer(Options())
    with Wire(url) as page, Wire(url) as wire:
        page.socket.sendall(line + b"\r\nAccept: */*\r\n\r\nSET key value\r\n")
        with suppress(ConnectionResetError):  # what it has not read of the request is thrown away
            while page.socket.recv(4096):
                pass
        assert wire("EXISTS", "key") == 0


def test_a_long_pattern_takes_little_time(peer: Make) -> None:
    with Wire(peer(Options())) as wire:
        wire("SET", "k", 1)
        began = time.process_time()
        assert wire("KEYS", "?" * globs.LONGEST) == []
        assert time.process_time() - began < 2
        assert error(wire, "KEYS", "?" * (globs.LONGEST + 1)).startswith("ERR slslab takes patterns of at most")
