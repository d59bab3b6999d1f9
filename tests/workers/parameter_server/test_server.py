"""A parameter server adds up in rank order, waits for all, forgets what all have, and refuses what does not belong."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from slslab_workers.channels.events import Tracer
from slslab_workers.channels.parameter_server import ParameterServer
from slslab_workers.channels.serialisation import PART, SERIALISATIONS
from slslab_workers.channels.stream import Refused, Stream
from slslab_workers.parameter_server.server import Server

pytestmark = pytest.mark.server


@pytest.fixture
def server() -> Iterator[Server]:
    """A server in a thread of this process."""
    with Server(("127.0.0.1", 0), "secret", None) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def client(server: Server, serialisation: str = "raw", events: list[dict[str, Any]] | None = None) -> ParameterServer:
    found = [] if events is None else events
    return ParameterServer(
        f"parameter://:secret@127.0.0.1:{server.server_address[1]}", Tracer(found.append), serialisation
    )


@pytest.mark.parametrize("serialisation", SERIALISATIONS)
def test_sums_are_in_rank_order_whoever_comes_first(server: Server, serialisation: str) -> None:
    random = np.random.default_rng(0)
    vectors = [random.normal(size=PART + 1).astype(np.float32) * 10.0**rank for rank in range(4)]
    expected = vectors[0].copy()
    for vector in vectors[1:]:
        expected += vector
    last = threading.Event()

    def work(rank: int) -> tuple[Any, bool]:
        with client(server, serialisation) as mine:
            if rank == 0:
                assert last.wait(10)
            mine.push("run/0", rank, 4, vectors[rank], "synchronise", leaving=rank == 2)
            if rank == 3:
                last.set()
            return mine.pull("run/0", 4, "synchronise")

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, range(4)))
    for total, leaving in found:
        assert total.tobytes() == expected.tobytes()
        assert total.flags.writeable
        assert leaving
    assert server.sums._rounds == {}, "all have pulled"


def test_each_request_is_an_event_beside_what_it_takes_to_write_and_read(server: Server) -> None:
    events: list[dict[str, Any]] = []
    with client(server, "doubles", events) as mine:
        mine.push("key", 0, 1, np.ones(3, np.float32), "synchronise", leaving=False)
        mine.pull("key", 1, "synchronise")
    assert [(e["op"], e["bytes"], e["requests"], e["overhead"], e["resource"], e.get("reads")) for e in events] == [
        ("serialise", 24, 0, True, "", None),
        ("parameter.push", 24, 1, False, "key/0", None),
        ("parameter.pull", 24, 1, False, "key", ("key/0",)),
        ("deserialise", 24, 0, True, "", None),
    ]


def test_whoever_records_gets_its_events_and_leaves_it_empty(server: Server) -> None:
    recorder = Stream("the parameter server", "127.0.0.1", server.server_address[1])
    with client(server) as before:
        before.push("old", 0, 2, np.ones(3, np.float32), "synchronise", leaving=False)
    recorder.send([b"token secret\r\n", b"record\r\n"])
    assert [recorder.line(), recorder.line()] == [b"ok", b"ok"]
    assert server.sums._rounds == {}
    with client(server) as mine, ThreadPoolExecutor(1) as pool:
        mine.push("key", 0, 1, np.ones(3, np.float32), "synchronise", leaving=False)
        mine.pull("key", 1, "synchronise")
        waiting = pool.submit(mine.pull, "never", 1, "synchronise")
        while not server.sums._changed._waiters:  # type: ignore[attr-defined]
            time.sleep(0.01)
        recorder._socket.shutdown(socket.SHUT_WR)
        with pytest.raises(Refused, match="the run has ended"):
            waiting.result(10)
    events = [json.loads(line) for line in recorder._answers.readlines()]
    recorder.close()
    assert [(event["op"], event["function"]) for event in events] == [
        (f"parameter.{name}", "parameter-server") for name in ("deserialise", "merge", "serialise")
    ]


@pytest.mark.parametrize(
    ("pushes", "said"),
    [
        ([(0, 2, 3), (0, 2, 3)], "rank 0 of 2 does not belong to key"),
        ([(1, 2, 3), (1, 2, 3)], "rank 1 of 2 does not belong to key"),
        ([(0, 2, 3), (1, 3, 3)], "rank 1 of 3 does not belong to key"),
        ([(2, 2, 3)], "rank 2 of 2 does not belong to key"),
        ([(0, 2, 3), (1, 2, 4)], "key is a sum of vectors of 3 numbers, not of 4"),
    ],
)
def test_what_does_not_belong_is_refused(server: Server, pushes: list[tuple[int, int, int]], said: str) -> None:
    with client(server) as mine:
        *fine, (rank, workers, size) = pushes
        for one, of, numbers in fine:
            mine.push("key", one, of, np.ones(numbers, np.float32), "synchronise", leaving=False)
        with pytest.raises(Refused, match=f"^The parameter server answered error: {said}$"):
            mine.push("key", rank, workers, np.ones(size, np.float32), "synchronise", leaving=False)
        mine.put("other", b"abc", "other")
        assert bytes(mine.get("other", "other").body) == b"abc", "the next request connects anew"


# Three bytes aren't a float32, and four aren't of an unknown serialisation.
BODIES = (b"push key 0 1 0 raw 3\r\nabc", b"push key 0 1 0 sparse 4\r\nabcd")


@pytest.mark.parametrize("line", [b"fetch key\r\n", b"push key 0\r\n", b"\r\n", b"push key 0 1 0 raw x\r\n", *BODIES])
def test_a_request_that_is_none_is_answered_and_ends_the_connection(server: Server, line: bytes) -> None:
    stream = Stream("the parameter server", "127.0.0.1", int(server.server_address[1]))
    stream.send([b"token secret\r\n"])
    assert stream.line() == b"ok"
    stream.send([line])
    assert stream.line().startswith(b"error: ")
    with pytest.raises(Exception, match="closed the connection"):
        stream.line()
    stream.close()
