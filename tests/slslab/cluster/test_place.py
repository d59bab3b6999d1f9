"""A node as the emulator sees it: the real node's side in this process, behind what stands for its actor."""

import asyncio
import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import ray
import ray.exceptions

from slslab.aws.limits import lambda_limits
from slslab.cluster.messages import Batch, Opening
from slslab.cluster.node import Node
from slslab.cluster.place import NodePlace
from slslab.host.cgroups import Hierarchy
from slslab.host.managed import Managed
from slslab.host.namespaces import Isolation
from slslab.lambda_.configuration import Function
from slslab.lambda_.packages import Image
from slslab.lambda_.places import Place, Shared
from slslab.lambda_.service.emulator import Emulator
from slslab.testing import create_function

pytestmark = pytest.mark.server

AHEAD_NS = 3600 * 1_000_000_000
LIMITS = lambda_limits()


class Actor:
    """Answers as an actor does, from a node in this process, whose clock is an hour behind; `die` loses it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._dead = asyncio.Event()

    def __getattr__(self, method: str) -> Any:
        class Remote:
            remote = staticmethod(lambda *arguments: self._call(method, *arguments))

        return Remote

    async def die(self) -> None:
        self._dead.set()

    async def _call(self, method: str, *arguments: Any) -> Any:
        call = asyncio.ensure_future(getattr(self._node, method)(*arguments))
        dead = asyncio.ensure_future(self._dead.wait())
        try:
            await asyncio.wait({call, dead}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            dead.cancel()
        if self._dead.is_set():
            call.cancel()
            raise ray.exceptions.ActorDiedError
        return _behind(call.result())


def _behind(answer: Any) -> Any:
    """Return a node's answer by a clock that is an hour behind this one."""
    if isinstance(answer, int):
        return answer - AHEAD_NS
    batch = answer if isinstance(answer, Batch) else getattr(answer, "batch", None)
    if batch is not None:
        for _, what in batch.happened:
            if isinstance(what, dict):
                what |= {name: what[name] - AHEAD_NS for name in ("start_ns", "end_ns", "wall_ns") if name in what}
    outcome = getattr(answer, "outcome", None)
    if outcome is not None:
        outcome = replace(outcome, began_ns=outcome.began_ns - AHEAD_NS, ended_ns=outcome.ended_ns - AHEAD_NS)
        answer = replace(answer, outcome=outcome)
    return answer


class OneNode(Managed):
    """One node as the only place."""

    template, pack = "", False

    def _enter(self, _stack: Any) -> None:
        self._node = Node(Opening(LIMITS, isolate=True, template=(), strict_packages=False, relay=None, relay_key=b""))

    def share(self, shared: Shared) -> None:
        self._shared = shared

    async def open(self, on_changed: Callable[[], None]) -> None:
        about = await self._node.open()
        self.actor = Actor(self._node)
        self.place = NodePlace(self.actor, {"name": "far", "budget_mb": 2048, **about}, self._shared, None)
        self.place.on_lost = on_changed
        await self.place.begin()

    async def end(self) -> None:
        for task in self.place._tasks:
            task.cancel()
        await self._node.close()

    @property
    def hierarchy(self) -> Hierarchy:
        return self.place.hierarchy

    @property
    def isolation(self) -> Isolation:
        return self.place.isolation

    def present(self) -> list[Place]:
        return [] if self.place.lost else [self.place]

    def prepare(self, function: Function) -> None:
        pass

    def find_image(self, uri: str) -> Image:
        raise AssertionError(uri)

    def host(self) -> dict[str, Any]:
        return {"nodes": [self.place.document()]}


@pytest.fixture
def places() -> OneNode:
    return OneNode()


@pytest.fixture
def far(places: OneNode, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """An emulator whose environments are on that node."""
    monkeypatch.setattr(ray, "kill", lambda _actor: None)
    with Emulator(places=places, limits=LIMITS) as emulator:
        yield emulator


SOURCE = """
import time
def handler(event, context):
    print("hello from", event)
    if event == "fail":
        raise ValueError("no")
    if event == "hang":
        time.sleep(60)
    return {"left_ms": context.get_remaining_time_in_millis(), "event": event}
"""


def test_an_invocation_is_metered_there_and_recorded_by_the_clock_of_here(far: Emulator, places: OneNode) -> None:
    client = far.client("lambda")
    create_function(client, "f", SOURCE, Timeout=5)
    before = time.monotonic_ns()
    with far.recording() as records:
        answers = [client.invoke(FunctionName="f", Payload=b'"one"', LogType="Tail") for _ in range(3)]
    after = time.monotonic_ns()
    assert [record.cold_start for record in records] == [True, False, False]
    for record in records:
        error_ns = places.place.clock.error_ns
        assert before - error_ns < record.start_ns < record.end_ns < after + error_ns
        assert 0 < record.duration_ms < 5000
        assert record.cpu_ms > 0
        assert record.max_memory_mb > 5
    for answer in answers:
        assert 0 < json.load(answer["Payload"])["left_ms"] <= 5000
        log = base64.b64decode(answer["LogResult"]).decode()
        assert [line.split(" ")[0] for line in log.splitlines()][-4:] == ["START", "hello", "END", "REPORT"]


def test_events_of_one_invocation_are_by_one_comparison_of_the_clocks(far: Emulator, places: OneNode) -> None:
    client = far.client("lambda")
    create_function(client, "f", SOURCE, Timeout=1)
    client.invoke(FunctionName="f", Payload=b'"one"')
    with far.recording() as records:
        calling = threading.Thread(target=lambda: client.invoke(FunctionName="f", Payload=b'"hang"'))
        calling.start()
        time.sleep(0.5)
        clock = places.place.clock
        places.place.clock = replace(clock, offset_ns=clock.offset_ns + 10**9)
        calling.join(20)
        after = time.monotonic_ns()
    assert records[0].end_ns < after + clock.error_ns


def test_failures_are_what_they_are_on_one_host(far: Emulator) -> None:
    client = far.client("lambda")
    create_function(client, "f", SOURCE, Timeout=1)
    with far.recording() as records:
        for event in (b'"fail"', b'"hang"', b'"one"'):
            client.invoke(FunctionName="f", Payload=event)
    assert [record.error_type for record in records] == ["ValueError", "Sandbox.Timedout", None]
    assert len({record.environment for record in records}) == 1  # it was reset, not lost


def test_an_invocation_ends_with_its_node(far: Emulator, places: OneNode) -> None:
    client = far.client("lambda")
    create_function(client, "f", SOURCE, Timeout=60)
    client.invoke(FunctionName="f", Payload=b'"one"')
    answers: list[Any] = []
    with far.recording() as records:
        calling = threading.Thread(
            target=lambda: answers.append(client.invoke(FunctionName="f", Payload=b'"hang"')["FunctionError"])
        )
        calling.start()
        time.sleep(1)
        began = time.monotonic()
        far.wait_for(places.actor.die())
        calling.join(20)
    assert answers == ["Unhandled"]
    assert time.monotonic() - began < 5
    assert records[0].error_type == "Runtime.ExitError"
    assert 900 < records[0].duration_ms < 5000
    with pytest.raises(client.exceptions.ServiceException):
        client.invoke(FunctionName="f", Payload=b'"one"')


def test_what_happened_is_passed_on_in_its_order_whatever_answer_comes_first() -> None:
    async def applied() -> list[Any]:
        seen: list[Any] = []
        shared: Any = None
        place = NodePlace(
            None, {"name": "far", "budget_mb": 1, "cores": 1, "hierarchy": None, "isolation": None}, shared, None
        )
        place._pass_on = lambda identifier, what: seen.append((identifier, what))  # type: ignore[method-assign]
        late = asyncio.ensure_future(place._apply(Batch(2, [("e", b"second")])))
        await asyncio.sleep(0.01)
        assert not late.done()
        await place._apply(Batch(1, [("e", b"first")]))
        await asyncio.wait_for(late, 1)
        return seen

    assert asyncio.run(applied()) == [("e", b"first"), ("e", b"second")]
