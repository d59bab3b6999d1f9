"""Replies byte for byte, as RedisAI 1.2.7 on Redis 6.2 writes them."""

import numpy as np
import pytest
from tests.emulator.tensordb.wire import AVERAGE, Wire, encode

pytestmark = pytest.mark.server

SIX = np.arange(6, dtype="<f4").tobytes()
SET = encode("AI.TENSORSET", "k", "FLOAT", 2, 3, "BLOB", SIX)
STORE = encode("AI.SCRIPTSTORE", "s", "CPU", "TAG", "t", "ENTRY_POINTS", 2, "average", "sgd", "SOURCE", AVERAGE)
SOURCE = AVERAGE.encode()
META = b"$5\r\ndtype\r\n$5\r\nFLOAT\r\n$5\r\nshape\r\n*2\r\n:2\r\n:3\r\n"
ENTRY = (
    b"$6\r\ndevice\r\n$3\r\nCPU\r\n$3\r\ntag\r\n$1\r\nt\r\n$12\r\nEntry Points\r\n*2\r\n$7\r\naverage\r\n$3\r\nsgd\r\n"
)
EMPTY = b"-ERR tensor key is empty or in a different shard\r\n"
LENGTH = b"-ERR data length does not match tensor shape and type\r\n"
SHAPE = b"-ERR invalid or negative value found in tensor shape\r\n"
WRONGTYPE = b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        (SET, b"+OK\r\n"),
        (encode("AI.TENSORGET", "k", "BLOB"), b"$24\r\n" + SIX + b"\r\n"),
        (encode("AI.TENSORGET", "k", "META"), b"*4\r\n" + META),
        (encode("AI.TENSORGET", "k", "META", "BLOB"), b"*6\r\n" + META + b"$4\r\nblob\r\n$24\r\n" + SIX + b"\r\n"),
        (encode("AI.TENSORGET", "k"), b"*6\r\n" + META + b"$4\r\nblob\r\n$24\r\n" + SIX + b"\r\n"),
        (
            encode("AI.TENSORGET", "k", "VALUES"),
            b"*6\r\n" + b"".join(b"$1\r\n%d\r\n" % number for number in range(6)),
        ),
        (encode("AI.TENSORGET", "absent"), EMPTY),
        (encode("AI.TENSORGET", "k", "SHAPE"), b"-ERR unsupported data format\r\n"),
        (encode("AI.TENSORGET", "text", "META"), WRONGTYPE),
        (encode("AI.TENSORSET", "v", "INT64", 2, "VALUES", 7, -8), b"+OK\r\n"),
        (
            encode("AI.TENSORGET", "ints", "META", "VALUES"),
            b"*6\r\n$5\r\ndtype\r\n$5\r\nINT64\r\n$5\r\nshape\r\n*1\r\n:2\r\n$6\r\nvalues\r\n*2\r\n:7\r\n:-8\r\n",
        ),
        (encode("AI.TENSORGET", "third", "VALUES"), b"*1\r\n$19\r\n0.33333333333333331\r\n"),
        (encode("AI.TENSORSET", "z", "DOUBLE", 1), b"+OK\r\n"),
        (encode("AI.TENSORSET", "x", "FLOAT", 2, "BLOB", b"1234567"), LENGTH),
        (encode("AI.TENSORSET", "x", "FLOAT", 20_000, "BLOB", bytes(79_999)), LENGTH),
        (encode("AI.TENSORSET", "x", "COMPLEX", 2, "BLOB", b"12345678"), b"-ERR invalid data type\r\n"),
        (encode("AI.TENSORSET", "x", "FLOAT", -2, "BLOB", b"12345678"), SHAPE),
        (encode("AI.TENSORSET", "x", "FLOAT", 0, "BLOB", b""), SHAPE),
        (encode("AI.TENSORSET", "x", "FLOAT", "two", "BLOB", b""), SHAPE),
        (STORE, b"+OK\r\n"),
        (encode("AI.SCRIPTGET", "s", "META"), b"*6\r\n" + ENTRY),
        (encode("AI.SCRIPTGET", "s"), b"*8\r\n" + ENTRY + b"$6\r\nsource\r\n$%d\r\n%b\r\n" % (len(SOURCE), SOURCE)),
        (encode("AI.SCRIPTGET", "s", "SOURCE"), b"$%d\r\n%b\r\n" % (len(SOURCE), SOURCE)),
        (encode("AI.SCRIPTGET", "absent"), b"-ERR script key is empty or in a different shard\r\n"),
        (encode("AI.SCRIPTEXECUTE", "s", "average", "INPUTS", 2, "k", "k", "OUTPUTS", 1, "k"), b"+OK\r\n"),
        (encode("AI.SCRIPTEXECUTE", "s", "average", "INPUTS", 2, "k", "absent", "OUTPUTS", 1, "o"), EMPTY),
        (
            encode("AI.SCRIPTEXECUTE", "s", "average", "OUTPUTS", 1, "o", "INPUTS", 1, "k"),
            b"-ERR KEYS or INPUTS scope must be provided first for AI.SCRIPTEXECUTE command\r\n",
        ),
        (encode("GET", "absent"), b"$-1\r\n"),
        (encode("GET", "k"), WRONGTYPE),
        (encode("GET"), b"-ERR wrong number of arguments for 'get' command\r\n"),
        (encode("BLPOP", "absent", "0.01"), b"*-1\r\n"),
        (
            b"".join(encode(*words.split()) for words in ("MULTI", "BLMOVE a b LEFT LEFT 1", "BLPOP a 1", "EXEC")),
            b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n$-1\r\n*-1\r\n",
        ),
        (encode("TYPE", "k"), b"+AI_TENSOR\r\n"),
        (encode("HGETALL", "absent"), b"*0\r\n"),
        (b"*0\r\n*-1\r\n" + encode("ECHO", "its"), b"$3\r\nits\r\n"),
    ],
)
def test_replies_of_resp2(wire: Wire, request_: bytes, reply: bytes) -> None:
    for preparation in (
        SET,
        STORE,
        encode("SET", "text", "t"),
        encode("AI.TENSORSET", "ints", "INT64", 2, "VALUES", 7, -8),
        encode("AI.TENSORSET", "third", "DOUBLE", 1, "VALUES", repr(1 / 3)),
    ):
        wire.send(preparation)
        assert wire.exactly(5) == b"+OK\r\n"
    wire.send(request_)
    assert wire.exactly(len(reply)) == reply
    wire.send(encode("PING"))
    assert wire.exactly(7) == b"+PONG\r\n"


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        (encode("GET", "absent"), b"_\r\n"),
        (encode("BLPOP", "absent", "0.01"), b"_\r\n"),
        (encode("HGETALL", "h"), b"%1\r\n$1\r\na\r\n$1\r\nb\r\n"),
        (encode("SMEMBERS", "m"), b"~1\r\n$1\r\na\r\n"),
        (encode("AI.TENSORGET", "t", "VALUES"), b"*2\r\n,0.5\r\n,-inf\r\n"),
        (encode("AI.TENSORGET", "t", "META"), b"*4\r\n$5\r\ndtype\r\n$5\r\nFLOAT\r\n$5\r\nshape\r\n*1\r\n:2\r\n"),
    ],
)
def test_replies_of_resp3(wire: Wire, request_: bytes, reply: bytes) -> None:
    assert wire("HELLO", 3)[b"proto"] == 3
    wire("HSET", "h", "a", "b")
    wire("SADD", "m", "a")
    wire("AI.TENSORSET", "t", "FLOAT", 2, "VALUES", "0.5", "-inf")
    wire.send(request_)
    assert wire.exactly(len(reply)) == reply
    wire.send(encode("PING"))
    assert wire.exactly(7) == b"+PONG\r\n"


def test_a_dag_answers_one_reply_for_each_command(wire: Wire) -> None:
    wire.send(SET + STORE)
    assert wire.exactly(10) == b"+OK\r\n+OK\r\n"
    run = ("|>", "AI.SCRIPTEXECUTE", "s", "sgd", "INPUTS", 2, "k", "g", "ARGS", 1, "0.5", "OUTPUTS", 1, "k")
    wire.send(
        encode(
            *("AI.DAGEXECUTE", "LOAD", 1, "k", "PERSIST", 1, "k", "TIMEOUT", 1000),
            *("|>", "AI.TENSORSET", "g", "FLOAT", 2, 3, "VALUES", *[2] * 6),
            *run,
            *("|>", "AI.TENSORGET", "k", "BLOB"),
        )
    )
    after = (np.arange(6, dtype="<f4") - 1).tobytes()
    expected = b"*3\r\n+OK\r\n+OK\r\n$24\r\n" + after + b"\r\n"
    assert wire.exactly(len(expected)) == expected
    wire.send(encode("AI.DAGEXECUTE", "LOAD", 1, "k", "PERSIST", 1, "k", *run, "|>", "AI.TENSORGET", "k", "BLOB"))
    expected = b"*2\r\n" + EMPTY + b"+NA\r\n"
    assert wire.exactly(len(expected)) == expected
    assert wire("AI.TENSORGET", "k", "BLOB") == after
    assert wire("EXISTS", "g") == 0
    step = ("|>", "AI.TENSORSET", "new", "INT8", 1)
    wire.send(encode("AI.DAGEXECUTE", "PERSIST", 1, "new", *step, *run, *step))
    expected = b"*3\r\n+OK\r\n-ERR tensor key is empty or in a different shard\r\n+NA\r\n"
    assert wire.exactly(len(expected)) == expected
    assert wire("EXISTS", "new") == 0
