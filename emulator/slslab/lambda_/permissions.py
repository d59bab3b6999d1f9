"""Operations on the resource-based policies of functions.

https://docs.aws.amazon.com/lambda/latest/api/API_AddPermission.html; a change also changes the RevisionId that
the policy shares with its function, version or alias (recorded).
"""

from slslab.aws.errors import ServiceError, invalid, missing
from slslab.lambda_.api import Answer, Call
from slslab.lambda_.functions import Entry, FunctionResource
from slslab.lambda_.layers import NO_RESOURCE
from slslab.lambda_.policies import Policy, as_text, check_revision, function_statement
from slslab.lambda_.references import LATEST, function_arn


class PolicyOperations(FunctionResource):
    """The operations on policies of one emulator's functions."""

    async def _add_permission(self, call: Call) -> Answer:
        entry, qualifier = self._qualified(call)
        if qualifier == LATEST:
            raise invalid("We currently do not support adding policies for $LATEST.")
        statement = function_statement(call.members, function_arn(entry.latest.name, qualifier))
        policy = entry.policies.get(qualifier or LATEST, Policy())
        check_revision(call.members, _revision(entry, qualifier), "GetPolicy")
        policy.expect_new(statement["Sid"])
        policy.add(statement)
        entry.policies[qualifier or LATEST] = policy
        entry.renew_revision_id(qualifier)
        return {"Statement": as_text(statement)}

    async def _remove_permission(self, call: Call) -> None:
        if not self._functions.exists(call.name):
            raise missing(f"No policy found for: {function_arn(call.name)}")
        entry, qualifier = self._qualified(call)
        policy = entry.policies.get(qualifier or LATEST, Policy())
        policy.expect(call.members["StatementId"])
        check_revision(call.members, _revision(entry, qualifier))
        policy.remove(call.members["StatementId"])
        entry.renew_revision_id(qualifier)

    async def _get_policy(self, call: Call) -> Answer:
        try:
            entry, qualifier = self._qualified(call)
        except ServiceError as error:
            raise missing(NO_RESOURCE) if error.status == 404 else error from error
        policy = entry.policies.get(qualifier or LATEST, Policy())
        if not policy.statements:
            raise missing(NO_RESOURCE)
        return {"Policy": policy.text(), "RevisionId": _revision(entry, qualifier)}


def _revision(entry: Entry, qualifier: str | None) -> str:
    if qualifier in entry.aliases:
        return entry.aliases[qualifier].revision_id
    return entry.versions.get(qualifier or "", entry.latest).revision_id
