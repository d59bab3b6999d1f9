"""The embedded S3 server behaves as S3 where the workers rely on it, and leaves nothing behind."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import botocore.config
import psutil
import pytest
from botocore.exceptions import ClientError

from slslab.aws.keys import Keyring, Pair
from slslab.errors import HostError
from slslab.stack import Stack
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
    """One server for the module, which outlives the thread that started it."""
    running = EmbeddedObjectStore(tmp_path_factory.mktemp("store") / "data", KEYS, MARK)
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


def eventually(condition: Callable[[], bool], limit_s: float = 10.0) -> bool:
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


def test_it_listens_on_loopback_alone_and_carries_the_mark(store: EmbeddedObjectStore) -> None:
    server = psutil.Process(store.pid)
    listening = [entry.laddr for entry in server.net_connections("inet") if entry.status == psutil.CONN_LISTEN]
    assert [f"http://{address.ip}:{address.port}" for address in listening] == [store.endpoint]
    assert server.environ()["SLSLAB_TEST_MARK"] == "here"
    assert store.name.startswith("slslab S3 ")


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[EmbeddedObjectStore]:
    """A server with nothing but an empty bucket."""
    with EmbeddedObjectStore(tmp_path / "data", KEYS, {}) as store:
        connect(store.endpoint).create_bucket(Bucket=BUCKET)
        yield store


def test_nothing_is_left_of_bodies_that_were_deleted_replaced_or_cut_off(empty: EmbeddedObjectStore) -> None:
    def on_disk() -> list[int]:
        return [path.stat().st_size for path in empty._data.iterdir()]

    s3, body = connect(empty.endpoint), os.urandom(4_000_000)
    for number in range(3):
        s3.put_object(Bucket=BUCKET, Key=f"reclaimed/{number}", Body=body)
    s3.copy_object(Bucket=BUCKET, Key="reclaimed/copy", CopySource={"Bucket": BUCKET, "Key": "reclaimed/0"})
    s3.put_object(Bucket=BUCKET, Key="reclaimed/1", Body=body)
    assert on_disk() == [len(body)] * 3
    reading = s3.get_object(Bucket=BUCKET, Key="reclaimed/1")["Body"]
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="reclaimed/2")["UploadId"]
    s3.upload_part(Bucket=BUCKET, Key="reclaimed/2", UploadId=upload, PartNumber=1, Body=body)
    s3.abort_multipart_upload(Bucket=BUCKET, Key="reclaimed/2", UploadId=upload)
    for number in range(3):
        s3.delete_object(Bucket=BUCKET, Key=f"reclaimed/{number}")
    # Who has begun to read an object reads it to its end.
    assert reading.read() == body
    assert s3.get_object(Bucket=BUCKET, Key="reclaimed/copy")["Body"].read() == body
    s3.delete_object(Bucket=BUCKET, Key="reclaimed/copy")
    host, port = empty.endpoint.removeprefix("http://").split(":")
    url = s3.generate_presigned_url("put_object", Params={"Bucket": BUCKET, "Key": "reclaimed/cut"})
    with socket.create_connection((host, int(port))) as connection:
        head = (
            f"PUT {url.removeprefix(empty.endpoint)} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 5000000\r\n\r\n"
        )
        connection.sendall(head.encode() + body)
        assert eventually(lambda: any(on_disk()))
    assert eventually(lambda: not on_disk())
    assert refusal(s3.head_object, Key="reclaimed/cut")[0] == 404


def test_the_server_dies_with_a_killed_parent(tmp_path: Path) -> None:
    script = f"""
        import time
        from pathlib import Path
        from slslab.aws.keys import Keyring
        from slslab.stack.object_store import EmbeddedObjectStore
        with EmbeddedObjectStore(Path({str(tmp_path / "data")!r}), Keyring(), {{}}) as store:
            print(store.pid, flush=True)
            time.sleep(600)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
    assert eventually(lambda: not psutil.pid_exists(pid))


def test_the_end_leaves_nothing(tmp_path: Path) -> None:
    data, threads = tmp_path / "data", threading.active_count()
    with EmbeddedObjectStore(data, KEYS, {}) as store:
        client = connect(store.endpoint)
        client.create_bucket(Bucket=BUCKET)
        client.put_object(Bucket=BUCKET, Key="k", Body=bytes(1_000_000))
        pid = store.pid
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert not psutil.pid_exists(pid)
    assert not data.exists()
    assert threading.active_count() <= threads


def test_a_taken_port_is_named_at_once(store: EmbeddedObjectStore, tmp_path: Path) -> None:
    port = int(store.endpoint.rpartition(":")[2])
    with pytest.raises(HostError, match=f"The port {port} "):
        EmbeddedObjectStore(tmp_path / "data", KEYS, {}, port).__enter__()
    assert not (tmp_path / "data").exists()


def test_a_server_that_ends_at_once_is_an_error_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Keyring, "text", lambda _: "no keys")
    with pytest.raises(HostError, match=r"(?s)did not start: .*JSONDecodeError"):
        EmbeddedObjectStore(tmp_path / "data", KEYS, {}).__enter__()
    assert not (tmp_path / "data").exists()


def test_the_stack_tells_clients_where_it_is() -> None:
    stack = Stack("http://127.0.0.1:1")
    assert stack.client_environment() == {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"}
