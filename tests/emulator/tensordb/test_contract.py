"""What workers need from tensordb, and from a real RedisAI if REDISAI_URL names one (its keys are deleted)."""

import os

import numpy as np
import pytest
from tests.emulator.tensordb.wire import AVERAGE, Wire, encode, error

ENGINES = ["tensordb", *(["redisai"] if "REDISAI_URL" in os.environ else [])]

pytestmark = [
    pytest.mark.server,
    pytest.mark.parametrize("engine", ENGINES, indirect=True),
    pytest.mark.usefixtures("engine"),
]
DTYPES = {"FLOAT": "f4", "DOUBLE": "f8", "INT8": "i1", "INT16": "i2", "INT32": "i4", "INT64": "i8", "UINT8": "u1"}


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """Which one is tested."""
    name: str = request.param
    return name


def put(wire: Wire, key: str, array: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
    assert wire("AI.TENSORSET", key, "FLOAT", *array.shape, "BLOB", array.tobytes()) == "OK"


def got(wire: Wire, key: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    _, dtype, _, shape, _, blob = wire("AI.TENSORGET", key, "META", "BLOB")
    assert dtype == b"FLOAT"
    return np.frombuffer(blob, "<f4").reshape(shape)


def store(wire: Wire) -> None:
    assert wire("AI.SCRIPTSTORE", "s", "CPU", "ENTRY_POINTS", 2, "average", "sgd", "SOURCE", AVERAGE) == "OK"


def calls(wire: Wire, command: str) -> int:
    """How often a command was executed, by INFO."""
    lines = wire("INFO", "commandstats").decode().splitlines()
    stats = dict(line.split(":", 1) for line in lines if ":" in line)
    figures = dict(figure.split("=") for figure in stats.get(f"cmdstat_{command}", "calls=0").split(","))
    return int(figures["calls"])


def test_info_counts_commands_those_of_transactions_too(wire: Wire) -> None:
    before = calls(wire, "set"), calls(wire, "get")
    wire("SET", "key", 1)
    wire("MULTI")
    wire("SET", "key", 2)
    wire("GET", "key")
    wire("EXEC")
    assert error(wire, "GET").startswith("ERR wrong number of arguments")
    assert (calls(wire, "set"), calls(wire, "get")) == (before[0] + 2, before[1] + 1)
    assert "cmdstat_" not in wire("INFO").decode()


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_every_type_come_back(wire: Wire, dtype: str) -> None:
    array = np.arange(24).astype(DTYPES[dtype]).reshape(2, 3, 4)
    assert wire("AI.TENSORSET", "t", dtype, 2, 3, 4, "BLOB", array.tobytes()) == "OK"
    assert wire("AI.TENSORGET", "t", "META") == [b"dtype", dtype.encode(), b"shape", [2, 3, 4]]
    assert wire("AI.TENSORGET", "t", "BLOB") == array.tobytes()
    assert [float(value) for value in wire("AI.TENSORGET", "t", "VALUES")] == list(range(24))
    assert wire("AI.TENSORSET", "t", dtype, 2, "VALUES", 1, 2) == "OK"
    assert [float(value) for value in wire("AI.TENSORGET", "t", "VALUES")] == [1, 2]


def test_a_large_tensor_comes_back_and_is_replaced(wire: Wire) -> None:
    first, second = (np.random.default_rng(seed).random(3_000_001, np.float32) for seed in (1, 2))
    put(wire, "t", first)
    np.testing.assert_array_equal(got(wire, "t"), first)
    put(wire, "t", second)
    np.testing.assert_array_equal(got(wire, "t"), second)
    assert wire("DEL", "t") == 1
    assert error(wire, "AI.TENSORGET", "t").startswith("ERR tensor key is empty")


def test_the_average_is_the_sum_in_order_of_the_inputs_divided_by_their_number(wire: Wire) -> None:
    store(wire)
    tensors = np.random.default_rng(0).random((7, 10_007), np.float32)
    for number, tensor in enumerate(tensors):
        put(wire, f"g:{number}", tensor)
    keys = [f"g:{number}" for number in range(7)]
    assert wire("AI.SCRIPTEXECUTE", "s", "average", "INPUTS", 7, *keys, "OUTPUTS", 1, "avg") == "OK"
    expected = tensors[0].copy()
    for tensor in tensors[1:]:
        expected += tensor
    np.testing.assert_array_equal(got(wire, "avg"), expected / np.float32(7))
    np.testing.assert_array_equal(got(wire, "g:0"), tensors[0])


def test_an_update_may_replace_its_input(wire: Wire) -> None:
    store(wire)
    put(wire, "params", np.ones(5, np.float32))
    put(wire, "agg", np.full(5, 2, np.float32))
    for _ in range(2):
        command = ("sgd", "INPUTS", 2, "params", "agg", "ARGS", 1, "0.25", "OUTPUTS", 1, "params", "TIMEOUT", 60000)
        assert wire("AI.SCRIPTEXECUTE", "s", *command) == "OK"
    np.testing.assert_array_equal(got(wire, "params"), np.zeros(5, np.float32))


def test_what_is_wrong_is_an_error(wire: Wire) -> None:
    put(wire, "t", np.ones(2, np.float32))
    assert error(wire, "AI.SCRIPTSTORE", "s", "CPU", "ENTRY_POINTS", 1, "f", "SOURCE", "def f(").startswith("ERR ")
    lonely = ("ENTRY_POINTS", 1, "absent", "SOURCE", AVERAGE)
    assert error(wire, "AI.SCRIPTSTORE", "s", "CPU", *lonely)
    assert error(wire, "AI.SCRIPTEXECUTE", "s", "f", "INPUTS", 1, "t", "OUTPUTS", 1, "t").startswith("ERR script key")
    store(wire)
    assert error(wire, "AI.SCRIPTEXECUTE", "s", "other", "INPUTS", 1, "t", "OUTPUTS", 1, "t")
    assert error(wire, "AI.SCRIPTEXECUTE", "s", "average", "INPUTS", 1, "t", "OUTPUTS", 2, "o", "p")
    assert error(wire, "AI.SCRIPTEXECUTE", "s", "average", "INPUTS", 9, "t", "OUTPUTS", 1, "o")
    put(wire, "u", np.ones(3, np.float32))
    assert error(wire, "AI.SCRIPTEXECUTE", "s", "average", "INPUTS", 2, "t", "u", "OUTPUTS", 1, "o")
    assert wire("EXISTS", "o", "p") == 0
    assert wire("AI.SCRIPTDEL", "s") == "OK"
    assert wire("SET", "text", "x") == "OK"
    for command in (
        ("LPUSH", "text", 1),
        ("HGET", "text", 1),
        ("SADD", "t", 1),
        ("AI.TENSORGET", "text"),
        ("GET", "t"),
    ):
        assert error(wire, *command).startswith("WRONGTYPE")
    assert error(wire, "NONSENSE", "a").startswith("ERR unknown command")


def test_strings_and_counters(wire: Wire) -> None:
    assert wire("SET", "a", "1", "NX") == "OK"
    assert wire("SET", "a", "2", "NX") is None
    assert wire("SET", "b", "2", "XX") is None
    assert wire("SET", "a", "2", "XX") == "OK"
    assert [wire("INCR", "a"), wire("INCRBY", "a", 5), wire("DECR", "a"), wire("DECRBY", "a", 9)] == [3, 8, 7, -2]
    wire("SET", "a", "-1.5")
    assert error(wire, "INCR", "a") == "ERR value is not an integer or out of range"
    assert wire("MSET", "x", 1, "y", 2) == "OK"
    assert wire("MGET", "x", "absent", "y") == [b"1", None, b"2"]
    large = bytes(range(256)) * 8000
    assert wire("SET", "large", large) == "OK"
    assert wire("GET", "large") == large
    assert error(wire, "SET", "a", 1, "EX", 0) == "ERR invalid expire time in 'set' command"
    assert error(wire, "SET", "a", 1, "NX", "XX") == "ERR syntax error"
    wire("SET", "edge", (1 << 63) - 1)
    assert error(wire, "INCR", "edge") == "ERR increment or decrement would overflow"


def test_lists(wire: Wire) -> None:
    assert [wire("RPUSH", "l", 1, 2, 3), wire("LPUSH", "l", 0, "-1")] == [3, 5]
    assert wire("LRANGE", "l", 0, -1) == [b"-1", b"0", b"1", b"2", b"3"]
    assert wire("LRANGE", "l", -2, 100) == [b"2", b"3"]
    assert wire("LRANGE", "l", 3, 1) == []
    assert [wire("LPOP", "l"), wire("RPOP", "l"), wire("LLEN", "l"), wire("LINDEX", "l", -1)] == [b"-1", b"3", 3, b"2"]
    assert [wire("LMOVE", "l", "m", "LEFT", "RIGHT"), wire("RPOPLPUSH", "l", "m")] == [b"0", b"2"]
    assert wire("LRANGE", "m", 0, -1) == [b"2", b"0"]
    assert wire("LMOVE", "m", "m", "LEFT", "RIGHT") == b"2"
    assert [wire("LPOP", "m"), wire("LPOP", "m"), wire("LPOP", "m")] == [b"0", b"2", None]
    assert wire("EXISTS", "m") == 0
    wire("RPUSH", "r", *"abcabcab")
    assert [wire("LREM", "r", -2, "a"), wire("LREM", "r", 1, "b"), wire("LREM", "r", 0, "c")] == [2, 1, 2]
    assert wire("LRANGE", "r", 0, -1) == [b"a", b"b", b"b"]
    assert [wire("LREM", "r", 0, "b"), wire("LREM", "r", 0, "a"), wire("EXISTS", "r")] == [2, 1, 0]
    wire("RPUSH", "q", 1, 2)
    assert [wire("BLPOP", "absent", "q", 1), wire("BRPOP", "q", 1)] == [[b"q", b"1"], [b"q", b"2"]]


def test_hashes_and_sets(wire: Wire) -> None:
    assert [wire("HSET", "h", "a", 1, "b", 2), wire("HSET", "h", "a", 3), wire("HSETNX", "h", "a", 4)] == [2, 0, 0]
    assert [wire("HGET", "h", "a"), wire("HGET", "h", "z"), wire("HMGET", "h", "b", "z")] == [b"3", None, [b"2", None]]
    assert wire("HGETALL", "h") == [b"a", b"3", b"b", b"2"]
    assert [wire("HKEYS", "h"), wire("HVALS", "h"), wire("HLEN", "h")] == [[b"a", b"b"], [b"3", b"2"], 2]
    assert [wire("HINCRBY", "h", "a", -5), wire("HEXISTS", "h", "a"), wire("HDEL", "h", "a", "b", "z")] == [-2, 1, 2]
    assert wire("EXISTS", "h") == 0
    assert [wire("SADD", "s", 1, 2, 2), wire("SADD", "s", 2, 3), wire("SCARD", "s"), wire("SREM", "s", 1, 9)] == [
        2,
        1,
        3,
        1,
    ]
    assert sorted(wire("SMEMBERS", "s")) == [b"2", b"3"]
    assert [wire("SISMEMBER", "s", 2), wire("SISMEMBER", "s", 1), wire("SREM", "s", 2, 3), wire("TYPE", "s")] == [
        *(1, 0, 2, "none")
    ]


def test_keys(wire: Wire) -> None:
    for number in range(300):
        wire("SET", f"key:{number}", number)
    assert wire("DBSIZE") == 300
    found: list[bytes] = []
    cursor = b"0"
    while True:
        cursor, page = wire("SCAN", cursor, "MATCH", "key:*[02468]", "COUNT", 17)
        found += page
        if cursor == b"0":
            break
    assert sorted(set(found)) == sorted(b"key:%d" % number for number in range(0, 300, 2))
    assert sorted(wire("KEYS", "key:?")) == [b"key:%d" % number for number in range(10)]
    assert wire("KEYS", "k[^e]*") == []
    assert [wire("UNLINK", "key:0", "key:1", "absent"), wire("EXISTS", "key:2", "key:2", "key:0")] == [2, 2]
    assert wire("FLUSHDB") == "OK"
    assert wire("DBSIZE") == 0


def test_expiry(wire: Wire) -> None:
    wire("SET", "a", 1, "EX", 100)
    assert 98 <= wire("TTL", "a") <= 100
    assert 98_000 <= wire("PTTL", "a") <= 100_000
    assert [wire("SET", "a", 1), wire("TTL", "a"), wire("TTL", "absent")] == ["OK", -1, -2]
    assert [wire("EXPIRE", "a", 100), wire("EXPIRE", "absent", 100)] == [1, 0]
    wire("SET", "a", 2)
    assert wire("TTL", "a") == -1
    wire("SET", "a", 2, "PX", 100_000)
    wire("INCR", "a")
    assert wire("TTL", "a") > 90
    wire("RPUSH", "l", "only")
    wire("EXPIRE", "l", 100)
    assert wire("LMOVE", "l", "l", "LEFT", "RIGHT") == b"only"
    assert wire("TTL", "l") > 90
    assert wire("PEXPIRE", "a", 0) == 1
    assert wire("EXISTS", "a") == 0
    wire("AI.TENSORSET", "t", "FLOAT", 4)
    assert wire("PEXPIRE", "t", 1) == 1
    assert wire("BLPOP", "absent", "0.05") is None  # a pause
    assert error(wire, "AI.TENSORGET", "t").startswith("ERR tensor key is empty")


def test_transactions(wire: Wire) -> None:
    assert [wire("MULTI"), wire("INCR", "a"), wire("LPUSH", "a", 1), wire("BLPOP", "q", 0)] == ["OK", *["QUEUED"] * 3]
    wire.send(encode("EXEC"))
    one, wrong, nothing = wire.read()
    assert (one, nothing) == (1, None)
    assert str(wrong).startswith("WRONGTYPE")
    wire("MULTI")
    assert error(wire, "GET").startswith("ERR wrong number")
    assert error(wire, "EXEC").startswith("EXECABORT")
    assert error(wire, "EXEC") == "ERR EXEC without MULTI"


def test_the_connection(wire: Wire) -> None:
    assert [wire("PING"), wire("PING", "x"), wire("ECHO", "y"), wire("SELECT", 0)] == ["PONG", b"x", b"y", "OK"]
    assert wire("CLIENT", "SETNAME", "me") == wire("CLIENT", "SETINFO", "LIB-NAME", "redis-py") == "OK"
    assert b" name=me " in wire("CLIENT", "LIST")
    assert wire("CLIENT", "ID") > 0
    assert error(wire, "SELECT", 99_999) == "ERR DB index is out of range"
    assert error(wire, "HELLO", 4).startswith("NOPROTO")
    wire.send(b"*1\r\n$4\r\nPING\r\n" * 2000)
    assert [wire.read() for _ in range(2000)] == ["PONG"] * 2000
    assert wire("QUIT") == "OK"
    assert wire.rest() == b""
