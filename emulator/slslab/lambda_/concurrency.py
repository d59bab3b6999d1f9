"""Decide what may run now: account and reserved concurrency, the scaling rate, and the memory of this host.

https://docs.aws.amazon.com/lambda/latest/dg/lambda-concurrency.html and
https://docs.aws.amazon.com/lambda/latest/dg/scaling-behavior.html
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable

from slslab.aws.errors import ServiceError, throttled
from slslab.aws.limits import Limits
from slslab.lambda_.functions import Functions
from slslab.lambda_.hosts import Host

MORE_MEMORY = (
    "lower MemorySize (`--memory` or `--workers` of a run), or give more with `slslab up --memory-budget` "
    "(`budget_mb` of an Emulator)."
)


class Tokens:
    """What is left of a rate limit; it refills continuously, up to a maximum."""

    def __init__(self, left: float) -> None:
        self._left = left
        self._since = time.monotonic()

    def take(self, most: float, rate: float) -> bool:
        """Take one of at most `most`, refilled by `rate` a second; return False if none is left."""
        now = time.monotonic()
        self._left, self._since = min(most, self._left + (now - self._since) * rate), now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Concurrency:
    """Counts executions under way and checks them against the account's limit and the function's reservation."""

    def __init__(self, functions: Functions, limits: Limits) -> None:
        self._functions = functions
        self._limits = limits
        self._running: Counter[str] = Counter()
        self._started: dict[str, Tokens] = {}
        # By name for functions with reserved concurrency; None for all others together.
        self._requests: dict[str | None, Tokens] = {}

    def take(self, name: str) -> None:
        """Count one execution of the function until `give_back`; TooManyRequestsException if none is left."""
        reserved = self._functions.entry(name).reserved
        if reserved is not None:
            if self._running[name] >= reserved:
                raise self._throttled("ReservedFunctionConcurrentInvocationLimitExceeded")
            self._take_request(name, reserved, "ReservedFunctionInvocationRateLimitExceeded")
        else:
            left = self._limits.account_concurrency - self._functions.reserved_total()
            running = self._running.items()
            if sum([count for other, count in running if self._functions.reservation(other) is None]) >= left:
                raise self._throttled("ConcurrentInvocationLimitExceeded")
            self._take_request(None, left, "FunctionInvocationRateLimitExceeded")
        self._running[name] += 1

    def give_back(self, name: str) -> None:
        """Stop to count an execution, which has ended."""
        self._running[name] -= 1
        if not self._running[name]:
            del self._running[name]

    def take_start(self, name: str) -> None:
        """Count a new environment against the scaling rate; TooManyRequestsException if it is exceeded."""
        most, period_s = self._limits.scaling_environments, self._limits.scaling_period_s
        if not self._started.setdefault(name, Tokens(most)).take(most, most / period_s):
            raise self._throttled("ConcurrentInvocationLimitExceeded")

    def _take_request(self, name: str | None, concurrency: int, reason: str) -> None:
        rate = self._limits.requests_per_concurrency * concurrency
        tokens = self._requests.get(name)
        if tokens is None:
            tokens = self._requests[name] = Tokens(rate)
        if not tokens.take(rate, rate):
            raise self._throttled(reason)

    def _throttled(self, reason: str) -> ServiceError:
        return throttled(reason, self._limits.retry_after_s)


class Admission:
    """The memory of one or more hosts, MB. An environment starts as soon as its memory size fits into a host.

    `hosts` returns the hosts that exist now. If several have room, the one with the most free memory is taken, so
    that environments spread; with `pack`, the one with the least.
    """

    def __init__(self, hosts: Callable[[], Iterable[Host]], *, pack: bool = False) -> None:
        self._hosts = hosts
        self._pack = pack
        # Set at the next change, if somebody waits for it.
        self._changed: asyncio.Event | None = None

    def budgets_mb(self) -> list[int]:
        """Return the memory that each host offers, MB."""
        return [host.budget_mb for host in self._hosts()]

    def take(self, memory_mb: int, host: Host | None = None) -> Host | None:
        """Reserve memory at this host, or any. Return the host, None if full; ServiceException if it never fits."""
        if host is not None and memory_mb <= host.left_mb:
            host.left_mb -= memory_mb
            return host
        hosts = list(self._hosts()) if host is None else [host]
        if not hosts:
            raise ServiceError(500, "ServiceException", "No node is left that could have environments.")
        most_mb = max(host.budget_mb for host in hosts)
        if memory_mb > most_mb:
            raise ServiceError(
                500,
                "ServiceException",
                f"An environment can have at most {most_mb} MB here, and the function needs {memory_mb} MB. "
                f"Hint: {MORE_MEMORY}",
            )
        fitting = [host for host in hosts if memory_mb <= host.left_mb]
        if not fitting:
            return None
        chosen = (min if self._pack else max)(fitting, key=lambda host: host.left_mb)
        chosen.left_mb -= memory_mb
        return chosen

    def give_back(self, memory_mb: int, host: Host) -> None:
        """Release memory that an environment no longer holds."""
        host.left_mb += memory_mb
        self.notify()

    def notify(self) -> None:
        """Wake up everything that waits: memory was released, or an environment became idle."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def changed(self) -> None:
        """Wait for the next change."""
        if self._changed is None:
            self._changed = asyncio.Event()
        await self._changed.wait()
