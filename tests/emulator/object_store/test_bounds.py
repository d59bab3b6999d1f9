"""What hostile clients send takes little time and memory, and is answered by S3's errors."""

import asyncio
import hashlib
import socket
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError

from slslab.aws.clients import aws_client
from slslab.aws.errors import ServiceError
from slslab.aws.keys import Keyring
from slslab.object_store import checksums, cors
from slslab.object_store.bodies import MOST_TRAILERS, Chunks, Incoming
from slslab.object_store.model import body_members, operations, parse_date
from slslab.object_store.signing import CHUNKED, UNSIGNED
from slslab.object_store.storage import NULL, Bucket, Store, Upload, Version, now
from slslab.stack.object_store import EmbeddedObjectStore

KEYS = Keyring()
MB = 1024 * 1024


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with (
        EmbeddedObjectStore(tmp_path_factory.mktemp("store") / "data", KEYS, {}) as store,
        closing(aws_client("s3", store.endpoint, KEYS.owner)) as client,
    ):
        client.create_bucket(Bucket="bucket")
        yield client


def refusal(call: Callable[..., Any], **arguments: Any) -> str:
    with pytest.raises(ClientError) as raised:
        call(**arguments)
    return str(raised.value.response["Error"]["Code"])


def code(call: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(ServiceError) as raised:
        call(*arguments)
    return raised.value.error_type


def answered(s3: Any, request: bytes) -> bytes:
    """Return what a request is answered that asks to close its connection."""
    parts = urlsplit(s3.meta.endpoint_url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as stream:
        stream.sendall(request)
        return stream.makefile("rb").read()


# Heads


@pytest.mark.server
def test_a_head_has_8_kb_at_most(s3: Any) -> None:
    """recorded: RequestHeaderSectionTooLarge, MaxSizeAllowed 8192."""
    began = time.monotonic()
    for line in (b"GET /bucket/k HTTP/1.1\r\n", b"GET /bucket/k?%s HTTP/1.1\r\n" % (b"a&" * 5000)):
        more = b"X:a\r\n" * 50_000 if b"?" not in line else b""
        answer = answered(s3, line + b"Host: localhost\r\nConnection: close\r\n" + more + b"\r\n")
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"<MaxSizeAllowed>8192</MaxSizeAllowed>" in answer
    assert time.monotonic() - began < 5


@pytest.mark.server
def test_keys_that_no_object_can_have_are_refused_wherever_they_are(s3: Any) -> None:
    long = "k" * 1025
    answer = s3.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": long}, {"Key": "k"}]})
    assert [entry["Code"] for entry in answer["Errors"]] == ["KeyTooLongError"]
    assert [entry["Key"] for entry in answer["Deleted"]] == ["k"]
    assert refusal(s3.copy_object, Bucket="bucket", Key="k", CopySource=f"bucket/{long}") == "KeyTooLongError"


@pytest.mark.server
def test_an_answer_has_no_line_ends_of_its_clients(s3: Any) -> None:
    s3.put_object(Bucket="bucket", Key="k", Body=b"x")
    answer = s3.get_object(Bucket="bucket", Key="k", ResponseContentType="a\r\nSet-Cookie: b")
    assert answer["ContentType"] == "a  Set-Cookie: b"


@pytest.mark.server
def test_text_that_is_no_unicode_is_refused(s3: Any) -> None:
    policy = '{"Statement": {"Effect": "Deny", "\\ud800": 1}}'
    assert refusal(s3.put_bucket_policy, Bucket="bucket", Policy=policy) == "NotImplemented"


@pytest.mark.parametrize(
    "text", ["Mon, 01 Jan 99999999999 00:00:00 GMT", "Mon, 1 Jan 2026 00:00:00 +99999999999", ":" * 8000, ""]
)
def test_dates_that_are_none_are_none(text: str) -> None:
    assert parse_date(text) is None


# Documents


@pytest.mark.parametrize(
    "document",
    [
        b'<!DOCTYPE D [<!ENTITY a "k">]><Delete><Object><Key>&a;</Key></Object></Delete>',
        '<?xml version="1.0"?><!DOCTYPE D [<!ENTITY a "k">]><Delete><Object><Key>&a;</Key></Object></Delete>'.encode(
            "utf-16"
        ),
        b"<Delete>" + b"<Object><Key>a</Key></Object>" * 60_000 + b"</Delete>",
        b"<a>" * 20_000 + b"</a>" * 20_000,
        b'<Delete xmlns="' + b"a" * MB + b'">' + b"<b/>" * 90_000 + b"</Delete>",
    ],
    ids=["an entity", "an entity in UTF-16", "too many elements", "deep elements", "a long namespace"],
)
def test_documents_are_refused_at_once(document: bytes) -> None:
    operation, began = operations()[0]["POST", "bucket", "delete"], time.process_time()
    assert code(body_members, operation, document) == "MalformedXML"
    assert time.process_time() - began < 2


def test_a_document_may_name_its_namespace() -> None:
    operation = operations()[0]["POST", "bucket", "delete"]
    for document in (
        b'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Object><Key><![CDATA[<k>]]></Key></Object></Delete>',
        b'<s:Delete xmlns:s="a"><s:Object><s:Key>&lt;k&gt;</s:Key></s:Object></s:Delete>',
    ):
        assert body_members(operation, document) == {"Delete": {"Objects": [{"Key": "<k>"}]}}


# Lists and versions


@pytest.mark.server
def test_versions_that_are_deleted_page_by_page_are_all_deleted(s3: Any) -> None:
    s3.create_bucket(Bucket="versions")
    s3.put_object(Bucket="versions", Key="k", Body=b"")
    s3.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
    for _ in range(5):
        s3.put_object(Bucket="versions", Key="k", Body=b"")
    pages = s3.get_paginator("list_object_versions").paginate(Bucket="versions", PaginationConfig={"PageSize": 2})
    for page in pages:
        for version in page["Versions"]:
            s3.delete_object(Bucket="versions", Key="k", VersionId=version["VersionId"])
    s3.delete_bucket(Bucket="versions")


def test_many_versions_of_a_key_take_no_time() -> None:
    bucket = Bucket("b", "us-east-1")
    bucket.versioning = "Enabled"
    for _ in range(50_000):
        bucket.put(Version("k", "", now()))
    began = time.process_time()
    for number in range(2_000):
        assert bucket.find("k", str(number)) is None
        assert bucket.remove("k", NULL) is None
    while (latest := bucket.latest("k")) is not None:
        assert bucket.remove("k", latest.id) is latest
    assert time.process_time() - began < 2
    assert not bucket.keys


def test_a_write_overtakes_the_uploads_of_its_key_alone() -> None:
    bucket = Bucket("b", "us-east-1")
    uploads = [Upload(str(number), f"k{number}", now(), {}, {}, "", "", {}) for number in range(20_000)]
    for upload in uploads:
        bucket.uploads[upload.key] = {upload.id: upload}
    began = time.process_time()
    for _ in range(2_000):
        bucket.put(Version("k1", "", now()))
    assert time.process_time() - began < 1
    assert [upload.key for upload in uploads if upload.overtaken] == ["k1"]
    for upload in uploads:
        bucket.end(upload)
    assert bucket.uploads == {}


# Rules


def test_rules_have_bounds() -> None:
    rule = {"AllowedMethods": ["GET"], "AllowedOrigins": ["*"], "AllowedHeaders": [f"x{n}" for n in range(2_000)]}
    assert code(cors.check, [rule]) == "MalformedXML"
    rule["AllowedHeaders"] = ["*"]
    cors.check([rule] * 100)
    assert cors.headers([rule], "http://a", "GET", ["b"] * 100) is not None
    assert cors.headers([rule], "http://a", "GET", ["b"] * 101) is None


# Bodies


def decoded(*pieces: bytes) -> int:
    """Return the size of a body that arrives in these pieces."""

    async def arriving() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def size() -> int:
        return sum([len(part) async for part in Chunks(arriving(), {}).parts()])

    return asyncio.run(size())


def test_small_chunks_are_refused() -> None:
    """recorded: InvalidChunkSizeError with the size of the chunk before."""
    assert code(decoded, b"1fff\r\n" + b"a" * 8191 + b"\r\n1\r\na\r\n") == "InvalidChunkSizeError"
    assert decoded(b"2000\r\n" + b"a" * 8192 + b"\r\n1\r\na\r\n0\r\n\r\n") == 8193


def test_trailers_have_an_end() -> None:
    head = b"0\r\n" + b"".join(b"a%d:b\r\n" % number for number in range(MOST_TRAILERS))
    assert decoded(head, b"\r\n") == 0
    assert code(decoded, head, b"b:c\r\nc:d\r\n") == "IncompleteBody"


def test_a_chunk_of_any_size_is_not_held() -> None:
    data = bytes(MB)
    tracemalloc.start()
    assert code(decoded, b"ffffffff\r\n", *[data] * 64) == "IncompleteBody"
    assert tracemalloc.get_traced_memory()[1] < 10 * MB
    tracemalloc.stop()


def endless(piece: bytes, limit: int) -> Callable[[], Any]:
    """Return what receives a piece again and again, AssertionError beyond a limit."""
    left = [limit]

    async def receive() -> Any:
        left[0] -= 1
        assert left[0], "it reads on"
        return {"type": "http.request", "body": piece, "more_body": True}

    return receive


@pytest.mark.parametrize("payload", [UNSIGNED, CHUNKED])
def test_a_body_that_is_longer_than_it_says_is_read_no_further(tmp_path: Path, payload: str) -> None:
    piece = b"2000\r\n" + b"a" * 8192 + b"\r\n" if payload == CHUNKED else b"a" * 8192
    incoming = Incoming(endless(piece, 10), 8193, payload)
    assert code(asyncio.run, incoming.store(Store(tmp_path), None, "", {})) == "IncompleteBody"
    assert list(tmp_path.iterdir()) == []


def test_others_come_between_the_parts_of_a_sum() -> None:
    counted = 0

    async def count() -> None:
        nonlocal counted
        while True:
            await asyncio.sleep(0)
            counted += 1

    async def add() -> str:
        counting = asyncio.create_task(count())
        total = hashlib.sha256()
        await checksums.add(iter([b""] * 1000), total.update)
        counting.cancel()
        return total.hexdigest()

    assert asyncio.run(add()) == hashlib.sha256().hexdigest()
    assert counted >= 500
