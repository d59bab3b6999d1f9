"""Hold a request as operations see it, and their answer; decide what its caller may do.

The owner may do everything, functions what their keys allow, others what the policy allows.
https://docs.aws.amazon.com/AmazonS3/latest/userguide/access-policy-language-overview.html
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slslab.aws.keys import Principal
from slslab.aws.policies import TAG, Statement, decide
from slslab.object_store import checksums
from slslab.object_store.bodies import Incoming, Stored
from slslab.object_store.errors import failure, refusal
from slslab.object_store.model import Operation
from slslab.object_store.storage import Body, Bucket, Store, Version

SETTINGS = (
    "CacheControl",
    "ContentDisposition",
    "ContentEncoding",
    "ContentLanguage",
    "ContentType",
    "Expires",
    "Metadata",
)
OVERRIDES = {f"Response{name}": name for name in SETTINGS if name != "Metadata"}
CONDITIONS = ("IfMatch", "IfNoneMatch")
READ_CONDITIONS = (*CONDITIONS, "IfModifiedSince", "IfUnmodifiedSince")
SOURCE_CONDITIONS = tuple(f"CopySource{name}" for name in READ_CONDITIONS)
CHECKSUMS = frozenset(f"Checksum{name}" for name in checksums.ALGORITHMS)
GRANTS = frozenset("GrantFullControl GrantRead GrantReadACP GrantWrite GrantWriteACP".split())
WRITTEN = frozenset({*SETTINGS, *GRANTS, "Tagging", "StorageClass", "ACL", "ServerSideEncryption"})
READ = frozenset({*READ_CONDITIONS, *OVERRIDES, "Range", "PartNumber", "VersionId", "ChecksumMode"})
LISTED = frozenset("Delimiter EncodingType MaxKeys Prefix".split())
# The members in headers and parameters that each operation handles; others are refused by name.
# documented: API_PutObject.html and others.
COMMON = CHECKSUMS | set(
    "Bucket Key ExpectedBucketOwner RequestPayer ContentMD5 ContentLength ChecksumAlgorithm".split()
)
HANDLED: Mapping[str, frozenset[str]] = {
    "AbortMultipartUpload": frozenset({"UploadId"}),
    "CompleteMultipartUpload": frozenset({"UploadId", "MpuObjectSize", "ChecksumType", *CONDITIONS}),
    "CopyObject": WRITTEN | {"CopySource", "MetadataDirective", "TaggingDirective", *CONDITIONS, *SOURCE_CONDITIONS},
    "CreateBucket": GRANTS | {"ACL", "ObjectOwnership", "ObjectLockEnabledForBucket"},
    "CreateMultipartUpload": WRITTEN | {"ChecksumType"},
    "DeleteObject": frozenset({"VersionId", "IfMatch"}),
    "DeleteObjectTagging": frozenset({"VersionId"}),
    "GetObject": READ,
    "GetObjectAcl": frozenset({"VersionId"}),
    "GetObjectAttributes": frozenset({"ObjectAttributes", "VersionId", "MaxParts", "PartNumberMarker"}),
    "GetObjectTagging": frozenset({"VersionId"}),
    "HeadObject": READ,
    "ListBuckets": frozenset({"MaxBuckets", "ContinuationToken", "Prefix"}),
    "ListMultipartUploads": LISTED | {"KeyMarker", "MaxUploads", "UploadIdMarker"},
    "ListObjects": LISTED | {"Marker"},
    "ListObjectsV2": LISTED | {"ContinuationToken", "FetchOwner", "StartAfter"},
    "ListObjectVersions": LISTED | {"KeyMarker", "VersionIdMarker"},
    "ListParts": frozenset({"UploadId", "MaxParts", "PartNumberMarker"}),
    "PutBucketAcl": GRANTS | {"ACL"},
    "PutBucketPolicy": frozenset({"ConfirmRemoveSelfBucketAccess"}),
    "PutObject": WRITTEN | {*CONDITIONS},
    "PutObjectAcl": GRANTS | {"ACL", "VersionId"},
    "PutObjectTagging": frozenset({"VersionId"}),
    "UploadPart": frozenset({"UploadId", "PartNumber"}),
    "UploadPartCopy": frozenset({"UploadId", "PartNumber", "CopySource", "CopySourceRange", *SOURCE_CONDITIONS}),
}
METADATA_BYTES = 2048
LONGEST_KEY = 1024
# A valid header name (RFC 9110, 5.6.2).
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass
class Answer:
    """An operation's answer: members of the output, bytes of an object, further headers."""

    output: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    body: Body | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Call:
    """One request with a verified signature; `members` are the operation's input.

    `host` is the name and port that the client uses for this server.
    """

    operation: Operation
    members: dict[str, Any]
    bucket_name: str
    key: str
    principal: Principal | None
    store: Store
    incoming: Incoming
    host: str

    def bucket(self) -> Bucket:
        """Return the bucket; NoSuchBucket if it doesn't exist."""
        return self.store.bucket(self.bucket_name)

    def authorize(self, key: str, version_id: str | None = None, operation: str = "", bucket_name: str = "") -> None:
        """Raise AccessDenied unless the caller may do this or another operation on an object, or on the bucket.

        KeyTooLongError for a key that is too long.
        """
        if (size := len(key.encode())) > LONGEST_KEY:
            raise failure("KeyTooLongError", Size=str(size), MaxSizeAllowed=str(LONGEST_KEY))
        action = action_of(operation or self.operation.name, version_id)
        name = bucket_name or self.bucket_name
        bucket = self.store.buckets.get(name)
        check_rights(self.principal, action, bucket, name, key, self.context(bucket, key, version_id))

    def context(self, bucket: Bucket | None, key: str, version_id: str | None = None) -> dict[str, str]:
        """Return the values for policy conditions: parameters and headers of the request, tags of the object.

        Requests of a multipart upload also have the headers that began the upload.
        """
        found = {
            f"s3:{at.name}": str(self.members[at.member]) for at in self.operation.inputs if at.member in self.members
        }
        if bucket is None:
            return found
        upload = bucket.upload(key, self.members.get("UploadId", ""))
        version = bucket.find(key, version_id) if version_id else bucket.latest(key)
        tags = {} if version is None else {f"{TAG}{name}": value for name, value in version.tags.items()}
        return {**(upload.context if upload else {}), **found, **tags}

    def authorize_listing(self, bucket_name: str = "") -> None:
        """Raise AccessDenied unless the caller may learn that a key is absent (documented: API_GetObject.html)."""
        self.authorize("", None, "ListObjectsV2", bucket_name)

    def check_members(self) -> None:
        """Raise NotImplemented if the request has a member that the operation would ignore."""
        for member in self.members:
            if member not in COMMON and member not in HANDLED.get(self.operation.name, ()):
                raise refusal(f"{member} of {self.operation.name}", "leave it out.")

    def version(self) -> Version:
        """Return the version that the request names, or the current one; S3's errors if it is missing."""
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
            self.authorize_listing()
            error = failure("NoSuchKey", Key=self.key)
            if found is not None:
                error.headers |= {"x-amz-delete-marker": "true", "x-amz-version-id": found.id}
            raise error
        if found.marker:
            error = failure("MethodNotAllowed")
            error.headers |= {"x-amz-delete-marker": "true", "x-amz-version-id": found.id, "allow": "DELETE"}
            raise error
        return found

    def limit(self, member: str, name: str, most: int = 1000) -> int:
        """Return the maximum length of a list; InvalidArgument with this name if the member isn't a valid number."""
        return min(integer(self.members.get(member, most), name), most)

    def settings(self) -> dict[str, Any]:
        """Return the members that are stored with an object and returned unchanged."""
        check_object_rights(self.members)
        found = {name: self.members[name] for name in SETTINGS if name in self.members}
        found.setdefault("ContentType", "binary/octet-stream")
        codings = [coding.strip() for coding in found.pop("ContentEncoding", "").split(",")]
        if codings := [coding for coding in codings if coding not in ("", "aws-chunked")]:
            found["ContentEncoding"] = ",".join(codings)
        if "Metadata" in found:
            if not all(map(TOKEN.fullmatch, found["Metadata"])):
                raise failure("InvalidArgument", "The name of a user-defined metadata item is not valid.")
            found["Metadata"] = {name: _in_ascii(value) for name, value in found["Metadata"].items()}
        size = sum(len(name.encode()) + len(value.encode()) for name, value in found.get("Metadata", {}).items())
        if size > METADATA_BYTES:
            raise failure("MetadataTooLarge", MaxSizeAllowed=str(METADATA_BYTES), Size=str(size))
        return found

    def sent_checksum(self) -> str:
        """Return the algorithm of the checksum sent with the body; empty without a checksum."""
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
        """Store the body and verify its digests; `algorithm` is computed if the client sent no checksum."""
        chosen, given = self.sent_checksum() or algorithm, checksums.given(self.members)
        return await self.incoming.store(self.store, self.members.get("ContentMD5"), chosen, given)


def check_object_rights(members: Mapping[str, Any]) -> None:
    """Refuse access control lists, as new buckets of S3 do, and encryption keys and storage classes."""
    if members.get("ACL", "bucket-owner-full-control") != "bucket-owner-full-control" or GRANTS & members.keys():
        raise failure("AccessControlListNotSupported")
    if members.get("ServerSideEncryption", "AES256") != "AES256":
        raise refusal(f"ServerSideEncryption {members['ServerSideEncryption'][:100]}", "leave it out.")
    if (name := members.get("StorageClass", "STANDARD")) != "STANDARD":
        if not name.replace("_", "").isalpha() or not name.isupper():
            raise failure("InvalidStorageClass")
        raise refusal(f"the storage class {name[:100]}", "leave it out: all objects are STANDARD.")


def check_write(members: Mapping[str, Any], current: Version | None, key: str) -> None:
    """Raise PreconditionFailed or NoSuchKey unless the conditions of a write hold for the current version."""
    match, none = (members.get(name) for name in CONDITIONS)
    # documented: conditional-writes.html: a write has one condition, If-Match with an ETag or If-None-Match with *.
    if (match is not None and none is not None) or match == "*" or none not in (None, "*"):
        names = {"If-Match": match, "If-None-Match": none}
        raise failure(
            "NotImplemented",
            "A header you provided implies functionality that is not implemented",
            Header=",".join(name for name, value in names.items() if value is not None),
        )
    if none is not None and current is not None:
        raise failure("PreconditionFailed", Condition="If-None-Match")
    if match is not None:
        check_match(match, current, key)


def check_match(wanted: str, current: Version | None, key: str) -> None:
    """Raise PreconditionFailed or NoSuchKey unless the ETag of the current version is in If-Match."""
    if current is None:
        raise failure("NoSuchKey", Key=key)
    if not same_etag(wanted, current.etag):
        raise failure("PreconditionFailed", Condition="If-Match")


def same_etag(wanted: str, etag: str) -> bool:
    """Return whether an ETag is in a condition's list."""
    return any(entry.strip().strip('"') in ("*", etag) for entry in wanted.split(","))


def integer(value: Any, name: str) -> int:
    """Return an argument as a number; InvalidArgument with its name if it isn't one."""
    text = str(value)
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < 2**31):
        raise failure("InvalidArgument", f"Argument {name} must be an integer between 0 and 2147483647")
    return int(text)


def _in_ascii(text: str) -> str:
    """Return a header's value as S3 returns it: UTF-8 by RFC 2047 (documented: UsingMetadata.html)."""
    if text.isascii():
        return text
    return f"=?UTF-8?B?{base64.b64encode(text.encode('latin-1')).decode()}?="


# documented: Service Authorization Reference, "Actions, resources, and condition keys for Amazon S3"; for other
# operations, the action has the operation's name.
ACTIONS = {
    "CompleteMultipartUpload": "PutObject",
    "CopyObject": "PutObject",
    "CreateMultipartUpload": "PutObject",
    "DeleteBucketCors": "PutBucketCORS",
    "DeleteBucketTagging": "PutBucketTagging",
    "DeletePublicAccessBlock": "PutBucketPublicAccessBlock",
    "GetBucketCors": "GetBucketCORS",
    "GetBucketEncryption": "GetEncryptionConfiguration",
    "GetBucketLifecycleConfiguration": "GetLifecycleConfiguration",
    "GetPublicAccessBlock": "GetBucketPublicAccessBlock",
    "HeadBucket": "ListBucket",
    "HeadObject": "GetObject",
    "ListBuckets": "ListAllMyBuckets",
    "ListMultipartUploads": "ListBucketMultipartUploads",
    "ListObjects": "ListBucket",
    "ListObjectsV2": "ListBucket",
    "ListObjectVersions": "ListBucketVersions",
    "ListParts": "ListMultipartUploadParts",
    "PutBucketCors": "PutBucketCORS",
    "PutPublicAccessBlock": "PutBucketPublicAccessBlock",
    "UploadPart": "PutObject",
    "UploadPartCopy": "PutObject",
}
OF_VERSIONS = frozenset({"GetObject", "DeleteObject", "GetObjectTagging", "PutObjectTagging", "DeleteObjectTagging"})
# documented: bucket-policies.html: the account's root user can always read and change a policy.
OF_ROOT = frozenset({"s3:GetBucketPolicy", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy"})


def action_of(operation: str, version_id: str | None) -> str:
    """Return the action of an operation, such as `s3:GetObject`."""
    name = ACTIONS.get(operation, operation)
    if version_id and name in OF_VERSIONS:
        name = f"{name}Version" if not name.endswith("Tagging") else name.replace("Tagging", "VersionTagging")
    return f"s3:{name}"


def check_rights(
    principal: Principal | None, action: str, bucket: Bucket | None, name: str, key: str, context: Mapping[str, str]
) -> None:
    """Raise AccessDenied unless a caller (None without a key) may do this to an object, or to the bucket if `key` is
    empty; NoSuchBucket if it doesn't exist. `context` has the values for conditions."""
    if bucket is None and name and action != "s3:CreateBucket":
        raise failure("NoSuchBucket", BucketName=name)
    resource = f"arn:aws:s3:::{name}{'/' * bool(key)}{key}" if name else "*"
    arn = principal.arn if principal else ""
    policy = allowed_policy(bucket)
    decision = decide(policy, arn, action, resource, context) if policy else None
    if principal is not None and principal.actions is None and action in OF_ROOT:
        return
    own = principal is not None and principal.may(action, resource, context)
    if decision is False or not (own or decision is True):
        explicit = "with an explicit deny in a resource-based policy"
        reason = explicit if decision is False else f"because no identity-based policy allows the {action} action"
        sentence = f'User: {arn} is not authorized to perform: {action} on resource: "{resource}" {reason}'
        # AWS tells only callers with a key.
        raise failure("AccessDenied", sentence if arn else "")


def allowed_policy(bucket: Bucket | None) -> tuple[Statement, ...]:
    """Return the statements in force, without public ones if public access is blocked."""
    if bucket is None or "policy" not in bucket.settings:
        return ()
    policy: tuple[Statement, ...] = bucket.settings["statements"]
    if bucket.settings.get("publicAccessBlock", {}).get("RestrictPublicBuckets"):
        return tuple(statement for statement in policy if not statement.is_public)
    return policy
