"""Find errors of a resource before anything is made, with the services' own checks where they exist.

Properties are resolved and comply with CloudFormation's registry. Each sentence comes without its full stop.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slslab.aws.errors import ServiceError
from slslab.aws.limits import lambda_limits
from slslab.aws.policies import statements
from slslab.aws.requests import members
from slslab.lambda_.attachments import EventSourceMapping
from slslab.lambda_.configuration import settings
from slslab.lambda_.event_sources import check_source, with_request
from slslab.lambda_.policies import function_statement
from slslab.lambda_.references import parse
from slslab.object_store.buckets import ADDRESS, NAME
from slslab.statemachines.definitions import check_settings, problems
from slslab.statemachines.machines import check_name, check_role
from slslab_aws.deploy.expansion import LOCAL
from slslab_aws.deploy.other_resources import table_members
from slslab_aws.deploy.resources import Made, Properties, definition, function_members, machine_settings
from slslab_aws.services import PROTOCOLS
from slslab_aws.services.patterns import pattern_problems
from slslab_aws.services.rule_targets import target_problems
from slslab_aws.services.schedules import ScheduleError, read_schedule

Files = Mapping[str, bytes]
# documented: API_CreateQueue.html
QUEUE_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
FIFO_NAME = re.compile(r"[A-Za-z0-9_-]{1,75}\.fifo")
# documented: API_CreateTable.html, API_CreateTopic.html
TABLE_NAME = re.compile(r"[a-zA-Z0-9_.-]{3,255}")
TOPIC_NAME = re.compile(r"[A-Za-z0-9_-]{1,256}")
# documented: API_PutTargets.html; rules here use the first ones, and only store the last two.
TARGET_MEMBERS = frozenset("Arn Id Input InputPath InputTransformer SqsParameters RoleArn RetryPolicy".split())
MOST_TARGETS = 5
# documented: API_CreateQueue.html
VISIBLE_S = 30
DEFINITIONS = ("Definition", "DefinitionS3Location", "DefinitionString")


@dataclass(frozen=True)
class Planned:
    """A resource as it will be made: its type, its properties, and the values of Ref and its attributes."""

    kind: str
    properties: Properties
    made: Made


def nothing(_properties: Properties, _files: Files) -> Iterator[str]:
    yield from ()


def _refused(call: Callable[[], object]) -> Iterator[str]:
    """Yield the message of a service's refusal, if the call raises one."""
    try:
        call()
    except ServiceError as error:
        yield error.message.rstrip(".")


def lambda_members(operation: str, *named: str) -> Callable[[Properties, Files], Iterator[str]]:
    """Return a check by Lambda's model of an operation; slslab names the members `named` itself."""

    def check(properties: Properties, _files: Files) -> Iterator[str]:
        request = json.dumps({**dict.fromkeys(named, "name"), **properties}).encode()
        yield from _refused(lambda: members("lambda", operation, request))

    return check


def permission(properties: Properties, files: Files) -> Iterator[str]:
    """Yield the errors that AddPermission would return."""
    yield from lambda_members("AddPermission", "StatementId")(properties, files)
    yield from _refused(lambda: function_statement({"StatementId": "name", **properties}, "*"))


def url(properties: Properties, files: Files) -> Iterator[str]:
    """Yield the errors that CreateFunctionUrlConfig would return."""
    given = {name: value for name, value in properties.items() if name != "TargetFunctionArn"}
    named = {**given, "FunctionName": properties["TargetFunctionArn"]}
    yield from lambda_members("CreateFunctionUrlConfig")(named, files)


def table(properties: Properties, _files: Files) -> Iterator[str]:
    """Yield the errors that CreateTable would return."""
    if not TABLE_NAME.fullmatch(name := properties.get("TableName", "none")):
        yield f"{name!r} cannot be the name of a table"
    provisioned = properties.get("BillingMode", "PROVISIONED") == "PROVISIONED"
    if "ProvisionedThroughput" in properties and not provisioned:
        yield "ProvisionedThroughput cannot be specified when BillingMode is PAY_PER_REQUEST"
    elif "BillingMode" in properties and provisioned and "ProvisionedThroughput" not in properties:
        yield "BillingMode PROVISIONED needs ProvisionedThroughput"
    request = json.dumps({"TableName": "name", **table_members(properties)}).encode()
    if found := list(_refused(lambda: members("dynamodb", "CreateTable", request))):
        yield from found
        return
    indexes = [*properties.get("GlobalSecondaryIndexes", ()), *properties.get("LocalSecondaryIndexes", ())]
    for each in (properties, *indexes):
        if [key["KeyType"] for key in each["KeySchema"]] not in (["HASH"], ["HASH", "RANGE"]):
            yield "a KeySchema must have one HASH key, and one RANGE key at most after it"
    keys = sorted({key["AttributeName"] for each in (properties, *indexes) for key in each["KeySchema"]})
    defined = sorted(each["AttributeName"] for each in properties.get("AttributeDefinitions", ()))
    if keys != defined:
        yield f"AttributeDefinitions must name the keys, {', '.join(keys)}, not {', '.join(defined) or 'none'}"


def function(properties: Properties, _files: Files) -> Iterator[str]:
    """Yield the errors that CreateFunction would return."""
    request = json.dumps({"FunctionName": "name", **function_members(properties), "Code": properties["Code"]}).encode()
    yield from _refused(lambda: settings(members("lambda", "CreateFunction", request), lambda_limits()))


def source(properties: Properties, _files: Files) -> Iterator[str]:
    """Yield the errors that CreateEventSourceMapping would return."""

    def create() -> None:
        request = members("lambda", "CreateEventSourceMapping", json.dumps(properties).encode())
        queue = str(request.get("EventSourceArn", ""))
        check_source(queue)
        with_request(EventSourceMapping("", queue, parse(request["FunctionName"])), request)

    yield from _refused(create)


def visibility(mapping: Planned, others: Iterable[Planned]) -> Iterator[str]:
    """Yield why a queue of the template can't feed a function of the template: its messages return too early."""
    if mapping.kind != "AWS::Lambda::EventSourceMapping":
        return
    name = str(mapping.properties.get("FunctionName")).split(":function:")[-1].split(":")[0]
    queue, function = mapping.properties.get("EventSourceArn"), ("AWS::Lambda::Function", name)
    visible = [
        each.properties.get("VisibilityTimeout", VISIBLE_S)
        for each in others
        if each.kind == "AWS::SQS::Queue" and each.made.attributes["Arn"] == queue
    ]
    timeouts = [
        each.properties.get("Timeout", lambda_limits().timeout_s.default)
        for each in others
        if (each.kind, each.made.ref) == function
    ]
    for visible_s, timeout_s in zip(visible, timeouts, strict=False):
        if isinstance(visible_s, int) and isinstance(timeout_s, int) and visible_s < timeout_s:
            yield f"Queue visibility timeout: {visible_s} seconds is less than Function timeout: {timeout_s} seconds"


def machine(properties: Properties, files: Files) -> Iterator[str]:
    """Yield the errors that CreateStateMachine would return."""
    if len([name for name in DEFINITIONS if name in properties]) != 1:
        yield f"a state machine has one of {', '.join(DEFINITIONS)}"
        return
    if properties.get("StateMachineType", "STANDARD") != "STANDARD":
        yield "slslab only emulates state machines of the type STANDARD"
    if (place := properties.get("DefinitionS3Location")) is not None and place.get("Bucket") != LOCAL:
        yield "slslab reads definitions from files next to the template, not from S3"
        return
    for problem in problems(definition(files, properties), lambda_limits().definition_bytes):
        yield f"the definition is refused: {problem}".rstrip(".")
    yield from _refused(lambda: check_settings(machine_settings(properties)))
    yield from _refused(lambda: check_name(properties.get("StateMachineName", "none")))
    yield from _refused(lambda: check_role(properties["RoleArn"]))


def bucket(properties: Properties, _files: Files) -> Iterator[str]:
    """Yield the errors that CreateBucket would return."""
    name = properties.get("BucketName", "none")
    if not NAME.fullmatch(name) or ADDRESS.fullmatch(name):
        yield f"{name!r} cannot be the name of a bucket"


def bucket_policy(properties: Properties, _files: Files) -> Iterator[str]:
    """Yield the errors that PutBucketPolicy would return."""
    policy = properties["PolicyDocument"]
    try:
        statements(policy if isinstance(policy, str) else json.dumps(policy), principals=True)
    except (ValueError, NotImplementedError) as error:
        yield str(error).rstrip(".")


def queue(properties: Properties, _files: Files) -> Iterator[str]:
    """Yield the errors that CreateQueue would return."""
    fifo = properties.get("FifoQueue", False)
    name = properties.get("QueueName")
    if name is not None and not (FIFO_NAME if fifo else QUEUE_NAME).fullmatch(name):
        yield f"{name!r} cannot be the name of a {'FIFO ' * fifo}queue: letters, digits, - and _{', then .fifo' * fifo}"
    if properties.get("ContentBasedDeduplication") and not fifo:
        yield "ContentBasedDeduplication is for FIFO queues"
    if (
        policy := _document(properties.get("RedrivePolicy", {"maxReceiveCount": 1, "deadLetterTargetArn": ""}))
    ) is None:
        yield "RedrivePolicy must be a mapping, or its JSON"
    elif missing := sorted({"maxReceiveCount", "deadLetterTargetArn"} - policy.keys()):
        yield f"RedrivePolicy needs {', '.join(missing)}"
    elif "RedrivePolicy" in properties and not str(policy["deadLetterTargetArn"]).startswith("arn:aws:sqs:"):
        yield "RedrivePolicy.deadLetterTargetArn must be the ARN of a queue"
    elif "RedrivePolicy" in properties and str(policy["deadLetterTargetArn"]).endswith(".fifo") != fifo:
        yield "the dead letter queue of a FIFO queue is a FIFO queue, and that of another is not"
    elif not re.fullmatch("[1-9][0-9]{0,2}|1000", str(policy["maxReceiveCount"])):
        yield "RedrivePolicy.maxReceiveCount must be an integer from 1 to 1000"


def queue_policy(properties: Properties, _files: Files) -> Iterator[str]:
    """Yield the errors that SetQueueAttributes would return."""
    policy = _document(properties["PolicyDocument"])
    if policy is None or not isinstance(policy.get("Statement"), dict | list):
        yield "PolicyDocument must be a mapping with Statement"
    for url in properties["Queues"]:
        if not url.startswith("http"):
            yield f"Queues has the URLs of queues, such as !Ref Queue, not {url}"


def topic(properties: Properties, files: Files) -> Iterator[str]:
    """Yield the errors that CreateTopic would return, and Subscribe for a topic's subscriptions."""
    if not TOPIC_NAME.fullmatch(name := properties.get("TopicName", "none")):
        yield f"{name!r} cannot be the name of a topic: letters, digits, - and _"
    for each in properties.get("Subscription") or ():
        yield from subscription(each, files)


def subscription(properties: Properties, _files: Files) -> Iterator[str]:
    """Yield the errors that Subscribe would return."""
    topic_arn = properties.get("TopicArn", "arn:aws:sns:")
    if not topic_arn.startswith("arn:aws:sns:"):
        yield f"TopicArn must be the ARN of a topic, not {topic_arn}"
    protocol, endpoint = properties["Protocol"], properties.get("Endpoint")
    if protocol not in PROTOCOLS:
        yield f"messages go to {' and '.join(PROTOCOLS)} here, not to {protocol}"
    elif not str(endpoint).startswith(f"arn:aws:{protocol}:"):
        yield f"the Endpoint of a subscription by {protocol} is an ARN, not {endpoint}"
    policy = _document(properties.get("FilterPolicy", {}))
    if policy is None or not all(isinstance(each, list | dict) for each in policy.values()):
        yield "FilterPolicy must be a mapping of lists and mappings"


def role(properties: Properties, _files: Files) -> Iterator[str]:
    """Yield the errors that CreateRole and PutRolePolicy would return."""
    from moto.iam.exceptions import MalformedPolicyDocument
    from moto.iam.policy_validation import IAMPolicyDocumentValidator

    if _document(properties["AssumeRolePolicyDocument"]) is None:
        yield "AssumeRolePolicyDocument must be a mapping"
    for policy in properties.get("Policies") or ():
        document = _document(policy["PolicyDocument"])
        if document is None:
            yield f"the PolicyDocument of {policy['PolicyName']} must be a mapping"
            continue
        try:
            IAMPolicyDocumentValidator(json.dumps({"Version": "2012-10-17", **document})).validate()
        except MalformedPolicyDocument as error:
            yield f"the policy {policy['PolicyName']} is refused: {error.message}".rstrip(".")


def rule(properties: Properties, _files: Files) -> Iterator[str]:
    """Yield the errors that PutRule and PutTargets would return."""
    schedule, pattern = properties.get("ScheduleExpression"), properties.get("EventPattern")
    if schedule is None and pattern is None:
        yield "a rule needs ScheduleExpression or EventPattern"
    if schedule is not None:
        try:
            read_schedule(schedule)
        except ScheduleError as error:
            yield str(error)
    if pattern is not None:
        yield from pattern_problems(pattern if isinstance(pattern, str) else json.dumps(pattern))
    targets = properties.get("Targets") or []
    if len(targets) > MOST_TARGETS or len({target["Id"] for target in targets}) < len(targets):
        yield f"a rule has at most {MOST_TARGETS} targets, each with its own Id"
    for target in targets:
        yield from target_problems(target)
        for member in sorted(target.keys() - TARGET_MEMBERS):
            yield f"slslab does not emulate {member} of a target ({target['Id']})"


def _document(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None
