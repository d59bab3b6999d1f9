"""Run Step Functions in a process of its own, which `slslab.stack.state_machines` starts.

It writes transitions as trace records, one a line, to the descriptor in SLSLAB_TRACE_FD.
"""

import os
import socket
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from types import ModuleType

from slslab.aws.clients import aws_client
from slslab.aws.keys import Keyring
from slslab.aws.limits import MB, lambda_limits
from slslab.host.service_process import serve_child, trace_writer
from slslab.lambda_.server import Server

# A function runs up to 900 s, after waiting for the host's memory; AWS itself doesn't limit a Task.
CALL_LIMIT_S = 24 * 3600
CONNECTIONS = 1000
# A thread's stack: enough for documents nested as deeply as Python recurses.
STACK_BYTES = 4 * MB
# How long a thread may run before others get a turn: executions that never wait take turns, and a request needs many.
SWITCH_S = 0.0005


def service(
    listener: socket.socket, keys: Keyring, lambda_endpoint: str, limits: dict[str, int]
) -> Iterator[dict[str, str]]:
    """Serve until the end, with Tasks that invoke functions at `lambda_endpoint`; yield a report when it is ready.

    `limits` replace AWS's (`slslab limits`).
    """
    threading.stack_size(STACK_BYTES)
    sys.setswitchinterval(SWITCH_S)
    _leave_batch_out()
    from slslab.statemachines.api import StatesApi, body_limit
    from slslab.statemachines.executions import Machines
    from slslab.statemachines.interpreter import prepare

    changed = lambda_limits().changed(**limits)
    server = Server(listener)
    client = aws_client(
        "lambda",
        lambda_endpoint,
        keys.service,
        connect_timeout=60,
        read_timeout=CALL_LIMIT_S,
        max_pool_connections=CONNECTIONS,
        parameter_validation=False,
    )
    prepare(client, changed)
    machines = Machines(changed, trace_writer())
    with server.serving(StatesApi(machines).application(), keys=keys, limit=body_limit):
        yield {"endpoint": server.endpoint, "moto": version("moto")}
    machines.close()
    # Calls to Lambda may run for many more minutes, and nothing is left to record.
    os._exit(0)


def _leave_batch_out() -> None:
    """Let moto's interpreter import an enumeration of `moto.batch` without its package, which loads everything that EC2
    offers and takes longer than the interpreter's own import."""
    spec = find_spec("moto")
    assert spec is not None
    batch = ModuleType("moto.batch")
    batch.__path__ = [f"{folder}/batch" for folder in spec.submodule_search_locations or ()]
    sys.modules[batch.__name__] = batch


if __name__ == "__main__":
    serve_child(service)
