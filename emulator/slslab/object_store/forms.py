"""Accept uploads by HTML forms with a signed policy, as `generate_presigned_post` makes them.

https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-HTTPPOSTConstructPolicy.html
"""

import base64
import hmac
import json
import re
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from email.message import Message
from typing import Any
from urllib.parse import urlencode

from slslab.aws.errors import ServiceError
from slslab.aws.keys import Keyring, Principal
from slslab.aws.signatures import SCOPE, Signature
from slslab.object_store import signing
from slslab.object_store.bodies import ANY_LENGTH, Incoming
from slslab.object_store.call import Call
from slslab.object_store.errors import failure
from slslab.object_store.model import body_members, operations, text_of

# documented: API_RESTObjectPOST: the form without the file is up to 20 KB.
LARGEST_FIELDS = 20 * 1024
# The fields of a signature, by version.
SIGNED_BY_2 = ("AWSAccessKeyId", "Signature")
SIGNED_BY_4 = ("X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Signature")
# documented: sigv4-HTTPPOSTConstructPolicy.html.
EXPIRATION = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
# Fields that a policy doesn't have to name.
UNCHECKED = frozenset({"x-amz-signature", "signature", "awsaccesskeyid", "policy"})
DISPOSITION = re.compile(rb"content-disposition:([^\r\n]*)", re.IGNORECASE)


class Form:
    """A form as it arrives: first the fields, by name in lower case, then the file."""

    def __init__(self, incoming: Incoming, content_type: str) -> None:
        head = Message()
        head["content-type"] = content_type
        boundary = str(head.get_param("boundary") or "")
        if not boundary or len(boundary) > 200:
            raise failure("MalformedPOSTRequest")
        self._parts = incoming.raw()
        self._delimiter = b"\r\n--" + boundary.encode("latin-1", "replace")
        self._buffer = b"\r\n"
        self._taken = 0
        self.fields: dict[str, str] = {}
        self._filename = ""

    async def read_fields(self) -> None:
        """Read until the file begins."""
        async for part in self._parts:
            self._buffer += part
            while self._take_field():
                pass
            if "file" in self.fields:
                if "key" not in self.fields:
                    raise _missing("key")
                self.fields["key"] = self.fields["key"].replace("${filename}", self._filename)
                del self.fields["file"]
                return
            if self._taken + len(self._buffer) > LARGEST_FIELDS:
                raise failure("MaxPostPreDataLengthExceeded")
        raise failure("InvalidArgument", "POST requires exactly one file upload per request.")

    def file(self) -> Incoming:
        """Return the file as if it were the body of a request."""
        pieces = self._pieces()

        async def receive() -> dict[str, Any]:
            piece = await anext(pieces, None)
            return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

        return Incoming(receive, ANY_LENGTH, signing.UNSIGNED, None)

    def _take_field(self) -> bool:
        """Take one field out of the buffer; False if it is incomplete, or the file."""
        most = LARGEST_FIELDS - self._taken
        start = self._buffer.find(self._delimiter, 0, most)
        head_end = self._buffer.find(b"\r\n\r\n", start + len(self._delimiter), most) if start >= 0 else -1
        if head_end < 0:
            return False
        found = DISPOSITION.search(self._buffer, start, head_end)
        head = Message()
        head["content-disposition"] = found[1].decode("utf-8", "replace").strip() if found else ""
        name = str(head.get_param("name", "", "content-disposition")).lower()
        if not name:
            raise failure("MalformedPOSTRequest")
        if name == "file":
            self._filename = str(head.get_param("filename", "", "content-disposition"))
            self.fields["file"] = ""
            self._buffer = self._buffer[head_end + 4 :]
            return False
        end = self._buffer.find(self._delimiter, head_end + 2, most)
        if end < 0:
            return False
        self.fields[name] = self._buffer[head_end + 4 : end].decode("utf-8", "replace")
        self._buffer = self._buffer[end:]
        self._taken += end
        return True

    async def _pieces(self) -> AsyncIterator[bytes]:
        held, keep = self._buffer, len(self._delimiter) - 1
        while (end := held.find(self._delimiter)) < 0:
            if len(held) > keep:
                yield held[:-keep]
                held = held[-keep:]
            part = await anext(self._parts, None)
            if part is None:
                raise failure("IncompleteBody")
            held += part
        if end:
            yield held[:end]


def signer(keys: Keyring, fields: Mapping[str, str]) -> Principal | None:
    """Return the signer of a form's policy; None without a policy or a signature.

    Raises S3's errors for an incomplete or wrong signature.
    """
    policy, token = fields.get("policy"), fields.get("x-amz-security-token", "")
    given = [names for names in (SIGNED_BY_2, SIGNED_BY_4) if any(name.lower() in fields for name in names)]
    if policy is None or not given:
        return None
    for name in given[0]:
        if name.lower() not in fields:
            raise _missing(name)
    if given[0] is SIGNED_BY_2:
        secret, principal = signing.holder(keys, fields["awsaccesskeyid"], token)
        digest = base64.b64encode(hmac.digest(secret.encode(), policy.encode(), "sha1")).decode()
        signature = fields["signature"]
    else:
        scope = SCOPE.fullmatch(fields["x-amz-credential"])
        if scope is None:
            raise failure("InvalidArgument", "X-Amz-Credential must be KEY/DATE/REGION/s3/aws4_request.")
        secret, principal = signing.holder(keys, scope["key"], token)
        names = (scope["key"], token, scope["day"], scope["region"], scope["service"], "")
        key = Signature(*names, timedelta(), (), "", True).key(secret)
        digest = hmac.digest(key, policy.encode(), "sha256").hex()
        signature = fields["x-amz-signature"]
    if not hmac.compare_digest(digest.encode(), signature.encode()):
        raise failure("SignatureDoesNotMatch")
    return principal


def check(fields: Mapping[str, str], bucket: str) -> tuple[int, int] | None:
    """Raise AccessDenied unless the form's policy allows its fields; return the range of lengths that it allows."""
    try:
        policy = json.loads(base64.b64decode(fields["policy"]))
        conditions, expires = policy["conditions"], _expiration(policy["expiration"])
        entries = [_condition(given) for given in conditions]
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        raise failure("InvalidPolicyDocument") from error
    if expires < datetime.now(UTC):
        raise failure("AccessDenied", "Invalid according to Policy: Policy expired.")
    values, lengths = {**fields, "bucket": bucket}, None
    named: set[str] = set()
    for operator, name, wanted in entries:
        if operator == "content-length-range":
            lengths = int(name), int(wanted)
            continue
        named.add(name)
        value = values.get(name, "")
        if not (value == wanted if operator == "eq" else value.startswith(wanted)):
            raise failure("AccessDenied", f"Invalid according to Policy: Policy Condition failed: {operator} ${name}")
    for name in values:
        if name not in named and name not in UNCHECKED and not name.startswith("x-ignore-"):
            raise failure("AccessDenied", f"Invalid according to Policy: Extra input fields: {name[:100]}")
    return lengths


def tags(text: str) -> str:
    """Return the tags in a field `tagging` as a query; MalformedXML if it isn't a document of tags."""
    given = body_members(operations()[0]["PUT", "object", "tagging"], text.encode())
    return urlencode([(tag["Key"], tag["Value"]) for tag in given["Tagging"]["TagSet"]])


def answer(fields: Mapping[str, str], call: Call) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and document of the answer that the form asked for."""
    names = {"Bucket": call.bucket_name, "Key": call.key, "ETag": f'"{call.version().etag}"'}
    redirect = fields.get("success_action_redirect", fields.get("redirect", ""))
    if redirect.startswith(("http://", "https://")) and redirect.isascii() and redirect.isprintable():
        query = urlencode({name.lower(): value for name, value in names.items()})
        return 303, {"location": f"{redirect}{'&' if '?' in redirect else '?'}{query}", "etag": names["ETag"]}, b""
    status = {"200": 200, "201": 201}.get(fields.get("success_action_status", ""), 204)
    elements = {"Location": call.location, **names}.items()
    inner = "".join(f"<{name}>{text_of(value)}</{name}>" for name, value in elements)
    document = f"<PostResponse>{inner}</PostResponse>".encode() if status == 201 else b""
    return status, {"location": call.location, "etag": names["ETag"]}, document


def _missing(name: str) -> ServiceError:
    return failure(
        "InvalidArgument",
        f"Bucket POST must contain a field named '{name}'.  If it is specified, please check the order of the fields.",
        ArgumentName=name,
    )


def _condition(given: Any) -> tuple[str, str, str]:
    """Return a condition as operator, field and value; for a range of lengths as operator, start and end."""
    if isinstance(given, dict):
        ((name, value),) = given.items()
        return "eq", name.lower(), _text(value)
    operator, name, value = given
    operator = operator.lower()
    if operator == "content-length-range":
        return operator, str(int(name)), str(int(value))
    if operator not in ("eq", "starts-with"):
        raise ValueError(operator)
    return operator, name.removeprefix("$").lower(), _text(value)


def _expiration(text: str) -> datetime:
    if not EXPIRATION.fullmatch(text):
        raise ValueError(text)
    return datetime.fromisoformat(text)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value
