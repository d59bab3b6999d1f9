"""What a function URL's CORS configuration answers and adds (recorded).

https://docs.aws.amazon.com/lambda/latest/dg/urls-configuration.html#urls-cors
"""

from collections.abc import Mapping, Sequence
from typing import Any

from slslab.lambda_.url_payloads import UrlAnswer

Headers = Sequence[tuple[str, str]]


def preflight(cors: Mapping[str, Any], method: str, headers: Mapping[str, str]) -> UrlAnswer | None:
    """Return the answer to a preflight request, for which no function runs; None for any other request."""
    wanted = headers.get("access-control-request-method")
    if not cors or method != "OPTIONS" or wanted is None or "origin" not in headers:
        return None
    names = [name.strip() for name in headers.get("access-control-request-headers", "").split(",") if name.strip()]
    plain = [("content-type", "application/json")]
    allowed = (
        _allows(cors, "AllowOrigins", headers["origin"])
        and _allows(cors, "AllowMethods", wanted)
        and all(_allows(cors, "AllowHeaders", name) for name in names)
    )
    if not allowed:
        return UrlAnswer(200, plain)
    granted = [*plain, ("access-control-allow-origin", headers["origin"]), ("vary", "Origin")]
    for member in ("AllowHeaders", "AllowMethods"):
        if cors.get(member):
            granted.append((f"access-control-allow-{member.removeprefix('Allow').lower()}", ",".join(cors[member])))
    if cors.get("MaxAge") is not None:
        granted.append(("access-control-max-age", str(cors["MaxAge"])))
    return UrlAnswer(200, [*granted, *_credentials(cors)])


def shared(cors: Mapping[str, Any], origin: str | None, headers: Headers) -> Headers:
    """Return the headers of a function's answer, plus CORS headers if its caller's origin is allowed."""
    if origin is None or not _allows(cors, "AllowOrigins", origin):
        return headers
    exposed = [value for name, value in headers if name == "access-control-expose-headers"]
    exposed += cors.get("ExposeHeaders") or []
    return [
        *(header for header in headers if header[0] != "access-control-expose-headers"),
        ("access-control-allow-origin", origin),
        ("vary", "Origin"),
        *([("access-control-expose-headers", ",".join(exposed))] if exposed else []),
        *_credentials(cors),
    ]


def _allows(cors: Mapping[str, Any], member: str, value: str) -> bool:
    """Return whether a list of the configuration contains a value, ignoring case, or the asterisk.

    assumed: an origin that the asterisk allows is answered by its name, like any other.
    """
    return any(each == "*" or each.lower() == value.lower() for each in cors.get(member) or ())


def _credentials(cors: Mapping[str, Any]) -> Headers:
    return [("access-control-allow-credentials", "true")] if cors.get("AllowCredentials") else []
