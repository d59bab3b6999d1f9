"""Runs on nodes: which work goes elsewhere, what is refused, and what returns; the cluster is made up."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import NodeDiedError

from slslab.errors import HostError, RequestError
from slslab.host.cgroups import Hierarchy
from slslab.run.directory import DOCUMENT, RunDirectory
from slslab_lab.runs.execution import Order
from slslab_ray import recordings as cluster_runs
from slslab_ray.recordings import make, make_runs

A, B = "aa" * 28, "bb" * 28
NODES = {A: "a (10.0.0.1)", B: "b (10.0.0.2)"}


@dataclass(eq=False)
class Task:
    """What a node is to do; its own reference."""

    node: str
    order: Order | None = None

    def remote(self, order: Order | None, name: str) -> "Task":
        assert NODES[self.node] == name
        self.order = order
        return self


class Cluster:
    """Two nodes on which tasks end when they are waited for; `answers` has what becomes of runs there, if not done."""

    def __init__(self) -> None:
        self.answers: dict[str, Exception] = {}
        self.tasks: list[tuple[str, str]] = []

    def look(self) -> None:
        """Be there."""

    def remote(self, function: object) -> "Cluster":
        assert function is make
        return self

    def options(self, *, num_cpus: float, memory: float, scheduling_strategy: Any, max_retries: int) -> Task:
        assert (num_cpus, memory, scheduling_strategy.soft, max_retries) == (4.0, 1e9, False, 0)
        return Task(scheduling_strategy.node_id)

    def wait(self, references: list[Any], *, timeout: float) -> tuple[list[Any], list[Any]]:
        assert timeout > 0
        return references[:1], references[1:]

    def get(self, task: Task) -> tuple[Any, Exception | None]:
        if task.order is None:
            return {}, None
        self.tasks.append((task.node, task.order.path.name))
        match self.answers.get(task.node):
            case NodeDiedError() as loss:
                raise loss
            case None:
                document = json.dumps({"host": {"name": NODES[task.node]}}).encode()
                return {DOCUMENT: document, "logs/train.log": b"done"}, None
            case error:
                return None, error


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster()

    @contextmanager
    def connected(place: str) -> Iterator[Any]:
        assert place == "ray"
        yield 8, found, {node: {"name": name} for node, name in NODES.items()}

    monkeypatch.setattr(cluster_runs, "connected", connected)
    nodes = [{"NodeID": node, "Resources": {"CPU": 4.0, "memory": 1e9}} for node in (*NODES, "cc" * 28)]
    monkeypatch.setattr(ray, "nodes", lambda: [*nodes, {"NodeID": "dd" * 28, "Resources": {}}])
    for name in ("remote", "wait", "get"):
        monkeypatch.setattr(ray, name, getattr(found, name))
    return found


def orders(folder: Path, *names: str) -> list[Order]:
    return [Order(folder / name, "allreduce", {"dataset": "digits"}) for name in names]


def test_runs_come_back_to_their_places(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "left.txt").write_text("of a run that was interrupted")
    made = dict(make_runs("ray", orders(tmp_path, "first", "second", "third"), pytest.fail))
    assert {path.name for path in made} == {"first", "second", "third"}
    assert {node for node, _ in cluster.tasks} == set(NODES)
    for path, document in made.items():
        assert json.loads((path / DOCUMENT).read_text()) == document
        assert sorted(file.name for file in path.iterdir()) == ["logs", DOCUMENT]
        assert (path / "logs" / "train.log").read_bytes() == b"done"
        assert not RunDirectory(path).locked()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (NodeDiedError("The node died. See its logs."), "it was lost: The node died."),
        (HostError("it has no control groups for cpu: none.", ""), "it has no control groups for cpu: none."),
    ],
)
def test_what_a_node_cannot_make_is_made_on_another(
    cluster: Cluster, tmp_path: Path, answer: Exception, says: str
) -> None:
    cluster.answers[B] = answer
    told: list[str] = []
    made = list(make_runs("ray", orders(tmp_path, "first", "second"), told.append))
    assert {document["host"]["name"] for _, document in made} == {NODES[A]}
    assert told == [f"The node b (10.0.0.2) is not used: {says}"]
    assert len(cluster.tasks) == 3


def test_without_any_node_the_reasons_are_told_and_nothing_is_left(cluster: Cluster, tmp_path: Path) -> None:
    cluster.answers = dict.fromkeys(NODES, HostError("it is full.", ""))
    with pytest.raises(HostError, match=r"can make runs: [ab] \(10\.0\.0\.[12]\): it is full; [ab] .*: it is full\."):
        list(make_runs("ray", orders(tmp_path, "first"), lambda _: None))
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_request_is_the_commands_own(cluster: Cluster, tmp_path: Path) -> None:
    cluster.answers = dict.fromkeys(NODES, RequestError("There are no such images.", "choose others."))
    with pytest.raises(RequestError, match="There are no such images"):
        list(make_runs("ray", orders(tmp_path, "first", "second"), pytest.fail))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("cluster")
def test_runs_that_are_not_waited_for_are_given_up(tmp_path: Path) -> None:
    with closing(make_runs("ray", orders(tmp_path, "first", "second", "third"), pytest.fail)) as making:
        path, _ = next(making)
        assert RunDirectory(tmp_path / "third").status() == "running", "no other command makes it"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.usefixtures("cluster")
def test_what_another_command_makes_is_left_to_it(tmp_path: Path) -> None:
    first, second = orders(tmp_path, "first", "second")
    lock = RunDirectory.create(second.path).lock()
    with pytest.raises(RequestError, match=r"Another command makes the run .*second"):
        list(make_runs("ray", [first, second], pytest.fail))
    assert (list(tmp_path.iterdir()), RunDirectory(second.path).locked()) == ([second.path], True)
    RunDirectory(second.path).unlock(lock)


def test_nothing_to_make_needs_no_cluster() -> None:
    assert list(make_runs("ray://nowhere:1", [], pytest.fail)) == []


def test_nodes_that_others_use_are_not_waited_for_without_end(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cluster_runs, "OPEN_LIMIT_S", 0.0)
    monkeypatch.setattr(ray, "wait", lambda references, **_: ([], references))
    with pytest.raises(HostError, match="No node of the Ray cluster has all of its processors and its memory free"):
        list(make_runs("ray", orders(tmp_path, "first"), pytest.fail))
    assert cluster.tasks == []


@pytest.fixture
def confined(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Hierarchy(1, dict.fromkeys(("cpu", "memory"), Path("/sys/fs/cgroup")), ())
    monkeypatch.setattr(cluster_runs, "detect", lambda: groups)


@pytest.mark.usefixtures("confined")
def test_a_node_makes_a_run_as_it_would_be_made_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_plan(name: str, values: Any, options: Any, *, out: Path, named: Any, **_: Any) -> Any:
        assert (name, values, options, named["name"]) == ("allreduce", {"dataset": "digits"}, {}, "b")
        (out / "logs").mkdir(parents=True)
        (out / "logs" / "a.log").write_text("said")
        return {"status": "done"}

    monkeypatch.setattr(cluster_runs, "run_plan", run_plan)
    (order,) = orders(tmp_path, "first")
    assert make(None, "b") == ({}, None)
    assert make(order, "b") == ({"logs/a.log": b"said"}, None)
    assert not order.path.exists()


@pytest.mark.usefixtures("confined")
def test_an_interrupted_run_is_made_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_runs, "run_plan", lambda *_, **__: {"status": "interrupted"})
    files, error = make(orders(tmp_path, "first")[0], "b")
    assert files is None
    assert isinstance(error, HostError)


def test_a_node_without_control_groups_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_runs, "detect", lambda: Hierarchy(0, {}, ()))
    files, error = make(None, "b")
    assert files is None
    assert str(error).startswith("it has no control groups for cpu and memory: none")
