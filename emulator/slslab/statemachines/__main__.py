"""`python -m slslab.statemachines --lambda-endpoint URL`: Step Functions on a loopback port, in a process of its own.

When it answers, it prints one JSON line, `{"endpoint": URL, "moto": VERSION}`. It ends on SIGTERM or SIGINT, and with
`--tied` also when its standard input closes, which happens when the process that started it ends in any way.
Transitions go as framed trace records to the descriptor that SLSLAB_TRACE_FD names. SLSLAB_KEYS is the text of the
keyring by which clients sign.
"""

import argparse
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from slslab.aws.clients import aws_client
from slslab.aws.keys import Keyring
from slslab.aws.limits import MB, lambda_limits
from slslab.host.server_process import listening_socket
from slslab.host.service_process import serve
from slslab.lambda_.server import Server
from slslab_workers.channels.events import environment_sink

# A function runs up to 900 s, and may wait for the host's memory before; AWS puts no limit of its own on a Task.
CALL_LIMIT_S = 24 * 3600
CONNECTIONS = 1000
# A thread's stack: enough for documents that are nested as deeply as Python recurses.
STACK_BYTES = 4 * MB
# How long a thread keeps others waiting: executions that never wait take turns, and a request needs many.
SWITCH_S = 0.0005


def service(options: argparse.Namespace) -> Iterator[dict[str, str]]:
    """Serve until the end; yields a report when it answers."""
    threading.stack_size(STACK_BYTES)
    sys.setswitchinterval(SWITCH_S)
    _leave_batch_out()
    from slslab.statemachines.api import StatesApi, body_limit
    from slslab.statemachines.executions import Machines
    from slslab.statemachines.interpreter import prepare

    limits = lambda_limits().changed(**json.loads(options.limits))
    keys = Keyring.from_text(os.environ.pop("SLSLAB_KEYS"))
    given = options.listener is not None
    server = Server(socket.socket(fileno=options.listener) if given else listening_socket("127.0.0.1", options.port))
    client = aws_client(
        "lambda",
        options.lambda_endpoint,
        keys.service,
        connect_timeout=60,
        read_timeout=CALL_LIMIT_S,
        max_pool_connections=CONNECTIONS,
        parameter_validation=False,
    )
    prepare(client, limits)
    machines = Machines(limits, _recorder())
    with server.serving(StatesApi(machines).application(), keys=keys, limit=body_limit):
        yield {"endpoint": server.endpoint, "moto": version("moto")}
    machines.close()
    # Calls of Lambda may be under way for many minutes, and there is nothing left to record.
    os._exit(0)


def _leave_batch_out() -> None:
    """Let moto's interpreter import an enumeration of `moto.batch` without the package, whose import reads all that EC2
    offers, which takes longer than the interpreter's own."""
    spec = find_spec("moto")
    assert spec is not None
    batch = ModuleType("moto.batch")
    batch.__path__ = [f"{folder}/batch" for folder in spec.submodule_search_locations or ()]
    sys.modules[batch.__name__] = batch


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slslab.statemachines", allow_abbrev=False)
    parser.add_argument("--lambda-endpoint", required=True, help="where Tasks invoke their functions")
    parser.add_argument("--port", type=int, default=0, help="loopback port; 0 for any free one")
    parser.add_argument("--listener", type=int, help="descriptor of a socket that listens already, instead of --port")
    parser.add_argument("--limits", default="{}", help="JSON object: other limits than AWS's (see `slslab limits`)")
    parser.add_argument("--tied", action="store_true", help="end when standard input closes")
    return parser.parse_args()


def _recorder() -> Callable[[dict[str, Any]], None]:
    """Return what writes transitions to the trace, one at a time, so that frames stay whole; or drops them."""
    if "SLSLAB_TRACE_FD" not in os.environ:
        return lambda _record: None
    sink, lock = environment_sink(), threading.Lock()

    def record(event: dict[str, Any]) -> None:
        with lock:
            sink(event)

    return record


if __name__ == "__main__":
    given = _options()
    serve(service(given), ends_with_parent=given.tied)
