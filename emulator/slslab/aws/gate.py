"""The gate before every HTTP port of ours: the pages of other web sites stay outside.

A page in a browser on this host can send requests to loopback, and can read the answers when it rebinds its own name to
127.0.0.1. It has no say in three headers, by which the gate recognises it: Host has the name that was called, Origin
and Sec-Fetch-Site tell whose page is asking. AWS's clients send neither of the latter.
https://developer.mozilla.org/en-US/docs/Web/HTTP/Reference/Headers/Sec-Fetch-Site
"""

import ipaddress
import re
from collections.abc import Collection
from functools import lru_cache

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:]+)\]|(?P<name>[^:\[\]]+))(?::\d{1,5})?", re.IGNORECASE)


class Gate:
    """Answers foreign requests with 403, and passes the others on to an ASGI application.

    `names` are what this host is called beside `localhost` and the addresses of loopback.
    """

    def __init__(self, application: ASGIApp, names: Collection[str] = ()) -> None:
        self._application = application
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        why = self._refusal(Headers(scope=scope)) if scope["type"] == "http" else None
        if why is None:
            await self._application(scope, receive, send)
        else:
            headers = {"x-amzn-errortype": "AccessDeniedException"}
            await JSONResponse({"Type": "User", "Message": why}, 403, headers)(scope, receive, send)

    def _refusal(self, headers: Headers) -> str | None:
        """Return why a request with these headers is refused; None if it is not."""
        hosts = headers.getlist("host")
        name = _name(hosts[0]) if len(hosts) == 1 else None
        if name is None or not (name in self._names or _is_loopback(name)):
            return f"This server is not called {', '.join(hosts)!r}. Call it 127.0.0.1 or localhost."
        if any(origin != f"http://{hosts[0]}" for origin in headers.getlist("origin")):
            return "This request comes from another web site's page (Origin). Ask without a browser."
        if any(site not in ("none", "same-origin") for site in headers.getlist("sec-fetch-site")):
            return (
                "This request comes from another web site's page (Sec-Fetch-Site). Type the address into the browser."
            )
        return None


@lru_cache
def _name(host: str) -> str | None:
    """Return the name or address in a Host header, without its port; None if it has none."""
    found = HOST.fullmatch(host)
    return (found["address"] or found["name"]).lower() if found else None


@lru_cache
def _is_loopback(name: str) -> bool:
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
