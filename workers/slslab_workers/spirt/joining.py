"""How a peer joins while others train: who admits it, when all agree that it takes part, and what it is handed.

A newcomer starts as every peer does and asks all others to admit it. At the barrier each peer announces whom it has
admitted and can reach. A peer that all who came to the barrier of epoch e announced takes part from epoch e + 1: all of
them received the same announcements, so they agree without another message. In e + 1 the lowest rank that took part in
e hands its model over and starts the newcomer's first execution. A peer that only some announced is announced again at
the next barrier.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace

from slslab_workers.channels.stream import Refused, Unreachable
from slslab_workers.spirt.peer import Peer

# Seconds that peers wait for the request of a newcomer that the plan lets join. Usually it is there already.
PATIENCE_S = 60.0


def may_be_admitted(peer: Peer, rank: int) -> bool:
    """Return whether this peer may admit that rank now: any rank until it has met the others, then those that the plan
    lets join.

    A peer that takes part is not admitted again, and one that failed does not come back.
    """
    first = peer.first_epochs()
    if rank in peer.failed():
        return False
    in_first_epoch = first.get(peer.rank, peer.epoch) >= peer.epoch
    return in_first_epoch or (rank in peer.roster.joins and rank not in first)


def reachable(peer: Peer) -> list[int]:
    """Return the peers that this one has admitted and whose password it knows."""
    return sorted(rank for rank, record in peer.trusted().items() if "password" in record)


def agree(peer: Peer, named: Mapping[int, Collection[int]]) -> None:
    """Admit, from the next epoch on, every peer that all others announced; `named` is by rank, of those at the barrier.

    A peer that asked early waits until the epoch in which the plan lets it join.
    """
    expected = set(peer.roster.active(peer.epoch + 1)) - peer.taking_part()
    for rank in expected.intersection(reachable(peer)):
        if all(rank in ranks for ranks in named.values()):
            peer.set_first_epoch(rank, peer.epoch + 1)


def newcomers(peer: Peer) -> list[int]:
    """Return the other peers whose first epoch this is; in the run's first epoch there are none."""
    first = peer.first_epochs()
    return sorted(rank for rank in peer.taking_part() - {peer.rank} if 0 < first[rank] == peer.epoch)


def hand_over(peer: Peer, ranks: Collection[int]) -> None:
    """Give these newcomers the model and start their first executions, if that is this peer's task.

    It is the task of the lowest rank that is alive and took part in the epoch before. Peers call this at the beginning
    of the epoch and again while they miss a newcomer at the barrier, in case that peer failed before it could.
    """
    before = [rank for rank in _earlier(peer) if rank in peer.taking_part()] if ranks else []
    if peer.rank in before and peer.first_alive(before) == peer.rank:
        for rank in ranks:
            _hand_model_to(peer, rank)


def put_off(peer: Peer, ranks: Collection[int], announced: Collection[int]) -> set[int]:
    """Return the newcomers among these that cannot come to this barrier, and forget that they take part.

    That is so when the peer whose task it was has come to the barrier without handing them the model: it did not know
    that they take part, since it knew of the failure of a peer that had not admitted them, and this peer did not.
    """
    if not ranks or min(_earlier(peer)) not in announced:
        return set()
    without_model = {rank for rank in ranks if not _has_model(peer, rank)}
    for rank in without_model:
        peer.database.command("HDEL", peer.keys.first_epochs, rank)
    return without_model


def _earlier(peer: Peer) -> list[int]:
    failed = peer.failed()
    return sorted(
        rank
        for rank, first in peer.first_epochs().items()
        if first < peer.epoch and (rank not in failed or failed[rank]["epoch"] == peer.epoch)
    )


def _has_model(peer: Peer, rank: int) -> bool:
    """Return whether some peer has begun to hand this newcomer the model for this epoch; True if the newcomer cannot be
    asked, since it has failed.

    Other peers may be an epoch ahead: a model for theirs does not bring the newcomer to this one.
    """
    try:
        model_epoch = peer.database_of(rank).command("GET", peer.keys.model_epoch)
    except (KeyError, Refused, Unreachable):
        return True
    return model_epoch is not None and int(model_epoch) <= peer.epoch


def _hand_model_to(peer: Peer, rank: int) -> None:
    """Copy parameters, velocity, buffers and what else a peer knows to a newcomer, and start it. It happens once: the
    peer that sets the newcomer's key `model_epoch` does it."""
    keys, database = peer.keys, peer.database
    if _has_model(peer, rank):
        return
    # All of it is read before this peer claims the task: the hand-over does not depend on its database from then on.
    vectors = [keys.parameters]
    vectors += [name for name in (keys.velocity, keys.buffers(peer.epoch)) if database.command("EXISTS", name)]
    tensors = {name: database.get(name, "other") for name in vectors}
    texts = {name: database.command("GET", name) for name in (keys.lineage, keys.early_stop)}
    first, failed = peer.first_epochs(), peer.failed()
    active = {other: first[other] for other in sorted(peer.taking_part())}
    try:
        newcomer = peer.database_of(rank)
        if newcomer.command("SET", keys.model_epoch, peer.epoch, "NX") is None:
            return
        for name, vector in tensors.items():
            newcomer.set(name, vector, "other")
        for name, text in texts.items():
            newcomer.command("SET", name, text)
        for other, record in failed.items():
            newcomer.command("HSET", keys.inactive, other, json.dumps(record))
            newcomer.command("HDEL", keys.trusted, other)
        for other, epoch in active.items():
            newcomer.command("HSET", keys.first_epochs, other, epoch)
    except (KeyError, Refused, Unreachable):
        return
    peer.start(replace(peer.execution, rank=rank))
