"""Decide what callers may do: the owner everything, functions what their keys allow, others what the policy allows.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/access-policy-language-overview.html
"""

from collections.abc import Mapping

from slslab.aws.keys import Principal
from slslab.aws.policies import Statement, decide
from slslab.object_store.errors import failure
from slslab.object_store.storage import Bucket

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


def check(
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
        raise denied(arn, action, resource, explicitly=decision is False)


def allowed_policy(bucket: Bucket | None) -> tuple[Statement, ...]:
    """Return the statements in force, without public ones if public access is blocked."""
    if bucket is None:
        return ()
    policy: tuple[Statement, ...] = bucket.settings.get("statements", ())
    if bucket.settings.get("publicAccessBlock", {}).get("RestrictPublicBuckets"):
        return tuple(statement for statement in policy if not statement.is_public)
    return policy


def denied(arn: str, action: str, resource: str, *, explicitly: bool) -> Exception:
    """Return AccessDenied, with AWS's sentence if the caller is known."""
    if not arn:
        return failure("AccessDenied")
    reason = (
        "with an explicit deny in a resource-based policy"
        if explicitly
        else f"because no identity-based policy allows the {action} action"
    )
    return failure(
        "AccessDenied", f'User: {arn} is not authorized to perform: {action} on resource: "{resource}" {reason}'
    )
