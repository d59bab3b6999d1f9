"""`python -m slslab.statemachines --lambda-endpoint URL`: Step Functions on a loopback port, in a process of its own.

When it answers, it prints one JSON line, `{"endpoint": URL, "moto": VERSION}`. It ends on SIGTERM or SIGINT, and with
`--tied` also when its standard input closes, which happens when the process that started it ends in any way.
Transitions go as framed trace records to the descriptor that SLSLAB_TRACE_FD names.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import boto3
import botocore.config
import uvicorn

from slslab.aws.arns import REGION
from slslab.aws.limits import lambda_limits
from slslab.statemachines.api import StatesApi
from slslab.statemachines.executions import Machines
from slslab.statemachines.interpreter import prepare
from slslab_workers.channels.events import environment_sink

ENDINGS = (signal.SIGINT, signal.SIGTERM)
# A function runs up to 900 s, and may wait for the host's memory before; AWS puts no limit of its own on a Task.
CALL_LIMIT_S = 24 * 3600
CONNECTIONS = 1000


def main() -> None:
    """Serve until a signal or the end of standard input."""
    # Threads inherit it: the signals stay pending for `sigwait` below.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    options = _options()
    limits = lambda_limits().changed(**json.loads(options.limits))
    listener = _listener(options)
    endpoint = "http://{}:{}".format(*listener.getsockname())
    prepare(_client(options.lambda_endpoint), limits)
    machines = Machines(limits, _recorder())
    server = uvicorn.Server(
        uvicorn.Config(
            StatesApi(machines).application(),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=3600,
            timeout_graceful_shutdown=1,
        )
    )
    serving = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), name="api")
    serving.start()
    if options.tied:
        threading.Thread(target=_end_with_input, name="tie", daemon=True).start()
    print(json.dumps({"endpoint": endpoint, "moto": version("moto")}), flush=True)
    signal.sigwait(ENDINGS)
    server.should_exit = True
    serving.join()
    machines.close()
    # Calls of Lambda may be under way for many minutes, and there is nothing left to record.
    os._exit(0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slslab.statemachines", allow_abbrev=False)
    parser.add_argument("--lambda-endpoint", required=True, help="where Tasks invoke their functions")
    parser.add_argument("--port", type=int, default=0, help="loopback port; 0 for any free one")
    parser.add_argument("--listener", type=int, help="descriptor of a socket that listens already, instead of --port")
    parser.add_argument("--limits", default="{}", help="JSON object: other limits than AWS's (see `slslab limits`)")
    parser.add_argument("--tied", action="store_true", help="end when standard input closes")
    return parser.parse_args()


def _listener(options: argparse.Namespace) -> socket.socket:
    if options.listener is not None:
        return socket.socket(fileno=options.listener)
    listener = socket.create_server(("127.0.0.1", options.port), backlog=1024)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _client(endpoint: str) -> Any:
    # A retry would run a function twice; AWS leaves retries to the state's own Retry.
    config = botocore.config.Config(
        connect_timeout=60,
        read_timeout=CALL_LIMIT_S,
        retries={"total_max_attempts": 1},
        max_pool_connections=CONNECTIONS,
        parameter_validation=False,
    )
    session: Any = boto3.session.Session()
    return session.client(
        "lambda",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id="slslab",
        aws_secret_access_key="slslab-loopback-only",
        config=config,
    )


def _recorder() -> Callable[[dict[str, Any]], None]:
    """Return what writes transitions to the trace, one at a time, so that frames stay whole; or drops them."""
    if "SLSLAB_TRACE_FD" not in os.environ:
        return lambda _record: None
    sink, lock = environment_sink(), threading.Lock()

    def record(event: dict[str, Any]) -> None:
        with lock:
            sink(event)

    return record


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
