"""10,000 mixed commands of 32 clients at once: what was acknowledged is there, once."""

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pytest
from tests.emulator.tensordb.wire import Wire, encode, info

pytestmark = pytest.mark.server

CLIENTS = 32
COMMANDS = 10_000 // CLIENTS + 1


@dataclass
class Acknowledged:
    """What one client was told."""

    pushed: list[bytes] = field(default_factory=list)
    popped: list[bytes] = field(default_factory=list)
    increments: int = 0
    members: int = 0
    fields: int = 0
    tensors: dict[str, bytes] = field(default_factory=dict)


def work(url: str, number: int, start: threading.Barrier) -> Acknowledged:
    told, order = Acknowledged(), random.Random(number)
    with Wire(url) as wire:
        start.wait()
        for turn in range(COMMANDS):
            match order.randrange(7):
                case 0:
                    element = b"%d.%d" % (number, turn)
                    wire(order.choice(["LPUSH", "RPUSH"]), "queue", element)
                    told.pushed.append(element)
                case 1:
                    taken = wire(order.choice(["LPOP", "RPOP"]), "queue")
                    told.popped += [] if taken is None else [taken]
                case 2:
                    taken = wire("BLPOP", "queue", "0.001")
                    told.popped += [] if taken is None else [taken[1]]
                case 3:
                    wire("INCRBY", "counter", turn)
                    told.increments += turn
                case 4:
                    told.members += wire("SADD", "set", order.randrange(1000))
                case 5:
                    told.fields += wire("HSET", "hash", order.randrange(1000), turn)
                case 6:
                    key, data = f"t:{number}:{turn % 5}", order.randbytes(4 * order.choice([10, 20_000]))
                    wire("AI.TENSORSET", key, "FLOAT", len(data) // 4, "BLOB", data)
                    told.tensors[key] = data
                    assert wire("AI.TENSORGET", key, "BLOB") == data
    return told


def test_nothing_is_lost(url: str, wire: Wire) -> None:
    start = threading.Barrier(CLIENTS)
    with ThreadPoolExecutor(CLIENTS) as pool:
        told = list(pool.map(lambda number: work(url, number, start), range(CLIENTS)))
    left = wire("LRANGE", "queue", 0, -1)
    popped = [element for one in told for element in one.popped]
    assert Counter(popped + left) == Counter(element for one in told for element in one.pushed)
    assert int(wire("GET", "counter")) == sum(one.increments for one in told)
    assert wire("SCARD", "set") == sum(one.members for one in told)
    assert wire("HLEN", "hash") == sum(one.fields for one in told)
    for one in told:
        for key, data in one.tensors.items():
            assert wire("AI.TENSORGET", key, "BLOB") == data
    wire("DEL", *wire("KEYS", "*"))
    assert info(wire, "used_memory") == 0


def test_a_tensor_is_read_whole_while_it_is_replaced(url: str) -> None:
    size = 500_000
    stop = threading.Event()

    def replace() -> None:
        with Wire(url) as wire:
            value = 0
            while not stop.is_set():
                value = (value + 1) % 100
                wire("AI.TENSORSET", "t", "INT8", size, "BLOB", bytes([value]) * size)

    with Wire(url) as wire, ThreadPoolExecutor(1) as pool:
        wire("AI.TENSORSET", "t", "INT8", size)
        replaced = pool.submit(replace)
        for _ in range(100):
            read = np.frombuffer(wire("AI.TENSORGET", "t", "BLOB"), np.int8)
            assert read.min() == read.max()
        stop.set()
        replaced.result()


def test_pipelined_requests_of_many_clients_keep_their_order(url: str) -> None:
    def pipeline(number: int) -> list[int]:
        with Wire(url) as wire:
            wire.send(encode("INCR", f"own:{number}") * 500)
            return [wire.read() for _ in range(500)]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(pipeline, range(8))) == [list(range(1, 501))] * 8
