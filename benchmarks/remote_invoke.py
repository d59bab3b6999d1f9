"""Compare a warm invocation on another node with one on this host, in pairs.

    ray start --head …                          on this machine, and ray start --address=… on another
    python benchmarks/remote_invoke.py [--json] [--pairs N]

A function that returns its event is invoked in turns in an environment of this host and in one on each node of the Ray
cluster, in alternating order, so that a busy machine slows all of them. For each node, it prints the median of the
differences from the same turn's local invocation, with quartiles. A node of this network has no relay.
"""

import argparse
import json
import statistics
import time
from contextlib import ExitStack
from typing import Any

from rich.console import Console
from rich.table import Table

from slslab.aws.limits import lambda_limits
from slslab.host.session import Session
from slslab.lambda_.emulator import Emulator
from slslab.testing import create_function
from slslab_ray.cluster import Cluster

SOURCE = "def handler(event, context):\n    print('x')\n    return event\n"
WARM_UP = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one document on stdout instead of a table")
    parser.add_argument("--pairs", type=int, default=300, help="turns (default 300)")
    given = parser.parse_args()
    with ExitStack() as stack:
        here = stack.enter_context(Emulator())
        session = stack.enter_context(Session())
        cluster = Cluster(session, lambda_limits())
        there = stack.enter_context(Emulator(session=session, hosts=cluster))
        clients = {"here": here.client("lambda")}
        create_function(clients["here"], "here", SOURCE)
        # Environments spread out: with as many functions as nodes, each node gets one.
        for number in range(len(cluster.present())):
            name = f"node{number}"
            clients[name] = there.client("lambda")
            create_function(clients[name], name, SOURCE)
            clients[name].invoke(FunctionName=name, Payload=b"{}")
        hosts = {e.function.name: e.host.name for e in there.service.pool.environments()}
        seconds: dict[str, list[float]] = {name: [] for name in clients}
        order = list(clients)
        for turn in range(WARM_UP + given.pairs):
            for name in order if turn % 2 else reversed(order):
                began = time.perf_counter()
                clients[name].invoke(FunctionName=name, Payload=b"{}")
                if turn >= WARM_UP:
                    seconds[name].append(time.perf_counter() - began)
    rows: list[dict[str, Any]] = []
    for name, host in hosts.items():
        more = [1000 * (far - near) for far, near in zip(seconds[name], seconds["here"], strict=True)]
        low, middle, high = statistics.quantiles(more, n=4)
        rows.append({"node": host, "more_ms": middle, "quartiles_ms": [low, high]})
    local = 1000 * statistics.median(seconds["here"])
    if given.json:
        print(
            json.dumps({"benchmark": "remote_invoke", "local_ms": local, "pairs": given.pairs, "rows": rows}, indent=2)
        )
        return
    table = Table("node", "p50 more than here, ms", "quartiles, ms", title=f"warm invocation here: {local:.2f} ms")
    for row in rows:
        table.add_row(str(row["node"]), f"{row['more_ms']:.2f}", " to ".join(f"{q:.2f}" for q in row["quartiles_ms"]))
    Console().print(table)


if __name__ == "__main__":
    main()
