"""Compute on a Ray cluster, as Ray tasks; if a task's process or node dies, the task is repeated elsewhere."""

import logging
import os
import pickle
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from slslab.errors import HostError
from slslab.installation import require
from slslab_lab.runs.sweeps.sweep import RAY

# Seconds; Ray's own work for a task is small compared with that.
BATCH_S = 0.2
# One batch is computed while the next one waits.
BATCHES_A_PROCESSOR = 2
# Seconds: how often to check the head, and how long it may be away. After 60 s Ray would end this process.
LOOK_S = 5.0
OPEN_LIMIT_S = 120.0
AWAY_S = 30.0


def compute(address: str, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
    """Yield the function's result for each task's arguments, in the order in which they arrive from the cluster.

    The function is sent to each node once. HostError if the cluster can't be reached, a node has other versions, no
    processor is free, or the cluster is lost. Exceptions of the function are raised here.
    """
    require("ray")
    with connected(address) as (processors, head, nodes):
        import ray

        payload = [ray.put(pickle.dumps(function))]
        # Exclude nodes that join later, since they haven't been compared with this host.
        compared = {"ray.io/node-id": f"in({','.join(nodes)})"}
        remote = ray.remote(compute_batch).options(num_cpus=1, label_selector=compared)
        left, running, size = deque(tasks), list[Any](), 1
        while left or running:
            while left and len(running) < BATCHES_A_PROCESSOR * processors:
                batch = [left.popleft() for _ in range(min(size, len(left)))]
                running.append(remote.remote(payload, batch))
            done, running = ray.wait(running, timeout=LOOK_S)
            head.look()
            for results, seconds, error in ray.get(done):
                yield from results
                if error is not None:
                    raise error
                # Near the end, give some tasks to every processor.
                share = len(left) // (BATCHES_A_PROCESSOR * processors)
                size = max(1, min(share, int(BATCH_S * len(results) / seconds)))


def compute_batch(payload: list[Any], batch: list[tuple[Any, ...]]) -> tuple[list[Any], float, Exception | None]:
    """Compute tasks in a worker process: return results up to the first exception, the seconds, the exception."""
    began = time.perf_counter()
    results, raised = [], None
    try:
        for arguments in batch:
            results.append(_received(*payload)(*arguments))
    except Exception as error:
        raised = error
    return results, time.perf_counter() - began, raised


@cache
def _received(payload: Any) -> Any:
    """Return the function, which each process receives once."""
    import ray

    return pickle.loads(ray.get(payload))


class Head:
    """The head of the cluster; without it, Ray lets tasks wait for ever."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._answered = time.monotonic()

    def look(self) -> None:
        """Check the head, if it is time to; ConnectionError if it has been away for too long."""
        from slslab_ray.connection import reach

        now = time.monotonic()
        if now < self._answered + LOOK_S:
            return
        try:
            reach(self._address)
            self._answered = now
        except OSError as error:
            if now > self._answered + AWAY_S:
                raise ConnectionError(f"its head doesn't answer: {error}") from error


@contextmanager
def connected(address: str) -> Iterator[tuple[int, Head, dict[str, dict[str, Any]]]]:
    """Connect to the cluster at an address; yield the number of its free processors, its head, and its nodes
    (`slslab_ray.connection.alive`).

    HostError if it can't be reached, a node differs from this host, no processor is free, or it is lost meanwhile.
    """
    import ray

    from slslab_ray.connection import CLIENT, alive, connect, describe, reason
    from slslab_ray.node_facts import collect_facts, difference

    # It also raises what it logs about a connection; the second logger is a separate root.
    for name in ("ray.util.client", "ray.util.client.logsclient"):
        logging.getLogger(name).addHandler(logging.NullHandler())
    # Without this, its library repeats the exceptions of failed tasks on standard error.
    os.environ["RAY_BACKEND_LOG_LEVEL"] = "fatal"
    if address == RAY and os.environ.get("RAY_ADDRESS", "").startswith(CLIENT):
        address = os.environ["RAY_ADDRESS"]
    with _unsaid():
        connect("" if address == RAY else address)
    former = threading.excepthook
    # A thread of its client may find the connection closed while another thread opens it again.
    threading.excepthook = lambda told: None if "Channel closed" in str(told.exc_value) else former(told)
    head = address
    try:
        if address == RAY:
            head = ray.get_runtime_context().gcs_address
        own, nodes = collect_facts(), alive()
        answers = ray.get([describe(node) for node in nodes], timeout=OPEN_LIMIT_S)
        others = zip(nodes.values(), answers, strict=True)
        if unlike := [f"{about['name']}: {why}" for about, other in others if (why := difference(own, other))]:
            raise HostError(
                f"Not all nodes of the Ray cluster can compute this: {'; '.join(unlike)}.",
                "install the same versions on all, or let those nodes leave by `ray stop`.",
            )
        processors = int(ray.available_resources().get("CPU", 0))
        if not processors:
            raise HostError(
                "No processor of the Ray cluster is free.", "wait until one is, or compute here: --on local."
            )
        yield processors, Head(head), nodes
    except (OSError, ray.exceptions.RayError) as error:
        # Ray raises OSError without a number if its processes on this host have ended; others concern files.
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError):
            raise
        raise HostError(
            f"The Ray cluster at {head} was lost: {reason(error)}.", "the same command continues where it stopped."
        ) from error
    finally:
        ray.shutdown()
        threading.excepthook = former


@contextmanager
def _unsaid() -> Iterator[None]:
    """Drop everything that this process writes to standard error, in any language."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
