"""The types that slslab deploys: their properties, the values of Ref and Fn::GetAtt, and how to make and check them.

https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-template-resource-type-ref.html
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from slslab.aws.arns import ACCOUNT, REGION
from slslab.lambda_.references import function_arn
from slslab_aws.deploy import checks, other_resources, resources
from slslab_aws.deploy.resources import Made, Properties, Services
from slslab_aws.deploy.schemas import properties_of

ID = "00000000-0000-4000-8000-000000000000"
Expect = Callable[[str, Properties], Made]
# Yields the errors that a service would return, from properties and the content of files, without a full stop.
Check = Callable[[Properties, Mapping[str, bytes]], Iterator[str]]


@dataclass(frozen=True)
class Kind:
    """How to make, change (None: remove and make again) and remove resources of one type.

    `expect` returns, before anything is made, the values of Ref and attributes: exact ones, or a value of the same form
    where the service chooses it. Its attributes are the attributes of this type. `create` takes what it returned, and
    returns it with what the service has chosen. `named` is the property with a resource's name.
    """

    properties: frozenset[str]
    expect: Expect
    create: Callable[[Services, Made, Properties], Made]
    delete: Callable[[Services, Made], object]
    update: Callable[[Services, Made, Properties], Made] | None = None
    check: Check = checks.nothing
    named: str = ""


def _forms(ref: str, **attributes: str) -> Expect:
    """Return an `expect` function for these forms, with the resource's name for {name}."""

    def expect(name: str, _properties: Properties) -> Made:
        return Made(ref.format(name=name), {key: form.format(name=name) for key, form in attributes.items()})

    return expect


def _arn(service: str, resource: str) -> str:
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{resource}"


def _of_function(properties: Properties, qualifier: str | None = None) -> str:
    name = str(properties.get("FunctionName", properties.get("TargetFunctionArn")))
    name = name.split(":function:")[-1].split(":")[0]
    return function_arn(name, qualifier)


def _version(_name: str, properties: Properties) -> Made:
    arn = _of_function(properties, "1")
    return Made(arn, {"Version": "1", "FunctionArn": arn})


def _alias(_name: str, properties: Properties) -> Made:
    arn = _of_function(properties, str(properties.get("Name")))
    return Made(arn, {"AliasArn": arn})


def _url(_name: str, properties: Properties) -> Made:
    arn = _of_function(properties, properties.get("Qualifier"))
    return Made(arn, {"FunctionUrl": f"https://{ID.replace('-', '')}.lambda-url.{REGION}.on.aws/", "FunctionArn": arn})


def _bucket(name: str, _properties: Properties) -> Made:
    # The domain names are AWS's, and can't be reached here.
    domains = {"": "s3", "DualStack": f"s3.dualstack.{REGION}", "Regional": f"s3.{REGION}"}
    attributes = {f"{kind}DomainName": f"{name}.{domain}.amazonaws.com" for kind, domain in domains.items()}
    return Made(name, {"Arn": f"arn:aws:s3:::{name}", **attributes})


def _bucket_policy(_name: str, properties: Properties) -> Made:
    return Made(str(properties.get("Bucket")))


def _queue(name: str, _properties: Properties) -> Made:
    url = f"http://127.0.0.1:4566/{ACCOUNT}/{name}"
    return Made(url, {"Arn": _arn("sqs", name), "QueueName": name, "QueueUrl": url})


def _subscription(_name: str, properties: Properties) -> Made:
    arn = f"{properties.get('TopicArn')}:{ID}"
    return Made(arn, {"Arn": arn})


def _role(name: str, properties: Properties) -> Made:
    path = properties.get("Path", "/")
    return Made(name, {"Arn": f"arn:aws:iam::{ACCOUNT}:role{path}{name}", "RoleId": "AROA00000000000000000"})


def _table(name: str, properties: Properties) -> Made:
    arn = _arn("dynamodb", f"table/{name}")
    stream = {"StreamArn": f"{arn}/stream/2026-01-01T00:00:00.000"} if "StreamSpecification" in properties else {}
    return Made(name, {"Arn": arn, **stream})


def _by(service: str, operation: str, member: str) -> Callable[[Services, Made], object]:
    """Return a function that removes a resource by its reference."""
    return lambda services, made: getattr(services(service), operation)(**{member: made.ref})


def _by_keys(operation: str) -> Callable[[Services, Made], object]:
    return lambda services, made: getattr(services("lambda"), operation)(**made.keys)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


@cache
def kinds() -> dict[str, Kind]:
    """Return the types that slslab deploys; Tags are passed on where the operation knows them."""
    return {**_lambda(), **_messaging(), **_others()}


def _lambda() -> dict[str, Kind]:
    layer, source = _arn("lambda", "layer:{name}:1"), _arn("lambda", f"event-source-mapping:{ID}")
    return {
        "AWS::Lambda::Function": Kind(
            _names("""Architectures Code CodeSigningConfigArn DeadLetterConfig Description Environment EphemeralStorage
            FileSystemConfigs FunctionName Handler ImageConfig KmsKeyArn Layers LoggingConfig MemorySize PackageType
            ReservedConcurrentExecutions Role Runtime SnapStart Tags Timeout TracingConfig VpcConfig"""),
            _forms("{name}", Arn=function_arn("{name}")),
            resources.create_function,
            _by("lambda", "delete_function", "FunctionName"),
            resources.change_function,
            checks.function,
            named="FunctionName",
        ),
        "AWS::Lambda::LayerVersion": Kind(
            _names("CompatibleArchitectures CompatibleRuntimes Content Description LayerName LicenseInfo"),
            _forms(layer, LayerVersionArn=layer),
            resources.publish_layer,
            _by_keys("delete_layer_version"),
            check=checks.lambda_members("PublishLayerVersion"),
            named="LayerName",
        ),
        "AWS::Lambda::Version": Kind(
            _names("FunctionName Description CodeSha256"),
            _version,
            resources.publish_version,
            _by_keys("delete_function"),
            check=checks.lambda_members("PublishVersion"),
        ),
        "AWS::Lambda::Alias": Kind(
            _names("FunctionName Name FunctionVersion Description"),
            _alias,
            resources.create_alias,
            _by_keys("delete_alias"),
            resources.change_alias,
            checks.lambda_members("CreateAlias"),
        ),
        "AWS::Lambda::Permission": Kind(
            _names("""Action EventSourceToken FunctionName FunctionUrlAuthType InvokedViaFunctionUrl Principal
            PrincipalOrgID SourceAccount SourceArn"""),
            _forms("{name}", Id="{name}"),
            resources.add_permission,
            _by_keys("remove_permission"),
            check=checks.permission,
        ),
        "AWS::Lambda::Url": Kind(
            _names("TargetFunctionArn AuthType Cors InvokeMode Qualifier"),
            _url,
            resources.create_url,
            _by_keys("delete_function_url_config"),
            resources.change_url,
            checks.url,
        ),
        "AWS::Lambda::EventInvokeConfig": Kind(
            _names("DestinationConfig FunctionName MaximumEventAgeInSeconds MaximumRetryAttempts Qualifier"),
            _forms("{name}"),
            resources.put_event_settings,
            _by_keys("delete_function_event_invoke_config"),
            check=checks.lambda_members("PutFunctionEventInvokeConfig"),
        ),
        "AWS::Lambda::EventSourceMapping": Kind(
            properties_of("AWS::Lambda::EventSourceMapping"),  # its check refuses properties that aren't emulated
            _forms(ID, Id=ID, EventSourceMappingArn=source),
            resources.create_source,
            _by_keys("delete_event_source_mapping"),
            resources.change_source,
            checks.source,
        ),
    }


def _messaging() -> dict[str, Kind]:
    topic = _arn("sns", "{name}")
    return {
        "AWS::SQS::Queue": Kind(
            _names("""ContentBasedDeduplication DelaySeconds FifoQueue MaximumMessageSize MessageRetentionPeriod
            QueueName ReceiveMessageWaitTimeSeconds RedrivePolicy SqsManagedSseEnabled Tags VisibilityTimeout"""),
            _queue,
            other_resources.create_queue,
            _by("sqs", "delete_queue", "QueueUrl"),
            other_resources.change_queue,
            checks.queue,
            named="QueueName",
        ),
        "AWS::SQS::QueuePolicy": Kind(
            _names("PolicyDocument Queues"),
            _forms("{name}", Id="{name}"),
            other_resources.put_queue_policy,
            other_resources.remove_queue_policy,
            check=checks.queue_policy,
        ),
        "AWS::SNS::Topic": Kind(
            _names("DisplayName TopicName Subscription Tags"),
            _forms(topic, TopicArn=topic, TopicName="{name}"),
            other_resources.create_topic,
            _by("sns", "delete_topic", "TopicArn"),
            other_resources.change_topic,
            checks.topic,
            named="TopicName",
        ),
        "AWS::SNS::Subscription": Kind(
            _names("TopicArn Protocol Endpoint FilterPolicy FilterPolicyScope RawMessageDelivery"),
            _subscription,
            other_resources.subscribe,
            _by("sns", "unsubscribe", "SubscriptionArn"),
            check=checks.subscription,
        ),
    }


def _others() -> dict[str, Kind]:
    machine, rule = _arn("states", "stateMachine:{name}"), _arn("events", "rule/{name}")
    return {
        "AWS::StepFunctions::StateMachine": Kind(
            _names("""Definition DefinitionS3Location DefinitionString DefinitionSubstitutions LoggingConfiguration
            RoleArn StateMachineName StateMachineType Tags TracingConfiguration"""),
            _forms(machine, Arn=machine, Name="{name}"),
            resources.create_machine,
            _by("stepfunctions", "delete_state_machine", "stateMachineArn"),
            resources.change_machine,
            checks.machine,
            named="StateMachineName",
        ),
        "AWS::S3::Bucket": Kind(
            _names("BucketName CorsConfiguration PublicAccessBlockConfiguration Tags VersioningConfiguration"),
            _bucket,
            other_resources.create_bucket,
            _by("s3", "delete_bucket", "Bucket"),
            other_resources.change_bucket,
            checks.bucket,
            named="BucketName",
        ),
        "AWS::S3::BucketPolicy": Kind(
            _names("Bucket PolicyDocument"),
            _bucket_policy,
            other_resources.put_bucket_policy,
            _by("s3", "delete_bucket_policy", "Bucket"),
            other_resources.put_bucket_policy,
            checks.bucket_policy,
        ),
        "AWS::IAM::Role": Kind(
            _names("""AssumeRolePolicyDocument Description ManagedPolicyArns MaxSessionDuration Path PermissionsBoundary
            Policies RoleName Tags"""),
            _role,
            other_resources.create_role,
            other_resources.remove_role,
            check=checks.role,
            named="RoleName",
        ),
        "AWS::DynamoDB::Table": Kind(
            _names("""AttributeDefinitions BillingMode DeletionProtectionEnabled GlobalSecondaryIndexes KeySchema
            LocalSecondaryIndexes ProvisionedThroughput StreamSpecification TableClass TableName Tags"""),
            _table,
            other_resources.create_table,
            _by("dynamodb", "delete_table", "TableName"),
            other_resources.change_table,
            checks.table,
            named="TableName",
        ),
        "AWS::Logs::LogGroup": Kind(
            _names("LogGroupClass LogGroupName RetentionInDays Tags"),
            _forms("{name}", Arn=_arn("logs", "log-group:{name}:*")),
            other_resources.create_log_group,
            _by("logs", "delete_log_group", "logGroupName"),
            other_resources.change_log_group,
            named="LogGroupName",
        ),
        "AWS::Events::Rule": Kind(
            _names("Description EventPattern Name RoleArn ScheduleExpression State Tags Targets"),
            _forms("{name}", Arn=rule, RuleName="{name}"),
            other_resources.create_rule,
            other_resources.remove_rule,
            other_resources.change_rule,
            checks.rule,
            named="Name",
        ),
    }


def with_name(kind: str, name: str, properties: Properties) -> Properties:
    """Return properties with this name, in the form that the service accepts, if resources of the type have names."""
    named = kinds()[kind].named
    if kind == "AWS::S3::Bucket":
        name = name.lower()
    elif kind == "AWS::SQS::Queue":
        name += ".fifo" * bool(properties.get("FifoQueue"))
    return {named: name, **properties} if named else properties


def expected(kind: str, name: str, properties: Mapping[str, Any]) -> Made:
    """Return the values of Ref and the attributes of a resource before it is made; its properties may name it."""
    complete = with_name(kind, name, dict(properties))
    return kinds()[kind].expect(str(complete.get(kinds()[kind].named, name)), complete)
