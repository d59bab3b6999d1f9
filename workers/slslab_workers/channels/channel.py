"""What every channel has: a name, operations, a server and its price, and the place where faults are injected.

A new channel is one module and its operations (`slslab_workers.trace.operations`), one price (in the books of
emulator/slslab/run/prices), and one entry of a profile (emulator/slslab/predict/profiles), by which replay
knows how long its requests take. The module has a class that inherits from `Channel`, whose every request passes
`Channel.request`; if workers exchange objects by it, from `slslab_workers.channels.keyed.KeyedChannel`, and with a name
in `slslab_workers.channels.choice` AllReduce and ScatterReduce run over it as they are.
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
# Receives a request before it is made, as an event with op, resource, worker, epoch and step; may sleep, or raise.
Fault = Callable[[Event], None]
# Sleeps for so many seconds.
Sleep = Callable[[float], None]


class Channel(Protocol):
    """A way of workers to exchange data, seen by one worker; to inherit from it gives what is written here.

    `name` is the channel of its operations, `server` what AWS would bill for it. In all of its methods `overhead=False`
    marks a request of the training protocol, and `phase` tells what the request was for.
    """

    name: ClassVar[str]
    server: ClassVar[Server]
    # Where faults are injected: into every request of every channel of this process.
    fault: ClassVar[Fault | None] = None
    # How often a message is sent, by the event of its publish; None: once.
    copies: ClassVar[Callable[[Event], int] | None] = None
    tracer: Tracer
    _sleep: Sleep
    # What `close` ends: a connection of this channel's own, if it has one.
    _connection: Any = None

    def __init__(self, tracer: Tracer, sleep: Sleep | None = None) -> None:
        self.tracer = tracer
        # Found now and not at import: whoever makes the channel may have a time of its own.
        self._sleep = time.sleep if sleep is None else sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection, if this channel has one of its own; the next request makes a new one."""
        if self._connection is not None:
            self._connection.close()

    @contextmanager
    def request(self, op: str, phase: str, resource: str, *, overhead: bool) -> Iterator[Event]:
        """Make one request, in the block, as an event; if it fails it is not part of the training protocol."""
        with self.tracer.span(op, phase, resource, overhead=overhead) as event:
            event.requests = 1
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
                self._sleep(seconds)

    def is_transient(self, error: Exception) -> bool:  # noqa: ARG002 - by default no request is repeated
        """Return whether a request that failed with this error is worth repeating."""
        return False


def retried(request: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], T]:
    """Repeat a channel's request while its errors are transient, twice at most; each attempt is an event of its own."""

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


def _inject(document: str) -> None:
    """Have the faults of a plan (JSON) happen in this process from now on."""
    from slslab_workers.channels.injection import Injector  # what it imports no function without faults needs

    injector = Injector(FaultPlan.from_document(json.loads(document)), environment_sink())
    Tracer.fault, Channel.fault, Channel.copies = injector.at, injector.request, injector.copies


if VARIABLE in os.environ:
    _inject(os.environ[VARIABLE])
