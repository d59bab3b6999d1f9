"""A virtual clock: nothing really waits, and concurrent work takes turns in one thread, in an order drawn from a seed.

Coroutines run on asyncio's event loop, which jumps to the next timer when nothing is ready. Blocking code, such as
handlers and drivers, runs in strands (greenlets) instead of threads: a strand gives way where it sleeps, waits, or asks
the time.
"""

import asyncio
import math
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from itertools import count
from random import Random
from typing import Any, NoReturn

import pytest
from greenlet import GreenletExit, getcurrent, greenlet

# When the clock begins, ns: not at zero, which is a time that is not set.
BEGIN_NS = 1_000_000_000_000
# How much CPU time, ns, a strand takes between two looks at the time.
WORK_NS = (50_000, 1_000_000)
TIMES = ("monotonic_ns", "monotonic", "time_ns", "time", "process_time_ns", "sleep")
SLEEP = time.sleep


class Stuck(Exception):
    """Everybody waits for something, and nothing is left that could happen."""


class _Timers(selectors.SelectSelector):
    """Nothing real is waited for: time passes instead."""

    def __init__(self, clock: "Clock") -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stuck
        self._clock.now_ns += math.ceil(timeout * 1e9)
        return []


class Loop(asyncio.SelectorEventLoop):
    """asyncio's event loop in virtual time; what it would do on other threads is done at once."""

    def __init__(self, clock: "Clock") -> None:
        self._virtual = clock
        super().__init__(_Timers(clock))

    def time(self) -> float:
        """Return the virtual time, s."""
        return self._virtual.now_ns / 1e9

    def run_in_executor(  # type: ignore[override]
        self, _executor: Any, call: Callable[..., Any], *arguments: Any
    ) -> Any:
        """Call it now, and return a future that is done."""
        future = self.create_future()
        try:
            future.set_result(call(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future


class Clock:
    """The time of one run, with its event loop, which runs where the clock was made; `current` is the running strand,
    `strands` are all that have not ended."""

    def __init__(self, random: Random) -> None:
        self.now_ns = BEGIN_NS
        self.loop = Loop(self)
        self.hub: Any = getcurrent()
        self.current: Strand | None = None
        self.strands: dict[Strand, None] = {}
        self._random = random
        self._thread = threading.get_ident()

    def strand(self) -> "Strand":
        """Return the strand that asks."""
        assert self.current is not None
        return self.current

    def monotonic_ns(self) -> int:
        """Return the time; a strand that asks has worked for a little before."""
        strand = self._asking()
        if strand is not None and not strand.gone:
            strand.work(self._random.randint(*WORK_NS))
        return self.now_ns

    def time_ns(self) -> int:
        """Return the time, for what tells no worker how long something took: no work is done for it."""
        return self.now_ns

    def monotonic(self) -> float:
        """Return the time, s."""
        return self.now_ns / 1e9

    time = monotonic

    def process_time_ns(self) -> int:
        """Return the CPU time of the strand that asks."""
        strand = self._asking()
        return 0 if strand is None else strand.cpu_ns

    def sleep(self, seconds: float) -> None:
        """Have the strand that asks sleep; other threads of this process sleep as ever."""
        strand = self._asking()
        if strand is None:
            SLEEP(seconds)
        else:
            strand.rest(seconds)

    @contextmanager
    def as_time(self) -> Iterator[None]:
        """Have it be the time that Python tells, in the block."""
        with pytest.MonkeyPatch.context() as patch:
            for name in TIMES:
                patch.setattr(time, name, getattr(self, name))
            yield

    def close(self) -> None:
        """End everything that still runs."""
        for strand in list(self.strands):
            strand.kill()
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.close()

    def _asking(self) -> "Strand | None":
        return self.current if threading.get_ident() == self._thread else None


class Strand:
    """Code that blocks, in turns with others; `done` becomes its result, `gone` says that it was killed."""

    def __init__(self, clock: Clock, call: Callable[[], Any]) -> None:
        self.clock = clock
        self.cpu_ns = 0
        self.gone = False
        self.done: asyncio.Future[Any] = clock.loop.create_future()
        self._call = call
        self._greenlet: Any = greenlet(self._run, clock.hub)
        clock.strands[self] = None
        clock.loop.call_soon(self.go_on)

    def go_on(self, *_: object) -> None:
        """Have its turn, on the event loop, until it waits."""
        if not self.gone and not self.done.done():
            self.enter()
            self._turn(self._greenlet.switch)

    def enter(self) -> None:
        """Do what is to be done before each of its turns."""

    def rest(self, seconds: float) -> None:
        """Sleep."""
        self._go_if_gone()
        self.clock.loop.call_later(max(0.0, seconds), self.go_on)
        self.clock.hub.switch()

    def work(self, work_ns: int) -> None:
        """Use this much CPU time, ns."""
        self.cpu_ns += work_ns
        self.rest(work_ns / 1e9)

    def wait_for(self, future: "asyncio.Future[Any]") -> Any:
        """Wait until a future of the event loop is done, and return its result."""
        self._go_if_gone()
        if not future.done():
            future.add_done_callback(self.go_on)
            self.clock.hub.switch()
        return future.result()

    def kill(self) -> None:
        """End it where it waits, from the event loop."""
        if not self.gone and not self.done.done():
            self.gone = True
            self._turn(partial(self._greenlet.throw, GreenletExit))
            self._end()

    def end(self) -> NoReturn:
        """End it from within, as its process does that is killed."""
        self.gone = True
        raise GreenletExit

    def _turn(self, switch: Callable[[], object]) -> None:
        before, self.clock.current = self.clock.current, self
        try:
            switch()
        finally:
            self.clock.current = before

    def _go_if_gone(self) -> None:
        if self.gone:
            raise GreenletExit

    def _run(self) -> None:
        try:
            result = self._call()
        except GreenletExit:
            self.gone = True
        except (Exception, KeyboardInterrupt) as error:
            self.done.set_exception(error)
        else:
            self.done.set_result(result)
        finally:
            self._end()

    def _end(self) -> None:
        self.clock.strands.pop(self, None)
        if not self.done.done():
            self.done.set_result(None)


class Event:
    """`threading.Event` of strands."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._set = False
        self._waiting: list[Callable[[], None]] = []

    def is_set(self) -> bool:
        """Return whether it has been set."""
        return self._set

    def set(self) -> None:
        """Set it, and wake who waits."""
        self._set = True
        for wake in self._waiting:
            wake()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, for so long at most; return whether it is."""
        if not self._set:
            wait_until(self._clock, timeout, self._waiting.append)
        return self._set


class Promise(Future[Any]):
    """What a strand of a pool will have made; `number` is its place among all."""

    numbers = count()

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.number = next(self.numbers)
        self._clock = clock

    def result(self, timeout: float | None = None) -> Any:
        """Wait for it."""
        wait(self._clock, [self], timeout)
        return super().result(0)


def wait(
    clock: Clock, promises: Iterable[Promise], timeout: float | None = None, return_when: str = ""
) -> tuple[set[Promise], set[Promise]]:
    """Wait as `concurrent.futures.wait` does for FIRST_COMPLETED; of several that are done only the first is."""
    assert return_when in ("", "FIRST_COMPLETED")
    waited = sorted(promises, key=lambda promise: promise.number)

    def when_done(wake: Callable[[], None]) -> None:
        for promise in waited:
            promise.add_done_callback(lambda _: wake())

    if not any(promise.done() for promise in waited):
        wait_until(clock, timeout, when_done)
    done = {promise for promise in waited if promise.done()}
    first = {min(done, key=lambda promise: promise.number)} if done else set()
    return first, set(waited) - first


def wait_until(clock: Clock, timeout: float | None, tell: Callable[[Callable[[], None]], None]) -> None:
    """Have the strand that asks wait, for so long at most, until what `tell` was given is called."""
    woken = clock.loop.create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    tell(wake)
    if timeout is not None:
        clock.loop.call_later(timeout, wake)
    clock.strand().wait_for(woken)


class Pool:
    """`ThreadPoolExecutor` of strands."""

    def __init__(self, clock: Clock, max_workers: int, thread_name_prefix: str = "") -> None:  # noqa: ARG002
        self._clock = clock
        self._most, self._running = max_workers, 0
        self._queue: deque[tuple[Promise, Callable[[], Any]]] = deque()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        while self._running:
            self._clock.sleep(0.001)

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **named: Any) -> Promise:
        """Have it called, as soon as one of the pool's strands is free."""
        promise = Promise(self._clock)
        self._queue.append((promise, partial(call, *arguments, **named)))
        if self._running < self._most:
            self._running += 1
            Strand(self._clock, self._work)
        return promise

    def map(self, call: Callable[..., Any], *arguments: Iterable[Any]) -> Iterator[Any]:
        """Have it called with each of these, and return the results in their order."""
        promises = [self.submit(call, *each) for each in zip(*arguments, strict=False)]
        return (promise.result() for promise in promises)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - drivers do not
        """Cancel what has not begun, if that is asked for."""
        while cancel_futures and self._queue:
            self._queue.popleft()[0].cancel()

    def _work(self) -> None:
        try:
            while self._queue:
                promise, call = self._queue.popleft()
                if promise.set_running_or_notify_cancel():
                    try:
                        promise.set_result(call())
                    except Exception as error:
                        promise.set_exception(error)
        finally:
            self._running -= 1
