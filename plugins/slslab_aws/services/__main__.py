"""`python -m slslab_aws.services --listener FD …`: moto's services at a Unix socket, in a process of their own.

When it answers, it prints one JSON line. It ends on SIGTERM or SIGINT, and when its standard input closes, which
happens when the process that started it ends in any way. SLSLAB_KEYS is the text of the keyring by which it signs what
it asks of Lambda and Step Functions; requests to it are not checked, the edge has done that.
"""

import argparse
import logging
import os
import threading
from collections.abc import Iterator
from importlib.metadata import version

from slslab.aws.arns import ACCOUNT
from slslab.aws.keys import Keyring
from slslab.host.service_process import serve


def service(options: argparse.Namespace) -> Iterator[dict[str, str]]:
    """Serve until the end; yields a report when it answers."""
    # moto reads them when it is imported.
    os.environ |= {"MOTO_ACCOUNT_ID": ACCOUNT, "MOTO_DISABLE_GLOBAL_CORS": "true"}
    from werkzeug.serving import make_server

    from slslab_aws.services.application import MotoHandler, Services
    from slslab_aws.services.function_logs import FunctionLogs
    from slslab_aws.services.targets import Targets

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    keys = Keyring.from_text(os.environ.pop("SLSLAB_KEYS"))
    targets = Targets(options.lambda_endpoint, options.states_endpoint, keys.owner)
    services = Services(targets, FunctionLogs(options.lambda_endpoint, keys.owner))
    server = make_server("unix://", 0, services, threaded=True, request_handler=MotoHandler, fd=options.listener)
    threading.Thread(target=server.serve_forever, name="aws-services", daemon=True).start()
    yield {"moto": version("moto")}
    # A long poll may wait for a message, and there is nothing left to keep.
    os._exit(0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slslab_aws.services", allow_abbrev=False)
    parser.add_argument("--listener", type=int, required=True, help="descriptor of a Unix socket that listens")
    parser.add_argument("--lambda-endpoint", required=True)
    parser.add_argument("--states-endpoint", default="", help="Step Functions, where it is installed")
    return parser.parse_args()


if __name__ == "__main__":
    serve(service(_options()))
