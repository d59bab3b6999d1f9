"""How a peer joins while others train.

A newcomer starts like every peer and asks all others to admit it. At the barrier each peer announces which peers it has
admitted and can reach. If every peer at the barrier of epoch e announces the newcomer, it takes part from epoch e + 1:
all peers received the same announcements, so they agree without another message. In e + 1 the lowest rank that took
part in e hands over its model and starts the newcomer's first execution. If only some announced the newcomer, they
announce it again at the next barrier.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace

from slslab_workers.channels.stream import Refused, Unreachable
from slslab_workers.spirt.peer import Peer

# How long peers wait for the request of a newcomer that may join, s. Usually it has already arrived.
PATIENCE_S = 60.0


def may_be_admitted(peer: Peer, rank: int) -> bool:
    """Return whether this peer may admit that rank now: any rank until it has met the others, later only ranks that may
    join.

    A peer that takes part is not admitted again, and a failed peer never returns.
    """
    first = peer.first_epochs()
    if rank in peer.failed():
        return False
    in_first_epoch = first.get(peer.rank, peer.epoch) >= peer.epoch
    return in_first_epoch or (rank in peer.roster.joins and rank not in first)


def reachable(peer: Peer) -> list[int]:
    """Return the peers that this peer has admitted and has the password of."""
    return sorted(rank for rank, record in peer.trusted().items() if "password" in record)


def agree(peer: Peer, named: Mapping[int, Collection[int]]) -> None:
    """Let peers that all others announced take part from the next epoch; `named` has the announcements by rank.

    A peer that asked early waits until the epoch in which the plan lets it join.
    """
    expected = set(peer.roster.active(peer.epoch + 1)) - peer.taking_part()
    for rank in expected.intersection(reachable(peer)):
        if all(rank in ranks for ranks in named.values()):
            peer.set_first_epoch(rank, peer.epoch + 1)


def newcomers(peer: Peer) -> list[int]:
    """Return the other peers that begin in this epoch; none in the run's first epoch."""
    first = peer.first_epochs()
    return sorted(rank for rank in peer.taking_part() - {peer.rank} if 0 < first[rank] == peer.epoch)


def hand_over(peer: Peer, ranks: Collection[int]) -> None:
    """Give these newcomers the model and start their first executions, if that is this peer's task.

    The task belongs to the lowest living rank that took part in the epoch before. Peers call this when the epoch
    begins, and again while they miss a newcomer at the barrier, in case the peer with the task failed.
    """
    before = [rank for rank in _earlier(peer) if rank in peer.taking_part()] if ranks else []
    if peer.rank in before and peer.first_alive(before) == peer.rank:
        for rank in ranks:
            _hand_model_to(peer, rank)


def put_off(peer: Peer, ranks: Collection[int], announced: Collection[int]) -> set[int]:
    """Return the newcomers among these that can't come to this barrier, and cancel their admission.

    A newcomer can't come if the peer with the task came to the barrier without handing over the model. That peer didn't
    know about the newcomer: it noticed the failure of a peer that hadn't admitted it, and this peer didn't.
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
    """Return whether some peer has begun to hand this newcomer the model for this epoch; True if the newcomer has
    failed.

    Other peers may be an epoch ahead. Their hand-over doesn't bring the newcomer to this epoch.
    """
    try:
        model_epoch = peer.database_of(rank).command("GET", peer.keys.model_epoch)
    except (KeyError, Refused, Unreachable):
        return True
    return model_epoch is not None and int(model_epoch) <= peer.epoch


def _hand_model_to(peer: Peer, rank: int) -> None:
    """Copy parameters, velocity, buffers and everything else a newcomer needs, and start it. Only the peer that sets
    the newcomer's key `model_epoch` does so."""
    keys, database = peer.keys, peer.database
    if _has_model(peer, rank):
        return
    # Read everything before claiming the task, so that the hand-over no longer depends on this peer's database.
    vectors = [keys.parameters]
    vectors += [name for name in (keys.velocity, keys.buffers(epoch=peer.epoch)) if database.command("EXISTS", name)]
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
