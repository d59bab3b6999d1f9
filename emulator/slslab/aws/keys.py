"""Manage the keys for calling the emulated services, and what each caller may do.

There are three kinds of principals. The *owner* started the services and may do everything. A *function* may do what
its role allows; its temporary credentials contain its name. A *service* (Step Functions) invokes functions.
"""

import base64
import hmac
import json
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Self

from slslab.aws.arns import ACCOUNT
from slslab.aws.errors import ServiceError
from slslab.aws.policies import Statement, decide, statements
from slslab.errors import RequestError

SESSION_ARN = f"arn:aws:sts::{ACCOUNT}:assumed-role/function"
# What an execution role needs for training. Buckets and their settings are left to the owner.
FUNCTION_ACTIONS = frozenset(
    {
        "lambda:InvokeFunction",
        "states:StartExecution",
        "states:DescribeExecution",
        "states:SendTaskSuccess",
        "states:SendTaskFailure",
        "states:SendTaskHeartbeat",
        "s3:AbortMultipartUpload",
        "s3:DeleteObject",
        "s3:DeleteObjectTagging",
        "s3:DeleteObjectVersion",
        "s3:GetBucketLocation",
        "s3:GetObject",
        "s3:GetObjectAttributes",
        "s3:GetObjectTagging",
        "s3:GetObjectVersion",
        "s3:ListAllMyBuckets",
        "s3:ListBucket",
        "s3:ListBucketMultipartUploads",
        "s3:ListBucketVersions",
        "s3:ListMultipartUploadParts",
        "s3:PutObject",
        "s3:PutObjectTagging",
    }
)
SERVICE_ACTIONS = frozenset({"lambda:InvokeFunction"})


@dataclass(frozen=True)
class Pair:
    """An access key id and its secret access key; temporary ones have a session token."""

    key_id: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `KEY:SECRET`; RequestError for another form."""
        key_id, _, secret = text.partition(":")
        if not re.fullmatch(r"[A-Za-z0-9_]+", key_id) or not secret:
            raise RequestError(
                f"{key_id!r} and its secret can't be used as keys.",
                "use KEY:SECRET, such as test:test; a key id has letters, digits and underscores.",
            )
        return cls(key_id, secret)

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> Self | None:
        """Return the pair in AWS's environment variables, or None."""
        found = [variables.get(name, "") for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")]
        return cls(found[0], found[1], variables.get("AWS_SESSION_TOKEN", "")) if all(found) else None

    def variables(self) -> dict[str, str]:
        """Return AWS's environment variables."""
        token = {"AWS_SESSION_TOKEN": self.token} if self.token else {}
        return {"AWS_ACCESS_KEY_ID": self.key_id, "AWS_SECRET_ACCESS_KEY": self.secret, **token}


@dataclass(frozen=True)
class Principal:
    """The signer of a request. `actions` is what it may do, None for everything; `policy` allows or denies more."""

    arn: str
    actions: frozenset[str] | None = None
    policy: tuple[Statement, ...] = ()

    @property
    def function(self) -> str:
        """The function's name; empty for other principals."""
        role, _, name = self.arn.rpartition("/")
        return name if role == SESSION_ARN else ""

    def may(self, action: str, resource: str, context: Mapping[str, str] = MappingProxyType({})) -> bool:
        """Return whether its own rights allow an action, for instance `lambda:InvokeFunction`.

        `context` holds the request's values for conditions.
        """
        if self.actions is None:
            return True
        decision = decide(self.policy, self.arn, action, resource, context)
        return decision is not False and (decision is True or action in self.actions)

    def require(self, action: str, resource: str) -> None:
        """Raise AccessDeniedException unless it may do this."""
        if not self.may(action, resource):
            raise self.denied(action, resource, "identity-based")

    def denied(self, action: str, resource: str, policy: str) -> ServiceError:
        """Return the AccessDeniedException for what no `policy` of this kind allows (recorded)."""
        return ServiceError(
            403,
            "AccessDeniedException",
            f"User: {self.arn} is not authorized to perform: {action} on resource: {resource} because no {policy} "
            f"policy allows the {action} action",
        )


OWNER = Principal(f"arn:aws:iam::{ACCOUNT}:root")
SERVICE = Principal(f"arn:aws:sts::{ACCOUNT}:assumed-role/service/states", SERVICE_ACTIONS)


class Keyring:
    """The keys of one start. All except given ones are derived from a random `seed`, so another process can rebuild it.

    `owner` is the owner's pair, random by default; `others` are further pairs of the owner. With `temporary`, functions
    and services have their own pairs. Otherwise they share the owner's, as in a compose stack, where the object store
    doesn't accept our tokens. `function_policy` is a policy document that grants functions more, or denies them
    something; RequestError if it can't be enforced.
    """

    def __init__(
        self,
        owner: Pair | None = None,
        others: Iterable[Pair] = (),
        *,
        temporary: bool = True,
        seed: str | None = None,
        function_policy: str = "",
    ) -> None:
        self.seed = seed or secrets.token_hex(32)
        self.owner = owner or self._pair("owner")
        self.owners = (self.owner, *others)
        self._temporary = temporary
        self._function_policy = function_policy
        try:
            self._granted = statements(function_policy, principals=False) if function_policy else ()
        except (ValueError, NotImplementedError) as error:
            raise RequestError(f"The policy of functions cannot be used: {error}.", "see docs/design.md.") from error
        self._secrets = {pair.key_id: pair for pair in self.owners}
        # Each token is verified only once. There is one per function, so this stays small.
        self._sessions: dict[str, tuple[Pair, Principal]] = {}

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> Self:
        """Return the keys of a start with these environment variables. A pair in them belongs to everyone."""
        given = Pair.of(variables)
        return cls(given, temporary=given is None)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the keyring that another process wrote with `text`."""
        stored = json.loads(text)
        owner, *others = (Pair(*pair) for pair in stored.pop("owners"))
        return cls(owner, others, **stored)

    def text(self) -> str:
        """Return the keyring as text, which is secret."""
        owners = [(pair.key_id, pair.secret) for pair in self.owners]
        stored = {"temporary": self._temporary, "seed": self.seed, "function_policy": self._function_policy}
        return json.dumps({"owners": owners, **stored})

    @cached_property
    def service(self) -> Pair:
        """The pair with which services of the stack call each other."""
        return self._pair("service") if self._temporary else self.owner

    def function(self, name: str) -> Pair:
        """Return the pair of a function (or an instance) with this name, which its session token contains.

        The token stays valid until the emulator ends; AWS's tokens expire and are renewed.
        """
        if not self._temporary:
            return self.owner
        token = f"{base64.urlsafe_b64encode(name.encode()).decode()}.{self._digest(f'token of {name}').hex()}"
        return replace(self._pair(f"function {name}", "ASIA"), token=token)

    def find(self, key_id: str, token: str) -> tuple[Pair, Principal]:
        """Return the pair with this key id and session token (empty without one), and its principal.

        Raises UnrecognizedClientException for an unknown pair.
        """
        if token:
            found = self._sessions.get(token) or self._verified(token)
            if found is not None and found[0].key_id == key_id:
                return found
        elif key_id in self._secrets:
            return self._secrets[key_id], OWNER
        elif key_id == self.service.key_id:
            return self.service, SERVICE
        raise ServiceError(
            403,
            "UnrecognizedClientException",
            f"The security token included in the request is invalid. slslab knows no key {key_id}"
            f"{' with this session token' * bool(token)}: use the keys from `slslab env`, or start slslab with "
            "--credentials KEY:SECRET to add yours.",
        )

    def _verified(self, token: str) -> tuple[Pair, Principal] | None:
        try:
            name = base64.urlsafe_b64decode(token.partition(".")[0]).decode()
        except ValueError:
            return None
        pair = self.function(name)
        if not hmac.compare_digest(pair.token.encode(), token.encode()):
            return None
        self._sessions[token] = pair, Principal(f"{SESSION_ARN}/{name}", FUNCTION_ACTIONS, self._granted)
        return self._sessions[token]

    def _pair(self, name: str, kind: str = "AKIA") -> Pair:
        key_id = base64.b32encode(self._digest(f"key of {name}")[:10]).decode()
        return Pair(f"{kind}{key_id}", base64.b64encode(self._digest(f"secret of {name}")[:30]).decode())

    def _digest(self, of: str) -> bytes:
        return hmac.digest(self.seed.encode(), of.encode(), "sha256")
