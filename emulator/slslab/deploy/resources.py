"""How resources of each type are made, changed and removed, by the operations of their services.

https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-template-resource-type-ref.html. Properties have the
names of the operations' members but where a function here says otherwise.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from botocore.exceptions import ClientError

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.clients import aws_client
from slslab.aws.keys import Pair
from slslab.aws.requests import input_shape
from slslab.deploy.expansion import LOCAL
from slslab.deploy.packages import inline

Properties = dict[str, Any]


@dataclass(frozen=True)
class Made:
    """A resource that was made: what `Ref` gives, its attributes, and what is needed to change or remove it."""

    ref: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, Any] = field(default_factory=dict)


class Services:
    """Clients of the running service, and the content of the template's files."""

    def __init__(self, endpoint: str, owner: Pair, files: Mapping[str, bytes]) -> None:
        self._endpoint = endpoint
        self._owner = owner
        self.files = files
        self._clients: dict[str, Any] = {}

    def __call__(self, service: str) -> Any:
        """Return the client of a service."""
        if service not in self._clients:
            self._clients[service] = aws_client(service, self._endpoint, self._owner)
        return self._clients[service]

    def close(self) -> None:
        """Close all clients."""
        for client in self._clients.values():
            client.close()


@dataclass(frozen=True)
class Kind:
    """How resources of one type are made, changed (None: removed and made again) and removed."""

    properties: frozenset[str]
    create: Callable[[Services, str, Properties], Made]
    delete: Callable[[Services, Made], object]
    update: Callable[[Services, Made, Properties], Made] | None = None


def _members(service: str, operation: str, *more: str, without: tuple[str, ...] = ()) -> frozenset[str]:
    return (frozenset(input_shape(service, operation).members) | set(more)) - set(without)


def _tags(properties: Properties) -> dict[str, str]:
    tags = properties.get("Tags") or {}
    return tags if isinstance(tags, dict) else {tag["Key"]: str(tag["Value"]) for tag in tags}


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return attributes as texts, as SQS and SNS take them; what has a structure is JSON."""
    shown = {
        name: json.dumps(value) if isinstance(value, dict | list | bool) else value for name, value in values.items()
    }
    return {name: str(value) for name, value in shown.items()}


# --- Lambda


def _code(services: Services, code: Properties) -> Properties:
    if code.get("S3Bucket") == LOCAL:
        return {"ZipFile": services.files[code["S3Key"]]}
    return {"ZipFile": inline(code["ZipFile"])} if "ZipFile" in code else code


def _function_members(properties: Properties) -> Properties:
    members = {
        name: value for name, value in properties.items() if name not in ("Code", "ReservedConcurrentExecutions")
    }
    if "Environment" in members:
        variables = members["Environment"].get("Variables") or {}
        members["Environment"] = {"Variables": {name: str(value) for name, value in variables.items()}}
    for name in ("MemorySize", "Timeout"):
        if name in members:
            members[name] = int(members[name])
    return {**members, "Tags": _tags(properties)}


def _reserve(services: Services, name: str, properties: Properties) -> None:
    if (reserved := properties.get("ReservedConcurrentExecutions")) is not None:
        services("lambda").put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=int(reserved))


def _function(services: Services, name: str, properties: Properties) -> Made:
    given = {"FunctionName": name, **_function_members(properties)}
    made = services("lambda").create_function(**given, Code=_code(services, properties["Code"]))
    _reserve(services, given["FunctionName"], properties)
    return Made(made["FunctionName"], {"Arn": made["FunctionArn"]})


def _change_function(services: Services, made: Made, properties: Properties) -> Made:
    client = services("lambda")
    members = _function_members(properties)
    for once in ("FunctionName", "PackageType", "Architectures", "Tags"):
        members.pop(once, None)
    client.update_function_configuration(FunctionName=made.ref, **members)
    architectures = {"Architectures": properties["Architectures"]} if "Architectures" in properties else {}
    client.update_function_code(FunctionName=made.ref, **_code(services, properties["Code"]), **architectures)
    if properties.get("ReservedConcurrentExecutions") is None:
        client.delete_function_concurrency(FunctionName=made.ref)
    _reserve(services, made.ref, properties)
    return made


def _layer(services: Services, name: str, properties: Properties) -> Made:
    content = properties["Content"]
    given = {"LayerName": name, **properties, "Content": _code(services, content)}
    made = services("lambda").publish_layer_version(**given)
    arn = made["LayerVersionArn"]
    return Made(arn, {}, {"LayerName": made["LayerArn"], "VersionNumber": made["Version"]})


def _version(services: Services, _name: str, properties: Properties) -> Made:
    made = services("lambda").publish_version(**properties)
    arn = made["FunctionArn"]
    return Made(arn, {"Version": made["Version"]}, {"FunctionName": made["FunctionName"], "Qualifier": made["Version"]})


def _alias(services: Services, _name: str, properties: Properties) -> Made:
    made = services("lambda").create_alias(**properties)
    return Made(made["AliasArn"], {}, {"FunctionName": properties["FunctionName"], "Name": properties["Name"]})


def _change_alias(services: Services, made: Made, properties: Properties) -> Made:
    services("lambda").update_alias(**properties)
    return made


def _permission(services: Services, name: str, properties: Properties) -> Made:
    given = {**properties, "StatementId": name}
    services("lambda").add_permission(**given)
    return Made(name, {"Id": name}, {"FunctionName": properties["FunctionName"], "StatementId": name})


def _url(services: Services, _name: str, properties: Properties) -> Made:
    target = properties.pop("TargetFunctionArn")
    made = services("lambda").create_function_url_config(FunctionName=target, **properties)
    arn = made["FunctionArn"]
    return Made(arn, {"FunctionUrl": made["FunctionUrl"], "FunctionArn": arn}, {"FunctionName": target})


def _events(services: Services, name: str, properties: Properties) -> Made:
    services("lambda").put_function_event_invoke_config(**properties)
    return Made(name, {}, {key: properties[key] for key in ("FunctionName", "Qualifier") if key in properties})


def _source(services: Services, _name: str, properties: Properties) -> Made:
    made = services("lambda").create_event_source_mapping(**properties)
    return Made(made["UUID"], {"Id": made["UUID"]}, {"UUID": made["UUID"]})


def _change_source(services: Services, made: Made, properties: Properties) -> Made:
    members = {name: value for name, value in properties.items() if name != "EventSourceArn"}
    services("lambda").update_event_source_mapping(**members, **made.keys)
    return made


# --- Step Functions


def _definition(services: Services, properties: Properties) -> str:
    if "DefinitionS3Location" in properties:
        text = services.files[properties["DefinitionS3Location"]["Key"]].decode()
    else:
        text = properties.get("DefinitionString") or json.dumps(properties["Definition"])
    for name, value in (properties.get("DefinitionSubstitutions") or {}).items():
        text = text.replace(f"${{{name}}}", str(value))
    return str(text)


def _machine(services: Services, name: str, properties: Properties) -> Made:
    name = properties.get("StateMachineName", name)
    made = services("stepfunctions").create_state_machine(
        name=name, definition=_definition(services, properties), roleArn=properties["RoleArn"]
    )
    return Made(made["stateMachineArn"], {"Arn": made["stateMachineArn"], "Name": name})


def _change_machine(services: Services, made: Made, properties: Properties) -> Made:
    services("stepfunctions").update_state_machine(
        stateMachineArn=made.ref, definition=_definition(services, properties), roleArn=properties["RoleArn"]
    )
    return made


# --- what stands around them


def _bucket(services: Services, name: str, properties: Properties) -> Made:
    name = properties.get("BucketName", name.lower())
    services("s3").create_bucket(Bucket=name)
    return Made(name, {"Arn": f"arn:aws:s3:::{name}"})


def _queue(services: Services, name: str, properties: Properties) -> Made:
    name = properties.get("QueueName", name + ".fifo" * bool(properties.get("FifoQueue")))
    url = services("sqs").create_queue(QueueName=name, Attributes=_attributes(properties), tags=_tags(properties))
    arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"
    return Made(url["QueueUrl"], {"Arn": arn, "QueueName": name, "QueueUrl": url["QueueUrl"]})


def _change_queue(services: Services, made: Made, properties: Properties) -> Made:
    attributes = {name: value for name, value in _attributes(properties).items() if name != "FifoQueue"}
    services("sqs").set_queue_attributes(QueueUrl=made.ref, Attributes=attributes)
    return made


def _attributes(properties: Properties) -> dict[str, str]:
    return _texts({name: value for name, value in properties.items() if name not in ("QueueName", "Tags")})


def _topic(services: Services, name: str, properties: Properties) -> Made:
    arn = services("sns").create_topic(Name=properties.get("TopicName", name))["TopicArn"]
    for subscription in properties.get("Subscription") or []:
        services("sns").subscribe(TopicArn=arn, **subscription)
    return Made(arn, {"TopicArn": arn, "TopicName": arn.rpartition(":")[2]})


def _subscription(services: Services, _name: str, properties: Properties) -> Made:
    given = {name: properties[name] for name in ("TopicArn", "Protocol", "Endpoint")}
    attributes = _texts({name: value for name, value in properties.items() if name not in given})
    return Made(
        services("sns").subscribe(**given, Attributes=attributes, ReturnSubscriptionArn=True)["SubscriptionArn"]
    )


def _role(services: Services, name: str, properties: Properties) -> Made:
    client, name = services("iam"), properties.get("RoleName", name)
    trust = json.dumps(properties["AssumeRolePolicyDocument"])
    arn = client.create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    # AWS's own managed policies are not there to be attached, and no policy is enforced.
    made = Made(name, {"Arn": arn}, {"policies": []})
    for policy in properties.get("Policies") or []:
        # AWS takes a policy without a version as one of 2008; moto refuses it.
        document = json.dumps({"Version": "2012-10-17", **policy["PolicyDocument"]})
        try:
            client.put_role_policy(RoleName=name, PolicyName=policy["PolicyName"], PolicyDocument=document)
        except ClientError:
            _remove_role(services, made)
            raise
        made.keys["policies"].append(policy["PolicyName"])
    return made


def _remove_role(services: Services, made: Made) -> None:
    for policy in made.keys["policies"]:
        services("iam").delete_role_policy(RoleName=made.ref, PolicyName=policy)
    services("iam").delete_role(RoleName=made.ref)


def _table(services: Services, name: str, properties: Properties) -> Made:
    given = {"TableName": name, "BillingMode": "PAY_PER_REQUEST", **properties}
    if "ProvisionedThroughput" in properties:
        given["BillingMode"] = properties.get("BillingMode", "PROVISIONED")
    made = services("dynamodb").create_table(**given)["TableDescription"]
    return Made(made["TableName"], {"Arn": made["TableArn"]})


def _by(service: str, operation: str, member: str) -> Callable[[Services, Made], object]:
    """Return what removes a resource by its reference."""
    return lambda services, made: getattr(services(service), operation)(**{member: made.ref})


def _by_keys(service: str, operation: str) -> Callable[[Services, Made], object]:
    return lambda services, made: getattr(services(service), operation)(**made.keys)


@cache
def kinds() -> dict[str, Kind]:
    """Return how each type that there is is made; Tags are passed on where the operation knows them."""
    source = ("UUID", "FilterCriteria", "KMSKeyArn", "MetricsConfig", "LoggingConfig", "ProvisionedPollerConfig")
    return {
        "AWS::Lambda::Function": Kind(
            _members("lambda", "CreateFunction", "ReservedConcurrentExecutions", without=("Publish", "DurableConfig")),
            _function,
            _by("lambda", "delete_function", "FunctionName"),
            _change_function,
        ),
        "AWS::Lambda::LayerVersion": Kind(
            _members("lambda", "PublishLayerVersion"), _layer, _by_keys("lambda", "delete_layer_version")
        ),
        "AWS::Lambda::Version": Kind(
            frozenset({"FunctionName", "Description", "CodeSha256"}), _version, _by_keys("lambda", "delete_function")
        ),
        "AWS::Lambda::Alias": Kind(
            frozenset({"FunctionName", "Name", "FunctionVersion", "Description"}),
            _alias,
            _by_keys("lambda", "delete_alias"),
            _change_alias,
        ),
        "AWS::Lambda::Permission": Kind(
            _members("lambda", "AddPermission", without=("StatementId", "Qualifier", "RevisionId")),
            _permission,
            _by_keys("lambda", "remove_permission"),
        ),
        "AWS::Lambda::Url": Kind(
            frozenset({"TargetFunctionArn", "AuthType", "Cors", "InvokeMode", "Qualifier"}),
            _url,
            _by_keys("lambda", "delete_function_url_config"),
        ),
        "AWS::Lambda::EventInvokeConfig": Kind(
            _members("lambda", "PutFunctionEventInvokeConfig"),
            _events,
            _by_keys("lambda", "delete_function_event_invoke_config"),
        ),
        "AWS::Lambda::EventSourceMapping": Kind(
            _members("lambda", "CreateEventSourceMapping", without=source),
            _source,
            _by_keys("lambda", "delete_event_source_mapping"),
            _change_source,
        ),
        "AWS::StepFunctions::StateMachine": Kind(
            frozenset(
                {
                    *("StateMachineName", "RoleArn", "Definition", "DefinitionString", "DefinitionS3Location"),
                    *("DefinitionSubstitutions", "Tags"),
                }
            ),
            _machine,
            _by("stepfunctions", "delete_state_machine", "stateMachineArn"),
            _change_machine,
        ),
        "AWS::S3::Bucket": Kind(frozenset({"BucketName", "Tags"}), _bucket, _by("s3", "delete_bucket", "Bucket")),
        "AWS::SQS::Queue": Kind(
            frozenset(
                {
                    *("QueueName", "Tags", "FifoQueue", "ContentBasedDeduplication", "DelaySeconds"),
                    *("MaximumMessageSize", "MessageRetentionPeriod", "ReceiveMessageWaitTimeSeconds"),
                    *("RedrivePolicy", "VisibilityTimeout"),
                }
            ),
            _queue,
            _by("sqs", "delete_queue", "QueueUrl"),
            _change_queue,
        ),
        "AWS::SNS::Topic": Kind(
            frozenset({"TopicName", "Subscription", "Tags"}), _topic, _by("sns", "delete_topic", "TopicArn")
        ),
        "AWS::SNS::Subscription": Kind(
            frozenset({"TopicArn", "Protocol", "Endpoint", "FilterPolicy", "FilterPolicyScope", "RawMessageDelivery"}),
            _subscription,
            _by("sns", "unsubscribe", "SubscriptionArn"),
        ),
        "AWS::IAM::Role": Kind(
            frozenset(
                {
                    *("RoleName", "AssumeRolePolicyDocument", "Policies", "ManagedPolicyArns", "Tags", "Description"),
                    *("Path", "PermissionsBoundary", "MaxSessionDuration"),
                }
            ),
            _role,
            _remove_role,
        ),
        "AWS::DynamoDB::Table": Kind(
            _members("dynamodb", "CreateTable"), _table, _by("dynamodb", "delete_table", "TableName")
        ),
    }
