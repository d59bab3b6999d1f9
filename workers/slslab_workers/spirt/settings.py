"""The names of SPIRT's tensors and queues, and the input of an execution."""

from dataclasses import dataclass
from functools import partial

from slslab_workers.channels.queues import scoped
from slslab_workers.plan import InvocationInput, Plan
from slslab_workers.training.keys import Key

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
        # The other names are functions of what stands in braces. A minibatch's gradient:
        self.gradient = partial(Key("{run}:gradient_{epoch}_{batch}"), plan)
        # The peer's buffers (BatchNorm statistics) at the beginning of an epoch, and after a minibatch.
        self.buffers = partial(Key("{run}:buffers_{epoch}"), plan)
        self.batch_buffers = partial(Key("{run}:batch_buffers_{epoch}_{batch}"), plan)
        # The list of the minibatches' gradients as JSON texts, as released.
        self.json_gradients = partial(Key("{run}:gradients_{epoch}"), plan)
        # The peer's average, and the aggregate over all peers.
        self.average = partial(Key("{run}:averaged_gradient_{epoch}"), plan)
        self.aggregate = partial(Key("{run}:aggregated_gradient_{epoch}"), plan)
        # Another peer's average, copied for a rule that runs in the database.
        self.received = partial(Key("{run}:received_{epoch}_{rank}"), plan)
        # A hash of losses by minibatch.
        self.losses = partial(Key("{run}:losses_{epoch}"), plan)
        # The active ranks, which are aggregated in this epoch.
        self.active = partial(Key("{run}:active_{epoch}"), plan)
        # The lineages that the peers announced at this epoch's barrier, by rank.
        self.lineages = partial(Key("{run}:lineages_{epoch}"), plan)


# The queue for requests to join that are sent to a peer.
waiting_queue = Key(scoped("{run}", "waiting{rank}"))
# The queue for the database passwords that other peers send a peer.
password_queue = Key(scoped("{run}", "password{rank}"))
