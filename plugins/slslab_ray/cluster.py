"""The nodes of a Ray cluster as hosts of one emulator's environments.

Ray decides about members, failures and joining. Owners start their nodes with `ray start`, and this host is one of
them. Each usable node has one actor (`slslab_ray.node`), which reserves memory in Ray and connects to the emulator
(`slslab_ray.calls`).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from slslab.aws.limits import MB, Limits
from slslab.errors import HostError
from slslab.host.session import Session
from slslab.lambda_.hosts import Host, Hosts, confinement
from slslab.stack.mutual_tls import write_certificate
from slslab_ray.calls import Listener, Tasks
from slslab_ray.connection import alive, connect, describe, reason
from slslab_ray.messages import Opening
from slslab_ray.node import Node
from slslab_ray.node_facts import collect_facts, difference
from slslab_ray.relay import Relay
from slslab_ray.remote_host import NodeHost

LOG = logging.getLogger(__name__)
# Ray doesn't report when a node joins, so look this often.
LOOK_S = 2.0
OPEN_LIMIT_S = 120.0


def budgets_mb() -> list[int]:
    """Return the memory in MB that each node of the cluster offers to environments; HostError without a cluster."""
    connect()
    return [node["budget_mb"] for node in alive().values()]


class Cluster(Hosts):
    """The nodes of the cluster that this host belongs to; usable once they are open.

    `settings` configure each node's ProcessSandboxes. `refused` lists the unusable nodes, with the reason. Entering
    raises HostError without a cluster.
    """

    def __init__(self, session: Session, limits: Limits, *, pack: bool = False, **settings: Any) -> None:
        self.template = ",".join(settings.get("modules", ()))
        self.pack = pack
        self.refused: dict[str, str] = {}
        self._session = session
        self._limits, self._settings = limits, settings
        self._known: set[str] = set()
        self._nodes: dict[str, NodeHost] = {}
        self._tasks = Tasks()

    def _enter(self, stack: ExitStack) -> None:
        connect()
        stack.callback(ray.shutdown)
        self._own = collect_facts()
        key = self._session.home / "relay.pem"
        write_certificate(key)
        host = ray.util.get_node_ip_address()
        self._relay = stack.enter_context(Relay("here", (host, 0), key, self._session.mark))
        self._listener = Listener(host, key)
        self._key = key.read_bytes()

    async def open(self) -> None:
        """Open all nodes, and from now on new ones; HostError if no node is usable."""
        await self._listener.open()
        await self._look()
        await asyncio.gather(*self._tasks)
        if not self._nodes:
            refused = "; ".join(f"{name}: {why}" for name, why in self.refused.items())
            raise HostError(
                f"No node of the Ray cluster can run environments: {refused}.", "see `slslab doctor` there."
            )
        self._tasks.start(self._keep_looking())

    async def end(self) -> None:
        """Leave all nodes, and remove everything of ours from them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(host.close() for host in self._nodes.values()))
        self._listener.close()

    def present(self) -> Sequence[Host]:
        """Return the currently usable nodes."""
        return [host for host in self._nodes.values() if not host.lost]

    def host(self) -> dict[str, Any]:
        """Return the host's part of a run's document, for all nodes together and for each."""
        nodes = [host.document() for host in self._nodes.values()]
        confined = {confinement(host.hierarchy, host.isolation) for host in self._nodes.values()}
        return {
            "cores": sum(node["cores"] for node in nodes),
            "cpu_share_enforced": True,
            "confinement": " | ".join(sorted(confined)),
            "nodes": nodes,
        }

    def _lost(self, actor: Any) -> None:
        """Kill a node's actor. If it was only cut off, it continues, and its reaper cleans up."""
        ray.kill(actor)
        self.notify()

    def _tell(self, fault: int) -> None:
        self.happened |= fault
        for host in self._nodes.values():
            host.post("report a fault", "tell", fault)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._look()
            except ray.exceptions.RayError as error:
                LOG.warning("The Ray cluster doesn't list its nodes: %s", reason(error))

    async def _look(self) -> None:
        """Start to open the nodes that have joined since the last look, and give up nodes that Ray has lost."""
        found = await asyncio.to_thread(alive)
        for node, host in self._nodes.items():
            if node not in found:
                host.lose("it no longer answers Ray")
        new = {node: about for node, about in found.items() if node not in self._known}
        self._known |= new.keys()
        # A node that is slow to open must not delay others.
        for node, about in new.items():
            self._tasks.start(self._join(node, about))

    async def _join(self, node: str, about: dict[str, Any]) -> None:
        try:
            why = await asyncio.wait_for(self._open(node, about), OPEN_LIMIT_S)
        except TimeoutError:
            why = f"it did not answer within {OPEN_LIMIT_S:.0f} s, or its memory is in use"
        except ray.exceptions.TaskUnschedulableError:
            self._known.discard(node)  # it has just joined or is leaving; the next look tells
            self.refused[about["name"]] = "Ray doesn't place anything there yet"
            return
        except (ray.exceptions.RayError, OSError) as error:
            why = f"it can't be opened: {reason(error)}"
        if why:
            self.refused[about["name"]] = why
            LOG.warning("The node %s is not used: %s.", about["name"], why)
        else:
            self.notify()

    async def _open(self, node: str, about: dict[str, Any]) -> str:
        """Open a node; return why it is unusable, or an empty text."""
        other = await describe(node)
        if why := difference(self._own, other):
            return why
        near = other["network"] == self._own["network"]
        relay = None if near else self._relay
        reached = self._listener.address, relay.address if relay else None
        opening = Opening(self._limits, self._settings, self._key, node, *reached)
        made = ray.remote(Node).options(
            num_cpus=0,
            memory=about["budget_mb"] * MB,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        actor = made.remote(opening)
        leave: Callable[[], None] = partial(ray.kill, actor)
        try:
            connected = self._listener.expect(node)
            opened = await actor.open.remote()
            host = NodeHost(await connected, {**about, **opened}, self, relay)
            # If it was cut off, its actor ends, too, and its reaper cleans up.
            host.on_lost, leave = leave, host.leave
            if lacking := [what for what in ("cpu", "memory") if what not in opened["hierarchy"].parents]:
                await host.close()
                return f"it lacks control groups for {' and '.join(lacking)}: {opened['hierarchy'].description}"
            if not opened["priority"]:
                LOG.warning(
                    "Functions on %s have a low priority. Start Ray there with RAY_worker_niceness=0.", host.name
                )
            await host.begin()
        except BaseException:
            leave()
            raise
        host.on_lost, host.on_fault = partial(self._lost, actor), self._tell
        if not self._nodes:
            self.hierarchy, self.isolation = host.hierarchy, host.isolation
        self._nodes[node] = host
        host.post("report faults", "tell", self.happened)
        self.refused.pop(about["name"], None)
        return ""
