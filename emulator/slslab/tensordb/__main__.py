"""Run the tensor databases of several peers in one process: `python -m slslab.tensordb`."""

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence

import click

from slslab.host.service_process import serve
from slslab.tensordb.executions import end_overdue, reporter
from slslab.tensordb.server import Options, Peer

PROGRAM = "python -m slslab.tensordb"
UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1024, "m": 1000**2, "mb": 1024**2, "g": 1000**3, "gb": 1024**3}
MOST_PEERS = 256
PATIENCE_S = 1.0
EPILOG = """\
When all ports are open, it prints one line: {"endpoints": ["redis://127.0.0.1:PORT", ...]}, one for each peer.
SIGTERM and SIGINT end the process. SHUTDOWN on a peer's port ends that peer; with the last peer, the process ends.

\b
  python -m slslab.tensordb --peers 4 --maxmemory 4gb
  python -m slslab.tensordb --port 6379 &
  redis-cli AI.TENSORSET params FLOAT 2 VALUES 1 2
  redis-cli AI.SCRIPTSTORE s CPU ENTRY_POINTS 1 twice SOURCE \\
    'def twice(tensors: List[Tensor], keys: List[str], args: List[str]): return tensors[0] * 2'
  redis-cli AI.SCRIPTEXECUTE s twice INPUTS 1 params OUTPUTS 1 params
  redis-cli AI.TENSORGET params VALUES
"""


def size(text: str) -> int:
    """Parse a size as in redis.conf: 100mb is 100 MiB, 100m is 100 million bytes; 0 means no limit."""
    match = re.fullmatch(r"(\d+)([kmg]?b?)", text.lower())
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size; use 4gb, 512mb or a number of bytes, for instance")
    return int(match[1]) * UNITS[match[2]]


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--host", default="127.0.0.1", show_default=True, help="address to listen on")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="P",
    help="port of the first peer; the others use the next ones (default: 0, any free ports)",
)
@click.option(
    "--peers", type=click.IntRange(1, MOST_PEERS), default=1, metavar="N", show_default=True, help="databases"
)
@click.option(
    "--password",
    default=lambda: os.environ.get("TENSORDB_PASSWORD"),
    help="password for AUTH (default: TENSORDB_PASSWORD, which `ps` doesn't show)",
)
@click.option(
    "--maxmemory", type=size, default="0", metavar="SIZE", help="limit per peer, such as 4gb (default: 0, none)"
)
@click.option("--parent-pipe", is_flag=True, help="end when standard input closes, for instance when the parent ends")
def command(host: str, port: int, peers: int, password: str | None, maxmemory: int, parent_pipe: bool) -> int:
    """Run in-memory tensor databases with RedisAI's protocol; each peer has its own port and keyspace."""
    if port and port + peers - 1 > 65535:
        raise click.UsageError(f"there are no {peers} ports from {port} on")
    if password == "":
        raise click.UsageError("the password is empty; to use none, leave out --password")
    options = Options(host, password.encode() if password is not None else None, maxmemory)
    report = reporter()
    databases: list[Peer] = []

    def note_end() -> None:
        if all(peer.closed for peer in databases):
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        for number in range(peers):
            databases.append(Peer(number, port + number if port else 0, options, report, note_end))
    except OSError as error:
        print(f"{PROGRAM}: cannot listen on {host}: {error.strerror}", file=sys.stderr)
        return 3
    serve(_running(databases, host), ends_with_parent=parent_pipe)
    if not all(peer.left(PATIENCE_S) for peer in databases):
        os._exit(0)  # Python can't exit while a script runs, and there is nothing to save
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal, the end of standard input (`--parent-pipe`) or the last peer's SHUTDOWN; return the exit
    code."""
    try:
        code: int = command.main(argv, PROGRAM, standalone_mode=False)
    except click.ClickException as error:
        print(f"{PROGRAM}: {error.format_message()}\nHint: type `{PROGRAM} --help`.", file=sys.stderr)
        return error.exit_code
    return code


def _running(peers: Sequence[Peer], host: str) -> Iterator[dict[str, list[str]]]:
    for peer in peers:
        peer.start()
    threading.Thread(target=end_overdue, name="overdue", daemon=True).start()
    yield {"endpoints": [f"redis://{host}:{peer.port}" for peer in peers]}
    for peer in peers:
        peer.close()


if __name__ == "__main__":
    sys.exit(main())
