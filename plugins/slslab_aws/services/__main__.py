"""Run moto's services at a Unix socket in a process of their own, which `slslab_aws.servers` starts.

It signs its requests to Lambda and Step Functions. It doesn't check incoming requests, since the edge has done that.
"""

import logging
import os
import socket
import threading
from collections.abc import Iterator
from importlib.metadata import version

from slslab.aws.arns import ACCOUNT
from slslab.aws.keys import Keyring
from slslab.host.service_process import serve_child


def service(listener: socket.socket, keys: Keyring, endpoints: dict[str, str]) -> Iterator[dict[str, str]]:
    """Serve until the end; yield a report when ready. `endpoints` are Lambda's and, if it runs, Step Functions'."""
    # moto reads them when it is imported.
    os.environ |= {"MOTO_ACCOUNT_ID": ACCOUNT, "MOTO_DISABLE_GLOBAL_CORS": "true"}
    from werkzeug.serving import make_server

    from slslab_aws.services.application import MotoHandler, Services
    from slslab_aws.services.function_logs import FunctionLogs
    from slslab_aws.services.targets import Targets

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    targets = Targets(endpoints["lambda"], endpoints.get("states", ""), keys.owner)
    services = Services(targets, FunctionLogs(endpoints["lambda"], keys.owner))
    server = make_server("unix://", 0, services, threaded=True, request_handler=MotoHandler, fd=listener.detach())
    threading.Thread(target=server.serve_forever, name="aws-services", daemon=True).start()
    yield {"moto": version("moto")}
    # A long poll may still wait for a message, and nothing needs to be saved.
    os._exit(0)


if __name__ == "__main__":
    serve_child(service)
