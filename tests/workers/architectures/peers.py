"""SPIRT's runs in memory, with hooks before and after its functions, and what its tests look at."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from tests.commands import assert_holds
from tests.memory.running import Ran as InMemory
from tests.memory.running import run

from slslab.run.metrics import protocol
from slslab.statemachines.history import read_transitions
from slslab_workers.architecture import Outcome
from slslab_workers.channels.endpoints import queue_url, tensor_urls
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.queues import Queues
from slslab_workers.channels.stream import Unreachable
from slslab_workers.channels.tensors import TensorDatabase
from slslab_workers.plan import Plan
from slslab_workers.spirt import architecture
from slslab_workers.spirt.roster import Roster
from slslab_workers.spirt.settings import Keys
from slslab_workers.training import gradients

LENET = 61_706
# Virtual seconds: more than any run here takes, and than a hook waits.
LIMIT_S, PATIENCE_S = 10_000, 60
MODULES = {
    "membership": ("init_peers", "auth", "check_heartbeat"),
    "learning": ("init_model", "compute_gradients", "check_convergence"),
    "rounds": ("average_gradients", "aggregation", "update_model", "trigger_next_epoch"),
}
# Called with a function's name, rank, epoch and event, in the function's own process.
Hook = Callable[[str, int, int, Mapping[str, Any]], None]


@dataclass
class Ran:
    """What a run left: outcome, executions by peer and epoch, events, and its invocations' functions."""

    plan: Plan
    outcome: Outcome
    executions: Mapping[tuple[int, int], Any]
    events: list[dict[str, Any]]
    calls: list[str]


KEYS: list[RSAPrivateKey] = []


class Peers:
    """Runs plans in memory; `latest` is what the last run left, also of one that failed."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.latest: InMemory | None = None

    def run(self, plan: Plan, before: Hook | None = None, after: Hook | None = None) -> Ran:
        """Drive the plan, and raise what its driver raises."""
        calls: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            # Each peer of a run has a key of its own; making them takes long.
            keys = iter(KEYS)
            patch.setattr(
                "slslab_workers.spirt.trust.rsa.generate_private_key", lambda **how: next(keys, None) or _key(**how)
            )
            for module, names in MODULES.items():
                for name in names:
                    at = f"slslab_workers.spirt.{module}"
                    handler = getattr(import_module(at), name)
                    patch.setattr(f"{at}.{name}", _hooked(handler, name, calls, before, after))
            home = self._home / plan.run
            home.mkdir(exist_ok=True)
            self.latest = ran = run(plan, 1, home, LIMIT_S)
        if ran.failure is not None:
            raise ran.failure
        assert ran.outcome is not None
        assert_holds(ran.recorded)
        return Ran(plan, ran.outcome, self.executions(), ran.recorded.events, calls)

    def executions(self) -> dict[tuple[int, int], Any]:
        """Return the executions of the last run, by rank and epoch."""
        assert self.latest is not None
        places = {name: name.rsplit("-p", 1)[1].split("-e") for name in self.latest.executions}
        return {(int(rank), int(epoch)): self.latest.executions[name] for name, (rank, epoch) in places.items()}

    def kill(self, rank: int) -> None:
        """SHUTDOWN of a peer's database, by a hook."""
        with suppress(Unreachable):
            self.database(rank).command("SHUTDOWN", "NOSAVE")

    def parameters(self, rank: int, plan: Plan) -> torch.Tensor:
        """Return a peer's parameters (P,) now, to a hook."""
        return self.tensor(rank, Keys(plan).parameters)

    def tensor(self, rank: int, key: str) -> torch.Tensor:
        """Return a tensor of a peer's database, to a hook."""
        return torch.from_numpy(self.database(rank).get(key, "other"))

    def database(self, rank: int) -> TensorDatabase:
        """Return a peer's database, outside the trace, to a hook."""
        return TensorDatabase(tensor_urls()[rank], Tracer(lambda _: None))

    def queues(self) -> Queues:
        """Return the queues, outside the trace, to a hook."""
        here: Any = import_module("slslab_workers.spirt.peer")
        queues: Queues = here.open_queues(queue_url(), Tracer(lambda _: None))
        return queues

    def left(self) -> list[str]:
        """Return what the last run left, also in databases that live."""
        assert self.latest is not None
        return [*self.latest.left, *self.latest.keys]


def _key(**how: int) -> RSAPrivateKey:
    KEYS.append(generate_private_key(**how))
    return KEYS[-1]


def _hooked(handler: Any, name: str, calls: list[str], before: Hook | None, after: Hook | None) -> Any:
    @wraps(handler)
    def hooked(event: Mapping[str, Any], context: Any) -> Any:
        who = (name, event["input"]["rank"], event["input"]["epoch"])
        calls.append(name)
        if before is not None:
            before(*who, event)
        answer = handler(event, context)
        if after is not None:
            after(*who, event)
        return answer

    return hooked


def until(happened: Callable[[], object]) -> None:
    """Have a hook wait, in virtual time, until something has happened."""
    until_s = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < until_s, "it did not happen"
        time.sleep(0.01)


class Steps:
    """A hook that keeps every peer's parameters after each of its updates."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self.fingerprints: dict[int, list[str]] = {}
        self.last = torch.empty(0)

    def __call__(self, name: str, rank: int, _: int, event: Mapping[str, Any]) -> None:
        if name == "update_model":
            parameters = self._peers.parameters(rank, Plan.from_document(event["input"]["plan"]))
            self.fingerprints.setdefault(rank, []).append(gradients.sha256(parameters))
            if rank == 0:
                self.last = parameters


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Relative to the length of the second."""
    return float((one - other).norm() / other.norm())


def check_counts(ran: Ran, join: str = "none") -> None:
    """The closed form, exactly: messages, bytes and transitions, these also by the executions' histories; `join` says
    who joined when, in the option's words."""
    plan, options = ran.plan, {**ran.plan.options, "join": join}
    expected = architecture.counts(plan.workers, plan.batches, ran.outcome.epochs, LENET, options)
    roster = Roster.of(plan.workers, options)
    active = {(rank, epoch) for epoch in range(ran.outcome.epochs) for rank in roster.active(epoch)}
    counted = protocol(ran.events)
    assert counted["counts"] == dict(expected.operations)
    assert counted["bytes"] == {"in": expected.bytes_in, "out": expected.bytes_out}
    histories = {len(read_transitions(execution.history.events)) for execution in ran.executions.values()}
    assert histories == {plan.batches + 8}
    assert ran.executions.keys() == active
    assert ran.calls.count("init_model") == len(roster.founders)
    assert len(ran.calls) == plan.workers + len(roster.founders) + len(active) * (plan.batches + 7)


def check_nothing_left(peers: Peers) -> None:
    """No thread, execution, machine, function, bucket, queue or key."""
    assert peers.left() == []
    statuses = {execution.status for execution in peers.executions().values()}
    assert statuses <= {"FAILED", "ABORTED", "SUCCEEDED"}
