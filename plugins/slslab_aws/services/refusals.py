"""Refuse, by name, operations that moto would accept without effect, or would perform in its own shadow services."""

from collections.abc import Mapping
from typing import Any

from slslab.aws.errors import ServiceError
from slslab_aws.services import PROTOCOLS
from slslab_aws.services.patterns import pattern_problems
from slslab_aws.services.rule_targets import target_problems
from slslab_aws.services.schedules import schedule_problems
from slslab_aws.services.targets import Targets

REFUSED: Mapping[str, str] = {
    "logs:PutSubscriptionFilter": "logs are fetched when a client reads them, so nothing is delivered: read them with "
    "`aws logs tail --follow`",
    "logs:PutAccountPolicy": "logs are fetched when a client reads them, so nothing is delivered",
    "logs:PutDestination": "slslab doesn't emulate Kinesis or Firehose",
    "logs:CreateExportTask": "it would write to moto's own S3: read them with `aws logs filter-log-events`",
    "logs:CreateDelivery": "it would write to moto's own S3: read them with `aws logs filter-log-events`",
    "dynamodb:ExportTableToPointInTime": "it would write to moto's own S3: read the table with Scan",
    "dynamodb:ImportTable": "it would read from moto's own S3: write the table with BatchWriteItem",
    "events:CreateArchive": "no events are kept: send them again",
    "events:StartReplay": "no events are kept: send them again",
}
# documented: ServiceQuotas.html of DynamoDB: the most bytes of an expression, and of a statement in PartiQL.
LONGEST_EXPRESSION, LONGEST_STATEMENT = 4096, 8192
# documented there: attributes nested in each other, which are objects and lists of JSON inside the request.
MOST_LEVELS = 2 * 32 + 8
# documented: reference_iam-quotas.html: the most characters of any policy, a role's.
LONGEST_POLICY = 10_240


def check(operation: str, members: Mapping[str, Any], targets: Targets) -> None:
    """Raise ServiceError for an operation, such as `sns:Subscribe`, that would not do what it answers."""
    if operation in REFUSED:
        raise _refused(operation, REFUSED[operation])
    if operation == "events:PutTargets":
        for target in members.get("Targets", []):
            for problem in target_problems(target):
                raise _refused(operation, problem)
    elif operation == "events:PutRule":
        _check_rule(members)
    elif operation.startswith("dynamodb:"):
        _check_expressions(members)
    elif len(str(members.get("PolicyDocument", ""))) > LONGEST_POLICY:
        raise ServiceError(409, "LimitExceeded", f"Cannot exceed quota for PolicySize: {LONGEST_POLICY}")
    elif operation == "sns:Subscribe":
        protocol, endpoint = str(members.get("Protocol")), str(members.get("Endpoint"))
        if protocol not in PROTOCOLS:
            raise _refused(operation, f"messages go to {' and '.join(PROTOCOLS)} here, not to {protocol}")
        if protocol == "lambda" and not targets.exists(endpoint):
            raise ServiceError(
                400, "InvalidParameter", f"Invalid parameter: Lambda endpoint: the function {endpoint} does not exist"
            )
    elif operation == "sns:Publish" and not {"TopicArn", "TargetArn"} & members.keys():
        raise _refused(operation, "no message leaves this host: publish to a topic")


def _check_rule(members: Mapping[str, Any]) -> None:
    """Raise ServiceError for a schedule or a pattern that moto would store but can't read."""
    if schedule := str(members.get("ScheduleExpression") or ""):
        for problem in schedule_problems(schedule):
            # not recorded: AWS's message is only the first sentence.
            what = f"Parameter ScheduleExpression is not valid. Reason: {problem}."
            raise ServiceError(400, "ValidationException", what)
    if pattern := str(members.get("EventPattern") or ""):
        for problem in pattern_problems(pattern):
            raise ServiceError(400, "InvalidEventPatternException", f"Event pattern is not valid. Reason: {problem}.")


def _check_expressions(members: Mapping[str, Any]) -> None:
    """Raise ServiceError for a longer expression or a deeper item than DynamoDB accepts; moto would fail at these."""
    for name, value in members.items():
        most = LONGEST_EXPRESSION if name.endswith("Expression") else LONGEST_STATEMENT
        if name.endswith(("Expression", "Statement")) and (size := len(str(value).encode(errors="replace"))) > most:
            # measured by others for a FilterExpression.
            what = f"Invalid {name}: Expression size has exceeded the maximum allowed size; expression size: {size}"
            raise ServiceError(400, "ValidationException", what)
    levels, values = 0, list[Any]([members])
    while values:
        levels += 1
        inner = (each.values() if isinstance(each, dict) else each for each in values)
        values = [value for each in inner for value in each if isinstance(value, dict | list)]
    if levels > MOST_LEVELS:
        # not recorded: AWS's message may be longer.
        raise ServiceError(400, "ValidationException", "Nesting Levels have exceeded supported limits")


def _refused(operation: str, reason: str) -> ServiceError:
    return ServiceError(400, "NotImplemented", f"slslab does not emulate this use of {operation}: {reason}.")
