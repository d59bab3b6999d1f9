"""The embedded S3 server answers as AWS documents S3, or refuses by name; every test names what a client observes."""

import base64
import functools
import hashlib
import json
import socket
import threading
import urllib.error
import urllib.request
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from email.message import Message
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import botocore.handlers
import pytest
from botocore import UNSIGNED
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from slslab.aws.clients import aws_client
from slslab.aws.keys import Keyring
from slslab.stack.object_store import EmbeddedObjectStore

pytestmark = pytest.mark.server

KEYS = Keyring()
MB = 1024 * 1024


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedObjectStore(tmp_path_factory.mktemp("store") / "data", KEYS, {}) as store:
        yield store.endpoint


@pytest.fixture(scope="module")
def client(endpoint: str) -> Iterator[Callable[..., Any]]:
    """Makes clients of the owner's with these settings of botocore."""
    with ExitStack() as clients:
        yield lambda **settings: clients.enter_context(closing(aws_client("s3", endpoint, KEYS.owner, **settings)))


@pytest.fixture(scope="module")
def s3(client: Callable[..., Any]) -> Any:
    return client()


@pytest.fixture
def bucket(s3: Any) -> str:
    name = f"b-{uuid.uuid4()}"
    s3.create_bucket(Bucket=name)
    return name


def refused(call: Callable[..., Any], **arguments: Any) -> tuple[int, str]:
    """Return HTTP status and error code of a request that must fail."""
    with pytest.raises(ClientError) as raised:
        call(**arguments)
    answer: Any = raised.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]


def asked(request: str | urllib.request.Request) -> tuple[int, Message, bytes]:
    """Return status, headers and body of an answer by plain HTTP."""
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def keys_of(page: Any) -> list[str]:
    return [entry["Key"] for entry in page.get("Contents", [])]


# Keys


@pytest.mark.parametrize(
    "pair",
    [
        ("m//n", "m/n"),
        ("/p", "p"),
        ("a\\b", "a/b"),
        ("x/", "x"),
        ("a/./b", "a/b"),
        ("a/../b", "b"),
        ("é", "e\u0301"),
        ("a b", "a+b"),
        ("%41", "A"),
        ("a?b", "a"),
        ("a#b", "a"),
        ("A", "a"),
        ("a;b=c&d", "a;b"),
    ],
)
def test_keys_that_differ_in_a_byte_are_different_objects(s3: Any, bucket: str, pair: tuple[str, str]) -> None:
    for key in pair:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    assert [s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in pair] == [key.encode() for key in pair]
    assert keys_of(s3.list_objects_v2(Bucket=bucket)) == sorted(pair, key=lambda key: key.encode())
    s3.delete_object(Bucket=bucket, Key=pair[0])
    assert keys_of(s3.list_objects_v2(Bucket=bucket)) == [pair[1]]


@pytest.mark.parametrize(
    "key", [".", "..", "../x", "a/..", "k" * 1024, "é" * 512, "d/" * 512, "\x01\x7f", "\t", " ", "😀"]
)
def test_any_key_of_up_to_1024_bytes_is_stored_listed_and_deleted(s3: Any, bucket: str, key: str) -> None:
    s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == b"x"
    assert keys_of(s3.list_objects_v2(Bucket=bucket)) == [key]
    assert keys_of(s3.list_objects_v2(Bucket=bucket, Prefix=key)) == [key]
    s3.delete_object(Bucket=bucket, Key=key)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_a_key_of_more_than_1024_bytes_is_refused(s3: Any, bucket: str) -> None:
    assert refused(s3.put_object, Bucket=bucket, Key="k" * 1025, Body=b"") == (400, "KeyTooLongError")
    assert refused(s3.put_object, Bucket=bucket, Key="é" * 513, Body=b"") == (400, "KeyTooLongError")


def test_a_folder_marker_is_an_object_and_folders_are_none(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="folder/", Body=b"")
    s3.put_object(Bucket=bucket, Key="other/deep/file", Body=b"")
    assert refused(s3.head_object, Bucket=bucket, Key="folder") == (404, "404")
    assert refused(s3.head_object, Bucket=bucket, Key="other/") == (404, "404")
    s3.delete_object(Bucket=bucket, Key="other/deep/file")
    assert keys_of(s3.list_objects_v2(Bucket=bucket)) == ["folder/"]


# Lists


@pytest.fixture
def shelf(s3: Any, bucket: str) -> str:
    for key in ("a.txt", "a/b", "a0", "B", "a/c/d", "é", "z"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    return bucket


def test_lists_are_in_the_order_of_utf_8_bytes(s3: Any, shelf: str) -> None:
    assert keys_of(s3.list_objects_v2(Bucket=shelf)) == ["B", "a.txt", "a/b", "a/c/d", "a0", "z", "é"]
    assert keys_of(s3.list_objects(Bucket=shelf)) == ["B", "a.txt", "a/b", "a/c/d", "a0", "z", "é"]


def test_start_after_and_marker_are_exclusive_and_need_not_exist(s3: Any, shelf: str) -> None:
    assert keys_of(s3.list_objects_v2(Bucket=shelf, StartAfter="a.txt")) == ["a/b", "a/c/d", "a0", "z", "é"]
    assert keys_of(s3.list_objects_v2(Bucket=shelf, StartAfter="a.uuu")) == ["a/b", "a/c/d", "a0", "z", "é"]
    assert keys_of(s3.list_objects(Bucket=shelf, Marker="a/b")) == ["a/c/d", "a0", "z", "é"]
    assert keys_of(s3.list_objects_v2(Bucket=shelf, StartAfter="zz")) == ["é"]


def test_a_delimiter_groups_what_begins_alike(s3: Any, shelf: str) -> None:
    page = s3.list_objects_v2(Bucket=shelf, Delimiter="/")
    assert (keys_of(page), page["CommonPrefixes"], page["KeyCount"]) == (
        ["B", "a.txt", "a0", "z", "é"],
        [{"Prefix": "a/"}],
        6,
    )
    inner = s3.list_objects_v2(Bucket=shelf, Delimiter="/", Prefix="a/")
    assert (keys_of(inner), inner["CommonPrefixes"]) == (["a/b"], [{"Prefix": "a/c/"}])
    odd = s3.list_objects_v2(Bucket=shelf, Delimiter="t")
    assert odd["CommonPrefixes"] == [{"Prefix": "a.t"}]


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_pages_of_any_size_name_everything_once(s3: Any, shelf: str, size: int) -> None:
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket=shelf, Delimiter="/", PaginationConfig={"PageSize": size}
    )
    found = [[*keys_of(page), *(entry["Prefix"] for entry in page.get("CommonPrefixes", []))] for page in pages]
    assert all(len(page) <= size for page in found)
    assert sorted(name for page in found for name in page) == sorted(["B", "a.txt", "a/", "a0", "z", "é"])
    pages = s3.get_paginator("list_objects").paginate(Bucket=shelf, Delimiter="/", PaginationConfig={"PageSize": size})
    found = [[*keys_of(page), *(entry["Prefix"] for entry in page.get("CommonPrefixes", []))] for page in pages]
    assert sorted(name for page in found for name in page) == sorted(["B", "a.txt", "a/", "a0", "z", "é"])


def test_a_page_of_zero_keys_is_not_truncated(s3: Any, shelf: str) -> None:
    page = s3.list_objects_v2(Bucket=shelf, MaxKeys=0)
    assert (page["KeyCount"], page["IsTruncated"]) == (0, False)
    assert refused(s3.list_objects_v2, Bucket=shelf, MaxKeys=-1) == (400, "InvalidArgument")
    assert refused(s3.list_objects_v2, Bucket=shelf, ContinuationToken="") == (400, "InvalidArgument")


# Buckets


def test_a_bucket_of_objects_is_not_deleted(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="a/b", Body=b"kept")
    assert refused(s3.delete_bucket, Bucket=bucket) == (409, "BucketNotEmpty")
    assert s3.get_object(Bucket=bucket, Key="a/b")["Body"].read() == b"kept"
    s3.delete_object(Bucket=bucket, Key="a/b")
    s3.delete_bucket(Bucket=bucket)
    assert refused(s3.head_bucket, Bucket=bucket) == (404, "404")
    assert refused(s3.delete_bucket, Bucket=bucket) == (404, "NoSuchBucket")
    assert refused(s3.put_object, Bucket=bucket, Key="k", Body=b"x") == (404, "NoSuchBucket")


def test_a_bucket_of_versions_is_not_deleted(s3: Any, bucket: str) -> None:
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    s3.delete_object(Bucket=bucket, Key="k")
    assert refused(s3.delete_bucket, Bucket=bucket) == (409, "BucketNotEmpty")


def test_the_owner_may_create_a_bucket_again_in_us_east_1(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"kept")
    assert s3.create_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"kept"


def test_a_bucket_is_in_the_region_that_was_asked_for(s3: Any, bucket: str) -> None:
    assert s3.get_bucket_location(Bucket=bucket)["LocationConstraint"] is None
    name, region = f"b-{uuid.uuid4()}", "eu-west-1"
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": region})
    assert s3.get_bucket_location(Bucket=name)["LocationConstraint"] == region
    assert s3.head_bucket(Bucket=name)["BucketRegion"] == region
    assert refused(s3.create_bucket, Bucket=name) == (409, "BucketAlreadyOwnedByYou")


@pytest.mark.parametrize(
    "name",
    ["ab", "Upper", "under_score", "-dash", "dash-", "a..b", "a.-b", "a-.b", "a.mrap", "192.168.5.4", "x" * 64],
)
def test_names_that_s3_does_not_take_are_refused(client: Callable[..., Any], name: str) -> None:
    any_name = client()
    any_name.meta.events.unregister("before-parameter-build.s3", botocore.handlers.validate_bucket_name)
    assert refused(any_name.create_bucket, Bucket=name) == (400, "InvalidBucketName")


CONFIGURATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "notification": (
        "put_bucket_notification_configuration",
        {"NotificationConfiguration": {"QueueConfigurations": []}},
    ),
    "website": ("put_bucket_website", {"WebsiteConfiguration": {"IndexDocument": {"Suffix": "index.html"}}}),
    "logging": ("put_bucket_logging", {"BucketLoggingStatus": {}}),
    "accelerate": ("put_bucket_accelerate_configuration", {"AccelerateConfiguration": {"Status": "Enabled"}}),
    "replication": ("put_bucket_replication", {"ReplicationConfiguration": {"Role": "r", "Rules": []}}),
    "request payment": ("put_bucket_request_payment", {"RequestPaymentConfiguration": {"Payer": "Requester"}}),
    "analytics": (
        "put_bucket_analytics_configuration",
        {"Id": "i", "AnalyticsConfiguration": {"Id": "i", "StorageClassAnalysis": {}}},
    ),
    "object lock": ("put_object_lock_configuration", {"ObjectLockConfiguration": {"ObjectLockEnabled": "Enabled"}}),
    "lifecycle": (
        "put_bucket_lifecycle_configuration",
        {"LifecycleConfiguration": {"Rules": [{"Status": "Enabled", "Prefix": "", "Expiration": {"Days": 1}}]}},
    ),
    "policy status": ("get_bucket_policy_status", {}),
    "metrics": ("put_bucket_metrics_configuration", {"Id": "i", "MetricsConfiguration": {"Id": "i"}}),
}


@pytest.mark.parametrize("what", CONFIGURATIONS)
def test_a_configuration_that_has_no_effect_here_is_refused_by_name_and_makes_nothing(
    s3: Any, bucket: str, what: str
) -> None:
    operation, arguments = CONFIGURATIONS[what]
    missing = f"missing-{uuid.uuid4()}"
    for name in (missing, bucket):
        with pytest.raises(ClientError) as raised:
            getattr(s3, operation)(Bucket=name, **arguments)
        error: Any = raised.value.response
        if name == bucket:
            assert (error["ResponseMetadata"]["HTTPStatusCode"], error["Error"]["Code"]) == (501, "NotImplemented")
            assert raised.value.operation_name in error["Error"]["Message"]
    assert missing not in [entry["Name"] for entry in s3.list_buckets()["Buckets"]]
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_a_sub_resource_that_s3_does_not_have_is_refused_and_makes_nothing(s3: Any) -> None:
    name = f"made-{uuid.uuid4()}"
    for query in ("unheard", "notification&x=1", "policyStatus", "annotation"):
        url = s3.generate_presigned_url("create_bucket", Params={"Bucket": name}, ExpiresIn=60, HttpMethod="PUT")
        assert asked(urllib.request.Request(f"{url}&{query}", b"", method="PUT"))[0] >= 400
    assert name not in [entry["Name"] for entry in s3.list_buckets()["Buckets"]]


# Objects


def test_conditional_writes(s3: Any, bucket: str) -> None:
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"1", IfNoneMatch="*")["ETag"]
    assert refused(s3.put_object, Bucket=bucket, Key="k", Body=b"2", IfNoneMatch="*") == (412, "PreconditionFailed")
    assert refused(s3.put_object, Bucket=bucket, Key="k", Body=b"2", IfMatch='"no"') == (412, "PreconditionFailed")
    assert refused(s3.put_object, Bucket=bucket, Key="absent", Body=b"2", IfMatch=etag) == (404, "NoSuchKey")
    for condition in ({"IfMatch": "*"}, {"IfNoneMatch": etag}, {"IfMatch": etag, "IfNoneMatch": "*"}):
        assert refused(s3.put_object, Bucket=bucket, Key="k", Body=b"2", **condition) == (501, "NotImplemented")
    s3.put_object(Bucket=bucket, Key="k", Body=b"3", IfMatch=etag)
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"3"


def test_a_conditional_upload_is_overtaken_by_another_write(s3: Any, bucket: str) -> None:
    """documented: conditional-writes.html: 409, after which the upload begins anew."""
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"1")["ETag"]
    upload, parts, _ = begin(s3, bucket, [10])
    complete = {"Bucket": bucket, "Key": "k", "UploadId": upload, "MultipartUpload": {"Parts": parts}}
    conflict = (409, "ConditionalRequestConflict")
    s3.put_object(Bucket=bucket, Key="k", Body=b"1")
    assert refused(s3.complete_multipart_upload, **complete, IfMatch='"other"') == (412, "PreconditionFailed")
    assert refused(s3.complete_multipart_upload, **complete, IfMatch=etag) == conflict
    s3.delete_object(Bucket=bucket, Key="k")
    assert refused(s3.complete_multipart_upload, **complete, IfMatch=etag) == (404, "NoSuchKey")
    assert refused(s3.complete_multipart_upload, **complete, IfNoneMatch="*") == conflict
    upload, parts, _ = begin(s3, bucket, [10])
    complete |= {"UploadId": upload, "MultipartUpload": {"Parts": parts}}
    s3.put_object(Bucket=bucket, Key="another", Body=b"1")
    s3.complete_multipart_upload(**complete, IfNoneMatch="*")


def test_of_64_conditional_writers_one_wins(s3: Any, bucket: str) -> None:
    statuses: list[int] = []

    def put(number: int) -> None:
        try:
            s3.put_object(Bucket=bucket, Key="lock", Body=str(number).encode() * 50_000, IfNoneMatch="*")
            statuses.append(200)
        except ClientError as error:
            statuses.append(error.response["ResponseMetadata"]["HTTPStatusCode"])

    threads = [threading.Thread(target=put, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses.count(200) == 1
    assert set(statuses) <= {200, 409, 412}


def test_conditional_reads(s3: Any, bucket: str) -> None:
    put = s3.put_object(Bucket=bucket, Key="k", Body=b"body")
    at = s3.head_object(Bucket=bucket, Key="k")["LastModified"]
    read = {"Bucket": bucket, "Key": "k"}
    assert refused(s3.get_object, **read, IfMatch='"other"') == (412, "PreconditionFailed")
    assert refused(s3.get_object, **read, IfNoneMatch=put["ETag"])[0] == 304
    assert refused(s3.get_object, **read, IfModifiedSince=at)[0] == 304
    assert s3.get_object(**read, IfModifiedSince="2999-01-01")["Body"].read() == b"body"
    assert refused(s3.get_object, **read, IfUnmodifiedSince="2000-01-01")[0] == 412
    # documented: API_GetObject.html: If-Match true beats If-Unmodified-Since false, If-None-Match the other.
    assert s3.get_object(**read, IfMatch=put["ETag"], IfUnmodifiedSince="2000-01-01")["Body"].read() == b"body"
    assert refused(s3.get_object, **read, IfNoneMatch=put["ETag"], IfModifiedSince="2000-01-01")[0] == 304
    assert refused(s3.get_object, Bucket=bucket, Key="absent", IfMatch='"x"') == (404, "NoSuchKey")


@pytest.mark.parametrize(
    ("wanted", "part", "header"),
    [
        ("bytes=0-3", b"0123", "bytes 0-3/10"),
        ("bytes=4-", b"456789", "bytes 4-9/10"),
        ("bytes=-3", b"789", "bytes 7-9/10"),
        ("bytes=8-100", b"89", "bytes 8-9/10"),
        ("bytes=-100", b"0123456789", "bytes 0-9/10"),
    ],
)
def test_ranges(s3: Any, bucket: str, wanted: str, part: bytes, header: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"0123456789")
    answer = s3.get_object(Bucket=bucket, Key="k", Range=wanted)
    assert (answer["Body"].read(), answer["ContentRange"]) == (part, header)
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 206


def test_ranges_that_cannot_be_served(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"0123456789")
    for wanted in ("bytes=10-", "bytes=100-200", "bytes=-0"):
        assert refused(s3.get_object, Bucket=bucket, Key="k", Range=wanted) == (416, "InvalidRange")
    # Ranges that are not valid are ignored (RFC 9110, 14.2).
    for wanted in ("bytes=5-2", "lines=1-2", "bytes=a-b"):
        assert s3.get_object(Bucket=bucket, Key="k", Range=wanted)["Body"].read() == b"0123456789"


def test_metadata_and_headers_come_back(s3: Any, bucket: str) -> None:
    sent = {
        "ContentType": "text/x-test",
        "CacheControl": "no-store",
        "ContentDisposition": "attachment",
        "ContentEncoding": "gzip",
        "ContentLanguage": "de",
        "Metadata": {"a": "1", "empty": "", "long-name": "v v"},
    }
    s3.put_object(Bucket=bucket, Key="k", Body=b"", **sent)
    for answer in (s3.head_object(Bucket=bucket, Key="k"), s3.get_object(Bucket=bucket, Key="k")):
        assert {name: answer[name] for name in sent} == sent
    assert s3.put_object(Bucket=bucket, Key="plain", Body=b"")["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert s3.head_object(Bucket=bucket, Key="plain")["ContentType"] == "binary/octet-stream"


def test_metadata_of_other_alphabets_comes_back_encoded(s3: Any, client: Callable[..., Any], bucket: str) -> None:
    """documented: UsingMetadata.html: characters outside ASCII come back by RFC 2047."""
    signing = client(signature_version="s3v4")
    url = signing.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "k"}, ExpiresIn=60)
    sent = {"x-amz-meta-name": "é".encode().decode("latin-1")}
    assert asked(urllib.request.Request(url, b"x", sent, method="PUT"))[0] == 200
    assert s3.head_object(Bucket=bucket, Key="k")["Metadata"] == {"name": "=?UTF-8?B?w6k=?="}


def test_too_much_metadata_is_refused(s3: Any, bucket: str) -> None:
    arguments = {"Bucket": bucket, "Key": "k", "Body": b"", "Metadata": {"m": "x" * 2048}}
    assert refused(s3.put_object, **arguments) == (400, "MetadataTooLarge")


def test_a_body_that_its_digest_does_not_match_is_refused(s3: Any, bucket: str) -> None:
    other = base64.b64encode(hashlib.md5(b"other").digest()).decode()
    sent = {"Bucket": bucket, "Key": "k", "Body": b"body"}
    assert refused(s3.put_object, **sent, ContentMD5=other) == (400, "BadDigest")
    assert refused(s3.put_object, **sent, ContentMD5="rubbish") == (400, "InvalidDigest")
    assert refused(s3.put_object, **sent, ChecksumSHA256=base64.b64encode(b"0" * 32).decode()) == (400, "BadDigest")
    assert refused(s3.head_object, Bucket=bucket, Key="k")[0] == 404


def digest(algorithm: str, data: bytes) -> bytes:
    if algorithm == "CRC32":
        return zlib.crc32(data).to_bytes(4, "big")
    if algorithm in ("SHA1", "SHA256"):
        return hashlib.new(algorithm, data).digest()
    checksums = pytest.importorskip("awscrt.checksums", reason="pip install '.[checksums]'")
    value: int = checksums.crc32c(data) if algorithm == "CRC32C" else checksums.crc64nvme(data)
    return value.to_bytes(4 if algorithm == "CRC32C" else 8, "big")


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_checksums_are_verified_stored_and_returned(s3: Any, bucket: str, algorithm: str) -> None:
    body = b"body" * 1000
    expected = base64.b64encode(digest(algorithm, body)).decode()
    answer = s3.put_object(Bucket=bucket, Key="k", Body=body, ChecksumAlgorithm=algorithm)
    assert answer[f"Checksum{algorithm}"] == expected
    head = s3.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert (head[f"Checksum{algorithm}"], head["ChecksumType"]) == (expected, "FULL_OBJECT")
    assert f"Checksum{algorithm}" not in s3.head_object(Bucket=bucket, Key="k")
    for part, whole in (("bytes=0-9", False), ("bytes=0-9999", True)):
        read = s3.get_object(Bucket=bucket, Key="k", Range=part, ChecksumMode="ENABLED")
        assert (f"Checksum{algorithm}" in read) is whole
    found = s3.get_object_attributes(
        Bucket=bucket, Key="k", ObjectAttributes=["ETag", "Checksum", "ObjectSize", "StorageClass"]
    )
    assert found["Checksum"] == {f"Checksum{algorithm}": expected, "ChecksumType": "FULL_OBJECT"}
    assert (found["ETag"], found["ObjectSize"]) == (hashlib.md5(body).hexdigest(), len(body))


def test_copies(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="from/ä ü", Body=b"body", ContentType="text/plain", Metadata={"a": "1"})
    source = {"Bucket": bucket, "Key": "from/ä ü"}
    assert s3.copy_object(Bucket=bucket, Key="to", CopySource=source)["CopyObjectResult"]["ETag"]
    got = s3.get_object(Bucket=bucket, Key="to")
    assert (got["Body"].read(), got["Metadata"], got["ContentType"]) == (b"body", {"a": "1"}, "text/plain")
    s3.copy_object(Bucket=bucket, Key="to", CopySource=source, MetadataDirective="REPLACE", Metadata={"b": "2"})
    assert s3.head_object(Bucket=bucket, Key="to")["Metadata"] == {"b": "2"}
    assert refused(s3.copy_object, Bucket=bucket, Key="from/ä ü", CopySource=source) == (400, "InvalidRequest")
    missing = {"Bucket": bucket, "Key": "absent"}
    assert refused(s3.copy_object, Bucket=bucket, Key="to", CopySource=missing) == (404, "NoSuchKey")
    nowhere = {"Bucket": f"no-{uuid.uuid4()}", "Key": "k"}
    assert refused(s3.copy_object, Bucket=bucket, Key="to", CopySource=nowhere) == (404, "NoSuchBucket")
    for condition in ({"CopySourceIfMatch": '"x"'}, {"CopySourceIfNoneMatch": got["ETag"]}):
        assert refused(s3.copy_object, Bucket=bucket, Key="to", CopySource=source, **condition)[0] == 412


def test_deletes_of_many(s3: Any, bucket: str) -> None:
    names = ["a", "a/b", "a//b", " <&>\"'", "é"]
    for name in names:
        s3.put_object(Bucket=bucket, Key=name, Body=b"")
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": name} for name in [*names, "absent"]]})
    assert sorted(entry["Key"] for entry in answer["Deleted"]) == sorted([*names, "absent"])
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
    quiet = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "a"}], "Quiet": True})
    assert "Deleted" not in quiet
    many = {"Objects": [{"Key": str(number)} for number in range(1001)]}
    assert refused(s3.delete_objects, Bucket=bucket, Delete=many) == (400, "MalformedXML")


def test_tags(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"", Tagging="a=1&b=x%20y")
    tags = [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "x y"}]
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == tags
    assert s3.get_object(Bucket=bucket, Key="k")["TagCount"] == 2
    s3.put_object_tagging(Bucket=bucket, Key="k", Tagging={"TagSet": tags[:1]})
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == tags[:1]
    s3.delete_object_tagging(Bucket=bucket, Key="k")
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == []
    many = {"TagSet": [{"Key": str(number), "Value": ""} for number in range(11)]}
    assert refused(s3.put_object_tagging, Bucket=bucket, Key="k", Tagging=many) == (400, "BadRequest")
    system = {"TagSet": [{"Key": "aws:a", "Value": ""}]}
    assert refused(s3.put_object_tagging, Bucket=bucket, Key="k", Tagging=system) == (400, "InvalidTag")
    for header in ("a=1&a=2", "a=1,b=2"):
        assert refused(s3.put_object, Bucket=bucket, Key="k", Tagging=header) == (400, "InvalidArgument")
    assert refused(s3.get_bucket_tagging, Bucket=bucket) == (404, "NoSuchTagSet")
    s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tags})
    assert s3.get_bucket_tagging(Bucket=bucket)["TagSet"] == tags


def test_tags_need_a_right_of_their_own(s3: Any, client: Callable[..., Any], bucket: str) -> None:
    """documented: API_PutObject.html: s3:PutObjectTagging; tags are returned in the order of their keys."""
    anyone = client(signature_version=UNSIGNED)
    write = {"Bucket": bucket, "Key": "k", "Tagging": "b&a=1"}

    def allow(*actions: str) -> None:
        statement = {"Effect": "Allow", "Principal": "*", "Action": actions, "Resource": f"arn:aws:s3:::{bucket}/*"}
        s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}))

    allow("s3:PutObject")
    assert refused(anyone.put_object, **write, Body=b"x") == (403, "AccessDenied")
    allow("s3:PutObject", "s3:PutObjectTagging")
    anyone.put_object(**write, Body=b"x")
    assert [tag["Key"] for tag in s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"]] == ["a", "b"]


def test_the_expected_owner_is_compared(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", ExpectedBucketOwner="000000000000")
    for call, more in ((s3.get_object, {"Key": "k"}), (s3.list_objects_v2, {}), (s3.delete_bucket, {})):
        assert refused(call, Bucket=bucket, ExpectedBucketOwner="111111111111", **more) == (403, "AccessDenied")


# Versions


def test_versions(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"0")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    first = s3.put_object(Bucket=bucket, Key="k", Body=b"1")["VersionId"]
    second = s3.put_object(Bucket=bucket, Key="k", Body=b"2")["VersionId"]
    assert s3.get_object(Bucket=bucket, Key="k")["VersionId"] == second
    read = [s3.get_object(Bucket=bucket, Key="k", VersionId=v)["Body"].read() for v in ("null", first, second)]
    assert read == [b"0", b"1", b"2"]
    marker = s3.delete_object(Bucket=bucket, Key="k")
    assert marker["DeleteMarker"] is True
    assert refused(s3.get_object, Bucket=bucket, Key="k") == (404, "NoSuchKey")
    assert refused(s3.get_object, Bucket=bucket, Key="k", VersionId=marker["VersionId"]) == (405, "MethodNotAllowed")
    listed = s3.list_object_versions(Bucket=bucket)
    assert [entry["VersionId"] for entry in listed["Versions"]] == [second, first, "null"]
    assert [entry["VersionId"] for entry in listed["DeleteMarkers"]] == [marker["VersionId"]]
    assert [entry["IsLatest"] for entry in listed["Versions"]] == [False, False, False]
    s3.delete_object(Bucket=bucket, Key="k", VersionId=marker["VersionId"])
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"2"
    s3.delete_object(Bucket=bucket, Key="k", VersionId=second)
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"1"
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    assert "VersionId" not in s3.put_object(Bucket=bucket, Key="k", Body=b"new null")
    assert s3.get_object(Bucket=bucket, Key="k", VersionId="null")["Body"].read() == b"new null"
    assert [e["VersionId"] for e in s3.list_object_versions(Bucket=bucket)["Versions"]] == ["null", first]
    assert refused(s3.get_object, Bucket=bucket, Key="k", VersionId="x" * 32)[0] in (400, 404)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_pages_of_versions_name_everything_once(s3: Any, bucket: str, size: int) -> None:
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    expected = []
    for key in ("a", "a", "b", "c/d", "c/e"):
        expected.append((key, s3.put_object(Bucket=bucket, Key=key, Body=b"")["VersionId"]))
    expected.append(("b", s3.delete_object(Bucket=bucket, Key="b")["VersionId"]))
    found: list[tuple[str, str]] = []
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket, PaginationConfig={"PageSize": size}):
        entries = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        assert len(entries) <= size
        found += [(entry["Key"], entry["VersionId"]) for entry in entries]
    assert sorted(found) == sorted(expected)


# Multipart uploads


def begin(s3: Any, bucket: str, sizes: list[int], **options: Any) -> tuple[str, list[dict[str, Any]], bytes]:
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k", **options)["UploadId"]
    parts, whole = [], b""
    for number, size in enumerate(sizes, 1):
        body = bytes([number]) * size
        whole += body
        etag = s3.upload_part(Bucket=bucket, Key="k", UploadId=upload, PartNumber=number, Body=body)["ETag"]
        parts.append({"PartNumber": number, "ETag": etag})
    return upload, parts, whole


def test_a_multipart_upload(s3: Any, bucket: str) -> None:
    upload, parts, whole = begin(s3, bucket, [5 * MB, 5 * MB, 10], Metadata={"a": "1"}, ContentType="x/y")
    assert refused(s3.head_object, Bucket=bucket, Key="k")[0] == 404
    listed = s3.list_parts(Bucket=bucket, Key="k", UploadId=upload, MaxParts=2)
    assert [entry["PartNumber"] for entry in listed["Parts"]] == [1, 2]
    assert listed["NextPartNumberMarker"] == 2
    assert [entry["UploadId"] for entry in s3.list_multipart_uploads(Bucket=bucket)["Uploads"]] == [upload]
    done = s3.complete_multipart_upload(Bucket=bucket, Key="k", UploadId=upload, MultipartUpload={"Parts": parts})
    digests = b"".join(bytes.fromhex(part["ETag"].strip('"')) for part in parts)
    assert done["ETag"] == f'"{hashlib.md5(digests).hexdigest()}-3"'
    assert done["Location"] == f"{s3.meta.endpoint_url}/{bucket}/k"
    got = s3.get_object(Bucket=bucket, Key="k")
    assert (got["Body"].read(), got["Metadata"], got["ContentType"]) == (whole, {"a": "1"}, "x/y")
    second = s3.get_object(Bucket=bucket, Key="k", PartNumber=2)
    assert (second["Body"].read(), second["PartsCount"]) == (whole[5 * MB : 10 * MB], 3)
    assert s3.get_object(Bucket=bucket, Key="k", Range=f"bytes={5 * MB - 2}-{5 * MB + 1}")["Body"].read() == (
        b"\1\1\2\2"
    )
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)
    again = {"Bucket": bucket, "Key": "k", "UploadId": upload, "MultipartUpload": {"Parts": parts}}
    assert s3.complete_multipart_upload(**again)["ETag"] == done["ETag"]
    s3.put_object(Bucket=bucket, Key="k", Body=b"")
    assert refused(s3.complete_multipart_upload, **again) == (404, "NoSuchUpload")


def test_what_a_multipart_upload_refuses(s3: Any, bucket: str) -> None:
    upload, parts, _ = begin(s3, bucket, [10, 10])
    complete = {"Bucket": bucket, "Key": "k", "UploadId": upload}

    def end(given: list[dict[str, Any]]) -> tuple[int, str]:
        return refused(s3.complete_multipart_upload, **complete, MultipartUpload={"Parts": given})

    assert end(parts) == (400, "EntityTooSmall")
    assert end(parts[::-1]) == (400, "InvalidPartOrder")
    assert end([{"PartNumber": 1, "ETag": '"0123"'}]) == (400, "InvalidPart")
    assert end([{"PartNumber": 9, "ETag": parts[0]["ETag"]}]) == (400, "InvalidPart")
    assert end([]) == (400, "MalformedXML")
    part = {"Bucket": bucket, "Key": "k", "Body": b"x"}
    assert refused(s3.upload_part, **part, UploadId="absent", PartNumber=1) == (404, "NoSuchUpload")
    for number in (0, 10_001):
        assert refused(s3.upload_part, **part, UploadId=upload, PartNumber=number) == (400, "InvalidArgument")
    s3.abort_multipart_upload(Bucket=bucket, Key="k", UploadId=upload)
    assert refused(s3.list_parts, Bucket=bucket, Key="k", UploadId=upload) == (404, "NoSuchUpload")


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        ("SHA256", "COMPOSITE"),
        ("CRC32", "COMPOSITE"),
        ("CRC32", "FULL_OBJECT"),
        ("CRC32C", "COMPOSITE"),
        ("CRC32C", "FULL_OBJECT"),
        ("CRC64NVME", "FULL_OBJECT"),
    ],
)
def test_checksums_of_multipart_uploads(s3: Any, bucket: str, algorithm: str, kind: str) -> None:
    of = functools.partial(digest, algorithm)
    of(b"")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k", ChecksumAlgorithm=algorithm, ChecksumType=kind)
    whose = {"Bucket": bucket, "Key": "k", "UploadId": upload["UploadId"]}
    assert (upload["ChecksumAlgorithm"], upload["ChecksumType"]) == (algorithm, kind)
    bodies = [b"a" * 5 * MB, b"b" * 100]
    parts = []
    for number, body in enumerate(bodies, 1):
        answer = s3.upload_part(**whose, PartNumber=number, Body=body, ChecksumAlgorithm=algorithm)
        parts.append(
            {"PartNumber": number, "ETag": answer["ETag"], f"Checksum{algorithm}": answer[f"Checksum{algorithm}"]}
        )

    expected = base64.b64encode(
        of(b"".join(bodies)) if kind == "FULL_OBJECT" else of(b"".join(map(of, bodies)))
    ).decode() + ("-2" if kind == "COMPOSITE" else "")
    whole: dict[str, Any] = {**whose, "MultipartUpload": {"Parts": parts}}
    other = base64.b64encode(of(b"other")).decode()
    assert refused(s3.complete_multipart_upload, **whole, **{f"Checksum{algorithm}": other}) == (400, "BadDigest")
    for wrong in ({"ChecksumSHA1": other}, {f"Checksum{algorithm}": "bad"}):
        assert refused(s3.complete_multipart_upload, **whole, **wrong) == (400, "InvalidRequest")
    done = s3.complete_multipart_upload(**whole, **{f"Checksum{algorithm}": expected})
    assert (done[f"Checksum{algorithm}"], done["ChecksumType"]) == (expected, kind)
    found = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=["Checksum", "ObjectParts", "ObjectSize"])
    # documented: API_GetObjectAttributes.html: the number of parts is not in the checksum here.
    assert found["Checksum"][f"Checksum{algorithm}"] == expected.removesuffix("-2")
    assert (found["ObjectParts"]["TotalPartsCount"], found["ObjectSize"]) == (2, 5 * MB + 100)


def test_parts_need_the_checksum_of_their_upload(s3: Any, client: Callable[..., Any], bucket: str) -> None:
    """recorded: "Checksum Type mismatch occurred", and "It was missing for part 1"; boto3 sends CRC32 by itself."""
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k", ChecksumAlgorithm="SHA256")["UploadId"]
    part = {"Bucket": bucket, "Key": "k", "UploadId": upload, "PartNumber": 1, "Body": b"x"}
    plain = client(request_checksum_calculation="when_required")
    for other in (s3, plain):
        assert refused(other.upload_part, **part) == (400, "InvalidRequest")
    etag = s3.upload_part(**part, ChecksumAlgorithm="SHA256")["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    complete = {"Bucket": bucket, "Key": "k", "UploadId": upload, "MultipartUpload": parts}
    assert refused(s3.complete_multipart_upload, **complete) == (400, "InvalidRequest")


def test_parts_are_copied_by_ranges(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="source", Body=bytes(range(256)) * 4096 * 6)
    source = {"Bucket": bucket, "Key": "source"}
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    part = {"Bucket": bucket, "Key": "k", "UploadId": upload, "CopySource": source}
    result = s3.upload_part_copy(**part, PartNumber=1, CopySourceRange=f"bytes=256-{5 * MB + 255}")["CopyPartResult"]
    for wrong in ("0-2", "bytes=0", "bytes=hello-world", "bytes=0-bar", "bytes=-1", "bytes=0-2,3-5"):
        assert refused(s3.upload_part_copy, **part, PartNumber=2, CopySourceRange=wrong) == (400, "InvalidArgument")
    assert refused(s3.upload_part_copy, **part, PartNumber=2, CopySourceRange=f"bytes=0-{9 * MB}")[1] in (
        "InvalidArgument",
        "InvalidRange",
    )
    assert refused(s3.upload_part_copy, **part, PartNumber=2, CopySourceRange=f"bytes={7 * MB}-{8 * MB}") == (
        400,
        "InvalidRequest",
    )
    parts = [{"PartNumber": 1, "ETag": result["ETag"]}]
    s3.complete_multipart_upload(Bucket=bucket, Key="k", UploadId=upload, MultipartUpload={"Parts": parts})
    assert s3.head_object(Bucket=bucket, Key="k")["ContentLength"] == 5 * MB


# Presigned URLs


@pytest.mark.parametrize("version", ["s3", "s3v4"])
def test_presigned_urls(client: Callable[..., Any], bucket: str, version: str) -> None:
    signing = client(signature_version=version)
    params = {"Bucket": bucket, "Key": "a b/ü"}
    url = signing.generate_presigned_url("put_object", Params=params, ExpiresIn=60)
    assert asked(urllib.request.Request(url, b"body", {"Content-Type": ""}, method="PUT"))[0] == 200
    overrides = {"ResponseContentType": "text/x-y", "ResponseContentDisposition": 'a; f="b c"'}
    url = signing.generate_presigned_url("get_object", Params={**params, **overrides})
    status, headers, body = asked(url)
    assert (status, body) == (200, b"body")
    assert (headers["Content-Type"], headers["Content-Disposition"]) == tuple(overrides.values())
    for changed in (url.replace("text", "html"), url.replace(bucket, bucket[:-1] + "x")):
        status, _, body = asked(changed)
        assert (status, b"SignatureDoesNotMatch" in body) == (403, True)


KEYS_TO_ENCODE = ("a b/ü", "a+b", "a%41", "a?b=c&d", "/a//b", "a/../b", "x/", "~a'()*!", "a=b;c@$,:", "\U0001f600")
OVERRIDES = {
    "ResponseCacheControl": "no-store",
    "ResponseContentDisposition": 'a; f="b c+d&e=%20/ü"',
    "ResponseContentType": "text/x-y",
    "ResponseExpires": "Mon, 01 Jan 2024 00:00:00 GMT",
}
# Operation, method, parameters, headers, and a part of the answer.
PRESIGNED: list[tuple[str, str, dict[str, Any], dict[str, str], str]] = [
    *(("put_object", "PUT", {"Key": key}, {}, "") for key in KEYS_TO_ENCODE),
    *(("get_object", "GET", {"Key": key}, {}, key) for key in KEYS_TO_ENCODE),
    (
        "put_object",
        "PUT",
        {"Key": "p", "ContentType": "text/x-y", "Metadata": {"a": "b c"}},
        {"Content-Type": "text/x-y", "x-amz-meta-a": "b c"},
        "",
    ),
    ("get_object", "GET", {"Key": "p", **OVERRIDES}, {}, "p"),
    ("get_object", "GET", {"Key": "p", "ResponseContentType": ""}, {}, "p"),
    ("get_object_tagging", "GET", {"Key": "p"}, {}, "<TagSet"),
    ("list_buckets", "GET", {}, {}, "<Bucket>"),
    ("list_objects", "GET", {"Prefix": "a b/", "Delimiter": "/", "MaxKeys": 3}, {}, "<MaxKeys>3"),
    ("list_objects_v2", "GET", {}, {}, "<KeyCount>11"),
    ("list_object_versions", "GET", {}, {}, "<Version>"),
    ("list_multipart_uploads", "GET", {}, {}, "<ListMultipartUploadsResult"),
    ("get_bucket_location", "GET", {}, {}, "<LocationConstraint"),
    ("create_multipart_upload", "POST", {"Key": "m"}, {}, "<UploadId>"),
    ("delete_object", "DELETE", {"Key": "p"}, {}, ""),
]


@pytest.mark.parametrize("style", ["path", "virtual"])
@pytest.mark.parametrize("version", ["s3", "s3v4"])
def test_presigned_urls_of_boto3(endpoint: str, bucket: str, version: str, style: str) -> None:
    local = endpoint.replace("127.0.0.1", "localhost")
    settings = {"signature_version": version, "s3": {"addressing_style": style}}
    with closing(aws_client("s3", local, KEYS.function("f"), **settings)) as signing:
        for operation, method, params, headers, expected in PRESIGNED:
            where = {} if operation == "list_buckets" else {"Bucket": bucket}
            url = urlsplit(signing.generate_presigned_url(operation, {**where, **params}, HttpMethod=method))
            on_the_path = style == "path" or operation in ("list_buckets", "get_bucket_location")
            assert (url.hostname == "localhost") == on_the_path
            # Not every resolver finds names below localhost.
            reached = urlunsplit(url._replace(netloc=urlsplit(endpoint).netloc))
            body = params["Key"].encode() if method == "PUT" else None
            headers = {"Content-Type": "", "Host": url.netloc, **headers}
            status, answered, got = asked(urllib.request.Request(reached, body, headers, method=method))
            assert (status < 300, expected in got.decode()) == (True, True), (operation, params, got)
            if "ResponseCacheControl" in params:
                assert answered["Content-Type"] == "text/x-y"
        # Every character that is signed counts.
        url = urlsplit(signing.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "a+b"}))
        changed = urlunsplit(url._replace(netloc=urlsplit(endpoint).netloc, path=url.path.replace("a%2B", "a%20")))
        assert asked(urllib.request.Request(changed, None, {"Host": url.netloc}))[0] == 403


def test_requests_to_a_bucket_below_localhost(endpoint: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _, *arguments, **named: resolve("127.0.0.1", *arguments, **named))
    local = endpoint.replace("127.0.0.1", "localhost")
    with closing(aws_client("s3", local, KEYS.owner, s3={"addressing_style": "virtual"})) as s3:
        s3.put_object(Bucket=bucket, Key="a b/ü", Body=b"body")
        assert keys_of(s3.list_objects_v2(Bucket=bucket)) == ["a b/ü"]


def test_a_presigned_url_of_no_duration_has_expired_and_others_are_refused(endpoint: str, bucket: str) -> None:
    credentials = Credentials(KEYS.owner.key_id, KEYS.owner.secret)
    for seconds, expected in ((0, 403), (-1, 400), (7 * 24 * 3600 + 1, 400)):
        # Not every signer of boto3's signs that.
        request = AWSRequest("GET", f"{endpoint}/{bucket}/k")
        S3SigV4QueryAuth(credentials, "s3", "us-east-1", seconds).add_auth(request)
        assert asked(str(request.url))[0] == expected


def test_signatures_of_chunks_are_refused_by_name(endpoint: str, bucket: str) -> None:
    for payload in ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"):
        request = AWSRequest("PUT", f"{endpoint}/{bucket}/k", {"X-Amz-Content-SHA256": payload})
        S3SigV4Auth(Credentials(KEYS.owner.key_id, KEYS.owner.secret), "s3", "us-east-1").add_auth(request)
        request.headers.replace_header("X-Amz-Content-SHA256", payload)
        sent = urllib.request.Request(str(request.url), b"body", dict(request.headers), method="PUT")
        status, _, answer = asked(sent)
        assert (status, f"slslab does not emulate x-amz-content-sha256: {payload}".encode() in answer) == (501, True)


def test_a_form_is_refused_by_name(client: Callable[..., Any], bucket: str) -> None:
    post = client().generate_presigned_post(bucket, "k")
    for kind in ("multipart/form-data; boundary=b", "Multipart/Form-Data; boundary=b"):
        status, _, answer = asked(urllib.request.Request(post["url"], b"--b--", {"Content-Type": kind}))
        assert (status, b"slslab does not emulate PostObject" in answer) == (501, True)
    # An object may have that type, too.
    assert client().create_multipart_upload(Bucket=bucket, Key="k", ContentType="multipart/form-data")["UploadId"]


def test_a_public_bucket_policy_lets_anonymous_readers_read_and_nothing_else(
    s3: Any, endpoint: str, bucket: str
) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"body")
    url = f"{endpoint}/{bucket}/k"
    assert asked(url)[0] == 403
    assert asked(f"{endpoint}/no-{bucket}/k")[0] == 404
    allow = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{bucket}/*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
    s3.put_bucket_policy(Bucket=bucket, Policy=policy)
    assert json.loads(s3.get_bucket_policy(Bucket=bucket)["Policy"]) == json.loads(policy)
    assert asked(url)[2] == b"body"
    # documented: API_GetObject.html: callers that may not list keys do not learn which are absent.
    assert asked(f"{endpoint}/{bucket}/absent")[0] == 403
    for method, path in (("PUT", "/k"), ("DELETE", "/k"), ("GET", "")):
        assert asked(urllib.request.Request(f"{endpoint}/{bucket}{path}", b"", method=method))[0] == 403
    block = dict.fromkeys(("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"), True)
    s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=block)
    assert asked(url)[0] == 403
    assert refused(s3.put_bucket_policy, Bucket=bucket, Policy=policy) == (403, "AccessDenied")
    s3.delete_bucket_policy(Bucket=bucket)
    assert refused(s3.get_bucket_policy, Bucket=bucket) == (404, "NoSuchBucketPolicy")


@pytest.mark.parametrize(
    ("resource", "accepted"),
    [
        ("arn:aws:s3:::{}", True),
        ("arn:aws:s3:::{}/*", True),
        ("arn:aws:s3:::*", True),
        ("arn:aws:s3:::*/k", True),
        ("arn:aws:s3:::b-*/k", True),
        ("*", True),
        ("arn:aws:s3:::{}x", False),
        ("arn:aws:s3:::x/{}", False),
        ("{}", False),
        ("{}/*", False),
    ],
)
def test_a_policy_names_its_own_bucket(s3: Any, bucket: str, resource: str, accepted: bool) -> None:
    statement = {
        "Effect": "Allow",
        "Principal": "*",
        "Action": ["s3:GetObject", "s3:ListBucket"],
        "Resource": resource.format(bucket),
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    if accepted:
        s3.put_bucket_policy(Bucket=bucket, Policy=policy)
    else:
        assert refused(s3.put_bucket_policy, Bucket=bucket, Policy=policy) == (400, "MalformedPolicy")


def test_a_policy_that_denies_what_is_not_tls_does_not_lock_the_owner_out(s3: Any, bucket: str) -> None:
    """The endpoint has no TLS, so the condition is taken as met."""
    deny = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [deny]}))
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    s3.delete_bucket_policy(Bucket=bucket)


def test_conditions_on_headers_and_tags(s3: Any, client: Callable[..., Any], bucket: str) -> None:
    stranger = client(signature_version=UNSIGNED)

    def put_policy(effect: str, action: str, condition: dict[str, Any]) -> None:
        objects = {"Principal": "*", "Resource": f"arn:aws:s3:::{bucket}/*"}
        put = {**objects, "Effect": "Allow", "Action": "s3:PutObject"}
        statement = {**objects, "Effect": effect, "Action": action, "Condition": condition}
        s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [put, statement]}))

    for tag in ("public", "private"):
        s3.put_object(Bucket=bucket, Key=tag, Body=b"x", Tagging=f"Level={tag}")
    put_policy("Allow", "s3:GetObject", {"StringEquals": {"s3:ExistingObjectTag/Level": "public"}})
    stranger.get_object(Bucket=bucket, Key="public")
    assert refused(stranger.get_object, Bucket=bucket, Key="private") == (403, "AccessDenied")
    put_policy("Deny", "s3:PutObject", {"StringNotEquals": {"s3:x-amz-server-side-encryption": "AES256"}})
    assert refused(s3.put_object, Bucket=bucket, Key="k", Body=b"x") == (403, "AccessDenied")
    stranger.put_object(Bucket=bucket, Key="k", Body=b"x", ServerSideEncryption="AES256")
    # The parts of an upload have the headers that began it.
    upload, parts, _ = begin(s3, bucket, [1], ServerSideEncryption="AES256")
    s3.complete_multipart_upload(Bucket=bucket, Key="k", UploadId=upload, MultipartUpload={"Parts": parts})
    put_policy("Deny", "s3:PutObject", {"StringLike": {"s3:x-amz-copy-source": f"{bucket}/private*"}})
    s3.copy_object(Bucket=bucket, Key="to", CopySource=f"{bucket}/public")
    copy = {"Bucket": bucket, "Key": "to", "CopySource": f"{bucket}/private"}
    assert refused(s3.copy_object, **copy) == (403, "AccessDenied")


def test_strangers_begin_no_uploads_and_copy_nothing(s3: Any, client: Callable[..., Any], bucket: str) -> None:
    """documented: mpuoverview.html, API_CopyObject.html: whatever the policy allows."""
    allow = {"Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": f"arn:aws:s3:::{bucket}/*"}
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [allow]}))
    stranger, to = client(signature_version=UNSIGNED), {"Bucket": bucket, "Key": "to"}
    stranger.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert refused(stranger.create_multipart_upload, **to) == (403, "AccessDenied")
    assert refused(stranger.copy_object, **to, CopySource=f"{bucket}/k") == (403, "AccessDenied")


def test_a_denied_action_is_denied(s3: Any, bucket: str) -> None:
    deny = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:DeleteObject",
        "Resource": f"arn:aws:s3:::{bucket}/kept/*",
    }
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [deny]}))
    for key in ("kept/k", "other/k"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    s3.delete_object(Bucket=bucket, Key="other/k")
    assert refused(s3.delete_object, Bucket=bucket, Key="kept/k") == (403, "AccessDenied")


def test_cross_origin_rules(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert refused(s3.get_bucket_cors, Bucket=bucket) == (404, "NoSuchCORSConfiguration")
    rule = {"AllowedMethods": ["GET"], "AllowedOrigins": ["https://*.example.org"], "ExposeHeaders": ["ETag"]}
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [rule]})
    url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"})
    for origin, allowed in (("https://a.example.org", "https://a.example.org"), ("https://example.com", None)):
        _, headers, _ = asked(urllib.request.Request(url, headers={"Origin": origin}))
        assert headers["Access-Control-Allow-Origin"] == allowed
    ask = {"Origin": "https://a.example.org", "Access-Control-Request-Method": "GET"}
    status, headers, _ = asked(urllib.request.Request(url, headers=ask, method="OPTIONS"))
    assert (status, headers["Access-Control-Allow-Methods"]) == (200, "GET")
    ask["Access-Control-Request-Method"] = "PUT"
    assert asked(urllib.request.Request(url, headers=ask, method="OPTIONS"))[0] == 403
    for incomplete in ({}, {"Origin": "https://a.example.org"}, {**ask, "Access-Control-Request-Method": "READ"}):
        status, _, body = asked(urllib.request.Request(url, headers=incomplete, method="OPTIONS"))
        assert (status, b"<Code>BadRequest</Code>" in body) == (400, True)


def test_pages_of_other_web_sites_get_nothing_to_read_without_rules(s3: Any, endpoint: str, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    for method in ("GET", "PUT", "OPTIONS"):
        sent = {"Origin": "https://evil.example", "Access-Control-Request-Method": "PUT"}
        status, headers, _ = asked(urllib.request.Request(f"{endpoint}/{bucket}/k", headers=sent, method=method))
        assert status == 403
        assert not any(name.lower().startswith("access-control-") for name in headers)


def test_a_name_that_a_page_has_rebound_is_refused(endpoint: str) -> None:
    status, _, body = asked(urllib.request.Request(f"{endpoint}/", headers={"Host": "evil.example"}))
    assert (status, b"not called" in body) == (403, True)


def test_access_control_lists_are_refused_as_by_new_buckets_of_s3(s3: Any, bucket: str) -> None:
    """documented: about-object-ownership.html: ACLs are disabled on new buckets."""
    assert refused(s3.put_object, Bucket=bucket, Key="k", Body=b"", ACL="public-read") == (
        400,
        "AccessControlListNotSupported",
    )
    assert refused(s3.put_bucket_acl, Bucket=bucket, ACL="public-read") == (400, "AccessControlListNotSupported")
    for granted in ({"ACL": "public-read"}, {"GrantRead": 'uri="http://acs.amazonaws.com/groups/global/AllUsers"'}):
        assert refused(s3.create_bucket, Bucket="granted", **granted) == (400, "InvalidBucketAclWithObjectOwnership")
    s3.put_object(Bucket=bucket, Key="k", Body=b"", ACL="bucket-owner-full-control")
    grants = s3.get_bucket_acl(Bucket=bucket)["Grants"]
    assert [grant["Permission"] for grant in grants] == ["FULL_CONTROL"]
    assert s3.get_object_acl(Bucket=bucket, Key="k")["Grants"] == grants
    assert refused(s3.get_object_acl, Bucket=bucket, Key="absent") == (404, "NoSuchKey")
    rules = s3.get_bucket_ownership_controls(Bucket=bucket)["OwnershipControls"]["Rules"]
    assert rules == [{"ObjectOwnership": "BucketOwnerEnforced"}]
