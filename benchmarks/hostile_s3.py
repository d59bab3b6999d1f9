"""The hostile inputs of `hostile.py` for the embedded S3 server."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from itertools import chain, count
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from hostile_clients import KB, MB, Case, Target, at_once, endless, http, raw, silent
from slslab.aws.clients import aws_client, signed_headers

UNSIGNED = {"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
BUCKET, VERSIONED = "hostile", "versioned"
ARN = f"arn:aws:s3:::{BUCKET}"


def head(target: Target, method: str = "PUT", path: str = f"/{BUCKET}/raw", **more: str) -> bytes:
    """Return the head of a signed request with these headers."""
    headers = signed_headers(target.pair, method, target.url + path, b"", {**UNSIGNED, **more}, "s3")
    lines = [f"{method} {path} HTTP/1.1", f"Host: {urlsplit(target.url).netloc}"]
    return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers.items())]).encode() + b"\r\n\r\n"


def sent(pieces: Callable[[], Iterable[bytes]], **more: str) -> Callable[[Target], str]:
    """Return a function that sends a signed head with these headers, and then pieces of a body."""
    return lambda target: raw(target, chain([head(target, **more)], pieces()))


def asked(method: str, path: str, body: str | bytes = b"", **more: str) -> Callable[[Target], str]:
    """Return a function that makes a signed request."""
    data = body.encode() if isinstance(body, str) else body
    return lambda target: http(target, method, path, data, "s3", 100, **{**UNSIGNED, **more})


def stranger(method: str, path: str, *pieces: bytes, **more: str) -> Callable[[Target], str]:
    """Return a function that makes a request without our signature, with these headers as they are."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *(f"{name}: {value}" for name, value in more.items())]
    start = "\r\n".join([*lines, f"Content-Length: {sum(map(len, pieces))}"]).encode() + b"\r\n\r\n"
    return lambda target: raw(target, [start, *pieces])


def client(work: Callable[[Any], object]) -> Callable[[Target], str]:
    """Return a function that calls a boto3 client."""

    def send(target: Target) -> str:
        with closing(aws_client("s3", target.url, target.pair)) as s3:
            try:
                return str(work(s3))[:100]
            except ClientError as error:
                return str(error)

    return send


def several(*calls: Callable[[Target], str]) -> Callable[[Target], str]:
    """Return a function that makes calls in order and returns the last answer."""
    return lambda target: [send(target) for send in calls][-1]


def delete(document: str | bytes, bucket: str = BUCKET) -> Callable[[Target], str]:
    """Return a function that deletes a document's objects."""
    return asked("POST", f"/{bucket}?delete", document)


def prepare_s3(target: Target) -> None:
    """Create the buckets, with objects of a byte and of 1 GB; 100 MB of the large one are on the disk."""
    with closing(aws_client("s3", target.url, target.pair)) as s3:
        for bucket in (BUCKET, VERSIONED):
            s3.create_bucket(Bucket=bucket)
        s3.put_bucket_versioning(Bucket=VERSIONED, VersioningConfiguration={"Status": "Enabled"})
        s3.put_object(Bucket=BUCKET, Key="small", Body=b"a")
        s3.put_object(Bucket=BUCKET, Key="large", Body=bytes(100 * MB))
        upload = {"Bucket": BUCKET, "Key": "huge"}
        upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
        parts = []
        for number in range(1, 11):
            copied = s3.upload_part_copy(**upload, PartNumber=number, CopySource=f"{BUCKET}/large")
            parts.append({"PartNumber": number, "ETag": copied["CopyPartResult"]["ETag"]})
        s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})


def emptied(s3: Any) -> str:
    """Delete all versions in the bucket of versions."""
    deleted = 0
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=VERSIONED):
        entries = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        objects = [{"Key": entry["Key"], "VersionId": entry["VersionId"]} for entry in entries]
        if objects:
            s3.delete_objects(Bucket=VERSIONED, Delete={"Objects": objects, "Quiet": True})
        deleted += len(objects)
    return f"{deleted} versions deleted"


def marked(keys: Callable[[int], str], number: int, then: Callable[[Any], object]) -> Callable[[Target], str]:
    """Return a function that puts this many delete markers, calls `then` and deletes them."""

    def work(s3: Any) -> str:
        for start in range(0, number, 1000):
            objects = [{"Key": keys(n)} for n in range(start, start + 1000)]
            s3.delete_objects(Bucket=VERSIONED, Delete={"Objects": objects, "Quiet": True})
        began = time.monotonic()
        then(s3)
        took = time.monotonic() - began
        return f"{took:.1f} s; {emptied(s3)}"

    return client(work)


def absent_versions(s3: Any) -> None:
    """Delete a thousand versions that don't exist."""
    objects = [{"Key": "k", "VersionId": str(number)} for number in range(1000)]
    s3.delete_objects(Bucket=VERSIONED, Delete={"Objects": objects, "Quiet": True})


def listed(s3: Any) -> None:
    """List the bucket of versions in each way, 20 times."""
    for _ in range(20):
        s3.list_objects_v2(Bucket=VERSIONED, Delimiter="/", Prefix="p")
        s3.list_object_versions(Bucket=VERSIONED, Delimiter="7")


def policed(values: Any, work: Callable[[Any], object], **statement: Any) -> Callable[[Target], str]:
    """Return a function that puts a policy with these values of StringLike, calls `work` and deletes the policy."""
    condition = {"Condition": {"StringLike": {"s3:prefix": values}}} if values else {}
    deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": [ARN, f"{ARN}/*"]}
    document = json.dumps({"Statement": [{**deny, **condition, **statement}]})

    def done(s3: Any) -> object:
        s3.put_bucket_policy(Bucket=BUCKET, Policy=document)
        try:
            return work(s3)
        finally:
            s3.delete_bucket_policy(Bucket=BUCKET)

    return client(done)


def thousand(s3: Any) -> object:
    """Delete a thousand keys of 1,000 letters."""
    objects = [{"Key": f"{'a' * 1000}{number:04}"} for number in range(1000)]
    return s3.delete_objects(Bucket=BUCKET, Delete={"Objects": objects, "Quiet": True}).get("Errors", [""])[0]


def copies(s3: Any) -> object:
    """Copy an object to itself a thousand times."""
    for number in range(1000):
        source = f"{BUCKET}/{'loop' if number else 'small'}"
        more = {"MetadataDirective": "REPLACE", "Metadata": {"n": str(number)}}
        s3.copy_object(Bucket=BUCKET, Key="loop", CopySource=source, **more)
    return s3.head_object(Bucket=BUCKET, Key="loop")["ContentLength"]


def large_copies(target: Target) -> str:
    """Copy 1 GB as a part 40 times at once, and complete the upload."""
    with closing(aws_client("s3", target.url, target.pair)) as s3:
        upload = s3.create_multipart_upload(Bucket=BUCKET, Key="copy")["UploadId"]
        path, source = f"/{BUCKET}/copy?partNumber=1&uploadId={upload}", {"X-Amz-Copy-Source": f"{BUCKET}/huge"}
        answer = at_once(asked("PUT", path, **source), 40)(target)
        s3.abort_multipart_upload(Bucket=BUCKET, Key="copy", UploadId=upload)
        return answer


def uploads(s3: Any) -> object:
    """Begin 5,000 uploads of a bucket, delete a thousand keys, and delete the bucket."""
    s3.create_bucket(Bucket="uploads")
    for number in range(5_000):
        s3.create_multipart_upload(Bucket="uploads", Key=f"k{number}")
    objects = [{"Key": str(number)} for number in range(1000)]
    s3.delete_objects(Bucket="uploads", Delete={"Objects": objects, "Quiet": True})
    s3.list_multipart_uploads(Bucket="uploads", Delimiter="9")
    return s3.delete_bucket(Bucket="uploads")["ResponseMetadata"]["HTTPStatusCode"]


def preflight(s3: Any) -> object:
    """Put rules with many headers; the last rule allows them."""
    names = [*(f"x{number}" for number in range(4_000)), "a*"]
    rule = {"AllowedMethods": ["GET"], "AllowedOrigins": ["*"], "AllowedHeaders": names}
    return s3.put_bucket_cors(Bucket=BUCKET, CORSConfiguration={"CORSRules": [rule]})


def repeated(number: int, header: str, value: str) -> Callable[[Target], str]:
    """Return a function that repeats requests with a header. `{}` in it becomes a new text of 400 KB each time, and KEY
    the owner's key."""

    def send(target: Target) -> str:
        with closing(HTTPConnection(urlsplit(target.url).netloc, timeout=35)) as connection:
            for place in range(number):
                stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
                text = value.replace("KEY", f"{target.pair.key_id}/{stamp[:8]}").format(f"{place}{'a' * 400 * KB}")
                connection.putrequest("GET", "/", skip_host=header == "Host")
                for name, given in {header: text, "X-Amz-Date": stamp, **UNSIGNED}.items():
                    connection.putheader(name, given)
                connection.endheaders()
                answer = connection.getresponse()
                found = answer.read()
            return f"{answer.status} {found[:100]!r}"

    return send


def as_http(piece: bytes) -> bytes:
    """Return an HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(piece), piece)


def chunked(pieces: Callable[[], Iterable[bytes]], length: int, signed: bool = False) -> Callable[[Target], str]:
    """Return a function that puts an object with aws-chunked and this declared length."""
    kind = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" if signed else "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
    named = {"Content-SHA256": kind, "Decoded-Content-Length": str(length), "Trailer": "x-amz-checksum-crc32"}
    more = {f"X-Amz-{name}": value for name, value in named.items()}
    return sent(lambda: map(as_http, pieces()), **more, **{"Transfer-Encoding": "chunked"})


def trailers() -> Iterator[bytes]:
    """Yield the last chunk of aws-chunked and endless trailers."""
    yield b"0\r\n"
    for number, _ in zip(count(), endless(b""), strict=False):
        yield b"".join(b"a%d-%d:b\r\n" % (number, n) for n in range(10_000))


def documents(*several: tuple[str, str]) -> list[Case]:
    """Return cases of documents that delete objects, by name."""
    return [Case(name, delete(f"<Delete>{inner}</Delete>")) for name, inner in several]


def gets(name: str, header: str, *values: str) -> list[Case]:
    """Return cases of reads with these values of a header."""
    return [Case(f"{name} of {value[:20]}", asked("GET", f"/{BUCKET}/large", **{header: value})) for value in values]


ZEROS = "0" * 64
SIGNED = b";chunk-signature=" + ZEROS.encode() + b"\r\n"
SCOPE = "AWS4-HMAC-SHA256 Credential=KEY/{}/s3/aws4_request, SignedHeaders=host, Signature=" + ZEROS
QUERY = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=a/20260101/r/s3/aws4_request&X-Amz-Date=20260101T000000Z"
ENTITIES = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
BOMB = f'<!DOCTYPE D [<!ENTITY a0 "aaaaaaaaaa">{ENTITIES}]><Delete><Object><Key>&a9;</Key></Object></Delete>'
WIDE = f'<!DOCTYPE D [<!ENTITY a "{"a" * 100_000}">]><Delete><Object><Key>{"&a;" * 1_900}</Key></Object></Delete>'
OBJECT = "<Object><Key>a</Key></Object>"
PARTS, COMPLETE = "<CompleteMultipartUpload>{}</CompleteMultipartUpload>", f"/{BUCKET}/k?uploadId=a"
TAGS = f"<Tagging><TagSet>{'<Tag><Key>a</Key><Value/></Tag>' * 60_000}</TagSet></Tagging>"
LONG_KEY = "<Delete><Object><Key>{}" + "k" * 1_900_000 + "</Key></Object></Delete>"
STARS, QUESTIONS = "*a" * 500 + "*b", f"*{'?' * 480}b"
ASKED = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": ",".join(["a"] * 2_500)}
S3 = [
    # Heads
    Case("a key of 10 MB", stranger("GET", f"/{BUCKET}/{'k' * 10 * MB}")),
    Case("a key of 60 KB", asked("PUT", f"/{BUCKET}/{'k' * 60 * KB}")),
    Case("metadata of 400 KB", asked("PUT", f"/{BUCKET}/k", **{"X-Amz-Meta-A": "a" * 400 * KB})),
    Case("90,000 headers of one name", lambda t: raw(t, [HEAD, b"X:a\r\n" * 90_000, b"\r\n"])),
    Case("2,000 regions of 400 KB", repeated(2_000, "Authorization", SCOPE)),
    Case("2,000 hosts of 400 KB", repeated(2_000, "Host", "{}")),
    Case(
        "a presigned URL for 10^20 s",
        stranger("GET", f"/?{QUERY}&X-Amz-SignedHeaders=host&X-Amz-Expires=0000000{10**20}"),
    ),
    *gets("a range", "Range", "bytes=0-999999999999999999", "bytes=" + "0-0," * 1_500, "bytes=-0"),
    *gets(
        "a date", "If-Modified-Since", "Mon, 01 Jan 99999999999 00:00:00 GMT", "0001-01-01T00:00:00+23:59", ":" * 7_000
    ),
    Case("a content type with line ends", asked("GET", f"/{BUCKET}/small?response-content-type=a%0D%0ASet-Cookie")),
    # Documents
    Case("entities in each other", delete(BOMB)),
    Case("an entity of 100 KB 1,900 times, in UTF-16", delete(f'<?xml version="1.0"?>{WIDE}'.encode("utf-16"))),
    *documents(
        ("elements 250,000 deep", "<a>" * 250_000 + "</a>" * 250_000),
        ("a namespace of 1 MB and 200,000 elements", f'<a xmlns="{"a" * MB}">{"<b/>" * 200_000}</a>'),
        ("a namespace of 1 MB and 60,000 elements", f'<a xmlns="{"a" * MB}">{"<b/>" * 60_000}</a>'),
        ("10^6 keys to delete", OBJECT * 1_000_000),
    ),
    Case("35,000 keys to delete, 16 times at once", at_once(delete(f"<Delete>{OBJECT * 35_000}</Delete>"), 16)),
    Case("10^6 parts", asked("POST", COMPLETE, PARTS.format("<Part/>" * 1_000_000))),
    Case("140,000 parts, 16 times at once", at_once(asked("POST", COMPLETE, PARTS.format("<Part/>" * 140_000)), 16)),
    Case("60,000 tags", asked("PUT", f"/{BUCKET}/small?tagging", TAGS)),
    Case(
        "50 keys of 1.9 MB to delete",
        several(*[delete(LONG_KEY.format(n), VERSIONED) for n in range(50)], client(emptied)),
    ),
    # Lists and versions
    Case("20,000 delete markers, listed", marked("p{}/q".format, 20_000, listed), 60),
    Case("50,000 delete markers of a key", marked(lambda _: "k", 50_000, absent_versions), 60),
    Case("5,000 uploads", client(uploads), 60),
    # Policies and rules
    Case("a policy 3,000 deep", asked("PUT", f"/{BUCKET}?policy", '{"a":' * 3_000 + "1" + "}" * 3_000)),
    Case("a policy of 10^5 statements", asked("PUT", f"/{BUCKET}?policy", json.dumps({"Statement": [{}] * 100_000}))),
    Case(
        "a policy of half a character",
        asked("PUT", f"/{BUCKET}?policy", '{"Statement": {"Effect": "Deny", "\\ud800": 1}}'),
    ),
    Case(
        "stars against a prefix",
        policed([STARS] * 19, lambda s3: s3.list_objects_v2(Bucket=BUCKET, Prefix="a" * 7_000)),
    ),
    Case(
        "19 KB against a prefix",
        policed(["*" + "a" * 19_000 + "b"], lambda s3: s3.list_objects_v2(Bucket=BUCKET, Prefix="a" * 400_000)),
    ),
    Case("stars against 1,000 keys", policed([], thousand, Resource=[f"{ARN}/{STARS}"] * 18)),
    Case("question marks against 1,000 keys", policed([], thousand, Resource=[f"{ARN}/{QUESTIONS}"] * 36)),
    Case("3,200 actions against 1,000 keys", policed([], thousand, Action=["*a"] * 3_200)),
    Case(
        "a preflight of 2,500 headers",
        several(client(preflight), stranger("OPTIONS", f"/{BUCKET}/k", Origin="http://a", **ASKED)),
    ),
    # Bodies
    Case("a body of less than it says", sent(lambda: [b"a" * MB], **{"Content-Length": str(100 * MB)})),
    Case("a body of more than it says", sent(lambda: [b"a" * MB], **{"Content-Length": "10"})),
    Case("500 bodies that stop", lambda t: silent(500, head(t, **{"Content-Length": "100000"}) + b"a")(t)),
    Case("a signed chunk of 4 GB", chunked(lambda: chain([b"ffffffff" + SIGNED], endless(b"a" * MB)), 2**32, True)),
    Case(
        "wrong signatures of chunks", chunked(lambda: [b"2000" + SIGNED + b"a" * 0x2000 + b"\r\n"] * 1_000, 2**23, True)
    ),
    Case("chunks of a byte, 16 times at once", at_once(chunked(lambda: [b"1\r\na\r\n" * 40_000] * 20, 800_000), 16)),
    Case("trailers without end", chunked(trailers, 0)),
    Case("more than aws-chunked says, without end", chunked(lambda: endless(b"100000\r\n" + b"a" * MB + b"\r\n"), 10)),
    Case("100 MB asked for without end, unread", lambda t: raw(t, endless(head(t, "GET", f"/{BUCKET}/large") * 10))),
    # Copies
    Case("an object copied on itself 1,000 times", client(copies)),
    Case("40 copies of 1 GB at once", large_copies, 60),
]


def small_s3(target: Target) -> Callable[[], object]:
    """Return a function that puts 300 KB, which other threads sum and write, gets them, lists and deletes."""
    s3, place = aws_client("s3", target.url, target.pair), {"Bucket": "small", "Key": "k"}
    s3.create_bucket(Bucket="small")

    def ask() -> None:
        s3.put_object(**place, Body=bytes(300 * KB))
        assert s3.list_objects_v2(Bucket="small")["KeyCount"] == 1
        s3.get_object(**place)["Body"].read()
        s3.delete_object(**place)

    return ask
