"""Execution environments: started when none is warm, reused while warm, frozen in between, and ended."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Container
from contextlib import asynccontextmanager
from typing import Any

from slslab.concurrency import Admission, Concurrency
from slslab.configuration import Function
from slslab.environments.environment import Environment, EnvironmentHost, Outcome, State
from slslab.environments.sandbox import StartFailed
from slslab.functions import Functions
from slslab.service_errors import ServiceError


class Pool:
    """The environments of one emulator."""

    def __init__(
        self,
        functions: Functions,
        host: EnvironmentHost,
        concurrency: Concurrency,
        budget_mb: int,
        discarded: Callable[[], Awaitable[None]],
    ) -> None:
        self.admission = Admission(budget_mb)
        self._functions = functions
        self._host = host
        self._concurrency = concurrency
        self._discarded = discarded
        self._idle: dict[Environment, asyncio.TimerHandle] = {}
        # What admission counts for each environment, MB: its memory size, or what it holds while it rests.
        self._held_mb: dict[Environment, int] = {}
        self._all: set[Environment] = set()
        self._reaping: set[asyncio.Task[bool]] = set()
        self._stopping: set[asyncio.Task[None]] = set()
        self._number = 0
        self._closing = False

    def environments(self) -> list[Environment]:
        """Every environment that there is now."""
        return list(self._all)

    @asynccontextmanager
    async def lease(self, function: Function, request_id: str) -> AsyncIterator[tuple[Environment, Outcome | None]]:
        """A warm environment of exactly this version, or a new one with the outcome of its initialisation.

        It comes back however the block ends: warm if it is of use, else ended.
        """
        environment, init = await self._acquire(function, request_id)
        try:
            yield environment, init
        finally:
            if environment.state is State.READY and not self._closing:
                await environment.ready()
            keep = environment.state is State.READY and self._functions.is_current(environment.function)
            if keep and not self._closing:
                self._put_idle(environment)
            else:
                await self._discard(environment)

    async def retire_outdated(self) -> None:
        """End the idle environments of versions that are no more; busy ones end after their invocation."""
        for environment in [e for e in self._idle if not self._functions.is_current(e.function)]:
            await self._take_and_discard(environment)

    async def evict(self, name: str | None = None) -> int:
        """End idle environments (of one function, or all); returns how many."""
        chosen = [e for e in self._idle if name in (None, e.function.name)]
        return sum([await self._take_and_discard(environment) for environment in chosen])

    def close(self) -> None:
        """Nothing starts or becomes idle from now on."""
        self._closing = True
        self.admission.nudge()

    async def end(self, names: Container[str] | None = None) -> None:
        """End the environments of these functions, or all, also those that run an invocation."""
        for environment in [e for e in self._all if names is None or e.function.name in names]:
            if timer := self._idle.pop(environment, None):
                timer.cancel()
            await self._discard(environment)
        while under_way := self._reaping | self._stopping:
            await asyncio.wait(under_way)

    def _put_idle(self, environment: Environment) -> None:
        loop = asyncio.get_running_loop()
        self._idle[environment] = loop.call_later(self._host.limits.idle_s, self._reap, environment)
        environment.rest()
        held_mb = environment.resting_mb()
        self.admission.give_back(self._held_mb[environment] - held_mb)
        self._held_mb[environment] = held_mb

    def _reap(self, environment: Environment) -> None:
        task = asyncio.ensure_future(self._take_and_discard(environment))
        self._reaping.add(task)
        task.add_done_callback(self._reaping.discard)

    async def _take_and_discard(self, environment: Environment) -> bool:
        """End an idle environment; False if an invocation has it by now."""
        timer = self._idle.pop(environment, None)
        if timer is None:
            return False
        timer.cancel()
        await self._discard(environment)
        return True

    async def _acquire(self, function: Function, request_id: str) -> tuple[Environment, Outcome | None]:
        """The warm environment used last, else a new one, as soon as its memory fits; idle ones make room for it."""
        waited_ns = time.monotonic_ns()
        waited = False
        warm: Environment | None
        while True:
            if self._closing:
                raise ServiceError(503, "ServiceException", "The emulator is ending.")
            warm = next((e for e in reversed(self._idle) if e.function.revision == function.revision), None)
            if warm is not None and not warm.alive:
                await self._take_and_discard(warm)
                continue
            held_mb = 0 if warm is None else self._held_mb[warm]
            if self.admission.take(function.memory_mb - held_mb):
                break
            if (other := next((e for e in self._idle if e is not warm), None)) is not None:
                await self._take_and_discard(other)
                continue
            waited = True
            await self.admission.changed()
            self._functions.entry(function.name)  # which raises if it was deleted meanwhile
        if waited:
            self._record("host.wait", waited_ns, request_id, function.name, function.name)
        if warm is not None:
            self._idle.pop(warm).cancel()
            self._held_mb[warm] = function.memory_mb
            return warm, None
        try:
            self._concurrency.take_start(function.name)
        except ServiceError:
            self.admission.give_back(function.memory_mb)
            raise
        return await self._start(function, request_id)

    async def _start(self, function: Function, request_id: str) -> tuple[Environment, Outcome]:
        """Start an environment whose memory has been taken."""
        self._number += 1
        try:
            environment = Environment(self._host, function, self._number)
        except BaseException as error:
            self.admission.give_back(function.memory_mb)
            if isinstance(error, OSError):
                raise _unstartable(error) from error
            raise
        self._all.add(environment)
        self._held_mb[environment] = function.memory_mb
        start_ns = time.monotonic_ns()
        runtime = self._host.sandboxes.runtime(function)
        environment.log.write(f"INIT_START Runtime Version: {runtime}\n".encode())
        try:
            init = await environment.start(self._host.limits.init_s)
        except StartFailed as failure:
            await self._discard(environment)
            raise _unstartable(failure) from failure
        except BaseException:
            await self._discard(environment)
            raise
        more = {"phase": "init", "environment": environment.id, "cpu_ns": init.cpu_ns}
        self._record("environment.start", start_ns, request_id, environment.id, function.name, **more)
        return environment, init

    async def _discard(self, environment: Environment) -> None:
        if environment not in self._all:
            return
        self._all.discard(environment)
        # A task of its own, so that whoever waits may be cancelled and the end of the emulator can wait for it.
        task = asyncio.ensure_future(self._stop(environment))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)
        await asyncio.shield(task)

    async def _stop(self, environment: Environment) -> None:
        start_ns = time.monotonic_ns()
        try:
            await environment.stop()
        finally:
            self.admission.give_back(self._held_mb.pop(environment))
        self._record(
            "environment.kill", start_ns, "", environment.id, environment.function.name, environment=environment.id
        )
        if not self._functions.is_current(environment.function):
            await self._discarded()

    def _record(self, op: str, start_ns: int, request_id: str, resource: str, function: str, **more: Any) -> None:
        self._host.record(own_event(op, start_ns, request_id, resource=resource, function=function) | more)


def _unstartable(error: Exception) -> ServiceError:
    hint = "Hint: `slslab doctor` tells what this host gives."
    return ServiceError(500, "ServiceException", f"The environment could not start: {error}. {hint}")


def own_event(op: str, start_ns: int, request_id: str, *, resource: str, function: str) -> dict[str, Any]:
    """An event of the emulator's own for the trace, from `start_ns` until now."""
    return {
        "record": "event",
        "op": op,
        "phase": "other",
        "start_ns": start_ns,
        "end_ns": time.monotonic_ns(),
        "cpu_ns": 0,
        "bytes": 0,
        "requests": 0,
        "resource": resource,
        "etag": None,
        "overhead": True,
        "failed": False,
        "run": "",
        "worker": -1,
        "epoch": -1,
        "step": -1,
        "invocation": request_id,
        "function": function,
        "environment": "",
    }
