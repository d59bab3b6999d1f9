"""The requests to the embedded S3 server are counted as AWS bills them, each once."""

import asyncio
import io
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError
from starlette.types import Message

from slslab.aws.clients import aws_client
from slslab.aws.keys import Keyring
from slslab.host import output
from slslab.object_store.application import Application
from slslab.object_store.storage import Store
from slslab.stack.access_log import AccessLog
from slslab.stack.object_store import EmbeddedObjectStore


class Counted:
    """A server's clients, and the requests that were reported since it was asked before."""

    def __init__(self, endpoint: str, keys: Keyring, log: AccessLog, logged: list[dict[str, Any]]) -> None:
        self.s3 = aws_client("s3", endpoint, keys.owner)
        self.stranger = aws_client("s3", endpoint, Keyring().owner)
        self.function = aws_client("s3", endpoint, keys.function("own"))
        self._log = log
        self._logged = logged

    def requests(self) -> list[dict[str, Any]]:
        # The server writes before it answers.
        self._log.drain()
        requests = list(self._logged)
        self._logged.clear()
        return requests

    def since(self) -> dict[str, int]:
        return dict(Counter(logged["op"] for logged in self.requests()))


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    keys, logged = Keyring(), list[dict[str, Any]]()
    with (
        AccessLog(logged.append) as log,
        EmbeddedObjectStore(tmp_path_factory.mktemp("home") / "s3", keys, {}, access_log=log) as store,
    ):
        yield Counted(store.endpoint, keys, log, logged)


@pytest.mark.server
def test_each_request_counts_once_as_what_aws_bills_it_as(counted: Counted) -> None:
    s3 = counted.s3
    s3.create_bucket(Bucket="first")
    s3.put_object(Bucket="first", Key='{"key": "é"}', Body=b"x")
    s3.copy_object(Bucket="first", Key="copy", CopySource={"Bucket": "first", "Key": '{"key": "é"}'})
    assert counted.since() == {"object.put": 3}
    s3.get_object(Bucket="first", Key="copy")["Body"].read()
    s3.head_object(Bucket="first", Key="copy")
    with pytest.raises(ClientError):
        s3.get_object(Bucket="first", Key="missing")
    assert counted.since() == {"object.get": 3}
    s3.delete_object(Bucket="first", Key='{"key": "é"}')
    s3.delete_objects(Bucket="first", Delete={"Objects": [{"Key": "copy"}, {"Key": "missing"}]})
    assert counted.since() == {"object.delete": 2}


@pytest.mark.server
def test_a_multipart_upload_is_its_parts_its_beginning_and_its_end(counted: Counted) -> None:
    s3 = counted.s3
    s3.create_bucket(Bucket="large")
    s3.upload_fileobj(io.BytesIO(bytes(20 << 20)), "large", "object")
    assert counted.since() == {"object.put": 1 + 1 + 3 + 1}
    upload = s3.create_multipart_upload(Bucket="large", Key="other")["UploadId"]
    s3.abort_multipart_upload(Bucket="large", Key="other", UploadId=upload)
    assert counted.since() == {"object.put": 1, "object.delete": 1}


@pytest.mark.server
def test_requests_to_a_bucket_outlive_it(counted: Counted) -> None:
    s3 = counted.s3
    s3.create_bucket(Bucket="short")
    s3.put_object(Bucket="short", Key="key", Body=b"x")
    s3.delete_object(Bucket="short", Key="key")
    s3.delete_bucket(Bucket="short")
    assert counted.since() == {"object.put": 2, "object.delete": 2}


def test_a_request_is_logged_before_its_client_has_the_answer(tmp_path: Path) -> None:
    """An answer without a body is whole with its headers."""
    keys, events = Keyring(), list[str]()
    application = Application(Store(tmp_path), keys, lambda operation, *_: events.append(operation))
    client = aws_client("s3", "http://127.0.0.1:9", keys.owner)

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        events.append(message["type"])

    for call, method in (("create_bucket", "PUT"), ("head_bucket", "HEAD"), ("delete_bucket", "DELETE")):
        url = urlsplit(client.generate_presigned_url(call, {"Bucket": "bucket"}))
        scope = {"type": "http", "method": method, "raw_path": url.path.encode(), "query_string": url.query.encode()}
        asyncio.run(application({**scope, "headers": [(b"host", url.netloc.encode())]}, receive, send))
    answered = ["http.response.start", "http.response.body"]
    assert events == ["object.put", *answered, "object.get", *answered, "object.delete", *answered]


@pytest.mark.server
def test_what_a_stranger_is_refused_is_not_billed(counted: Counted) -> None:
    with pytest.raises(ClientError):
        counted.stranger.put_object(Bucket="first", Key="key", Body=b"x")
    assert counted.since() == {}


@pytest.mark.server
def test_requests_of_functions_have_their_bytes_and_times(counted: Counted) -> None:
    counted.s3.create_bucket(Bucket="sizes")
    counted.requests()
    began_ns = time.monotonic_ns()
    counted.function.put_object(Bucket="sizes", Key='a/"ü" b', Body=bytes(70_000))
    counted.function.get_object(Bucket="sizes", Key='a/"ü" b')["Body"].read()
    counted.function.get_object(Bucket="sizes", Key='a/"ü" b', Range="bytes=0-9")["Body"].read()
    counted.function.head_object(Bucket="sizes", Key='a/"ü" b')
    counted.function.list_objects_v2(Bucket="sizes")
    counted.s3.get_object(Bucket="sizes", Key='a/"ü" b')["Body"].read()
    requests = counted.requests()
    assert [(each["op"], each["function"], each["bytes"]) for each in requests] == [
        ("object.put", "own", 70_000),
        ("object.get", "own", 70_000),
        ("object.get", "own", 10),
        ("object.get", "own", 0),
        ("object.list", "own", 0),
        ("object.get", "", 70_000),
    ]
    times = [time_ns for each in requests for time_ns in (each["start_ns"], each["end_ns"])]
    times = [began_ns, *times, time.monotonic_ns()]
    assert times == sorted(times)


@pytest.mark.server
def test_parts_of_an_upload_have_their_bytes_and_refused_requests_have_none(counted: Counted) -> None:
    counted.s3.create_bucket(Bucket="parts")
    counted.requests()
    function = counted.function
    upload = function.create_multipart_upload(Bucket="parts", Key="k")["UploadId"]
    part = function.upload_part(Bucket="parts", Key="k", UploadId=upload, PartNumber=1, Body=bytes(6_000_000))
    parts = {"Parts": [{"ETag": part["ETag"], "PartNumber": 1}]}
    function.complete_multipart_upload(Bucket="parts", Key="k", UploadId=upload, MultipartUpload=parts)
    function.get_object(Bucket="parts", Key="k")["Body"].read()
    with pytest.raises(ClientError, match="PreconditionFailed"):
        function.put_object(Bucket="parts", Key="k", Body=b"more", IfNoneMatch="*")
    assert [each["bytes"] for each in counted.requests()] == [0, 6_000_000, 0, 6_000_000, 0]


def test_lines_may_be_cut_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "CHUNK_BYTES", 7)
    logged: list[dict[str, Any]] = []
    with AccessLog(logged.append) as log:
        os.write(log.writer, b'["object.put", "f", 1, 2, 3]\n' * 3)
    assert [(each["op"], each["function"], each["start_ns"], each["end_ns"], each["bytes"]) for each in logged] == [
        ("object.put", "f", 1, 2, 3)
    ] * 3


def test_the_log_ends_without_a_server() -> None:
    with AccessLog(lambda logged: pytest.fail(str(logged))):
        pass
