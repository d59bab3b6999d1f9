"""The requests to the embedded S3 server are counted as AWS bills them, each once."""

import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slslab.aws.clients import aws_client
from slslab.aws.keys import Keyring
from slslab.stack.access_log import AccessLog, Messages
from slslab.stack.object_store import EmbeddedObjectStore


class Counted:
    """A server's client, and how often each operation was reported since it was asked before."""

    def __init__(self, endpoint: str, keys: Keyring, log: AccessLog, operations: list[str]) -> None:
        self.s3 = aws_client("s3", endpoint, keys.owner)
        self.stranger = aws_client("s3", endpoint, Keyring().owner)
        self._log = log
        self._operations = operations

    def since(self) -> dict[str, int]:
        # The server writes a request's message about when it answers it, and a later one's after it.
        self.s3.list_buckets()
        while "object.list" not in self._operations:
            self._log.drain()
        counted = Counter(self._operations)
        self._operations.clear()
        return dict(counted - Counter(["object.list"]))


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    # Longer than the address of a socket may be.
    home = tmp_path_factory.mktemp("home") / ("d" * 100)
    home.mkdir()
    keys, operations = Keyring(), list[str]()
    with (
        AccessLog(home, operations.append) as log,
        EmbeddedObjectStore(home / "s3", keys, {}, access_log=log) as store,
    ):
        yield Counted(store.endpoint, keys, log, operations)


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


def message(**entry: Any) -> bytes:
    usual = {"key": "k", "operation": "REST.PUT.OBJECT", "request_id": "1", "requester": "me", "status": 200}
    return json.dumps(["s3.access", 1, {**usual, **entry}, {}], separators=(",", ":"), ensure_ascii=False).encode()


def test_messages_may_be_cut_anywhere() -> None:
    data = message(key='é"]', request_id="1") + message(operation="REST.GET.OBJECT", key="", request_id="2")
    for place in range(len(data)):
        messages = Messages()
        assert messages.feed(data[:place]) + messages.feed(data[place:]) == ["object.put", "object.list"]


def test_what_the_server_failed_at_is_not_billed() -> None:
    assert Messages().feed(message(status=500)) == []


def test_the_log_ends_without_a_server(tmp_path: Path) -> None:
    with AccessLog(tmp_path, pytest.fail):
        pass
