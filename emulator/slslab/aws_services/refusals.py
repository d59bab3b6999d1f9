"""What moto would accept without doing it, or would do in a shadow of its own: refused, by name."""

from collections.abc import Mapping
from typing import Any

from slslab.aws.errors import ServiceError
from slslab.aws_services.targets import Targets

# Where a rule's events go: a service of moto's here, or an emulated one.
RULE_TARGETS = ("sqs", "logs", "events", "lambda", "states")
PROTOCOLS = ("sqs", "lambda")
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


def check(operation: str, members: Mapping[str, Any], targets: Targets) -> None:
    """Raise ServiceError for an operation, such as `sns:Subscribe`, that would not do what it answers."""
    if operation in REFUSED:
        raise _refused(operation, REFUSED[operation])
    if operation == "events:PutTargets":
        for target in members.get("Targets", []):
            arn = str(target.get("Arn"))
            if ":".join(arn.split(":")[2:3]) not in RULE_TARGETS:
                raise _refused(operation, f"the target {arn} is none of {', '.join(RULE_TARGETS)}")
    elif operation == "events:PutRule" and members.get("ScheduleExpression"):
        raise _refused(operation, "schedules do not run here: put the events yourself with PutEvents")
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


def _refused(operation: str, reason: str) -> ServiceError:
    return ServiceError(400, "NotImplemented", f"slslab does not emulate this use of {operation}: {reason}.")
