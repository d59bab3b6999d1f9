"""Run the S3 server in a process of its own: `python -m slslab.object_store --listener FD --data DIRECTORY`.

When it is ready, it prints one JSON line, `{"endpoint": URL, "server": NAME}`. It ends on SIGTERM or SIGINT, and when
its standard input closes, which happens when its parent process ends in any way. SLSLAB_KEYS contains the keyring that
clients sign with. The directory contains only the bodies of objects.
"""

import argparse
import json
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

from slslab.aws.keys import Keyring
from slslab.host.service_process import serve
from slslab.lambda_.server import Server
from slslab.object_store import SERVER, model
from slslab.object_store.application import Application
from slslab.object_store.storage import Folder, Store


def service(options: argparse.Namespace) -> Iterator[dict[str, str]]:
    """Serve until the end; yield a report when it is ready."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def log(*request: str | int) -> None:
        if options.log is not None:
            os.write(options.log, json.dumps(request).encode() + b"\n")

    keys = Keyring.from_text(os.environ.pop("SLSLAB_KEYS"))
    application = Application(Store(Folder(options.data)), keys, log)
    model.operations()
    server = Server(socket.socket(fileno=options.listener))
    # Pages of other web sites may call it, too. Signatures and the buckets' CORS rules decide what they get.
    with server.serving(application.__call__, public=application):
        yield {"endpoint": server.endpoint, "server": SERVER}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slslab.object_store", allow_abbrev=False)
    parser.add_argument("--listener", type=int, required=True, help="descriptor of a listening socket")
    parser.add_argument("--data", type=Path, required=True, help="empty directory for the bodies of objects")
    parser.add_argument("--log", type=int, help="descriptor to write a line to for each request that AWS would bill")
    return parser.parse_args()


if __name__ == "__main__":
    serve(service(_options()))
