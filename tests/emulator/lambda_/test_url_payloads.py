"""What a function URL makes of a function's answer."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slslab.lambda_.urls import FAILED, UrlAnswer, answer, make_event

JSON = ("content-type", "application/json")


@pytest.mark.parametrize(
    ("returned", "status", "headers", "body"),
    [
        ({"hello": ["ö", 1]}, 200, [JSON], '{"hello":["ö",1]}'.encode()),
        ("hello owned", 200, [JSON], b"hello owned"),
        (None, 200, [JSON], b"null"),
        (3.1, 200, [JSON], b"3.1"),
        (["hello", 3, True], 200, [JSON], b'["hello",3,true]'),
        ({"statusCode": 200, "body": "body123"}, 200, [JSON], b"body123"),
        ({"statusCode": "201"}, 201, [JSON], b""),
        ({"statusCode": 200, "body": {"not": "string"}}, 200, [JSON], b'{"not":"string"}'),
        (
            {
                "statusCode": 202,
                "headers": {"Content-Type": "text/html", "X-Owned": "yes", "Set-Cookie": "header=c"},
                "cookies": ["a=1; Path=/", "b=2; HttpOnly"],
                "body": "x",
            },
            202,
            [
                ("content-type", "text/html"),
                ("x-owned", "yes"),
                ("set-cookie", "header=c"),
                ("set-cookie", "a=1; Path=/"),
                ("set-cookie", "b=2; HttpOnly"),
            ],
            b"x",
        ),
        ({"statusCode": 200, "isBase64Encoded": True, "body": "AAEC/w=="}, 200, [JSON], b"\x00\x01\x02\xff"),
        ({"statusCode": 200, "isBase64Encoded": True, "body": "!!AAEC_w!!"}, 200, [JSON], b"\x00\x01\x02\xff"),
        ({"statusCode": 200, "headers": {"x-owned": {"bad": True}}}, 200, [("x-owned", "{bad=true}"), JSON], b""),
        ({"statusCode": 200, "headers": {"Content-Length": "9", "Connection": "close"}}, 200, [JSON], b""),
        ({"statusCode": 204, "body": "nothing of this"}, 204, [JSON], b""),
        ({"statusCode": 700}, *(FAILED.status, FAILED.headers, FAILED.body)),
        ({"statusCode": 101}, *(FAILED.status, FAILED.headers, FAILED.body)),
        ({"statusCode": True}, *(FAILED.status, FAILED.headers, FAILED.body)),
        ({"statusCode": 200, "headers": {"x": "a\r\nset-cookie: b"}}, *(FAILED.status, FAILED.headers, FAILED.body)),
        ({"statusCode": 200, "headers": {"no token": "a"}}, *(FAILED.status, FAILED.headers, FAILED.body)),
    ],
)
def test_what_a_function_returns_becomes_the_response(
    returned: Any, status: int, headers: list[tuple[str, str]], body: bytes
) -> None:
    payload = json.dumps(returned).encode()
    made = answer(payload)
    assert (made.status, list(made.headers)) == (status, list(headers))
    assert made.body == body


def test_a_failure_is_an_internal_error() -> None:
    assert answer(None) == answer(None, streamed=True) == FAILED
    assert UrlAnswer(502, (("content-type", "application/json"),), b"Internal Server Error") == FAILED


def test_a_url_that_streams_has_the_payload_as_its_body() -> None:
    payload = b'{"statusCode": 418, "headers": {"x-own": "y"}, "body": "z"}'
    assert answer(payload, streamed=True) == UrlAnswer(418, [("x-own", "y"), JSON], payload)
    assert answer(b'"text"', streamed=True) == UrlAnswer(200, (JSON,), b'"text"')
    assert answer(b'{"statusCode": 204}', streamed=True) == UrlAnswer(204, [JSON], b"")


@pytest.mark.parametrize("streamed", [True, False])
def test_a_runtime_that_streams_may_describe_its_response(streamed: bool) -> None:
    described = b'{"statusCode": 206, "headers": {"Content-Type": "text/plain"}, "cookies": ["a=1"]}' + bytes(8)
    headers = [("content-type", "text/plain"), ("set-cookie", "a=1")]
    body = b"bytes" + bytes(9)
    assert answer(described + body, streamed=streamed) == UrlAnswer(206, headers, body if streamed else b"")
    assert answer(b"{}" + bytes(8) + body, streamed=streamed) == UrlAnswer(200, [JSON], body if streamed else b"")
    for bare in (b"bytes", b"3" + bytes(8), b"\xff" + bytes(8) + b"{}"):
        assert answer(bare, streamed=streamed) == UrlAnswer(200, (("content-type", "application/octet-stream"),), bare)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
DESCRIBED = st.fixed_dictionaries(
    {"statusCode": st.integers(199, 600) | VALUES},
    optional={
        "headers": st.dictionaries(st.text(), VALUES) | VALUES,
        "cookies": st.lists(VALUES) | VALUES,
        "body": VALUES,
        "isBase64Encoded": st.booleans() | VALUES,
    },
)


@given(returned=DESCRIBED | VALUES, streamed=st.booleans())
def test_whatever_a_function_returns_is_a_response_that_a_server_can_send(returned: Any, streamed: bool) -> None:
    made = answer(json.dumps(returned).encode(), streamed=streamed)
    assert 200 <= made.status <= 599
    for name, value in made.headers:
        assert re.fullmatch(r"[!-~]+", name)
        assert name == name.lower()
        assert not {"\r", "\n", "\0"} & set(value)
        value.encode()


def test_half_a_surrogate_and_a_deep_answer_are_no_defect() -> None:
    assert answer(b'{"statusCode": 200, "headers": {"x": "\\ud800"}, "body": "\\ud800"}') == UrlAnswer(
        200, [("x", "?"), JSON], b"?"
    )
    assert answer(b'{"statusCode": 200, "headers": {"x": {"\\ud800": 1}}}').headers[0] == ("x", "{?=1}")
    deep = b'{"statusCode": 200, "body": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert answer(deep) == FAILED


def event_of(path: str = "/", body: bytes = b"", **headers: str) -> bytes:
    """Return the event for a request to the URL `id`; header names have underscores."""
    given = [
        (name.replace("_", "-").encode(), value.encode()) for name, value in {"host": "id.host", **headers}.items()
    ]
    scope = {"method": "POST", "headers": given, "query_string": b"", "client": ("127.0.0.1", 1)}
    return make_event(scope, "id", path, body, "request", "trace")


def test_an_event_has_its_path_decoded_and_as_it_was_sent() -> None:
    event = json.loads(event_of("/a%20b//c%2Fd"))
    assert (event["rawPath"], event["requestContext"]["http"]["path"]) == ("/a%20b//c%2Fd", "/a b/c/d")


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1:4566", "4566"), ("id.host", "80"), ("localhost:9001", "9001")])
def test_an_event_names_the_port_that_its_client_called(host: str, port: str) -> None:
    assert json.loads(event_of(host=host))["headers"]["x-forwarded-port"] == port


def test_an_event_has_text_as_utf_8() -> None:
    """An escape takes 6 bytes of its limit for a character of 2."""
    text = "é" * 1000
    event = event_of(body=text.encode(), content_type="text/plain")
    assert json.loads(event)["body"] == text
    assert len(event) < 3000
