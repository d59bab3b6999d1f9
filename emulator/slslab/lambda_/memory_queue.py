"""Log which invocations wait for the host's memory, and refuse invocations that could wait forever."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from slslab.aws.errors import ServiceError
from slslab.lambda_.events import Request
from slslab.lambda_.hosts import ExecutionEnvironment, Host, terms

SAID_AFTER_S = 2.0
MORE_MEMORY = (
    "lower MemorySize (`--memory` or `--workers` of a run), or give more with `slslab up --memory-budget` "
    "(`budget_mb` of an Emulator)."
)
LOG = logging.getLogger(__name__)


class MemoryQueue:
    """The invocations that hold or wait for memory of the hosts that `hosts` returns.

    `environments` are all that exist. When an invocation has waited for two seconds, a
    log line says which functions wait and which hold memory. Another line follows when these functions change.
    """

    def __init__(self, hosts: Callable[[], Iterable[Host]], environments: Collection[ExecutionEnvironment]) -> None:
        self._hosts = hosts
        self._environments = environments
        # The invocations that hold memory, with the host of that memory, by request id.
        self.holding: dict[str, tuple[Request, Host]] = {}
        self._waiting: dict[str, Request] = {}
        self._said: tuple[set[str], set[str]] | None = None

    @contextmanager
    def waiting(self, request: Request) -> Iterator[None]:
        """Count the invocation as waiting during the block."""
        self._waiting[request.request_id] = request
        timer = asyncio.get_running_loop().call_later(SAID_AFTER_S, self._say)
        try:
            yield
        finally:
            timer.cancel()
            del self._waiting[request.request_id]
            if not self._waiting:
                self._said = None

    def waits(self, request: Request) -> bool:
        """Return whether the invocation is waiting."""
        return request.request_id in self._waiting

    def check(self, request: Request) -> None:
        """Raise ServiceException if this waiting invocation and its callers can never be resident together.

        A function that invokes another one synchronously holds its memory until the answer. A request's keys and trace
        id identify the calling invocation; without them, the request just waits.
        """
        waiting, hosts = list(self._waiting.values()), list(self._hosts())
        while True:
            kept = {caller.request_id: caller for waiter in waiting for caller in self._callers(waiter)}
            kept_mb: Counter[Host] = Counter()
            for identifier, caller in kept.items():
                kept_mb[self.holding[identifier][1]] += _memory_mb(caller)
            left_mb = max((host.budget_mb - kept_mb[host] for host in hosts), default=0)
            # Invocations that fit next to all other reserved memory get their turn; then their callers continue.
            hopeless = [waiter for waiter in waiting if _memory_mb(waiter) > left_mb]
            if len(hopeless) == len(waiting):
                break
            waiting = hopeless
        if any(waiter is request for waiter in hopeless) and any(self._callers(request)):
            sizes = Counter((caller.target.function.name, _memory_mb(caller)) for caller in kept.values())
            sizes_kept = [f"{count} × {mb:,} MB of {name}" for (name, mb), count in sizes.items()]
            needed_mb = _memory_mb(request)
            raise ServiceError(
                500,
                "ServiceException",
                f"{request.target.function.name} cannot run next to the functions that wait for it and for others like "
                f"it: {' + '.join(sizes_kept)} + {needed_mb:,} MB = {kept_mb.total() + needed_mb:,} MB, and "
                f"environments have {terms(host.budget_mb for host in hosts)} MB here. Hint: {MORE_MEMORY}",
            )

    def _callers(self, request: Request) -> Iterator[Request]:
        """Yield the invocations that wait for this one's answer, directly and indirectly, as far as they are known."""
        seen = {request.request_id}
        while request.caller:
            found = [
                other
                for other, _ in self.holding.values()
                if (other.target.function.name, other.trace_id) == (request.caller, request.trace_id)
            ]
            if len(found) != 1 or found[0].request_id in seen:
                return
            request = found[0]
            seen.add(request.request_id)
            yield request

    def _say(self) -> None:
        sizes = Counter((e.function.name, e.held_mb) for e in self._environments)
        state = {request.target.function.name for request in self._waiting.values()}, {name for name, _ in sizes}
        if state == self._said:
            return
        self._said = state
        wanted = Counter(
            (request.target.function.name, request.caller, _memory_mb(request)) for request in self._waiting.values()
        )
        waits = [
            f"{count} × {mb:,} MB for {name}{f', invoked by {caller}' * bool(caller)}"
            for (name, caller, mb), count in wanted.items()
        ]
        holds = [f"{name} {count} × {mb:,} MB" for (name, mb), count in sizes.items()]
        LOG.warning(
            "Invocations have waited %.0f s for this host's memory: %s. Of the %s MB for environments %s. Hint: %s",
            SAID_AFTER_S,
            "; ".join(waits),
            terms(host.budget_mb for host in self._hosts()),
            f"these are held: {', '.join(holds)}",
            MORE_MEMORY,
        )


def _memory_mb(request: Request) -> int:
    return request.target.function.memory_mb
