"""The embedded tensor databases: tensordb in a process of its own, one per run and gone with it."""

import json
import os
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import IO, Any, Self
from urllib.parse import quote

from slslab import __version__
from slslab.environments.output import TraceFrames
from slslab.errors import HostError
from slslab.tensordb.scripts import version

START_LIMIT_S = 30.0
END_LIMIT_S = 5.0
CHUNK_BYTES = 65_536


class EmbeddedTensorDatabases:
    """RedisAI-compatible databases for some peers, each on a loopback port with a keyspace of its own.

    A context manager. `maxmemory` is in bytes for each peer (0: no limit); `threads` are torch's for one operation;
    `environment` is added to the process's own (the emulator's mark, by which its reaper finds it); `on_event` receives
    a trace record for every execution of a script, on a thread of its own, the last before the context has ended. The
    process ends with this one, however that ends. Raises HostError if it does not start.

        with EmbeddedTensorDatabases(4) as databases:
            redis.Redis.from_url(databases.endpoints[0])
    """

    def __init__(
        self,
        peers: int,
        *,
        password: str | None = None,
        maxmemory: int = 0,
        threads: int = 1,
        environment: Mapping[str, str] | None = None,
        on_event: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._peers = peers
        self._password = password
        self._maxmemory = maxmemory
        self._threads = threads
        self._environment = environment or {}
        self._on_event = on_event
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self.endpoints: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """Name and version, with torch's, which runs the scripts."""
        return f"tensordb {__version__}, torch {version()}"

    @property
    def pid(self) -> int:
        """The process of all databases."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        with tempfile.TemporaryFile() as errors:
            try:
                self._start(errors)
                self.endpoints = self._ready(errors)
            except BaseException:
                self._stop()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self, errors: IO[bytes]) -> None:
        command = [
            *(sys.executable, "-P", "-m", "slslab.tensordb", "--parent-pipe"),
            *("--peers", str(self._peers), "--maxmemory", str(self._maxmemory), "--threads", str(self._threads)),
        ]
        variables = {**os.environ, **self._environment}
        # What this process was given is not for its databases.
        for name in ("TENSORDB_PASSWORD", "SLSLAB_TRACE_FD"):
            variables.pop(name, None)
        if self._password is not None:
            variables["TENSORDB_PASSWORD"] = self._password
        passed = []
        if self._on_event is not None:
            passed = [self._collect(self._on_event)]
            command += ["--trace-fd", str(passed[0])]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=variables,
                pass_fds=passed,
                start_new_session=True,
            )
        finally:
            for descriptor in passed:
                os.close(descriptor)

    def _collect(self, on_event: Callable[[dict[str, Any]], None]) -> int:
        """Read trace frames until their writer ends; returns the writing end, which the caller closes."""
        reading, writing = os.pipe()
        frames = TraceFrames("tensordb", on_event)

        def read() -> None:
            with os.fdopen(reading, "rb", buffering=0) as pipe:
                while chunk := pipe.read(CHUNK_BYTES):
                    frames.feed(chunk)

        self._reader = threading.Thread(target=read, name="tensordb-trace", daemon=True)
        self._reader.start()
        return writing

    def _ready(self, errors: IO[bytes]) -> tuple[str, ...]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = b""
        if select.select([self._process.stdout], [], [], START_LIMIT_S)[0]:
            line = self._process.stdout.readline()
        if not line:
            errors.seek(0)
            said = errors.read()[-500:].decode(errors="replace").strip() or "it said nothing"
            raise HostError(
                f"The embedded tensor databases did not start: {said}.",
                "run `slslab doctor`; too little memory is the usual cause.",
            )
        user = "" if self._password is None else f":{quote(self._password, safe='')}@"
        return tuple(url.replace("://", f"://{user}") for url in json.loads(line)["endpoints"])

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()  # which tells it to end
            try:
                process.wait(END_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
        if self._reader is not None:
            self._reader.join()
            self._reader = None
