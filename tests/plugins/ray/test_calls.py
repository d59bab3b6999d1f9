"""Calls over a connection: what arrives, in which order, what fails, and who is not heard."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from slslab.errors import HostError
from slslab.stack.mutual_tls import write_certificate
from slslab_ray import calls
from slslab_ray.calls import Answerer, Caller, CallError, Happened, Listener, answer

LIMIT_S = 60.0


class Methods:
    """What is called."""

    emulator: Answerer

    async def double(self, value: Any) -> Any:
        return value + value

    async def happen(self) -> str:
        self.emulator.happen("e", b"first")
        self.emulator.happen("e", {"record": "second"})
        return "end"

    async def fail(self, error: Exception) -> None:
        raise error

    async def unpicklable(self) -> Any:
        return lambda: None

    async def hang(self) -> None:
        await asyncio.Event().wait()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A key and its certificate."""
    write_certificate(tmp_path / "key.pem")
    return tmp_path / "key.pem"


@asynccontextmanager
async def connected(key: Path) -> AsyncIterator[tuple[Caller, Methods]]:
    """Both ends of a connection."""
    listener = Listener("127.0.0.1", key)
    await listener.open()
    arriving = listener.expect("node")
    methods = Methods()
    methods.emulator = await answer(listener.address, key, "node", methods)
    caller = await asyncio.wait_for(arriving, LIMIT_S)
    try:
        yield caller, methods
    finally:
        caller.close()
        methods.emulator.close()
        listener.close()


def within(key: Path, work: Callable[[Caller, Methods], Coroutine[Any, Any, Any]]) -> Any:
    """Do some work with both ends."""

    async def both() -> Any:
        async with connected(key) as ends:
            return await asyncio.wait_for(work(*ends), LIMIT_S)

    return asyncio.run(both())


def test_values_of_any_size_come_back_and_calls_run_beside_each_other(key: Path) -> None:
    values = [b"x" * size for size in (0, 1, 100, 300_000, 20_000_000)]

    async def work(caller: Caller, _methods: Methods) -> Any:
        hanging = asyncio.ensure_future(caller.call("hang"))
        found = await asyncio.gather(*(caller.call("double", value) for value in values))
        hanging.cancel()
        return found

    assert within(key, work) == [value + value for value in values]


def test_what_has_happened_arrives_before_the_answer_and_what_happens_alone_arrives_too(key: Path) -> None:
    async def work(caller: Caller, methods: Methods) -> list[Any]:
        seen: list[Any] = []
        alone = asyncio.Event()
        caller.happened = seen.extend
        assert await caller.call("happen") == "end"
        assert len(seen) == 2

        def take(happened: Happened) -> None:
            seen.extend(happened)
            alone.set()

        caller.happened = take
        methods.emulator.happen("e", b"third")
        await alone.wait()
        return seen

    assert within(key, work) == [("e", b"first"), ("e", {"record": "second"}), ("e", b"third")]


@pytest.mark.parametrize(
    ("method", "arguments", "why"),
    [
        ("fail", [OSError("It is full.\nMore.")], "It is full"),
        ("fail", [HostError("It has none.", "see there.")], "It has none"),
        ("fail", [KeyError("name")], "KeyError: 'name'"),
        ("unpicklable", [], "can't pickle|Can't pickle"),
        ("unknown", [], "AttributeError"),
    ],
)
def test_a_method_that_fails_says_why_and_the_next_one_is_answered(
    key: Path, method: str, arguments: list[Any], why: str
) -> None:
    async def work(caller: Caller, _methods: Methods) -> None:
        with pytest.raises(CallError, match=why):
            await caller.call(method, *arguments)
        assert await caller.call("double", 2) == 4

    within(key, work)


@pytest.mark.parametrize("end", ["caller", "node"])
def test_calls_end_with_the_connection(key: Path, end: str) -> None:
    async def work(caller: Caller, methods: Methods) -> list[str]:
        ended: list[str] = []
        caller.ended = ended.append
        hanging = asyncio.ensure_future(caller.call("hang"))
        await caller.call("double", 1)
        (caller if end == "caller" else methods.emulator).close()
        with pytest.raises(ConnectionError, match="its connection has ended"):
            await hanging
        with pytest.raises(ConnectionError, match="its connection has ended"):
            await caller.call("double", 1)
        return ended

    assert len(within(key, work)) == 1


def test_who_has_another_key_or_is_not_expected_is_not_heard(key: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    write_certificate(other)

    async def work(caller: Caller, _methods: Methods) -> None:
        listener = Listener("127.0.0.1", key)
        await listener.open()
        arriving = listener.expect("node")
        for wrong, name in ((other, "node"), (key, "stranger")):
            try:
                stranger = await answer(listener.address, wrong, name, Methods())
            except HostError:
                continue
            while not stranger._transport.is_closing():
                await asyncio.sleep(0.01)
        assert not arriving.done()
        listener.close()
        assert await caller.call("double", 1) == 2

    within(key, work)


def test_an_emulator_that_cannot_be_reached_is_named(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "CONNECT_S", 0.2)
    # Nobody answers the handshake of TLS.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = silent.getsockname()
        with pytest.raises(
            HostError, match=rf"can't reach the emulator at 127\.0\.0\.1:{address[1]}: no answer within"
        ):
            asyncio.run(answer(address, key, "node", Methods()))
    with pytest.raises(HostError, match=r"Connect(ion)? .*refused|Connect call failed"):
        asyncio.run(answer(address, key, "node", Methods()))


def test_an_address_that_is_not_this_host_s_is_refused(key: Path) -> None:
    with pytest.raises(HostError, match=r"Nodes can't connect to 192\.0\.2\.1: "):
        asyncio.run(Listener("192.0.2.1", key).open())
