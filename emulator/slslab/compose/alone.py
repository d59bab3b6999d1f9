"""Run Lambda alone in a container (`slslab.compose.container`): `python3 -m slslab.compose.alone`.

Functions run in processes of the same container. It reads SLSLAB_LISTEN (address and port), and AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY, its owner's keys. When it is ready, it prints one JSON line, `{"endpoint": URL}`. SIGTERM, SIGINT
and SIGHUP end it. Exit codes: 2 for a wrong or missing variable, 3 if the host can't run it.
"""

import os
import sys

from slslab.aws.keys import Pair
from slslab.compose.__main__ import ENDINGS, answering
from slslab.compose.network import needed, parse_listen
from slslab.errors import SlslabError
from slslab.host.service_process import serve
from slslab.lambda_.emulator import Emulator


def main() -> None:
    """Serve until a signal."""
    try:
        host, port = parse_listen(needed(os.environ, "SLSLAB_LISTEN"))
        pair = Pair(needed(os.environ, "AWS_ACCESS_KEY_ID"), needed(os.environ, "AWS_SECRET_ACCESS_KEY"))
        # Functions run in the same place, and find the runtime's client in the same way.
        variables = {**pair.variables(), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        emulator = Emulator(variables=variables, listen=host, port=port, advertise=f"http://127.0.0.1:{port}")
        serve(answering(emulator), ends_with_parent=False, signals=ENDINGS)
    except SlslabError as error:
        print(f"Error: {error.message}\nHint: {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
