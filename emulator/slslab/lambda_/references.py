"""Names and ARNs of functions. AWS accepts a name, a partial ARN or an ARN, with a version or an alias behind it.

https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html#API_Invoke_RequestParameters
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.errors import constraint, invalid, missing
from slslab.aws.keys import Principal

LATEST = "$LATEST"
# Programs call a function's URL by its path at the emulator's own address, because some resolvers don't know that names
# below localhost mean loopback (RFC 6761). A browser may call it by its host, so that each URL has its own origin.
URL_PREFIX = "/lambda-url/"
URL_HOST = re.compile(rf"(?P<id>[a-z0-9]{{32}})\.lambda-url\.{REGION}\.localhost")
PATTERN = re.compile(
    r"(arn:aws[a-zA-Z-]*:lambda:)?((?P<region>[a-z]{2,}(-[a-z]+)+-\d):)?((?P<account>\d{12}):)?(function:)?"
    r"(?P<name>[a-zA-Z0-9-_.]+)(:(?P<qualifier>\$?[a-zA-Z0-9-_.]+))?"
)


@dataclass(frozen=True)
class Reference:
    """A request's reference to a function: its name, and the version or alias (None without one)."""

    name: str
    qualifier: str | None = None
    region: str | None = None
    account: str | None = None

    @property
    def arn(self) -> str:
        """The ARN of what it names."""
        return function_arn(self.name, self.qualifier)

    def check_local(self, caller: Principal, action: str) -> None:
        """Raise ServiceError for a function of another account or region (texts measured: recorded from AWS)."""
        if self.account not in (None, ACCOUNT):
            # assumed: functions of other accounts don't allow this one.
            arn = f"arn:aws:lambda:{self.region or REGION}:{self.account}:function:{self.name}"
            raise caller.denied(action, arn, "resource-based")
        if self.region not in (None, REGION):
            raise missing(f"Functions from '{self.region}' are not reachable in this region ('{REGION}')")

    def qualified(self, qualifier: str | None) -> "Reference":
        """Return it with the qualifier from elsewhere in the request, if there is one."""
        if not qualifier:
            return self
        if self.qualifier not in (None, qualifier):
            raise invalid("The derived qualifier from the function name does not match the specified qualifier.")
        return Reference(self.name, qualifier, self.region, self.account)


@lru_cache(1024)
def parse(text: str) -> Reference:
    """Parse a name, a partial ARN or an ARN; ValidationException for anything else."""
    match = PATTERN.fullmatch(text)
    if match is None:
        raise constraint(text, "functionName", f"Member must satisfy regular expression pattern: {PATTERN.pattern}")
    return Reference(match["name"], match["qualifier"], match["region"], match["account"])


def function_arn(name: str, qualifier: str | None = None) -> str:
    """Return the ARN of a function, or of one of its versions or aliases."""
    return f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{name}" + (f":{qualifier}" if qualifier else "")
