"""By what AllReduce and ScatterReduce exchange vectors: S3, or another channel of objects (`--channel`).

Importing this module does not import a channel's client.
"""

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType

from slslab_workers.channels import endpoints
from slslab_workers.channels.objects import ObjectChannel
from slslab_workers.channels.serialisation import SERIALISATIONS, Serialisation
from slslab_workers.option import Option
from slslab_workers.plan import Plan, Value
from slslab_workers.trace.operations import SERVERS

# Opens a channel for a worker of a plan, by the environment's variables; the store's channel has the tracer.
Opener = Callable[[str, ObjectChannel, Plan], ObjectChannel]


def _s3(_bucket: str, objects: ObjectChannel, _plan: Plan) -> ObjectChannel:
    return objects


def _memcached(_bucket: str, objects: ObjectChannel, _plan: Plan) -> ObjectChannel:
    from slslab_workers.channels.memcached import Memcached

    return Memcached(endpoints.channel_url(os.environ), objects.tracer)


def _redis(_bucket: str, objects: ObjectChannel, _plan: Plan) -> ObjectChannel:
    from slslab_workers.channels.redis import Redis

    return Redis(endpoints.channel_url(os.environ), objects.tracer)


def _dynamodb(bucket: str, objects: ObjectChannel, _plan: Plan) -> ObjectChannel:
    from slslab_workers.channels.dynamodb import DynamoDB, environment_client

    # The table has the name of the run's bucket.
    return DynamoDB(environment_client(), bucket, objects.tracer)


def _parameter_server(_bucket: str, objects: ObjectChannel, plan: Plan) -> ObjectChannel:
    from slslab_workers.channels.parameter_server import ParameterServer

    return ParameterServer(endpoints.channel_url(os.environ), objects.tracer, str(SERIALISATION.of(plan.options)))


PARAMETER_SERVER = "parameter-server"
OPENERS: dict[str, Opener] = {
    "s3": _s3,
    "memcached": _memcached,
    "redis": _redis,
    "dynamodb": _dynamodb,
    PARAMETER_SERVER: _parameter_server,
}
# Where the name of the channel in a trace is another one.
TRACED: Mapping[str, str] = MappingProxyType({"s3": "object", PARAMETER_SERVER: "parameter"})
CHANNEL = Option(
    "channel",
    str,
    "s3",
    "What vectors are exchanged by: s3, a server of memcached or redis, a table of dynamodb (items of at most 400 KB), "
    "or a parameter-server, which adds them up itself.",
    tuple(OPENERS),
)
SERIALISATION = Option(
    "serialisation",
    str,
    "raw",
    "How vectors travel: raw as they are in memory; to a parameter server and back as doubles, by way of Python's "
    "lists, as in LambdaML's code with Thrift; or, gradients of sparse rows, sparse, without their zeros.",
    tuple(SERIALISATIONS),
)
CHANNEL_HOST = Option(
    "channel-host",
    str,
    "auto",
    "Type by which the price book bills the server of memcached, redis or parameter-server; auto is "
    f"{SERVERS['memcached'].instance_type}, of a parameter server {SERVERS['parameter'].instance_type}.",
)


def traced(options: Mapping[str, Value]) -> str:
    """Return the name of the options' channel in a trace, with which its operations begin."""
    channel = str(CHANNEL.of(options))
    return TRACED.get(channel, channel)


def deleted_bytes(options: Mapping[str, Value], size: int | None) -> int | None:
    """Return the bytes of the event of deleting an object of this size: those by which DynamoDB bills it."""
    return size if CHANNEL.of(options) == "dynamodb" else 0


def adds_up(options: Mapping[str, Value]) -> bool:
    """Return whether the options' channel adds up vectors itself."""
    return CHANNEL.of(options) == PARAMETER_SERVER


def serialisation(options: Mapping[str, Value]) -> Serialisation:
    """Return how vectors travel by the options' channel."""
    return SERIALISATIONS[str(SERIALISATION.of(options))]


def moved_bytes(options: Mapping[str, Value], size: int) -> int | None:
    """Return the bytes by which a vector, of so many in float32, travels; None if they depend on its numbers."""
    chosen = serialisation(options)
    return size // 4 * chosen.number_bytes if chosen.dense else None


def lists(options: Mapping[str, Value]) -> bool:
    """Return whether the options' channel can say which keys it has."""
    return CHANNEL.of(options) == "s3"


def open_channel(plan: Plan, bucket: str, objects: ObjectChannel) -> ObjectChannel:
    """Return the plan's channel, as a worker uses it whose other objects are in a bucket."""
    return OPENERS[str(CHANNEL.of(plan.options))](bucket, objects, plan)


def host(options: Mapping[str, Value]) -> str:
    """Return the node type that serves the options' channel; empty if AWS bills requests instead."""
    usual = SERVERS[traced(options)].instance_type
    chosen = str(CHANNEL_HOST.of(options))
    return (usual if chosen == "auto" else chosen) if usual is not None else ""
