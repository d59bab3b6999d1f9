"""Which minibatch a worker reads, and when an epoch ends, while workers are removed. Imports no torch.

As in the original (docs/protocols.md, "MLLess"): of an epoch's M = n·b minibatches, worker i begins with number i. In
each step it advances by the number of workers in that step, modulo M. An epoch has ceil(M / workers) steps. Without
removals this is minibatch (step, rank) of `batches` steps.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Removal = tuple[int, int]


@dataclass(frozen=True)
class _Segment:
    """Steps `first` to `until` (None: no end), in which `workers` take part and an epoch has `length` steps.

    It begins in step `step` of `epoch`, when all workers together have read `taken` minibatches.
    """

    first: int
    until: int | None
    workers: int
    length: int
    epoch: int
    step: int
    taken: int

    def place(self, position: int) -> tuple[int, int]:
        epochs, step = divmod(self.step + position - self.first, self.length)
        return self.epoch + epochs, step


class Schedule:
    """The steps of a run with `workers` × `batches` minibatches an epoch, from which workers are removed.

    `removals` are (position, rank): the worker takes part in that step, counted from the start of the run, and is
    removed after it. An epoch that ends with this step keeps its length; every other epoch is as long as the remaining
    workers need.
    """

    def __init__(self, workers: int, batches: int, removals: Sequence[Sequence[int]] = ()) -> None:
        self._minibatches = workers * batches
        self._batches = batches
        self.removals: tuple[Removal, ...] = tuple((int(position), int(rank)) for position, rank in removals)
        gone = {rank for _, rank in self.removals}
        self.ranks = tuple(rank for rank in range(workers) if rank not in gone)
        self._segments = tuple(self._cut(workers))

    def after(self, position: int, rank: int) -> "Schedule":
        """Return the schedule with one more removal."""
        return Schedule(self._minibatches // self._batches, self._batches, (*self.removals, (position, rank)))

    def place(self, position: int) -> tuple[int, int]:
        """Return the epoch of a step of the run, and the step in it."""
        return self._segment(position).place(position)

    def start(self, epoch: int) -> int:
        """Return the step of the run at which an epoch begins if no more workers are removed."""
        for segment in self._segments:
            position = segment.first - segment.step + (epoch - segment.epoch) * segment.length
            if segment.until is None or position <= segment.until:
                break
        return position

    def actual(self, planned: int) -> int:
        """Return the real step for one that was planned with all workers: the same step of the same epoch."""
        epoch, step = divmod(planned, self._batches)
        return self.start(epoch) + step

    def minibatch(self, rank: int, position: int) -> int:
        """Return the number, 0 to M - 1, of the minibatch that a worker reads in a step."""
        segment = self._segment(position)
        return (rank + segment.taken + (position - segment.first) * segment.workers) % self._minibatches

    def _segment(self, position: int) -> _Segment:
        return next(segment for segment in self._segments if segment.until is None or position < segment.until)

    def _cut(self, workers: int) -> Iterator[_Segment]:
        first, epoch, step, taken = 0, 0, 0, 0
        for until in [*(position + 1 for position, _ in self.removals), None]:
            segment = _Segment(first, until, workers, math.ceil(self._minibatches / workers), epoch, step, taken)
            yield segment
            if until is not None:
                epoch, step = segment.place(until)
                taken += (until - first) * workers
                first, workers = until, workers - 1
