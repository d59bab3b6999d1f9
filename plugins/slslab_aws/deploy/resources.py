"""Make, change and remove resources by the operations of their services.

https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-template-resource-type-ref.html. Properties have the
types of CloudFormation's registry, and the same names as the operations' members, except where a function here differs.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from botocore.exceptions import ClientError

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
    """A resource that was made: its `Ref`, its attributes, and the data to change or remove it."""

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


def tags_of(properties: Properties) -> dict[str, str]:
    """Return the tags of a resource by their names."""
    tags = properties.get("Tags") or {}
    return tags if isinstance(tags, dict) else {tag["Key"]: tag.get("Value", "") for tag in tags}


# By service: the member that names a resource, the operations that list, add and remove tags, and whether tags are
# pairs.
TAGGING = {
    "lambda": ("Resource", "list_tags", "tag_resource", "untag_resource", False),
    "sqs": ("QueueUrl", "list_queue_tags", "tag_queue", "untag_queue", False),
    "sns": ("ResourceArn", "list_tags_for_resource", "tag_resource", "untag_resource", True),
    "dynamodb": ("ResourceArn", "list_tags_of_resource", "tag_resource", "untag_resource", True),
    "events": ("ResourceARN", "list_tags_for_resource", "tag_resource", "untag_resource", True),
    "stepfunctions": ("resourceArn", "list_tags_for_resource", "tag_resource", "untag_resource", True),
}


def change_tags(services: Services, service: str, resource: str, properties: Properties) -> None:
    """Add new and changed tags of a resource, and remove old ones."""
    member, listing, add, remove, are_pairs = TAGGING[service]
    client, of, given = services(service), {member: resource}, tags_of(properties)
    answer = getattr(client, listing)(**of)
    known = {tag["key"]: tag["value"] for tag in answer["tags"]} if "tags" in answer else tags_of(answer)

    def tell(operation: str, **members: Any) -> None:
        getattr(client, operation)(**of, **(_lower_names(members) if service == "stepfunctions" else members))

    if new := {name: value for name, value in given.items() if known.get(name) != value}:
        tell(add, Tags=pairs(new) if are_pairs else new)
    if gone := sorted(known.keys() - given.keys()):
        tell(remove, TagKeys=gone)


def pairs(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags in the form that most services use."""
    return [{"Key": name, "Value": value} for name, value in tags.items()]


def texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return attributes as texts, as SQS and SNS expect them; structures become JSON."""
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
    return {**members, "Tags": tags_of(properties)}


def _reserve(services: Services, name: str, properties: Properties) -> None:
    if (reserved := properties.get("ReservedConcurrentExecutions")) is not None:
        services("lambda").put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=reserved)


def create_function(services: Services, made: Made, properties: Properties) -> Made:
    """Create a function."""
    client = services("lambda")
    client.create_function(**function_members(properties), Code=_code(services, properties["Code"]))
    try:
        _reserve(services, made.ref, properties)
    except ClientError:
        client.delete_function(FunctionName=made.ref)
        raise
    return made


def change_function(services: Services, made: Made, properties: Properties) -> Made:
    """Change a function; settings that were removed from its template get their defaults."""
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
    change_tags(services, "lambda", made.attributes["Arn"], properties)
    return made


def _defaults() -> Properties:
    limits = lambda_limits()
    return {
        **{"Description": "", "Environment": {"Variables": {}}, "Layers": [], "DeadLetterConfig": {"TargetArn": ""}},
        **{"MemorySize": limits.memory_mb.default, "Timeout": limits.timeout_s.default},
        "EphemeralStorage": {"Size": limits.ephemeral_mb.default},
        **{"KMSKeyArn": "", "TracingConfig": {"Mode": "PassThrough"}, "SnapStart": {"ApplyOn": "None"}},
        **{"LoggingConfig": {"LogFormat": "Text"}, "VpcConfig": {"SubnetIds": [], "SecurityGroupIds": []}},
        "FileSystemConfigs": [],
    }


def publish_layer(services: Services, _made: Made, properties: Properties) -> Made:
    """Publish a version of a layer."""
    given = {**properties, "Content": _code(services, properties["Content"])}
    layer = services("lambda").publish_layer_version(**given)
    arn = layer["LayerVersionArn"]
    return Made(arn, {"LayerVersionArn": arn}, {"LayerName": layer["LayerArn"], "VersionNumber": layer["Version"]})


def publish_version(services: Services, _made: Made, properties: Properties) -> Made:
    """Publish a version of a function."""
    function = services("lambda").publish_version(**properties)
    arn, version = function["FunctionArn"], function["Version"]
    keys = {"FunctionName": function["FunctionName"], "Qualifier": version}
    return Made(arn, {"Version": version, "FunctionArn": arn}, keys)


def create_alias(services: Services, made: Made, properties: Properties) -> Made:
    """Create an alias."""
    services("lambda").create_alias(**properties)
    return replace(made, keys={name: properties[name] for name in ("FunctionName", "Name")})


def change_alias(services: Services, made: Made, properties: Properties) -> Made:
    """Change an alias."""
    services("lambda").update_alias(**properties)
    return made


def add_permission(services: Services, made: Made, properties: Properties) -> Made:
    """Add a statement to the policy of a function."""
    services("lambda").add_permission(**properties, StatementId=made.ref)
    return replace(made, keys={"FunctionName": properties["FunctionName"], "StatementId": made.ref})


def create_url(services: Services, made: Made, properties: Properties) -> Made:
    """Create the URL of a function."""
    target = properties["TargetFunctionArn"]
    members = {name: value for name, value in properties.items() if name != "TargetFunctionArn"}
    url = services("lambda").create_function_url_config(FunctionName=target, **members)["FunctionUrl"]
    return Made(made.ref, {**made.attributes, "FunctionUrl": url}, {"FunctionName": target})


def change_url(services: Services, made: Made, properties: Properties) -> Made:
    """Change the URL of a function; it keeps its address."""
    members = {"Cors": {}, "InvokeMode": "BUFFERED", **properties}
    target = members.pop("TargetFunctionArn")
    services("lambda").update_function_url_config(FunctionName=target, **members)
    return made


def put_event_settings(services: Services, made: Made, properties: Properties) -> Made:
    """Set how a function handles events."""
    services("lambda").put_function_event_invoke_config(**properties)
    return replace(made, keys={key: properties[key] for key in ("FunctionName", "Qualifier") if key in properties})


def create_source(services: Services, _made: Made, properties: Properties) -> Made:
    """Create an event source mapping."""
    source = services("lambda").create_event_source_mapping(**properties)
    attributes = {"Id": source["UUID"], "EventSourceMappingArn": source["EventSourceMappingArn"]}
    return Made(source["UUID"], attributes, {"UUID": source["UUID"]})


def change_source(services: Services, made: Made, properties: Properties) -> Made:
    """Change an event source mapping."""
    members = {name: value for name, value in properties.items() if name not in ("EventSourceArn", "Tags")}
    services("lambda").update_event_source_mapping(**members, **made.keys)
    change_tags(services, "lambda", made.attributes["EventSourceMappingArn"], properties)
    return made


# --- Step Functions


def definition(files: Mapping[str, bytes], properties: Properties) -> str:
    """Return the definition of a state machine, from whichever property has it, with its substitutions."""
    if "DefinitionS3Location" in properties:
        text = files[properties["DefinitionS3Location"]["Key"]].decode()
    else:
        text = properties.get("DefinitionString") or json.dumps(properties["Definition"])
    for name, value in (properties.get("DefinitionSubstitutions") or {}).items():
        text = text.replace(f"${{{name}}}", text_of(value))
    return str(text)


def create_machine(services: Services, made: Made, properties: Properties) -> Made:
    """Create a state machine."""
    members, tags = _machine_members(services, properties), _lower_names(pairs(tags_of(properties)))
    services("stepfunctions").create_state_machine(name=properties["StateMachineName"], **members, tags=tags)
    return made


def change_machine(services: Services, made: Made, properties: Properties) -> Made:
    """Change a state machine."""
    members = _machine_members(services, properties)
    services("stepfunctions").update_state_machine(stateMachineArn=made.ref, **members)
    change_tags(services, "stepfunctions", made.ref, properties)
    return made


def _machine_members(services: Services, properties: Properties) -> Properties:
    return {
        "definition": definition(services.files, properties),
        "roleArn": properties["RoleArn"],
        **machine_settings(properties),
    }


def machine_settings(properties: Properties) -> Properties:
    """Return the logging and tracing of a state machine; both are off by default."""
    names = {"LoggingConfiguration": "loggingConfiguration", "TracingConfiguration": "tracingConfiguration"}
    return {name: _lower_names(properties.get(key, SETTINGS[name])) for key, name in names.items()}


def _lower_names(value: Any) -> Any:
    """Return a value with the names of the Step Functions API, which begin with a small letter."""
    if isinstance(value, list):
        return [_lower_names(entry) for entry in value]
    if isinstance(value, dict):
        return {name[0].lower() + name[1:]: _lower_names(entry) for name, entry in value.items()}
    return value
