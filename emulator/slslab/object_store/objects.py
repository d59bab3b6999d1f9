"""Implement the operations on objects: put, get, head, attributes, copy, delete, tags."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

from slslab.aws.errors import ServiceError
from slslab.object_store import checksums
from slslab.object_store.bodies import Sums
from slslab.object_store.call import (
    OVERRIDES,
    READ_CONDITIONS,
    Answer,
    Call,
    check_match,
    check_object_rights,
    check_write,
    integer,
    same_etag,
)
from slslab.object_store.errors import failure, refusal
from slslab.object_store.signing import UNSIGNED
from slslab.object_store.storage import NULL, Bucket, Part, Version, cut, first_page, now, read, whole

RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
LARGEST_COPY = 5 * 1024**3
MOST_DELETED = 1000
MOST_PARTS = 10_000
MOST_TAGS, LONGEST_TAG, LONGEST_VALUE = 10, 128, 256
TAG = re.compile(r"[\w .:/=+\-@]*")


async def put_object(call: Call) -> Answer:
    """Store an object."""
    bucket, settings, tags = call.bucket(), call.settings(), given_tags(call)
    check_write(call.members, bucket.current(call.key), call.key)
    stored = await call.store_body()
    # Other requests may have run meanwhile, but none can from here on.
    bucket = call.bucket()
    check_write(call.members, bucket.current(call.key), call.key)
    sums = {**stored.checksums, **({"ChecksumType": checksums.FULL} if stored.checksums else {})}
    version = Version(call.key, "", now(), stored.md5, stored.piece.size, whole(stored.piece), settings, tags, sums)
    bucket.put(version)
    return Answer({"ETag": f'"{version.etag}"', **sums, **written_version(version)})


async def get_object(call: Call) -> Answer:
    """Return an object, or a range or a part of it."""
    if call.principal is None and OVERRIDES.keys() & call.members.keys():
        raise failure("InvalidRequest", "Request specific response headers cannot be used for anonymous GET requests.")
    version = call.version()
    check_read(call.members, version)
    output: dict[str, Any] = {"LastModified": version.modified, "ETag": f'"{version.etag}"', **version.settings}
    output |= version_member(call.bucket(), version) | ({"TagCount": len(version.tags)} if version.tags else {})
    output |= {OVERRIDES[name]: value for name, value in call.members.items() if name in OVERRIDES}
    if call.members.get("ChecksumMode", "").upper() == "ENABLED":
        output |= version.checksums
    status, start, length = 200, 0, version.size
    if "PartNumber" in call.members:
        if "Range" in call.members:
            raise failure("InvalidRequest", "Cannot specify both Range header and partNumber query parameter")
        status, start, length = 206, *_range_of_part(version, part_number(call))
        if version.parts:
            output["PartsCount"] = len(version.parts)
    elif (found := byte_range(call.members.get("Range"), version.size)) is not None:
        status, start, length = 206, *found
    if length < version.size:
        # The checksum is the whole object's.
        output = {name: value for name, value in output.items() if not name.startswith("Checksum")}
    if status == 206 and length:
        output["ContentRange"] = f"bytes {start}-{start + length - 1}/{version.size}"
    body = version.body if length == version.size else cut(version.body, start, length)
    return Answer({**output, "ContentLength": length, "AcceptRanges": "bytes"}, status, body)


head_object = get_object


async def get_object_attributes(call: Call) -> Answer:
    """Return attributes of an object."""
    wanted = call.members.get("ObjectAttributes", [])
    if not wanted or not set(wanted) <= {"ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"}:
        raise failure("InvalidArgument", "Invalid attribute name specified.")
    version = call.version()
    found: dict[str, Any] = {"ETag": version.etag, "StorageClass": "STANDARD", "ObjectSize": version.size}
    if version.checksums:
        found["Checksum"] = {name: value.partition("-")[0] for name, value in version.checksums.items()}
    if version.parts:
        parts, page = parts_page(call, version.parts)
        found["ObjectParts"] = {"TotalPartsCount": len(version.parts)}
        # documented: API_GetObjectAttributes.html: parts are listed if they have checksums.
        if any(part.checksums for part in version.parts):
            entries = [{"PartNumber": part.number, "Size": part.size, **part.checksums} for part in parts]
            found["ObjectParts"] |= {**page, "Parts": entries}
    return Answer(
        {
            **{name: found[name] for name in wanted if name in found},
            "LastModified": version.modified,
            **version_member(call.bucket(), version),
        }
    )


def parts_page(call: Call, parts: Iterable[Part]) -> tuple[list[Part], dict[str, Any]]:
    """Return the parts that the request asks for, by number, and the members that describe the page."""
    marker = integer(call.members.get("PartNumberMarker", 0), "part-number-marker")
    limit = call.limit("MaxParts", "max-parts")
    page, more = first_page((part for part in parts if part.number > marker), limit)
    limits = {"PartNumberMarker": marker, "MaxParts": limit, "IsTruncated": more}
    return page, {**limits, "NextPartNumberMarker": page[-1].number if page else 0}


async def delete_object(call: Call) -> Answer:
    """Delete an object, or one of its versions permanently."""
    bucket = call.bucket()
    return Answer(_delete(bucket, call.key, call.members.get("VersionId"), call.members.get("IfMatch")), 204)


async def delete_objects(call: Call) -> Answer:
    """Delete up to a thousand objects; the answer has an error for each that the caller may not delete."""
    bucket, request = call.bucket(), call.members["Delete"]
    entries = request.get("Objects", [])
    if not 0 < len(entries) <= MOST_DELETED:
        raise failure("MalformedXML")
    deleted, errors = [], []
    for entry in entries:
        # Let other requests in: a policy can take long to evaluate.
        await asyncio.sleep(0)
        version_id = entry.get("VersionId") or None
        named = {"Key": entry["Key"], **({"VersionId": version_id} if version_id else {})}
        try:
            if entry.keys() - {"Key", "VersionId", "ETag"}:
                raise refusal(
                    f"{', '.join(entry.keys() - {'Key', 'VersionId', 'ETag'})} of DeleteObjects", "leave it out."
                )
            call.authorize(entry["Key"], version_id, "DeleteObject")
            done = _delete(bucket, entry["Key"], version_id, entry.get("ETag"))
        except ServiceError as error:
            errors.append({**named, "Code": error.error_type, "Message": error.message})
            continue
        if done.get("DeleteMarker"):
            named |= {"DeleteMarker": True, "DeleteMarkerVersionId": done["VersionId"]}
        deleted.append(named)
    return Answer({"Deleted": [] if request.get("Quiet") else deleted, "Errors": errors})


async def copy_object(call: Call) -> Answer:
    """Copy an object. The copy shares its bytes."""
    directives = ("MetadataDirective", "TaggingDirective")
    bucket, source = call.bucket(), copy_source(call)
    check_write(call.members, bucket.current(call.key), call.key)
    for name in directives:
        if call.members.get(name, "COPY") not in ("COPY", "REPLACE"):
            raise failure("InvalidArgument", f"Unknown {name}.")
    replaces, retags = (call.members.get(name) == "REPLACE" for name in directives)
    changed = replaces or retags or {"StorageClass", "ServerSideEncryption"} & call.members.keys()
    if source is bucket.current(call.key) and not changed and "versionId" not in call.members["CopySource"]:
        raise failure(
            "InvalidRequest",
            "This copy request is illegal because it is trying to copy an object to itself without changing the "
            "object's metadata, storage class, website redirect location or encryption attributes.",
        )
    if source.size > LARGEST_COPY:
        raise failure("InvalidRequest", "The specified copy source is larger than the maximum allowable size")
    settings = call.settings() if replaces else source.settings
    check_object_rights(call.members)
    tags = given_tags(call) if retags else source.tags
    algorithm = call.members.get("ChecksumAlgorithm", "")
    etag, sums = await _copied_sums(source, algorithm)
    bucket = call.bucket()
    check_write(call.members, bucket.current(call.key), call.key)
    version = Version(call.key, "", now(), etag, source.size, source.body, settings, tags, sums)
    bucket.put(version)
    result = {"ETag": f'"{etag}"', "LastModified": version.modified, **sums}
    output = {"CopyObjectResult": result, **written_version(version)}
    if source.id != NULL:
        output["CopySourceVersionId"] = source.id
    return Answer(output)


async def put_object_tagging(call: Call) -> Answer:
    """Replace the tags of an object."""
    version = call.version()
    version.tags = tags_of(call.members["Tagging"]["TagSet"], MOST_TAGS)
    return Answer(version_member(call.bucket(), version))


async def get_object_tagging(call: Call) -> Answer:
    """Return the tags of an object."""
    version = call.version()
    return Answer({"TagSet": tag_set(version.tags), **version_member(call.bucket(), version)})


async def delete_object_tagging(call: Call) -> Answer:
    """Remove the tags of an object."""
    version = call.version()
    version.tags = {}
    return Answer(version_member(call.bucket(), version), 204)


def version_member(bucket: Bucket, version: Version) -> dict[str, Any]:
    """Return the member VersionId of a read, or nothing in buckets without versioning."""
    return {"VersionId": version.id} if bucket.versioning else {}


def written_version(version: Version) -> dict[str, Any]:
    """Return the member VersionId of a write, or nothing for null versions."""
    return {} if version.id == NULL else {"VersionId": version.id}


def check_read(members: Mapping[str, Any], version: Version, prefix: str = "") -> None:
    """Raise S3's errors unless a read's conditions hold. Conditions on a copy's source have names with a `prefix`.

    Conditions on ETags take precedence over conditions on times.

    documented: API_GetObject.html, "Additional Considerations about Request Headers".
    """
    match, none, since, until = (members.get(f"{prefix}{name}") for name in READ_CONDITIONS)
    failed = not same_etag(match, version.etag) if match is not None else until is not None and version.modified > until
    if failed:
        raise failure("PreconditionFailed", Condition="If-Match" if match is not None else "If-Unmodified-Since")
    # A time in the future is ignored (RFC 9110, 13.1.3).
    unmodified = since is not None and version.modified <= since <= now()
    unchanged = same_etag(none, version.etag) if none is not None else unmodified
    if unchanged and prefix:
        raise failure("PreconditionFailed")
    if unchanged:
        raise ServiceError(304, "NotModified", "Not Modified", headers={"etag": f'"{version.etag}"'})


def byte_range(text: str | None, size: int) -> tuple[int, int] | None:
    """Return start and length of a range; None without a valid range (RFC 9110, 14.2)."""
    found = RANGE.fullmatch(text.strip()) if text else None
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        length = min(int(found[2]), size)
        start = size - length
    else:
        start = int(found[1])
        if found[2] and int(found[2]) < start:
            return None
        length = min(int(found[2]) + 1 if found[2] else size, size) - start
    if length <= 0:
        raise failure("InvalidRange", RangeRequested=str(text)[:100], ActualObjectSize=str(size))
    return start, length


def copy_source(call: Call) -> Version:
    """Return the version that a copy reads; S3's errors unless the caller may read it and the conditions hold."""
    if call.principal is None:
        # documented: API_CopyObject.html, "Authentication and authorization".
        raise failure("AccessDenied", "Anonymous users cannot copy objects. Please authenticate.")
    bucket_name, key, version_id = split_source(call.members["CopySource"])
    call.authorize(key, version_id, "GetObject", bucket_name)
    bucket = call.store.bucket(bucket_name)
    found = bucket.find(key, version_id) if version_id else bucket.current(key)
    if found is None and not version_id:
        call.authorize_listing(bucket_name)
    if found is None:
        raise failure("NoSuchVersion" if version_id else "NoSuchKey", Key=key)
    if found.marker:
        raise failure("InvalidRequest", "The source of a copy request may not specifically refer to a delete marker.")
    check_read(call.members, found, "CopySource")
    return found


def split_source(text: str) -> tuple[str, str, str]:
    """Return bucket, key and version id of the source of a copy; InvalidArgument if one is missing."""
    path, _, version_id = text.partition("?versionId=")
    try:
        bucket, _, key = unquote(path, errors="strict").removeprefix("/").partition("/")
    except UnicodeDecodeError as error:
        raise failure("InvalidURI") from error
    if not bucket or not key:
        raise failure("InvalidArgument", "Copy Source must mention the source bucket and key: sourcebucket/sourcekey")
    return bucket, key, version_id


def given_tags(call: Call) -> dict[str, str]:
    """Return the tags of a write, which are given as a query; AccessDenied if the caller may not set tags."""
    pairs = parse_qsl(call.members.get("Tagging", ""), keep_blank_values=True)
    if pairs:
        call.authorize(call.key, None, "PutObjectTagging")
    if len(dict(pairs)) < len(pairs) or any("," in value for _, value in pairs):
        raise failure(
            "InvalidArgument",
            "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag "
            "name duplicates.",
        )
    return tags_of([{"Key": key, "Value": value} for key, value in pairs], MOST_TAGS)


def tags_of(entries: list[dict[str, str]], most: int) -> dict[str, str]:
    """Return tags by key; BadRequest for too many, InvalidTag for an invalid one."""
    if len(entries) > most:
        raise failure("BadRequest", f"Object tags cannot be greater than {most}")
    for entry in entries:
        if entry["Key"].startswith("aws:"):
            raise failure("InvalidTag", "System tags cannot be added/updated by requester")
        for name, longest in (("Key", LONGEST_TAG), ("Value", LONGEST_VALUE)):
            if len(entry[name]) > longest or not TAG.fullmatch(entry[name]) or (name == "Key" and not entry[name]):
                raise failure("InvalidTag", f"The Tag{name} you have provided is invalid")
    found = {entry["Key"]: entry["Value"] for entry in entries}
    if len(found) < len(entries):
        raise failure("InvalidTag", "Cannot provide multiple Tags with the same key")
    return found


def tag_set(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags in the API's form, sorted by key."""
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def _delete(bucket: Bucket, key: str, version_id: str | None, etag: str | None) -> dict[str, Any]:
    current = bucket.find(key, version_id) if version_id else bucket.current(key)
    if etag is not None:
        check_match(etag, current, key)
    if version_id is None:
        marker = bucket.delete(key)
        return {} if marker is None else {"DeleteMarker": True, "VersionId": marker.id}
    removed = bucket.remove(key, version_id)
    return {"VersionId": version_id, **({"DeleteMarker": True} if removed is not None and removed.marker else {})}


def part_number(call: Call) -> int:
    """Return the part number of a request; InvalidArgument if it is out of range."""
    number: int = call.members.get("PartNumber", 0)
    if not 1 <= number <= MOST_PARTS:
        raise failure("InvalidArgument", f"Part number must be an integer between 1 and {MOST_PARTS}, inclusive")
    return number


def _range_of_part(version: Version, number: int) -> tuple[int, int]:
    parts = version.parts or (Part(1, version.etag, version.size, version.body, {}, version.modified),)
    start = 0
    for part in sorted(parts, key=lambda part: part.number):
        if part.number == number:
            return start, part.size
        start += part.size
    raise failure("InvalidPartNumber")


async def _copied_sums(source: Version, algorithm: str) -> tuple[str, dict[str, str]]:
    """Return a copy's ETag and checksum, computed again if the source has parts or another `algorithm`."""
    known = algorithm or next((name for name in checksums.ALGORITHMS if f"Checksum{name}" in source.checksums), "")
    kept = source.checksums.get("ChecksumType") == checksums.FULL and f"Checksum{known}" in source.checksums
    sums = Sums(UNSIGNED, "" if kept else known)
    if source.parts or (known and not kept):
        await checksums.add(read(source.body), sums.update)
    found = sums.check(None, {})
    chosen = source.checksums if kept else found | ({"ChecksumType": checksums.FULL} if found else {})
    return sums.md5.hexdigest() if source.parts else source.etag, dict(chosen)
