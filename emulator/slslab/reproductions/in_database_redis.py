"""A redis-server of one's own beside the embedded database: naive arms on strings, and SPIRT's released average."""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from slslab.errors import HostError, RunError
from slslab.reproductions.in_database_arms import (
    AVERAGE,
    Naive,
    Vector,
    Vectors,
    body,
    running_mean,
    stacked_mean,
    thin,
)
from slslab.session import Session
from slslab_workers.scripts import LUA_AVERAGE

PROGRAM = "redis-server"
START_LIMIT_S = 30.0


def is_installed() -> bool:
    """Whether there is a redis-server on this host."""
    return shutil.which(PROGRAM) is not None


def installed_version() -> str:
    """The redis-server's version."""
    said = subprocess.run([PROGRAM, "--version"], check=True, capture_output=True, text=True).stdout
    return said.split("v=")[1].split()[0]


@contextmanager
def plain_redis(session: Session) -> Iterator[str]:
    """The address of a redis-server of our own that keeps nothing on disk; HostError if it does not start."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
    command = [PROGRAM, "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"]
    # Its title would be written over its environment, where the reaper looks for the mark.
    command += ["--set-proc-title", "no"]
    with (session.home / "redis.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=session.home, env={**os.environ, **session.mark}, stdin=subprocess.DEVNULL, stdout=log
        )
    try:
        deadline = time.monotonic() + START_LIMIT_S
        with thin(f"redis://127.0.0.1:{port}") as client:
            while not client.ping():
                if process.poll() is not None or time.monotonic() > deadline:
                    said = (session.home / "redis.log").read_text()[-300:]
                    raise HostError(f"redis-server did not start: {said}", "start it by hand and see.")
                time.sleep(0.02)
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def plain_arms(server: str, keys: Sequence[str]) -> list[Naive]:
    """The naive arms on a plain Redis, with strings."""
    import redis

    strings: Any = redis.Redis.from_url(server)
    client = thin(server)

    def get(key: str) -> Vector:
        return np.frombuffer(strings.get(key), np.float32)

    def put(key: str, vector: Vector) -> object:
        return strings.set(key, body(vector))

    def own_get(key: str) -> Vector:
        return np.frombuffer(client.command("GET", key), np.float32)

    def own_put(key: str, vector: Vector) -> object:
        return client.command("SET", key, body(vector))

    return [
        Naive("redis-py on Redis", server, keys, get, put, stacked_mean),
        Naive("own client on Redis", server, keys, own_get, own_put, running_mean),
    ]


def time_lua(server: str, numbers: int, count: int, repeat: int) -> tuple[list[int], list[float]]:
    """SPIRT's average as released, by Lua over a list of `count` gradients of so many numbers as JSON texts: bytes of
    each text, and seconds of each of `repeat` requests. RunError for a wrong mean."""
    vectors = Vectors.random(numbers, count)
    texts = [json.dumps(gradient.tolist()).encode() for gradient in vectors.gradients]
    seconds = []
    with thin(server) as client:
        for text in texts:
            client.command("RPUSH", "gradients", text)
        for _ in range(repeat):
            began = time.perf_counter()
            reply = client.command("EVAL", LUA_AVERAGE, 1, "gradients", count)
            seconds.append(time.perf_counter() - began)
            if not np.allclose(np.array(json.loads(bytes(reply))), vectors.expected[AVERAGE], atol=1e-6):
                raise RunError("Redis's Lua averages wrongly.", "its seconds mean nothing; look for the reason.")
    return [len(text) for text in texts], seconds
