"""SPIRT's released average: JSON texts in Redis, added up by Lua."""

import json
import time
from typing import Any

import numpy as np

from slslab.errors import RunError
from slslab_lab.studies.in_database.arms import AVERAGE, Vectors, stacked_mean, thin
from slslab_workers.channels.scripts import LUA_AVERAGE
from slslab_workers.channels.tensors import TensorDatabase


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
