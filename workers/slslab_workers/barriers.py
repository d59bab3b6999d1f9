"""Barriers between the peers of an epoch, over message queues.

`Barrier` is safe against duplicates, late messages and purges, because nothing in it is shared or used twice: every
participant has a queue of its own for every epoch, bound to that epoch's exchange. Everyone prepares epoch e + 1 before
it announces e; so whoever announces e + 1 has heard all of e, and with it that all queues of e + 1 are there. The
driver prepares epoch 0. `CountedBarrier` is SPIRT's as released, with the races of the protocol reference (2.3).
"""

import json
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from slslab_workers.queues import Queues, scoped

TIMEOUT_S = 500.0
COUNT_INTERVAL_S = 1.0
PHASE = "synchronise"
SHARED_QUEUE = "sync_queue"

Payload = Mapping[str, Any]


def prepare_epoch(queues: Queues, run: str, epoch: int, ranks: Iterable[int]) -> None:
    """Have the queues of these ranks at an epoch; nothing changes if they are there."""
    for rank in ranks:
        queues.declare(_queue(run, epoch, rank))
        queues.bind(_queue(run, epoch, rank), _exchange(run, epoch))


def remove_epoch(queues: Queues, run: str, epoch: int, ranks: Iterable[int]) -> None:
    """Delete what is left of an epoch's queues, and so its exchange."""
    for rank in ranks:
        queues.delete(_queue(run, epoch, rank))


class Barrier:
    """One participant's side of a run's barriers, one per epoch.

    In every epoch: `prepare(epoch + 1)`, `announce(epoch, ...)`, `wait(epoch, ...)`, and `discard` what nobody returns
    to. With n participants an epoch has n publishes and n² deliveries. Messages are never acknowledged: a participant
    that dies and is invoked again hears all of them again.
    """

    def __init__(self, queues: Queues, run: str, rank: int) -> None:
        self._queues = queues
        self._run = run
        self.rank = rank
        self._heard: dict[int, dict[int, Payload]] = {}

    def prepare(self, epoch: int) -> None:
        """Have this participant's queue of an epoch."""
        prepare_epoch(self._queues, self._run, epoch, (self.rank,))

    def announce(self, epoch: int, payload: Payload) -> None:
        """Tell everyone, this participant too, that it has reached the epoch's barrier; the payload goes as JSON."""
        body = json.dumps({"rank": self.rank, "payload": dict(payload)}).encode()
        self._queues.fan_out(_exchange(self._run, epoch), body, PHASE, overhead=False)

    def wait(
        self, epoch: int, expected: Collection[int], timeout_s: float = TIMEOUT_S, *, last: bool = True
    ) -> dict[int, Payload]:
        """Payloads by expected rank as soon as all have announced themselves; after `timeout_s`, of those who have.

        The first announcement of each rank counts, and a repeated wait goes on where the last one ended. For those who
        were silent at the end of the `last` wait, their queue of the next epoch is prepared: should they come back,
        they miss nothing of it.
        """
        heard = self._heard.setdefault(epoch, {})
        deadline = time.monotonic() + timeout_s
        while not heard.keys() >= set(expected):
            message = self._queues.consume(
                _queue(self._run, epoch, self.rank),
                max(0.0, deadline - time.monotonic()),
                PHASE,
                overhead=lambda body: json.loads(body)["rank"] in heard,
            )
            if message is None:
                if last:
                    prepare_epoch(self._queues, self._run, epoch + 1, sorted(set(expected) - heard.keys()))
                break
            announcement = json.loads(message.body)
            heard.setdefault(announcement["rank"], announcement["payload"])
        return {rank: heard[rank] for rank in sorted(heard.keys() & set(expected))}

    def discard(self, epoch: int) -> None:
        """Delete this participant's queue of an epoch, at which it will not wait again."""
        remove_epoch(self._queues, self._run, epoch, (self.rank,))
        self._heard.pop(epoch, None)


class CountedBarrier:
    """SPIRT's barrier as released: one queue for all epochs, whose messages are only counted; rank 0 purges it.

    Nobody can tell whose messages they are. So one that comes after the purge waits in vain, a message of the next
    epoch that is there before the purge is lost, and a duplicate stands for a peer that has not come.
    """

    def __init__(self, queues: Queues, run: str, rank: int) -> None:
        self._queues = queues
        self._queue = scoped(run, SHARED_QUEUE)
        self.rank = rank

    def prepare(self, epoch: int) -> None:  # noqa: ARG002 - one queue serves all epochs
        """Have the shared queue."""
        self._queues.declare(self._queue)

    def announce(self, epoch: int, payload: Payload) -> None:  # noqa: ARG002 - the released message names the rank alone
        """Add this participant's message; the payload is not sent."""
        self._queues.publish(self._queue, f"peer{self.rank} completed".encode(), PHASE, overhead=False)

    def wait(self, epoch: int, expected: Collection[int], timeout_s: float = TIMEOUT_S) -> dict[int, Payload]:  # noqa: ARG002
        """Everyone expected, without payloads, once there are as many messages; after `timeout_s` only this rank."""
        deadline = time.monotonic() + timeout_s
        while self._queues.count(self._queue, PHASE) < len(expected):
            left = deadline - time.monotonic()
            if left <= 0:
                return {self.rank: {}}
            self._queues.pause(min(COUNT_INTERVAL_S, left))
        return {rank: {} for rank in sorted(expected)}

    def discard(self, epoch: int) -> None:  # noqa: ARG002 - one queue serves all epochs
        """Purge the queue, if this is rank 0."""
        if self.rank == 0:
            self._queues.purge(self._queue)


def _queue(run: str, epoch: int, rank: int) -> str:
    return scoped(run, f"barrier.{rank}", epoch)


def _exchange(run: str, epoch: int) -> str:
    return scoped(run, "barrier", epoch)
