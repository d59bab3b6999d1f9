"""redis-py, the present version and the one before, as the workers use it: RESP2, RESP3, pipelines and asyncio."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.server

# Where `make test` puts redis-py 7, apart from what is installed.
REDIS7 = Path(os.environ.get("SLSLAB_REDIS7", Path(sys.prefix) / "redis7"))
CLIENT = """
import asyncio, sys, threading
import numpy as np
import redis, redis.asyncio

url, version, source = sys.argv[1:]
assert redis.__version__.startswith(version + "."), redis.__version__
array = np.random.default_rng(0).random((250, 1000), np.float32)

for protocol in (2, 3):
    client = redis.Redis.from_url(url, protocol=protocol, socket_timeout=60)
    assert client.flushall() and client.ping()
    assert client.info("memory")["maxmemory"] == 0
    assert client.execute_command("AI.TENSORSET", "t", "FLOAT", *array.shape, "BLOB", array.tobytes()) == b"OK"
    assert client.execute_command("AI.TENSORGET", "t", "BLOB") == array.tobytes()
    meta = client.execute_command("AI.TENSORGET", "t", "META")
    assert meta == [b"dtype", b"FLOAT", b"shape", [250, 1000]], meta
    assert client.execute_command("AI.SCRIPTSTORE", "s", "CPU", "ENTRY_POINTS", 1, "average", "SOURCE", source) == b"OK"
    client.execute_command("AI.SCRIPTEXECUTE", "s", "average", "INPUTS", 2, "t", "t", "OUTPUTS", 1, "a")
    assert np.array_equal(np.frombuffer(client.execute_command("AI.TENSORGET", "a", "BLOB"), np.float32), array.ravel())
    assert client.set("k", "v", ex=100, nx=True) and client.get("k") == b"v" and client.ttl("k") > 90
    assert client.set("k", "w", nx=True) is None and client.get("absent") is None
    assert client.rpush("l", 1, 2, 3) == 3 and client.lrange("l", 0, -1) == [b"1", b"2", b"3"]
    assert list(client.blpop(["none", "l"], 1)) == [b"l", b"1"] and client.blpop(["none"], 0.01) is None
    assert client.blmove("l", "m", 1, "LEFT", "RIGHT") == b"2"
    lock = client.lock("lock", timeout=100)
    assert lock.acquire(blocking=False) and not client.lock("lock").acquire(blocking=False) and lock.extend(100)
    lock.release()
    script = client.register_script("return {KEYS[1], tonumber(ARGV[1]) + 1}")
    assert script(keys=["k"], args=[1]) == [b"k", 2] and client.script_exists(script.sha) == [True]
    assert client.hset("h", mapping={"a": 1, "b": 2}) == 2 and client.hgetall("h") == {b"a": b"1", b"b": b"2"}
    assert client.sadd("x", 1, 2) == 2 and set(client.smembers("x")) == {b"1", b"2"}
    assert sorted(client.scan_iter("*", count=2)) == sorted(client.keys()) and client.dbsize() == 8
    with client.pipeline() as pipeline:
        assert pipeline.incr("n").get("n").lpush("l", 0).execute() == [1, b"1", 2]
    with client.pipeline(transaction=False) as pipeline:
        for _ in range(500):
            pipeline.incr("n")
        assert pipeline.execute()[-1] == 501
    try:
        client.lpush("k", 1)
        raise AssertionError
    except redis.ResponseError as error:
        assert "WRONGTYPE" in str(error)
    client.client_setname("me")
    assert [entry["name"] for entry in client.client_list() if entry["id"] == str(client.client_id())] == ["me"]
    client.close()

    got = []
    waiting = redis.Redis.from_url(url, protocol=protocol)
    thread = threading.Thread(target=lambda: got.append(waiting.blpop(["later"], 30)))
    thread.start()
    client.rpush("later", "x")
    thread.join()
    assert list(got[0]) == [b"later", b"x"]
    waiting.close()
    client.close()

async def asynchronous():
    async with redis.asyncio.Redis.from_url(url, decode_responses=True) as client:
        assert await client.set("k", "é") and await client.get("k") == "é"
        assert list(await client.blpop(["l"], 1)) == ["l", "0"]

asyncio.run(asynchronous())
print("ok")
"""


@pytest.mark.parametrize("version", ["8", "7"])
def test_redis_py(url: str, version: str) -> None:
    from tests.emulator.tensordb.wire import AVERAGE

    variables = dict(os.environ)
    if version == "7":
        if not (REDIS7 / "redis").is_dir():
            pytest.skip(f"redis-py 7 is not in {REDIS7}: make {REDIS7}")
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REDIS7), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-W", "error", "-c", CLIENT, url, version, AVERAGE]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("ok\n", "")
