"""Define state machines, and check what identifies them."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.errors import ServiceError
from slslab.lambda_.configuration import ROLE

PREFIX = f"arn:aws:states:{REGION}:{ACCOUNT}"
# documented: API_StartExecution.html: "A name must not contain" white space, brackets, wildcards, special and control
# characters.
NAME = re.compile(r"[^\s<>{}\[\]?*\"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f]{1,80}")
# documented: API_TagResource.html
MOST_TAGS = 50


@dataclass(frozen=True)
class Machine:
    """One revision of a state machine. Times are seconds since the epoch."""

    name: str
    definition: str
    role: str
    program: Any = field(compare=False)
    settings: Mapping[str, Any]
    tags: Mapping[str, str] = field(compare=False)
    created: float = field(default_factory=time.time)
    updated: float = 0.0
    revision: str = ""

    @property
    def arn(self) -> str:
        """The machine's ARN."""
        return f"{PREFIX}:stateMachine:{self.name}"


def check_name(name: str) -> None:
    """Raise ServiceError (InvalidName) for an invalid name of a machine or execution."""
    if not NAME.fullmatch(name):
        raise ServiceError(400, "InvalidName", f"Invalid Name: '{name}'")


def check_arn(arn: str, kind: str) -> None:
    """Raise ServiceError (InvalidArn) unless the ARN is that kind's: `stateMachine` or `execution`."""
    if not arn.startswith("arn:"):
        raise bad_arn(f"Invalid ARN prefix: {arn}")
    if not re.fullmatch(rf"arn:aws:states:[a-z0-9-]+:\d{{12}}:{kind}:[^\s]+", arn):
        # assumed: the text
        raise bad_arn(f"Invalid ARN: {arn}")


def bad_arn(what: str) -> ServiceError:
    """Return InvalidArn, status 400."""
    return ServiceError(400, "InvalidArn", f"Invalid Arn: '{what}'")


def within_limit(tags: Mapping[str, str]) -> Mapping[str, str]:
    """Return a machine's tags; ServiceError (TooManyTags) for more than MOST_TAGS."""
    if len(tags) > MOST_TAGS:
        # assumed: the text
        raise ServiceError(
            400, "TooManyTags", f"You've exceeded the number of tags allowed for a resource: {MOST_TAGS}"
        )
    return tags


def check_role(role: str) -> str:
    """Return a role's ARN; ServiceError (InvalidArn) if it is invalid."""
    if not ROLE.fullmatch(role):
        raise ServiceError(400, "InvalidArn", f"Invalid Role Arn: '{role}'")
    return role
