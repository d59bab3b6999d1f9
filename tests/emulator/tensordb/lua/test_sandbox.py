"""What a script can reach, take and hold up; in databases of this process."""

import signal
import threading
from collections.abc import Callable
from hashlib import sha1

import numpy as np
import psutil
import pytest
from tests.emulator.tensordb.wire import Wire, WireError, encode, error

from slslab.tensordb import lua_engine as engine
from slslab.tensordb import lua_process
from slslab.tensordb.lua import runtime
from slslab.tensordb.server import Options, Peer
from slslab_workers.channels.scripts import LUA_AVERAGE, average_texts
from slslab_workers.trace.event import Event

pytestmark = pytest.mark.server

ENDLESS = [
    "while true do end",
    "while true do pcall(function() while true do end end) end",
    "while true do xpcall(function() while true do end end, function() while true do end end) end",
    "coroutine.wrap(function() while true do end end)()",
    "local co = coroutine.create(function() while true do end end) while true do coroutine.resume(co) end",
    "loadstring('while true do end', '=sandbox')()",
    "local t = setmetatable({}, {__index = function() while true do end end}) return t.x",
    "while true do redis.call('GET', 'k') end",
    "local function f() return f() end while true do pcall(f) end",
]
# Each is one call of a function of Lua's own, which the watch of a script's instructions does not see.
UNINTERRUPTIBLE = [
    "return string.find(('a'):rep(60), ('a?'):rep(60) .. ('a'):rep(60) .. 'b')",
    "return string.find(('a'):rep(1e6), ('a'):rep(5e5) .. 'b', 1, true)",
    "return string.gsub(('a'):rep(30), ('a*'):rep(30) .. 'b', '')",
    "local s, t = ('a'):rep(1e6), {} for i = 1, 1e5 do t[i] = s .. i % 2 end table.sort(t)",
]
GREEDY = [
    "local s = 'x' while true do s = s .. s end",
    "local s = 'x' while true do local ok, e = pcall(function() s = s .. s end) if not ok then error(e, 0) end end",
    "local t = {} for i = 1, 1e9 do t[i] = i end",
    "return string.rep('x', 1e9)",
    "local t = {} while true do t[#t + 1] = redis.call('GET', 'large') .. #t end",
    "local t = {} while true do t[#t + 1] = redis.call('LRANGE', 'list', 0, -1) end",
    "local t = {} while true do t[#t + 1] = cjson.decode(ARGV[1]) end",
    "local t = {} while true do t[#t + 1] = cjson.encode(cjson.decode(ARGV[1])) .. #t end",
    "local t = {} while true do t[#t + 1] = struct.pack('s', ARGV[1]) .. #t end",
    "local t = {} while true do t[#t + 1] = ARGV[1] .. redis.sha1hex(#t) end",
]
# Everything that can be reached from the globals and the arguments: kinds of the values that are no plain ones.
REACHABLE = """
local seen, found = {}, {}
local function visit(value, path)
  local kind = type(value)
  if kind == 'userdata' or kind == 'thread' then
    found[#found + 1] = path
  elseif kind == 'table' and not seen[value] then
    seen[value] = true
    for name, member in pairs(value) do
      visit(name, path .. '.')
      visit(member, path .. '.' .. tostring(name))
    end
    visit(getmetatable(value), path .. '#')
  end
end
visit(_G, '_G')
visit(getmetatable(''), 'string')
local ok, failure = pcall(redis.call, 'INCR', KEYS[1])
visit({failure}, 'failure')
local ok, failure = pcall(struct.pack, 'z')
visit({failure}, 'failure')
return found
"""


@pytest.fixture
def url(peer: Callable[[Options], str]) -> str:
    """A database of this process."""
    return peer(Options())


def script_processes() -> list[psutil.Process]:
    """The processes of scripts that this one has started."""
    return [process for process in psutil.Process().children() if "slslab.tensordb.lua_process" in process.cmdline()]


def used_cpu_s(wire: Wire) -> float:
    """CPU seconds of the user, as INFO tells them."""
    return float(wire("INFO", "cpu").decode().partition("used_cpu_user:")[2].split()[0])


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a script has run for a while."""
    began, over = threading.Event(), lua_process.Run.over

    def watched(run: lua_process.Run) -> str | None:
        began.set()
        return over(run)

    monkeypatch.setattr(lua_process.Run, "over", watched)
    return began


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Lua of 12 MB, including 4 MB for values from outside."""
    monkeypatch.setattr(engine, "MEMORY_BYTES", 12 << 20)


@pytest.mark.parametrize("script", ENDLESS)
def test_a_limit_ends_a_loop(url: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lua_process, "LIMIT_S", 0.1)
    with Wire(url) as wire:
        assert "the script ran longer than 0.1 s" in error(wire, "EVAL", script, 0)
        assert wire("EVAL", "return 'next'", 0) == b"next"


@pytest.mark.parametrize("script", UNINTERRUPTIBLE)
def test_a_limit_ends_what_lua_does_itself(url: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lua_process, "LIMIT_S", 0.1)
    with Wire(url) as wire:
        wire("SET", "k", "kept")
        said = error(wire, "EVAL", script, 0)
        name = sha1(script.encode()).hexdigest()
        assert said == f"ERR the script ran longer than 0.1 s script: {name}"
        assert wire("EVAL", "return redis.call('GET', 'k')", 0) == b"kept"


def test_a_search_for_a_pattern_is_killed(url: str, running: threading.Event) -> None:
    with Wire(url) as wire, Wire(url) as other:
        wire.send(encode("EVAL", UNINTERRUPTIBLE[0], 0))
        assert running.wait(30)
        assert other("SCRIPT", "KILL") == "OK"
        assert str(wire.read()).startswith("ERR Script killed by user with SCRIPT KILL... script: ")
        assert other("EVAL", "return 1", 0) == 1


def test_a_process_that_is_killed_was_out_of_memory(url: str, running: threading.Event) -> None:
    with Wire(url) as wire:
        wire.send(encode("EVAL", "while true do end", 0))
        assert running.wait(30)
        (process,) = script_processes()
        process.kill()
        assert str(wire.read()).endswith("not enough memory")
        assert wire("EVAL", "return 1", 0) == 1


@pytest.mark.parametrize("script", ["return #('x'):rep(3e8)", "local t = {} for i = 1, 1e6 do t[i] = i end return t"])
def test_the_process_gives_back_what_a_script_took(url: str, script: str) -> None:
    with Wire(url) as wire:
        assert wire("EVAL", "return 1", 0) == 1
        (process,) = script_processes()
        before = process.memory_info().rss
        wire("EVAL", script, 0)
        assert wire("EVAL", "return 2", 0) == 2
        assert script_processes() == [process]
        assert process.memory_info().rss < before + 64 * 2**20


def test_an_interrupt_is_the_databases(url: str) -> None:
    with Wire(url) as wire:
        assert wire("EVAL", "return 1", 0) == 1
        (process,) = script_processes()
        process.send_signal(signal.SIGINT)
        assert wire("EVAL", "return 2", 0) == 2
        assert script_processes() == [process]


def test_the_time_of_a_script_is_that_of_its_process() -> None:
    usages: list[Event] = []
    peer = Peer(0, 0, Options(), lambda _peer, _name, usage: usages.append(usage), lambda: None)
    peer.start()
    with Wire(f"redis://127.0.0.1:{peer.port}") as wire:
        before = used_cpu_s(wire)
        wire("EVAL", "for _ = 1, 2e7 do end return redis.call('ECHO', 'twelve bytes')", 0)
        assert used_cpu_s(wire) > before + 0.05
    peer.close()
    assert usages[0].cpu_ns > 50_000_000
    assert usages[0].bytes == 12
    assert peer.left(30)
    assert script_processes() == []


def test_what_an_ended_script_wrote_stays(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lua_process, "LIMIT_S", 0.1)
    with Wire(url) as wire:
        said = error(wire, "EVAL", "redis.call('SET', 'k', 1) while true do end", 0)
        assert "its writes remain" in said
        assert wire("GET", "k") == b"1"


@pytest.mark.parametrize("script", GREEDY)
@pytest.mark.usefixtures("small")
def test_memory_has_an_end(url: str, script: str) -> None:
    """Without it, Lua ends the process outside of a script's own code, and the interpreter's lock is never free."""
    with Wire(url) as wire:
        wire("SET", "large", b"x" * 1_000_000)
        wire("RPUSH", "list", *["y" * 50] * 5_000)
        numbers = f"[{','.join(['0.123456'] * 20_000)}]"
        assert "not enough memory" in error(wire, "EVAL", script, 0, numbers)
        assert wire("EVAL", "return #redis.call('GET', 'large')", 0) == 1_000_000


@pytest.mark.usefixtures("small")
def test_arguments_take_memory(url: str) -> None:
    with Wire(url) as wire:
        assert "not enough memory" in error(wire, "EVAL", "return 1", 0, b"x" * (8 << 20))
        assert wire("EVAL", "return 1", 0, b"x" * 1000) == 1


def test_a_script_reaches_nothing_but_its_own(url: str) -> None:
    with Wire(url) as wire:
        wire("SET", "text", "abc")
        assert wire("EVAL", REACHABLE, 1, "text") == [b"_G.cjson.null"]
        assert wire("EVAL", "return pcall(function() return cjson.null.__class__ end)", 0) is None
        assert wire("EVAL", "return {pcall(tostring, cjson.null)}", 0) == [1, b"userdata: (nil)"]


def test_a_script_leaves_nothing_for_the_next(url: str) -> None:
    with Wire(url) as wire:
        for change in (
            "table.insert(redis, 1)",
            "collectgarbage('stop')",
            "KEYS[1] = 'kept'",
            "getmetatable('').__index.kept = 1",
        ):
            wire.send(encode("EVAL", f"pcall(function() {change} end) return 1", 0))
            assert wire.read() == 1, change
        assert wire("EVAL", "return redis.call('GET', 'absent')", 0) is None
        assert wire("EVAL", "return #KEYS", 0) == 0


def test_others_are_told_that_a_script_runs_until_it_is_killed(
    url: str, running: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "BUSY_S", 0.0)
    with Wire(url) as wire, Wire(url) as other:
        wire.send(encode("EVAL", "local n = 0\nwhile true do\n n = n + 1\nend", 0))
        assert running.wait(30)
        for command in (("PING",), ("GET", "k"), ("EVAL", "return 1", 0), ("SCRIPT", "LOAD", "return 1")):
            assert error(other, *command) == engine.BUSY
        assert other("SCRIPT", "KILL") == "OK"
        assert str(wire.read()).startswith("ERR Script killed by user with SCRIPT KILL... script: ")
        assert other("PING") == "PONG"


def test_a_client_that_was_let_through_before_a_script_began_does_not_wait_for_its_end(
    url: str, running: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "BUSY_S", 0.2)
    wait, passed = engine.Engine.wait, iter([True])

    def too_early(known: engine.Engine, command: str) -> None:
        if command == "get" and next(passed, False):
            assert running.wait(30)
        else:
            wait(known, command)

    monkeypatch.setattr(engine.Engine, "wait", too_early)
    with Wire(url) as wire, Wire(url) as other:
        wire.send(encode("EVAL", "while true do end", 0))
        assert error(other, "GET", "k") == engine.BUSY
        assert other("SCRIPT", "KILL") == "OK"
        assert "Script killed by user" in str(wire.read())


def test_a_client_that_comes_while_a_script_runs_may_say_its_password_and_kill_it(running: threading.Event) -> None:
    peer = Peer(0, 0, Options(password=b"secret"), lambda *_: None, lambda: None)
    peer.start()
    try:
        with Wire(f"redis://:secret@127.0.0.1:{peer.port}") as wire:
            wire.send(encode("EVAL", "while true do end", 0))
            assert running.wait(30)
            for begin in (("AUTH", "secret"), ("HELLO", 3, "AUTH", "default", "secret")):
                with Wire(f"redis://127.0.0.1:{peer.port}") as other:
                    other(*begin)
            with Wire(f"redis://:secret@127.0.0.1:{peer.port}") as other:
                assert other("SCRIPT", "KILL") == "OK"
            assert "Script killed by user" in str(wire.read())
    finally:
        peer.close()


def test_a_script_that_wrote_is_not_killed_but_ends_with_the_database(running: threading.Event) -> None:
    ended = threading.Event()
    peer = Peer(0, 0, Options(), lambda *_: None, ended.set)
    peer.start()
    url = f"redis://127.0.0.1:{peer.port}"
    with Wire(url) as wire, Wire(url) as other:
        wire.send(encode("EVAL", "redis.call('SET', 'k', 1) while true do end", 0))
        assert running.wait(30)
        assert error(other, "SCRIPT", "KILL").startswith("UNKILLABLE ")
        other.send(encode("SHUTDOWN", "NOSAVE"))
        assert ended.wait(30)
    assert peer.left(30)


def test_a_short_script_is_waited_for(url: str, running: threading.Event) -> None:
    with Wire(url) as wire, Wire(url) as other:
        wire.send(encode("EVAL", "for _ = 1, 1e7 do end return redis.call('SET', 'k', 'set')", 0))
        assert running.wait(30)
        assert other("GET", "k") == b"set"
        assert wire.read() == "OK"


def test_scripts_work_with_tensors(url: str) -> None:
    with Wire(url) as wire:
        body = np.arange(3, dtype="<f4").tobytes()
        script = "redis.call('AI.TENSORSET', KEYS[1], 'FLOAT', 3, 'BLOB', ARGV[1])"
        assert wire("EVAL", f"{script} return redis.call('AI.TENSORGET', KEYS[1], 'BLOB')", 1, "t", body) == body
        assert wire("EVAL", "return redis.call('AI.TENSORGET', KEYS[1], 'VALUES')", 1, "t") == [b"0", b"1", b"2"]
        for command in ("'AI.SCRIPTEXECUTE', 's', 'f', 'INPUTS', 1, 't'", "'AI.DAGEXECUTE', 'LOAD', 1, 't', '|>', 'x'"):
            said = error(wire, "EVAL", f"return (redis.call({command}))", 0)
            assert said.startswith("ERR Cannot run RedisAI command within a transaction or a LUA script script: ")


def test_a_script_serves_those_who_wait_and_runs_in_a_transaction(url: str) -> None:
    push = "redis.call('RPUSH', KEYS[1], 'a', 'b') return redis.call('LLEN', KEYS[1])"
    with Wire(url) as wire, Wire(url) as waiting:
        waiting.send(encode("PING") + encode("BLPOP", "q", 0))
        assert waiting.read() == "PONG"
        assert wire("EVAL", push, 1, "q") == 2
        assert waiting.read() == [b"q", b"a"]
        assert wire("MULTI") == "OK"
        assert wire("EVAL", push, 1, "q") == wire("EVAL", "error('no')", 0) == "QUEUED"
        assert wire("RPOP", "q") == "QUEUED"
        counted, failed, popped = wire("EXEC")
        assert (counted, popped) == (3, b"b")
        assert isinstance(failed, WireError)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("local t = {} t[1] = t return t", "reached lua stack limit"),
        ("local t = {} for _ = 1, 250 do t = {t} end return t", "reached lua stack limit"),
        ("local function f() return (f()) end return f()", "stack overflow"),
        ("error(redis)", "ERR table: "),
        ("error(setmetatable({}, {__newindex = function() while true do end end}))", "ERR unknown error"),
    ],
)
def test_what_has_no_end_is_an_error(url: str, script: str, said: str) -> None:
    with Wire(url) as wire:
        assert said in error(wire, "EVAL", script, 0)
        assert wire("EVAL", "local t = {} for _ = 1, 199 do t = {t} end return #t", 0) == 1


def test_a_full_database_refuses_what_grows(peer: Callable[[Options], str]) -> None:
    with Wire(peer(Options(maxmemory=10_000))) as wire:
        assert error(wire, "EVAL", "return redis.call('SET', 'k', ARGV[1])", 0, "x" * 20_000).startswith("OOM ")
        assert wire("EVAL", "return redis.call('SET', 'k', 'v')", 0) == "OK"


@pytest.mark.parametrize("numbers", [10, 44_426])
def test_spirts_average_has_the_bits_of_the_workers_own(url: str, numbers: int) -> None:
    random = np.random.default_rng(0)
    vectors = random.standard_normal((4, numbers)).astype(np.float32)
    vectors[:, :3] = [[0.0, -0.0, 1e-30]] * 4
    stored = f"redis.call('SET', KEYS[2], (function() {LUA_AVERAGE} end)()) return #KEYS"
    with Wire(url) as wire:
        wire("RPUSH", "texts", *[str(vector.tolist()) for vector in vectors])
        sha = wire("SCRIPT", "LOAD", stored).decode()
        assert wire("EVALSHA", sha, 2, "texts", "mean", 4, 0) == 2
        assert wire("GET", "mean").decode() == f"[{','.join(average_texts(vectors))}]"


def test_the_error_of_a_tail_call_has_no_line_and_in_parentheses_it_has(url: str) -> None:
    with Wire(url) as wire:
        said = "ERR Unknown Redis command called from script"
        assert error(wire, "EVAL", "local x = 1\nreturn redis.call('NONE')", 0) == said
        script = "local x = 1\nreturn (redis.call('NONE'))"
        name = sha1(script.encode()).hexdigest()
        assert error(wire, "EVAL", script, 0) == f"{said} script: {name}, on @user_script:2."


@pytest.mark.parametrize(
    "script",
    [b"local t = {} for i = 1, 200000 do t[i] = i end return t", b"local s = 'a' while #s < 1e8 do s = s .. s end"],
)
def test_what_a_script_has_taken_is_given_back(monkeypatch: pytest.MonkeyPatch, script: bytes) -> None:
    monkeypatch.setattr(runtime, "LITTER", 1 << 20)
    lua = runtime.Runtime(lambda *_: (True, b""), 1 << 30)
    lua.run(lua.compile(script), "name", [], [])
    assert lua._lua.get_memory_used() < runtime.LITTER
