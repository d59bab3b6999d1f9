"""Provide the stack: the services that functions use."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from slslab_workers.channels.endpoints import CHANNEL_URL, QUEUE_URL, TENSOR_URLS


def without_passwords(addresses: str) -> str:
    """Return addresses, separated by spaces, without users and passwords."""
    parts = map(urlsplit, addresses.split())
    return " ".join(part._replace(netloc=part.netloc.rpartition("@")[2]).geturl() for part in parts)


@dataclass
class Stack:
    """The addresses of the services."""

    s3_endpoint: str
    tensor_urls: tuple[str, ...] = ()
    queue_url: str | None = None
    channel_url: str | None = None

    def settle(self) -> None:
        """Pass on the records of everything that the servers have done so far, if this process receives them."""

    def client_environment(self) -> dict[str, str]:
        """Return the variables by which clients find the stack: AWS's own, and ours where AWS has no such service."""
        return {"AWS_ENDPOINT_URL_S3": self.s3_endpoint, **self.worker_environment()}

    def worker_environment(self) -> dict[str, str]:
        """Return our own variables, which drivers need in addition to their boto3 clients."""
        addresses = {TENSOR_URLS: " ".join(self.tensor_urls), QUEUE_URL: self.queue_url, CHANNEL_URL: self.channel_url}
        return {name: address for name, address in addresses.items() if address}
