"""Make, change and remove a template's buckets, queues, topics, roles, tables, log groups and rules."""

import json
from dataclasses import replace

from botocore.exceptions import ClientError

from slslab_aws.deploy.resources import Made, Properties, Services, change_tags, pairs, tags_of, texts

# documented: API_SetQueueAttributes.html.
QUEUE_DEFAULTS = {
    **{"DelaySeconds": "0", "MessageRetentionPeriod": "345600", "ReceiveMessageWaitTimeSeconds": "0"},
    **{"VisibilityTimeout": "30", "RedrivePolicy": ""},
}


def create_bucket(services: Services, made: Made, properties: Properties) -> Made:
    """Create a bucket."""
    services("s3").create_bucket(Bucket=made.ref)
    return change_bucket(services, made, properties)


def change_bucket(services: Services, made: Made, properties: Properties) -> Made:
    """Apply the bucket settings that have an effect here; its objects stay."""
    client, tags = services("s3"), tags_of(properties)
    if tags:
        client.put_bucket_tagging(Bucket=made.ref, Tagging={"TagSet": pairs(tags)})
    else:
        client.delete_bucket_tagging(Bucket=made.ref)
    if "CorsConfiguration" in properties:
        client.put_bucket_cors(Bucket=made.ref, CORSConfiguration=_cors(properties["CorsConfiguration"]))
    else:
        client.delete_bucket_cors(Bucket=made.ref)
    if (block := properties.get("PublicAccessBlockConfiguration")) is not None:
        client.put_public_access_block(Bucket=made.ref, PublicAccessBlockConfiguration=block)
    else:
        client.delete_public_access_block(Bucket=made.ref)
    versioning = properties.get("VersioningConfiguration")
    if versioning or client.get_bucket_versioning(Bucket=made.ref).get("Status"):
        # documented: versioning that was enabled can only be suspended.
        client.put_bucket_versioning(Bucket=made.ref, VersioningConfiguration=versioning or {"Status": "Suspended"})
    return made


def _cors(configuration: Properties) -> Properties:
    names = {"ExposedHeaders": "ExposeHeaders", "Id": "ID", "MaxAge": "MaxAgeSeconds"}
    rules = configuration["CorsRules"]
    return {"CORSRules": [{names.get(name, name): value for name, value in rule.items()} for rule in rules]}


def put_bucket_policy(services: Services, made: Made, properties: Properties) -> Made:
    """Set the policy of a bucket."""
    policy = properties["PolicyDocument"]
    text = policy if isinstance(policy, str) else json.dumps(policy)
    services("s3").put_bucket_policy(Bucket=made.ref, Policy=text)
    return made


def create_queue(services: Services, made: Made, properties: Properties) -> Made:
    """Create a queue."""
    given = {"QueueName": properties["QueueName"], "Attributes": _attributes(properties), "tags": tags_of(properties)}
    url = services("sqs").create_queue(**given)["QueueUrl"]
    return replace(made, ref=url, attributes={**made.attributes, "QueueUrl": url})


def change_queue(services: Services, made: Made, properties: Properties) -> Made:
    """Change the attributes of a queue; attributes that were removed from its template get their defaults."""
    attributes = {name: value for name, value in _attributes(properties).items() if name != "FifoQueue"}
    attributes = QUEUE_DEFAULTS | attributes
    services("sqs").set_queue_attributes(QueueUrl=made.ref, Attributes=attributes)
    change_tags(services, "sqs", made.ref, properties)
    return made


def _attributes(properties: Properties) -> dict[str, str]:
    """Return the attributes of a queue; only FIFO queues have FifoQueue."""
    left_out = ("QueueName", "Tags", *(("FifoQueue",) if not properties.get("FifoQueue") else ()))
    return texts({name: value for name, value in properties.items() if name not in left_out})


def put_queue_policy(services: Services, made: Made, properties: Properties) -> Made:
    """Set the policy of queues."""
    policy, queues = properties["PolicyDocument"], properties["Queues"]
    for queue in queues:
        attributes = {"Policy": policy if isinstance(policy, str) else json.dumps(policy)}
        services("sqs").set_queue_attributes(QueueUrl=queue, Attributes=attributes)
    return replace(made, keys={"queues": queues})


def remove_queue_policy(services: Services, made: Made) -> None:
    """Remove the policy of queues."""
    for queue in made.keys["queues"]:
        services("sqs").set_queue_attributes(QueueUrl=queue, Attributes={"Policy": ""})


def create_topic(services: Services, made: Made, properties: Properties) -> Made:
    """Create a topic with its subscriptions."""
    services("sns").create_topic(Name=properties["TopicName"])
    return change_topic(services, replace(made, keys={"subscriptions": []}), properties)


def change_topic(services: Services, made: Made, properties: Properties) -> Made:
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


def subscribe(services: Services, _made: Made, properties: Properties) -> Made:
    """Subscribe a queue or a function to a topic."""
    given = {name: properties[name] for name in ("TopicArn", "Protocol", "Endpoint")}
    attributes = texts({name: value for name, value in properties.items() if name not in given})
    answer = services("sns").subscribe(**given, Attributes=attributes, ReturnSubscriptionArn=True)
    return Made(answer["SubscriptionArn"], {"Arn": answer["SubscriptionArn"]})


def create_role(services: Services, made: Made, properties: Properties) -> Made:
    """Create a role with its inline policies, which are not enforced."""
    client = services("iam")
    trust = properties["AssumeRolePolicyDocument"]
    members = {name: properties[name] for name in ("Description", "MaxSessionDuration", "Path") if name in properties}
    role = client.create_role(
        RoleName=made.ref,
        AssumeRolePolicyDocument=trust if isinstance(trust, str) else json.dumps(trust),
        Tags=pairs(tags_of(properties)),
        **members,
    )["Role"]
    # AWS's managed policies don't exist here, and policies aren't enforced.
    made = Made(made.ref, {"Arn": role["Arn"], "RoleId": role["RoleId"]}, {"policies": []})
    for policy in properties.get("Policies") or []:
        # AWS treats a policy without a version as one of 2008; moto refuses it.
        document = policy["PolicyDocument"]
        if not isinstance(document, str):
            document = json.dumps({"Version": "2012-10-17", **document})
        try:
            client.put_role_policy(RoleName=made.ref, PolicyName=policy["PolicyName"], PolicyDocument=document)
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
    """Return the members of CreateTable."""
    given = {"BillingMode": "PAY_PER_REQUEST", **properties}
    if "ProvisionedThroughput" in properties:
        given["BillingMode"] = properties.get("BillingMode", "PROVISIONED")
    if "StreamSpecification" in properties:
        given["StreamSpecification"] = {**properties["StreamSpecification"], "StreamEnabled": True}
    return given


def create_table(services: Services, made: Made, properties: Properties) -> Made:
    """Create a table."""
    table = services("dynamodb").create_table(**table_members(properties))["TableDescription"]
    stream = {"StreamArn": table["LatestStreamArn"]} if "StreamSpecification" in properties else {}
    return replace(made, attributes={**made.attributes, **stream})


def change_table(services: Services, made: Made, properties: Properties) -> Made:
    """Change a table; its items stay."""
    client, members = services("dynamodb"), table_members(properties)
    described = client.describe_table(TableName=made.ref)["Table"]
    before = {index["IndexName"] for index in described.get("GlobalSecondaryIndexes", ())}
    after = {index["IndexName"]: index for index in members.get("GlobalSecondaryIndexes", ())}
    updates: list[Properties] = [{"Delete": {"IndexName": name}} for name in sorted(before - after.keys())]
    updates += [{"Create": index} for name, index in after.items() if name not in before]
    names = ("AttributeDefinitions", "BillingMode", "DeletionProtectionEnabled", "ProvisionedThroughput", "TableClass")
    given = {name: members[name] for name in names if name in members}
    stream = members.get("StreamSpecification", {"StreamEnabled": False})
    if stream["StreamEnabled"] != bool(described.get("LatestStreamArn") and described.get("StreamSpecification")):
        given["StreamSpecification"] = stream
    if updates:
        given["GlobalSecondaryIndexUpdates"] = updates
    client.update_table(TableName=made.ref, **given)
    arn = made.attributes["Arn"]
    change_tags(services, "dynamodb", arn, properties)
    latest = client.describe_table(TableName=made.ref)["Table"].get("LatestStreamArn")
    return Made(made.ref, {"Arn": arn, **({"StreamArn": latest} if "StreamSpecification" in members else {})})


def create_log_group(services: Services, made: Made, properties: Properties) -> Made:
    """Create a log group, or take over the one that a function's logs have made."""
    tags = tags_of(properties)
    try:
        services("logs").create_log_group(logGroupName=made.ref, **({"tags": tags} if tags else {}))
    except ClientError as error:
        # A function of the same name may have written there, since names are the same at each deployment, unlike on
        # AWS.
        if error.response["Error"]["Code"] != "ResourceAlreadyExistsException":
            raise
    return change_log_group(services, made, properties)


def change_log_group(services: Services, made: Made, properties: Properties) -> Made:
    """Change how long a log group keeps events."""
    if (days := properties.get("RetentionInDays")) is None:
        services("logs").delete_retention_policy(logGroupName=made.ref)
    else:
        services("logs").put_retention_policy(logGroupName=made.ref, retentionInDays=days)
    return made


def create_rule(services: Services, made: Made, properties: Properties) -> Made:
    """Create a rule with its targets."""
    made = replace(made, keys={"targets": []})
    try:
        return change_rule(services, made, properties)
    except ClientError:
        remove_rule(services, made)
        raise


def change_rule(services: Services, made: Made, properties: Properties) -> Made:
    """Change a rule and its targets."""
    client = services("events")
    members = {name: value for name, value in properties.items() if name not in ("Name", "Tags", "Targets")}
    if "EventPattern" in members and not isinstance(members["EventPattern"], str):
        members["EventPattern"] = json.dumps(members["EventPattern"])
    client.put_rule(Name=made.ref, **members)
    targets = properties.get("Targets") or []
    if targets:
        client.put_targets(Rule=made.ref, Targets=targets)
    change_tags(services, "events", made.attributes["Arn"], properties)
    ids = [target["Id"] for target in targets]
    if gone := sorted(set(made.keys["targets"]) - set(ids)):
        client.remove_targets(Rule=made.ref, Ids=gone)
    return replace(made, keys={"targets": ids})


def remove_rule(services: Services, made: Made) -> None:
    """Remove a rule and its targets."""
    if made.keys["targets"]:
        services("events").remove_targets(Rule=made.ref, Ids=made.keys["targets"])
    services("events").delete_rule(Name=made.ref)
