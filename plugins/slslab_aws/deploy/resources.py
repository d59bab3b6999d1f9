"""How resources are made, changed and removed, by the operations of their services.

https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-template-resource-type-ref.html. Properties have the
types of CloudFormation's registry, and the names of the operations' members but where a function here says otherwise.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.clients import aws_client
from slslab.aws.keys import Pair
from slslab.aws.limits import lambda_limits
from slslab.statemachines.definitions import SETTINGS
from slslab_aws.deploy.expansion import LOCAL
from slslab_aws.deploy.packages import inline
from slslab_aws.deploy.schemas import text_of

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


def _tags(properties: Properties) -> dict[str, str]:
    tags = properties.get("Tags") or {}
    return tags if isinstance(tags, dict) else {tag["Key"]: tag.get("Value", "") for tag in tags}


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return attributes as texts, as SQS and SNS take them; what has a structure is JSON."""
    return {
        name: json.dumps(value) if isinstance(value, dict | list) else text_of(value) for name, value in values.items()
    }


# --- Lambda


def _code(services: Services, code: Properties) -> Properties:
    if code.get("S3Bucket") == LOCAL:
        return {"ZipFile": services.files[code["S3Key"]]}
    return {"ZipFile": inline(code["ZipFile"])} if "ZipFile" in code else code


def function_members(properties: Properties) -> Properties:
    """Return the members of CreateFunction, except its code."""
    members = {
        name: value for name, value in properties.items() if name not in ("Code", "ReservedConcurrentExecutions")
    }
    if "KmsKeyArn" in members:
        members["KMSKeyArn"] = members.pop("KmsKeyArn")
    return {**members, "Tags": _tags(properties)}


def _reserve(services: Services, name: str, properties: Properties) -> None:
    if (reserved := properties.get("ReservedConcurrentExecutions")) is not None:
        services("lambda").put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=reserved)


def create_function(services: Services, name: str, properties: Properties) -> Made:
    """Create a function."""
    given = {"FunctionName": name, **function_members(properties)}
    made = services("lambda").create_function(**given, Code=_code(services, properties["Code"]))
    _reserve(services, given["FunctionName"], properties)
    return Made(made["FunctionName"], {"Arn": made["FunctionArn"]})


def change_function(services: Services, made: Made, properties: Properties) -> Made:
    """Change a function; what its template no longer has gets its default."""
    client = services("lambda")
    members = function_members(properties)
    for once in ("FunctionName", "PackageType", "Architectures", "Tags"):
        members.pop(once, None)
    client.update_function_configuration(FunctionName=made.ref, **{**_defaults(), **members})
    architectures = {"Architectures": properties["Architectures"]} if "Architectures" in properties else {}
    client.update_function_code(FunctionName=made.ref, **_code(services, properties["Code"]), **architectures)
    if properties.get("ReservedConcurrentExecutions") is None:
        client.delete_function_concurrency(FunctionName=made.ref)
    _reserve(services, made.ref, properties)
    return made


def _defaults() -> Properties:
    """Return the settings of a function whose template names none of them."""
    limits = lambda_limits()
    return {
        **{"Description": "", "Environment": {"Variables": {}}, "Layers": [], "DeadLetterConfig": {"TargetArn": ""}},
        **{"MemorySize": limits.memory_mb.default, "Timeout": limits.timeout_s.default},
        "EphemeralStorage": {"Size": limits.ephemeral_mb.default},
    }


def publish_layer(services: Services, name: str, properties: Properties) -> Made:
    """Publish a version of a layer."""
    content = properties["Content"]
    given = {"LayerName": name, **properties, "Content": _code(services, content)}
    made = services("lambda").publish_layer_version(**given)
    arn = made["LayerVersionArn"]
    return Made(arn, {"LayerVersionArn": arn}, {"LayerName": made["LayerArn"], "VersionNumber": made["Version"]})


def publish_version(services: Services, _name: str, properties: Properties) -> Made:
    """Publish a version of a function."""
    made = services("lambda").publish_version(**properties)
    arn = made["FunctionArn"]
    attributes = {"Version": made["Version"], "FunctionArn": arn}
    return Made(arn, attributes, {"FunctionName": made["FunctionName"], "Qualifier": made["Version"]})


def create_alias(services: Services, _name: str, properties: Properties) -> Made:
    """Create an alias."""
    made = services("lambda").create_alias(**properties)
    arn = made["AliasArn"]
    return Made(arn, {"AliasArn": arn}, {"FunctionName": properties["FunctionName"], "Name": properties["Name"]})


def change_alias(services: Services, made: Made, properties: Properties) -> Made:
    """Change an alias."""
    services("lambda").update_alias(**properties)
    return made


def add_permission(services: Services, name: str, properties: Properties) -> Made:
    """Add a statement to the policy of a function."""
    given = {**properties, "StatementId": name}
    services("lambda").add_permission(**given)
    return Made(name, {"Id": name}, {"FunctionName": properties["FunctionName"], "StatementId": name})


def create_url(services: Services, _name: str, properties: Properties) -> Made:
    """Create the URL of a function."""
    target = properties["TargetFunctionArn"]
    members = {name: value for name, value in properties.items() if name != "TargetFunctionArn"}
    made = services("lambda").create_function_url_config(FunctionName=target, **members)
    arn = made["FunctionArn"]
    return Made(arn, {"FunctionUrl": made["FunctionUrl"], "FunctionArn": arn}, {"FunctionName": target})


def put_event_settings(services: Services, name: str, properties: Properties) -> Made:
    """Set how a function handles events."""
    services("lambda").put_function_event_invoke_config(**properties)
    return Made(name, {}, {key: properties[key] for key in ("FunctionName", "Qualifier") if key in properties})


def create_source(services: Services, _name: str, properties: Properties) -> Made:
    """Create an event source mapping."""
    made = services("lambda").create_event_source_mapping(**properties)
    attributes = {"Id": made["UUID"], "EventSourceMappingArn": made["EventSourceMappingArn"]}
    return Made(made["UUID"], attributes, {"UUID": made["UUID"]})


def change_source(services: Services, made: Made, properties: Properties) -> Made:
    """Change an event source mapping."""
    members = {name: value for name, value in properties.items() if name != "EventSourceArn"}
    services("lambda").update_event_source_mapping(**members, **made.keys)
    return made


# --- Step Functions


def definition(files: Mapping[str, bytes], properties: Properties) -> str:
    """Return the definition of a state machine, whichever property has it, with its substitutions."""
    if "DefinitionS3Location" in properties:
        text = files[properties["DefinitionS3Location"]["Key"]].decode()
    else:
        text = properties.get("DefinitionString") or json.dumps(properties["Definition"])
    for name, value in (properties.get("DefinitionSubstitutions") or {}).items():
        text = text.replace(f"${{{name}}}", text_of(value))
    return str(text)


def create_machine(services: Services, name: str, properties: Properties) -> Made:
    """Create a state machine."""
    name = properties.get("StateMachineName", name)
    made = services("stepfunctions").create_state_machine(
        name=name,
        **_machine_members(services, properties),
        tags=[{"key": key, "value": value} for key, value in _tags(properties).items()],
    )
    return Made(made["stateMachineArn"], {"Arn": made["stateMachineArn"], "Name": name})


def change_machine(services: Services, made: Made, properties: Properties) -> Made:
    """Change a state machine."""
    services("stepfunctions").update_state_machine(stateMachineArn=made.ref, **_machine_members(services, properties))
    return made


def _machine_members(services: Services, properties: Properties) -> Properties:
    """Return what CreateStateMachine and UpdateStateMachine both take."""
    return {
        "definition": definition(services.files, properties),
        "roleArn": properties["RoleArn"],
        **machine_settings(properties),
    }


def machine_settings(properties: Properties) -> Properties:
    """Return the logging and tracing of a state machine; what its template has not is off."""
    names = {"LoggingConfiguration": "loggingConfiguration", "TracingConfiguration": "tracingConfiguration"}
    return {name: _lower_names(properties.get(key, SETTINGS[name])) for key, name in names.items()}


def _lower_names(value: Any) -> Any:
    """Return a value with the names of the Step Functions API: they begin with a small letter."""
    if isinstance(value, list):
        return [_lower_names(entry) for entry in value]
    if isinstance(value, dict):
        return {name[0].lower() + name[1:]: _lower_names(entry) for name, entry in value.items()}
    return value


# --- what stands around them


def create_bucket(services: Services, name: str, properties: Properties) -> Made:
    """Create a bucket."""
    name = properties.get("BucketName", name.lower())
    services("s3").create_bucket(Bucket=name)
    return Made(name, bucket_attributes(name))


def bucket_attributes(name: str) -> dict[str, str]:
    """Return a bucket's attributes; its domain names are AWS's, and lead nowhere here."""
    return {
        "Arn": f"arn:aws:s3:::{name}",
        "DomainName": f"{name}.s3.amazonaws.com",
        "DualStackDomainName": f"{name}.s3.dualstack.{REGION}.amazonaws.com",
        "RegionalDomainName": f"{name}.s3.{REGION}.amazonaws.com",
    }


def create_queue(services: Services, name: str, properties: Properties) -> Made:
    """Create a queue."""
    name = properties.get("QueueName", name + ".fifo" * bool(properties.get("FifoQueue")))
    url = services("sqs").create_queue(QueueName=name, Attributes=_attributes(properties), tags=_tags(properties))
    arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"
    return Made(url["QueueUrl"], {"Arn": arn, "QueueName": name, "QueueUrl": url["QueueUrl"]})


def change_queue(services: Services, made: Made, properties: Properties) -> Made:
    """Change the attributes of a queue."""
    attributes = {name: value for name, value in _attributes(properties).items() if name != "FifoQueue"}
    services("sqs").set_queue_attributes(QueueUrl=made.ref, Attributes=attributes)
    return made


def _attributes(properties: Properties) -> dict[str, str]:
    """Return the attributes of a queue; one that is not FIFO does not have the attribute."""
    left_out = ("QueueName", "Tags", *(("FifoQueue",) if not properties.get("FifoQueue") else ()))
    return _texts({name: value for name, value in properties.items() if name not in left_out})


def put_queue_policy(services: Services, name: str, properties: Properties) -> Made:
    """Set the policy of queues."""
    policy, queues = properties["PolicyDocument"], properties["Queues"]
    for queue in queues:
        attributes = {"Policy": policy if isinstance(policy, str) else json.dumps(policy)}
        services("sqs").set_queue_attributes(QueueUrl=queue, Attributes=attributes)
    return Made(name, {"Id": name}, {"queues": queues})


def remove_queue_policy(services: Services, made: Made) -> None:
    """Remove the policy of queues."""
    for queue in made.keys["queues"]:
        services("sqs").set_queue_attributes(QueueUrl=queue, Attributes={"Policy": ""})


def create_topic(services: Services, name: str, properties: Properties) -> Made:
    """Create a topic with its subscriptions."""
    attributes = {key: properties[key] for key in ("DisplayName",) if key in properties}
    arn = services("sns").create_topic(Name=properties.get("TopicName", name), Attributes=attributes)["TopicArn"]
    for subscription in properties.get("Subscription") or []:
        services("sns").subscribe(TopicArn=arn, **subscription)
    return Made(arn, {"TopicArn": arn, "TopicName": arn.rpartition(":")[2]})


def subscribe(services: Services, _name: str, properties: Properties) -> Made:
    """Subscribe a queue or a function to a topic."""
    given = {name: properties[name] for name in ("TopicArn", "Protocol", "Endpoint")}
    attributes = _texts({name: value for name, value in properties.items() if name not in given})
    made = services("sns").subscribe(**given, Attributes=attributes, ReturnSubscriptionArn=True)
    return Made(made["SubscriptionArn"], {"Arn": made["SubscriptionArn"]})


def create_role(services: Services, name: str, properties: Properties) -> Made:
    """Create a role with its inline policies, which are not enforced."""
    client, name = services("iam"), properties.get("RoleName", name)
    trust = properties["AssumeRolePolicyDocument"]
    members = {name: properties[name] for name in ("Description", "MaxSessionDuration", "Path") if name in properties}
    role = client.create_role(
        RoleName=name, AssumeRolePolicyDocument=trust if isinstance(trust, str) else json.dumps(trust), **members
    )["Role"]
    # AWS's own managed policies are not there to be attached, and no policy is enforced.
    made = Made(name, {"Arn": role["Arn"], "RoleId": role["RoleId"]}, {"policies": []})
    for policy in properties.get("Policies") or []:
        # AWS takes a policy without a version as one of 2008; moto refuses it.
        document = policy["PolicyDocument"]
        if not isinstance(document, str):
            document = json.dumps({"Version": "2012-10-17", **document})
        try:
            client.put_role_policy(RoleName=name, PolicyName=policy["PolicyName"], PolicyDocument=document)
        except ClientError:
            remove_role(services, made)
            raise
        made.keys["policies"].append(policy["PolicyName"])
    return made


def remove_role(services: Services, made: Made) -> None:
    """Remove a role with its inline policies."""
    for policy in made.keys["policies"]:
        services("iam").delete_role_policy(RoleName=made.ref, PolicyName=policy)
    services("iam").delete_role(RoleName=made.ref)


def table_members(properties: Properties) -> Properties:
    """Return the members of CreateTable, except the name that slslab gives."""
    given = {"BillingMode": "PAY_PER_REQUEST", **properties}
    if "ProvisionedThroughput" in properties:
        given["BillingMode"] = properties.get("BillingMode", "PROVISIONED")
    if "StreamSpecification" in properties:
        given["StreamSpecification"] = {**properties["StreamSpecification"], "StreamEnabled": True}
    return given


def create_table(services: Services, name: str, properties: Properties) -> Made:
    """Create a table."""
    made = services("dynamodb").create_table(**{"TableName": name, **table_members(properties)})["TableDescription"]
    stream = {"StreamArn": made["LatestStreamArn"]} if "StreamSpecification" in properties else {}
    return Made(made["TableName"], {"Arn": made["TableArn"], **stream})


def create_log_group(services: Services, name: str, properties: Properties) -> Made:
    """Create a log group, or take over the one that the logs of a function have made."""
    client, name = services("logs"), properties.get("LogGroupName", name)
    try:
        client.create_log_group(logGroupName=name, **({"tags": tags} if (tags := _tags(properties)) else {}))
    except ClientError as error:
        # A function of the same name may have written there: names are the same at each deployment, unlike on AWS.
        if error.response["Error"]["Code"] != "ResourceAlreadyExistsException":
            raise
    made = Made(name, {"Arn": f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{name}:*"})
    return change_log_group(services, made, properties)


def change_log_group(services: Services, made: Made, properties: Properties) -> Made:
    """Change how long a log group keeps events."""
    if (days := properties.get("RetentionInDays")) is None:
        services("logs").delete_retention_policy(logGroupName=made.ref)
    else:
        services("logs").put_retention_policy(logGroupName=made.ref, retentionInDays=days)
    return made


def create_rule(services: Services, name: str, properties: Properties) -> Made:
    """Create a rule with its targets."""
    made = Made(properties.get("Name", name), {}, {"targets": []})
    try:
        return change_rule(services, made, properties)
    except ClientError:
        remove_rule(services, made)
        raise


def change_rule(services: Services, made: Made, properties: Properties) -> Made:
    """Change a rule and its targets."""
    client = services("events")
    members = {name: value for name, value in properties.items() if name not in ("Name", "Targets")}
    if "EventPattern" in members and not isinstance(members["EventPattern"], str):
        members["EventPattern"] = json.dumps(members["EventPattern"])
    arn = client.put_rule(Name=made.ref, **members)["RuleArn"]
    targets = properties.get("Targets") or []
    if targets:
        client.put_targets(Rule=made.ref, Targets=targets)
    ids = [target["Id"] for target in targets]
    if gone := sorted(set(made.keys["targets"]) - set(ids)):
        client.remove_targets(Rule=made.ref, Ids=gone)
    return Made(made.ref, {"Arn": arn, "RuleName": made.ref}, {"targets": ids})


def remove_rule(services: Services, made: Made) -> None:
    """Remove a rule and its targets."""
    if made.keys["targets"]:
        services("events").remove_targets(Rule=made.ref, Ids=made.keys["targets"])
    services("events").delete_rule(Name=made.ref)
