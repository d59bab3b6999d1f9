"""One request to S3 on its way to an operation, and the operation's answer."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from slslab.aws.keys import Principal
from slslab.object_store import checksums, rights
from slslab.object_store.bodies import Incoming, Stored
from slslab.object_store.errors import failure, refusal
from slslab.object_store.model import Operation
from slslab.object_store.storage import Body, Bucket, Store, Version

# documented: API_PutObject.html and others; the rest is refused by name.
COMMON = frozenset({"Bucket", "Key", "ExpectedBucketOwner", "RequestPayer", "ContentMD5", "ChecksumAlgorithm"})
GRANTS = ("GrantFullControl", "GrantRead", "GrantReadACP", "GrantWrite", "GrantWriteACP")
SETTINGS = (
    "CacheControl",
    "ContentDisposition",
    "ContentEncoding",
    "ContentLanguage",
    "ContentType",
    "Expires",
    "Metadata",
)
CONDITIONS = ("IfMatch", "IfNoneMatch")
WRITTEN = frozenset({*SETTINGS, "Tagging", "StorageClass", "ACL", "ServerSideEncryption", *GRANTS})
CHECKSUMS = frozenset(f"Checksum{name}" for name in checksums.ALGORITHMS)
METADATA_BYTES = 2048


@dataclass
class Answer:
    """What an operation answers: members of its output, the bytes of an object, further headers."""

    output: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    body: Body | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Call:
    """One request, whose signature has been verified; `members` are those of the operation's input.

    `host` is the name and port by which the client calls this server.
    """

    operation: Operation
    members: dict[str, Any]
    bucket_name: str
    key: str
    principal: Principal | None
    store: Store
    incoming: Incoming
    host: str

    @property
    def location(self) -> str:
        """The URL of the object, as S3 encodes it."""
        return f"http://{self.host}/{self.bucket_name}/{quote(self.key, safe='')}"

    def bucket(self) -> Bucket:
        """Return the bucket; NoSuchBucket if there is none."""
        return self.store.bucket(self.bucket_name)

    def authorize(self, key: str, version_id: str | None = None, operation: str = "", bucket_name: str = "") -> None:
        """Raise AccessDenied unless the caller may do the operation, or another one, to an object or the bucket."""
        action = rights.action_of(operation or self.operation.name, version_id)
        name = bucket_name or self.bucket_name
        rights.check(self.principal, action, self.store.buckets.get(name), name, key, self.members)

    def only(self, *handled: str) -> None:
        """Raise NotImplemented for a member of the request that the operation would ignore."""
        for member in self.members:
            if member not in handled and member not in COMMON:
                raise refusal(f"{member} of {self.operation.name}", "leave it out.")

    def version(self) -> Version:
        """Return the version that the request names, or the current one; NoSuchKey and the like if there is none."""
        bucket, version_id = self.bucket(), self.members.get("VersionId")
        if version_id is None:
            found = bucket.latest(self.key)
        elif version_id == "":
            raise failure("InvalidArgument", "Version id cannot be the empty string")
        else:
            found = bucket.find(self.key, version_id)
            if found is None:
                raise failure("NoSuchVersion", Key=self.key, VersionId=version_id)
        if found is None or (found.marker and version_id is None):
            error = failure("NoSuchKey", Key=self.key)
            if found is not None:
                error.headers |= {"x-amz-delete-marker": "true", "x-amz-version-id": found.id}
            raise error
        if found.marker:
            error = failure("MethodNotAllowed")
            error.headers |= {"x-amz-delete-marker": "true", "x-amz-version-id": found.id, "allow": "DELETE"}
            raise error
        return found

    def settings(self) -> dict[str, Any]:
        """Return what comes back with the object as it was given."""
        check_object_rights(self.members)
        found = {name: self.members[name] for name in SETTINGS if name in self.members}
        found.setdefault("ContentType", "binary/octet-stream")
        codings = [coding.strip() for coding in found.pop("ContentEncoding", "").split(",")]
        if codings := [coding for coding in codings if coding not in ("", "aws-chunked")]:
            found["ContentEncoding"] = ",".join(codings)
        if "Metadata" in found:
            found["Metadata"] = {name: _in_ascii(value) for name, value in found["Metadata"].items()}
        size = sum(len(name.encode()) + len(value.encode()) for name, value in found.get("Metadata", {}).items())
        if size > METADATA_BYTES:
            raise failure("MetadataTooLarge", MaxSizeAllowed=str(METADATA_BYTES), Size=str(size))
        return found

    def sent_checksum(self) -> str:
        """Return the algorithm of the checksum that comes with the body; empty if there is none."""
        trailer = self.members.get("trailer", "").lower().removeprefix("x-amz-checksum-")
        names = {name.lower(): name for name in checksums.ALGORITHMS}
        sent = next(iter(checksums.given(self.members)), names.get(trailer, ""))
        wanted = self.members.get("ChecksumAlgorithm", sent)
        if wanted and not (sent or trailer):
            raise failure(
                "InvalidRequest",
                "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer "
                "headers were found.",
            )
        if wanted != sent:
            checksums.new(wanted)
            raise failure("InvalidRequest", "Value for x-amz-sdk-checksum-algorithm header is invalid.")
        return sent

    async def store_body(self, algorithm: str = "") -> Stored:
        """Store the body and verify its digests; `algorithm` is the checksum that it needs, if it has none."""
        chosen, given = self.sent_checksum() or algorithm, checksums.given(self.members)
        return await self.incoming.store(self.store.folder, self.members.get("ContentMD5"), chosen, given)


def check_object_rights(members: Mapping[str, Any]) -> None:
    """Refuse what new buckets of S3 refuse (access control lists), and what is not kept here (keys, other classes)."""
    if members.get("ACL", "bucket-owner-full-control") != "bucket-owner-full-control" or set(GRANTS) & members.keys():
        raise failure("AccessControlListNotSupported")
    if members.get("ServerSideEncryption", "AES256") != "AES256":
        raise refusal(f"ServerSideEncryption {members['ServerSideEncryption'][:100]}", "leave it out.")
    if (name := members.get("StorageClass", "STANDARD")) != "STANDARD":
        if not name.replace("_", "").isalpha() or not name.isupper():
            raise failure("InvalidStorageClass")
        raise refusal(f"the storage class {name[:100]}", "leave it out: all objects are STANDARD.")


def check_write(members: Mapping[str, Any], current: Version | None, key: str) -> None:
    """Raise PreconditionFailed, or NoSuchKey, unless the conditions of a write hold for what is there."""
    if (wanted := members.get("IfNoneMatch")) is not None:
        if wanted != "*":
            raise failure(
                "NotImplemented",
                "A header you provided implies functionality that is not implemented",
                Header="If-None-Match",
            )
        if current is not None:
            raise failure("PreconditionFailed", Condition="If-None-Match")
    if (wanted := members.get("IfMatch")) is not None:
        if current is None:
            raise failure("NoSuchKey", Key=key)
        if not same_etag(wanted, current.etag):
            raise failure("PreconditionFailed", Condition="If-Match")


def same_etag(wanted: str, etag: str) -> bool:
    """Return whether a condition's list of ETags has this one."""
    return any(entry.strip().strip('"') in ("*", etag) for entry in wanted.split(","))


def _in_ascii(text: str) -> str:
    """Return the value of a header as S3 sends it back: UTF-8 by RFC 2047 (documented: UsingMetadata.html)."""
    if text.isascii():
        return text
    return f"=?UTF-8?B?{base64.b64encode(text.encode('latin-1')).decode()}?="
