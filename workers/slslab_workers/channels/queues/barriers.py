"""A barrier between the peers of an epoch, over message queues.

Duplicates and late messages don't harm it, because every participant has its own queue for every epoch, bound to that
epoch's exchange. The driver prepares epoch 0, and each participant prepares epoch e + 1 before it announces e. So a
participant that has received all announcements of e knows that all queues of e + 1 exist before it announces e + 1.
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
    """Create these ranks' queues for an epoch, unless they exist."""
    for rank in ranks:
        queues.declare(_queue(run, epoch, rank))
        queues.bind(_queue(run, epoch, rank), _exchange(run, epoch))


def remove_epoch(queues: Queues, run: str, epoch: int, ranks: Iterable[int]) -> None:
    """Delete an epoch's remaining queues, and with them its exchange."""
    for rank in ranks:
        queues.delete(_queue(run, epoch, rank))


class Barrier:
    """One participant's side of a run's barriers, one per epoch.

    In every epoch: `prepare(epoch + 1)`, `announce(epoch, ...)`, `wait(epoch, ...)`, and `discard` finished epochs.
    With n participants an epoch has n publishes and n² deliveries. Messages are never acknowledged, so a participant
    that fails and is invoked again receives them all again.
    """

    def __init__(self, queues: Queues, run: str, rank: int) -> None:
        self._queues = queues
        self._run = run
        self.rank = rank
        self._announced: dict[int, dict[int, Payload]] = {}

    def prepare(self, epoch: int) -> None:
        """Create this participant's queue for an epoch."""
        prepare_epoch(self._queues, self._run, epoch, (self.rank,))

    def announce(self, epoch: int, payload: Payload) -> None:
        """Tell all participants, itself included, that it has reached the epoch's barrier; the payload becomes JSON."""
        body = json.dumps({"rank": self.rank, "payload": dict(payload)}).encode()
        self._queues.fan_out(_exchange(self._run, epoch), body, PHASE, overhead=False)

    def wait(
        self, epoch: int, expected: Collection[int], timeout_s: float = TIMEOUT_S, *, last: bool = True
    ) -> dict[int, Payload]:
        """Return payloads by rank once all expected ranks have announced, or after `timeout_s` the ones received.

        Each rank's first announcement counts, and a repeated wait continues where the last one ended. After the `last`
        wait, the next epoch's queue is prepared for each missing rank, so that it misses nothing of that epoch if it
        comes back.
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
        """Delete this participant's queue for an epoch that it won't wait for again."""
        remove_epoch(self._queues, self._run, epoch, (self.rank,))
        self._announced.pop(epoch, None)


def _queue(run: str, epoch: int, rank: int) -> str:
    return scoped(run, f"barrier.{rank}", epoch)


def _exchange(run: str, epoch: int) -> str:
    return scoped(run, "barrier", epoch)
