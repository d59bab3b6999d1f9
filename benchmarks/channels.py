"""Time an object's put, get and delete through each channel, as ratios to S3, in turns.

    python benchmarks/channels.py [--repeat N] [--json]

All servers are the embedded stack's, on loopback instead of an AWS network. Every repetition uses each channel once,
and a ratio is the median of the repetitions' ratios, so that a busy machine slows all of them. A round of the parameter
server is a push and a pull of one worker. About half a minute.
"""

import argparse
import json
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from slslab.aws.keys import Keyring
from slslab.stack.channels import channel_server
from slslab.stack.object_store import EmbeddedObjectStore
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.memcached import Memcached
from slslab_workers.channels.objects import ObjectChannel, Objects, s3_client
from slslab_workers.channels.parameter_server import ParameterServer
from slslab_workers.channels.redis import Redis

# Parameters of logistic regression, LeNet-5 and MobileNet.
SIZES = (248, 246_824, 12_868_904)


def round_of(channel: ObjectChannel, size: int) -> Callable[[], None]:
    """Return a function that puts, gets and deletes an object."""
    body = os.urandom(size)

    def ask() -> None:
        channel.put("benchmark", body, "other")
        channel.get("benchmark", "other")
        channel.delete("benchmark", "other")

    return ask


def sum_of(server: ParameterServer, size: int) -> Callable[[], None]:
    """Return a function that pushes a vector and pulls the sum, which only has this one."""
    vector = np.zeros(size // 4, np.float32)

    def ask() -> None:
        key = secrets.token_hex(8)
        server.push(key, 0, 1, vector, "other", leaving=False)
        server.pull(key, 1, "other")

    return ask


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        home, keys, tracer = Path(stack.enter_context(tempfile.TemporaryDirectory())), Keyring(), Tracer(lambda _: None)
        store = stack.enter_context(EmbeddedObjectStore(home / "s3", keys, {}))
        os.environ |= {**keys.owner.variables(), "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_S3": store.endpoint}
        client = s3_client()
        client.create_bucket(Bucket="benchmark")
        channels: dict[str, ObjectChannel] = {"s3": Objects(client, "benchmark", tracer)}
        servers: dict[str, Callable[[str], ObjectChannel]] = {
            "memcached": lambda url: Memcached(url, tracer),
            "redis": lambda url: Redis(url, tracer),
            "parameter-server": lambda url: ParameterServer(url, tracer),
            "parameter-server, doubles": lambda url: ParameterServer(url, tracer, "doubles"),
        }
        for name, opened in servers.items():
            server = channel_server(name.partition(",")[0], home, {})
            if server is not None:
                stack.enter_context(server)
                channels[name] = opened(server.endpoint)
        for size in SIZES:
            asks = {
                name: sum_of(one, size) if isinstance(one, ParameterServer) else round_of(one, size)
                for name, one in channels.items()
            }
            seconds: dict[str, list[float]] = {name: [] for name in asks}
            for repetition in range(options.repeat + 1):
                for name in sorted(asks, reverse=bool(repetition % 2)):
                    began = time.perf_counter()
                    asks[name]()
                    if repetition:
                        seconds[name].append(time.perf_counter() - began)
            for name, taken in seconds.items():
                ratios = [own / s3 for own, s3 in zip(taken, seconds["s3"], strict=True)]
                rows.append({"bytes": size, "channel": name, "ms": statistics.median(taken) * 1e3,
                             "of_s3": statistics.median(ratios)})  # fmt: skip
        for channel in channels.values():
            channel.close()
    if options.json:
        print(json.dumps({"schema": 1, "rows": rows}))
        return
    print(f"{'bytes':>12}  {'channel':<26}{'ms':>10}{'÷ S3':>8}")
    for row in rows:
        print(f"{row['bytes']:>12,}  {row['channel']:<26}{row['ms']:>10.2f}{row['of_s3']:>8.2f}")


if __name__ == "__main__":
    main()
