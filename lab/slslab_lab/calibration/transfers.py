"""The CPU time that a function's client spends per byte on TLS, on copying and parsing objects, and on adding them up.

AWS's endpoints are encrypted and the embedded stack's aren't, so recordings don't contain this time. Objects are
float32 arrays in NumPy's format. boto3 reads and writes them with its defaults (with CRC32), over one connection.
"""

import io
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
import numpy as np
from botocore.config import Config

from slslab.host.server_process import ServerProcess
from slslab.stack.mutual_tls import write_certificate
from slslab_lab.calibration.host import Progress

# 33.6 MB, the smallest objects that were measured on AWS; and the number of rounds.
ELEMENTS, ROUNDS = 8_388_608, 7
START_LIMIT_S = 30.0


class _Endpoint(ServerProcess):
    title, hint = "The endpoint of the measurement", "see the message; it needs a free port on loopback."
    port = 0

    def __init__(self, certificate: Path, elements: int) -> None:
        super().__init__({})
        self._arguments = [str(certificate), str(elements)]

    def _start(self, undo: ExitStack) -> bool:  # noqa: ARG002 - it has nothing to undo
        self._launch_module("slslab_lab.calibration.endpoint", self._arguments, os.environ)
        report = self._report(START_LIMIT_S)
        self.port = report["port"] if report else 0
        return report is not None


def measure_transfers(progress: Progress, elements: int = ELEMENTS, rounds: int = ROUNDS) -> dict[str, Any]:
    """Return CPU milliseconds per 10⁶ bytes on one of this host's processors: medians of `rounds` objects.

    `ms_per_mb` is by operation, through TLS; `add_ms_per_mb` is for adding one array to another in place.
    """
    times: dict[str, list[float]] = {"get": [], "put": [], "add": []}
    with ExitStack() as parts:
        certificate = Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="slslab-"))) / "endpoint.pem"
        write_certificate(certificate)
        endpoint = parts.enter_context(_Endpoint(certificate, elements))
        client = boto3.session.Session("calibration", "loopback-only", region_name="us-east-1").client(
            "s3",
            endpoint_url=f"https://127.0.0.1:{endpoint.port}",
            verify=str(certificate),
            config=Config(s3={"addressing_style": "path"}, proxies={}),
        )
        parts.callback(client.close)
        array, total = (np.ones(elements, np.float32) for _ in range(2))
        megabytes = array.nbytes / 1e6
        asks: Mapping[str, Callable[[], Any]] = {
            "put": lambda: client.put_object(Bucket="calibration", Key="array", Body=_encode(array)),
            "get": lambda: np.load(io.BytesIO(client.get_object(Bucket="calibration", Key="array")["Body"].read())),
            "add": lambda: np.add(total, array, out=total),
        }
        for number in range(rounds + 1):
            for name, ask in asks.items():
                began = time.process_time()
                ask()
                times[name].append(1e3 * (time.process_time() - began) / megabytes)
            progress("measuring transfers through TLS", number + 1, rounds + 1)
    # The first round opens the connection and allocates memory.
    medians = {name: statistics.median(measured[1:]) for name, measured in times.items()}
    return {"ms_per_mb": {name: medians[name] for name in ("get", "put")}, "add_ms_per_mb": medians["add"]}


def _encode(array: "np.ndarray[Any, Any]") -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()
