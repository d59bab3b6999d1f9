"""A redis-server in addition to the embedded database, and SPIRT's released average in it."""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from slslab.errors import HostError, RunError
from slslab.host.session import Session
from slslab_lab.studies.in_database.arms import AVERAGE, Vectors, stacked_mean, thin
from slslab_workers.channels.scripts import LUA_AVERAGE
from slslab_workers.channels.tensors import TensorDatabase

PROGRAM = "redis-server"
START_LIMIT_S = 30.0


def is_installed() -> bool:
    """Return whether this host has a redis-server."""
    return shutil.which(PROGRAM) is not None


def installed_version() -> str:
    """Return the redis-server's version."""
    output = subprocess.run([PROGRAM, "--version"], check=True, capture_output=True, text=True).stdout
    return output.split("v=")[1].split()[0]


@contextmanager
def plain_redis(session: Session, *options: str) -> Iterator[str]:
    """Run a redis-server that doesn't write to disk, and yield its address; HostError if it doesn't start."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
    command = [PROGRAM, "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"]
    # Its title would overwrite its environment, where the reaper looks for the mark.
    command += ["--set-proc-title", "no", *options]
    with (session.home / "redis.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=session.home, env={**os.environ, **session.mark}, stdin=subprocess.DEVNULL, stdout=log
        )
    try:
        deadline = time.monotonic() + START_LIMIT_S
        with thin(f"redis://127.0.0.1:{port}") as client:
            while not client.ping():
                if process.poll() is not None or time.monotonic() > deadline:
                    output = (session.home / "redis.log").read_text()[-300:]
                    raise HostError(f"redis-server didn't start: {output}", "start it by hand to see why.")
                time.sleep(0.02)
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def time_json(server: str, numbers: int, count: int, repeat: int) -> dict[str, Any]:
    """Return the bytes and times of both ways to average a list of `count` gradients of `numbers` numbers, each
    `repeat` times, as in a file of measurements; RunError for a wrong mean."""
    vectors = Vectors.random(numbers, count)
    texts = [json.dumps(gradient.tolist()).encode() for gradient in vectors.gradients]
    script, decode, reply = [], [], b""
    with thin(server) as client:
        for text in texts:
            client.command("RPUSH", "gradients", text)
        for _ in range(repeat):
            cpu = _server_cpu_s(client)
            reply = bytes(client.command("EVAL", LUA_AVERAGE, 1, "gradients", count))
            script.append(_server_cpu_s(client) - cpu)
            cpu = time.process_time()
            mean = stacked_mean(np.array(json.loads(text), np.float32) for text in texts)
            decode.append(time.process_time() - cpu)
            for computed in (np.array(json.loads(reply)), mean):
                if not np.allclose(computed, vectors.expected[AVERAGE], atol=1e-6):
                    raise RunError("The average of JSON texts is wrong.", "don't use its seconds; look for the reason.")
    return {"json_bytes": list(map(len, texts)), "mean_bytes": len(reply), "lua_cpu_s": script, "decode_cpu_s": decode}


def _server_cpu_s(client: TensorDatabase) -> float:
    lines = bytes(client.command("INFO", "cpu")).decode().splitlines()
    known = dict(line.split(":") for line in lines if ":" in line)
    return float(known["used_cpu_user"]) + float(known["used_cpu_sys"])
