"""The embedded RabbitMQ starts next to other servers, doesn't touch them and cleans up."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pika
import pika.exceptions
import psutil
import pytest

from slslab.errors import HostError
from slslab.host.server_process import ATTEMPTS
from slslab.stack import queues
from slslab.stack.queues import EmbeddedRabbitMQ, RabbitMQ, find_rabbitmq, queue_kind

pytestmark = pytest.mark.server

MARK = {"SLSLAB_TEST_MARK": "here"}
installed = pytest.mark.skipif(
    find_rabbitmq() is None, reason="RabbitMQ's server is not installed (apt-get install rabbitmq-server)"
)


def connect(url: str) -> Any:
    """An open connection."""
    return pika.BlockingConnection(pika.URLParameters(url))


def gone(condition: Callable[[], bool], limit_s: float = 10.0) -> bool:
    """Whether the condition came true within the limit."""
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def ended(process: psutil.Process) -> bool:
    """Whether the process has ended, reaped or not."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRabbitMQ]:
    """One server for the module, whatever the user's environment, which leaves nothing.

    It starts with next to no variables but settings of RabbitMQ's that are meant for another, by a thread that ends
    before it.
    """
    data = tmp_path_factory.mktemp("rabbitmq") / "data"
    running = EmbeddedRabbitMQ(data, MARK)
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            patch.delenv(name)
        patch.setenv("RABBITMQ_NODE_PORT", "1")
        patch.setenv("RABBITMQ_CONFIG_FILE", "/nowhere")
        thread = threading.Thread(target=running.__enter__)
        thread.start()
        thread.join()
    family = processes(running.pid)
    yield running
    running.__exit__(None, None, None)
    assert not data.exists()
    assert gone(lambda: all(ended(one) for one in family))


def processes(pid: int) -> list[psutil.Process]:
    """Return a server's process and its children."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


@installed
def test_it_listens_on_one_port_of_loopback_and_carries_the_mark(server: EmbeddedRabbitMQ) -> None:
    family = processes(server.pid)
    listening = [
        connection.laddr
        for one in family
        for connection in one.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    # No distribution between Erlang nodes, and no port mapper for it.
    assert [tuple(address) for address in listening] == [("127.0.0.1", urlsplit(server.endpoint).port)]
    assert not [one for one in family if one.name() == "epmd"]
    assert all(one.environ()["SLSLAB_TEST_MARK"] == "here" for one in family if not ended(one))
    assert server.version.startswith("RabbitMQ ")
    assert server.version.removeprefix("RabbitMQ ")[0].isdigit()
    assert (server._data / "advanced.config").stat().st_mode & 0o77 == 0


@installed
def test_only_its_own_user_is_let_in(server: EmbeddedRabbitMQ) -> None:
    connect(server.endpoint).close()
    parts = urlsplit(server.endpoint)
    for account in ("guest:guest", f"{parts.username}:wrong"):
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            connect(f"amqp://{account}@127.0.0.1:{parts.port}/%2F")


@installed
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="without util-linux's setpriv the reaper alone does it")
def test_another_server_shares_nothing_with_it_and_dies_with_a_killed_parent(
    tmp_path: Path, server: EmbeddedRabbitMQ
) -> None:
    script = f"""
        import time
        from pathlib import Path
        from slslab.stack.queues import EmbeddedRabbitMQ
        with EmbeddedRabbitMQ(Path({str(tmp_path / "data")!r}), {{}}) as server:
            print(server.pid, server.endpoint, flush=True)
            time.sleep(600)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, endpoint = parent.stdout.readline().split()
        connection = connect(endpoint)
        connection.channel().queue_declare("here", durable=True)
        connection.close()
        family = processes(int(pid))
        os.kill(parent.pid, signal.SIGKILL)
    assert gone(lambda: all(ended(one) for one in family))
    channel = connect(server.endpoint).channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
        channel.queue_declare("here", passive=True)
    channel.connection.close()


def test_a_server_that_ends_at_once_is_an_error_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "rabbitmq-server"
    script.write_text("#!/bin/sh\necho tried >> ../tries\necho eaddrinuse: no room left >&2\nexit 1\n")
    script.chmod(0o755)
    (tmp_path / "plugins").mkdir()
    monkeypatch.setattr(queues, "find_rabbitmq", lambda: RabbitMQ(script, tmp_path / "plugins"))
    with pytest.raises(HostError, match="did not start: eaddrinuse: no room left"):
        EmbeddedRabbitMQ(tmp_path / "data", {}).__enter__()
    assert not (tmp_path / "data").exists()
    assert (tmp_path / "tries").read_text().count("tried") == ATTEMPTS


def test_a_server_that_is_not_ready_within_the_limit_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "rabbitmq-server"
    script.write_text("#!/bin/sh\nexec sleep 600\n")
    script.chmod(0o755)
    (tmp_path / "plugins").mkdir()
    monkeypatch.setattr(queues, "find_rabbitmq", lambda: RabbitMQ(script, tmp_path / "plugins"))
    monkeypatch.setattr(queues, "START_LIMIT_S", 0.1)
    server = EmbeddedRabbitMQ(tmp_path / "data", {})
    with pytest.raises(HostError, match="did not start: it printed nothing"):
        server.__enter__()
    with pytest.raises(AssertionError):
        _ = server.pid


def install(root: Path) -> Path:
    """Fake an installation like Debian's, except for the programs; return the folder of the wrapper."""
    home = root / "lib" / "rabbitmq" / "lib" / "rabbitmq_server-9.8.7"
    (home / "sbin").mkdir(parents=True)
    (home / "plugins" / "rabbit-9.8.7").mkdir(parents=True)
    (home / "sbin" / "rabbitmq-server").touch()
    folder = root / "lib" / "rabbitmq" / "bin"
    folder.mkdir()
    (folder / "rabbitmq-server").symlink_to(home / "sbin" / "rabbitmq-server")
    (folder / "rabbitmq-script-wrapper").touch()
    (root / "sbin").mkdir()
    (root / "sbin" / "rabbitmq-server").symlink_to(folder / "rabbitmq-script-wrapper")
    return root / "sbin"


def test_the_server_is_found_behind_debians_wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "SEARCHED", ())
    monkeypatch.setenv("PATH", str(install(tmp_path)))
    found = find_rabbitmq()
    assert found is not None
    assert found.script.parent.name == "sbin"
    assert found.script.parent.parent.name == "rabbitmq_server-9.8.7"
    assert found.version == "RabbitMQ 9.8.7"
    assert [queue_kind(wanted) for wanted in ("auto", "rabbitmq", "embedded")] == ["rabbitmq", "rabbitmq", "embedded"]


def test_without_a_server_there_is_the_embedded_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "SEARCHED", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_rabbitmq() is None
    assert [queue_kind(wanted) for wanted in ("auto", "embedded")] == ["embedded", "embedded"]
    for call in (lambda: queue_kind("rabbitmq"), lambda: EmbeddedRabbitMQ(tmp_path / "data", {})):
        with pytest.raises(HostError, match="not installed") as raised:
            call()
        assert "rabbitmq-server" in raised.value.hint
