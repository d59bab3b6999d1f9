"""Manage one peer's scripts: known by their SHA-1, run one at a time, ended by a limit or by SCRIPT KILL."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from slslab.tensordb.executions import LIMIT_S
from slslab.tensordb.lua.arguments import OutOfMemory, ScriptError, Value
from slslab.tensordb.lua_process import ScriptProcess
from slslab.tensordb.lua_replies import to_lua
from slslab.tensordb.replies import LINE_BREAKS, CommandError, Reply
from slslab.tensordb.store import Store

# Redis's busy-reply-threshold is 5 s; ours is a second shorter, so that other clients get an answer within 5 s.
BUSY_S = 4.0
LOOK_S = 0.1
BUSY = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
# Commands that a server executes while a script runs.
ALWAYS = frozenset({"auth", "hello", "quit", "reset", "multi", "discard", "script", "shutdown"})
FLAGS = frozenset({"no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"})
# Lua's memory limit, and at most half of the host's. SPIRT's average of 4 gradients of ResNet-50 (23.5 million numbers
# each) as JSON takes about 4 GB.
MEMORY_BYTES = 6 * 1024**3


@dataclass(frozen=True)
class LuaScript:
    """A known script: its SHA-1, the text to compile, and whether it declares itself read-only."""

    sha: str
    body: bytes
    read_only: bool


@dataclass
class Run:
    """A running script. `call` executes its commands, `given` counts their replies' bytes, `cpu_ns` is Lua's CPU
    time."""

    call: Callable[[Sequence[bytes]], Reply]
    started: float = field(default_factory=time.monotonic)
    ended: threading.Event = field(default_factory=threading.Event)
    wrote: bool = False
    given: int = 0
    cpu_ns: int = 0
    reason: bytes | None = None

    def execute(self, protocol: int, words: Sequence[bytes]) -> tuple[bool, Value]:
        """Execute a command; return whether it succeeded and its reply as Lua's value, or the text of its error."""
        reply = self.call(words)
        if isinstance(reply, CommandError):
            return False, str(reply).strip("\r\n").encode(errors="surrogateescape").translate(LINE_BREAKS)
        return True, to_lua(reply, protocol)

    def over(self) -> bytes | None:
        """Return why the script must end, or None."""
        if self.reason is None and time.monotonic() - self.started > LIMIT_S:
            remains = "; its writes remain" if self.wrote else ""
            self.reason = f"the script ran longer than {LIMIT_S:g} s{remains}".encode()
        return self.reason


class Engine:
    """Stores a peer's scripts and runs them. The store must be locked, except for `wait`, `kill` and `end`.

    `cpu_ns` is the CPU time of all scripts that have succeeded.
    """

    def __init__(self, commands: Collection[bytes], version: str) -> None:
        self._commands = commands
        self._version = version
        self._scripts: dict[str, LuaScript] = {}
        self._process: ScriptProcess | None = None
        self._run: Run | None = None
        self._ended = False
        self.cpu_ns = 0

    def load(self, body: bytes) -> LuaScript:
        """Store and return a script; CommandError if it isn't valid."""
        sha = hashlib.sha1(body).hexdigest()
        script = self._scripts.get(sha)
        if script is None:
            script = _parsed(sha, body)
            self._ready(script)
            self._scripts[sha] = script
        return script

    def find(self, sha: bytes) -> LuaScript | None:
        """Return the script with a SHA-1, in lower or upper case."""
        return self._scripts.get(sha.decode(errors="replace").lower())

    def forget(self) -> None:
        """Forget all scripts."""
        self._scripts.clear()
        self._close()

    def run(self, script: LuaScript, keys: Sequence[bytes], arguments: Sequence[bytes], run: Run) -> Reply:
        """Run a script; CommandError in Redis's words if it fails."""
        process = self._ready(script)
        self._run = run
        try:
            reply, run.given, run.cpu_ns = process.run(script.sha, keys, arguments, run.execute, run.over)
            self.cpu_ns += run.cpu_ns
            return reply
        except ScriptError as error:
            raise CommandError(str(error)) from None
        except OutOfMemory:
            raise CommandError(f"ERR Error running script {script.sha}, not enough memory") from None
        finally:
            self._run = None
            run.ended.set()
            if self._ended:
                self._close()

    def wait(self, command: str) -> None:
        """Wait for a running script. CommandError if it takes long, unless Redis executes the command meanwhile."""
        run = self._run
        if run is None or command in ALWAYS:
            return
        if not run.ended.wait(max(0.0, run.started + BUSY_S - time.monotonic())):
            raise CommandError(BUSY)

    def lock(self, store: Store, command: str) -> None:
        """Lock the store for a command; CommandError if a script that has begun since `wait` takes long."""
        while not store.lock.acquire(timeout=LOOK_S):
            self.wait(command)

    def kill(self) -> None:
        """End the running script; CommandError if none runs, or if it has written."""
        run = self._run
        if run is None:
            raise CommandError("NOTBUSY No scripts in execution right now.")
        if run.wrote:
            raise CommandError(
                "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait "
                "the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command."
            )
        run.reason = b"Script killed by user with SCRIPT KILL..."

    def end(self) -> None:
        """End the running script, if any, and the scripts' process, because the peer closes."""
        self._ended = True
        run = self._run
        if run is not None:
            run.reason = b"the database closes"
        else:
            self._close()

    def _ready(self, script: LuaScript) -> ScriptProcess:
        """Return the process that runs scripts, with this one compiled; CommandError if it isn't valid."""
        if self._process is None or self._process.closed:
            memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            self._process = ScriptProcess(self._commands, self._version, min(MEMORY_BYTES, memory // 2))
        try:
            self._process.compile(script.sha, script.body)
        except ScriptError as error:
            raise CommandError(f"ERR Error compiling script (new function): {error}") from None
        except OutOfMemory:
            raise CommandError("ERR Error compiling script (new function): not enough memory") from None
        return self._process

    def _close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


def _parsed(sha: str, body: bytes) -> LuaScript:
    """Parse the line `#!lua flags=…`, if any; CommandError if it isn't valid."""
    if not body.startswith(b"#!"):
        return LuaScript(sha, body, False)
    line, newline, rest = body.partition(b"\n")
    if not newline:
        raise CommandError("ERR Invalid script shebang")
    engine, *options = line.decode(errors="replace").split()
    if engine != "#!lua":
        raise CommandError(f"ERR Unexpected engine in script shebang: {engine}")
    flags: set[str] = set()
    for option in options:
        name, _, value = option.partition("=")
        if name != "flags":
            raise CommandError(f"ERR Unknown lua shebang option: {option}")
        for flag in filter(None, value.split(",")):
            if flag not in FLAGS:
                raise CommandError(f"ERR Unexpected flag in script shebang: {flag}")
            flags.add(flag)
    # An empty line stays in its place, so that errors report the right line numbers.
    return LuaScript(sha, newline + rest, "no-writes" in flags)
