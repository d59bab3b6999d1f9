"""The requests to the embedded S3 server are counted as AWS bills them, each once."""

import io
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slslab.aws.clients import aws_client
from slslab.aws.keys import SESSION_ARN, Keyring
from slslab.stack.access_log import AccessLog, Logged, Messages
from slslab.stack.object_store import EmbeddedObjectStore

# The server's ids have the time of its wall clock.
CLOCKS_NS = 50_000_000


class Counted:
    """A server's client, and how often each operation was reported since it was asked before."""

    def __init__(self, endpoint: str, keys: Keyring, log: AccessLog, logged: list[Logged]) -> None:
        self.s3 = aws_client("s3", endpoint, keys.owner)
        self.stranger = aws_client("s3", endpoint, Keyring().owner)
        self.function = aws_client("s3", endpoint, keys.function("own"))
        self._log = log
        self._logged = logged

    def requests(self) -> list[Logged]:
        # The server writes a request's message about when it answers it, and a later one's after it.
        self.s3.list_buckets()
        while not (self._logged and (self._logged[-1].operation, self._logged[-1].function) == ("object.list", "")):
            self._log.drain()
        requests = self._logged[:-1]
        self._logged.clear()
        return requests

    def since(self) -> dict[str, int]:
        return dict(Counter(logged.operation for logged in self.requests()))


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    # Longer than the address of a socket may be.
    home = tmp_path_factory.mktemp("home") / ("d" * 100)
    home.mkdir()
    keys, logged = Keyring(), list[Logged]()
    with (
        AccessLog(home, logged.append) as log,
        EmbeddedObjectStore(home / "s3", keys, {}, access_log=log) as store,
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
    assert [(each.operation, each.function, each.size) for each in requests] == [
        ("object.put", "own", 70_000),
        ("object.get", "own", 70_000),
        ("object.get", "own", None),
        ("object.get", "own", 0),
        ("object.list", "own", 0),
        ("object.get", "", None),
    ]
    starts = [each.start_ns for each in requests]
    assert starts == sorted(starts)
    assert all(began_ns - CLOCKS_NS < each.start_ns <= each.end_ns <= time.monotonic_ns() for each in requests)


@pytest.mark.server
def test_bytes_of_parts_and_of_objects_that_are_gone_are_unknown(counted: Counted) -> None:
    counted.s3.create_bucket(Bucket="parts")
    counted.requests()
    function = counted.function
    upload = function.create_multipart_upload(Bucket="parts", Key="k")["UploadId"]
    part = function.upload_part(Bucket="parts", Key="k", UploadId=upload, PartNumber=1, Body=bytes(6_000_000))
    parts = {"Parts": [{"ETag": part["ETag"], "PartNumber": 1}]}
    function.complete_multipart_upload(Bucket="parts", Key="k", UploadId=upload, MultipartUpload=parts)
    function.get_object(Bucket="parts", Key="k")["Body"].read()
    sizes = [each.size for each in counted.requests()]
    assert sizes == [0, None, 0, 6_000_000]


def message(**entry: Any) -> bytes:
    usual = {"key": "k", "operation": "REST.PUT.OBJECT", "request_id": "1", "requester": "me", "status": 200}
    return json.dumps(["s3.access", 1, {**usual, **entry}, {}], separators=(",", ":"), ensure_ascii=False).encode()


def test_messages_may_be_cut_anywhere() -> None:
    data = message(key='é"]', request_id="1") + message(operation="REST.GET.OBJECT", key="", request_id="2")
    for place in range(len(data)):
        messages = Messages()
        requests = messages.feed(data[:place]) + messages.feed(data[place:])
        assert [each.operation for each in requests] == ["object.put", "object.list"]


def test_what_the_server_failed_at_is_not_billed() -> None:
    assert Messages().feed(message(status=500)) == []


def test_the_log_ends_without_a_server(tmp_path: Path) -> None:
    with AccessLog(tmp_path, lambda logged: pytest.fail(str(logged))):
        pass


def test_an_id_without_a_time_leaves_the_request_to_nobody() -> None:
    """So it counts, and no function waited for it."""
    arn = f"{SESSION_ARN}/own"
    for request_id in ("1", "no number", "0" * 16):
        (logged,) = Messages(lambda _: 5).feed(message(requester_arn=arn, request_id=request_id))
        assert (logged.function, logged.size) == ("", None)
    (logged,) = Messages(lambda _: 5).feed(message(requester_arn=arn, request_id=f"{time.time_ns():016X}1234"))
    assert (logged.function, logged.size) == ("own", 5)
