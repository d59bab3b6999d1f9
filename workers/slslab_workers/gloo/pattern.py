"""Messages and waits of IaaS peers, step by step (`instance.py`)."""

from dataclasses import replace

from slslab_workers.gloo import ring
from slslab_workers.patterns import (
    BUILD,
    CONNECT,
    MINIBATCH,
    PHASE,
    UPDATE,
    Activity,
    Pattern,
    Role,
    Signal,
    Workload,
    trainer,
)
from slslab_workers.trace.operations import ALL_REDUCE

ADDRESS, READY = Signal("address", each="run", key="{run}/rendezvous"), Signal("ready")
PART = Signal("part", key="{run}/gloo/e{epoch}_s{step}")
# All peers join an all-reduce before any of them gets the sum.
JOIN = Activity("join", "wait", needs=(READY,))


def pattern(workload: Workload) -> Pattern:
    """Return the pattern: rank 0 stores its address and the others get it; in each step all add up their gradients.

    Peers that send equally many bytes share a role.
    """
    workers, parameters = workload.workers, workload.parameters
    mean = Activity("reduce", PHASE, work=4 * parameters)
    if workers == 1:
        return Pattern(workload, (trainer(range(1), parameters, (mean, UPDATE), kind="instance"),))
    *fetch, compute = MINIBATCH

    def peer(ranks: range, sent: int, rendezvous: Activity) -> Role:
        reduce = Activity(ALL_REDUCE, PHASE, times=ring.messages(workers), bytes=sent, makes=(PART,), protocol=True)
        start = (CONNECT, rendezvous, BUILD)
        role = trainer(ranks, parameters, start=start, kind="instance")
        return replace(role, steps=((*fetch, replace(compute, makes=(READY,)), JOIN, reduce, mean, UPDATE),))

    first = Activity("object.put", "other", bytes=None, makes=(ADDRESS,))
    others = Activity("object.get", "other", bytes=None, needs=(ADDRESS,), polling="get")
    roles = (
        peer(range(1), ring.sent_bytes(parameters, workers, 0), first),
        *(peer(ranks, sent, others) for ranks, sent in ring.ranks_by_bytes(parameters, workers)),
    )
    return Pattern(workload, roles)
