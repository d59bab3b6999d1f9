"""After any input, the server answers or hangs up, and still serves its other clients correctly."""

import contextlib
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.emulator.tensordb.wire import Wire, encode, error, info

from slslab.tensordb import connections, server  # noqa: F401 (they fill the table)
from slslab.tensordb.globs import matches
from slslab.tensordb.session import TABLE

pytestmark = pytest.mark.server

QUIET = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
# They would end the test's database, or wait.
LEFT_OUT = {"shutdown", "blpop", "brpop", "blmove", "brpoplpush", "quit"}
NAMES = sorted(name.decode() for name in TABLE if name.decode() not in LEFT_OUT)
WORDS = st.one_of(
    st.sampled_from(
        "k l h s t 0 1 -1 2 9223372036854775807 -9223372036854775808 99999999999999999999 1e400 nan FLOAT INT8 BLOB "
        "VALUES META SOURCE CPU ENTRY_POINTS INPUTS OUTPUTS KEYS ARGS LOAD PERSIST TIMEOUT |> AI.TENSORSET f NX EX GET "
        "AI.TENSORGET AI.SCRIPTEXECUTE MATCH COUNT * [ [^ [a- \\ LEFT RIGHT COUNT INFO LIST ID SETNAME".split()
    ).map(str.encode),
    st.binary(max_size=12),
    st.integers().map(lambda number: str(number).encode()),
)


def healthy(url: str) -> None:
    """A new client finds everything in order."""
    with Wire(url) as wire:
        assert wire("AI.TENSORSET", "healthy", "INT8", 3, "VALUES", 1, 2, 3) == "OK"
        assert wire("AI.TENSORGET", "healthy", "BLOB") == b"\x01\x02\x03"
        assert wire("RPUSH", "healthy:list", 1) == 1
        assert wire("DEL", "healthy", "healthy:list") == 2


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        (b"*1\r\n+PING\r\n", b"-ERR Protocol error: expected '$', got '+'\r\n"),
        (b"*1\r\n\r\n", b"-ERR Protocol error: expected '$', got ' '\r\n"),
        (b"*x\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1048577\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*99999999999999999999\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1\r\n$-1\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n$1_0\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
        (b"*2\r\n$3\r\nGET\r\n$536870913\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1" + b"1" * 70_000, b"-ERR Protocol error: too big mbulk count string\r\n"),
        (b"*1\r\n$" + b"1" * 70_000, b"-ERR Protocol error: too big bulk count string\r\n"),
        (b"PING\r\n", b"-ERR Protocol error: expected '*', got 'P'\r\n"),
    ],
)
def test_what_is_no_request_is_an_error_and_the_end(url: str, wire: Wire, request_: bytes, reply: bytes) -> None:
    wire.send(encode("PING") + request_)
    assert wire.exactly(7) == b"+PONG\r\n"
    assert wire.exactly(len(reply)) == reply
    with contextlib.suppress(ConnectionResetError):  # of what it did not read
        assert wire.rest() == b""
    healthy(url)


@pytest.mark.parametrize("dtype", ["FLOAT", "INT8", "DOUBLE"])
@pytest.mark.parametrize(
    "shape",
    [
        (4294967296, 4294967296),
        (9223372036854775807,) * 3,
        (65536,) * 4,
        (-1,),
        (0, 5),
        (2, -3),
        ("1e3",),
        ("",),
        (1,) * 33,
        (1,) * 5000,
        (99999999999999999999999,),
        (1 << 29, 2),
    ],
)
def test_hostile_shapes_are_errors_before_anything_is_allocated(
    wire: Wire, dtype: str, shape: tuple[object, ...]
) -> None:
    before = info(wire, "used_memory_peak")
    for data in ((), ("BLOB", b"x"), ("BLOB", bytes(100_000)), ("VALUES", 1), ("BLOB",), ("BLOB", b"x", b"y")):
        assert error(wire, "AI.TENSORSET", "x", dtype, *shape, *data).startswith("ERR ")
    assert wire("EXISTS", "x") == 0
    assert info(wire, "used_memory_peak") <= before + 200_000  # a generic argument is set aside while it comes


@pytest.mark.parametrize(
    "command",
    [
        ("AI.TENSORSET", "x"),
        ("AI.TENSORSET", "x", "FLOAT"),
        ("AI.TENSORSET", "x", "FLOAT", "BLOB", b"1234"),
        ("AI.TENSORSET", "x", "FLOAT", 1, "VALUES", "0x10"),
        ("AI.TENSORSET", "x", "FLOAT", 1, "VALUES", "1_0"),
        ("AI.TENSORSET", "x", "INT8", 1, "VALUES", 300),
        ("AI.TENSORSET", "x", "INT64", 1, "VALUES", "1.5"),
        ("AI.TENSORGET", "x", "BLOB", "VALUES"),
        ("AI.TENSORGET", "x", "META", "META"),
        ("AI.SCRIPTSTORE", "x", "GPU", "ENTRY_POINTS", 1, "f", "SOURCE", "x"),
        ("AI.SCRIPTSTORE", "x", "CPU", "ENTRY_POINTS", 10**9, "f", "SOURCE", "x"),
        ("AI.SCRIPTSTORE", "x", "CPU", "ENTRY_POINTS", -1, "f", "SOURCE", "x"),
        ("AI.SCRIPTSTORE", "x", "CPU", "TAG", "t", "ENTRY_POINTS", 1, "f"),
        ("AI.SCRIPTSTORE", "x", "CPU", "ENTRY_POINTS", 1, "f", "SOURCE", "import os\nos.abort()"),
        ("AI.SCRIPTSTORE", "x", "CPU", "ENTRY_POINTS", 1, b"\xff", "SOURCE", b"\xff\x00"),
        ("AI.SCRIPTEXECUTE", "x", "f", "INPUTS", 99, "a", "OUTPUTS", 1, "b"),
        ("AI.SCRIPTEXECUTE", "x", "f", "INPUTS", 1, "a", "INPUTS", 1, "b"),
        ("AI.SCRIPTEXECUTE", "x", "f", "INPUTS", 0, "TIMEOUT", 0),
        ("AI.SCRIPTEXECUTE", "x", "f", "INPUTS", 0, "TIMEOUT", 5, "TIMEOUT", 5),
        ("AI.SCRIPTEXECUTE", "x", "f", "TIMEOUT", 5, "INPUTS", 0),
        ("AI.DAGEXECUTE", "LOAD", 0, "|>", "PING", "x", "y"),
        ("AI.DAGEXECUTE", "LOAD", 0, "x", "|>", "AI.TENSORGET"),
        ("AI.DAGEXECUTE", "a", "b", "c", "d", "e"),
        ("AI.DAGEXECUTE", "LOAD", 0, "|>", "|>", "|>"),
        ("AI.DAGEXECUTE", "LOAD", 0, "PERSIST", 1, "x", "|>", "AI.TENSORSET", "y", "INT8", 1),
        ("AI.DAGEXECUTE", "|>", "AI.TENSORSET", "y", "INT8", 1),
        ("AI.DAGEXECUTE", "ROUTING", "r", "LOAD", 1, "absent", "|>", "AI.TENSORGET", "absent"),
        ("SCAN", "9" * 5000),
        ("SCAN", 0, "COUNT", 0),
        ("SCAN", 0, "COUNT"),
        ("EXPIRE", "x", 9223372036854775807),
        ("BLPOP", "x", "1" * 400),
        ("CLIENT", "SETNAME", "a b"),
        ("CLIENT", "KILL"),
        ("CONFIG", "SET", "maxmemory", 1),
        ("SCAN", 0, "TYPE", "list"),
        ("LPOP", "x", 2),
        ("SET", "x", 1, "KEEPTTL"),
        ("SET", "x", 1, "GET"),
        ("SET", "x", 1, "EXAT", 4102444800),
        ("FLUSHALL", "ASYNC"),
        ("BLPOP", "x", "0x1p3"),
        ("HELLO", 3, "SETNAME", "me"),
        ("MEMORY", "USAGE", "x"),
        ("HELLO", "x"),
        ("HELLO", 3, "NONSENSE"),
        ("HELLO", 2, "NONSENSE", "more"),
        ("HELLO", 2, "NONSENSE", "more", "and more"),
        ("EVAL", "return 1", 1),
        ("SCRIPT", "LOAD", "return ("),
        (b"\xff\x00", b"\r\n-ERR injected"),
    ],
)
def test_wrong_arguments_are_errors(url: str, wire: Wire, command: tuple[object, ...]) -> None:
    assert error(wire, *command)
    assert wire("PING") == "PONG"
    healthy(url)


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        *[(f"AI.MODEL{word}", "RedisAI's container") for word in "SET STORE GET DEL RUN EXECUTE".split()],
        *[(f"AI.SCRIPT{word}", "AI.SCRIPTSTORE and AI.SCRIPTEXECUTE") for word in ("SET", "RUN")],
        *[(f"AI.DAG{word}", "AI.DAGEXECUTE") for word in ("RUN", "RUN_RO", "EXECUTE_RO")],
        ("AI.CONFIG", "no backends or settings"),
        ("AI.INFO", "AI.SCRIPTGET"),
    ],
)
def test_what_of_redisai_is_not_supported_says_so_by_name_and_what_there_is_instead(
    wire: Wire, command: str, instead: str
) -> None:
    message = error(wire, command.lower(), "key", "CPU", bytes(100_000))
    assert message.startswith(f"ERR {command} is not supported by slslab's tensordb: ")
    assert instead in message


def test_a_connection_that_breaks_off_anywhere_leaves_nothing(url: str) -> None:
    request = encode("AI.TENSORSET", "broken", "FLOAT", 50_000, "BLOB", bytes(200_000))
    for cut in [*range(1, 80, 7), 40_000, len(request) - 2, len(request) - 1]:
        with Wire(url) as wire:
            wire.send(request[:cut])
    with Wire(url) as wire:
        while info(wire, "connected_clients") > 1:
            wire("BLPOP", "nothing", "0.005")
        assert info(wire, "used_memory") == 0
    healthy(url)


def test_one_byte_at_a_time(wire: Wire) -> None:
    for byte in encode("SET", "k", "v") + encode("GET", "k"):
        wire.send(bytes([byte]))
    assert [wire.read(), wire.read()] == ["OK", b"v"]


def test_a_client_may_send_all_before_it_reads(wire: Wire) -> None:
    large = bytes(4_000_000)
    requests = (encode("SET", "k", large) + encode("GET", "k")) * 8
    wire.send(requests)  # more of both than the kernel holds
    for _ in range(8):
        assert wire.read() == "OK"
        assert wire.read() == large


@QUIET
@given(data=st.binary(max_size=300))
def test_any_bytes(url: str, data: bytes) -> None:
    with Wire(url) as wire, contextlib.suppress(OSError):
        wire.send(data.replace(b"SHUTDOWN", b""))
        wire.socket.shutdown(1)
        wire.rest()
    healthy(url)


@QUIET
@given(
    requests=st.lists(st.tuples(st.sampled_from(NAMES), st.lists(WORDS, max_size=8)), min_size=20, max_size=40),
    seed=st.integers(),
)
def test_any_commands(url: str, requests: list[tuple[str, list[bytes]]], seed: int) -> None:
    order = random.Random(seed)
    with Wire(url) as wire:
        wire.send(b"".join(encode(name, *words[: order.randint(0, 8)]) for name, words in requests))
        for _ in requests:
            assert "internal error" not in str(wire.read())
    healthy(url)


@given(text=st.text("ab", min_size=1, max_size=8), pattern=st.text("ab*?", max_size=8))
def test_patterns_mean_what_a_plain_search_finds(text: str, pattern: str) -> None:
    def plain(rest: str, wanted: str) -> bool:
        if not wanted:
            return not rest
        if wanted[0] == "*":
            return any(plain(rest[skip:], wanted[1:]) for skip in range(len(rest) + 1))
        return bool(rest) and wanted[0] in (rest[0], "?") and plain(rest[1:], wanted[1:])

    assert matches(pattern.encode(), text.encode()) == plain(text, pattern)


def test_a_pattern_of_many_stars_takes_no_time(wire: Wire) -> None:
    wire("SET", "a" * 5000, 1)
    assert wire("KEYS", "*a" * 200 + "b") == []
    assert len(wire("KEYS", "*a" * 200)) == 1


# Called with each other's and with odd values by scripts; `l` stands for a list that contains itself.
FUNCTIONS = (
    "struct.pack struct.unpack struct.size cjson.encode cjson.decode "
    "redis.sha1hex redis.error_reply "
    "redis.status_reply redis.call math.random math.randomseed tonumber "
    "tostring string.format string.byte string.sub table.concat unpack select rawset loadstring"
).split()
ARGUMENTS = (
    "nil true {} {1,2} {[1.5]=1} {{}} l error math.huge -math.huge 0/0 0 1 -1 1.5 2^31 2^53 2^63 2^64 -2^63 1e300 '' "
    "'a' 'i' 'I32' 'dc0' "
    "'!8d' 'i\\178' 'x0i' 'c99' 's' '>=<!' '\\0' '\\255' '1e400' 'nan' '0x10' '[' '[1,2]' '{\"a\":1}' "
    "'[1e400]' '\\129\\192\\1' '\\129\\203\\127\\248\\0\\0\\0\\0\\0\\0\\1' "
    "'\\221\\255\\255\\255\\255' '\\223\\0\\1\\0\\0' "
    "('9'):rep(5000) ('c'..('9'):rep(5000)) ('c'..('9'):rep(20)) ('\\145'):rep(5000) ('['):rep(5000) 'GET' 'SET' 'k'"
).split()


def called(order: random.Random) -> str:
    """A script that returns whether a call succeeded, and the type of its result or error."""
    arguments = ", ".join(order.choices(ARGUMENTS, k=order.randrange(4)))
    call = ", ".join(filter(None, (order.choice(FUNCTIONS), arguments)))
    return f"local l = {{}} l.l = l local ok, e = pcall({call}) return {{tostring(ok), type(e)}}"


def check_call(wire: Wire, script: str) -> None:
    """An error is a text, as in Lua, or Redis's table: no object of Python's."""
    wire.send(encode("EVAL", script, 0))
    reply = wire.read()
    assert isinstance(reply, list), (script, reply)
    assert reply[0] == b"true" or reply[1] in (b"string", b"table"), (script, reply)
    assert reply[1] != b"userdata", script


def test_any_call_of_a_script(url: str, wire: Wire) -> None:
    order = random.Random(1)
    for _ in range(1000):
        check_call(wire, called(order))
    healthy(url)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        # Lua did not come back from this one: the database was dead.
        ("struct.pack('i\\178', 1)", "invalid format option"),
        # These ended the process.
        ("unpack({1, 2}, -2^31, 1.5)", "too many results to unpack"),
        ("unpack({1, 2}, -2^31, 2^31)", "too many results to unpack"),
        ("unpack({1, 2}, 0/0, 2^31)", "too many results to unpack"),
        ("unpack({}, 1, 8000000)", "too many results to unpack"),
        ("unpack()", "bad argument #1 to 'unpack' (table expected, got no value)"),
        ("unpack({}, 'x')", "bad argument #2 to 'unpack' (number expected, got string)"),
        ("struct.size('c' .. ('9'):rep(20))", "invalid format option '9'"),
        ("struct.pack('i' .. ('9'):rep(5000), 1)", "invalid format option 'i999999999'"),
        ("struct.pack('i3', 1)", "bad argument #1 to 'pack' (invalid format option 'i3')"),
        ("struct.pack('!8bd', 1, 2)", "bad argument #1 to 'pack' (invalid format option '!8')"),
        ("struct.unpack('Bc0', '\\1a')", "bad argument #1 to 'unpack' (invalid format option 'c0')"),
        ("struct.size('T')", "bad argument #1 to 'size' (invalid format option 'T')"),
        ("struct.unpack('i', 'aaaa', 0/0)", "cannot convert float NaN to integer"),
    ],
)
def test_odd_arguments_of_a_scripts_libraries_are_errors(url: str, wire: Wire, call: str, says: str) -> None:
    assert says in error(wire, "EVAL", f"return {call}", 0)
    healthy(url)


def test_numbers_beyond_64_bits_are_doubles_to_a_script(wire: Wire) -> None:
    """They reached it as errors, or objects, of Python's."""
    largest = "struct.unpack('>L', ('\\255'):rep(8))"
    assert wire("EVAL", f"return string.format('%.0f', {largest})", 0) == b"18446744073709551616"
    check_call(wire, "local ok, e = pcall(struct.unpack, '>', '', 2^63) return {tostring(ok), type(e)}")
