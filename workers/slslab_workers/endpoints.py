"""Where the stack's parts are that are no AWS services: environment variables of functions and drivers."""

import os
from collections.abc import Mapping

QUEUE_URL = "SLSLAB_QUEUE_URL"
TENSOR_URLS = "SLSLAB_TENSOR_URLS"


def queue_url(environment: Mapping[str, str] = os.environ) -> str:
    """Address of the queue, `amqp://…` or `redis://…`."""
    return _needed(environment, QUEUE_URL)


def tensor_urls(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Addresses of the tensor databases by rank, `redis://[:password@]host:port`."""
    return tuple(_needed(environment, TENSOR_URLS).split())


def _needed(environment: Mapping[str, str], name: str) -> str:
    if name not in environment:
        raise ValueError(f"{name} is not set: the architecture needs a part of the stack that is not there")
    return environment[name]
