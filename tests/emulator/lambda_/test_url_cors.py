"""The CORS configuration of function URLs."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.emulator.lambda_.urls import ECHO, RETURNS, ask, public

pytestmark = pytest.mark.server

Deploy = Callable[..., str]
CORS = {
    "AllowCredentials": True,
    "AllowHeaders": ["x-allowed", "content-type"],
    "AllowMethods": ["GET", "POST"],
    "AllowOrigins": ["https://allowed.example"],
    "ExposeHeaders": ["x-owned"],
    "MaxAge": 321,
}
GRANTED = {
    "access-control-allow-origin": "https://allowed.example",
    "access-control-allow-headers": "x-allowed,content-type",
    "access-control-allow-methods": "GET,POST",
    "access-control-max-age": "321",
    "access-control-allow-credentials": "true",
    "vary": "Origin",
}


@pytest.mark.parametrize(
    ("headers", "granted", "runs"),
    [
        ({"Origin": "https://allowed.example", "Access-Control-Request-Method": "POST"}, GRANTED, 0),
        (
            {
                "Origin": "https://allowed.example",
                "Access-Control-Request-Method": "GET",
                "Access-Control-Request-Headers": "X-Allowed, content-type",
            },
            GRANTED,
            0,
        ),
        ({"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}, {}, 0),
        ({"Origin": "https://allowed.example", "Access-Control-Request-Method": "PUT"}, {}, 0),
        (
            {
                "Origin": "https://allowed.example",
                "Access-Control-Request-Method": "GET",
                "Access-Control-Request-Headers": "x-other",
            },
            {},
            0,
        ),
        ({"Access-Control-Request-Method": "GET"}, {}, 1),
        ({"Origin": "https://evil.example"}, {}, 1),
    ],
)
def test_preflight_requests_are_answered_without_the_function(
    lambda_client: Any, deploy: Deploy, invocations: Any, headers: dict[str, str], granted: dict[str, str], runs: int
) -> None:
    url = public(lambda_client, deploy(ECHO), Cors=CORS)
    status, sent, body = ask(url, "OPTIONS", headers)
    found = {name.lower(): value for name, value in sent}
    assert status == 200
    assert (len(invocations), body == b"") == (runs, runs == 0)
    assert {name: value for name, value in found.items() if name.startswith(("access-control", "vary"))} == granted
    assert found["content-type"] == "application/json"


def test_answers_get_the_headers_of_their_callers_origin(lambda_client: Any, deploy: Deploy) -> None:
    url = public(lambda_client, deploy(RETURNS), Cors=CORS)
    own = {"access-control-allow-origin": "https://own.example", "access-control-expose-headers": "x-handler"}
    body = json.dumps({"statusCode": 200, "headers": own}).encode()

    def shared(origin: str | None) -> list[tuple[str, str]]:
        headers = {"Content-Type": "text/plain"} | ({"Origin": origin} if origin else {})
        sent = ask(url, "POST", headers, body)[1]
        return sorted((name, value) for name, value in sent if name.startswith(("access-control", "vary")))

    assert shared("https://allowed.example") == [
        ("access-control-allow-credentials", "true"),
        ("access-control-allow-origin", "https://allowed.example"),
        ("access-control-allow-origin", "https://own.example"),
        ("access-control-expose-headers", "x-handler,x-owned"),
        ("vary", "Origin"),
    ]
    assert shared("https://evil.example") == shared(None) == sorted(own.items())
