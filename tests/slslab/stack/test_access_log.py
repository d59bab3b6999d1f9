"""The requests to the embedded S3 server are counted as AWS bills them, each once."""

import io
from collections import Counter
from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError

from slslab.aws.clients import aws_client
from slslab.aws.keys import Keyring
from slslab.stack.access_log import AccessLog
from slslab.stack.object_store import EmbeddedObjectStore


class Counted:
    """A server's client, and how often each operation was reported since it was asked before."""

    def __init__(self, endpoint: str, keys: Keyring, log: AccessLog, operations: list[str]) -> None:
        self.s3 = aws_client("s3", endpoint, keys.owner)
        self.stranger = aws_client("s3", endpoint, Keyring().owner)
        self._log = log
        self._operations = operations

    def since(self) -> dict[str, int]:
        # The server writes before it answers.
        self._log.drain()
        counted = Counter(self._operations)
        self._operations.clear()
        return dict(counted)


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    keys, operations = Keyring(), list[str]()
    with (
        AccessLog(operations.append) as log,
        EmbeddedObjectStore(tmp_path_factory.mktemp("home") / "s3", keys, {}, access_log=log) as store,
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


def test_the_log_ends_without_a_server() -> None:
    with AccessLog(pytest.fail):
        pass
