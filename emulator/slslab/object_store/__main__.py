"""Run the S3 server in a process of its own, which `slslab.stack.object_store` starts."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from slslab.aws.keys import Keyring
from slslab.host.processes import raise_descriptor_limit
from slslab.host.service_process import serve_child
from slslab.lambda_.server import Server
from slslab.object_store import SERVER, model
from slslab.object_store.application import Application
from slslab.object_store.storage import Store


def service(listener: socket.socket, keys: Keyring, data: str, log: int | None) -> Iterator[dict[str, str]]:
    """Serve until the end; yield a report when it is ready.

    `data` is an empty directory for the bodies of objects. The descriptor `log` gets a line for each request that AWS
    would bill.
    """
    raise_descriptor_limit()

    def write(*request: str | int) -> None:
        if log is not None:
            os.write(log, json.dumps(request).encode() + b"\n")

    application = Application(Store(Path(data)), keys, write)
    model.operations()
    server = Server(listener)
    # Pages of other web sites may call it, too. Signatures and the buckets' CORS rules decide what they get.
    with server.serving(application.__call__, public=application):
        yield {"endpoint": server.endpoint, "server": SERVER}


if __name__ == "__main__":
    serve_child(service)
