"""Keep execution environments: start one when none is warm, reuse it while warm, freeze it in between, end it.

What may run now is decided by account and reserved concurrency, the scaling rate, and the memory of the hosts.
https://docs.aws.amazon.com/lambda/latest/dg/lambda-concurrency.html and
https://docs.aws.amazon.com/lambda/latest/dg/scaling-behavior.html
"""

import asyncio
import math
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Container, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from slslab.aws.errors import ServiceError, throttled
from slslab.aws.limits import MB
from slslab.lambda_.configuration import Function
from slslab.lambda_.events import Request
from slslab.lambda_.functions import Functions
from slslab.lambda_.hosts import ExecutionEnvironment, Host, Hosts, PhaseEnd, State
from slslab.lambda_.memory_queue import MemoryQueue
from slslab.run.events import own_event

Result = TypeVar("Result")
Execute = Callable[[ExecutionEnvironment, PhaseEnd | None, Request], Awaitable[Result]]


class Tokens:
    """What is left of a rate limit; it begins full and refills continuously, up to a maximum."""

    def __init__(self) -> None:
        self._left = math.inf
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

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._limits = functions.limits
        self._running: Counter[str] = Counter()
        self._started: defaultdict[str, Tokens] = defaultdict(Tokens)
        # By name for functions with reserved concurrency; None for all others together.
        self._requests: defaultdict[str | None, Tokens] = defaultdict(Tokens)

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
        """Stop counting an execution, which has ended."""
        self._running[name] -= 1
        if not self._running[name]:
            del self._running[name]

    def take_start(self, name: str) -> None:
        """Count a new environment against the scaling rate; TooManyRequestsException if it is exceeded."""
        most, period_s = self._limits.scaling_environments, self._limits.scaling_period_s
        if not self._started[name].take(most, most / period_s):
            raise self._throttled("ConcurrentInvocationLimitExceeded")

    def _take_request(self, name: str | None, concurrency: int, reason: str) -> None:
        rate = self._limits.requests_per_concurrency * concurrency
        if not self._requests[name].take(rate, rate):
            raise self._throttled(reason)

    def _throttled(self, reason: str) -> ServiceError:
        return throttled(reason, self._limits.retry_after_s)


class Pool:
    """The environments of one emulator; `on_outdated` is called after an environment of a deleted version ends."""

    def __init__(
        self,
        functions: Functions,
        hosts: Hosts,
        record: Callable[[dict[str, Any]], None],
        on_outdated: Callable[[], None],
    ) -> None:
        self.hosts = hosts
        self._functions = functions
        self._on_event = record
        self.concurrency = Concurrency(functions)
        self._on_outdated = on_outdated
        # Until when each may stay idle, in the event loop's time; the first is due first.
        self._idle: dict[ExecutionEnvironment, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        # Every environment, and whether it is being ended.
        self._all: dict[ExecutionEnvironment, bool] = {}
        self._memory_queue = MemoryQueue(hosts.present, self._all)
        self._ending: set[asyncio.Task[None]] = set()
        self._number = 0
        self._closing = False
        # Injects faults: called before every lease. It may raise, or return a function to call with the environment,
        # which starts a task that is cancelled when the invocation ends.
        self.fault: Callable[[Request], Callable[[ExecutionEnvironment], asyncio.Task[None]] | None] | None = None

    def environments(self) -> list[ExecutionEnvironment]:
        """Return every environment that exists now."""
        return list(self._all)

    async def run(self, request: Request, execute: Execute[Result]) -> Result:
        """Execute a request in a warm environment of exactly this version, or in a new one that has been initialised.

        If `execute` returns, an environment in which the initialisation or the invocation failed is reset: its next
        invocation starts its runtime again. Then the environment is kept warm if it is READY or RESET, else ended.
        """
        act = self.fault(request) if self.fault is not None else None
        environment, host = await self._admit(request)
        while environment is not None:
            ready = False
            try:
                ready = await environment.ready()
            finally:
                if not ready:
                    await self._discard(environment)
            if ready:
                break
            self._functions.entry(request.target.function.name)  # raises if it was deleted meanwhile
            environment, host = await self._admit(request)
        self._memory_queue.holding[request.request_id] = request, host
        try:
            init = None
            if environment is None:
                environment, init = await self._start(request.target.function, host, request.request_id)
            ended = False
            acting = act(environment) if act is not None else None
            try:
                result = await execute(environment, init, request)
                ended = True
                return result
            finally:
                if acting is not None:
                    acting.cancel()
                await self._take_back(environment, ended)
        finally:
            del self._memory_queue.holding[request.request_id]

    async def _take_back(self, environment: ExecutionEnvironment, ended: bool) -> None:
        usable = not self._closing and self._functions.is_current(environment.function)
        if ended and usable and environment.state not in (State.READY, State.STOPPED):
            await environment.reset()
            usable = not self._closing and self._functions.is_current(environment.function)
        if not usable or environment.state not in (State.READY, State.RESET):
            await self._discard(environment)
            return
        self._idle[environment] = asyncio.get_running_loop().time() + self._functions.limits.idle_s
        if self._timer is None:
            self._set_timer()
        environment.rest(self._give_back_unheld)
        self.hosts.notify()

    def retire_outdated(self) -> None:
        """Start to end the idle environments of versions that no longer exist; busy ones end after their invocation."""
        for environment in [e for e in self._idle if not self._functions.is_current(e.function)]:
            self._discard(environment)

    async def evict(self, name: str | None = None) -> int:
        """End idle environments, of one function or all, and return how many."""
        chosen = [e for e in self._idle if name in (None, e.function.name)]
        await asyncio.gather(*map(self._discard, chosen))
        return len(chosen)

    def close(self) -> None:
        """Keep environments from starting or becoming idle from now on."""
        self._closing = True
        self.hosts.notify()

    async def end(self, names: Container[str] | None = None) -> None:
        """End the environments of these functions, or all, even in the middle of an invocation."""
        chosen = [e for e in self._all if names is None or e.function.name in names]
        ended = await asyncio.gather(*map(self._discard, chosen), return_exceptions=True)
        while self._ending:
            await asyncio.wait(self._ending)
        if errors := [error for error in ended if error is not None]:
            raise errors[0]

    def _give_back_unheld(self, environment: ExecutionEnvironment) -> int:
        unheld_mb = environment.held_mb - environment.resting_mb()
        environment.held_mb -= unheld_mb
        environment.host.give_back(unheld_mb)
        return unheld_mb

    def _set_timer(self) -> None:
        """One timer serves all idle environments: most are used again long before it is due."""
        due = next(iter(self._idle.values()), None)
        self._timer = None if due is None else asyncio.get_running_loop().call_at(due, self._end_overdue)

    def _end_overdue(self) -> None:
        now = asyncio.get_running_loop().time()
        for environment in [e for e, due in self._idle.items() if due <= now]:
            self._discard(environment)
        self._set_timer()

    async def _admit(self, request: Request) -> tuple[ExecutionEnvironment | None, Host]:
        """Take the warm environment used last, with its host, or wait for a host with memory for a new one; end idle
        ones to make room."""
        function = request.target.function
        warm, home, host = self._take(function)
        if host is None:
            warm, host = await self._make_room(request, warm, home)
        if warm is not None:
            del self._idle[warm]
            warm.held_mb = function.memory_mb
        return warm, host

    def _take(self, function: Function) -> tuple[ExecutionEnvironment | None, Host | None, Host | None]:
        """Return a warm environment and its host, if there is one, and the host where memory was taken, if it fits."""
        if self._closing:
            raise ServiceError(503, "ServiceException", "The emulator is ending.")
        warm, home, needed_mb = None, None, function.memory_mb
        # The idle environment of this version used last that has room to work, else the one used last.
        for environment in reversed(self._idle):
            if environment.function.revision == function.revision:
                more_mb, host = function.memory_mb - environment.held_mb, environment.host
                fits = more_mb <= host.left_mb
                if warm is None or fits:
                    warm, home, needed_mb = environment, host, more_mb
                if fits:
                    break
        return warm, home, self.hosts.take(needed_mb, home)

    async def _make_room(
        self, request: Request, warm: ExecutionEnvironment | None, home: Host | None
    ) -> tuple[ExecutionEnvironment | None, Host]:
        function = request.target.function
        with ExitStack() as waiting:
            while True:
                others = [e for e in self._idle if e is not warm]
                if sum([self._give_back_unheld(e) for e in others]) > 0:
                    pass  # one that was used until now
                elif other := next((e for e in others if home in (None, e.host)), None):
                    await self._discard(other)
                # Without that, the warm one's host has no room for it to work.
                elif home is not None and (host := self.hosts.take(function.memory_mb)) is not None:
                    return None, host
                elif home is not None and others:
                    await self._discard(others[0])
                else:
                    if not self._memory_queue.waits(request):
                        waiting.enter_context(self._wait(request))
                    self._memory_queue.check(request)
                    await self.hosts.changed()
                    self._functions.entry(function.name)  # raises if it was deleted meanwhile
                warm, home, taken = self._take(function)
                if taken is not None:
                    return warm, taken

    @contextmanager
    def _wait(self, request: Request) -> Iterator[None]:
        name, begin_ns, failed = request.target.function.name, time.monotonic_ns(), True
        try:
            with self._memory_queue.waiting(request):
                yield
            failed = False
        finally:
            needed = {"bytes": request.target.function.memory_mb * MB, "failed": failed}
            self._record("host.wait", begin_ns, request.request_id, name, name, **needed)

    async def _start(self, function: Function, host: Host, request_id: str) -> tuple[ExecutionEnvironment, PhaseEnd]:
        try:
            self.concurrency.take_start(function.name)
            self._number += 1
            environment = host.make(function, self._number)
        except ServiceError:
            host.give_back(function.memory_mb)
            raise
        except OSError as error:
            host.give_back(function.memory_mb)
            raise _start_failed(error) from error
        self._all[environment] = False
        start_ns = time.monotonic_ns()
        try:
            environment.log.begin_init(await host.runtime(function))
            init = await environment.start(self._functions.limits.init_s)
        except BaseException as error:
            await self._discard(environment)
            if isinstance(error, OSError):
                raise _start_failed(error) from error
            raise
        self._record(
            "environment.start",
            start_ns,
            request_id,
            environment.id,
            function.name,
            phase="init",
            environment=environment.id,
            cpu_ns=init.cpu_ns,
        )
        return environment, init

    def _discard(self, environment: ExecutionEnvironment) -> Awaitable[None]:
        """Start to end an environment, which isn't idle any more, in a task that survives the caller's cancellation."""
        self._idle.pop(environment, None)
        task = asyncio.ensure_future(self._stop(environment))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return asyncio.shield(task)

    async def _stop(self, environment: ExecutionEnvironment) -> None:
        if self._all.get(environment, True):
            return
        self._all[environment] = True
        self._idle.pop(environment, None)  # an invocation may have ended meanwhile
        start_ns = time.monotonic_ns()
        try:
            await environment.stop()
        finally:
            del self._all[environment]
            environment.host.give_back(environment.held_mb)
        function = environment.function
        self._record("environment.kill", start_ns, "", environment.id, function.name, environment=environment.id)
        if not self._functions.is_current(function):
            self._on_outdated()

    def _record(self, op: str, start_ns: int, request_id: str, resource: str, function: str, **more: Any) -> None:
        self._on_event(own_event(op, start_ns, request_id, resource=resource, function=function, **more))


def _start_failed(error: Exception) -> ServiceError:
    return ServiceError(
        500,
        "ServiceException",
        f"The environment could not start: {error}. Hint: `slslab doctor` shows what this host supports.",
    )
