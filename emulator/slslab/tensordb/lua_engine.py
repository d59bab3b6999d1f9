"""The scripts of one peer: known by their SHA-1, run one at a time, ended by a limit or by SCRIPT KILL."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from slslab.tensordb.executions import LIMIT_S, limited
from slslab.tensordb.lua.arguments import Value
from slslab.tensordb.lua_replies import from_lua, to_lua
from slslab.tensordb.replies import LINE_BREAKS, CommandError, Reply
from slslab.tensordb.store import Store

# Redis's busy-reply-threshold.
BUSY_S = 5.0
LOOK_S = 0.1
BUSY = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
# Commands that a server executes while a script runs.
ALWAYS = frozenset({"auth", "hello", "quit", "reset", "multi", "discard", "script", "shutdown"})
FLAGS = frozenset({"no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"})
# A script may take so much of the host's memory.
MEMORY_SHARE = 0.5


@dataclass(frozen=True)
class LuaScript:
    """A script as it is known: its SHA-1, the text that is compiled, and whether it says that it does not write."""

    sha: str
    body: bytes
    read_only: bool


@dataclass
class Run:
    """A script that is running. `call` executes its commands; `given` are the bytes of the replies to them."""

    call: Callable[[Sequence[bytes]], Reply]
    started: float = field(default_factory=time.monotonic)
    ended: threading.Event = field(default_factory=threading.Event)
    wrote: bool = False
    given: int = 0
    reason: bytes | None = None

    def over(self) -> bytes | None:
        """Return why the script must end, if it must."""
        if self.reason is None and time.monotonic() - self.started > LIMIT_S:
            remains = "; what it had written stays" if self.wrote else ""
            self.reason = f"the script ran for {LIMIT_S:g} s, longer than a script may here{remains}".encode()
        return self.reason


class Engine:
    """Knows a peer's scripts and runs them. The store must be locked but for `wait`, `kill` and `end`."""

    def __init__(self, known: Callable[[bytes], bool], version: str) -> None:
        self._known = known
        self._version = version
        self._scripts: dict[str, LuaScript] = {}
        self._compiled: dict[str, Any] = {}
        self._runtime: Any = None
        self._run: Run | None = None

    def load(self, body: bytes) -> LuaScript:
        """Return a script, known from now on; CommandError if it is not valid."""
        sha = hashlib.sha1(body).hexdigest()
        script = self._scripts.get(sha)
        if script is None:
            script = _parsed(sha, body)
            self._function(script)
            self._scripts[sha] = script
        return script

    def find(self, sha: bytes) -> LuaScript | None:
        """Return the script of a SHA-1, in letters of either case."""
        return self._scripts.get(sha.decode(errors="replace").lower())

    def forget(self) -> None:
        """Forget all scripts."""
        self._scripts.clear()
        self._compiled.clear()
        self._runtime = None

    def run(self, script: LuaScript, keys: Sequence[bytes], arguments: Sequence[bytes], run: Run) -> Reply:
        """Run a script; CommandError in Redis's words if it fails."""
        from slslab.tensordb.lua.runtime import OutOfMemory, ScriptError

        function = self._function(script)
        self._run = run
        try:
            with limited():
                return from_lua(self._runtime.run(function, script.sha, keys, arguments))
        except ScriptError as error:
            raise CommandError(str(error)) from None
        except OutOfMemory:
            self._compiled.clear()
            self._runtime = None
            raise CommandError(f"ERR Error running script {script.sha}, not enough memory") from None
        finally:
            self._run, run.given = None, 0 if self._runtime is None else self._runtime.given
            run.ended.set()

    def wait(self, command: str) -> None:
        """Wait for a script that runs; CommandError if it takes long, unless the command is executed meanwhile."""
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
        """End the script that runs; CommandError if there is none, or if it has written."""
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
        """End the script that runs, if any, as its peer closes."""
        run = self._run
        if run is not None:
            run.reason = b"the database closes"

    def _function(self, script: LuaScript) -> Any:
        from slslab.tensordb.lua.runtime import Runtime, ScriptError

        if self._runtime is None:
            memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            self._runtime = Runtime(self._call, self._over, self._known, self._version, int(MEMORY_SHARE * memory))
        function = self._compiled.get(script.sha)
        if function is None:
            try:
                function = self._compiled[script.sha] = self._runtime.compile(script.body)
            except ScriptError as error:
                raise CommandError(f"ERR Error compiling script (new function): {error}") from None
        return function

    def _call(self, protocol: int, words: Sequence[bytes]) -> tuple[bool, Value]:
        assert self._run is not None
        reply = self._run.call(words)
        if isinstance(reply, CommandError):
            return False, str(reply).strip("\r\n").encode(errors="surrogateescape").translate(LINE_BREAKS)
        return True, to_lua(reply, protocol)

    def _over(self) -> bytes | None:
        return None if self._run is None else self._run.over()


def _parsed(sha: str, body: bytes) -> LuaScript:
    """Read the line `#!lua flags=…`, if there is one; CommandError if it is not valid."""
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
    # The line stays, empty, so that errors name the others by their numbers.
    return LuaScript(sha, newline + rest, "no-writes" in flags)
