"""A node as the emulator sees it: the real node's side in this process, with a clock an hour behind."""

import asyncio
import base64
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tests.emulator.lambda_.registry import make_functions

from slslab.aws.limits import lambda_limits
from slslab.lambda_.emulator import Emulator
from slslab.lambda_.hosts import Host, Hosts, PhaseEnd, State
from slslab.stack.mutual_tls import write_certificate
from slslab.testing import create_function
from slslab_ray import remote_host
from slslab_ray.calls import Caller, Listener
from slslab_ray.messages import Opening
from slslab_ray.node import ForwardedLog, Node
from slslab_ray.remote_host import NodeHost

pytestmark = pytest.mark.server

AHEAD_NS = 3600 * 1_000_000_000
LIMITS = lambda_limits()


def behind(caller: Caller) -> None:
    """Have what comes from a node by the clock of one that is an hour behind."""
    take = caller.take

    def take_behind(value: Any) -> None:
        if isinstance(value, list):
            for _, what in value:
                if isinstance(what, dict):
                    what |= {name: what[name] - AHEAD_NS for name in ("start_ns", "end_ns", "wall_ns") if name in what}
        elif isinstance(value, tuple):
            number, failure, answer = value
            if isinstance(answer, int):
                answer -= AHEAD_NS
            if isinstance(answer, tuple) and isinstance(answer[1], PhaseEnd):
                state, outcome = answer
                moments = {"began_ns": outcome.began_ns - AHEAD_NS, "ended_ns": outcome.ended_ns - AHEAD_NS}
                answer = state, outcome._replace(**moments)
            value = number, failure, answer
        take(value)

    caller.take = take_behind  # type: ignore[method-assign]


class TheseNodes(Hosts):
    """Nodes in this process, each with this much memory for environments, MB, as the only hosts."""

    def __init__(self, *budgets_mb: int) -> None:
        self._budgets_mb = budgets_mb

    def _enter(self, stack: ExitStack) -> None:
        self._key = Path(stack.enter_context(TemporaryDirectory())) / "key.pem"
        write_certificate(self._key)
        self.nodes: list[Node] = []

    async def open(self) -> None:
        self.remote: list[NodeHost] = []
        listener = Listener("127.0.0.1", self._key)
        await listener.open()
        key = self._key.read_bytes()
        for number, budget_mb in enumerate(self._budgets_mb):
            node = Node(Opening(LIMITS, {}, key, str(number), listener.address, None))
            self.nodes.append(node)
            connected = listener.expect(str(number))
            about = {"name": "far", "budget_mb": budget_mb, **await node.open()}
            caller = await connected
            behind(caller)
            opened = NodeHost(caller, about, self, None)
            opened.on_lost = self.notify
            await opened.begin()
            self.remote.append(opened)
        listener.close()
        self.hierarchy, self.isolation = self.first.hierarchy, self.first.isolation

    async def end(self) -> None:
        for each, node in zip(self.remote, self.nodes, strict=True):
            if each.lost:
                await node.close()
            await each.close()

    @property
    def first(self) -> NodeHost:
        return self.remote[0]

    async def die(self) -> None:
        """End the first node's connection, as its death does."""
        self.nodes[0]._emulator.close()

    def present(self) -> list[Host]:
        return [each for each in self.remote if not each.lost]

    def host(self) -> dict[str, Any]:
        return {"nodes": [self.first.document()]}


@pytest.fixture
def hosts() -> TheseNodes:
    return TheseNodes(2048)


@pytest.fixture
def far(hosts: TheseNodes) -> Iterator[Emulator]:
    """An emulator with environments on that node."""
    with Emulator(hosts=hosts, limits=LIMITS) as emulator:
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


def test_an_invocation_is_metered_there_and_recorded_by_the_clock_of_here(far: Emulator, hosts: TheseNodes) -> None:
    client = far.client("lambda")
    create_function(client, "f", SOURCE, Timeout=5)
    before = time.monotonic_ns()
    with far.recording() as records:
        answers = [client.invoke(FunctionName="f", Payload=b'"one"', LogType="Tail") for _ in range(3)]
    after = time.monotonic_ns()
    assert [record.cold_start for record in records] == [True, False, False]
    for record in records:
        error_ns = hosts.first.clock.error_ns
        assert before - error_ns < record.start_ns < record.end_ns < after + error_ns
        assert 0 < record.duration_ms < 5000
        assert record.cpu_ms > 0
        assert record.max_memory_mb > 5
    for answer in answers:
        assert 0 < json.load(answer["Payload"])["left_ms"] <= 5000
        log = base64.b64decode(answer["LogResult"]).decode()
        assert [line.split(" ")[0] for line in log.splitlines()][-4:] == ["START", "hello", "END", "REPORT"]


def test_failures_are_what_they_are_on_one_host(far: Emulator) -> None:
    client = far.client("lambda")
    create_function(client, "f", SOURCE, Timeout=1)
    with far.recording() as records:
        for event in (b'"fail"', b'"hang"', b'"one"'):
            client.invoke(FunctionName="f", Payload=event)
    assert [record.error_type for record in records] == ["ValueError", "Sandbox.Timedout", None]
    assert len({record.environment for record in records}) == 1  # it was reset, not lost


class Hanging:
    """An invocation that does not end by itself, in a thread."""

    def __init__(self, client: Any, name: str) -> None:
        self.answer: Any = None
        self._thread = threading.Thread(target=self._call, args=(client, name))
        self._thread.start()

    def _call(self, client: Any, name: str) -> None:
        self.answer = client.invoke(FunctionName=name, Payload=b'"hang"')

    def end(self) -> Any:
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self.answer


def wait_until(true: Callable[[], object]) -> None:
    """Wait until something is so, at most 30 s."""
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_busy(hosts: TheseNodes, name: str) -> bool:
    """Whether a node runs an invocation of the function."""
    environments = [each for node in hosts.nodes for each in node._environments.values()]
    return any(each.function.name == name and each.state is State.BUSY for each in environments)


def test_an_invocation_ends_with_its_node(far: Emulator, hosts: TheseNodes) -> None:
    client = far.client("lambda")
    create_function(client, "f", SOURCE, Timeout=60)
    client.invoke(FunctionName="f", Payload=b'"one"')
    with far.recording() as records:
        hanging = Hanging(client, "f")
        wait_until(lambda: is_busy(hosts, "f"))
        far.wait_for(hosts.die())
        assert hanging.end()["FunctionError"] == "Unhandled"
    assert records[0].error_type == "Runtime.ExitError"
    assert 0 < records[0].duration_ms < 60_000
    with pytest.raises(client.exceptions.ServiceException):
        client.invoke(FunctionName="f", Payload=b'"one"')


def test_events_of_one_invocation_are_by_one_comparison_of_the_clocks(far: Emulator, hosts: TheseNodes) -> None:
    client = far.client("lambda")
    create_function(client, "f", SOURCE, Timeout=1)
    client.invoke(FunctionName="f", Payload=b'"one"')
    with far.recording() as records:
        hanging = Hanging(client, "f")
        wait_until(lambda: is_busy(hosts, "f"))
        clock = hosts.first.clock
        hosts.first.clock = replace(clock, offset_ns=clock.offset_ns + 3600 * 10**9)
        hanging.end()
        after = time.monotonic_ns()
    assert records[0].end_ns < after + clock.error_ns


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask nodes for their time more often, and wait less long for it."""
    monkeypatch.setattr(remote_host, "ALIGN_S", 0.1)
    monkeypatch.setattr(remote_host, "ANSWER_S", 2.0)


@pytest.mark.usefixtures("impatient")
def test_a_node_that_does_not_answer_any_more_is_lost(
    far: Emulator, hosts: TheseNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then more time than the function's has passed; it is not charged with it."""
    client = far.client("lambda")
    create_function(client, "f", SOURCE, Timeout=1)
    client.invoke(FunctionName="f", Payload=b'"one"')
    with far.recording() as records:
        hanging = Hanging(client, "f")
        wait_until(lambda: is_busy(hosts, "f"))
        monkeypatch.setattr(hosts.first._caller, "take", lambda _value: None)
        assert hanging.end()["FunctionError"] == "Unhandled"
    assert hosts.first.lost
    assert records[0].error_type == "Runtime.ExitError"
    assert records[0].duration_ms == 1000


def test_a_package_that_could_not_be_stored_is_stored_by_the_next_environment(
    far: Emulator, hosts: TheseNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = far.client("lambda")
    create_function(client, "f", SOURCE)

    async def full(*_: Any) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(hosts.nodes[0], "store", full)
        with pytest.raises(client.exceptions.ServiceException, match=r"far: No space left on device\. Hint"):
            client.invoke(FunctionName="f", Payload=b'"one"')
    assert client.invoke(FunctionName="f", Payload=b'"two"')["StatusCode"] == 200


def test_a_package_travels_in_pieces(far: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_host, "PIECE_BYTES", 100)
    client = far.client("lambda")
    create_function(client, "f", SOURCE)
    assert "FunctionError" not in client.invoke(FunctionName="f", Payload=b'"one"')


class EmulatorsRelay:
    """The emulator's side of the relay, reduced to what is used here."""

    has_ended = False

    def runs(self) -> bool:
        return not self.has_ended

    def add(self, ports: list[int]) -> str:
        assert 4 in ports
        return ""


@pytest.mark.parametrize("hosts", [TheseNodes(2048, 1024)])
def test_a_node_where_functions_would_reach_nothing_is_not_used(far: Emulator, hosts: TheseNodes) -> None:
    """The first has more room, and would be asked for every environment."""

    async def bound(ports: list[int]) -> str:
        return f"its port {ports[0]} cannot be bound: Address already in use"

    hosts.first._relay = EmulatorsRelay()  # type: ignore[assignment]
    hosts.nodes[0].reach = bound  # type: ignore[method-assign]
    far.add_variables({"STORE": "http://127.0.0.1:4"})
    client = far.client("lambda")
    create_function(client, "f", SOURCE, MemorySize=512)
    with pytest.raises(client.exceptions.ServiceException, match="far: its port 4 cannot be bound: Address"):
        client.invoke(FunctionName="f", Payload=b'"one"')
    assert [each.lost for each in hosts.remote] == [True, False]
    assert "FunctionError" not in client.invoke(FunctionName="f", Payload=b'"two"')


@pytest.mark.usefixtures("impatient", "far")
@pytest.mark.parametrize("side", ["emulator's", "node's"])
def test_a_node_is_lost_with_either_side_of_its_relay(
    hosts: TheseNodes, side: str, caplog: pytest.LogCaptureFixture
) -> None:
    relay = EmulatorsRelay()
    if side == "node's":
        hosts.nodes[0]._relay = relay  # type: ignore[assignment]
    else:
        hosts.first._relay = relay  # type: ignore[assignment]
    time.sleep(0.3)
    assert not hosts.first.lost
    relay.has_ended = True
    wait_until(lambda: hosts.first.lost)
    assert ("its relay has ended" if side == "node's" else "the emulator's relay has ended") in caplog.text


def test_a_log_beyond_its_maximum_sends_tails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slslab_ray.node.LOG_BYTES", 1000)
    sent: list[bytes] = []

    class Sending:
        def happen(self, environment: str, what: bytes) -> None:
            assert environment == "e"
            sent.append(what)

    log = ForwardedLog(make_functions("f").entry("f").latest, "", "e", Sending(), 10)  # type: ignore[arg-type]
    for _ in range(4):
        log.write(b"x" * 600)
    log.close()
    assert [len(what) for what in sent] == [600, 600, 10, 10]


def test_a_listener_that_fails_does_not_cost_the_node(
    far: Emulator, hosts: TheseNodes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = far.client("lambda")
    create_function(client, "f", SOURCE)
    client.invoke(FunctionName="f", Payload=b'"one"')
    (environment,) = hosts.first.environments.values()

    def fail(_what: Any) -> None:
        raise ValueError("of a listener")

    with monkeypatch.context() as patch:
        patch.setattr(environment, "happened", fail)
        assert "FunctionError" not in client.invoke(FunctionName="f", Payload=b'"two"')
    assert not hosts.first.lost
    assert "of a listener" in caplog.text


@pytest.mark.parametrize("method", ["store", "make", "start"])
def test_an_environment_that_ends_while_it_starts_leaves_nothing_on_its_node(
    far: Emulator, hosts: TheseNodes, method: str
) -> None:
    """`method` is what the node is asked for when the environment ends."""
    asked, goes_on = threading.Event(), asyncio.Event()
    node = hosts.nodes[0]
    original = getattr(node, method)

    async def slow(*arguments: Any) -> Any:
        asked.set()
        await goes_on.wait()
        return await original(*arguments)

    setattr(node, method, slow)
    client = far.client("lambda")
    create_function(client, "f", SOURCE)
    failures: list[Any] = []

    def call() -> None:
        with pytest.raises(client.exceptions.ServiceException) as failure:
            client.invoke(FunctionName="f", Payload=b'"one"')
        failures.append(failure)

    calling = threading.Thread(target=call)
    calling.start()
    assert asked.wait(30)

    async def end() -> None:
        ending = asyncio.ensure_future(far.service.pool.end())
        await asyncio.sleep(0)
        goes_on.set()
        await ending

    far.wait_for(end())
    calling.join(30)
    assert "the emulator is ending" in str(failures[0].value)
    assert (node._environments, hosts.first.environments) == ({}, {})


def test_a_runtime_that_exits_while_it_is_idle_is_not_used_again(far: Emulator, hosts: TheseNodes) -> None:
    client = far.client("lambda")
    create_function(client, "f", SOURCE)
    client.invoke(FunctionName="f", Payload=b'"one"')
    (environment,) = hosts.first.environments.values()
    wait_until(lambda: environment._resting is not None and environment._resting.done())
    idle = hosts.nodes[0]._environments[environment.id]
    far.wait_for(idle._thaw())  # what cgroup v1 has frozen dies when it is thawed
    idle.send_signal(signal.SIGKILL)
    wait_until(lambda: environment._exited)
    with far.recording() as records:
        assert "FunctionError" not in client.invoke(FunctionName="f", Payload=b'"two"')
    assert records[0].cold_start


HOLDING = """
import time
held = b"x" * 300_000_000
""" + SOURCE.replace("import time", "")


@pytest.mark.parametrize("hosts", [TheseNodes(640, 640)])
def test_an_idle_environment_of_another_node_ends_where_there_is_no_room_at_home(
    far: Emulator, hosts: TheseNodes
) -> None:
    client = far.client("lambda")
    for name, source in (("f", SOURCE), ("holding", HOLDING), ("busy", SOURCE)):
        create_function(client, name, source, Timeout=60, MemorySize=512)
    pool = far.service.pool

    def rests_on(name: str, number: int) -> bool:
        (environment,) = [each for each in pool.environments() if each.function.name == name]
        return environment.host is hosts.remote[number] and environment.held_mb < 512

    client.invoke(FunctionName="f", Payload=b'"one"')
    wait_until(lambda: rests_on("f", 0))
    client.invoke(FunctionName="holding", Payload=b'"one"')
    wait_until(lambda: rests_on("holding", 1))
    hanging = Hanging(client, "busy")
    wait_until(lambda: is_busy(hosts, "busy"))
    client.invoke(FunctionName="f", Payload=b'"two"')
    assert {each.host for each in pool.environments() if each.function.name == "f"} >= {hosts.remote[1]}
    assert not [each for each in pool.environments() if each.function.name == "holding"]
    far.wait_for(pool.end({"busy"}))
    hanging.end()
