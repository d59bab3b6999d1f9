"""Which requests the gate lets through to an application."""

import asyncio
import json
import re
from collections.abc import Collection
from datetime import datetime, timedelta, tzinfo
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from slslab.aws import signatures
from slslab.aws.clients import signed_headers
from slslab.aws.gate import Gate
from slslab.aws.keys import Keyring

OWN = [("host", "127.0.0.1:4600")]
LIMIT = 10


class Later(datetime):
    """A clock that is half an hour fast."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "Later":
        return super().now(tz) + timedelta(minutes=30)


class Url:
    """What answers unsigned requests of any page."""

    prefix, host = "/public/", re.compile(r"[a-z]+\.public\.localhost")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("public")(scope, receive, send)


def answer(
    headers: Collection[tuple[str, str]],
    names: Collection[str] = (),
    keys: Keyring | None = None,
    path: str = "/",
    body: bytes = b"",
    chunks: list[bytes] | None = None,
) -> tuple[int, bytes]:
    """Return status and body of the answer to a request with these headers, and with these chunks as its body.

    Chunks that are read are removed from the list.
    """
    sent: list[Any] = []
    coming = [body] if chunks is None else chunks

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        assert keys is not None, "no body is read"
        return {"type": "http.request", "body": coming.pop(0), "more_body": bool(coming)}

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
    }
    gate = Gate(PlainTextResponse("inside"), names, keys, lambda _: (LIMIT, "Test"), Url())
    asyncio.run(gate(scope, receive, send))
    return sent[0]["status"], sent[1]["body"]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:4600", "127.9.9.9:1", "localhost", "LOCALHOST:4600", "[::1]", "[::1]:4600"]
)
def test_loopback_has_these_names(host: str) -> None:
    assert answer([("host", host)]) == (200, b"inside")


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("host", "")],
        [("host", "evil.example")],
        [("host", "evil.example:4600")],
        [("host", "127.0.0.1.evil.example")],
        [("host", "localhost.")],
        [("host", "localhost@evil.example")],
        [("host", "0.0.0.0:4600")],
        [("host", "[::]:4600")],
        [("host", "10.0.0.1")],
        [("host", "127.1")],
        [("host", "::1")],
        [("host", "a" * 400_000)],
        [*OWN, ("host", "evil.example")],
        [*OWN, ("origin", "https://evil.example")],
        [*OWN, ("origin", "null")],
        [*OWN, ("origin", "http://127.0.0.1")],
        [*OWN, ("origin", "http://127.0.0.1:4601")],
        [*OWN, ("origin", "https://127.0.0.1:4600")],
        [*OWN, ("origin", "")],
        [*OWN, ("origin", "http://127.0.0.1:4600"), ("origin", "https://evil.example")],
        [*OWN, ("sec-fetch-site", "cross-site")],
        [*OWN, ("sec-fetch-site", "same-site")],
        [*OWN, ("sec-fetch-site", "")],
    ],
)
def test_foreign_requests_are_refused(headers: list[tuple[str, str]]) -> None:
    status, body = answer(headers)
    assert status == 403
    assert b"inside" not in body


@pytest.mark.parametrize(
    "more", [("origin", "http://127.0.0.1:4600"), ("sec-fetch-site", "none"), ("sec-fetch-site", "same-origin")]
)
def test_its_own_pages_and_whoever_types_an_address_are_let_in(more: tuple[str, str]) -> None:
    assert answer([*OWN, more]) == (200, b"inside")


def test_it_may_have_names_of_its_own() -> None:
    assert answer([("host", "emulator:9001")])[0] == 403
    assert answer([("host", "Emulator:9001")], ["emulator"])[0] == 200
    assert answer([("host", "emulator.evil.example:9001")], ["emulator"])[0] == 403


def test_with_keys_a_request_needs_a_signature_but_for_the_health() -> None:
    keys = Keyring()
    fine = list(signed_headers(keys.owner, "POST", "http://127.0.0.1:4600/", b"body").items())
    assert answer([*OWN, *fine], keys=keys, body=b"body") == (200, b"inside")
    for headers, body in ((fine, b"another"), ([], b"body")):
        assert answer([*OWN, *headers], keys=keys, body=body)[0] == 403
    assert answer(OWN, keys=keys, path="/slslab/health") == (200, b"inside")
    assert answer([("host", "evil.example"), *fine], keys=keys, path="/slslab/health")[0] == 403


def test_a_signature_of_another_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = Keyring()
    fine = list(signed_headers(keys.owner, "POST", "http://127.0.0.1:4600/").items())
    assert answer([*OWN, *fine], keys=keys)[0] == 200
    monkeypatch.setattr(signatures, "datetime", Later)
    assert answer([*OWN, *fine], keys=keys)[0] == 403


def test_the_form_of_a_refusal_is_the_protocols() -> None:
    status, body = answer([*OWN, ("content-type", "application/x-amz-json-1.0")], keys=Keyring())
    assert (status, json.loads(body)["__type"]) == (400, "MissingAuthenticationTokenException")


def refused_body(chunks: list[bytes], *more: tuple[str, str]) -> tuple[int, Any, int]:
    """Status and document of the answer to a signed request with this body, and how many chunks of it were read."""
    keys, body = Keyring(), b"".join(chunks)
    fine = list(signed_headers(keys.owner, "POST", "http://127.0.0.1:4600/", body).items())
    left = [*chunks]
    status, answered = answer([*OWN, *fine, *more], keys=keys, chunks=left)
    return status, json.loads(answered) if status != 200 else answered, len(chunks) - len(left)


def test_a_body_may_be_as_large_as_its_limit_and_is_read_no_further() -> None:
    assert refused_body([b"12345", b"67890"]) == (200, b"inside", 2)
    status, document, read = refused_body([b"12345", b"67890", b"1", b"never read"])
    assert (status, document["__type"]) == (413, "RequestEntityTooLargeException")
    assert document["message"] == "Request must be smaller than 10 bytes for the Test operation"
    assert read == 3


@pytest.mark.parametrize("length", ["11", "9" * 400, "-1", "many"])
def test_a_body_that_says_that_it_is_too_long_is_not_read(length: str) -> None:
    status, document, read = refused_body([b"1"], ("content-length", length))
    assert (status, document["__type"], read) == (413, "RequestEntityTooLargeException", 0)


@pytest.mark.parametrize("page", [[], [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")]])
def test_what_is_public_answers_by_its_path_and_its_host_alone(page: list[tuple[str, str]]) -> None:
    keys = Keyring()
    own_host = [("host", "id.public.localhost:4600")]
    for headers, path in ((OWN, "/public/id"), (own_host, "/any"), (own_host, "/slslab/health")):
        assert answer([*headers, *page], keys=keys, path=path) == (200, b"public")
    for headers, path in (
        (OWN, "/public"),
        (OWN, "/2015-03-31/public/"),
        ([("host", "evil.example")], "/public/id"),
        ([("host", "id.public.localhost.evil.example")], "/any"),
        ([("host", "evil.id.public.localhost")], "/any"),
        ([*OWN, ("host", "id.public.localhost")], "/public/id"),
    ):
        status, body = answer([*headers, *page], keys=keys, path=path)
        assert status == 403
        assert b"public" not in body or b"not called" in body
