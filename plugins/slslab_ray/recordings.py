"""Measured runs on a Ray cluster: each runs alone on its node, and its directory comes back to the command's host.

A run is a task that takes all processors and all memory of a node, since runs side by side would compete for them. The
node makes it like this host would, in an embedded stack and processes.
"""

import json
import shutil
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from slslab.errors import HostError, RequestError
from slslab.host.cgroups import detect
from slslab.host.procfs import processors
from slslab.host.session import Session
from slslab.installation import require
from slslab.run.bill import DEFAULT_BOOK
from slslab.run.directory import DOCUMENT, RunDirectory
from slslab.run.log import writing
from slslab_lab.runs.accuracy.curve import Unwatched
from slslab_lab.runs.execution import Order, run_plan
from slslab_ray.node import leave_ray_limits
from slslab_ray.sweeps import LOOK_S, OPEN_LIMIT_S, connected

# The contents of a run's files by their paths in its directory.
Files = dict[str, bytes]


def make_runs(
    on: str, orders: Sequence[Order], tell: Callable[[str], None]
) -> Generator[tuple[Path, Mapping[str, Any]], None, None]:
    """Yield the directory of each run with its document, once it has come back. It replaces an earlier directory; runs
    still in progress when the generator ends are given up.

    A node that can't make runs, or is lost, is reported and not used again; another node makes its run. HostError if no
    node can make runs or the cluster is lost; RequestError or PlanError as in `run_plan`.
    """
    if not orders:
        return
    require("ray")
    left, locks = deque(orders), dict[Path, int]()
    with connected(on) as (_, head, about):
        nodes = _Nodes({node: str(of_node["name"]) for node, of_node in about.items()}, tell)
        try:
            for order in orders:
                locks[order.path] = _take(order.path)
            while left or nodes.makes_runs:
                while left and nodes.idle:
                    nodes.give(nodes.idle.pop(), left.popleft())
                for order, files in nodes.wait():
                    if files is None:
                        left.appendleft(order)
                        continue
                    _write(order.path, files)
                    _release(order.path, locks.pop(order.path))
                    yield order.path, json.loads(files[DOCUMENT])
                head.look()
        finally:
            for path, lock in locks.items():
                _release(path, lock)


class _Nodes:
    """The usable nodes by name: which are `idle`, and what the others are doing."""

    def __init__(self, names: Mapping[str, str], tell: Callable[[str], None]) -> None:
        import ray

        self.idle: list[str] = []
        self._names, self._tell = names, tell
        self._refused: list[str] = []
        self._under_way: dict[Any, tuple[str, Order | None]] = {}
        self._began = time.monotonic()
        resources = {node["NodeID"]: node["Resources"] for node in ray.nodes()}
        # A node without processors in Ray isn't meant for work.
        self._resources = {node: found for node in names if (found := resources.get(node, {})).get("CPU")}
        for node in self._resources:
            self.give(node, None)  # first without a run, which would wait on a busy node

    @property
    def makes_runs(self) -> bool:
        return any(order is not None for _, order in self._under_way.values())

    def give(self, node: str, order: Order | None) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there, resources = NodeAffinitySchedulingStrategy(node, soft=False), self._resources[node]
        # An emulator on the cluster reserves nodes' memory, but none of their processors.
        task = ray.remote(make).options(
            num_cpus=resources["CPU"], memory=resources["memory"], scheduling_strategy=there, max_retries=0
        )
        self._under_way[task.remote(order, self._names[node])] = node, order

    def wait(self) -> list[tuple[Order, Files | None]]:
        """Wait a while for the nodes; return finished runs with their files, None for those to be made elsewhere.
        HostError if no node can make runs."""
        import ray

        if not self._under_way:
            raise HostError(
                f"No node of the Ray cluster can make runs: {'; '.join(self._refused)}.",
                "the same command continues where it stopped; `slslab doctor` says what a host lacks.",
            )
        done, _ = ray.wait(list(self._under_way), timeout=LOOK_S)
        ended = [found for reference in done if (found := self._take(reference)) is not None]
        if not ended and not self.idle and not self.makes_runs and time.monotonic() > self._began + OPEN_LIMIT_S:
            raise HostError(
                "A measured run needs a whole node, and no node of the Ray cluster is idle.",
                "wait until one is, or make the runs here: --on local.",
            )
        return ended

    def _take(self, reference: Any) -> tuple[Order, Files | None] | None:
        import ray
        from ray import exceptions

        from slslab_ray.connection import reason

        node, order = self._under_way.pop(reference)
        files: Files | None = None
        try:
            files, error = ray.get(reference)
        except (
            exceptions.NodeDiedError,
            exceptions.ObjectLostError,
            exceptions.OutOfMemoryError,
            exceptions.TaskUnschedulableError,
            exceptions.WorkerCrashedError,
        ) as loss:
            why = reason(loss).partition(". ")[0]  # Ray appends advice
            error = HostError(f"it was lost: {why}.", "")
        if isinstance(error, HostError):
            self._refused.append(f"{self._names[node]}: {error.message.rstrip('.')}")
            self._tell(f"The node {self._names[node]} is not used: {error.message}")
        elif error is not None:
            raise error
        else:
            self.idle.append(node)
        return None if order is None else (order, files)


def make(order: Order | None, node: str) -> tuple[Files | None, Exception | None]:
    """Make a run alone on this node and return its files or the error; without an order, check whether the node can."""
    leave_ray_limits()
    try:
        hierarchy = detect()
        if lacking := [what for what in ("cpu", "memory") if what not in hierarchy.parents]:
            raise HostError(
                f"it lacks control groups for {' and '.join(lacking)}: {hierarchy.description}.",
                "see `slslab doctor`.",
            )
        if order is None:
            return {}, None
        with Session() as session:
            directory = session.home / "run"
            document = run_plan(
                order.architecture,
                order.values,
                {},
                out=directory,
                book=DEFAULT_BOOK,
                progress=Unwatched(),
                named={"name": node, "processors": processors()},
            )
            if document["status"] == "interrupted":
                raise HostError("a signal interrupted its run.", "")
            return _read(directory), None
    except Exception as error:  # Ray would print it
        return None, error


def _take(path: Path) -> int:
    """Make, or replace, the directory of a run that is made elsewhere; return the lock that says so."""
    if RunDirectory(path).locked():
        raise RequestError(f"Another command makes the run {path}.", "wait for its end, or give another --out.")
    if path.exists():
        shutil.rmtree(path)
    return RunDirectory.create(path).lock()


def _release(path: Path, lock: int) -> None:
    if not (path / DOCUMENT).exists():
        shutil.rmtree(path)
    RunDirectory(path).unlock(lock)


def _read(directory: Path) -> Files:
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


def _write(directory: Path, files: Files) -> None:
    for name, content in sorted(files.items(), key=lambda item: item[0] == DOCUMENT):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        with writing(directory / name) as file:
            file.write(content)
