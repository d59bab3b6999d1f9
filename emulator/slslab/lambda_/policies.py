"""Resource-based policies: who else may use a function, and the operations on them.

https://docs.aws.amazon.com/lambda/latest/dg/access-control-resource-based.html; texts and formats as recorded from AWS.
"""

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from slslab.aws.errors import conflict, invalid, missing
from slslab.lambda_.api import Answer, Call
from slslab.lambda_.functions import Entry, FunctionResource, Policy, Statement, check_revision
from slslab.lambda_.layers import NO_RESOURCE
from slslab.lambda_.references import LATEST, function_arn

ACCOUNT_ID = re.compile(r"\d{12}")
PRINCIPAL_ARN = re.compile(r"arn:aws[a-z-]*:(iam|sts)::(\d{12}:.+|cloudfront:.+)")
# A service's name has its domain: s3.amazonaws.com, alexa-appkit.amazon.com.
SERVICE = re.compile(r"[a-z0-9.-]+\.(amazonaws\.com(\.cn)?|amazon\.com)")
# For each member of AddPermission that becomes a condition, its operator and key.
CONDITIONS = {
    "SourceAccount": ("StringEquals", "AWS:SourceAccount"),
    "EventSourceToken": ("StringEquals", "lambda:EventSourceToken"),
    "PrincipalOrgID": ("StringEquals", "aws:PrincipalOrgID"),
    "FunctionUrlAuthType": ("StringEquals", "lambda:FunctionUrlAuthType"),
    "InvokedViaFunctionUrl": ("Bool", "lambda:InvokedViaFunctionUrl"),
    "SourceArn": ("ArnLike", "AWS:SourceArn"),
}
NO_POLICY = "No policy is associated with the given resource."


class PolicyOperations(FunctionResource):
    """The operations on policies of one emulator's functions.

    A change also changes the RevisionId that the policy shares with its function, version or alias (recorded).
    """

    async def _add_permission(self, call: Call) -> Answer:
        entry, qualifier = self._qualified(call), call.qualifier
        if qualifier == LATEST:
            raise invalid("We currently do not support adding policies for $LATEST.")
        statement = function_statement(call.members, function_arn(entry.latest.name, qualifier))
        policy, sid = entry.policies.get(qualifier or LATEST, {}), statement["Sid"]
        check_revision(call.members, _revision(entry, qualifier), "GetPolicy")
        if sid in policy:
            raise conflict(
                f"The statement id ({sid}) provided already exists. Please provide a new statement id, or remove the "
                "existing statement."
            )
        entry.policies[qualifier or LATEST] = policy | {sid: statement}
        entry.renew_revision_id(qualifier)
        return {"Statement": _as_text(statement)}

    async def _remove_permission(self, call: Call) -> None:
        if not self._functions.exists(call.name):
            raise missing(f"No policy found for: {function_arn(call.name)}")
        entry, qualifier = self._qualified(call), call.qualifier
        policy, sid = entry.policies.get(qualifier or LATEST, {}), call.members["StatementId"]
        if sid not in policy:
            raise missing(f"Statement {sid} is not found in resource policy." if policy else NO_POLICY)
        check_revision(call.members, _revision(entry, qualifier))
        del policy[sid]
        entry.renew_revision_id(qualifier)

    async def _get_policy(self, call: Call) -> Answer:
        entry = self._qualified(call, NO_RESOURCE)
        policy = entry.policies.get(call.qualifier or LATEST)
        if not policy:
            raise missing(NO_RESOURCE)
        document = {"Version": "2012-10-17", "Id": "default", "Statement": list(policy.values())}
        return {"Policy": _as_text(document), "RevisionId": _revision(entry, call.qualifier)}


def _revision(entry: Entry, qualifier: str | None) -> str:
    if qualifier in entry.aliases:
        return str(entry.aliases[qualifier]["RevisionId"])
    return entry.versions.get(qualifier or "", entry.latest).revision_id


def allows(policy: Policy, action: str, principal: str | None, values: Mapping[str, str]) -> bool:
    """Return whether a statement allows the action to a caller, given by ARN, or None if unknown.

    `values` are the condition keys of the request; a condition on any other key does not hold.
    """
    return any(
        _matches(statement["Principal"], principal)
        and statement["Action"] in (action, "lambda:*", "*")
        and _holds(statement.get("Condition", {}), values)
        for statement in policy.values()
    )


def _as_text(document: Mapping[str, Any]) -> str:
    """Return a statement or a policy as AWS writes it: JSON without spaces."""
    return json.dumps(document, separators=(",", ":"))


def function_statement(request: Mapping[str, Any], resource: str) -> Statement:
    """Return the statement of an AddPermission request."""
    conditions: dict[str, dict[str, str]] = defaultdict(dict)
    for member, (operator, key) in CONDITIONS.items():
        if member in request:
            given = request[member]
            conditions[operator][key] = given if isinstance(given, str) else json.dumps(given)
    statement = {
        "Sid": request["StatementId"],
        "Effect": "Allow",
        "Principal": _principal(request["Principal"]),
        "Action": request["Action"],
        "Resource": resource,
    }
    return statement | ({"Condition": conditions} if conditions else {})


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


def _holds(conditions: Mapping[str, Mapping[str, str]], values: Mapping[str, str]) -> bool:
    return all(
        kind in ("StringEquals", "Bool") and values.get(key) == wanted
        for kind, keys in conditions.items()
        for key, wanted in keys.items()
    )
