"""What a function has in addition to its versions: aliases and URLs.

https://docs.aws.amazon.com/lambda/latest/dg/urls-configuration.html
"""

import random
import re
import secrets
import string
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

from slslab.aws.arns import REGION
from slslab.lambda_.references import function_arn

# Programs call a URL by its path at the emulator's own address, because some resolvers don't know that names below
# localhost mean loopback (RFC 6761). A browser may call it by its host, so that each URL has its own origin.
PREFIX = "/lambda-url/"
ALPHABET = string.ascii_lowercase + string.digits
DOMAIN = f"lambda-url.{REGION}.localhost"
HOST = re.compile(rf"(?P<id>[a-z0-9]{{32}})\.{re.escape(DOMAIN)}")
BUFFERED = "BUFFERED"


@dataclass(frozen=True)
class Alias:
    """A name for one version of a function; `weights` is the share of invocations that another version gets."""

    function: str
    name: str
    version: str
    description: str
    revision_id: str
    weights: Mapping[str, float] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the API's AliasConfiguration."""
        document: dict[str, Any] = {
            "AliasArn": function_arn(self.function, self.name),
            "Name": self.name,
            "FunctionVersion": self.version,
            "Description": self.description,
            "RevisionId": self.revision_id,
        }
        return document | ({"RoutingConfig": {"AdditionalVersionWeights": dict(self.weights)}} if self.weights else {})

    def choose(self) -> str:
        """Return the version that an invocation goes to."""
        drawn = random.random()
        for version, weight in self.weights.items():
            if drawn < weight:
                return version
            drawn -= weight
        return self.version


@dataclass(frozen=True)
class FunctionUrl:
    """The configuration of one URL; `id` is the first label of its host, or the first part of its path."""

    arn: str
    auth_type: str
    cors: Mapping[str, Any]
    invoke_mode: str | None
    id: str = field(default_factory=lambda: "".join(secrets.choice(ALPHABET) for _ in range(32)))
    created: str = field(default_factory=lambda: _now())
    modified: str = field(default_factory=lambda: _now())

    @classmethod
    def of(cls, arn: str, request: Mapping[str, Any]) -> Self:
        """Return the URL of a CreateFunctionUrlConfig request."""
        return cls(arn, request["AuthType"], request.get("Cors") or {}, request.get("InvokeMode"))

    def document(self, host: str) -> dict[str, Any]:
        """Return the members that all answers contain. `host` is the host and port by which the client calls us."""
        document = {
            "FunctionUrl": f"http://{host}{PREFIX}{self.id}/",
            "FunctionArn": self.arn,
            "AuthType": self.auth_type,
            **({"Cors": dict(self.cors)} if self.cors else {}),
            "CreationTime": self.created,
        }
        return document | ({"InvokeMode": self.invoke_mode} if self.invoke_mode is not None else {})

    def listed(self, host: str) -> dict[str, Any]:
        """Return the members of GetFunctionUrlConfig's answer."""
        return self.document(host) | {"LastModifiedTime": self.modified, "InvokeMode": self.invoke_mode or BUFFERED}


def called(name: str, path: str) -> tuple[str, str]:
    """Return the URL id in a request's host or path, and the rest of the path."""
    if (found := HOST.fullmatch(name)) is not None:
        return found["id"], path
    url, slash, rest = path.removeprefix(PREFIX).partition("/")
    return url, slash + rest or "/"


def _now() -> str:
    """Return the time with nanoseconds, as AWS writes it (recorded)."""
    now = time.time_ns()
    return f"{datetime.fromtimestamp(now // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{now % 10**9:09}Z"
