"""Run a service process: it prints one JSON line when it is ready, and ends on a signal, or with its parent."""

import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from slslab_workers.channels.events import environment_sink

KEYS_VARIABLE = "SLSLAB_KEYS"


def serve_child(service: Callable[..., Iterator[Mapping[str, Any]]]) -> None:
    """Run the service of a module that `ServerProcess` has launched with `_launch_service`.

    It is called with its listening socket, the keyring in SLSLAB_KEYS, and its options.
    """
    from slslab.aws.keys import Keyring  # the image of the tensor databases, which have their own options, lacks it

    options = json.loads(sys.argv[1])
    listener = socket.socket(fileno=options.pop("listener"))
    serve(service(listener, Keyring.from_text(os.environ.pop(KEYS_VARIABLE)), **options))


def serve(
    service: Iterator[Mapping[str, Any]],
    *,
    ends_with_parent: bool = True,
    signals: Sequence[int] = (signal.SIGINT, signal.SIGTERM),
) -> None:
    """Start the service, print what it yields, wait for a signal, and resume the service, which then ends.

    With `ends_with_parent` it also ends when standard input closes, which happens when the parent ends in any way.
    """
    # Python writes a signal's number into the pipe at once, so none is lost before the wait. Blocking the signal
    # wouldn't work: one of the threads that NumPy starts at import would receive it and end the process.
    ending, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    for number in signals:
        signal.signal(number, lambda *_: None)
    print(json.dumps(next(service)), flush=True)
    sources = [ending, 0] if ends_with_parent else [ending]
    while ending not in select.select(sources, [], [])[0] and os.read(0, 65_536):
        pass
    next(service, None)


def trace_writer() -> Callable[[dict[str, Any]], None]:
    """Return a function that writes records to the descriptor in SLSLAB_TRACE_FD one at a time, so that lines stay
    whole, or drops them without one."""
    if "SLSLAB_TRACE_FD" not in os.environ:
        return lambda _record: None
    sink, lock = environment_sink(), threading.Lock()

    def write(record: dict[str, Any]) -> None:
        with lock:
            sink(record)

    return write
