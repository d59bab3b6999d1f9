"""A Ray to compute on: one on this host, which starts and ends with the sweep, or a cluster that is there already."""

import logging
import os
import platform
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any

from slslab.errors import HostError, counted
from slslab.installation import __version__, require

RAY, SCHEME = "ray", "ray://"
# s; a cluster that is there answers sooner.
ANSWER_S = 5


@contextmanager
def connected(place: str) -> Iterator[tuple[Any, int]]:
    """Yield joblib's backend of the Ray that a place names, and how many of its processors are free.

    HostError if it cannot be reached or started, a node lacks this version of slslab, or there are no two processors.
    """
    require("joblib")
    require("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with ExitStack() as held:
        if place == RAY:
            # Its servers listen on the loopback interface alone, and its token is not kept in the home directory.
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
            os.environ.setdefault("RAY_AUTH_TOKEN", token_hex(32))
        import ray

        if place == RAY:
            folder = held.enter_context(TemporaryDirectory(prefix="slslab-ray-", ignore_cleanup_errors=True))
            held.callback(ray.shutdown, wait_for_processes=True)
            with _own_signals():
                _start(ray, folder)
        else:
            held.callback(ray.shutdown)
            with _own_signals():
                _connect(ray, place)
            _check_nodes(ray, place)
        processors = int(ray.available_resources().get("CPU", 0))
        if processors < 2:
            raise HostError(
                f"{place} has {counted(processors, 'free processor')}, and a sweep needs two.",
                "wait until some are free, or leave out --on.",
            )
        yield _backend(), processors


@contextmanager
def _own_signals() -> Iterator[None]:
    """Have SIGTERM end the command in order after the block, in which Ray takes it."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _start(ray: Any, folder: str) -> None:
    """Start a Ray of this host alone, whose files are in a folder."""
    try:
        ray.init(
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=folder,
        )
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise HostError(f"Ray cannot be started: {_sentence(error)}", "compute without it: --on local.") from error


def _connect(ray: Any, address: str) -> None:
    host, _, port = address.removeprefix(SCHEME).rpartition(":")
    try:
        # Ray itself tries for minutes.
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise HostError(
            f"No Ray cluster answers at {address}: {_sentence(error)}",
            "start one (ray start --head), or see which port its Ray Client server has, by default 10001.",
        ) from error
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise HostError(
            f"The Ray cluster at {address} refuses: {_sentence(error)}",
            f"it needs Ray {ray.__version__} and Python {platform.python_version()}, as here.",
        ) from error


def _sentence(error: BaseException) -> str:
    """Return the first sentence of what an error says."""
    return f"{(str(error) or type(error).__name__).partition('. ')[0].partition(chr(10))[0].rstrip('.')}."


def _check_nodes(ray: Any, address: str) -> None:
    """Raise HostError unless all nodes have this version of slslab."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # Within a function it is sent by value: a node without slslab can compute it.
    def find_version() -> str:
        try:
            from slslab.installation import __version__ as found
        except ImportError:
            return "none"
        return found

    nodes = [node for node in ray.nodes() if node["Alive"]]
    asked = ray.remote(num_cpus=0)(find_version)
    versions = ray.get(
        [
            asked.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote()
            for node in nodes
        ]
    )
    others = {
        f"{node['NodeManagerAddress']} has {version}"
        for node, version in zip(nodes, versions, strict=True)
        if version != __version__
    }
    if others:
        raise HostError(
            f"All nodes of {address} need slslab {__version__}, and {', '.join(sorted(others))}.",
            f"on each: pip install 'slslab[ray,report]=={__version__}'",
        )


def _backend() -> Any:
    """Return joblib's backend of Ray, which gives results as they come; each worker takes a processor of the cluster.

    It is the one that `ray.util.joblib.register_ray` registers. joblib lets no pool of processes give results as they
    come, since theirs end with the pool; those of Ray's are read before.
    """
    from ray.util.joblib.ray_backend import RayBackend

    class Backend(RayBackend):  # type: ignore[misc]
        supports_return_generator = True

    return Backend(ray_remote_args={"num_cpus": 1})
