"""Resource-based policies: who else may use a function.

https://docs.aws.amazon.com/lambda/latest/dg/access-control-resource-based.html; texts and formats as recorded from AWS.
"""

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slslab.aws.errors import ServiceError, conflict, invalid, missing

Statement = dict[str, Any]
ACCOUNT_ID = re.compile(r"\d{12}")
PRINCIPAL_ARN = re.compile(r"arn:aws[a-z-]*:(iam|sts)::(\d{12}:.+|cloudfront:.+)")
# A service's name has its domain: s3.amazonaws.com, alexa-appkit.amazon.com.
SERVICE = re.compile(r"[a-z0-9.-]+\.(amazonaws\.com(\.cn)?|amazon\.com)")
NO_POLICY = "No policy is associated with the given resource."


@dataclass
class Policy:
    """The statements of one resource, by their ids."""

    statements: dict[str, Statement] = field(default_factory=dict)
    revision: str = ""

    def expect_new(self, sid: str) -> None:
        """Raise ResourceConflictException if a statement with this id exists."""
        if sid in self.statements:
            raise conflict(
                f"The statement id ({sid}) provided already exists. Please provide a new statement id, or remove the "
                "existing statement."
            )

    def expect(self, sid: str) -> None:
        """Raise ResourceNotFoundException unless a statement with this id exists."""
        if sid not in self.statements:
            raise missing(f"Statement {sid} is not found in resource policy." if self.statements else NO_POLICY)

    def add(self, statement: Statement) -> None:
        """Add a statement."""
        self.statements[statement["Sid"]] = statement
        self.revision = str(uuid.uuid4())

    def remove(self, sid: str) -> None:
        """Remove a statement."""
        del self.statements[sid]
        self.revision = str(uuid.uuid4())

    def text(self) -> str:
        """Return the policy as its JSON text."""
        document = {"Version": "2012-10-17", "Id": "default", "Statement": list(self.statements.values())}
        return as_text(document)

    def allows(self, action: str, principal: str | None, values: Mapping[str, str]) -> bool:
        """Return whether a statement allows the action to a caller, given by ARN, or None if unknown.

        `values` are the condition keys of the request; a condition on any other key does not hold.
        """
        return any(
            _matches(statement["Principal"], principal)
            and statement["Action"] in (action, "lambda:*", "*")
            and all(_holds(kind, key, wanted, values) for kind, key, wanted in _conditions(statement))
            for statement in self.statements.values()
        )


def as_text(document: Mapping[str, Any]) -> str:
    """Return a statement or a policy as AWS writes it: JSON without spaces."""
    return json.dumps(document, separators=(",", ":"))


def function_statement(request: Mapping[str, Any], resource: str) -> Statement:
    """Return the statement of an AddPermission request."""
    equal = {
        "AWS:SourceAccount": request.get("SourceAccount"),
        "lambda:EventSourceToken": request.get("EventSourceToken"),
        "aws:PrincipalOrgID": request.get("PrincipalOrgID"),
        "lambda:FunctionUrlAuthType": request.get("FunctionUrlAuthType"),
    }
    conditions: dict[str, dict[str, str]] = {}
    if present := {key: str(value) for key, value in equal.items() if value is not None}:
        conditions["StringEquals"] = present
    if (via_url := request.get("InvokedViaFunctionUrl")) is not None:
        conditions["Bool"] = {"lambda:InvokedViaFunctionUrl": "true" if via_url else "false"}
    if (source := request.get("SourceArn")) is not None:
        conditions["ArnLike"] = {"AWS:SourceArn": str(source)}
    statement = {
        "Sid": request["StatementId"],
        "Effect": "Allow",
        "Principal": _principal(request["Principal"]),
        "Action": request["Action"],
        "Resource": resource,
    }
    return statement | ({"Condition": conditions} if conditions else {})


def check_revision(request: Mapping[str, Any], current: str, where: str = "GetFunction/GetAlias") -> None:
    """Raise PreconditionFailedException if a request names another revision than the current one."""
    if request.get("RevisionId") not in (None, current):
        raise ServiceError(
            412,
            "PreconditionFailedException",
            "The Revision Id provided does not match the latest Revision Id. "
            f"Call the {where} API to retrieve the latest Revision Id",
        )


def _principal(given: str) -> str | dict[str, str]:
    """Return a request's principal in a policy's form: everybody, an account, a user or role, or a service."""
    if given == "*":
        return given
    if ACCOUNT_ID.fullmatch(given):
        return {"AWS": f"arn:aws:iam::{given}:root"}
    if PRINCIPAL_ARN.fullmatch(given):
        return {"AWS": given}
    if SERVICE.fullmatch(given):
        return {"Service": given}
    raise invalid("The provided principal was invalid. Please check the principal and try again.")


def _matches(principal: str | dict[str, str], caller: str | None) -> bool:
    """Return whether a caller is a statement's principal, or a session of its role.

    documented: reference_policies_elements_principal.html: if the principal is an account, the identities' own policies
    decide which of them have access.
    """
    if isinstance(principal, str):
        return principal == "*"
    arn = principal.get("AWS", "")
    role = re.fullmatch(r"arn:(aws[a-z-]*):iam::(\d{12}):role/(?:.*/)?([^/]+)", arn)
    sessions = f"arn:{role[1]}:sts::{role[2]}:assumed-role/{role[3]}/" if role is not None else None
    return caller is not None and (arn == caller or (sessions is not None and caller.startswith(sessions)))


def _conditions(statement: Statement) -> list[tuple[str, str, str]]:
    return [
        (kind, key, wanted) for kind, keys in statement.get("Condition", {}).items() for key, wanted in keys.items()
    ]


def _holds(kind: str, key: str, wanted: str, values: Mapping[str, str]) -> bool:
    return kind in ("StringEquals", "Bool") and values.get(key) == wanted
