"""Memcached, Redis and DynamoDB hold bytes under keys, each request an event; against servers, and moto's tables."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.channels import running

from slslab.stack.tensors import EmbeddedTensorDatabases
from slslab_workers.channels import endpoints
from slslab_workers.channels.dynamodb import KNOWN, DynamoDB, create_table, environment_client
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.keyed import KeyedChannel
from slslab_workers.channels.memcached import Memcached
from slslab_workers.channels.objects import Absent, Unchanged
from slslab_workers.channels.parameter_server import ParameterServer
from slslab_workers.channels.polling import Poll
from slslab_workers.channels.redis import Redis
from slslab_workers.channels.stream import Refused, Unreachable

pytestmark = pytest.mark.server

Open = Callable[[Tracer], KeyedChannel]


@pytest.fixture(scope="module", params=["memcached", "redis", "redis in tensordb", "dynamodb", "parameter-server"])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """Opens a channel of each kind to a server of this module's own."""
    if request.param == "redis in tensordb":
        with EmbeddedTensorDatabases(1, password="p@ss:word/1") as databases:
            yield lambda tracer: Redis(databases.endpoints[0], tracer)
        return
    with running(request.param, tmp_path_factory.mktemp("channel")):
        if request.param == "dynamodb":
            create_table(environment_client(), "table")
            yield lambda tracer: DynamoDB(environment_client(), "table", tracer)
        else:
            kind = {"memcached": Memcached, "redis": Redis, "parameter-server": ParameterServer}[request.param]
            yield lambda tracer: kind(endpoints.channel_url(), tracer)


@pytest.fixture
def events() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def channel(opened: Open, events: list[dict[str, Any]]) -> Iterator[KeyedChannel]:
    with opened(Tracer(events.append, "run", 3)) as made:
        yield made


@pytest.mark.parametrize("size", [0, 1, 4096, 300_000])
def test_what_is_put_is_got_until_it_is_deleted(channel: KeyedChannel, events: list[dict[str, Any]], size: int) -> None:
    body = os.urandom(size)
    etag = channel.put("run/a/b0", memoryview(body), "synchronise", overhead=False, metadata={"leaving": "1"})
    got = channel.get("run/a/b0", "synchronise", overhead=False)
    assert (bytes(got.body), got.etag, got.metadata) == (body, etag, {"leaving": "1"})
    assert not memoryview(got.body).readonly, "a tensor lies over it"
    channel.delete("run/a/b0", "synchronise", overhead=False)
    with pytest.raises(Absent):
        channel.get("run/a/b0", "synchronise", overhead=False)
    channel.delete("run/a/b0", "synchronise")
    name = channel.name
    deleted = size if name == "dynamodb" else 0
    assert [(e["op"], e["bytes"], e["overhead"], e["failed"], e["resource"]) for e in events] == [
        (f"{name}.put", size, False, False, "run/a/b0"),
        (f"{name}.get", size, False, False, "run/a/b0"),
        (f"{name}.delete", deleted, False, False, "run/a/b0"),
        (f"{name}.get", 0, True, True, "run/a/b0"),
        (f"{name}.delete", 0, True, False, "run/a/b0"),
    ]
    assert (events[0]["etag"], events[1]["etag"]) == (etag, etag)


def test_a_later_body_takes_the_place_of_an_earlier_one(channel: KeyedChannel) -> None:
    first = channel.put("again", b"one", "other")
    second = channel.put("again", b"three", "other")
    assert first != second
    assert bytes(channel.get("again", "other", known_etag=first).body) == b"three"
    with pytest.raises(Unchanged):
        channel.get("again", "other", known_etag=second)


def test_all_keys_may_be_there_and_one_is_waited_for(
    opened: Open, events: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    with opened(Tracer(events.append)) as channel:

        def put_later(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 2:
                channel.put("late", b"here", "other")

        monkeypatch.setattr("slslab_workers.channels.channel.time", SimpleNamespace(sleep=put_later))
        assert list(channel.find("", ["late", "never"], "other")) == ["late", "never"]
        assert bytes(channel.wait_for("late", Poll(0.01, 2.0, 0.1), "other").body) == b"here"
    assert slept == [0.01, 0.02]
    assert sum(event["op"].endswith(".get") and event["failed"] for event in events) == 2


def test_a_gradient_of_mobilenet_fits_in_memory(channel: KeyedChannel) -> None:
    """Memcached's items have 1 MB by default, DynamoDB's at most 400 KB."""
    body = os.urandom(12_868_904)
    if channel.name == "dynamodb":
        with pytest.raises(Exception, match="Item size has exceeded the maximum allowed size"):
            channel.put("large", body, "other")
        return
    channel.put("large", body, "other")
    assert bytes(channel.get("large", "other").body) == body
    channel.delete("large", "other")


def test_dynamodb_forgets_the_sizes_of_keys_that_it_never_deletes(opened: Open) -> None:
    with opened(Tracer(lambda _: None)) as channel:
        if not isinstance(channel, DynamoDB):
            pytest.skip("only deletions of DynamoDB have a size")
        for number in range(KNOWN + 10):
            channel._know(str(number), number)
        assert len(channel._sizes) == KNOWN


@pytest.mark.parametrize("kind", [Memcached, Redis])
def test_a_server_that_is_not_there_is_named(kind: type[Memcached | Redis]) -> None:
    url = f"{kind.name}://127.0.0.1:1"
    said = rf"^{kind.name.title()} at 127\.0\.0\.1:1 cannot be reached: "
    with kind(url, Tracer(lambda _: None)) as channel, pytest.raises(Unreachable, match=said):
        channel.get("key", "other")


def test_memcached_that_refuses_is_quoted_and_connected_to_anew(tmp_path: Path) -> None:
    with running("memcached", tmp_path), Memcached(endpoints.channel_url(), Tracer(lambda _: None)) as channel:
        with pytest.raises(Refused, match=r"^Memcached answered CLIENT_ERROR"):
            channel.put("k" * 300, b"abc", "other")
        channel.put("key", b"abc", "other")
        assert bytes(channel.get("key", "other").body) == b"abc"
