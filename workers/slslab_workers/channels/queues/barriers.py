"""A barrier between the peers of an epoch, over message queues.

It is safe against duplicates and late messages, because nothing in it is shared or used twice: every participant has a
queue of its own for every epoch, bound to that epoch's exchange. The driver prepares epoch 0, and each participant
prepares epoch e + 1 before it announces e; so a participant that has received all announcements of e, and goes on to
announce e + 1, knows that all queues of e + 1 are there.
"""

import json
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from slslab_workers.channels.queues import Queues, scoped

TIMEOUT_S = 500.0
PHASE = "synchronise"

Payload = Mapping[str, Any]


def prepare_epoch(queues: Queues, run: str, epoch: int, ranks: Iterable[int]) -> None:
    """Make the queues of these ranks at an epoch, unless they are there."""
    for rank in ranks:
        queues.declare(_queue(run, epoch, rank))
        queues.bind(_queue(run, epoch, rank), _exchange(run, epoch))


def remove_epoch(queues: Queues, run: str, epoch: int, ranks: Iterable[int]) -> None:
    """Delete what is left of an epoch's queues, and with them its exchange."""
    for rank in ranks:
        queues.delete(_queue(run, epoch, rank))


class Barrier:
    """One participant's side of a run's barriers, one per epoch.

    In every epoch: `prepare(epoch + 1)`, `announce(epoch, ...)`, `wait(epoch, ...)`, and `discard` the epochs that are
    over. With n participants an epoch has n publishes and n² deliveries. Messages are never acknowledged: a participant
    that fails and is invoked again receives all of them again.
    """

    def __init__(self, queues: Queues, run: str, rank: int) -> None:
        self._queues = queues
        self._run = run
        self.rank = rank
        self._announced: dict[int, dict[int, Payload]] = {}

    def prepare(self, epoch: int) -> None:
        """Make this participant's queue of an epoch."""
        prepare_epoch(self._queues, self._run, epoch, (self.rank,))

    def announce(self, epoch: int, payload: Payload) -> None:
        """Announce to everyone, itself included, that it has reached the epoch's barrier; the payload goes as JSON."""
        body = json.dumps({"rank": self.rank, "payload": dict(payload)}).encode()
        self._queues.fan_out(_exchange(self._run, epoch), body, PHASE, overhead=False)

    def wait(
        self, epoch: int, expected: Collection[int], timeout_s: float = TIMEOUT_S, *, last: bool = True
    ) -> dict[int, Payload]:
        """Return payloads by expected rank once all have announced; after `timeout_s`, of those that have.

        The first announcement of each rank counts, and a repeated wait goes on where the last one ended. At the end of
        the `last` wait, the next epoch's queue is prepared for each rank that has not announced: should it come back,
        it misses nothing of that epoch.
        """
        announced = self._announced.setdefault(epoch, {})
        deadline = time.monotonic() + timeout_s
        while not announced.keys() >= set(expected):
            message = self._queues.consume(
                _queue(self._run, epoch, self.rank),
                max(0.0, deadline - time.monotonic()),
                PHASE,
                overhead=lambda body: json.loads(body)["rank"] in announced,
            )
            if message is None:
                if last:
                    prepare_epoch(self._queues, self._run, epoch + 1, sorted(set(expected) - announced.keys()))
                break
            announcement = json.loads(message.body)
            announced.setdefault(announcement["rank"], announcement["payload"])
        return {rank: announced[rank] for rank in sorted(announced.keys() & set(expected))}

    def discard(self, epoch: int) -> None:
        """Delete this participant's queue of an epoch, for which it will not wait again."""
        remove_epoch(self._queues, self._run, epoch, (self.rank,))
        self._announced.pop(epoch, None)


def _queue(run: str, epoch: int, rank: int) -> str:
    return scoped(run, f"barrier.{rank}", epoch)


def _exchange(run: str, epoch: int) -> str:
    return scoped(run, "barrier", epoch)
