"""What moto would accept without doing it, or would do in a shadow of its own: refused, by name."""

from collections.abc import Mapping
from typing import Any

from slslab.aws.errors import ServiceError
from slslab_aws.services import PROTOCOLS
from slslab_aws.services.patterns import pattern_problems
from slslab_aws.services.rule_targets import target_problems
from slslab_aws.services.schedules import ScheduleError, read_schedule
from slslab_aws.services.targets import Targets

REFUSED: Mapping[str, str] = {
    "logs:PutSubscriptionFilter": "logs are fetched when somebody reads them, so nothing is delivered: read them with "
    "`aws logs tail --follow`",
    "logs:PutAccountPolicy": "logs are fetched when somebody reads them, so nothing is delivered",
    "logs:PutDestination": "there is no Kinesis and no Firehose",
    "logs:CreateExportTask": "its S3 is not this one: read them with `aws logs filter-log-events`",
    "logs:CreateDelivery": "its S3 is not this one: read them with `aws logs filter-log-events`",
    "dynamodb:ExportTableToPointInTime": "its S3 is not this one: read the table with Scan",
    "dynamodb:ImportTable": "its S3 is not this one: write the table with BatchWriteItem",
    "events:StartReplay": "archives are kept, but not replayed: send the events again",
}
# documented: ServiceQuotas.html of DynamoDB: the most bytes of an expression, and of a statement in PartiQL.
LONGEST_EXPRESSION, LONGEST_STATEMENT = 4096, 8192
# documented there: attributes in each other, which are objects and lists of JSON within a request's own.
MOST_LEVELS = 2 * 32 + 8
# documented: reference_iam-quotas.html: the most characters of any policy, which are those of a role.
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
                400, "InvalidParameter", f"Invalid parameter: Lambda endpoint: there is no function {endpoint}"
            )
    elif operation == "sns:Publish" and not {"TopicArn", "TargetArn"} & members.keys():
        raise _refused(operation, "no message leaves this host: publish to a topic")


def _check_rule(members: Mapping[str, Any]) -> None:
    """Raise ServiceError for a schedule or a pattern that moto would take and not read."""
    if schedule := str(members.get("ScheduleExpression") or ""):
        try:
            read_schedule(schedule)
        except ScheduleError as error:
            # recorded nowhere: AWS's message is the first sentence alone.
            raise ServiceError(
                400, "ValidationException", f"Parameter ScheduleExpression is not valid. Reason: {error}."
            ) from error
    if pattern := str(members.get("EventPattern") or ""):
        for problem in pattern_problems(pattern):
            raise ServiceError(400, "InvalidEventPatternException", f"Event pattern is not valid. Reason: {problem}.")


def _check_expressions(members: Mapping[str, Any]) -> None:
    """Raise ServiceError for a longer expression or a deeper item than DynamoDB takes; moto would fail at these."""
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
        # recorded nowhere: AWS's message may go on.
        raise ServiceError(400, "ValidationException", "Nesting Levels have exceeded supported limits")


def _refused(operation: str, reason: str) -> ServiceError:
    return ServiceError(400, "NotImplemented", f"slslab does not emulate this use of {operation}: {reason}.")
