"""Run the endpoint of all services in a process of its own, which `slslab_aws.servers` starts."""

import socket
from collections.abc import Iterator

from slslab.aws.keys import Keyring
from slslab.host.service_process import serve_child
from slslab.lambda_.server import Server
from slslab_aws.edge.application import Edge
from slslab_aws.edge.forwarding import Forwarder


def service(
    listener: socket.socket, keys: Keyring, endpoints: dict[str, str], path: str, log: int | None
) -> Iterator[dict[str, str]]:
    """Serve until the end; yield a report when ready.

    `endpoints` are Lambda's, S3's and, if it runs, Step Functions'; `path` is the Unix socket of all other services.
    The descriptor `log` gets a line for each request of a function to SQS.
    """
    server = Server(listener)
    forwarder = Forwarder(path)
    edge = Edge(endpoints, forwarder, keys, log)
    with server.serving(edge, forwarder.close, public=edge.urls):
        yield {"endpoint": server.endpoint}


if __name__ == "__main__":
    serve_child(service)
