"""How a peer joins while others train: who is admitted, when all agree that it takes part, and what it is handed.

A newcomer is born like any peer, and asks all others to be admitted. Everyone names at the barrier whom it has admitted
and can reach. Whoever was named by all who came to the barrier of epoch e takes part from epoch e + 1: all of them have
heard the same, so they agree without another message. In e + 1 the lowest rank that took part in e hands its model over
and starts the newcomer's first execution. Who was named by some only is named again at the next barrier.
"""

import json
from collections.abc import Collection, Mapping

from slslab_workers.spirt.peer import Peer
from slslab_workers.spirt.settings import Execution
from slslab_workers.tensors import TensorError, Unreachable

# How long peers wait, in s, for one that the plan has ask in this epoch. They usually find that it has asked.
PATIENCE_S = 60.0


def may_be_admitted(peer: Peer, rank: int) -> bool:
    """Whether this peer may admit that rank now: everyone until it has met the others, then whom the plan lets join.

    Nobody who takes part is admitted again, and nobody who died comes back.
    """
    first = peer.first_epochs()
    if rank in peer.dead():
        return False
    has_met = first.get(peer.rank, peer.epoch) < peer.epoch
    return not has_met or (rank in peer.settings.roster.joins and rank not in first)


def reachable(peer: Peer) -> list[int]:
    """The peers that this one has admitted, and whose password it knows."""
    return sorted(rank for rank, record in peer.trusted().items() if "password" in record)


def agree(peer: Peer, named: Mapping[int, Collection[int]]) -> None:
    """Have take part from the next epoch who was named by all; `named` is by rank, of those who came to the barrier.

    Whoever asked early waits until the epoch that the plan has it join in.
    """
    expected = set(peer.settings.roster.active(peer.epoch + 1)) - peer.taking_part()
    for rank in expected.intersection(reachable(peer)):
        if all(rank in ranks for ranks in named.values()):
            peer.take_in(rank, peer.epoch + 1)


def newcomers(peer: Peer) -> list[int]:
    """The other peers whose first epoch this is; nobody's is the run's first."""
    first = peer.first_epochs()
    return sorted(rank for rank in peer.taking_part() - {peer.rank} if 0 < first[rank] == peer.epoch)


def hand_over(peer: Peer, ranks: Collection[int]) -> None:
    """Give these newcomers the model and start their first executions, if that is this peer's task.

    It is the task of the lowest rank that lives and took part in the epoch before. Peers ask this at the beginning of
    the epoch and, should that one have died before it could, again while they miss a newcomer at the barrier.
    """
    before = [rank for rank in _earlier(peer) if rank in peer.taking_part()] if ranks else []
    if peer.rank in before and peer.first_alive(before) == peer.rank:
        for rank in ranks:
            _give(peer, rank)


def put_off(peer: Peer, ranks: Collection[int], heard: Collection[int]) -> set[int]:
    """The newcomers among these that cannot come to this barrier, and may be agreed about anew.

    Whose task it was has come without having handed them the model, so it has not known that they take part: it heard
    of the death of one who had not admitted them, and this peer did not.
    """
    if not ranks or min(_earlier(peer)) not in heard:
        return set()
    without_model = {rank for rank in ranks if not _has_been_given(peer, rank)}
    for rank in without_model:
        peer.database.command("HDEL", peer.keys.first_epochs, rank)
    return without_model


def _earlier(peer: Peer) -> list[int]:
    """Who took part in an earlier epoch and was not found dead before this one."""
    dead = peer.dead()
    return sorted(
        rank
        for rank, first in peer.first_epochs().items()
        if first < peer.epoch and (rank not in dead or dead[rank]["epoch"] == peer.epoch)
    )


def _has_been_given(peer: Peer, rank: int) -> bool:
    """Whether somebody has begun to hand this newcomer the model for this epoch; True if it cannot be asked, as one
    that died.

    Others may be an epoch ahead already: what they gave for theirs does not bring the newcomer to this one.
    """
    try:
        given = peer.database_of(rank).command("GET", peer.keys.given)
    except (KeyError, TensorError, Unreachable):
        return True
    return given is not None and int(given) <= peer.epoch


def _give(peer: Peer, rank: int) -> None:
    """Parameters, velocity, buffers, and what else a peer knows; once, whoever gives, as the newcomer's key tells: it
    has the epoch that they are for."""
    keys, own = peer.keys, peer.database
    if _has_been_given(peer, rank):
        return
    # All that is this peer's is read before it says that it gives: should its database die then, the rest is given.
    vectors = [keys.parameters]
    vectors += [name for name in (keys.velocity, keys.buffers(peer.epoch)) if own.command("EXISTS", name)]
    tensors = {name: own.get(name, "other") for name in vectors}
    texts = {name: own.command("GET", name) for name in (keys.lineage, keys.early_stop)}
    first, dead = peer.first_epochs(), peer.dead()
    living = {other: first[other] for other in sorted(peer.taking_part())}
    try:
        theirs = peer.database_of(rank)
        if theirs.command("SET", keys.given, peer.epoch, "NX") is None:
            return
        for name, vector in tensors.items():
            theirs.set(name, vector, "other")
        for name, text in texts.items():
            theirs.command("SET", name, text)
        for other, record in dead.items():
            theirs.command("HSET", keys.inactive, other, json.dumps(record))
            theirs.command("HDEL", keys.trusted, other)
        for other, epoch in living.items():
            theirs.command("HSET", keys.first_epochs, other, epoch)
    except (KeyError, TensorError, Unreachable):
        return
    execution = peer.execution
    peer.start(Execution(execution.plan, execution.bucket, rank, peer.epoch, execution.machine))
