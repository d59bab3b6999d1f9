"""What a function has in addition to its versions: aliases, the handling of its events, event sources, and URLs.

https://docs.aws.amazon.com/lambda/latest/api/API_FunctionEventInvokeConfig.html and
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

from slslab.aws.arns import ACCOUNT, REGION
from slslab.lambda_.references import Reference, function_arn

# Programs call a URL by its path at the emulator's own address, because some resolvers don't know that names below
# localhost mean loopback (RFC 6761). A browser may call it by its host, so that each URL has its own origin.
PREFIX = "/lambda-url/"
ALPHABET = string.ascii_lowercase + string.digits
DOMAIN = f"lambda-url.{REGION}.localhost"
HOST = re.compile(rf"(?P<id>[a-z0-9]{{32}})\.{re.escape(DOMAIN)}")
BUFFERED = "BUFFERED"
# The messages of a batch, unless a mapping says otherwise.
BATCH_SIZE = 10


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
class EventInvokeConfig:
    """The event settings of one function, version or alias; None means Lambda's default."""

    arn: str = ""
    maximum_retry_attempts: int | None = None
    maximum_event_age_s: int | None = None
    destinations: Mapping[str, str] = field(default_factory=dict)
    last_modified: float = 0.0

    def document(self) -> dict[str, Any]:
        """Return the API's FunctionEventInvokeConfig."""
        limits = {
            "MaximumRetryAttempts": self.maximum_retry_attempts,
            "MaximumEventAgeInSeconds": self.maximum_event_age_s,
        }
        return {
            "LastModified": self.last_modified,
            "FunctionArn": self.arn,
            **{name: value for name, value in limits.items() if value is not None},
            "DestinationConfig": {
                kind: {"Destination": self.destinations[kind]} if self.destinations.get(kind) else {}
                for kind in ("OnSuccess", "OnFailure")
            },
        }


@dataclass(frozen=True)
class EventSourceMapping:
    """One mapping: which queue invokes which function, and how."""

    id: str
    queue: str
    function: Reference
    enabled: bool = True
    batch_size: int = BATCH_SIZE
    window_s: int = 0
    reports_failures: bool = False
    most_concurrent: int | None = None
    modified: float = 0.0

    def document(self, state: str = "") -> dict[str, Any]:
        """Return the API's EventSourceMappingConfiguration; AWS names a `state` while it changes."""
        scaling = {} if self.most_concurrent is None else {"MaximumConcurrency": self.most_concurrent}
        return {
            "UUID": self.id,
            "BatchSize": self.batch_size,
            "MaximumBatchingWindowInSeconds": self.window_s,
            "EventSourceArn": self.queue,
            "EventSourceMappingArn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:event-source-mapping:{self.id}",
            "FunctionArn": self.function.arn,
            "LastModified": self.modified,
            "State": state or ("Enabled" if self.enabled else "Disabled"),
            "StateTransitionReason": "USER_INITIATED",
            "FunctionResponseTypes": ["ReportBatchItemFailures"] if self.reports_failures else [],
            **({"ScalingConfig": scaling} if scaling else {}),
        }


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
