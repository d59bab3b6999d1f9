"""Blocking pops: in order of arrival, with time-outs, and never into the void."""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.emulator.tensordb.wire import Wire, encode, error, info

from slslab.tensordb.server import Options

pytestmark = pytest.mark.server

Blocked = Callable[..., list[Wire]]


def until_blocked(wire: Wire, count: int) -> None:
    """Wait until that many clients wait."""
    while info(wire, "blocked_clients") != count:
        wire("BLPOP", "nobody:fills:this", "0.005")


@pytest.fixture
def blocked() -> Iterator[Callable[..., list[Wire]]]:
    """Makes a client for each command, which have begun to wait in this order."""
    with ExitStack() as opened:

        def make(url: str, wire: Wire, *commands: tuple[object, ...]) -> list[Wire]:
            clients = []
            for number, command in enumerate(commands, 1):
                clients.append(opened.enter_context(Wire(url)))
                clients[-1].send(encode(*command))
                until_blocked(wire, number)
            return clients

        yield make


def test_clients_are_served_in_order_of_arrival(url: str, wire: Wire, blocked: Blocked) -> None:
    clients = blocked(url, wire, *[("BLPOP", "other", "q", 0)] * 3, ("BRPOP", "q", 0))
    assert wire("RPUSH", "q", 1, 2, 3, 4, 5) == 5
    assert [client.read() for client in clients] == [[b"q", b"1"], [b"q", b"2"], [b"q", b"3"], [b"q", b"5"]]
    assert wire("LRANGE", "q", 0, -1) == [b"4"]
    assert info(wire, "blocked_clients") == 0


def test_who_came_before_the_pipelined_replies_gets_them_before_waiting(url: str, wire: Wire) -> None:
    with Wire(url) as client:
        client.send(encode("PING") + encode("BLPOP", "q", 0) + encode("PING"))
        assert client.read() == "PONG"
        until_blocked(wire, 1)
        wire("RPUSH", "q", "x")
        assert [client.read(), client.read()] == [[b"q", b"x"], "PONG"]


@pytest.mark.parametrize("abrupt", [False, True])
def test_a_client_that_has_gone_swallows_nothing(url: str, wire: Wire, abrupt: bool, blocked: Blocked) -> None:
    leaving, staying = blocked(url, wire, ("BLPOP", "q", 0), ("BLPOP", "q", 0))
    if abrupt:  # with a reset, as when a process is killed with something unread
        leaving.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    leaving.close()
    assert wire("RPUSH", "q", "x", "y") == 2
    assert staying.read() == [b"q", b"x"]
    assert wire("LRANGE", "q", 0, -1) == [b"y"]
    until_blocked(wire, 0)


def test_a_time_out_answers_nothing_and_takes_nothing(url: str, wire: Wire) -> None:
    assert wire("BLPOP", "q", "0.01") is None
    assert wire("BLMOVE", "q", "r", "LEFT", "LEFT", "0.01") is None
    wire("RPUSH", "q", 1)
    assert wire("LLEN", "q") == 1
    del url


def test_a_move_waits_too_and_wakes_who_waits_for_its_target(url: str, wire: Wire, blocked: Blocked) -> None:
    clients = blocked(url, wire, ("BLPOP", "target", 0), ("BLMOVE", "q", "target", "LEFT", "RIGHT", 0))
    wire("LPUSH", "q", "x")
    assert [client.read() for client in clients] == [[b"target", b"x"], b"x"]
    (client,) = blocked(url, wire, ("BRPOPLPUSH", "q", "text", 0))
    wire("SET", "text", "t")
    wire("LPUSH", "q", "x")
    assert "WRONGTYPE" in str(client.read())
    assert wire("LLEN", "q") == 1


def test_every_way_a_list_comes_into_being_wakes(url: str, wire: Wire, blocked: Blocked) -> None:
    clients = blocked(url, wire, *[("BLPOP", "q", 0)] * 3)
    wire("RPUSH", "q", "pushed")
    wire("RPUSH", "elsewhere", "moved")
    wire("RPOPLPUSH", "elsewhere", "q")
    wire("MULTI")
    wire("SADD", "q", "a set first")
    wire("DEL", "q")
    wire("RPUSH", "q", "queued")
    wire("EXEC")
    assert [client.read()[1] for client in clients] == [b"pushed", b"moved", b"queued"]


def test_what_another_type_is_leaves_a_client_waiting(url: str, wire: Wire, blocked: Blocked) -> None:
    (client,) = blocked(url, wire, ("BLPOP", "q", 0))
    wire("SET", "q", "text")
    assert error(wire, "BLPOP", "q", 0).startswith("WRONGTYPE")
    wire("DEL", "q")
    wire("RPUSH", "q", "x")
    assert client.read() == [b"q", b"x"]


@pytest.mark.parametrize(
    ("timeout", "message"),
    [
        ("-1", "ERR timeout is negative"),
        ("soon", "ERR timeout is not a float or out of range"),
        ("inf", "ERR timeout is"),
    ],
)
def test_a_wrong_time_out(wire: Wire, timeout: str, message: str) -> None:
    assert error(wire, "BLPOP", "q", timeout).startswith(message)


def test_the_end_of_a_peer_ends_who_waits(peer: Callable[[Options], str], blocked: Blocked) -> None:
    url = peer(Options())
    with Wire(url) as wire:
        (client,) = blocked(url, wire, ("BLPOP", "q", 0))
        wire.send(encode("SHUTDOWN", "NOSAVE"))
        assert (wire.rest(), client.rest()) == (b"", b"")
        client.close()
