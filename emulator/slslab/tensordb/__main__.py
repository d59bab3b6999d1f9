"""Run the tensor databases of several peers in one process: `python -m slslab.tensordb`."""

import argparse
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import NoReturn

from slslab.host.service_process import serve
from slslab.tensordb.executions import end_overdue, reporter
from slslab.tensordb.server import Options, Peer

UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1024, "m": 1000**2, "mb": 1024**2, "g": 1000**3, "gb": 1024**3}
MOST_PEERS = 256
PATIENCE_S = 1.0
EPILOG = """\
When all ports are open, it prints one line: {"endpoints": ["redis://127.0.0.1:PORT", ...]}, one for each peer.
SIGTERM and SIGINT end the process. SHUTDOWN on a peer's port ends that peer; with the last peer, the process ends.

  python -m slslab.tensordb --peers 4 --maxmemory 4gb
  python -m slslab.tensordb --port 6379 &
  redis-cli AI.TENSORSET params FLOAT 2 VALUES 1 2
  redis-cli AI.SCRIPTSTORE s CPU ENTRY_POINTS 1 twice SOURCE \\
    'def twice(tensors: List[Tensor], keys: List[str], args: List[str]): return tensors[0] * 2'
  redis-cli AI.SCRIPTEXECUTE s twice INPUTS 1 params OUTPUTS 1 params
  redis-cli AI.TENSORGET params VALUES
"""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser with one-sentence errors."""

    def error(self, message: str) -> NoReturn:
        """Print it and exit with 2."""
        self.exit(2, f"{self.prog}: {message}\n")


def size(text: str) -> int:
    """Parse a size as in redis.conf: 100mb is 100 MiB, 100m is 100 million bytes; 0 means no limit."""
    match = re.fullmatch(r"(\d+)([kmg]?b?)", text.lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; use 4gb, 512mb or a number of bytes, for instance")
    return int(match[1]) * UNITS[match[2]]


def within(least: int, most: int) -> "type[int]":
    """Return a parser for integers between two bounds."""

    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not between {least} and {most}")
        return int(text)

    return parse  # type: ignore[return-value]


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = Parser(
        prog="python -m slslab.tensordb",
        description="Run in-memory tensor databases with RedisAI's protocol; each peer has its own port and keyspace.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add(
        "--port",
        type=within(0, 65535),
        default=0,
        metavar="P",
        help="port of the first peer; the others use the next ones (default: 0, any free ports)",
    )
    add("--peers", type=within(1, MOST_PEERS), default=1, metavar="N", help="databases (default: %(default)s)")
    add(
        "--password",
        default=os.environ.get("TENSORDB_PASSWORD"),
        help="password for AUTH (default: TENSORDB_PASSWORD, which `ps` doesn't show)",
    )
    add("--maxmemory", type=size, default=0, metavar="SIZE", help="limit per peer, such as 4gb (default: 0, none)")
    add(
        "--parent-pipe",
        action="store_true",
        help="end when standard input closes, for instance when the parent ends",
    )
    options = parser.parse_args(argv)
    if options.port and options.port + options.peers - 1 > 65535:
        parser.error(f"there are no {options.peers} ports from {options.port} on")
    if options.password == "":
        parser.error("the password is empty; to use none, leave out --password")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal, the end of standard input (`--parent-pipe`) or the last peer's SHUTDOWN."""
    chosen = arguments(argv)
    options = Options(
        chosen.host,
        chosen.password.encode() if chosen.password is not None else None,
        chosen.maxmemory,
    )
    report = reporter()
    peers: list[Peer] = []

    def note_end() -> None:
        if all(peer.closed for peer in peers):
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        for number in range(chosen.peers):
            port = chosen.port + number if chosen.port else 0
            peers.append(Peer(number, port, options, report, note_end))
    except OSError as error:
        print(f"python -m slslab.tensordb: cannot listen on {chosen.host}: {error.strerror}", file=sys.stderr)
        return 3
    serve(_running(peers, chosen.host), ends_with_parent=chosen.parent_pipe)
    if not all(peer.left(PATIENCE_S) for peer in peers):
        os._exit(0)  # Python can't exit while a script runs, and there is nothing to save
    return 0


def _running(peers: Sequence[Peer], host: str) -> Iterator[dict[str, list[str]]]:
    for peer in peers:
        peer.start()
    threading.Thread(target=end_overdue, name="overdue", daemon=True).start()
    yield {"endpoints": [f"redis://{host}:{peer.port}" for peer in peers]}
    for peer in peers:
        peer.close()


if __name__ == "__main__":
    sys.exit(main())
