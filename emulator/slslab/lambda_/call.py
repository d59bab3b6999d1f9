"""A call of an operation, which every handler gets, and the types of a handler's answer."""

import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from botocore import xform_name
from starlette.datastructures import Headers
from starlette.requests import Request

from slslab.aws.errors import invalid
from slslab.aws.heads import WholeResponse
from slslab.aws.requests import Members, service_model
from slslab.lambda_.references import LATEST, Reference

PAGE = 50
FUNCTIONS_ONLY = (
    "This operation is permitted on Lambda functions only. Aliases and versions do not support this operation. Please "
    "specify either a function name or an unqualified function ARN."
)


@dataclass(frozen=True)
class Call:
    """One request of an operation: its members, which comply with AWS's model, the request itself, and its function."""

    members: Members
    request: Request
    function: Reference | None = None

    @property
    def headers(self) -> Headers:
        """The request's headers."""
        headers: Headers = self.request.scope["state"]["headers"]
        return headers

    @property
    def body(self) -> bytes:
        """The request's body, which the gate has read."""
        body: bytes = self.request.scope["state"]["body"]
        return body

    @property
    def name(self) -> str:
        """The name of the function that the request is about."""
        assert self.function is not None
        return self.function.name

    @property
    def qualifier(self) -> str | None:
        """The version or alias that the request asks for, in the function's ARN or next to it."""
        assert self.function is not None
        return self.function.qualifier

    @property
    def unqualified(self) -> str:
        """The name of the function; an error if the request names a version or an alias."""
        if self.qualifier not in (None, LATEST):
            raise invalid(FUNCTIONS_ONLY)
        return self.name

    def page(self, key: str, documents: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """Return one page of a list in the order of its keys.

        The marker names the last key of the page, so that a deletion between two pages hides nothing.
        """
        size, marker = self.members.get("MaxItems", PAGE), self.members.get("Marker") or ""
        try:
            last = base64.urlsafe_b64decode(marker.encode()).decode()
        except ValueError as error:
            raise invalid(f"Invalid marker: {marker}") from error
        left = sorted(name for name in documents if not marker or name > last)
        shown = left[: min(PAGE, size)]
        document: dict[str, Any] = {key: [documents[name] for name in shown]}
        if len(shown) < len(left):
            document["NextMarker"] = base64.urlsafe_b64encode(shown[-1].encode()).decode()
        return document


Answer = Mapping[str, Any]
# The members of an answer, None for an answer without a body (status 204), or a whole response.
Handler = Callable[[Call], Awaitable[Answer | WholeResponse | None]]


class Operations:
    """Operations of Lambda's API: the handler of CreateAlias is a method `_create_alias`, which boto3 has, too."""

    def handlers(self) -> dict[str, Handler]:
        """Return the handler of each operation."""
        methods = {name: f"_{xform_name(name)}" for name in service_model("lambda").operation_names}
        return {name: getattr(self, method) for name, method in methods.items() if hasattr(self, method)}
