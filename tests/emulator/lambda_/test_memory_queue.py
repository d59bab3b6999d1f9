"""Which waits for the host's memory can never end, without an emulator."""

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.emulator.lambda_.test_concurrency import Places, Somewhere

from slslab.aws.errors import ServiceError
from slslab.aws.limits import lambda_limits
from slslab.lambda_.events import Request
from slslab.lambda_.functions import Target
from slslab.lambda_.memory_queue import MemoryQueue
from slslab.lambda_.pool import Pool


@dataclass
class Sized:
    """A function, as far as it matters here."""

    name: str
    memory_mb: int


def request(name: str, trace_id: str, caller: str = "", memory_mb: int = 512) -> Request:
    target = cast(Target, type("Sizing", (), {"function": Sized(name, memory_mb)}))
    return Request(target, b"", f"{name} {trace_id}", trace_id, "RequestResponse", None, caller)


def refused(budget_mb: int, holding: list[Request], waiting: list[Request], count: int = 1) -> list[str]:
    """The request ids of refused invocations, in order; nothing else runs meanwhile.

    Each host gives environments the budget, and has the ones that hold memory in turn.
    """
    hosts = [Somewhere(budget_mb) for _ in range(count)]

    async def check() -> list[str]:
        queue, found = MemoryQueue(lambda: hosts, ()), []
        with ExitStack() as stack:
            queue.holding.update(
                {held.request_id: (held, host) for held, host in zip(holding, cycle(hosts), strict=False)}
            )
            for waiter in waiting:
                wait = stack.enter_context(ExitStack())
                wait.enter_context(queue.waiting(waiter))
                try:
                    queue.check(waiter)
                except ServiceError:
                    found.append(waiter.request_id)
                    wait.close()
        return found

    return asyncio.run(check())


class Ending:
    """An environment that only ends, with an error once it may."""

    def __init__(self, host: Somewhere, name: str) -> None:
        self.host, self.function, self.held_mb = host, Sized(name, 512), 512
        self.ends = asyncio.Event()

    async def stop(self) -> None:
        await self.ends.wait()
        raise OSError(self.function.name)


def test_what_is_being_ended_holds_memory_and_its_errors_are_raised() -> None:
    async def end() -> None:
        (host,) = (hosts := Places(1024)).places
        pool = Pool(SimpleNamespace(limits=lambda_limits()), hosts, print, print)  # type: ignore[arg-type]
        environments: list[Any] = [Ending(host, name) for name in ("b", "a")]
        pool._all.update(dict.fromkeys(environments, False))
        ending = asyncio.ensure_future(pool.end())
        await asyncio.sleep(0.01)
        assert pool.environments() == environments
        for environment in environments:
            environment.ends.set()
        with pytest.raises(OSError, match="b"):
            await ending
        assert (pool.environments(), host.left_mb) == ([], 2048)

    asyncio.run(end())


def test_a_chain_that_does_not_fit_is_refused_whatever_else_there_is() -> None:
    chain = [request("one", "a"), request("two", "a", "one")]
    others = [request("other", "b")]
    three = request("three", "a", "two")
    assert refused(1500, chain + others, [three]) == ["three a"]
    assert refused(1536, chain + others, [three]) == []
    small = request("small", "c", memory_mb=128)
    assert refused(1500, chain + others, [small, three]) == ["three a"], "what fits gets its turn, and changes nothing"


def test_the_last_of_those_that_leave_no_memory_to_each_other_is_refused() -> None:
    holding = [request("one", trace_id) for trace_id in "abc"]
    waiting = [request("two", trace_id, "one") for trace_id in "abc"]
    assert refused(1600, holding, waiting) == ["two c"]
    assert refused(1600, holding, waiting[:2]) == [], "the third one may end"
    assert refused(2048, holding, waiting) == []


def test_what_is_left_of_several_hosts_is_no_room_together() -> None:
    holding = [request("one", "a"), request("two", "a", "one")]
    three = request("three", "a", "two")
    assert refused(1000, holding, [three], count=2) == ["three a"], "512 MB, and 488 are left of each"
    assert refused(1024, holding, [three], count=2) == []
    assert refused(1000, holding, [three], count=3) == []


def test_without_callers_that_are_known_nothing_is_refused() -> None:
    holding = [request("one", "a"), request("two", "a")]
    assert refused(1500, holding, [request("three", "a")]) == []
    assert refused(1500, holding, [request("three", "b", "two")]) == [], "another invocation of the function"


def test_who_waits_for_answers_that_nobody_gives_is_not_refused() -> None:
    """A direct caller waits until the functions that keep each other from going on time out."""
    holding = [request("one", "a"), request("two", "a", "one")]
    assert refused(1100, holding, [request("three", "a", "two"), request("direct", "b")]) == ["three a"]


@pytest.mark.parametrize("budget_mb", [600, 1100])
def test_functions_that_call_themselves_end_the_search(budget_mb: int) -> None:
    ping, pong = request("ping", "a", "pong"), request("pong", "a", "ping")
    assert refused(budget_mb, [ping, pong], [request("third", "a", "ping", 128)]) == ["third a"] * (budget_mb < 1152)
