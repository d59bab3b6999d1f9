"""The edges of the protocols: what no client of AWS's own would send, and a function may still do."""

import asyncio
import errno
import gc
import http.client
import json
import logging
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from slslab.aws.clients import signed_headers
from slslab.host.connections import Address
from slslab.host.sandbox import Sandbox
from slslab.lambda_ import runtime_api
from slslab.lambda_.emulator import Emulator
from slslab.lambda_.environment import Environment
from slslab.lambda_.process_sandbox import ProcessSandbox, ProcessSandboxes
from slslab.lambda_.runtime_api import NextInvocation, RuntimeApi, RuntimeReport

Deploy = Callable[..., str]
Invoke = Callable[..., Any]

CLIENT = """
    import http.client, os

    def handler(event, context):
        address = os.environ.get("ADDRESS", os.environ["AWS_LAMBDA_RUNTIME_API"])
        answers = []
        for method, path, body, headers in event:
            connection = http.client.HTTPConnection(address, timeout=20)
            try:
                connection.request(method, path.replace("ID", context.aws_request_id), body, headers)
                answer = connection.getresponse()
                answers.append([answer.status, answer.read().decode()])
            except OSError as error:
                answers.append([0, type(error).__name__])
            finally:
                connection.close()
        return answers
"""

RUNTIME = "/2018-06-01/runtime"
LIMIT = 1000
REFUSAL = "the Runtime API answers the processes of its own environment alone"
# It says its invocation's id to its event's port, and goes on when it hears something there.
VICTIM = """
    import os, socket

    def handler(event, context):
        if "port" in event:
            with socket.create_connection(("127.0.0.1", event["port"])) as connection:
                connection.sendall(context.aws_request_id.encode())
                connection.recv(1)
        return [os.environ["AWS_LAMBDA_RUNTIME_API"], event]
"""


async def anybody(_client: Address, _server: Address) -> bool:
    return True


def ask(address: str, method: str, path: str, body: str) -> tuple[int, str]:
    """Status and body of a Runtime API's answer to this process."""
    connection = http.client.HTTPConnection(address, timeout=20)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def call(emulator: Emulator, method: str, path: str, body: str = "", **headers: str) -> tuple[int, str, str]:
    """Status, type and message of an answer to a request of one's own making."""
    connection = http.client.HTTPConnection(urlsplit(emulator.endpoint).netloc, timeout=20)
    try:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        url = emulator.endpoint + path
        connection.request(method, path, body, signed_headers(emulator.keys.owner, method, url, body.encode(), given))
        answer = connection.getresponse()
        document = json.loads(answer.read() or b"{}")
        return (
            answer.status,
            answer.headers.get("x-amzn-ErrorType", ""),
            str(document.get("Message", document.get("message", document))),
        )
    finally:
        connection.close()


def test_a_function_that_talks_to_its_runtime_api_gets_the_answers_of_lambdas(deploy: Deploy, invoke: Invoke) -> None:
    """Wrong paths, wrong ids, a body announced by `Expect`, and none of it disturbs the invocation itself."""
    base = "/2018-06-01/runtime"
    requests = [
        ("GET", "/2020-01-01/extension/register", "", {}),
        ("POST", f"{base}/invocation/ID/forward", "{}", {}),
        ("POST", f"{base}/invocation/00000000-0000-0000-0000-000000000000/response", "{}", {}),
        ("DELETE", f"{base}/invocation/next", "", {}),
        ("POST", f"{base}/nothing", "x" * 300_000, {"Expect": "100-continue"}),
    ]
    answers = invoke(deploy(CLIENT), requests).payload
    assert [status for status, _ in answers] == [404, 404, 400, 404, 404]
    assert json.loads(answers[2][1]) == {"errorType": "InvalidRequest", "errorMessage": "InvalidRequestID"}


def test_a_stranger_has_no_effect(deploy: Deploy, invoke: Invoke) -> None:
    """Neither this process nor another function, while the environment rests or works."""
    victim = deploy(VICTIM)
    address = invoke(victim, {}).payload[0]
    stranger = deploy(CLIENT, FunctionName="stranger", Environment={"Variables": {"ADDRESS": address}})

    def attack(request_id: str) -> None:
        requests = [
            ("GET", f"{RUNTIME}/invocation/next", ""),
            ("POST", f"{RUNTIME}/invocation/{request_id}/response", '"stolen"'),
            ("POST", f"{RUNTIME}/invocation/{request_id}/error", '{"errorType": "Stolen"}'),
            ("POST", f"{RUNTIME}/init/error", '{"errorType": "Stolen"}'),
        ]
        mine = [ask(address, *request) for request in requests]
        theirs = invoke(stranger, [(*request, {}) for request in requests]).payload
        assert [status for status, _ in (*mine, *theirs)] == [403] * 8
        assert {json.loads(body)["errorMessage"] for _, body in (*mine, *theirs)} == {REFUSAL}

    attack("resting")
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as threads:
        server.settimeout(20)
        event = {"port": server.getsockname()[1]}
        waiting = threads.submit(invoke, victim, event)
        with server.accept()[0] as connection:
            attack(connection.recv(36).decode())
        answer = waiting.result()
    assert (answer.error, answer.payload) == (None, [address, event])
    assert invoke(victim, {"secret": 1}).payload == [address, {"secret": 1}], "it serves on"


def test_a_stranger_that_waits_sees_no_payload(deploy: Deploy, invoke: Invoke) -> None:
    victim = deploy(VICTIM, Timeout=3)
    host, port = invoke(victim, {}).payload[0].split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(f"GET {RUNTIME}/invocation/next HTTP/1.1\r\nHost: {host}\r\n\r\n".encode() * 2)
        answer = invoke(victim, {"secret": 1})
        connection.shutdown(socket.SHUT_WR)
        heard = b"".join(iter(lambda: connection.recv(4096), b""))
    assert heard.count(b"HTTP/1.1 403 ") == 2
    assert b"secret" not in heard
    assert answer.error is None


def test_a_child_of_the_handler_is_answered(deploy: Deploy, invoke: Invoke) -> None:
    """Also a child without its parent, and one with an IPv6 socket, which clients in other languages use for IPv4."""
    name = deploy(
        '''
        import subprocess, sys

        ASK = """
        import os, socket, sys

        if sys.argv[1] == "orphan" and os.fork():
            os._exit(0)
        sys.stdin.read()
        host, port = os.environ["AWS_LAMBDA_RUNTIME_API"].split(":")
        with socket.socket(getattr(socket, sys.argv[2])) as connection:
            connection.connect((sys.argv[3] + host, int(port)))
            connection.sendall(b"GET /other HTTP/1.1\\\\r\\\\nHost: x\\\\r\\\\n\\\\r\\\\n")
            print(connection.recv(100).split()[1].decode())
        """

        def handler(event, context):
            answers = []
            for arguments in event:
                command = [sys.executable, "-c", ASK.replace("\\n        ", "\\n"), *arguments]
                with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as child:
                    if arguments[0] == "orphan":
                        child.wait()
                    child.stdin.close()
                    answers.append(child.stdout.read().strip())
            return answers
        '''
    )
    families = (("AF_INET", ""), ("AF_INET6", "::ffff:"))
    assert invoke(name, [(kind, *family) for kind in ("child", "orphan") for family in families]).payload == ["404"] * 4


@pytest.mark.parametrize(("own", "status"), [(True, b"404"), (False, b"403")])
def test_each_connection_is_asked_about_once(own: bool, status: bytes) -> None:
    calls: list[tuple[Address, Address]] = []

    async def owns(client: Address, server: Address) -> bool:
        calls.append((client, server))
        return own

    async def talk() -> bytes:
        api = RuntimeApi(owns, LIMIT)
        host, port = api.start().split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
        writer.write_eof()
        heard = await asyncio.wait_for(reader.read(), 20)
        assert calls == [(writer.get_extra_info("sockname"), (host, int(port)))]
        writer.close()
        api.stop()
        return heard

    assert asyncio.run(talk()).count(b"HTTP/1.1 " + status) == 3


def test_a_connection_that_is_asked_about_while_it_stops_is_closed() -> None:
    async def stop() -> bytes:
        asked = asyncio.Event()

        async def owns(_client: Address, _server: Address) -> bool:
            asked.set()
            await asyncio.Event().wait()
            return True

        api = RuntimeApi(owns, LIMIT)
        host, port = api.start().split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        await asked.wait()
        api.stop()
        heard = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        return heard

    assert asyncio.run(stop()) == b""


def test_a_runtime_may_connect_before_its_sandbox_is_known(
    deploy: Deploy, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = deploy("def handler(event, context):\n    return event\n")
    start, owns = ProcessSandboxes.start, Environment._owns
    connected = asyncio.Event()

    async def starting(
        sandboxes: ProcessSandboxes, environment: Environment, former: Sandbox | None = None
    ) -> ProcessSandbox:
        sandbox = await start(sandboxes, environment, former)
        await connected.wait()
        return sandbox

    async def owning(environment: Environment, client: Address, server: Address) -> bool:
        connected.set()
        return await owns(environment, client, server)

    monkeypatch.setattr(ProcessSandboxes, "start", starting)
    monkeypatch.setattr(Environment, "_owns", owning)
    assert invoke(name, 1).payload == 1


def test_a_runtime_may_connect_before_its_processes_are_known(
    deploy: Deploy, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without control groups the spawner tells of them, and may do so late."""
    name = deploy("def handler(event, context):\n    return event\n")
    feed, owns = ProcessSandbox._feed, ProcessSandbox.owns
    held: list[bytes] = []

    async def owning(sandbox: ProcessSandbox, client: Address, server: Address) -> bool:
        asyncio.get_running_loop().call_soon(feed, sandbox, b"".join(held))
        held.clear()
        return await owns(sandbox, client, server)

    with monkeypatch.context() as patched:
        patched.setattr(ProcessSandbox, "_make_group", lambda *_: None)
        patched.setattr(ProcessSandbox, "owns", owning)
        patched.setattr(ProcessSandbox, "_feed", lambda _, chunk: held.append(chunk))
        assert invoke(name, 1).payload == 1


@pytest.mark.parametrize("turns", range(6))
def test_a_connection_made_while_it_stops_is_closed(turns: int) -> None:
    """After this many turns of the event loop: not accepted yet, accepted, or about to be served."""

    async def stop() -> bytes:
        api = RuntimeApi(anybody, LIMIT)
        host, port = api.start().split(":")
        with socket.create_connection((host, int(port))) as client:
            client.setblocking(False)
            for _ in range(turns):
                await asyncio.sleep(0)
            api.stop()
            with suppress(ConnectionResetError):
                return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 1), 10)
            return b""

    assert asyncio.run(stop()) == b""


@pytest.mark.parametrize(("own", "kept"), [(True, LIMIT + 1), (False, None)])
def test_of_a_report_without_a_length_no_more_than_the_limit_is_kept(own: bool, kept: int | None) -> None:
    async def owns(_client: Address, _server: Address) -> bool:
        return own

    async def talk() -> tuple[bytes, int | None]:
        api = RuntimeApi(owns, LIMIT)
        host, port = api.start().split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"POST {RUNTIME}/init/error HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for _ in range(100):
            writer.write(b"%x\r\n%b\r\n" % (100 * LIMIT, bytes(100 * LIMIT)))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        writer.write_eof()
        heard = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        size = None if api.report is None else len(api.report.body)
        api.stop()
        return heard, size

    heard, size = asyncio.run(talk())
    assert heard.startswith(b"HTTP/1.1 413" if own else b"HTTP/1.1 403")
    assert (b"Exceeded maximum allowed payload size (1000 bytes)." in heard) is own
    assert size == kept


async def connected(api: RuntimeApi) -> socket.socket:
    """A client of one's own, that has been accepted."""
    host, port = api.start().split(":")
    client = socket.create_connection((host, int(port)))
    client.setblocking(False)
    while not api.connections:
        await asyncio.sleep(0)
    return client


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_of_a_client_that_does_not_read_its_answers_nothing_more_is_read() -> None:
    """They piled up in memory, and each new one copied the others."""

    payload = bytes(1_000_000)

    async def pile() -> int:
        api = RuntimeApi(anybody, LIMIT)
        with await connected(api) as client:
            (connection,) = api.connections
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(60):
                client.send(f"GET {RUNTIME}/invocation/next HTTP/1.1\r\n\r\n".encode())
                await turns()
                if api.ready_ns is not None:
                    api.hand_out(NextInvocation("id", payload, "arn", 1, "Root"))
            unsent = len(connection._unsent)
            heard = 0
            while connection._unsent:  # it is read further when it reads
                with suppress(BlockingIOError):
                    heard += len(client.recv(1 << 20))
                await asyncio.sleep(0)
        api.stop()
        assert heard > len(payload)
        return unsent

    assert asyncio.run(pile()) < 2 * len(payload)


@pytest.mark.parametrize(
    "endless",
    [
        b"GET / HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\nA: ",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;",
    ],
)
def test_endless_headers_are_hung_up_on_wherever_they_stand(endless: bytes) -> None:
    async def talk() -> int:
        api = RuntimeApi(anybody, LIMIT)
        host, port = api.start().split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(endless)
        line = (b"x" if endless.endswith((b" ", b";")) else b"Name: %d\r\n" % id(api)) * 1000
        sent = 0
        with suppress(ConnectionError):
            while not reader.at_eof() and sent < 30_000_000:
                writer.write(line)
                await writer.drain()
                sent += len(line)
        writer.close()
        api.stop()
        return sent

    assert asyncio.run(talk()) < 20_000_000  # of which the kernel holds some


def test_reports_that_wait_for_an_answer_are_held_up_to_the_limit_of_one() -> None:
    async def pile() -> bytes:
        api = RuntimeApi(anybody, LIMIT)
        with await connected(api) as client:
            client.send(f"GET {RUNTIME}/invocation/next HTTP/1.1\r\n\r\n".encode())
            report = f"POST {RUNTIME}/invocation/x/response HTTP/1.1\r\nContent-Length: {LIMIT}\r\n\r\n".encode()
            client.send((report + bytes(LIMIT)) * 2)
            heard = await asyncio.get_running_loop().sock_recv(client, 1000)
        assert not api.connections
        assert api.ready_ns is None
        api.stop()
        return heard

    with suppress(ConnectionResetError):
        assert asyncio.run(pile()) == b""


def test_who_asks_and_hangs_up_does_not_wait() -> None:
    """Otherwise an invocation is handed out without a reader and times out; and each such connection stayed open."""

    async def ask_and_leave() -> None:
        api = RuntimeApi(anybody, LIMIT)
        ask_next = f"GET {RUNTIME}/invocation/next HTTP/1.1\r\n\r\n".encode()
        with await connected(api) as client:
            client.send(ask_next)
            while api.ready_ns is None:
                await asyncio.sleep(0)
        while api.ready_ns is not None:
            await asyncio.sleep(0)
        assert not api.connections
        # It was about to be handed out; the next one gets it.
        api.hand_out(NextInvocation("id", b'"payload"', "arn", 1, "Root"))
        assert api._listener is not None
        with socket.create_connection(api._listener.getsockname()) as client:
            client.setblocking(False)
            client.send(ask_next)
            heard = await asyncio.get_running_loop().sock_recv(client, 1000)
            assert heard.endswith(b'\r\n\r\n"payload"')
            assert api.ready_ns is None
            # Who asks last waits, and nobody else.
            client.send(ask_next)
            while api.ready_ns is None:
                await asyncio.sleep(0)
            with socket.create_connection(api._listener.getsockname()) as other:
                other.send(ask_next)
                assert await asyncio.get_running_loop().sock_recv(client, 1000) == b""
                assert len(api.connections) == 1
        api.stop()

    asyncio.run(ask_and_leave())


@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        # Java's client offers HTTP/2 this way.
        (b"GET / HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: \r\n\r\n" * 3, 3),
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\nGET / HTTP/1.1\r\n\r\n", 1),
        (b"GET / HTTP/1.1\r\n\r\nno HTTP\r\n\r\n", 1),
        (b"GET / HTTP/1.0\r\n\r\n", 1),
    ],
)
def test_what_is_a_request_is_answered_whatever_stands_behind_it(sent: bytes, answers: int) -> None:
    async def talk() -> bytes:
        api = RuntimeApi(anybody, LIMIT)
        host, port = api.start().split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        heard = b""
        while heard.count(b"HTTP/1.1 404 ") < answers:
            heard += (more := await asyncio.wait_for(reader.read(1000), 20))
            assert more
        writer.close()
        api.stop()
        return heard

    assert asyncio.run(talk()).count(b"HTTP/1.1 404 ") == answers


def test_a_connection_of_which_nobody_may_know_whose_it_is_is_hung_up_on() -> None:
    async def owns(_client: Address, _server: Address) -> bool:
        raise PermissionError

    async def talk() -> bytes:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        api = RuntimeApi(owns, LIMIT)
        host, port = api.start().split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        heard = b""
        with suppress(ConnectionResetError):
            heard = await asyncio.wait_for(reader.read(), 20)
        assert not api.connections
        writer.close()
        api.stop()
        gc.collect()
        assert complaints == []
        return heard

    assert asyncio.run(talk()) == b""


def test_more_connections_than_an_environment_can_have_are_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_api, "MOST_CONNECTIONS", 1)

    async def talk() -> bytes:
        api = RuntimeApi(anybody, LIMIT)
        with await connected(api) as first:
            reader, writer = await asyncio.open_connection(*first.getpeername())
            heard = await asyncio.wait_for(reader.read(), 20)
            writer.close()
        api.stop()
        return heard

    assert asyncio.run(talk()) == b""


def test_without_descriptors_it_accepts_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile the event loop does not turn without end."""
    monkeypatch.setattr(runtime_api, "ACCEPT_AGAIN_S", 0.01)
    tried: list[str] = []

    class Full:
        def __init__(self, listener: socket.socket) -> None:
            self.listener = listener

        def accept(self) -> tuple[socket.socket, object]:
            tried.append("accept")
            if len(tried) == 1:
                raise OSError(errno.EMFILE, "Too many open files")
            return self.listener.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.listener, name)

    async def talk() -> list[str]:
        api = RuntimeApi(anybody, LIMIT)
        host, port = api.start().split(":")
        api._listener = Full(api._listener)  # type: ignore[arg-type,assignment]
        with socket.create_connection((host, int(port))):
            await turns()
            first = list(tried)
            while not api.connections:
                await asyncio.sleep(0)
        api.stop()
        return first

    assert asyncio.run(talk()) == ["accept"]


def test_a_large_payload_reaches_a_client_that_reads_slowly() -> None:
    payload = bytes(range(256)) * (6 * 4096)

    async def talk() -> bytes:
        api = RuntimeApi(anybody, LIMIT)
        with await connected(api) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            # Behind it another request, whose answer follows.
            client.send(f"GET {RUNTIME}/invocation/next HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n".encode())
            while api.ready_ns is None:
                await asyncio.sleep(0)
            api.hand_out(NextInvocation("id", payload, "arn", 1, "Root"))
            heard = bytearray()
            while not heard.endswith(b'no such path"}'):
                with suppress(BlockingIOError):
                    heard += client.recv(50_000)
                await asyncio.sleep(0)
        api.stop()
        return bytes(heard)

    heard = asyncio.run(talk())
    assert payload in heard
    assert heard.count(b"HTTP/1.1 ") == 2


@pytest.mark.parametrize(
    ("body", "error_type"),
    [
        (b"[" * 100_000, "Theirs"),
        (b'{"errorType": ' + b"[" * 900 + b"]" * 900 + b"}", "[" * 256),
        (b'{"errorType": "\\ud800"}', "?"),
        (b'{"errorType": "' + b"x" * 100_000 + b'"}', "x" * 256),
        (b"\xff\xfe", "Theirs"),
    ],
)
def test_an_error_type_is_a_short_text_whatever_the_body_is(body: bytes, error_type: str) -> None:
    """Such a function's invocation was answered with a status of 500."""
    report = RuntimeReport("error", body, {"lambda-runtime-function-error-type": "Theirs"})
    assert report.error_type == error_type


def test_a_function_with_an_odd_error_is_answered_and_goes_on(
    deploy: Deploy, invoke: Invoke, lambda_client: Any
) -> None:
    name = deploy(CLIENT)
    for body in ("[" * 100_000, '{"errorType": "\\ud800"}', "no JSON"):
        event = json.dumps([("POST", f"{RUNTIME}/invocation/ID/error", body, {})])
        answer = lambda_client.invoke(FunctionName=name, Payload=event)
        assert (answer["FunctionError"], answer["Payload"].read()) == ("Unhandled", body.encode())
        assert invoke(name, [("GET", "/", "", {})]).payload[0][0] == 404


def test_a_function_that_asks_for_its_next_invocation_itself_and_leaves_is_invoked_again(
    deploy: Deploy, invoke: Invoke
) -> None:
    name = deploy(
        """
        import os, socket

        def handler(event, context):
            host, port = os.environ["AWS_LAMBDA_RUNTIME_API"].split(":")
            for _ in range(event):
                with socket.create_connection((host, int(port)), timeout=20) as connection:
                    connection.sendall(b"GET /2018-06-01/runtime/invocation/next HTTP/1.1\\r\\n\\r\\n")
            return event
        """,
        Timeout=5,
    )
    for times in (3, 0, 3, 0):
        answer = invoke(name, times)
        assert (answer.error, answer.payload) == (None, times)


def test_a_function_whose_error_is_too_large_goes_on_in_a_new_environment(deploy: Deploy, invoke: Invoke) -> None:
    name = deploy("def handler(event, context):\n    if event:\n        raise ValueError('x' * event)\n    return 1\n")
    assert invoke(name, 7_000_000, check=False).payload["errorType"] == "Function.ResponseSizeTooLarge"
    assert invoke(name, 0).payload == 1


@pytest.mark.parametrize(("says", "starts"), [("", 2), ("GET / HTTP/1.1\\r\\n\\r\\n", 1)])
def test_a_runtime_that_gives_up_its_connection_is_started_again(
    says: str, starts: int, deploy: Deploy, invoke: Invoke, emulator: Emulator
) -> None:
    """As curl does after a second, in awslambdaric; one that asks for something, and ends then, is not."""
    name = deploy(
        f"""
        import os, socket

        print("began", flush=True)
        host, port = os.environ["AWS_LAMBDA_RUNTIME_API"].split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall("{says}".encode())
            if "{says}":
                connection.recv(100)
        os._exit(1)
        """
    )
    assert invoke(name, check=False).payload["errorType"] == "Runtime.ExitError"
    log = (emulator.logs / f"{emulator.records[-1].environment}.log").read_text()
    assert log.count("began") == starts


def test_what_is_no_http_is_hung_up_on(deploy: Deploy, invoke: Invoke) -> None:
    name = deploy(
        """
        import os, socket

        def handler(event, context):
            host, port = os.environ["AWS_LAMBDA_RUNTIME_API"].split(":")
            answers = []
            for said in (b"Good morning.\\r\\n\\r\\n", b"GET / HTTP/1.1\\r\\n"):
                with socket.create_connection((host, int(port)), timeout=20) as connection:
                    connection.sendall(said)
                    connection.shutdown(socket.SHUT_WR)
                    answers.append(connection.recv(100).decode())
            return answers
        """
    )
    assert invoke(name).payload == ["", ""]


@pytest.mark.parametrize(
    ("body", "error_type"),
    [('{"errorType": "Mine"}', "Mine"), ('"text"', "Theirs"), ("[1]", "Theirs"), ("{}", "Theirs")],
)
def test_an_error_is_named_by_its_body_or_else_by_its_header(
    body: str, error_type: str, deploy: Deploy, invoke: Invoke, emulator: Emulator
) -> None:
    """A runtime of one's own may say as little as it likes."""
    name = deploy(CLIENT)
    headers = {"Lambda-Runtime-Function-Error-Type": "Theirs"}
    answer = invoke(name, [("POST", "/2018-06-01/runtime/invocation/ID/error", body, headers)], check=False)
    assert answer.error == "Unhandled"
    assert emulator.records[-1].error_type == error_type
    assert f"Error Type: {error_type}" in answer.log


def test_what_a_function_writes_to_its_trace_is_checked(
    deploy: Deploy, invoke: Invoke, caplog: pytest.LogCaptureFixture
) -> None:
    """Lines that aren't events are reported in the emulator's log; half a line waits for the other half."""
    name = deploy(
        """
        import os, time

        def handler(event, context):
            descriptor = int(os.environ["SLSLAB_TRACE_FD"])
            for line in event:
                data = line.encode() + b"\\n"
                os.write(descriptor, data[:6])
                time.sleep(0.05)
                os.write(descriptor, data[6:])
            os.write(descriptor, b"\\0")
            os.close(descriptor)
            return len(event)
        """
    )
    lines = ["no JSON", "[1, 2]", '{"op": "compute"}']
    with caplog.at_level(logging.ERROR, "slslab.host.output"):
        assert invoke(name, lines).payload == 3
    told = [record.getMessage() for record in caplog.records]
    assert [message.partition("an invalid trace record: ")[2] for message in told] == [
        repr(line.encode()) for line in lines
    ]


@pytest.mark.parametrize("body", ["{", "[]", '"text"'])
def test_a_body_that_is_no_json_object_is_refused(body: str, emulator: Emulator) -> None:
    status, error_type, message = call(emulator, "POST", "/2015-03-31/functions", body)
    assert (status, error_type) == (400, "SerializationException")
    assert message.startswith("The request body ")


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("MaxItems=many", "maxItems must be of the type integer, not str"),
        ("Marker=somewhere", "Invalid marker: somewhere"),
    ],
)
def test_pages_that_cannot_be_are_refused(query: str, says: str, emulator: Emulator) -> None:
    status, _, message = call(emulator, "GET", f"/2015-03-31/functions?{query}")
    assert status == 400
    assert says in message


def test_a_client_context_that_is_not_base64_is_refused(emulator: Emulator, deploy: Deploy) -> None:
    name = deploy("def handler(event, context):\n    return 1\n")
    path = f"/2015-03-31/functions/{name}/invocations"
    status, error_type, message = call(emulator, "POST", path, "{}", X_Amz_Client_Context="not base64!")
    assert (status, error_type) == (400, "InvalidRequestContentException")
    assert message == "Client context must be a valid Base64-encoded JSON object."


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ({"ImageUri": "image"}, "Please do not provide ImageUri when creating a function with packageType Zip."),
        ({}, "Code needs ZipFile, S3Bucket and S3Key"),
        ({"ZipFile": "not base64!"}, "Could not unzip uploaded file"),
        ({"S3Bucket": "hot-reload", "S3Key": "relative/path"}, "is not an absolute path of an existing directory"),
        ({"S3Bucket": "hot-reload", "S3Key": "large"}, "Unzipped size must be smaller than 262144000 bytes"),
    ],
)
def test_code_that_cannot_be_is_refused(code: dict[str, str], says: str, emulator: Emulator, tmp_path: Path) -> None:
    if code.get("S3Key") == "large":
        code = code | {"S3Key": str(tmp_path)}
        emulator.packages.allow(tmp_path)
        with (tmp_path / "app.py").open("wb") as file:
            file.truncate(262_144_001)
    request = {
        "FunctionName": "f", "Runtime": "python3.11", "Handler": "app.handler", "Code": code,
        "Role": "arn:aws:iam::000000000000:role/r",
    }  # fmt: skip
    status, error_type, message = call(emulator, "POST", "/2015-03-31/functions", json.dumps(request))
    assert (status, error_type) == (400, "InvalidParameterValueException")
    assert says in message
