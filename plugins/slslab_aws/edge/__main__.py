"""`python -m slslab_aws.edge --listener FD …`: the endpoint of all services, as a separate process.

When it is ready, it prints one JSON line, `{"endpoint": URL}`. It ends on SIGTERM or SIGINT, and when its standard
input closes, which happens when the process that started it ends in any way. SLSLAB_KEYS is the text of the keyring
with which clients sign.
"""

import argparse
import os
import socket
from collections.abc import Iterator

from slslab.aws.keys import Keyring
from slslab.host.service_process import serve
from slslab.lambda_.server import Server
from slslab_aws.edge.application import Edge
from slslab_aws.edge.forwarding import Forwarder


def service(options: argparse.Namespace) -> Iterator[dict[str, str]]:
    """Serve until the end; yield a report when ready."""
    server = Server(socket.socket(fileno=options.listener))
    forwarder = Forwarder(options.socket)
    own = {"lambda": options.lambda_endpoint, "s3": options.s3_endpoint}
    if options.states_endpoint:
        own["states"] = options.states_endpoint
    edge = Edge(own, forwarder, Keyring.from_text(os.environ.pop("SLSLAB_KEYS")), options.log)
    with server.serving(edge, forwarder.close, public=edge.urls):
        yield {"endpoint": server.endpoint}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slslab_aws.edge", allow_abbrev=False)
    parser.add_argument("--listener", type=int, required=True, help="descriptor of a socket that listens")
    parser.add_argument("--lambda-endpoint", required=True)
    parser.add_argument("--s3-endpoint", required=True)
    parser.add_argument("--states-endpoint", default="", help="Step Functions, where it is installed")
    parser.add_argument("--socket", required=True, help="Unix socket of all other services")
    parser.add_argument("--log", type=int, help="descriptor that gets a line for each request of a function to SQS")
    return parser.parse_args()


if __name__ == "__main__":
    serve(service(_options()))
