"""What strangers get from a running service: another user of this host, and the handler of a function.

Its ports are found by listing the sockets of its processes, so that no port is forgotten.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests import commands

from slslab.aws.clients import aws_client
from slslab.aws.keys import Pair
from slslab.host.reaper import marked_processes
from slslab.testing import ROLE, create_function
from slslab_workers.channels.endpoints import queue_url, tensor_urls

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
]

NOBODY = 65_534
SECRET = "only its owner reads this"
MACHINE = json.dumps({"StartAt": "Done", "States": {"Done": {"Type": "Succeed"}}})
# Both strangers run this: what each port answers to each request, and what can be read of each file.
PROBE = """
import socket, ssl
from concurrent.futures import ThreadPoolExecutor

HTTP = "{method} {path} HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n{more}Connection: close\\r\\n\\r\\n{body}"
REQUESTS = [
    ("GET", "/2015-03-31/functions", "", ""),
    ("GET", "/2015-03-31/functions/secretive", "", ""),
    ("POST", "/2015-03-31/functions/secretive/invocations", "Content-Length: 2\\r\\n", "{}"),
    ("POST", "/", "X-Amz-Target: AWSStepFunctions.ListStateMachines\\r\\nContent-Length: 2\\r\\n", "{}"),
    ("GET", "/2018-06-01/runtime/invocation/next", "", ""),
    ("GET", "/", "", ""),
    ("GET", "/objects/key", "", ""),
    ("PUT", "/objects/key", "Content-Length: 6\\r\\n", "theirs"),
    ("GET", "/buckets/objects/key", "", ""),
    ("DELETE", "/buckets/objects/key", "", ""),
    ("GET", "/dir/status", "", ""),
    ("GET", "/dir/assign", "", ""),
    ("GET", "/slslab/about", "", ""),
]
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


def probe(ports, files):
    asked = []
    for port in ports:
        sent = [HTTP.format(method=m, path=p, port=port, more=more, body=b).encode() for m, p, more, b in REQUESTS]
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
    return probe(event["ports"], event["files"])
"""


@dataclass
class Service:
    """A running service: its processes, the ports that they listen on, its variables, and a folder of its owner's."""

    pids: set[int]
    ports: list[int]
    variables: dict[str, str]
    described: dict[str, Any]
    folder: Path

    def client(self, service: str) -> Any:
        names = {"stepfunctions": "SFN"}
        pair = Pair.of(self.variables)
        assert pair is not None
        return aws_client(service, self.variables[f"AWS_ENDPOINT_URL_{names.get(service, service.upper())}"], pair)

    @property
    def secrets(self) -> list[str]:
        """What no stranger may see: the keys, passwords, a function's variable, an object and a file."""
        urls = [*tensor_urls(self.variables), queue_url(self.variables)]
        passwords = [url.partition("@")[0].rpartition(":")[2] for url in urls]
        return [self.variables["AWS_SECRET_ACCESS_KEY"], *passwords, SECRET]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service in use: with every part started, a resting environment, and something worth reading in each place."""
    folder = Path(tempfile.mkdtemp(prefix="owner-"))  # mode 0700
    (folder / "file").write_text(SECRET)
    state = {**os.environ, "SLSLAB_STATE": str(tmp_path_factory.mktemp("state"))}
    started = commands.slslab(
        *("up", "--detach", "--port", "0", "--s3-port", "0", "--tensor-databases", "2", "--queue", "auto"),
        *("--code", str(tmp_path_factory.mktemp("code")), "--json"),
        variables=state,
    )
    described = started.document
    try:
        variables = commands.slslab("env", "--json", variables=state).document
        running = Service(set(), [], variables, described, folder)
        with closing(running.client("lambda")) as client, closing(running.client("s3")) as s3:
            create_function(client, "secretive", PROBE, Timeout=600, Environment={"Variables": {"MINE": SECRET}})
            s3.create_bucket(Bucket="objects")
            s3.put_object(Bucket="objects", Key="key", Body=SECRET.encode())
            client.invoke(FunctionName="secretive", Payload=b'{"ports": [], "files": []}')["Payload"].read()
        with closing(running.client("stepfunctions")) as states:
            states.create_state_machine(name="machine", definition=MACHINE, roleArn=ROLE)
        mark = Path(described["logs"]).parent.name.removeprefix("slslab-").rpartition("-")[0]
        running.pids = {described["pid"], *marked_processes(mark)}
        listening = [
            connection.laddr.port
            for pid in running.pids
            for connection in psutil.Process(pid).net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        ]
        running.ports = sorted(set(listening))
        yield running
    finally:
        commands.slslab("down", variables=state)
        os.waitpid(described["pid"], 0)
        subprocess.run(["rm", "-r", folder], check=True)


def check(service: Service, answers: Mapping[str, str]) -> None:
    """Check what a stranger was answered, and that nothing has changed."""
    # Lambda, Step Functions, eight of the object store, two databases, the queue, a Runtime API.
    assert len(service.ports) >= 13
    assert len(answers) >= 30 * len(service.ports)
    for asked, answer in answers.items():
        assert not any(secret in answer for secret in service.secrets), asked
        assert not answer.startswith("HTTP/1.1 2"), (asked, answer)
        assert not answer.startswith(("+", "*", "$", ":")), (asked, answer)
    with closing(service.client("s3")) as s3:
        assert s3.get_object(Bucket="objects", Key="key")["Body"].read() == SECRET.encode()
    with closing(service.client("lambda")) as client:
        assert [function["FunctionName"] for function in client.list_functions()["Functions"]] == ["secretive"]


def private(service: Service) -> list[str]:
    """Files of the owner's: the folder's, the service's state, and the environments of its processes."""
    home = Path(service.described["logs"]).parent
    files = [service.folder / "file", home / "s3" / "identities.json", *home.rglob("*.log")]
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
                json.dump(names["probe"](service.ports, files), pipe)
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
    event = {"ports": service.ports, "files": files}
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


def test_the_state_is_the_owners_alone(service: Service) -> None:
    assert sys.platform == "linux"
    for path in Path(service.described["logs"]).parent.iterdir():
        assert path.parent.stat().st_mode & 0o077 == 0
