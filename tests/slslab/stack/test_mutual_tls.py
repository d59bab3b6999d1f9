"""Of the embedded S3 server's ports only S3's serves a client that does not hold the key of this start."""

import itertools
import json
import os
import socket
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from slslab.aws.clients import aws_client
from slslab.aws.keys import Keyring
from slslab.stack import object_store
from slslab.stack.mutual_tls import MutualTLS
from slslab.stack.object_store import EmbeddedObjectStore

pytestmark = pytest.mark.server

KEYS = Keyring()
BUCKET = "bucket"
# One beside its name in the filer, one in pieces on volumes.
OBJECTS = {"small": b"x" * 100, "large": os.urandom(200_000)}
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
REFUSAL = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
SETTINGS_OF_THE_USER = "[https.filer]\ndisable_tls_verify_client_cert = true\n"

Address = int | Path


class Running(NamedTuple):
    """The store, its data directory, a client of its S3 port, and where a piece of `large` is on the volume server."""

    store: EmbeddedObjectStore
    data: Path
    s3: Any
    piece: str

    def ports(self) -> list[int]:
        """All TCP ports at which the server listens but S3's."""
        connections = psutil.Process(self.store.pid).net_connections("tcp")
        listening = {entry.laddr.port for entry in connections if entry.status == psutil.CONN_LISTEN}
        return sorted(listening - {int(self.store.endpoint.rpartition(":")[2])})

    def addresses(self) -> list[Address]:
        """These ports, and the Unix sockets that the server makes where others see them."""
        return [*self.ports(), *self.store.sockets()]

    def requests(self) -> list[bytes]:
        """What master, volume server and filer would do for anyone, by HTTP."""
        gets = [
            *("/", "/dir/assign", f"/dir/lookup?fileId={self.piece}", "/dir/status", "/cluster/status", "/vol/status"),
            *("/vol/vacuum?garbageThreshold=0.0001", "/vol/grow?count=1", f"/col/delete?collection={BUCKET}"),
            *("/status", "/ui/index.html", "/healthz", "/metrics", f"/{self.piece}", "/favicon.ico"),
            *(f"/buckets/{BUCKET}/", "/?metadata", *(f"/buckets/{BUCKET}/{key}" for key in OBJECTS)),
            f"/buckets/{BUCKET}/large?metadata=true",
        ]
        posts = ["/dir/assign", "/submit", f"/{self.piece}", f"/buckets/{BUCKET}/small", f"/buckets/{BUCKET}/new"]
        deletes = [f"/{self.piece}", *(f"/buckets/{BUCKET}/{key}" for key in OBJECTS), f"/buckets/{BUCKET}"]
        return [
            b"%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
            % (method.encode(), path.encode(), len(body), body)
            for method, body, paths in (("GET", b"", gets), ("POST", b"new", posts), ("DELETE", b"", deletes))
            for path in paths
        ]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server for the module, of a user with settings of his own for others."""
    home, data = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("store") / "data"
    (home / ".seaweedfs").mkdir()
    (home / ".seaweedfs/security.toml").write_text(SETTINGS_OF_THE_USER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        with EmbeddedObjectStore(data, KEYS, {}) as store:
            s3 = aws_client("s3", store.endpoint, KEYS.owner)
            s3.create_bucket(Bucket=BUCKET)
            for key, body in OBJECTS.items():
                s3.put_object(Bucket=BUCKET, Key=key, Body=body)
            # By the key that the server has: the filer does answer its holder.
            metadata = store._tls.opener.open(
                f"https://127.0.0.1:{store._ports['filer']}/buckets/{BUCKET}/large?metadata=true"
            )
            with metadata:
                piece = json.load(metadata)["chunks"][0]["file_id"]
            yield Running(store, data, s3, piece)


@pytest.fixture(autouse=True)
def nothing_changed(running: Running) -> Iterator[None]:
    """Whatever a test tries, the objects stay as they are and none is added."""
    yield
    found = [entry["Key"] for entry in running.s3.list_objects_v2(Bucket=BUCKET)["Contents"]]
    assert {key: running.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in found} == OBJECTS


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, ssl.SSLContext]]:
    """Protocols, HTTP's and gRPC's, and clients by TLS without a certificate and with one of their own of the same
    names."""
    own = tmp_path_factory.mktemp("stranger") / "own.pem"
    MutualTLS(own)
    contexts = []
    versions = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    for version, certificate, protocol in itertools.product(versions, (None, own), ("http/1.1", "h2")):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.minimum_version = context.maximum_version = version
        context.set_alpn_protocols([protocol])
        if certificate:
            context.load_cert_chain(certificate)
        contexts.append((protocol, context))
    return contexts


def connected(address: Address) -> socket.socket:
    """A connection to a TCP port or a Unix socket."""
    if isinstance(address, int):
        return socket.create_connection(("127.0.0.1", address), timeout=30)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(30)
    connection.connect(str(address))
    return connection


def answer(connection: socket.socket, sent: bytes) -> bytes:
    """Everything that comes back; a reset or a refusal in TLS ends it."""
    received = b""
    try:
        connection.sendall(sent)
        if not isinstance(connection, ssl.SSLSocket):
            connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(65_536):
            received += part
    except (ConnectionError, ssl.SSLError):
        pass
    return received


def secured_answer(address: Address, context: ssl.SSLContext, sent: bytes) -> bytes:
    """As `answer`, within TLS; nothing where the handshake is refused."""
    with connected(address) as connection:
        try:
            secured = context.wrap_socket(connection, server_hostname="127.0.0.1")
        except (ConnectionError, ssl.SSLError):
            return b""
        with secured:
            return answer(secured, sent)


def is_alert(received: bytes) -> bool:
    """Whether this is one TLS record in the clear that says what is wrong with the client's."""
    return len(received) == 7 and received[0] == 21


def test_no_port_answers_without_tls(running: Running) -> None:
    assert len(running.ports()) == len(object_store.PORTS) - 1
    answers = {}
    for address in running.addresses():
        for sent in (*running.requests(), PREFACE):
            with connected(address) as connection:
                answers[address, sent] = answer(connection, sent)
    assert [what for what in answers.items() if what[1] not in (b"", REFUSAL) and not is_alert(what[1])] == []


def test_no_port_answers_without_the_key_of_this_start(
    running: Running, strangers: list[tuple[str, ssl.SSLContext]]
) -> None:
    answered = [
        (protocol, context.minimum_version, address, sent)
        for protocol, context in strangers
        for address in running.addresses()
        for sent in (PREFACE, *(running.requests() if protocol == "http/1.1" else ()))
        if secured_answer(address, context, sent)
    ]
    assert answered == []


def test_the_holder_of_the_key_is_answered_at_every_port(running: Running) -> None:
    holder = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    holder.load_verify_locations(running.data / "inner.pem")
    holder.load_cert_chain(running.data / "inner.pem")
    for address in running.ports():
        sent = b"GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert secured_answer(address, holder, sent), address


def test_only_this_user_gets_at_the_key_the_objects_and_the_filers_socket(running: Running) -> None:
    assert stat.S_IMODE(running.data.stat().st_mode) == 0o700
    assert stat.S_IMODE((running.data / "inner.pem").stat().st_mode) == 0o600
    assert (running.data / "filer.sock").is_socket()
    assert "PRIVATE" not in " ".join(
        (*psutil.Process(running.store.pid).cmdline(), *running.store._tls.settings.values())
    )


def test_the_s3_port_gives_pages_of_other_web_sites_nothing_to_read(running: Running) -> None:
    port = int(running.store.endpoint.rpartition(":")[2])
    for method in ("GET", "PUT", "OPTIONS"):
        sent = (
            f"{method} /{BUCKET}/small HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n"
            "Access-Control-Request-Method: PUT\r\nConnection: close\r\n\r\n"
        )
        with connected(port) as connection:
            received = answer(connection, sent.encode())
        assert received.startswith(b"HTTP/1.1 403 ")
        assert b"access-control-" not in received.lower()
