"""The lock of the live pages: only a browser that was given this start's address is shown anything.

Every user of this host reaches loopback, and so do functions. The address that the command prints has a random token,
as Jupyter's has. Whoever asks with it is sent on to the address without it, and gets a cookie that opens the pages.
"""

import secrets

from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

# Of every answer.
HEADERS = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Lock:
    """Passes requests with the cookie on to an ASGI application, and answers all others with `refusal`."""

    def __init__(self, application: ASGIApp, token: str, port: int, refusal: Response) -> None:
        self._application = application
        self._token = token
        # A browser sends a host's cookies to all its ports. So the name has this one's port, and servers do not replace
        # each other's. The value is not the token, which only those learn who were given the address: what another
        # server gets from a browser that visits it opens the pages until Ctrl-C, but makes no address that does.
        self._name = f"slslab-{port}"
        self._value = secrets.token_urlsafe(32)
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        asked = HTTPConnection(scope)
        answer: ASGIApp = self._refusal
        if _equal(asked.query_params.get("token", ""), self._token):
            answer = self._opened(asked)
        elif _equal(asked.cookies.get(self._name, ""), self._value):
            answer = self._application
        await answer(scope, receive, send)

    def _opened(self, asked: HTTPConnection) -> Response:
        # The path as it was sent: decoded, a run's name may have a question mark.
        path = asked.scope["raw_path"].decode("ascii").removeprefix("/")
        response = RedirectResponse(f"{asked.base_url}{path}", 303, HEADERS)
        response.set_cookie(self._name, self._value, httponly=True, samesite="strict")
        return response


def _equal(given: str, secret: str) -> bool:
    return secrets.compare_digest(given.encode(), secret.encode())
