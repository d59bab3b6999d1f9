"""Implement the operations on buckets: creating, listing, versions, and the settings that have an effect here."""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.policies import matches, statements
from slslab.object_store import cors
from slslab.object_store.call import GRANTS, Answer, Call
from slslab.object_store.errors import failure, refusal
from slslab.object_store.objects import tag_set, tags_of
from slslab.object_store.storage import Bucket, Upload, Version, first_page, named

# documented: bucketnamingrules.html.
NAME = re.compile(
    r"(?!xn--|sthree-|amzn-s3-demo-)[a-z0-9](?:[a-z0-9-]|(?<!-)\.(?![.-])){1,61}[a-z0-9]"
    r"(?<!-s3alias)(?<!--ol-s3)(?<!\.mrap)(?<!--x-s3)(?<!--table-s3)"
)
ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
OWNER = {"ID": ACCOUNT}
LARGEST_POLICY = 20 * 1024
MOST_BUCKET_TAGS = 50
Listed = TypeVar("Listed", Version, Upload)
BLOCKS = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")


async def list_buckets(call: Call) -> Answer:
    """List all buckets."""
    after, prefix = _token(call.members.get("ContinuationToken")) or "", call.members.get("Prefix", "")
    limit = call.limit("MaxBuckets", "max-buckets", 10_000)
    found = [bucket for name, bucket in sorted(call.store.buckets.items()) if name > after and name.startswith(prefix)]
    entries: list[dict[str, Any]] = [{"Name": one.name, "CreationDate": one.created} for one in found[:limit]]
    output: dict[str, Any] = {"Buckets": entries, "Owner": OWNER, "Prefix": call.members.get("Prefix")}
    if len(found) > len(entries) > 0:
        output["ContinuationToken"] = _as_token(entries[-1]["Name"])
    return Answer(output)


async def create_bucket(call: Call) -> Answer:
    """Create a bucket; in us-east-1 its owner may create it again."""
    name, members = call.bucket_name, call.members
    if not NAME.fullmatch(name) or ADDRESS.fullmatch(name):
        raise failure("InvalidBucketName", BucketName=name[:100])
    if members.get("ACL", "private") != "private" or GRANTS & members.keys():
        raise failure("InvalidBucketAclWithObjectOwnership")
    if members.get("ObjectOwnership", "BucketOwnerEnforced") != "BucketOwnerEnforced":
        raise refusal("ObjectOwnership, which enables access control lists", "grant access by a bucket policy.")
    if members.get("ObjectLockEnabledForBucket"):
        raise refusal("ObjectLockEnabledForBucket", "enable versioning, which keeps overwritten objects.")
    configuration = members.get("CreateBucketConfiguration", {})
    if configuration.keys() - {"LocationConstraint", "Tags"}:
        raise refusal("directory buckets", "leave Location and Bucket out of the configuration.")
    region = configuration.get("LocationConstraint") or REGION
    tags = tags_of(configuration.get("Tags", []), MOST_BUCKET_TAGS)
    bucket = call.store.buckets.get(name)
    if bucket is not None and (bucket.region, region) != (REGION, REGION):
        raise failure("BucketAlreadyOwnedByYou", BucketName=name)
    if bucket is None:
        bucket = call.store.buckets[name] = Bucket(name, region)
        bucket.settings |= {"tags": tag_set(tags)} if tags else {}
    return Answer({"Location": f"/{name}"})


async def head_bucket(call: Call) -> Answer:
    """Answer if the bucket exists."""
    return Answer({"BucketRegion": call.bucket().region})


async def delete_bucket(call: Call) -> Answer:
    """Delete a bucket that has no objects, versions or delete markers."""
    bucket = call.bucket()
    if bucket.keys:
        raise failure("BucketNotEmpty", BucketName=bucket.name)
    del call.store.buckets[bucket.name]
    return Answer(status=204)


async def get_bucket_location(call: Call) -> Answer:
    """Return the Region of a bucket; null for us-east-1."""
    region = call.bucket().region
    return Answer({"LocationConstraint": None if region == REGION else region})


async def list_objects(call: Call) -> Answer:
    """List objects after a marker."""
    bucket, given, limit = call.bucket(), call.members, call.limit("MaxKeys", "maxKeys")
    marker = given.get("Marker", "")
    found, output, last = listing(call, limit, bucket.keys, marker, bucket.visible)
    output |= {"Name": bucket.name, "Contents": _contents(found, owner=True), "Marker": marker, "MaxKeys": limit}
    if last is not None and given.get("Delimiter"):
        output["NextMarker"] = last[0]
    return Answer(output)


async def list_objects_v2(call: Call) -> Answer:
    """List objects after a key, or after the previous page."""
    bucket, given, limit = call.bucket(), call.members, call.limit("MaxKeys", "maxKeys")
    token = _token(given.get("ContinuationToken"))
    after = given.get("StartAfter", "") if token is None else token
    found, output, last = listing(call, limit, bucket.keys, after, bucket.visible)
    output |= {
        "Name": bucket.name,
        "Contents": _contents(found, owner=given.get("FetchOwner", False)),
        "StartAfter": given.get("StartAfter"),
        "ContinuationToken": given.get("ContinuationToken"),
        "MaxKeys": limit,
        "KeyCount": len(found) + len(output["CommonPrefixes"]),
    }
    if last is not None:
        output["NextContinuationToken"] = _as_token(last[0])
    return Answer(output)


async def list_object_versions(call: Call) -> Answer:
    """List all versions of objects, and their delete markers."""
    bucket, given, limit = call.bucket(), call.members, call.limit("MaxKeys", "maxKeys")
    key_marker, id_marker = given.get("KeyMarker", ""), given.get("VersionIdMarker", "")
    if id_marker and not key_marker:
        raise failure("InvalidArgument", "A version-id marker cannot be specified without a key marker.")
    rest = bucket.older(key_marker, id_marker) if id_marker else ()
    found, output, last = listing(call, limit, bucket.keys, key_marker, bucket.versions, rest)
    listed = [
        (version, {"VersionId": version.id, "IsLatest": version is bucket.latest(version.key)}) for version in found
    ]
    output |= {
        "Name": bucket.name,
        "KeyMarker": key_marker,
        "VersionIdMarker": id_marker,
        "MaxKeys": limit,
        "Versions": [_entry(version, owner=True) | own for version, own in listed if not version.marker],
        "DeleteMarkers": [
            {"Key": version.key, "LastModified": version.modified, "Owner": OWNER, **own}
            for version, own in listed
            if version.marker
        ],
    }
    if last is not None:
        output |= {"NextKeyMarker": last[0], "NextVersionIdMarker": last[1] or None}
    return Answer(output)


async def get_bucket_versioning(call: Call) -> Answer:
    """Return the state of versioning."""
    return Answer({"Status": call.bucket().versioning or None})


async def put_bucket_versioning(call: Call) -> Answer:
    """Enable or suspend versioning."""
    bucket, given = call.bucket(), call.members["VersioningConfiguration"]
    if given.get("MFADelete", "Disabled") != "Disabled":
        raise refusal("MFADelete", "leave it out.")
    if "Status" not in given:
        raise failure("IllegalVersioningConfigurationException")
    if given["Status"] not in ("Enabled", "Suspended"):
        raise failure("MalformedXML")
    bucket.versioning = given["Status"]
    return Answer()


async def get_setting(call: Call) -> Answer:
    """Return one of the bucket's settings as it was set."""
    name, member, error = SET[call.operation.name.removeprefix("Get")]
    found = call.bucket().settings.get(name)
    if not found:
        raise failure(error, BucketName=call.bucket_name)
    return Answer({member: found})


async def delete_setting(call: Call) -> Answer:
    """Remove one of the bucket's settings."""
    name, _, _ = SET[call.operation.name.removeprefix("Delete")]
    call.bucket().settings.pop(name, None)
    return Answer(status=204)


async def put_bucket_tagging(call: Call) -> Answer:
    """Replace a bucket's tags."""
    call.bucket().settings["tags"] = tag_set(tags_of(call.members["Tagging"]["TagSet"], MOST_BUCKET_TAGS))
    return Answer(status=204)


async def put_bucket_policy(call: Call) -> Answer:
    """Set the policy; refuse one that can't be enforced."""
    bucket, text = call.bucket(), call.members["Policy"]
    if len(text) > LARGEST_POLICY:
        raise failure("MalformedPolicy", "Policies must be smaller than 20 KB")
    try:
        found = statements(text, principals=True)
    except NotImplementedError as error:
        raise failure("NotImplemented", str(error)) from error
    except ValueError as error:
        raise failure("MalformedPolicy", str(error)) from error
    if not all(_covers(resource, bucket.name) for entry in found for resource in entry.resources):
        raise failure("MalformedPolicy", "Policy has invalid resource")
    if bucket.settings.get("publicAccessBlock", {}).get("BlockPublicPolicy") and any(s.is_public for s in found):
        raise failure("AccessDenied", "Public policies are blocked by the BlockPublicPolicy setting.")
    bucket.settings |= {"policy": text, "statements": found}
    return Answer(status=204)


def _covers(resource: str, bucket: str) -> bool:
    arn, found, path = resource.partition("arn:aws:s3:::")
    return resource == "*" or (found != "" and not arn and matches(path.partition("/")[0], bucket))


async def put_public_access_block(call: Call) -> Answer:
    """Block public access. The two settings for access control lists have no effect, because buckets here have none."""
    given = call.members["PublicAccessBlockConfiguration"]
    call.bucket().settings["publicAccessBlock"] = {name: given.get(name, False) for name in BLOCKS}
    return Answer()


async def put_bucket_cors(call: Call) -> Answer:
    """Set the rules for pages of other web sites."""
    rules = call.members["CORSConfiguration"]["CORSRules"]
    cors.check(rules)
    call.bucket().settings["cors"] = rules
    return Answer()


async def put_bucket_acl(call: Call) -> Answer:
    """Refuse an access control list, as new buckets of S3 do."""
    call.bucket()
    if call.members.get("ACL") == "bucket-owner-full-control":
        return Answer()
    raise failure("AccessControlListNotSupported")


put_object_acl = put_bucket_acl


# Settings of a bucket, by the operations' names without Get and Delete: their name, the member of the answer, and the
# error without them.
SET = {
    "BucketTagging": ("tags", "TagSet", "NoSuchTagSet"),
    "BucketPolicy": ("policy", "Policy", "NoSuchBucketPolicy"),
    "PublicAccessBlock": (
        "publicAccessBlock",
        "PublicAccessBlockConfiguration",
        "NoSuchPublicAccessBlockConfiguration",
    ),
    "BucketCors": ("cors", "CORSRules", "NoSuchCORSConfiguration"),
}
# The only possible access control list: the owner has full control.
ACL = {"Owner": OWNER, "Grants": [{"Grantee": {"Type": "CanonicalUser", **OWNER}, "Permission": "FULL_CONTROL"}]}
# Answers about settings that can't be changed here: the output, or the error.
FIXED: Mapping[str, str | dict[str, Any]] = {
    "GetBucketAcl": ACL,
    "GetObjectAcl": ACL,
    "GetBucketOwnershipControls": {"OwnershipControls": {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}},
    "GetBucketNotificationConfiguration": {},
    # Objects aren't encrypted here.
    "GetBucketEncryption": "ServerSideEncryptionConfigurationNotFoundError",
    "GetBucketLogging": {},
    "GetBucketAccelerateConfiguration": {},
    "GetBucketRequestPayment": {"Payer": "BucketOwner"},
    "GetBucketWebsite": "NoSuchWebsiteConfiguration",
    "GetBucketReplication": "ReplicationConfigurationNotFoundError",
    "GetBucketLifecycleConfiguration": "NoSuchLifecycleConfiguration",
    "GetObjectLockConfiguration": "ObjectLockConfigurationNotFoundError",
}


async def get_fixed(call: Call) -> Answer:
    """Return a setting that can't be changed here, or the error that the bucket doesn't have it."""
    found, bucket = FIXED[call.operation.name], call.bucket()
    if isinstance(found, str):
        raise failure(found, BucketName=bucket.name)
    if call.key:
        call.version()
    return Answer(found)


# The operations without functions of their own.
HANDLERS = {
    **{f"Get{name}": get_setting for name in SET},
    **{f"Delete{name}": delete_setting for name in SET},
    **dict.fromkeys(FIXED, get_fixed),
}


def listing(
    call: Call,
    limit: int,
    keys: Sequence[str],
    after: str,
    entries: Callable[[str], Iterable[Listed]],
    rest: Iterable[Listed] = (),
) -> tuple[list[Listed], dict[str, Any], tuple[str, str] | None]:
    """Return a page of a list, members of its answer, and if there are more pages, the last name and id of this one.

    The list has the `rest` of the entries of the key `after`, and then the `entries` of all sorted `keys` after it.
    """
    given = call.members
    if given.get("EncodingType", "url") != "url":
        raise failure("InvalidArgument", "Invalid Encoding Method specified in Request")
    prefix, delimiter = given.get("Prefix", ""), given.get("Delimiter", "")
    page, more = first_page(chain[Listed | str](rest, named(keys, prefix, delimiter, after, entries)), limit)
    found: list[Listed] = [entry for entry in page if not isinstance(entry, str)]
    output = {
        "Prefix": prefix,
        "Delimiter": delimiter or None,
        "EncodingType": given.get("EncodingType"),
        "IsTruncated": more,
        "CommonPrefixes": [{"Prefix": entry} for entry in page if isinstance(entry, str)],
    }
    if not more:
        return found, output, None
    last = page[-1]
    return found, output, (last, "") if isinstance(last, str) else (last.key, last.id)


def _contents(versions: list[Version], *, owner: bool) -> list[dict[str, Any]]:
    return [_entry(version, owner=owner) for version in versions]


def _entry(version: Version, *, owner: bool) -> dict[str, Any]:
    sums = [name.removeprefix("Checksum") for name in version.checksums if name != "ChecksumType"]
    return {
        "Key": version.key,
        "LastModified": version.modified,
        "ETag": f'"{version.etag}"',
        "ChecksumAlgorithm": sums or None,
        "ChecksumType": version.checksums.get("ChecksumType"),
        "Size": version.size,
        "StorageClass": "STANDARD",
        **({"Owner": OWNER} if owner else {}),
    }


def _as_token(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _token(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        name = base64.urlsafe_b64decode(text.encode()).decode()
    except (binascii.Error, ValueError):
        name = ""
    if not name:
        raise failure("InvalidArgument", "The continuation token provided is incorrect")
    return name
