"""The relay between an emulator and its nodes: it lets in who has the key, to the ports that it was told of."""

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from slslab.stack.mutual_tls import write_certificate
from slslab_ray.relay import Relay

LIMIT_S = 60.0


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it gets, in capitals."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    while data := connection.recv(65_536):
                        connection.sendall(data.upper())

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join(LIMIT_S)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A key and its certificate."""
    write_certificate(tmp_path / "key.pem")
    return tmp_path / "key.pem"


@pytest.fixture
def relay(key: Path) -> Iterator[Relay]:
    """The emulator's side."""
    with Relay("here", ("127.0.0.1", 0), key, {}) as side:
        yield side


def connected(relay: Relay, trusted: Path, own: Path | None) -> ssl.SSLSocket:
    """Return a connection to the relay by this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(trusted)
    if own is not None:
        context.load_cert_chain(own)
    return context.wrap_socket(socket.create_connection(relay.address, LIMIT_S))


def asked(relay: Relay, port: int, trusted: Path, own: Path | None) -> bytes:
    """Return what comes back from a port behind the relay; nothing if it closes the connection."""
    with suppress(ssl.SSLError, ConnectionError), closing(connected(relay, trusted, own)) as connection:
        connection.sendall(struct.pack("!H", port) + b"hello")
        return connection.recv(65_536)
    return b""


def test_it_connects_to_the_ports_that_it_was_told_of(relay: Relay, key: Path, echo: int) -> None:
    assert asked(relay, echo, key, key) == b""
    assert relay.add([echo]) == ""
    assert asked(relay, echo, key, key) == b"HELLO"


def test_much_arrives_whole_and_in_order(relay: Relay, key: Path, echo: int) -> None:
    relay.add([echo])
    sent = b"".join(b"%07d\n" % number for number in range(400_000))
    with closing(connected(relay, key, key)) as connection:
        connection.sendall(struct.pack("!H", echo))
        sender = threading.Thread(target=connection.sendall, args=[sent])
        sender.start()
        received = bytearray()
        while len(received) < len(sent):
            received += connection.recv(1 << 18)
        sender.join(LIMIT_S)
    assert bytes(received) == sent


def test_nobody_without_the_key_is_let_in(relay: Relay, key: Path, echo: int, tmp_path: Path) -> None:
    relay.add([echo])
    other = tmp_path / "other.pem"
    write_certificate(other)
    for own in (None, other):
        assert asked(relay, echo, key, own) == b""
    assert asked(relay, echo, key, key) == b"HELLO"


def test_a_port_that_is_taken_on_a_node_is_named(relay: Relay, key: Path, echo: int) -> None:
    with Relay("there", relay.address, key, {}) as node:
        assert node.add([echo]) == f"its port {echo} cannot be bound: Address already in use"
