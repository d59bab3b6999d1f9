"""The names of SPIRT's tensors and queues, and the input of an execution."""

from dataclasses import dataclass

from slslab_workers.channels.queues import scoped
from slslab_workers.plan import InvocationInput, Plan

# A peer has failed if it doesn't answer three pings in a row, a second apart (docs/protocols.md, "SPIRT").
PINGS = 3
PING_INTERVAL_S = 1.0
# The part of a function's time-out that it doesn't wait for other peers.
RESERVE_S = 5.0


@dataclass(frozen=True)
class Execution(InvocationInput):
    """The input of an execution: one epoch of one peer, and what starts the next (docs/protocols.md, "SPIRT")."""

    bucket: str
    rank: int
    epoch: int
    machine: str

    @property
    def name(self) -> str:
        """Return the execution's name, which the driver follows; AWS allows 80 characters."""
        return f"{self.plan.run[:60]}-p{self.rank}-e{self.epoch}"


class Keys:
    """Names in a peer's database, below the run's prefix."""

    def __init__(self, plan: Plan) -> None:
        self.prefix = f"{plan.run}:"
        self.parameters = f"{plan.run}:params"
        self.velocity = f"{plan.run}:velocity"
        self.private_key = f"{plan.run}:private_key"
        self.public_key = f"{plan.run}:public_key"
        self.trusted = f"{plan.run}:trusted_peers"
        self.first_epochs = f"{plan.run}:first_epochs"
        self.model_epoch = f"{plan.run}:given"
        self.admission = f"{plan.run}:admission"
        self.requests = f"{plan.run}:requests"
        self.seen = f"{plan.run}:nonces_seen"
        self.inactive = f"{plan.run}:inactive"
        self.early_stop = f"{plan.run}:earlystop"
        self.lineage = f"{plan.run}:lineage"

    def gradient(self, epoch: int, batch: int) -> str:
        """Return the key of a minibatch's gradient."""
        return f"{self.prefix}gradient_{epoch}_{batch}"

    def buffers(self, epoch: int) -> str:
        """Return the key of the peer's buffers at the beginning of an epoch."""
        return f"{self.prefix}buffers_{epoch}"

    def json_gradients(self, epoch: int) -> str:
        """Return the key of the list of the minibatches' gradients as JSON texts, as released."""
        return f"{self.prefix}gradients_{epoch}"

    def batch_buffers(self, epoch: int, batch: int) -> str:
        """Return the key of the buffers (BatchNorm statistics) after a minibatch."""
        return f"{self.prefix}batch_buffers_{epoch}_{batch}"

    def average(self, epoch: int) -> str:
        """Return the key of the peer's average."""
        return f"{self.prefix}averaged_gradient_{epoch}"

    def aggregate(self, epoch: int) -> str:
        """Return the key of the aggregate over all peers."""
        return f"{self.prefix}aggregated_gradient_{epoch}"

    def received(self, epoch: int, rank: int) -> str:
        """Return the key of another peer's average, copied for a rule that runs in the database."""
        return f"{self.prefix}received_{epoch}_{rank}"

    def losses(self, epoch: int) -> str:
        """Return the key of a hash of losses by minibatch."""
        return f"{self.prefix}losses_{epoch}"

    def active(self, epoch: int) -> str:
        """Return the key of the active ranks, which are aggregated in this epoch."""
        return f"{self.prefix}active_{epoch}"

    def lineages(self, epoch: int) -> str:
        """Return the key of the lineages that the peers announced at this epoch's barrier, by rank."""
        return f"{self.prefix}lineages_{epoch}"

    def of_epoch(self, epoch: int) -> tuple[str, ...]:
        """Return the keys that aren't needed once all peers are at the next epoch's barrier."""
        return tuple(name(epoch) for name in (self.average, self.aggregate, self.active, self.lineages, self.buffers))


def waiting_queue(plan: Plan, rank: int) -> str:
    """Return the queue for requests to join that are sent to a peer."""
    return scoped(plan.run, f"waiting{rank}")


def password_queue(plan: Plan, rank: int) -> str:
    """Return the queue for the database passwords that other peers send this one."""
    return scoped(plan.run, f"password{rank}")
