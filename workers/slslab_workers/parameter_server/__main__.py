"""`python -m slslab_workers.parameter_server` runs a parameter server until SIGTERM.

When it is ready, it prints one JSON line, `{"endpoint": URL}`. Clients present the token of SLSLAB_PARAMETER_TOKEN.
"""

import argparse
import json
import os
import sys
import threading

from slslab_workers.channels.events import environment_sink
from slslab_workers.parameter_server import TOKEN
from slslab_workers.parameter_server.server import Server


def main() -> None:
    """Serve until a signal, or until standard input closes."""
    parser = argparse.ArgumentParser(prog="python -m slslab_workers.parameter_server", allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--parent-pipe", action="store_true", help="end when standard input closes")
    options = parser.parse_args()
    sink = environment_sink() if "SLSLAB_TRACE_FD" in os.environ else None
    with Server((options.host, options.port), os.environ.get(TOKEN, ""), sink) as server:
        host, port = server.server_address[:2]
        print(json.dumps({"endpoint": f"parameter://{host!s}:{port}"}), flush=True)
        if options.parent_pipe:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            sys.stdin.buffer.read()
        else:
            server.serve_forever()


if __name__ == "__main__":
    main()
