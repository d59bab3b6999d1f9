"""What all channels share: a name, operations, a server and its price, and injected faults.

To add a channel, write one module and its operations (`slslab_workers.trace.operations`), a price (in the books of
emulator/slslab/run/prices), and an entry in a profile (emulator/slslab/predict/profiles), which tells replay how long
its requests take. The module has a class that inherits from `Channel` and makes every request in `Channel.request`. If
workers exchange objects through it, inherit from `slslab_workers.channels.keyed.KeyedChannel`; with a name in
`slslab_workers.channels.choice`, architectures with `--channel` run over it unchanged.
"""

import functools
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Concatenate, ParamSpec, Protocol, Self, TypeVar

from slslab_workers.channels.events import Tracer, environment_sink
from slslab_workers.faults.plan import VARIABLE, FaultPlan
from slslab_workers.trace.event import Event
from slslab_workers.trace.operations import Server

C = TypeVar("C", bound="Channel")
P = ParamSpec("P")
T = TypeVar("T")

RETRY_DELAYS_S = (0.1, 0.4)
# Receives an event with op, resource, worker, epoch and step before the request; may sleep or raise.
Fault = Callable[[Event], None]


class Channel(Protocol):
    """How one worker exchanges data with others. Subclasses inherit tracing, pauses and faults.

    `name` is the channel of its operations, `server` is what AWS bills for it. In all methods `overhead=False` marks a
    request of the training protocol, and `phase` tells what the request was for.
    """

    name: ClassVar[str]
    server: ClassVar[Server]
    # Injects faults into every request of every channel in this process.
    fault: ClassVar[Fault | None] = None
    # Returns how often to send a message, given the event of its publish; None: once.
    copies: ClassVar[Callable[[Event], int] | None] = None
    tracer: Tracer
    # This channel's own connection, if it has one; `close` closes it.
    _connection: Any = None

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close this channel's connection, if it has one; the next request reconnects."""
        if self._connection is not None:
            self._connection.close()

    @contextmanager
    def request(self, op: str, phase: str, resource: str, *, overhead: bool) -> Iterator[Event]:
        """Record the block, one request, as an event. Failed ones aren't part of the training protocol."""
        with self.tracer.span(op, phase, resource, overhead=overhead, requests=1) as event:
            try:
                if Channel.fault is not None:
                    Channel.fault(event)
                yield event
            except Exception:
                event.failed = event.overhead = True
                raise

    def pause(self, seconds: float) -> None:
        """Sleep between two requests, as a `wait` event."""
        if seconds > 0:
            with self.tracer.span("wait", "wait"):
                time.sleep(seconds)

    def is_transient(self, error: Exception) -> bool:  # noqa: ARG002 - by default no request is repeated
        """Return whether a request that failed with this error is worth repeating."""
        return False


def retried(request: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], T]:
    """Repeat a channel's request up to twice if its error is transient; each attempt is a separate event."""

    @functools.wraps(request)
    def attempts(channel: C, /, *args: P.args, **kwargs: P.kwargs) -> T:
        for delay_s in RETRY_DELAYS_S:
            try:
                return request(channel, *args, **kwargs)
            except Exception as error:
                if not channel.is_transient(error):
                    raise
            channel.pause(delay_s)
        return request(channel, *args, **kwargs)

    return attempts


if VARIABLE in os.environ:
    from slslab_workers.channels.injection import Injector  # functions without faults don't need its imports

    _injector = Injector(FaultPlan.from_document(json.loads(os.environ[VARIABLE])), environment_sink())
    Tracer.fault, Channel.fault, Channel.copies = _injector.at, _injector.request, _injector.copies
