"""The lock of the live pages: they only open for a browser that was given this start's address.

Every user and every function on this host can reach loopback. So the address that the command prints contains a random
token, as Jupyter's does. A browser that opens it is redirected to the address without the token, and gets a cookie that
opens the pages.
"""

import secrets

from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

# Headers of every answer.
HEADERS = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Lock:
    """Passes requests with the cookie to an ASGI application, and answers all others with `refusal`."""

    def __init__(self, application: ASGIApp, token: str, port: int, refusal: Response) -> None:
        self._application = application
        self._token = token
        # A browser sends a host's cookies to all its ports, so the name contains this port to keep servers from
        # replacing each other's. The value isn't the token: another server that receives the cookie could open the
        # pages until Ctrl-C, but couldn't make the address that sets it.
        self._name = f"slslab-{port}"
        self._value = secrets.token_urlsafe(32)
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = HTTPConnection(scope)
        answer: ASGIApp = self._refusal
        if _equal(asked.query_params.get("token", ""), self._token):
            answer = self._opened(asked)
        elif _equal(asked.cookies.get(self._name, ""), self._value):
            answer = self._application
        await answer(scope, receive, send)

    def _opened(self, asked: HTTPConnection) -> Response:
        # The path as it was sent: decoded, a run's name may contain a question mark.
        path = asked.scope["raw_path"].decode("ascii").removeprefix("/")
        response = RedirectResponse(f"{asked.base_url}{path}", 303, HEADERS)
        response.set_cookie(self._name, self._value, httponly=True, samesite="strict")
        return response


def _equal(given: str, secret: str) -> bool:
    return secrets.compare_digest(given.encode(), secret.encode())
