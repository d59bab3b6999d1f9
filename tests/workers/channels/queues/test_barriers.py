"""The barrier under duplicates, late messages, failures and returns."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from tests.workers.conftest import Client, Connect

from slslab.run.metrics import protocol
from slslab_workers.channels.queues import NoQueue
from slslab_workers.channels.queues.barriers import Barrier, prepare_epoch, remove_epoch

pytestmark = pytest.mark.server

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


def test_a_participant_that_waits_after_the_others_have_left_receives_all(connect: Connect, run: str) -> None:
    barriers = [barrier for _, barrier in ready(connect, run)]
    for barrier in barriers:
        arrive(barrier, 0)
    for barrier in barriers[:3]:
        assert barrier.wait(0, ALL, PATIENCE_S) == payloads(0)
        barrier.discard(0)
    assert barriers[3].wait(0, ALL, PATIENCE_S) == payloads(0)
