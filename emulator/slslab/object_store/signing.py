"""Verify signatures of S3: Version 4, and in presigned URLs also Version 2.

https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html
https://docs.aws.amazon.com/AmazonS3/latest/API/RESTAuthentication.html
"""

import hmac
import re
import time
from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import SplitResult, quote, unquote_to_bytes

from botocore.auth import HmacV1Auth
from botocore.credentials import Credentials

from slslab.aws.errors import ServiceError
from slslab.aws.keys import Keyring, Principal
from slslab.aws.signatures import SAFE, IndexedHeaders, Signature
from slslab.object_store.errors import failure, refusal

UNSIGNED, CHUNKED = "UNSIGNED-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
PAYLOAD = re.compile(r"[0-9a-f]{64}")
# documented: sig-v4-authenticating-requests.html: within 15 minutes.
SKEW = timedelta(minutes=15)


def authenticate(
    keys: Keyring,
    method: str,
    sent_path: str,
    resource: str,
    query: str,
    parameters: Mapping[str, str],
    headers: IndexedHeaders,
) -> tuple[Principal | None, str]:
    """Return a request's signer (None without a signature) and its x-amz-content-sha256; S3's errors if it isn't valid.

    Version 4 signs the path as sent. Version 2 signs the resource, a path that begins with the bucket.
    """
    payload = headers.get("x-amz-content-sha256")
    if "authorization" not in headers and "X-Amz-Algorithm" not in parameters:
        if "AWSAccessKeyId" in parameters:
            return _by_version_2(keys, method, resource, query, parameters, headers), UNSIGNED
        return None, CHUNKED if payload == CHUNKED else UNSIGNED
    if headers.get("authorization", "").startswith("AWS "):
        raise refusal("Signature Version 2 in headers", "sign with Version 4, as AWS's clients do by default.")
    try:
        signature = Signature.of(headers, query)
        if signature.service != "s3":
            raise ServiceError(400, "", f"The credential is for {signature.service}, and not for s3.")
    except ServiceError as error:
        malformed = (
            "AuthorizationHeaderMalformed" if "authorization" in headers else "AuthorizationQueryParametersError"
        )
        raise failure(malformed, error.message) from error
    if not signature.presigned:
        if payload is None:
            raise failure("MissingSecurityHeader", "Your request was missing the header x-amz-content-sha256.")
        signature = signature._replace(valid=SKEW)
    elif payload is None or "x-amz-content-sha256" not in signature.headers:
        payload = UNSIGNED
    if payload not in (UNSIGNED, CHUNKED) and not PAYLOAD.fullmatch(payload):
        raise refusal(f"x-amz-content-sha256: {payload[:100]}", "sign the body, or send UNSIGNED-PAYLOAD.")
    secret, principal = holder(keys, signature.key_id, signature.token)
    try:
        signature.check_time()
    except ServiceError as error:
        expired = "expired" in error.message
        if signature.presigned and expired:
            raise failure("AccessDenied", "Request has expired") from error
        raise failure("RequestTimeTooSkewed") from error
    canonical_path = quote(unquote_to_bytes(sent_path), "/" + SAFE)
    try:
        signature.verify(secret, method, canonical_path, query, headers, payload)
    except ServiceError as error:
        raise failure("SignatureDoesNotMatch") from error
    return principal, payload


def _by_version_2(
    keys: Keyring, method: str, resource: str, query: str, parameters: Mapping[str, str], headers: IndexedHeaders
) -> Principal:
    """Return who signed a URL with Version 2, boto3's default for S3."""
    token = parameters.get("x-amz-security-token", "")
    secret, principal = holder(keys, parameters["AWSAccessKeyId"], token)
    signer = HmacV1Auth(Credentials(parameters["AWSAccessKeyId"], secret))
    expires = parameters.get("Expires", "")
    if not (expires.isascii() and expires.isdigit() and len(expires) < 15):
        raise failure("AccessDenied", "Invalid date (should be seconds since epoch): " + expires[:100])
    if int(expires) < time.time():
        raise failure("AccessDenied", "Request has expired")
    # boto3 moves headers into the query after it has signed them.
    amazon = {name: value for name, value in parameters.items() if name.startswith("x-amz-")}
    amazon |= {name: ",".join(headers.getlist(name)) for name in headers if name.startswith("x-amz-")}
    if resource.count("/") == 1 and resource != "/":
        # documented: for "/bucket", boto3 signs "/bucket/", which S3 requires (botocore/handlers.py, fix_s3_host).
        resource += "/"
    text = "\n".join(
        (
            method,
            *(headers.get(name, parameters.get(name, "")) for name in ("content-md5", "content-type")),
            expires,
            *(f"{name}:{value.strip()}" for name, value in sorted(amazon.items())),
            signer.canonical_resource(SplitResult("", "", "", query, ""), resource),
        )
    )
    if not hmac.compare_digest(signer.sign_string(text).encode(), parameters.get("Signature", "").encode()):
        raise failure("SignatureDoesNotMatch")
    return principal


def holder(keys: Keyring, key_id: str, token: str) -> tuple[str, Principal]:
    """Return a key's secret and holder."""
    try:
        pair, principal = keys.find(key_id, token)
    except ServiceError as error:
        if token:
            raise failure("InvalidToken") from error
        raise failure("InvalidAccessKeyId", AWSAccessKeyId=key_id) from error
    return pair.secret, principal
