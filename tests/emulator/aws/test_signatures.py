"""Signature Version 4, checked against the signatures that botocore makes."""

import hashlib
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slslab.aws import signatures
from slslab.aws.errors import ServiceError
from slslab.aws.signatures import IndexedHeaders, Signature, canonical_path

HOST = "127.0.0.1:4600"
SECRET = "uK2/+x9wJalrXUtnFEMI"
CREDENTIALS = botocore.credentials.Credentials("AKIAEXAMPLE", SECRET)
INVOKE = "/2015-03-31/functions/f/invocations"


class Sent:
    """A request as the server receives it."""

    def __init__(self, request: Any, body: bytes = b"") -> None:
        address, _, self.query = request.url.partition("?")
        self.method, self.path, self.body = request.method, address.removeprefix(f"http://{HOST}"), body
        self.headers = {"host": HOST, **{name.lower(): value for name, value in request.headers.items()}}

    def verify(self, secret: str = SECRET) -> Signature:
        """Check it; returns what its signature says of itself."""
        headers = IndexedHeaders([(name.encode(), value.encode()) for name, value in self.headers.items()])
        signature = Signature.of(headers, self.query)
        signature.check_time()
        digest = hashlib.sha256(self.body).hexdigest()
        signature.verify(secret, self.method, canonical_path(self.path), self.query, headers, digest)
        return signature

    def refused(self) -> tuple[str, str]:
        """The error of a request that is refused: its type and message."""
        with pytest.raises(ServiceError) as found:
            self.verify()
        return found.value.error_type, found.value.message


def signed(path: str = INVOKE, body: bytes = b"", method: str = "POST", **headers: str) -> Sent:
    """A request with a signature in its header."""
    request = botocore.awsrequest.AWSRequest(method, f"http://{HOST}{path}", headers, body)
    botocore.auth.SigV4Auth(CREDENTIALS, "lambda", "us-east-1").add_auth(request)
    return Sent(request, body)


def presigned(expires: int = 60, path: str = INVOKE) -> Sent:
    """A request with a signature in its query."""
    request = botocore.awsrequest.AWSRequest("GET", f"http://{HOST}{path}")
    botocore.auth.SigV4QueryAuth(CREDENTIALS, "lambda", "us-east-1", expires).add_auth(request)
    return Sent(request)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        INVOKE,
        "/2015-03-31/functions/arn%3Aaws%3Alambda%3Aus-east-1%3A000000000000%3Afunction%3Af",
        "/2015-03-31/functions/f?Qualifier=%24LATEST",
        "/2015-03-31/functions?MaxItems=3&Marker=a%2Bb%3D&FunctionVersion=ALL",
        "/2017-03-31/tags/arn?tagKeys=b&tagKeys=a",
        "/functions?flag&other=",
        "/a%20b/%E2%82%AC~c_d-e.f",
    ],
)
def test_paths_and_queries_are_verified_as_they_were_sent(path: str) -> None:
    assert signed(path).verify().key_id == "AKIAEXAMPLE"


@given(st.dictionaries(st.text(min_size=1), st.text()), st.binary(), st.text(min_size=1))
def test_whatever_botocore_signs_is_verified(parameters: dict[str, str], body: bytes, name: str) -> None:
    query = urlencode(parameters, quote_via=quote, errors="replace")
    path = f"/2015-03-31/functions/{quote(name, safe='', errors='replace')}"
    assert signed(f"{path}?{query}" if query else path, body).verify().key_id == "AKIAEXAMPLE"


def test_headers_are_trimmed_and_bodies_count() -> None:
    sent = signed(body=b'{"a": 1}', **{"X-Amz-Log-Type": "  Tail   of  it ", "Content-Type": "application/json"})
    assert sent.verify().key_id == "AKIAEXAMPLE"


@pytest.mark.parametrize(
    "change",
    [
        {"method": "PUT"},
        {"path": "/2015-03-31/functions/g/invocations"},
        {"query": "Qualifier=1"},
        {"body": b"{}"},
        {"headers": {"x-amz-log-type": "None"}},
        {"headers": {"host": "localhost:4600"}},
    ],
)
def test_a_changed_request_is_refused(change: dict[str, Any]) -> None:
    sent = signed(body=b'{"a": 1}', **{"X-Amz-Log-Type": "Tail"})
    sent.verify()
    for name, value in change.items():
        setattr(sent, name, {**sent.headers, **value} if name == "headers" else value)
    kind, message = sent.refused()
    assert kind == "InvalidSignatureException"
    assert message.startswith("The request signature we calculated does not match the signature you provided.")


def test_another_secret_is_refused() -> None:
    with pytest.raises(ServiceError) as found:
        signed().verify("another")
    assert (found.value.status, found.value.error_type) == (403, "InvalidSignatureException")


def test_a_presigned_url_is_verified_until_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = presigned(60)
    assert sent.verify().presigned
    _pass_time(monkeypatch, 59)
    sent.verify()
    _pass_time(monkeypatch, 62)
    kind, message = sent.refused()
    assert kind == "InvalidSignatureException"
    assert message.startswith("Signature expired: ")
    assert message.endswith("- 1 min.)")


def test_a_header_is_valid_for_five_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = signed()
    _pass_time(monkeypatch, 299)
    sent.verify()
    _pass_time(monkeypatch, 302)
    assert sent.refused()[1].startswith("Signature expired: ")
    _pass_time(monkeypatch, -302)
    assert sent.refused()[1].startswith("Signature not yet current: ")


def _pass_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(seconds=seconds)

    monkeypatch.setattr(signatures, "datetime", Later)
    assert abs(Later.now(UTC) - datetime.now(UTC) - timedelta(seconds=seconds)) < timedelta(seconds=1)


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("AWS4-HMAC-SHA256 ", "Basic ", "IncompleteSignatureException"),
        ("/aws4_request", "", "IncompleteSignatureException"),
        ("Signature=", "Signature=0", "IncompleteSignatureException"),
        ("host;", "host;\xe9;", "IncompleteSignatureException"),
        ("host;", "", "IncompleteSignatureException"),
        ("host;", "host;host;", "IncompleteSignatureException"),
        ("host;", "host;HOST;", "IncompleteSignatureException"),
        ("/us-east-1/", f"/{'a' * 65}/", "IncompleteSignatureException"),
    ],
)
def test_a_header_that_is_none_is_refused(old: str, new: str, kind: str) -> None:
    sent = signed()
    assert old in sent.headers["authorization"]
    sent.headers["authorization"] = sent.headers["authorization"].replace(old, new)
    assert sent.refused()[0] == kind


@given(st.lists(st.tuples(st.sampled_from(["Credential", "SignedHeaders", "Signature", "Date"]), st.text())), st.text())
def test_no_request_breaks_it(parameters: list[tuple[str, str]], header: str) -> None:
    sent = presigned()
    given_so = "&".join(f"X-Amz-{name}={quote(value, errors='replace')}" for name, value in parameters)
    header = header.encode("latin-1", "replace").decode("latin-1")
    for query, headers in (
        (f"{sent.query}&{given_so}", sent.headers),
        (sent.query, {**sent.headers, "authorization": header}),
        (sent.query, {**sent.headers, "authorization": f"AWS4-HMAC-SHA256 {header}"}),
    ):
        sent.query, sent.headers = query, headers
        with suppress(ServiceError):
            sent.verify()


def test_what_is_not_signed_is_refused() -> None:
    sent = signed()
    del sent.headers["authorization"]
    assert sent.refused() == ("MissingAuthenticationTokenException", "Missing Authentication Token")


def test_a_date_that_is_none_or_another_days_is_refused() -> None:
    for date, kind in (
        ("yesterday", "IncompleteSignatureException"),
        ("20200101T000000Z", "InvalidSignatureException"),
    ):
        sent = signed()
        sent.headers["x-amz-date"] = date
        assert sent.refused()[0] == kind


@pytest.mark.parametrize("expires", ["604801", "-1", "soon", "", "9" * 20, f"0000000{10**20}", "0" * 5000])
def test_a_presigned_url_lasts_at_most_a_week(expires: str) -> None:
    sent = presigned(604_800)
    sent.verify()
    sent.query = sent.query.replace("X-Amz-Expires=604800", f"X-Amz-Expires={expires}")
    assert sent.refused()[0] == "IncompleteSignatureException"
