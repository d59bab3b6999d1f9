"""Memcached and Redis start for one run, ask for its password and leave nothing behind."""

import re
import socket
from pathlib import Path

import numpy as np
import psutil
import pytest
from tests.channels import PROGRAMS

from slslab.errors import HostError
from slslab.host.server_process import free_port
from slslab.stack import channels
from slslab.stack.channels import EmbeddedMemcached, EmbeddedParameterServer, EmbeddedRedis, channel_server, find_server
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.keyed import KeyedChannel
from slslab_workers.channels.memcached import Memcached
from slslab_workers.channels.parameter_server import ParameterServer
from slslab_workers.channels.redis import Redis
from slslab_workers.channels.stream import Refused

pytestmark = pytest.mark.server

MARK = {"SLSLAB_TEST_MARK": "here"}
KINDS: dict[str, type[KeyedChannel]] = {"memcached": Memcached, "redis": Redis}


def channel(name: str, url: str) -> KeyedChannel:
    kind: type[Memcached | Redis] = Memcached if name == "memcached" else Redis
    return kind(url, Tracer(lambda _: None))


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> EmbeddedMemcached | EmbeddedRedis:
    """A server that has not been started, in a folder of the test."""
    if find_server(PROGRAMS[request.param]) is None:
        pytest.skip(f"{PROGRAMS[request.param]} is not installed (apt-get install {PROGRAMS[request.param]})")
    made = channel_server(request.param, tmp_path, MARK)
    assert isinstance(made, EmbeddedMemcached | EmbeddedRedis)
    return made


def test_it_listens_on_loopback_alone_and_is_gone_at_the_end(
    server: EmbeddedMemcached | EmbeddedRedis, tmp_path: Path
) -> None:
    with server:
        process = psutil.Process(server.pid)
        listening = {entry.laddr.ip for entry in process.net_connections() if entry.status == psutil.CONN_LISTEN}
        assert listening == {"127.0.0.1"}
        assert process.environ()["SLSLAB_TEST_MARK"] == "here"
        assert not any(server._password in word for word in process.cmdline()), "every user can read it"
        assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("settings")} == {0o600}
    assert not process.is_running()
    assert list(tmp_path.iterdir()) == []
    assert re.fullmatch(r"(Memcached|Redis) \d+\.\d+\.\d+", server.version)


def test_it_asks_for_the_password(server: EmbeddedMemcached | EmbeddedRedis) -> None:
    name = server.scheme
    with server:
        with channel(name, server.endpoint) as known:
            known.put("key", b"abc", "other")
            assert known.get("key", "other").body == b"abc"
        for url in (server.endpoint.replace(server._password, "wrong"), f"{name}://127.0.0.1:{server._port}"):
            with channel(name, url) as stranger, pytest.raises(Refused):
                stranger.get("key", "other")


def test_a_taken_port_is_tried_again(
    server: EmbeddedMemcached | EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        first = taken.getsockname()[1]
        ports = iter([first, free_port(), free_port()])
        monkeypatch.setattr(channels, "free_port", lambda: next(ports))
        # What listens there does not end the wait: the server has exited.
        answers = type(server)._answers
        monkeypatch.setattr(type(server), "_answers", lambda self: self._port != first and answers(self))
        with server:
            assert server._port != first


def test_memcached_that_is_not_installed_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "find_server", lambda _name: None)
    with pytest.raises(HostError, match=r"Memcached is not installed\.") as caught:
        channel_server("memcached", tmp_path, MARK)
    assert "apt-get install memcached" in caught.value.hint
    assert channel_server("redis", tmp_path, MARK) is None, "the tensor database takes its place"


def test_a_parameter_server_ends_with_its_context(tmp_path: Path) -> None:
    events: list[dict[str, object]] = []
    server = channel_server("parameter-server", tmp_path, MARK, events.append)
    assert isinstance(server, EmbeddedParameterServer)
    with server:
        process = psutil.Process(server.pid)
        listening = {entry.laddr.ip for entry in process.net_connections() if entry.status == psutil.CONN_LISTEN}
        assert listening == {"127.0.0.1"}
        assert not any(server._token in word for word in process.cmdline())
        with ParameterServer(server.endpoint, Tracer(lambda _: None)) as client:
            client.push("key", 0, 1, np.ones(2, np.float32), "other", leaving=False)
            client.pull("key", 1, "other")
        stranger = server.endpoint.replace(server._token, "wrong")
        with ParameterServer(stranger, Tracer(lambda _: None)) as client, pytest.raises(Refused, match="another token"):
            client.get("key", "other")
    assert not process.is_running()
    done = [(event["op"], event["resource"], event["bytes"]) for event in events]
    assert done == [(f"parameter.{name}", "key", 8) for name in ("deserialise", "merge", "serialise")]


def test_other_channels_need_no_server(tmp_path: Path) -> None:
    assert channel_server("", tmp_path, MARK) is None
    assert channel_server("dynamodb", tmp_path, MARK) is None
