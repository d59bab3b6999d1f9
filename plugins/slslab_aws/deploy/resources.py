"""Describe types of resources: their properties, the values of Ref and Fn::GetAtt, and how to make and check them.

https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-template-resource-type-ref.html. Properties have the
types of CloudFormation's registry, and the same names as the operations' members, except where a function differs.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.clients import aws_client
from slslab.aws.errors import ServiceError
from slslab.aws.keys import Pair
from slslab.lambda_.references import function_arn
from slslab_aws.deploy.schemas import text_of

Properties = dict[str, Any]
# Stands for an id that a service chooses.
ID = "00000000-0000-4000-8000-000000000000"


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


Expect = Callable[[str, Properties], Made]


@dataclass(frozen=True)
class Kind:
    """How to make, change (None: remove and make again) and remove resources of one type.

    `expect` returns, before anything is made, the values of Ref and attributes: exact ones, or a value of the same form
    where the service chooses it. Its attributes are the attributes of this type. `create` takes what it returned, and
    returns it with what the service has chosen. `check` yields the errors that the service would return for properties
    that comply with CloudFormation's registry and with `rules`, a JSON schema, without a full stop. `named` is the
    property with a resource's name.
    """

    properties: frozenset[str]
    expect: Expect
    create: Callable[[Services, Made, Properties], Made]
    delete: Callable[[Services, Made], object]
    update: Callable[[Services, Made, Properties], Made] | None = None
    check: Callable[[Properties], Iterator[str]] = lambda _properties: iter(())
    named: str = ""
    rules: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Planned:
    """A resource as it will be made: its type, its properties, and the values of Ref and its attributes."""

    kind: str
    properties: Properties
    made: Made


class _Values(dict[str, Any]):
    """The values of a form; a property that is missing, which is an error, stands for itself."""

    def __missing__(self, name: str) -> str:
        return name


def forms(ref: str, **attributes: str) -> Expect:
    """Return an `expect` function for these forms of Ref and the attributes.

    In a form, {name} is the resource's name, {function} the ARN of its function, and others are properties.
    """

    def expect(name: str, properties: Properties) -> Made:
        values = _Values({**properties, "name": name, "function": function_of(properties)})
        return Made(ref.format_map(values), {key: form.format_map(values) for key, form in attributes.items()})

    return expect


def function_of(properties: Properties, qualifier: str | None = None) -> str:
    """Return the ARN of the function that a resource belongs to."""
    name = str(properties.get("FunctionName", properties.get("TargetFunctionArn")))
    return function_arn(name.split(":function:")[-1].split(":")[0], qualifier)


def arn(service: str, resource: str) -> str:
    """Return the ARN of a resource of this account."""
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{resource}"


def by(service: str, operation: str, member: str = "") -> Callable[[Services, Made], object]:
    """Return a function that removes a resource by its reference, or without `member` by its keys."""
    return lambda services, made: getattr(services(service), operation)(**({member: made.ref} if member else made.keys))


def call(
    service: str,
    operation: str,
    members: Callable[[Services, Made, Properties], Properties] = lambda _services, _made, properties: properties,
    *,
    ref: str = "",
    attributes: Mapping[str, str] = MappingProxyType({}),
    keys: Mapping[str, str] = MappingProxyType({}),
    tagged: str = "",
) -> Callable[[Services, Made, Properties], Made]:
    """Return a function that makes or changes a resource by an operation with these members.

    `ref`, `attributes` and `keys` name members of the request or the answer that replace the values of the resource.
    `tagged` is the attribute that identifies the resource if its tags may have changed.
    """

    def apply(services: Services, made: Made, properties: Properties) -> Made:
        given = members(services, made, properties)
        told = {**given, **getattr(services(service), operation)(**given)}
        if tagged:
            change_tags(services, service, made.attributes[tagged], properties)
        return Made(
            told[ref] if ref else made.ref,
            {**made.attributes, **{name: told[member] for name, member in attributes.items()}},
            {**made.keys, **{name: told[member] for name, member in keys.items() if member in told}},
        )

    return apply


def names(text: str) -> frozenset[str]:
    """Return the names in a text."""
    return frozenset(text.split())


def refused(call: Callable[[], object]) -> Iterator[str]:
    """Yield the message of a service's refusal, if the call raises one."""
    try:
        call()
    except ServiceError as error:
        yield error.message.rstrip(".")


def as_text(value: Any) -> str:
    """Return a document as JSON, unless it is given so."""
    return value if isinstance(value, str) else json.dumps(value)


def texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return attributes as texts, as SQS and SNS expect them; structures become JSON."""
    return {
        name: json.dumps(value) if isinstance(value, dict | list) else text_of(value) for name, value in values.items()
    }


def tags_of(properties: Properties) -> dict[str, str]:
    """Return the tags of a resource by their names."""
    tags = properties.get("Tags") or {}
    return tags if isinstance(tags, dict) else {tag["Key"]: tag.get("Value", "") for tag in tags}


def pairs(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags in the form that most services use."""
    return [{"Key": name, "Value": value} for name, value in tags.items()]


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
        getattr(client, operation)(**of, **(lower_names(members) if service == "stepfunctions" else members))

    if new := {name: value for name, value in given.items() if known.get(name) != value}:
        tell(add, Tags=pairs(new) if are_pairs else new)
    if gone := sorted(known.keys() - given.keys()):
        tell(remove, TagKeys=gone)


def lower_names(value: Any) -> Any:
    """Return a value with the names of the Step Functions API, which begin with a small letter."""
    if isinstance(value, list):
        return [lower_names(entry) for entry in value]
    if isinstance(value, dict):
        return {name[0].lower() + name[1:]: lower_names(entry) for name, entry in value.items()}
    return value
