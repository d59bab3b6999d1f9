"""A Ray cluster to compute on."""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from slslab.errors import HostError, counted
from slslab.installation import require

RAY = "ray"
THREADS_S = 5.0


@contextmanager
def connected(place: str) -> Iterator[tuple[Any, int]]:
    """Yield joblib's backend of the Ray cluster that a place names, and how many of its processors are free.

    HostError if it cannot be reached, a node differs in what it computes with, or there are no two processors.
    """
    require("joblib")
    require("ray")
    # Its threads would connect again after the end.
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
    import ray

    from slslab.cluster.connection import alive, connect, describe, reason
    from slslab.cluster.described import described, difference

    connect("" if place == RAY else place)
    try:
        own, nodes = described(), alive()
        others = zip(nodes.values(), ray.get([describe(node) for node in nodes]), strict=True)
        if unlike := [f"{about['name']}: {why}" for about, other in others if (why := difference(own, other))]:
            raise HostError(
                f"Not all nodes of the Ray cluster can compute this: {'; '.join(unlike)}.",
                "install the same versions on all, or let those nodes leave by `ray stop`.",
            )
        processors = int(ray.available_resources().get("CPU", 0))
        if processors < 2:
            raise HostError(
                f"The Ray cluster has {counted(processors, 'free processor')}, and a sweep needs two.",
                "wait until some are free, or leave out --on.",
            )
        yield _backend(), processors
    except ray.exceptions.RayError as error:
        raise HostError(
            f"The Ray cluster gave up: {reason(error)}.", "the same command goes on where it stopped."
        ) from error
    finally:
        _await_threads()
        ray.shutdown()


def _await_threads() -> None:
    """Wait for the threads of Ray's pool, which end once the pool's actors have been killed."""
    from ray.util.multiprocessing.pool import ResultThread

    for thread in threading.enumerate():
        if isinstance(thread, ResultThread):
            thread.join(THREADS_S)


def _backend() -> Any:
    """Return joblib's backend of Ray, which gives results as they come; each worker takes a processor of the cluster.

    It is the one that `ray.util.joblib.register_ray` registers. joblib lets no pool of processes give results as they
    come, since theirs end with the pool; those of Ray's are read before.
    """
    from ray.util.joblib.ray_backend import RayBackend

    # It says in every sweep that Ray's pool does not know an argument that joblib always gives.
    logging.getLogger("ray.util.multiprocessing.pool").setLevel(logging.ERROR)

    class Backend(RayBackend):  # type: ignore[misc]
        supports_return_generator = True

    return Backend(ray_remote_args={"num_cpus": 1})
