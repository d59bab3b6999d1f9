"""A Ray cluster to compute on."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from slslab.errors import HostError, counted
from slslab.installation import require

RAY, SCHEME = "ray", "ray://"


@contextmanager
def connected(place: str) -> Iterator[tuple[Any, int]]:
    """Yield joblib's backend of the Ray cluster that a place names, and how many of its processors are free.

    HostError if it cannot be reached, a node differs in what it computes with, or there are no two processors.
    """
    require("joblib")
    require("ray")
    import ray

    from slslab.cluster.connection import alive, connect, describe
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
    finally:
        ray.shutdown()


def _backend() -> Any:
    """Return joblib's backend of Ray, which gives results as they come; each worker takes a processor of the cluster.

    It is the one that `ray.util.joblib.register_ray` registers. joblib lets no pool of processes give results as they
    come, since theirs end with the pool; those of Ray's are read before.
    """
    from ray.util.joblib.ray_backend import RayBackend

    class Backend(RayBackend):  # type: ignore[misc]
        supports_return_generator = True

    return Backend(ray_remote_args={"num_cpus": 1})
