"""Verify AWS's Signature Version 4, in a request's header or in a presigned URL.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import hashlib
import hmac
import posixpath
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple, Self
from urllib.parse import quote, unquote

from slslab.aws.errors import ServiceError

ALGORITHM = "AWS4-HMAC-SHA256"
HEADER = re.compile(rf"{ALGORITHM} +Credential=([^, ]+), *SignedHeaders=([^, ]+), *Signature=([^, ]+)")
NAMES, SIGNATURE = re.compile(r"[!-9<-~]+(;[!-9<-~]+)*"), re.compile(r"[0-9a-f]{64}")
# Derived keys are cached by these.
SCOPE = re.compile(r"(?P<key>[^/]{1,128})/(?P<day>\d{8})/(?P<region>[^/]{1,64})/(?P<service>[^/]{1,64})/aws4_request")
STAMP = "%Y%m%dT%H%M%SZ"
# documented: reference_sigv-troubleshooting.html: a request must be received within five minutes of its timestamp.
ALLOWED_SKEW = timedelta(minutes=5)
# documented: reference_sigv-authentication-methods.html: a presigned URL is valid for at most seven days.
LONGEST_S = 7 * 24 * 3600
SAFE = "-_.~"


class IndexedHeaders(dict[str, str]):
    """A request's headers: the first value of each, by its name in lower case. Verifying a signature looks up many."""

    def __init__(self, raw: Sequence[tuple[bytes, bytes]]) -> None:
        super().__init__({name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(raw)})
        self.raw = raw

    def getlist(self, name: str) -> list[str]:
        """Return all values of a header, which may be repeated."""
        name = name.lower()
        if len(self) == len(self.raw):
            return [self[name]] if name in self else []
        return [value.decode("latin-1") for other, value in self.raw if other == name.encode("latin-1")]


class Signature(NamedTuple):
    """An unverified signature of a request: its key id, its scope, and how long it is valid."""

    key_id: str
    token: str
    day: str
    region: str
    service: str
    stamp: str
    valid: timedelta
    headers: tuple[str, ...]
    signature: str
    presigned: bool

    @classmethod
    def of(cls, headers: IndexedHeaders, query: str) -> Self:
        """Read the signature from a request's headers or query; AWS's ServiceError if it is missing or malformed."""
        authorization = headers.get("authorization")
        if authorization is not None:
            found = HEADER.fullmatch(authorization.strip())
            if found is None:
                raise _incomplete("Authorization header requires 'Credential', 'SignedHeaders' and 'Signature'.")
            scope, names, signature = found.groups()
            stamp, token, valid = headers.get("x-amz-date", ""), headers.get("x-amz-security-token", ""), ALLOWED_SKEW
        else:
            values = dict(parameters(query))
            if values.get("X-Amz-Algorithm") != ALGORITHM:
                raise ServiceError(403, "MissingAuthenticationTokenException", "Missing Authentication Token")
            scope, names, signature, stamp, token = (
                values.get(f"X-Amz-{name}", "")
                for name in ("Credential", "SignedHeaders", "Signature", "Date", "Security-Token")
            )
            expires = values.get("X-Amz-Expires", "")
            if not (expires.isascii() and expires.isdigit() and len(expires) < 8 and int(expires) <= LONGEST_S):
                raise _incomplete(f"X-Amz-Expires must be a number of seconds, at most {LONGEST_S}.")
            valid = timedelta(seconds=int(expires))
        key_id, day, region, service = _credential(scope)
        signed = _signed_names(names)
        if not SIGNATURE.fullmatch(signature):
            raise _incomplete("Signature must be 64 hexadecimal digits.")
        return cls(key_id, token, day, region, service, stamp, valid, signed, signature, authorization is None)

    def verify(self, secret: str, method: str, path: str, query: str, headers: IndexedHeaders, payload: str) -> None:
        """Raise InvalidSignatureException unless this secret signed this request, at any time.

        `path` is canonical, and `payload` the body's SHA-256 in hexadecimal digits, or S3's text in its place.
        """
        canonical = "\n".join(
            (
                method,
                path,
                query and self._canonical_query(query),
                *[
                    f"{name}:{','.join([' '.join(value.split()) for value in headers.getlist(name)])}"
                    for name in self.headers
                ],
                "",
                ";".join(self.headers),
                payload,
            )
        )
        scope = f"{self.day}/{self.region}/{self.service}/aws4_request"
        text = f"{ALGORITHM}\n{self.stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = _derived_key(secret, self.day, self.region, self.service)
        if not hmac.compare_digest(hmac.digest(key, text.encode(), "sha256").hex(), self.signature):
            raise _invalid(
                "The request signature we calculated does not match the signature you provided. Check your AWS Secret "
                "Access Key and signing method. Consult the service documentation for details."
            )

    def _canonical_query(self, query: str) -> str:
        encoded = (
            (quote(name, SAFE), quote(value, SAFE))
            for name, value in parameters(query)
            if not (self.presigned and name == "X-Amz-Signature")
        )
        return "&".join(map("=".join, sorted(encoded)))

    def check_time(self) -> None:
        """Raise InvalidSignatureException if it was signed too long ago, or in the future."""
        signed = _time(self.stamp)
        now = datetime.now(UTC)
        if not self.stamp.startswith(self.day):
            raise _invalid(f"Date in Credential scope does not match the request's date: {self.day}, {self.stamp}.")
        if now > signed + self.valid:
            raise _invalid(
                f"Signature expired: {self.stamp} is now earlier than {(now - self.valid).strftime(STAMP)} "
                f"({now.strftime(STAMP)} - {self.valid.total_seconds() / 60:g} min.)"
            )
        if signed > now + ALLOWED_SKEW:
            raise _invalid(
                f"Signature not yet current: {self.stamp} is still later than "
                f"{(now + ALLOWED_SKEW).strftime(STAMP)} ({now.strftime(STAMP)} + 5 min.)"
            )


@lru_cache
def _credential(text: str) -> tuple[str, str, str, str]:
    """Return key id, day, region and service of a credential, which a client's requests share for a day."""
    found = SCOPE.fullmatch(text)
    if found is None:
        raise _incomplete(
            "Credential must have exactly 5 slash-delimited elements, e.g. keyid/date/region/service/term."
        )
    return found["key"], found["day"], found["region"], found["service"]


@lru_cache(16)  # a name of a header may have any length
def _signed_names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(";"))
    if not NAMES.fullmatch(text) or "host" not in names or len(set(text.lower().split(";"))) < len(names):
        raise _incomplete("SignedHeaders must be different names of headers, and 'host' one of them.")
    return names


@lru_cache
def _time(stamp: str) -> datetime:
    """Parse a time stamp; cached, because requests within a second share it."""
    try:
        return datetime.strptime(stamp, STAMP).replace(tzinfo=UTC)
    except ValueError as error:
        raise _incomplete("The request needs a valid X-Amz-Date, as 20260101T120000Z.") from error


@lru_cache(1024)
def _derived_key(secret: str, day: str, region: str, service: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def canonical_path(path: str) -> str:
    """Return the path as sent, with its percent signs encoded once more (except for S3)."""
    if "//" in path or "/." in path:
        path = posixpath.normpath(path) + ("/" if path.endswith("/") else "")
        path = path.replace("//", "/")
    return quote(path, "/" + SAFE)


def parameters(query: str) -> list[tuple[str, str]]:
    """Return a query's decoded names and values; as in AWS's rules, a plus sign stays a plus sign."""
    pairs = (entry.partition("=") for entry in query.split("&") if entry)
    return [(unquote(name), unquote(value)) for name, _, value in pairs]


def _incomplete(message: str) -> ServiceError:
    return ServiceError(400, "IncompleteSignatureException", message)


def _invalid(message: str) -> ServiceError:
    return ServiceError(403, "InvalidSignatureException", message)
