"""What operations on a function's alias or version have in common."""

import re

from slslab.aws.arns import function_arn
from slslab.aws.errors import ServiceError, missing
from slslab.lambda_.functions import Entry, Functions
from slslab.lambda_.service.call import Call

ALIAS = re.compile(r"(?!\d+$)[a-zA-Z0-9-_]+")


def qualified(functions: Functions, call: Call) -> tuple[Entry, str | None]:
    """Return the function and the qualifier that a request names; what may be an alias is missed as one (recorded)."""
    try:
        functions.resolve(call.name, call.qualifier)
    except ServiceError as error:
        if error.status == 404 and call.qualifier is not None and ALIAS.fullmatch(call.qualifier):
            raise missing(f"Cannot find alias arn: {function_arn(call.name, call.qualifier)}") from error
        raise
    return functions.entry(call.name), call.qualifier
