"""What strangers get from a running service: another user of this host, and the handler of a function."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.emulator.up.services import REQUESTS, Service, in_use

from slslab.testing import create_function

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
]

NOBODY = 65_534
# Both strangers run this: what each port answers to each request, and what can be read of each file.
PROBE = """
import socket, ssl
from concurrent.futures import ThreadPoolExecutor

PLAIN = [b"PING\\r\\n", b"KEYS *\\r\\n", b"FLUSHALL\\r\\n", b"AUTH password\\r\\n", b"AMQP\\x00\\x00\\x09\\x01"]


def answer(port, data, tls):
    received = b""
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as plain:
            plain.settimeout(2)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with context.wrap_socket(plain) if tls else plain as connection:
                connection.sendall(data)
                while chunk := connection.recv(65536):
                    received += chunk
                    if received.startswith((b"-", b"AMQP")):  # a database or a broker, which keeps the connection
                        break
    except OSError as error:
        received += f" ({type(error).__name__})".encode()
    return received.decode("latin-1")


def encoded(port, method, path, headers, body):
    headers = {"Host": f"127.0.0.1:{port}", "Connection": "close", "Content-Length": len(body), **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\\r\\n".join([*lines, "", body]).encode()


def probe(ports, requests, files):
    asked = []
    for port in ports:
        sent = [encoded(port, *request) for request in requests]
        asked += [(port, data, False) for data in [*sent, *PLAIN]] + [(port, data, True) for data in sent]
    with ThreadPoolExecutor(32) as pool:
        found = {repr(one): received for one, received in zip(asked, pool.map(lambda one: answer(*one), asked))}
    for path in files:
        try:
            with open(path, "rb") as file:
                found[path] = file.read().decode("latin-1")
        except OSError as error:
            found[path] = type(error).__name__
    return found


def handler(event, context):
    return probe(event["ports"], event["requests"], event["files"])
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    # Its mode is 0700.
    with tempfile.TemporaryDirectory(prefix="owner-") as folder, in_use(Path(folder)) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_changed(service: Service) -> Iterator[None]:
    """Whatever a test tries, the service holds afterwards what it held before."""
    with service.unchanged():
        yield


def check(service: Service, answers: Mapping[str, str]) -> None:
    """Check what a stranger was answered."""
    assert len(answers) >= 30 * len(service.ports)
    for asked, answer in answers.items():
        assert not any(secret in answer for secret in service.secrets), asked
        assert not answer.startswith("HTTP/1.1 2"), (asked, answer)
        assert not answer.startswith(("+", "*", "$", ":")), (asked, answer)


def private(service: Service) -> list[str]:
    """Files of the owner's: the folder's, the service's state, and the environments of its processes."""
    files = [service.folder / "file", service.home / "s3", *service.home.rglob("*.log")]
    return [str(path) for path in files] + [f"/proc/{pid}/environ" for pid in sorted(service.pids)]


def test_another_user_of_this_host_gets_nothing(service: Service) -> None:
    files = private(service)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            names: dict[str, Any] = {}
            exec(PROBE, names)
            with os.fdopen(writing, "w") as pipe:
                json.dump(names["probe"](service.ports, REQUESTS, files), pipe)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answers = json.load(pipe)
    os.waitpid(child, 0)
    check(service, answers)
    assert {answers[path] for path in files} == {"PermissionError"}


def test_a_handler_gets_nothing_of_the_owners(service: Service) -> None:
    files = private(service)
    event = {"ports": service.ports, "requests": REQUESTS, "files": files}
    with closing(service.client("lambda")) as client:
        create_function(client, "curious", PROBE, Timeout=600)
        try:
            answer = client.invoke(FunctionName="curious", Payload=json.dumps(event))
            answers = json.loads(answer["Payload"].read())
            assert "FunctionError" not in answer, answers
        finally:
            client.delete_function(FunctionName="curious")
    check(service, answers)
    assert {answers[path] for path in files} <= {"PermissionError", "FileNotFoundError"}


def test_no_process_has_a_secret_among_its_arguments(service: Service) -> None:
    for pid in service.pids:
        arguments = " ".join(psutil.Process(pid).cmdline())
        assert not any(secret in arguments for secret in service.secrets), arguments
