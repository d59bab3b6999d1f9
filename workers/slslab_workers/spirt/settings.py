"""SPIRT's options as its functions read them, the names of its tensors and queues, and what an execution is given."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from slslab_workers.plan import Plan, PlanError
from slslab_workers.queues import scoped
from slslab_workers.spirt.roster import Roster

# A peer is dead after three pings in a row without an answer, a second apart (protocol reference 2.6).
PINGS = 3
PING_INTERVAL_S = 1.0


@dataclass(frozen=True)
class Settings:
    """`gradients` tensor or json; `averaging` in-database, round-trip or naive; `update` in-database or naive;
    `update_rule` sgd or sgd-momentum; `accumulate` parts of a minibatch whose gradients are added up;
    `barrier_timeout` in s; `roster` says who joins when."""

    gradients: str
    averaging: str
    update: str
    update_rule: str
    accumulate: int
    barrier_timeout: float
    roster: Roster

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """What the plan's options say, or the defaults."""
        given = plan.options
        return cls(
            gradients=str(given.get("gradients", "tensor")),
            averaging=str(given.get("averaging", "in-database")),
            update=str(given.get("update", "in-database")),
            update_rule=str(given.get("update-rule", "sgd")),
            accumulate=int(given.get("accumulate", 1)),
            barrier_timeout=float(given.get("barrier-timeout", 500.0)),
            roster=Roster.of(plan.workers, given),
        )

    def check(self) -> None:
        """PlanError if an option's value makes no sense."""
        if self.accumulate < 1:
            raise PlanError(f"accumulate is {self.accumulate}.", "it counts the parts of a minibatch: 1 or more.")
        if not self.barrier_timeout > 0:
            raise PlanError(f"barrier-timeout is {self.barrier_timeout}.", "give seconds, more than 0.")


@dataclass(frozen=True)
class Execution:
    """The input of a peer's execution: one epoch of one peer, and what starts the next (protocol reference 2.2)."""

    plan: Plan
    bucket: str
    rank: int
    epoch: int
    machine: str

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> Self:
        """Read it out of a Lambda event."""
        return cls(**{**event["input"], "plan": Plan.from_document(event["input"]["plan"])})

    def to_input(self) -> dict[str, Any]:
        """The execution's input."""
        return {
            "plan": self.plan.to_document(),
            "bucket": self.bucket,
            "rank": self.rank,
            "epoch": self.epoch,
            "machine": self.machine,
        }

    def following(self) -> "Execution":
        """The same peer's next epoch."""
        return Execution(self.plan, self.bucket, self.rank, self.epoch + 1, self.machine)

    @property
    def name(self) -> str:
        """The execution's name, by which the driver follows a peer."""
        return execution_name(self.plan, self.rank, self.epoch)


def execution_name(plan: Plan, rank: int, epoch: int) -> str:
    """Name of a peer's execution; AWS allows 80 characters."""
    return f"{plan.run[:60]}-p{rank}-e{epoch}"


class Keys:
    """Names in a peer's database, below the run's own prefix."""

    def __init__(self, plan: Plan) -> None:
        self.prefix = f"{plan.run}:"
        self.parameters = f"{plan.run}:params"
        self.velocity = f"{plan.run}:velocity"
        self.private_key = f"{plan.run}:private_key"
        self.public_key = f"{plan.run}:public_key"
        self.trusted = f"{plan.run}:trusted_peers"
        self.first_epochs = f"{plan.run}:first_epochs"
        self.given = f"{plan.run}:given"
        self.admission = f"{plan.run}:admission"
        self.requests = f"{plan.run}:requests"
        self.seen = f"{plan.run}:nonces_seen"
        self.inactive = f"{plan.run}:inactive"
        self.early_stop = f"{plan.run}:earlystop"
        self.lineage = f"{plan.run}:lineage"
        self._run = plan.run

    def gradient(self, epoch: int, batch: int) -> str:
        """A minibatch's gradient."""
        return f"{self._run}:gradient_{epoch}_{batch}"

    def buffers(self, epoch: int) -> str:
        """The peer's buffers at the beginning of an epoch."""
        return f"{self._run}:buffers_{epoch}"

    def json_gradients(self, epoch: int) -> str:
        """The list of the minibatches' gradients as JSON texts, as released."""
        return f"{self._run}:gradients_{epoch}"

    def batch_buffers(self, epoch: int, batch: int) -> str:
        """The buffers (BatchNorm statistics) that a minibatch left."""
        return f"{self._run}:batch_buffers_{epoch}_{batch}"

    def average(self, epoch: int) -> str:
        """The peer's average."""
        return f"{self._run}:averaged_gradient_{epoch}"

    def aggregate(self, epoch: int) -> str:
        """The aggregate over all peers."""
        return f"{self._run}:aggregated_gradient_{epoch}"

    def losses(self, epoch: int) -> str:
        """A hash of losses by minibatch."""
        return f"{self._run}:losses_{epoch}"

    def active(self, epoch: int) -> str:
        """Ranks whose averages are aggregated in this epoch."""
        return f"{self._run}:active_{epoch}"

    def lineages(self, epoch: int) -> str:
        """What the peers announced of their parameters at this epoch's barrier, by rank."""
        return f"{self._run}:lineages_{epoch}"

    def of_epoch(self, epoch: int) -> tuple[str, ...]:
        """What nobody needs of an epoch once all peers are at the barrier of the next."""
        names = (self.average, self.aggregate, self.active, self.lineages, self.buffers)
        return tuple(name(epoch) for name in names)


def waiting_queue(plan: Plan, rank: int) -> str:
    """Where a peer is sent requests to join."""
    return scoped(plan.run, f"waiting{rank}")


def password_queue(plan: Plan, rank: int) -> str:
    """Where a peer is sent the others' passwords."""
    return scoped(plan.run, f"password{rank}")
