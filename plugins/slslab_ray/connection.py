"""The Ray cluster for environments and sweeps: how to reach it, and its nodes."""

import logging
import os
import re
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Mapping
from typing import Any

import ray
import ray.exceptions
from ray._private import worker
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from slslab.aws.limits import MB
from slslab.errors import HostError, SlslabError
from slslab_ray.node_facts import collect_facts

LOG = logging.getLogger(__name__)
HINT = "`ray start --head` begins a cluster on this machine; `ray start --address=HOST:6379` joins one."
CLIENT = "ray://"
# Seconds; a running cluster answers sooner.
ANSWER_S = 5
TRIES = 3


def connect(address: str = "") -> None:
    """Connect this process to a cluster, unless it is connected: by the address of Ray's client, `ray://HOST:PORT`, or
    to the cluster that this machine is a node of ($RAY_ADDRESS, by default the one that runs here).

    HostError without a cluster, or if it rejects us.
    """
    # Send no usage statistics.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if ray.is_initialized():
        return
    # Ray prints its nodes' events to standard output, where a document may go; this can't be switched off otherwise.
    worker.print_to_stdstream = _log
    main = threading.current_thread() is threading.main_thread()
    former = signal.getsignal(signal.SIGTERM)
    try:
        if address:
            reach(address)  # Ray itself would try for minutes
        else:
            address = os.environ.get("RAY_ADDRESS", "auto")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its warnings are also raised
            _initialise(address)
    except (OSError, OverflowError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        if address.startswith(CLIENT):
            raise HostError(
                f"The Ray cluster at {address} can't be used: {reason(error)}.",
                "its head needs Ray's client server, by default at port 10001, the same Ray, and the same token.",
            ) from error
        raise HostError(f"This machine isn't a node of a Ray cluster: {reason(error)}.", HINT) from error
    finally:
        if main and former is not None:
            signal.signal(signal.SIGTERM, former)  # Ray's handler would end this process without clean-up
    ray.cloudpickle.register_pickle_by_value(sys.modules[collect_facts.__module__])


def _initialise(address: str) -> None:
    """Initialise Ray, trying again: the process that a head starts for a client may crash between fork and exec
    (Ray 2.60: SIGSEGV at a head's first client)."""
    for tries in range(1, TRIES + 1):
        try:
            ray.init(address, log_to_driver=False, configure_logging=False, namespace="slslab")
            return
        except ConnectionAbortedError as error:
            if tries == TRIES:
                raise
            LOG.info("Trying the Ray client server at %s again: %s", address, reason(error))


def reach(address: str) -> None:
    """Raise OSError unless something answers at HOST:PORT."""
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), ANSWER_S).close()


def reason(error: BaseException) -> str:
    """Return why Ray raised an error: our own message that caused it; or the first line of its text; or, if it ends
    with the traceback of another process, the last line without the exception's name. Without a full stop."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, SlslabError):
        return cause.message.rstrip(".")
    lines = (str(error).strip() or type(error).__name__).splitlines()
    if any(line.startswith('  File "') for line in lines):
        lines = [re.sub(r"^[\w.]+: ", "", lines[-1])]
    return lines[0].rstrip(".")


def alive() -> dict[str, dict[str, Any]]:
    """Return the cluster's nodes by id: their names, and the memory in MB that Ray counts for them."""
    return {
        node["NodeID"]: {
            "name": f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})",
            "budget_mb": int(node["Resources"].get("memory", 0)) // MB,
        }
        for node in ray.nodes()
        if node["Alive"]
    }


def describe(node: str) -> Any:
    """Ask a node for the properties that must match this host's; the answer of `collect_facts` comes through Ray."""
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(collect_facts).options(num_cpus=0, scheduling_strategy=there, max_retries=0).remote()


def _log(told: Mapping[str, Any], **_: object) -> None:
    LOG.info("Ray: %s", "\n".join(told["lines"]))
