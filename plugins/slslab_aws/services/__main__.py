"""`python -m slslab_aws.services --listener FD …`: moto's services at a Unix socket, as a separate process.

When it is ready, it prints one JSON line. It ends on SIGTERM or SIGINT, and when its standard input closes, which
happens when the process that started it ends in any way. SLSLAB_KEYS is the text of the keyring with which it signs its
requests to Lambda and Step Functions. It doesn't check incoming requests, since the edge has done that.
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
    """Serve until the end; yield a report when ready."""
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
    # A long poll may still wait for a message, and nothing needs to be saved.
    os._exit(0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slslab_aws.services", allow_abbrev=False)
    parser.add_argument("--listener", type=int, required=True, help="descriptor of a Unix socket that listens")
    parser.add_argument("--lambda-endpoint", required=True)
    parser.add_argument("--states-endpoint", default="", help="Step Functions, where it is installed")
    return parser.parse_args()


if __name__ == "__main__":
    serve(service(_options()))
