"""List the types that slslab deploys; Tags are passed on where the operation knows them."""

from collections.abc import Mapping
from typing import Any

from slslab_aws.deploy import functions, other_resources
from slslab_aws.deploy.resources import Kind, Made, Properties

KINDS: Mapping[str, Kind] = {**functions.KINDS, **other_resources.KINDS}


def with_name(kind: str, name: str, properties: Properties) -> Properties:
    """Return properties with this name, in the form that the service accepts, if resources of the type have names."""
    named = KINDS[kind].named
    if kind == "AWS::S3::Bucket":
        name = name.lower()
    elif kind == "AWS::SQS::Queue":
        name += ".fifo" * bool(properties.get("FifoQueue"))
    return {named: name, **properties} if named else properties


def expected(kind: str, name: str, properties: Mapping[str, Any]) -> Made:
    """Return the values of Ref and the attributes of a resource before it is made; its properties may name it."""
    complete = with_name(kind, name, dict(properties))
    return KINDS[kind].expect(str(complete.get(KINDS[kind].named, name)), complete)
