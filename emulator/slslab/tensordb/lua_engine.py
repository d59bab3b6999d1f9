"""Manage one peer's scripts: known by their SHA-1, run one at a time, ended by a limit or by SCRIPT KILL."""

import hashlib
import os
import time
from collections.abc import Sequence

from slslab.tensordb.lua.arguments import OutOfMemory, ScriptError
from slslab.tensordb.lua_process import Run, ScriptProcess
from slslab.tensordb.replies import CommandError, Reply
from slslab.tensordb.store import Store

# Redis's busy-reply-threshold is 5 s; ours is a second shorter, so that other clients get an answer within 5 s.
BUSY_S = 4.0
LOOK_S = 0.1
BUSY = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
# Commands that a server executes while a script runs.
ALWAYS = frozenset({"auth", "hello", "quit", "multi", "script|kill", "shutdown"})
# Lua's memory limit, and at most half of the host's. An average of 4 gradients of ResNet-50 (23.5 million numbers each)
# as JSON takes about 4 GB.
MEMORY_BYTES = 6 * 1024**3


class Engine:
    """Stores a peer's scripts and runs them. The store must be locked, except for `wait`, `kill` and `end`.

    `cpu_ns` is the CPU time of all scripts that have succeeded.
    """

    def __init__(self) -> None:
        self._scripts: dict[str, bytes] = {}
        self._process: ScriptProcess | None = None
        self._run: Run | None = None
        self._ended = False
        self.cpu_ns = 0

    def load(self, body: bytes) -> str:
        """Store a script and return its SHA-1; CommandError if it isn't valid."""
        sha = hashlib.sha1(body).hexdigest()
        if sha not in self._scripts:
            self._ready(sha, body)
            self._scripts[sha] = body
        return sha

    def find(self, sha: bytes) -> str | None:
        """Return a SHA-1, given in lower or upper case, if there is a script with it."""
        name = sha.decode(errors="replace").lower()
        return name if name in self._scripts else None

    def forget(self) -> None:
        """Forget all scripts."""
        self._scripts.clear()
        self._close()

    def run(self, sha: str, keys: Sequence[bytes], arguments: Sequence[bytes], run: Run) -> Reply:
        """Run a stored script; CommandError in Redis's words if it fails."""
        process = self._ready(sha, self._scripts[sha])
        self._run = run
        try:
            reply = process.run(sha, keys, arguments, run)
            self.cpu_ns += run.cpu_ns
            return reply
        except ScriptError as error:
            raise CommandError(str(error)) from None
        except OutOfMemory:
            raise CommandError(f"ERR Error running script {sha}, not enough memory") from None
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
        run.reason = "Script killed by user with SCRIPT KILL..."

    def end(self) -> None:
        """End the running script, if any, and the scripts' process, because the peer closes."""
        self._ended = True
        run = self._run
        if run is not None:
            run.reason = "the database closes"
        else:
            self._close()

    def _ready(self, sha: str, body: bytes) -> ScriptProcess:
        """Return the process that runs scripts, with this one compiled; CommandError if it isn't valid."""
        if self._process is None or self._process.closed:
            memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            self._process = ScriptProcess(min(MEMORY_BYTES, memory // 2))
        try:
            self._process.compile(sha, body)
        except ScriptError as error:
            raise CommandError(f"ERR Error compiling script (new function): {error}") from None
        except OutOfMemory:
            raise CommandError("ERR Error compiling script (new function): not enough memory") from None
        return self._process

    def _close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None
