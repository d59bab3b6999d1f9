"""The object store's client: bodies, polls and conditions against moto's S3; failures against a scripted server."""

import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

import botocore.exceptions
import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import Absent, Objects, Unchanged, s3_client
from slslab_workers.channels.polling import Poll

pytestmark = pytest.mark.server

NUMBERS = count()


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    """An S3 server that is not ours; its endpoint."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def events() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def open_objects(
    events: list[dict[str, Any]],
    slept: list[float],  # noqa: ARG001 - pauses take no time
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[str], tuple[Any, Objects]]]:
    """A client of an endpoint and its Objects, which skips sleeps; closed after the test."""
    clients = []

    def make(endpoint: str) -> tuple[Any, Objects]:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        client = s3_client()
        clients.append(client)
        return client, Objects(client, "bucket", Tracer(events.append, "run", 1, "invocation"))

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def objects(moto: str, open_objects: Callable[[str], tuple[Any, Objects]]) -> Objects:
    client, made = open_objects(moto)
    made.bucket = f"bucket-{next(NUMBERS)}"
    client.create_bucket(Bucket=made.bucket)
    return made


@pytest.mark.parametrize("size", [0, 1, 4096, (1 << 18) + 1, 3_000_001])
def test_bodies_travel_byte_for_byte(size: int, objects: Objects, events: list[dict[str, Any]]) -> None:
    body = bytearray(value % 251 for value in range(size))
    etag = objects.put("a", memoryview(body), "synchronise", overhead=False, metadata={"dtype": "float32"})
    stored = objects.get("a", "synchronise", overhead=False)
    assert stored.body == body
    assert (stored.etag, stored.metadata) == (etag, {"dtype": "float32"})
    put, get = events
    for event, op in ((put, "object.put"), (get, "object.get")):
        assert (event["op"], event["bytes"], event["requests"], event["resource"]) == (
            op,
            size,
            1,
            f"{objects.bucket}/a",
        )
        assert (event["overhead"], event["failed"], event["etag"]) == (False, False, etag)


def test_a_body_is_sent_as_a_whole_after_a_signer_has_read_it_in_pieces() -> None:
    """As awscrt does, which has a buffer of a fixed size, and then urllib3, which asks for 16 KB."""
    read: list[bytes] = []

    class Client:
        def put_object(self, *, Body: Any, **_: object) -> dict[str, str]:
            piece = memoryview(bytearray(4))
            while size := Body.readinto(piece):
                read.append(bytes(piece[:size]))
            Body.seek(0)
            read.append(bytes(Body.read(4)))
            return {"ETag": ""}

    Objects(Client(), "bucket", Tracer(lambda _: None, "run")).put("a", b"0123456789", "other")
    assert read == [b"0123", b"4567", b"89", b"0123456789"]


def test_conditional_get_tells_whether_it_changed(objects: Objects, events: list[dict[str, Any]]) -> None:
    etag = objects.put("a", b"one", "other")
    with pytest.raises(Unchanged):
        objects.get("a", "fetch", known_etag=etag)
    objects.put("a", b"two", "other")
    assert objects.get("a", "fetch", known_etag=etag).body == b"two"
    _, unchanged, _, changed = events
    assert (unchanged["failed"], unchanged["bytes"], unchanged["requests"]) == (True, 0, 1)
    assert (changed["failed"], changed["bytes"]) == (False, 3)


def test_polls_are_overhead_and_the_last_get_is_not(
    objects: Objects, events: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 4:
            objects.put("late", b"1234", "other")

    monkeypatch.setattr("slslab_workers.channels.channel.time.sleep", sleep)
    stored = objects.wait_for("late", Poll(0.01, 2.0, 0.05), "synchronise", overhead=False)
    assert stored.body == b"1234"
    assert slept == [0.01, 0.02, 0.04, 0.05]
    told = [(event["op"], event["overhead"], event["failed"]) for event in events]
    poll = [("object.get", True, True), ("wait", True, False)]
    put = ("object.put", True, False)
    assert told == [*poll, *poll, *poll, poll[0], put, poll[1], ("object.get", False, False)]
    assert [event["phase"] for event in events if event["op"] == "wait"] == ["wait"] * 4


def test_no_pause_is_no_event(objects: Objects, events: list[dict[str, Any]]) -> None:
    objects.pause(0.0)
    assert events == []


def test_listing_counts_its_pages_and_deleting_deletes(objects: Objects, events: list[dict[str, Any]]) -> None:
    # Straight into moto's memory: so many requests take ten seconds.
    stored = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    for number in range(1_001):
        stored.put_object(objects.bucket, f"run/{number:04}", b"")
    objects._client.put_object(Bucket=objects.bucket, Key="other", Body=b"")
    assert objects.list("run/", "synchronise") == [f"run/{number:04}" for number in range(1_001)]
    assert [event["op"] for event in events] == ["object.list"] * 2
    assert all(event["overhead"] for event in events)
    objects.delete("run/0007", "synchronise", overhead=False)
    assert "run/0007" not in objects.list("run/", "synchronise")
    assert events[2]["op"] == "object.delete"
    assert events[2]["overhead"] is False


def test_what_is_absent_says_so(objects: Objects, events: list[dict[str, Any]]) -> None:
    with pytest.raises(Absent):
        objects.get("nothing", "fetch", overhead=False)
    assert [(event["overhead"], event["failed"]) for event in events] == [(True, True)]
    missing_bucket = Objects(objects._client, "elsewhere", objects.tracer)
    with pytest.raises(botocore.exceptions.ClientError, match="NoSuchBucket"):
        missing_bucket.get("nothing", "fetch")
    with pytest.raises(botocore.exceptions.ClientError, match="NoSuchBucket"):
        missing_bucket.put("something", b"1", "fetch")


class Scripted(ThreadingHTTPServer):
    """An S3 server with scripted answers, which keeps what it received."""

    daemon_threads = True

    def __init__(self, answers: list[str]) -> None:
        super().__init__(("127.0.0.1", 0), ScriptedHandler)
        self.answers = answers
        self.received: list[tuple[str, dict[str, str], bytes]] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class ScriptedHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Scripted

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.received.append((self.command, {k.lower(): v for k, v in self.headers.items()}, body))
        answer = self.server.answers.pop(0)
        if answer == "hang up":
            self.close_connection = True
            return
        status = {"busy": 503, "forbidden": 403}.get(answer, 200)
        self.send_response(status)
        self.send_header("ETag", '"e"')
        sent = b"0123456789" if self.command == "GET" and status == 200 else b""
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent[:4] if answer == "half" else sent)
        self.close_connection = answer == "half"

    do_GET = do_PUT = do_DELETE = _answer


@pytest.fixture
def scripted() -> Iterator[Callable[..., Scripted]]:
    servers = []

    def start(*answers: str) -> Scripted:
        server = Scripted(list(answers))
        servers.append((server, threading.Thread(target=server.serve_forever, args=(0.01,))))
        servers[-1][1].start()
        return server

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


def test_one_connection_serves_all_requests_without_delaying_small_packets(
    scripted: Callable[..., Scripted],
    open_objects: Callable[[str], tuple[Any, Objects]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = scripted("ok", "ok", "ok")
    connected: list[socket.socket] = []
    connect = socket.socket.connect

    def watched(own: socket.socket, address: Any) -> None:
        # Other threads of this process (a shared object store that reclaims, for one) connect elsewhere at any time.
        if address == server.server_address:
            connected.append(own)
        connect(own, address)

    monkeypatch.setattr(socket.socket, "connect", watched)
    _, objects = open_objects(server.endpoint)
    objects.put("a", b"x" * 500_000, "other")
    objects.get("a", "other")
    objects.get("a", "other")
    [connection] = connected
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


@pytest.mark.parametrize("trouble", ["busy", "hang up", "half"])
def test_a_troubled_request_is_repeated_and_told(
    trouble: str,
    scripted: Callable[..., Scripted],
    open_objects: Callable[[str], tuple[Any, Objects]],
    events: list[dict[str, Any]],
) -> None:
    server = scripted(trouble, "ok")
    _, objects = open_objects(server.endpoint)
    assert objects.get("a", "synchronise", overhead=False).body == b"0123456789"
    told = [(event["op"], event["overhead"], event["failed"], event["requests"]) for event in events]
    assert told == [("object.get", True, True, 1), ("wait", True, False, 0), ("object.get", False, False, 1)]
    assert len(server.received) == 2


def test_a_repeated_put_sends_the_whole_body_again_unsigned_unchecked_and_unasked(
    scripted: Callable[..., Scripted], open_objects: Callable[[str], tuple[Any, Objects]]
) -> None:
    server = scripted("busy", "busy", "ok")
    _, objects = open_objects(server.endpoint)
    assert objects.put("a", b"body", "other") == '"e"'
    assert len(server.received) == 3
    for method, headers, body in server.received:
        assert (method, body, headers["content-length"]) == ("PUT", b"body", "4")
        assert headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
        assert not [name for name in headers if "checksum" in name or name in ("content-md5", "expect")]


def test_trouble_that_stays_is_raised(
    scripted: Callable[..., Scripted],
    open_objects: Callable[[str], tuple[Any, Objects]],
    events: list[dict[str, Any]],
) -> None:
    server = scripted("busy", "busy", "busy", "forbidden")
    _, objects = open_objects(server.endpoint)
    with pytest.raises(botocore.exceptions.ClientError, match="503"):
        objects.delete("a", "synchronise", overhead=False)
    with pytest.raises(botocore.exceptions.ClientError, match="403"):
        objects.put("a", b"", "synchronise", overhead=False)
    requests = [event for event in events if event["requests"]]
    assert len(requests) == len(server.received) == 4
    assert all(event["failed"] and event["overhead"] for event in requests)
