"""Implement the operations on multipart uploads. The finished object shares the bytes of its parts."""

import hashlib
import re
import secrets
from itertools import pairwise
from typing import Any
from urllib.parse import quote

from slslab.aws.arns import ACCOUNT
from slslab.object_store import checksums
from slslab.object_store.bodies import Sums
from slslab.object_store.buckets import listing
from slslab.object_store.call import CHECKSUMS, CONDITIONS, Answer, Call, check_write
from slslab.object_store.errors import failure
from slslab.object_store.objects import (
    MOST_PARTS,
    copy_source,
    given_tags,
    part_number,
    parts_page,
    written_version,
)
from slslab.object_store.signing import UNSIGNED
from slslab.object_store.storage import NULL, Bucket, Part, Upload, Version, cut, now, read, whole

# documented: qfacts.html, "Amazon S3 multipart upload limits".
LEAST_PART, LARGEST_PART = 5 * 1024**2, 5 * 1024**3
COPY_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{1,18})")
UPLOADED = {"Initiator": {"ID": ACCOUNT}, "Owner": {"ID": ACCOUNT}, "StorageClass": "STANDARD"}


async def create_multipart_upload(call: Call) -> Answer:
    """Begin an upload."""
    if call.principal is None:
        # documented: mpuoverview.html.
        raise failure("AccessDenied", "Anonymous users cannot initiate multipart uploads. Please authenticate.")
    bucket = call.bucket()
    algorithm, kind = call.members.get("ChecksumAlgorithm", ""), call.members.get("ChecksumType", "")
    if algorithm:
        checksums.new(algorithm)
        kinds = checksums.KINDS[algorithm]
        if (kind or kinds[0]) not in kinds:
            raise failure("InvalidRequest", f"The {kind} checksum type cannot be used with the {algorithm} algorithm.")
        kind = kind or kinds[0]
    elif kind:
        raise failure(
            "InvalidRequest", "The x-amz-checksum-type header can only be used with x-amz-checksum-algorithm."
        )
    tags = given_tags(call)
    context = call.context(bucket, call.key)
    upload = Upload(secrets.token_urlsafe(48), call.key, now(), call.settings(), tags, algorithm, kind, context)
    bucket.uploads.setdefault(call.key, {})[upload.id] = upload
    return Answer({"Bucket": bucket.name, "Key": call.key, "UploadId": upload.id, **upload.checksum})


async def upload_part(call: Call) -> Answer:
    """Store a part of an upload; it replaces an earlier part with the same number."""
    upload, number, sent = _upload(call), part_number(call), call.sent_checksum()
    # recorded: a part needs the checksum of its upload, unless S3 computes the checksum of the whole object.
    if upload.algorithm and (sent or upload.checksum_type == checksums.COMPOSITE):
        _check_algorithm(upload, sent)
    stored = await call.store_body(upload.algorithm)
    part = Part(number, stored.md5, stored.piece.size, whole(stored.piece), stored.checksums, now())
    if part.size > LARGEST_PART:
        raise failure("EntityTooLarge")
    # The upload may have ended meanwhile.
    _upload(call).parts[number] = part
    return Answer({"ETag": f'"{part.etag}"', **part.checksums})


async def upload_part_copy(call: Call) -> Answer:
    """Copy an object, or a range of it, as a part of an upload."""
    upload, number, source = _upload(call), part_number(call), copy_source(call)
    body, size = source.body, source.size
    if (text := call.members.get("CopySourceRange")) is not None:
        found = COPY_RANGE.fullmatch(text)
        if found is None or int(found[2]) < int(found[1]):
            raise failure(
                "InvalidArgument",
                "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the "
                "zero-based offsets of the first and last bytes to copy",
            )
        start, end = int(found[1]), int(found[2])
        if start >= source.size:
            raise failure("InvalidRequest", "The specified copy range is invalid for the source object size")
        if end >= source.size:
            raise failure("InvalidArgument", f"Range specified is not valid for source object of size: {source.size}")
        size = end + 1 - start
        body = cut(body, start, size)
    if size > LARGEST_PART:
        raise failure("EntityTooLarge")
    sums = Sums(UNSIGNED, upload.algorithm)
    await checksums.add(read(body), sums.update)
    part = Part(number, sums.md5.hexdigest(), size, body, sums.check(None, {}), now())
    _upload(call).parts[number] = part
    result = {"ETag": f'"{part.etag}"', "LastModified": part.modified, **part.checksums}
    output: dict[str, Any] = {"CopyPartResult": result}
    return Answer(output | ({"CopySourceVersionId": source.id} if source.id != NULL else {}))


async def complete_multipart_upload(call: Call) -> Answer:
    """Make an object from the parts that the request names. A repeated request gets the same answer."""
    bucket = call.bucket()
    if (version := bucket.completed(call.key, call.members.get("UploadId", ""))) is not None:
        return _completed(call, version)
    upload = _upload(call)
    _check_conditions(call, bucket, upload)
    parts = _chosen(upload, call.members.get("MultipartUpload", {}).get("Parts", []))
    size = sum(part.size for part in parts)
    if call.members.get("MpuObjectSize", size) != size:
        raise failure("InvalidRequest", "The provided x-amz-mp-object-size does not match the size of the object.")
    if call.members.get("ChecksumType", upload.checksum_type) != upload.checksum_type:
        raise failure("InvalidRequest", "The checksum type differs from the upload's.")
    body = tuple(piece for part in parts for piece in part.body)
    sums: dict[str, str] = {}
    if upload.algorithm:
        name = f"Checksum{upload.algorithm}"
        if upload.checksum_type == checksums.COMPOSITE:
            value = checksums.composite(upload.algorithm, (part.checksums[name] for part in parts))
        else:
            total = checksums.new(upload.algorithm)
            await checksums.add(read(body), total.update)
            value = total.b64digest()
        _check_checksum(call, upload, value)
        sums = {name: value, "ChecksumType": upload.checksum_type}
        bucket, upload = call.bucket(), _upload(call)
        _check_conditions(call, bucket, upload)
    digests = hashlib.md5(b"".join(bytes.fromhex(part.etag) for part in parts), usedforsecurity=False)
    etag = f"{digests.hexdigest()}-{len(parts)}"
    made = upload.settings, upload.tags, sums, tuple(parts), upload.id
    version = Version(call.key, "", now(), etag, size, body, *made)
    bucket.put(version)
    bucket.end(upload)
    return _completed(call, version)


async def abort_multipart_upload(call: Call) -> Answer:
    """Drop an upload and its parts."""
    call.bucket().end(_upload(call))
    return Answer(status=204)


async def list_parts(call: Call) -> Answer:
    """List the parts of an upload."""
    upload = _upload(call)
    parts, page = parts_page(call, (part for _, part in sorted(upload.parts.items())))
    output: dict[str, Any] = {
        "Bucket": call.bucket_name,
        "Key": call.key,
        "UploadId": upload.id,
        **page,
        "Parts": [
            {
                "PartNumber": part.number,
                "LastModified": part.modified,
                "ETag": f'"{part.etag}"',
                "Size": part.size,
                **part.checksums,
            }
            for part in parts
        ],
        **UPLOADED,
        **upload.checksum,
    }
    return Answer(output)


async def list_multipart_uploads(call: Call) -> Answer:
    """List the unfinished uploads, by key and then by start."""
    bucket, given, limit = call.bucket(), call.members, call.limit("MaxUploads", "max-uploads")
    by_key = {key: list(uploads.values()) for key, uploads in bucket.uploads.items()}
    marker, after_id = given.get("KeyMarker", ""), given.get("UploadIdMarker", "")
    rest: list[Upload] = []
    if after_id and marker in by_key:
        ids = [upload.id for upload in by_key[marker]]
        rest = by_key[marker][ids.index(after_id) + 1 :] if after_id in ids else []
    found, output, last = listing(call, limit, sorted(by_key), marker, by_key.__getitem__, rest)
    output |= {
        "Bucket": bucket.name,
        "KeyMarker": marker,
        "UploadIdMarker": after_id,
        "Prefix": given.get("Prefix"),
        "MaxUploads": limit,
        "Uploads": [
            {"Key": upload.key, "UploadId": upload.id, "Initiated": upload.initiated, **UPLOADED, **upload.checksum}
            for upload in found
        ],
    }
    if last is not None:
        output["NextKeyMarker"], output["NextUploadIdMarker"] = last
    return Answer(output)


def _completed(call: Call, version: Version) -> Answer:
    location = f"http://{call.host}/{call.bucket_name}/{quote(call.key, safe='')}"
    output = {"Bucket": call.bucket_name, "Key": call.key, "Location": location, "ETag": f'"{version.etag}"'}
    return Answer({**output, **version.checksums, **written_version(version)})


def _upload(call: Call) -> Upload:
    upload_id = call.members.get("UploadId", "")
    found = call.bucket().upload(call.key, upload_id)
    if found is None:
        raise failure("NoSuchUpload", UploadId=upload_id[:200])
    return found


def _check_algorithm(upload: Upload, sent: str) -> None:
    if sent != upload.algorithm:
        raise failure(
            "InvalidRequest",
            f"Checksum Type mismatch occurred, expected checksum Type: {upload.algorithm.lower()}, "
            f"actual checksum Type: {sent.lower() or 'null'}",
        )


def _check_checksum(call: Call, upload: Upload, value: str) -> None:
    found = {name: call.members[name].partition("-")[0] for name in CHECKSUMS & call.members.keys()}
    for name, digest in checksums.given(found).items():
        _check_algorithm(upload, name)
        if digest != value.partition("-")[0]:
            raise failure("BadDigest", f"The {name} you specified did not match the calculated checksum.")


def _check_conditions(call: Call, bucket: Bucket, upload: Upload) -> None:
    check_write(call.members, bucket.current(call.key), call.key)
    if upload.overtaken and call.members.keys() & set(CONDITIONS):
        raise failure("ConditionalRequestConflict", Key=call.key)


def _chosen(upload: Upload, entries: list[dict[str, Any]]) -> list[Part]:
    if not entries or len(entries) > MOST_PARTS or not all({"ETag", "PartNumber"} <= entry.keys() for entry in entries):
        raise failure("MalformedXML")
    numbers = [entry["PartNumber"] for entry in entries]
    if any(first >= second for first, second in pairwise(numbers)):
        raise failure("InvalidPartOrder")
    parts = []
    for entry in entries:
        part = upload.parts.get(entry["PartNumber"])
        if part is None or entry["ETag"].strip('"') != part.etag:
            raise failure("InvalidPart", PartNumber=str(entry["PartNumber"]))
        if any(entry[name] != part.checksums.get(name) for name in CHECKSUMS & entry.keys()):
            raise failure("InvalidPart", PartNumber=str(part.number))
        if upload.checksum_type == checksums.COMPOSITE and f"Checksum{upload.algorithm}" not in entry:
            raise failure(
                "InvalidRequest",
                f"The upload was created using a {upload.algorithm.lower()} checksum. The complete request must "
                f"include the checksum for each part. It was missing for part {part.number} in the request.",
            )
        parts.append(part)
    for part in parts[:-1]:
        if part.size < LEAST_PART:
            raise failure(
                "EntityTooSmall",
                ProposedSize=str(part.size),
                MinSizeAllowed=str(LEAST_PART),
                PartNumber=str(part.number),
            )
    return parts
