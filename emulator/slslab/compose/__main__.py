"""Run the emulator as a service of a compose network, with Lambda's API and ours on one port.

Run it with `python3 -m slslab.compose`. It is configured only by environment variables (`slslab.compose.network`);
docker-compose.yml shows them, except AWS_ENDPOINT_URL_LAMBDA, the URL for functions (http://emulator:PORT by default).
With SLSLAB_ENVIRONMENT=process, functions run in processes next to this one, as with the embedded stack, instead of in
containers of SLSLAB_WORKER_IMAGE. SLSLAB_HOME is the directory for packages and logs; leftovers of an earlier service
are removed.

`python3 -m slslab.compose lambda` runs Lambda without a network, with functions in processes of the same container
(`slslab.compose.container`). It reads only SLSLAB_LISTEN, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.

When it is ready, it prints one JSON line, `{"endpoint": URL}`. SIGTERM, SIGINT and SIGHUP end it and all that it
started. Exit codes: 2 for a wrong or missing variable, 3 if the host can't run it.
"""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from slslab.aws.keys import Pair
from slslab.compose.control import Control
from slslab.compose.network import Network, needed, parse_listen
from slslab.errors import RequestError, SlslabError
from slslab.host.service_process import serve
from slslab.lambda_.emulator import Emulator

ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(arguments: Sequence[str]) -> None:
    """Serve until a signal."""
    try:
        if arguments == ["lambda"]:
            _serve(_lambda())
            return
        network = Network.from_variables(os.environ)
        if directory := os.environ.get("SLSLAB_HOME"):
            _use_home(directory)
        host, port = network.listen
        emulator = Emulator(
            environment=network.environment,
            variables=network.client_environment(),
            listen=host,
            port=port,
            advertise=network.advertise,
            on_record=lambda record: print(f"{record.function} {record.report.strip()}", file=sys.stderr),
        )
        emulator.add_routes(Control(emulator, network).routes())
        _serve(emulator)
    except SlslabError as error:
        print(f"Error: {error.message}\nHint: {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)


def _lambda() -> Emulator:
    host, port = parse_listen(needed(os.environ, "SLSLAB_LISTEN"))
    pair = Pair(needed(os.environ, "AWS_ACCESS_KEY_ID"), needed(os.environ, "AWS_SECRET_ACCESS_KEY"))
    # Functions run in the same place, and find the runtime's client in the same way.
    variables = {**pair.variables(), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    return Emulator(variables=variables, listen=host, port=port, advertise=f"http://127.0.0.1:{port}")


def _serve(emulator: Emulator) -> None:
    def answering() -> Iterator[dict[str, str]]:
        with emulator:
            yield {"endpoint": emulator.endpoint}

    serve(answering(), ends_with_parent=False, signals=ENDINGS)


def _use_home(directory: str) -> None:
    """Make temporary directories in this one. Sessions there have locks of their own."""
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        raise RequestError(f"SLSLAB_HOME is {directory!r}: {error.strerror}.", "use a writable directory.") from error
    tempfile.tempdir = directory


if __name__ == "__main__":
    main(sys.argv[1:])
