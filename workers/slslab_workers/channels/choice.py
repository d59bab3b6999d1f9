"""The channel through which workers exchange vectors: S3, or another one (`--channel`).

Importing this module doesn't import the channels' clients.
"""

import os
from collections.abc import Callable, Mapping
from functools import partial
from pkgutil import resolve_name
from types import MappingProxyType

from slslab_workers.channels import endpoints
from slslab_workers.channels.objects import ObjectChannel
from slslab_workers.channels.serialisation import SERIALISATIONS
from slslab_workers.option import Option, choose
from slslab_workers.plan import Plan, Value
from slslab_workers.trace.operations import SERVERS


def _cache(kind: str, _bucket: str, objects: ObjectChannel, _plan: Plan) -> ObjectChannel:
    channel: ObjectChannel = resolve_name(kind)(endpoints.channel_url(os.environ), objects.tracer)
    return channel


def _dynamodb(bucket: str, objects: ObjectChannel, _plan: Plan) -> ObjectChannel:
    from slslab_workers.channels.dynamodb import DynamoDB, environment_client

    # The table is named like the run's bucket.
    return DynamoDB(environment_client(), bucket, objects.tracer)


def _parameter_server(_bucket: str, objects: ObjectChannel, plan: Plan) -> ObjectChannel:
    from slslab_workers.channels.parameter_server import ParameterServer

    return ParameterServer(endpoints.channel_url(os.environ), objects.tracer, str(SERIALISATION.of(plan.options)))


PARAMETER_SERVER = "parameter-server"
# Each opens a channel for a worker of a plan from environment variables; it uses the tracer of the store's channel.
OPENERS: dict[str, Callable[[str, ObjectChannel, Plan], ObjectChannel]] = {
    "s3": lambda _bucket, objects, _plan: objects,
    "memcached": partial(_cache, "slslab_workers.channels.memcached:Memcached"),
    "redis": partial(_cache, "slslab_workers.channels.redis:Redis"),
    "dynamodb": _dynamodb,
    PARAMETER_SERVER: _parameter_server,
}
# Channels with another name in the trace.
TRACED: Mapping[str, str] = MappingProxyType({"s3": "object", PARAMETER_SERVER: "parameter"})
CHANNEL = Option(
    "channel",
    str,
    "s3",
    "Where vectors are exchanged: s3, a server of memcached or redis, a table of dynamodb (items of at most 400 KB), "
    "or a parameter-server, which adds them up itself.",
    tuple(OPENERS),
)
SERIALISATION = Option(
    "serialisation",
    str,
    "raw",
    "How vectors travel to a parameter server and back: raw, as in memory; or doubles, made from Python's lists, as in "
    "LambdaML's code with Thrift.",
    tuple(SERIALISATIONS),
)
CHANNEL_HOST = Option(
    "channel-host",
    str,
    "auto",
    "Instance type that the server of memcached, redis or parameter-server is billed as; auto means "
    f"{SERVERS['memcached'].instance_type}, or {SERVERS['parameter'].instance_type} for a parameter server.",
)


def traced(options: Mapping[str, Value]) -> str:
    """Return the name of the options' channel in a trace; its operations begin with it."""
    channel = str(CHANNEL.of(options))
    return TRACED.get(channel, channel)


def deleted_bytes(options: Mapping[str, Value], size: int) -> int:
    """Return the bytes of the event that deletes an object of this size, by which DynamoDB bills it."""
    return size if CHANNEL.of(options) == "dynamodb" else 0


def adds_up(options: Mapping[str, Value]) -> bool:
    """Return whether the options' channel adds up vectors itself."""
    return CHANNEL.of(options) == PARAMETER_SERVER


def moved_bytes(options: Mapping[str, Value], size: int) -> int:
    """Return the serialised size, bytes, of a vector with this many bytes as float32."""
    return size // 4 * choose("serialisation", str(SERIALISATION.of(options)), SERIALISATIONS).number_bytes


def lists(options: Mapping[str, Value]) -> bool:
    """Return whether the options' channel can list keys."""
    return CHANNEL.of(options) == "s3"


def open_channel(plan: Plan, bucket: str, objects: ObjectChannel) -> ObjectChannel:
    """Open the plan's channel for a worker, which keeps its other objects in a bucket."""
    return OPENERS[str(CHANNEL.of(plan.options))](bucket, objects, plan)


def host(options: Mapping[str, Value]) -> str:
    """Return the node type that serves the options' channel; empty if AWS bills requests instead."""
    usual = SERVERS[traced(options)].instance_type
    chosen = str(CHANNEL_HOST.of(options))
    return (usual if chosen == "auto" else chosen) if usual is not None else ""
