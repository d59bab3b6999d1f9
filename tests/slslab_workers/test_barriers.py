"""Barriers under duplicates, late messages, deaths and purges: what the released one loses, the other keeps."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from tests.slslab_workers.conftest import Client, Connect

from slslab.metrics import protocol
from slslab_workers.barriers import Barrier, CountedBarrier, prepare_epoch, remove_epoch
from slslab_workers.queues import NoQueue

RANKS = range(4)
ALL = set(RANKS)
PATIENCE_S = 20.0
SHORT_S = 0.2


def ready(connect: Connect, run: str) -> list[tuple[Client, Barrier]]:
    """Every participant's side, epoch 0 prepared by the driver."""
    prepare_epoch(connect(-1).queues, run, 0, RANKS)
    clients = [connect(rank) for rank in RANKS]
    return [(client, Barrier(client.queues, run, rank)) for rank, client in enumerate(clients)]


def arrive(barrier: Barrier, epoch: int) -> None:
    """What everyone does on reaching the barrier."""
    barrier.prepare(epoch + 1)
    barrier.announce(epoch, {"from": barrier.rank, "epoch": epoch})


def payloads(epoch: int, ranks: Any = RANKS) -> dict[int, dict[str, int]]:
    """What a wait returns if these have arrived."""
    return {rank: {"from": rank, "epoch": epoch} for rank in ranks}


def counts(participants: list[tuple[Client, Barrier]]) -> Any:
    """Publishes and deliveries of the protocol."""
    return protocol([event for client, _ in participants for event in client.events])["counts"]


def test_nobody_passes_before_all_have_arrived_whatever_the_delays(connect: Connect, run: str) -> None:
    participants, epochs = ready(connect, run), range(4)
    arrived = {(epoch, rank): Event() for epoch in epochs for rank in RANKS}

    def participate(rank: int) -> None:
        barrier, delays = participants[rank][1], random.Random(rank)
        for epoch in epochs:
            # One is ten times as slow as the others, each time another.
            time.sleep(delays.random() * (0.05 if rank == epoch else 0.005))
            arrived[epoch, rank].set()
            arrive(barrier, epoch)
            assert barrier.wait(epoch, ALL, PATIENCE_S) == payloads(epoch)
            assert all(arrived[epoch, other].is_set() for other in RANKS)
            barrier.discard(epoch)

    with ThreadPoolExecutor(len(RANKS)) as pool:
        list(pool.map(participate, RANKS))
    # n publishes and n² deliveries an epoch.
    assert counts(participants) == {"queue.publish": 4 * 4, "queue.deliver": 16 * 4}


def test_duplicates_neither_stand_for_others_nor_count(connect: Connect, run: str) -> None:
    participants = ready(connect, run)
    (client, first), (_, second), (_, third), (_, fourth) = participants
    for barrier in (first, second, second, second, third, third):
        arrive(barrier, 0)
    assert first.wait(0, ALL, SHORT_S) == payloads(0, (0, 1, 2))
    arrive(fourth, 0)
    for barrier in (first, second, third, fourth):
        assert barrier.wait(0, ALL, PATIENCE_S) == payloads(0)
    assert counts(participants)["queue.deliver"] == 16
    assert sum(event["overhead"] for event in client.told("queue.deliver")) == 3


def test_an_early_message_of_the_next_epoch_waits_for_it(connect: Connect, run: str) -> None:
    participants = ready(connect, run)
    barriers = [barrier for _, barrier in participants]
    for barrier in barriers:
        arrive(barrier, 0)
    # All but one go through the next epoch's work before that one has even looked.
    for barrier in barriers[:3]:
        assert barrier.wait(0, ALL, PATIENCE_S) == payloads(0)
        barrier.discard(0)
        arrive(barrier, 1)
    assert barriers[3].wait(0, ALL, PATIENCE_S) == payloads(0)
    arrive(barriers[3], 1)
    for barrier in barriers:
        assert barrier.wait(1, ALL, PATIENCE_S) == payloads(1)


def test_a_dead_participant_is_dropped_after_the_time_out(connect: Connect, run: str) -> None:
    participants = ready(connect, run)
    alive = [barrier for _, barrier in participants[:3]]
    for barrier in alive:
        arrive(barrier, 0)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda barrier: barrier.wait(0, ALL, SHORT_S), alive))
    assert found == [payloads(0, range(3))] * 3
    for barrier in alive:
        arrive(barrier, 1)
    for barrier in alive:
        assert barrier.wait(1, {0, 1, 2}, PATIENCE_S) == payloads(1, range(3))
    assert counts(participants) == {"queue.publish": 6, "queue.deliver": 18}


def test_a_participant_that_was_dropped_comes_back_and_has_missed_nothing(connect: Connect, run: str) -> None:
    barriers = [barrier for _, barrier in ready(connect, run)]
    late = barriers.pop()
    for barrier in barriers:
        arrive(barrier, 0)
    for barrier in barriers:
        assert barrier.wait(0, ALL, SHORT_S) == payloads(0, range(3))
    for barrier in barriers:
        barrier.discard(0)
        arrive(barrier, 1)
    # The others have left the epoch: what it announces there reaches nobody else and disturbs nobody.
    arrive(late, 0)
    assert late.wait(0, ALL, PATIENCE_S) == payloads(0)
    arrive(late, 1)
    for barrier in (*barriers, late):
        assert barrier.wait(1, ALL, PATIENCE_S) == payloads(1)


def test_a_wait_that_is_not_the_last_prepares_nothing(connect: Connect, run: str) -> None:
    (client, first), (_, second), *_ = ready(connect, run)
    arrive(first, 0)
    arrive(second, 0)
    declared = len(client.told("queue.declare"))
    for _ in range(2):
        assert first.wait(0, ALL, SHORT_S, last=False) == payloads(0, range(2))
    assert len(client.told("queue.declare")) == declared
    assert first.wait(0, ALL, 0.0) == payloads(0, range(2))
    assert len(client.told("queue.declare")) == declared + 2


def test_a_participant_that_died_and_is_invoked_again_hears_all_again(connect: Connect, run: str) -> None:
    participants = ready(connect, run)
    for _, barrier in participants:
        arrive(barrier, 0)
    client, barrier = participants[0]
    assert barrier.wait(0, ALL, PATIENCE_S) == payloads(0)
    assert barrier.wait(0, ALL, PATIENCE_S) == payloads(0)
    client.queues.close()
    again = Barrier(connect(0).queues, run, 0)
    assert again.wait(0, ALL, PATIENCE_S) == payloads(0)


def test_nothing_is_left_of_a_removed_epoch(connect: Connect, run: str) -> None:
    (client, barrier), *_ = ready(connect, run)
    arrive(barrier, 0)
    remove_epoch(client.queues, run, 0, RANKS)
    with pytest.raises(NoQueue):
        barrier.announce(0, {})
    with pytest.raises(NoQueue):
        barrier.wait(0, ALL, SHORT_S)


def counted(connect: Connect, run: str) -> list[tuple[Client, CountedBarrier]]:
    """The released barrier's sides."""
    sides = [(client, CountedBarrier(client.queues, run, rank)) for rank, client in enumerate(map(connect, RANKS))]
    sides[0][1].prepare(0)
    return sides


def test_the_released_barrier_counts_and_delivers_nothing(connect: Connect, run: str) -> None:
    participants = counted(connect, run)
    for epoch in range(2):
        for _, barrier in participants:
            barrier.announce(epoch, {"lost": True})
        for _, barrier in participants:
            assert barrier.wait(epoch, ALL, PATIENCE_S) == {rank: {} for rank in RANKS}
        for _, barrier in participants:
            barrier.discard(epoch)
    events = [event for client, _ in participants for event in client.events]
    assert protocol(events)["counts"] == {"queue.publish": 8}


def test_the_released_barrier_sleeps_a_second_between_counts(connect: Connect, run: str) -> None:
    slept: list[float] = []
    client = connect(0)
    barrier = CountedBarrier(client.queues, run, 0)
    barrier.prepare(0)

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        barrier.announce(0, {})

    client.queues._sleep = sleep
    assert barrier.wait(0, {0, 1}, PATIENCE_S) == {0: {}, 1: {}}
    assert slept == [1.0, 1.0]


def test_race_a_peer_that_comes_after_the_purge_waits_in_vain(connect: Connect, run: str) -> None:
    released = [barrier for _, barrier in counted(connect, run)]
    for counted_barrier in released:
        counted_barrier.announce(0, {})
    assert released[0].wait(0, ALL, PATIENCE_S).keys() == ALL
    released[0].discard(0)
    assert released[3].wait(0, ALL, SHORT_S) == {3: {}}

    barriers = [barrier for _, barrier in ready(connect, run)]
    for barrier in barriers:
        arrive(barrier, 0)
    assert barriers[0].wait(0, ALL, PATIENCE_S).keys() == ALL
    barriers[0].discard(0)
    assert barriers[3].wait(0, ALL, PATIENCE_S) == payloads(0)


def test_race_a_message_that_comes_before_the_purge_is_lost(connect: Connect, run: str) -> None:
    released = [barrier for _, barrier in counted(connect, run)]
    for counted_barrier in released:
        counted_barrier.announce(0, {})
    for counted_barrier in released:
        assert counted_barrier.wait(0, ALL, PATIENCE_S).keys() == ALL
    released[3].announce(1, {})
    released[0].discard(0)
    for counted_barrier in released[:3]:
        counted_barrier.announce(1, {})
    assert released[0].wait(1, ALL, SHORT_S) == {0: {}}

    barriers = [barrier for _, barrier in ready(connect, run)]
    for barrier in barriers:
        arrive(barrier, 0)
    for barrier in barriers:
        assert barrier.wait(0, ALL, PATIENCE_S).keys() == ALL
    arrive(barriers[3], 1)
    for barrier in barriers:
        barrier.discard(0)
    for barrier in barriers[:3]:
        arrive(barrier, 1)
    assert barriers[0].wait(1, ALL, PATIENCE_S) == payloads(1)


def test_race_a_duplicate_stands_for_a_peer_that_has_not_come(connect: Connect, run: str) -> None:
    released = [barrier for _, barrier in counted(connect, run)]
    for counted_barrier in (*released[:3], released[2]):
        counted_barrier.announce(0, {})
    assert 3 in released[0].wait(0, ALL, PATIENCE_S)

    barriers = [barrier for _, barrier in ready(connect, run)]
    for barrier in (*barriers[:3], barriers[2]):
        arrive(barrier, 0)
    assert barriers[0].wait(0, ALL, SHORT_S) == payloads(0, range(3))
