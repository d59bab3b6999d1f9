"""Addresses of the stack's parts that aren't AWS services: environment variables of functions and drivers."""

import os
from collections.abc import Mapping

QUEUE_URL = "SLSLAB_QUEUE_URL"
TENSOR_URLS = "SLSLAB_TENSOR_URLS"
CHANNEL_URL = "SLSLAB_CHANNEL_URL"


def queue_url(environment: Mapping[str, str] = os.environ) -> str:
    """Return the address of the queue, `amqp://…` or `redis://…`; ValueError if it isn't set."""
    return _required(environment, QUEUE_URL)


def tensor_urls(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the addresses of the tensor databases by rank, `redis://[:password@]host:port`, or ValueError."""
    return tuple(_required(environment, TENSOR_URLS).split())


def channel_url(environment: Mapping[str, str] = os.environ) -> str:
    """Return the address of the server that vectors go through, `memcached://…` or `redis://…`, or ValueError."""
    return _required(environment, CHANNEL_URL)


def _required(environment: Mapping[str, str], name: str) -> str:
    if name not in environment:
        raise ValueError(f"{name} isn't set: the architecture needs a part of the stack that isn't running.")
    return environment[name]
