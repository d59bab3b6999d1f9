"""A registry of functions without an emulator."""

from typing import Any

from slslab.aws.limits import Limits, lambda_limits
from slslab.lambda_.functions import Functions
from slslab.lambda_.packages import Code
from slslab.testing import ROLE


def make_functions(*names: str, limits: Limits | None = None, **settings: Any) -> Functions:
    """Create functions of these names, without code."""
    functions = Functions(limits or lambda_limits())
    for name in names:
        request = {"FunctionName": name, "Role": ROLE, "Handler": "app.handler", "Runtime": "python3.11", **settings}
        functions.create(request, Code(None, 0, ""))
    return functions
