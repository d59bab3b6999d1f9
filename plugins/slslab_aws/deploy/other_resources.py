"""Make, change, remove and check a template's queues, topics, rules, buckets, tables and log groups."""

import json
from collections.abc import Iterator
from dataclasses import replace

from botocore.exceptions import ClientError

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.policies import statements
from slslab.aws.requests import members
from slslab.object_store.buckets import ADDRESS, NAME
from slslab_aws.deploy.resources import (
    ID,
    Kind,
    Made,
    Properties,
    Services,
    arn,
    as_text,
    by,
    call,
    change_tags,
    forms,
    names,
    pairs,
    refused,
    tags_of,
    texts,
)
from slslab_aws.services import PROTOCOLS
from slslab_aws.services.patterns import pattern_problems
from slslab_aws.services.rule_targets import target_problems
from slslab_aws.services.schedules import schedule_problems

# Rules that CloudFormation's registry lacks. documented: API_CreateQueue.html, API_CreateTopic.html,
# API_CreateTable.html, API_Subscribe.html
QUEUE_RULES = {
    "properties": {
        "QueueName": {"pattern": r"^[A-Za-z0-9_-]+(\.fifo)?\Z", "maxLength": 80},
        "RedrivePolicy": {
            "type": "object",
            "required": ["deadLetterTargetArn", "maxReceiveCount"],
            "properties": {
                "deadLetterTargetArn": {"pattern": "^arn:aws:sqs:"},
                "maxReceiveCount": {"minimum": 1, "maximum": 1000},
            },
        },
    }
}
QUEUE_POLICY_RULES = {
    "properties": {
        "PolicyDocument": {
            "type": "object",
            "required": ["Statement"],
            "properties": {"Statement": {"type": ["array", "object"]}},
        },
        "Queues": {"items": {"pattern": "^http"}},  # URLs, such as !Ref Queue
    }
}
SUBSCRIPTION_RULES = {
    "required": ["Endpoint"],
    "properties": {
        "TopicArn": {"pattern": "^arn:aws:sns:"},
        "Protocol": {"enum": [*PROTOCOLS]},
        "FilterPolicy": {"type": "object", "additionalProperties": {"type": ["array", "object"]}},
    },
    "allOf": [
        {
            "if": {"properties": {"Protocol": {"const": protocol}}},
            "then": {"properties": {"Endpoint": {"pattern": f"^arn:aws:{protocol}:"}}},
        }
        for protocol in PROTOCOLS
    ],
}
TOPIC_RULES = {
    "properties": {"TopicName": {"pattern": r"^[A-Za-z0-9_-]+\Z"}, "Subscription": {"items": SUBSCRIPTION_RULES}}
}
TABLE_RULES = {"properties": {"TableName": {"pattern": r"^[a-zA-Z0-9_.-]{3,255}\Z"}}}
# documented: API_SetQueueAttributes.html.
QUEUE_DEFAULTS = {
    **{"DelaySeconds": "0", "MessageRetentionPeriod": "345600", "ReceiveMessageWaitTimeSeconds": "0"},
    **{"VisibilityTimeout": "30", "RedrivePolicy": ""},
}
# documented: API_PutTargets.html
MOST_TARGETS = 5


def _attributes(properties: Properties) -> dict[str, str]:
    """Return the attributes of a queue; only FIFO queues have FifoQueue."""
    left_out = ("QueueName", "Tags", *(("FifoQueue",) if not properties.get("FifoQueue") else ()))
    return texts({name: value for name, value in properties.items() if name not in left_out})


def _check_queue(properties: Properties) -> Iterator[str]:
    fifo = properties.get("FifoQueue", False)
    if properties["QueueName"].endswith(".fifo") != fifo:
        yield "the names of FIFO queues end with .fifo, and no other names"
    if properties.get("ContentBasedDeduplication") and not fifo:
        yield "ContentBasedDeduplication is for FIFO queues"
    if "RedrivePolicy" in properties and properties["RedrivePolicy"]["deadLetterTargetArn"].endswith(".fifo") != fifo:
        yield "only FIFO queues have a FIFO queue for dead letters, and they need one"


def _put_queue_policy(services: Services, made: Made, properties: Properties) -> Made:
    queues = properties["Queues"]
    for queue in queues:
        services("sqs").set_queue_attributes(
            QueueUrl=queue, Attributes={"Policy": as_text(properties["PolicyDocument"])}
        )
    return replace(made, keys={"queues": queues})


def _remove_queue_policy(services: Services, made: Made) -> None:
    for queue in made.keys["queues"]:
        services("sqs").set_queue_attributes(QueueUrl=queue, Attributes={"Policy": ""})


def _create_topic(services: Services, made: Made, properties: Properties) -> Made:
    services("sns").create_topic(Name=properties["TopicName"])
    return _change_topic(services, replace(made, keys={"subscriptions": []}), properties)


def _change_topic(services: Services, made: Made, properties: Properties) -> Made:
    """Change a topic and its own subscriptions; other resources' subscriptions stay."""
    client = services("sns")
    name = properties.get("DisplayName", "")
    client.set_topic_attributes(TopicArn=made.ref, AttributeName="DisplayName", AttributeValue=name)
    change_tags(services, "sns", made.ref, properties)
    # Subscribing again returns the existing subscription.
    arns = [
        client.subscribe(TopicArn=made.ref, ReturnSubscriptionArn=True, **subscription)["SubscriptionArn"]
        for subscription in properties.get("Subscription") or []
    ]
    for gone in sorted(set(made.keys["subscriptions"]) - set(arns)):
        client.unsubscribe(SubscriptionArn=gone)
    return replace(made, keys={"subscriptions": arns})


def _subscription(_services: Services, _made: Made, properties: Properties) -> Properties:
    """Return the members of Subscribe; other properties are attributes."""
    given = {name: properties[name] for name in ("TopicArn", "Protocol", "Endpoint")}
    attributes = texts({name: value for name, value in properties.items() if name not in given})
    return {**given, "Attributes": attributes, "ReturnSubscriptionArn": True}


def _create_rule(services: Services, made: Made, properties: Properties) -> Made:
    made = replace(made, keys={"targets": []})
    try:
        return _change_rule(services, made, properties)
    except ClientError:
        _remove_rule(services, made)
        raise


def _change_rule(services: Services, made: Made, properties: Properties) -> Made:
    client = services("events")
    members = {name: value for name, value in properties.items() if name not in ("Name", "Tags", "Targets")}
    if "EventPattern" in members:
        members["EventPattern"] = as_text(members["EventPattern"])
    client.put_rule(Name=made.ref, **members)
    targets = properties.get("Targets") or []
    if targets:
        client.put_targets(Rule=made.ref, Targets=targets)
    change_tags(services, "events", made.attributes["Arn"], properties)
    ids = [target["Id"] for target in targets]
    if gone := sorted(set(made.keys["targets"]) - set(ids)):
        client.remove_targets(Rule=made.ref, Ids=gone)
    return replace(made, keys={"targets": ids})


def _remove_rule(services: Services, made: Made) -> None:
    if made.keys["targets"]:
        services("events").remove_targets(Rule=made.ref, Ids=made.keys["targets"])
    services("events").delete_rule(Name=made.ref)


def _check_rule(properties: Properties) -> Iterator[str]:
    schedule, pattern = properties.get("ScheduleExpression"), properties.get("EventPattern")
    if schedule is None and pattern is None:
        yield "a rule needs ScheduleExpression or EventPattern"
    if schedule is not None:
        yield from schedule_problems(schedule)
    if pattern is not None:
        yield from pattern_problems(as_text(pattern))
    targets = properties.get("Targets") or []
    if len(targets) > MOST_TARGETS or len({target["Id"] for target in targets}) < len(targets):
        yield f"a rule has at most {MOST_TARGETS} targets, each with its own Id"
    for target in targets:
        yield from target_problems(target)


def _create_bucket(services: Services, made: Made, properties: Properties) -> Made:
    services("s3").create_bucket(Bucket=made.ref)
    return _change_bucket(services, made, properties)


def _change_bucket(services: Services, made: Made, properties: Properties) -> Made:
    """Apply the bucket settings that have an effect here; its objects stay."""
    client, tags = services("s3"), tags_of(properties)
    cors, block = properties.get("CorsConfiguration"), properties.get("PublicAccessBlockConfiguration")
    for setting, given in (
        ("bucket_tagging", {"Tagging": {"TagSet": pairs(tags)}} if tags else None),
        ("bucket_cors", None if cors is None else {"CORSConfiguration": _cors(cors)}),
        ("public_access_block", None if block is None else {"PublicAccessBlockConfiguration": block}),
    ):
        if given is None:
            getattr(client, f"delete_{setting}")(Bucket=made.ref)
        else:
            getattr(client, f"put_{setting}")(Bucket=made.ref, **given)
    versioning = properties.get("VersioningConfiguration")
    if versioning or client.get_bucket_versioning(Bucket=made.ref).get("Status"):
        # documented: versioning that was enabled can only be suspended.
        client.put_bucket_versioning(Bucket=made.ref, VersioningConfiguration=versioning or {"Status": "Suspended"})
    return made


def _cors(configuration: Properties) -> Properties:
    names = {"ExposedHeaders": "ExposeHeaders", "Id": "ID", "MaxAge": "MaxAgeSeconds"}
    rules = configuration["CorsRules"]
    return {"CORSRules": [{names.get(name, name): value for name, value in rule.items()} for rule in rules]}


def _check_bucket(properties: Properties) -> Iterator[str]:
    name = properties["BucketName"]
    if not NAME.fullmatch(name) or ADDRESS.fullmatch(name):
        yield f"{name!r} cannot be the name of a bucket"


def _check_bucket_policy(properties: Properties) -> Iterator[str]:
    try:
        statements(as_text(properties["PolicyDocument"]), principals=True)
    except (ValueError, NotImplementedError) as error:
        yield str(error).rstrip(".")


def _table_members(properties: Properties) -> Properties:
    given = {"BillingMode": "PAY_PER_REQUEST", **properties}
    if "ProvisionedThroughput" in properties:
        given["BillingMode"] = properties.get("BillingMode", "PROVISIONED")
    return given


def _change_table(services: Services, made: Made, properties: Properties) -> Made:
    """Change a table; its items stay."""
    client, wanted = services("dynamodb"), _table_members(properties)
    described = client.describe_table(TableName=made.ref)["Table"]
    before = {index["IndexName"] for index in described.get("GlobalSecondaryIndexes", ())}
    after = {index["IndexName"]: index for index in wanted.get("GlobalSecondaryIndexes", ())}
    updates: list[Properties] = [{"Delete": {"IndexName": name}} for name in sorted(before - after.keys())]
    updates += [{"Create": index} for name, index in after.items() if name not in before]
    others = ("AttributeDefinitions", "BillingMode", "DeletionProtectionEnabled", "ProvisionedThroughput", "TableClass")
    given = {name: wanted[name] for name in others if name in wanted}
    if updates:
        given["GlobalSecondaryIndexUpdates"] = updates
    client.update_table(TableName=made.ref, **given)
    change_tags(services, "dynamodb", made.attributes["Arn"], properties)
    return made


def _check_table(properties: Properties) -> Iterator[str]:
    provisioned = properties.get("BillingMode", "PROVISIONED") == "PROVISIONED"
    if "ProvisionedThroughput" in properties and not provisioned:
        yield "ProvisionedThroughput cannot be specified when BillingMode is PAY_PER_REQUEST"
    elif "BillingMode" in properties and provisioned and "ProvisionedThroughput" not in properties:
        yield "BillingMode PROVISIONED needs ProvisionedThroughput"
    request = json.dumps(_table_members(properties)).encode()
    if found := list(refused(lambda: members("dynamodb", "CreateTable", request))):
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


def _create_log_group(services: Services, made: Made, properties: Properties) -> Made:
    """Create a log group, or take over the one that a function's logs have made."""
    tags = tags_of(properties)
    try:
        services("logs").create_log_group(logGroupName=made.ref, **({"tags": tags} if tags else {}))
    except ClientError as error:
        # A function of the same name may have written there, since names are the same at each deployment, unlike on
        # AWS.
        if error.response["Error"]["Code"] != "ResourceAlreadyExistsException":
            raise
    return _change_log_group(services, made, properties)


def _change_log_group(services: Services, made: Made, properties: Properties) -> Made:
    if (days := properties.get("RetentionInDays")) is None:
        services("logs").delete_retention_policy(logGroupName=made.ref)
    else:
        services("logs").put_retention_policy(logGroupName=made.ref, retentionInDays=days)
    return made


PUT_BUCKET_POLICY = call(
    "s3",
    "put_bucket_policy",
    lambda _services, made, given: {"Bucket": made.ref, "Policy": as_text(given["PolicyDocument"])},
)
URL, TOPIC = f"http://127.0.0.1:4566/{ACCOUNT}/{{name}}", arn("sns", "{name}")
KINDS = {
    "AWS::SQS::Queue": Kind(
        names("""ContentBasedDeduplication DelaySeconds FifoQueue MaximumMessageSize MessageRetentionPeriod
        QueueName ReceiveMessageWaitTimeSeconds RedrivePolicy SqsManagedSseEnabled Tags VisibilityTimeout"""),
        forms(URL, Arn=arn("sqs", "{name}"), QueueName="{name}", QueueUrl=URL),
        call(
            "sqs",
            "create_queue",
            lambda _services, _made, given: {
                "QueueName": given["QueueName"],
                "Attributes": _attributes(given),
                "tags": tags_of(given),
            },
            ref="QueueUrl",
            attributes={"QueueUrl": "QueueUrl"},
        ),
        by("sqs", "delete_queue", "QueueUrl"),
        # Attributes that were removed from the template get their defaults; FifoQueue can't be changed.
        call(
            "sqs",
            "set_queue_attributes",
            lambda _services, made, given: {
                "QueueUrl": made.ref,
                "Attributes": QUEUE_DEFAULTS | _attributes({**given, "FifoQueue": False}),
            },
            tagged="QueueUrl",
        ),
        _check_queue,
        named="QueueName",
        rules=QUEUE_RULES,
    ),
    "AWS::SQS::QueuePolicy": Kind(
        names("PolicyDocument Queues"),
        forms("{name}", Id="{name}"),
        _put_queue_policy,
        _remove_queue_policy,
        rules=QUEUE_POLICY_RULES,
    ),
    "AWS::SNS::Topic": Kind(
        names("DisplayName TopicName Subscription Tags"),
        forms(TOPIC, TopicArn=TOPIC, TopicName="{name}"),
        _create_topic,
        by("sns", "delete_topic", "TopicArn"),
        _change_topic,
        named="TopicName",
        rules=TOPIC_RULES,
    ),
    "AWS::SNS::Subscription": Kind(
        names("TopicArn Protocol Endpoint FilterPolicy FilterPolicyScope RawMessageDelivery"),
        forms(f"{{TopicArn}}:{ID}", Arn=f"{{TopicArn}}:{ID}"),
        call("sns", "subscribe", _subscription, ref="SubscriptionArn", attributes={"Arn": "SubscriptionArn"}),
        by("sns", "unsubscribe", "SubscriptionArn"),
        rules=SUBSCRIPTION_RULES,
    ),
    "AWS::Events::Rule": Kind(
        names("Description EventPattern Name RoleArn ScheduleExpression State Tags Targets"),
        forms("{name}", Arn=arn("events", "rule/{name}"), RuleName="{name}"),
        _create_rule,
        _remove_rule,
        _change_rule,
        _check_rule,
        named="Name",
    ),
    "AWS::S3::Bucket": Kind(
        names("BucketName CorsConfiguration PublicAccessBlockConfiguration Tags VersioningConfiguration"),
        forms(
            "{name}",
            Arn="arn:aws:s3:::{name}",
            # AWS's names, which can't be reached here.
            DomainName="{name}.s3.amazonaws.com",
            DualStackDomainName=f"{{name}}.s3.dualstack.{REGION}.amazonaws.com",
            RegionalDomainName=f"{{name}}.s3.{REGION}.amazonaws.com",
        ),
        _create_bucket,
        by("s3", "delete_bucket", "Bucket"),
        _change_bucket,
        _check_bucket,
        named="BucketName",
    ),
    "AWS::S3::BucketPolicy": Kind(
        names("Bucket PolicyDocument"),
        forms("{Bucket}"),
        PUT_BUCKET_POLICY,
        by("s3", "delete_bucket_policy", "Bucket"),
        PUT_BUCKET_POLICY,
        _check_bucket_policy,
    ),
    "AWS::DynamoDB::Table": Kind(
        names("""AttributeDefinitions BillingMode DeletionProtectionEnabled GlobalSecondaryIndexes KeySchema
        LocalSecondaryIndexes ProvisionedThroughput TableClass TableName Tags"""),
        forms("{name}", Arn=arn("dynamodb", "table/{name}")),
        call("dynamodb", "create_table", lambda _services, _made, given: _table_members(given)),
        by("dynamodb", "delete_table", "TableName"),
        _change_table,
        _check_table,
        named="TableName",
        rules=TABLE_RULES,
    ),
    "AWS::Logs::LogGroup": Kind(
        names("LogGroupClass LogGroupName RetentionInDays Tags"),
        forms("{name}", Arn=arn("logs", "log-group:{name}:*")),
        _create_log_group,
        by("logs", "delete_log_group", "logGroupName"),
        _change_log_group,
        named="LogGroupName",
    ),
}
