"""How gloo's ring adds vectors: which peer sends how much, and in which order numbers are added.

It follows gloo's `allreduce.cc` as PyTorch calls it. A vector has n chunks. First each chunk goes around the ring of n
peers, and every peer adds its own numbers. Chunk c begins at rank c - 1 and moves to the next lower rank each time, so
it is complete at rank c. Then the complete chunks go around. Each pass of a chunk is one message, so a peer sends 2 (n
- 1). gloo cuts messages into segments, which doesn't change sums.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# gloo's kMaxSegmentSize, and its minimum number of segments per chunk.
SEGMENT_BYTES, SEGMENTS = 1 << 20, 2
FLOAT_BYTES = 4


def messages(workers: int) -> int:
    """Return how many chunks one of `workers` peers sends."""
    return 2 * (workers - 1)


def sent_bytes(elements: int, workers: int, rank: int) -> int:
    """Return how many bytes of a float32 vector a peer sends: about 2 (n - 1) / n of it.

    It sends all chunks except its own, and then all except the previous rank's. Together all peers send 2 (n - 1) times
    the vector, to the byte.
    """
    kept = sum(_length(elements, workers, chunk % workers) for chunk in (rank, rank - 1))
    return FLOAT_BYTES * (2 * elements - kept)


def ranks_by_bytes(elements: int, workers: int) -> list[tuple[range, int]]:
    """Return ranges of ranks from 1 on that send equally many bytes, with these bytes."""
    # Chunks are full until the vector ends, and empty after that.
    last = elements // _chunk(elements, workers)
    borders = sorted({1, *(border for border in range(last, last + 3) if 1 < border < workers), workers})
    return [(range(begin, end), sent_bytes(elements, workers, begin)) for begin, end in pairwise(borders)]


def add_up(parts: Sequence["torch.Tensor"]) -> "torch.Tensor":
    """Return a new vector (P,): the sum of the ranks' vectors (P,), to the bit as gloo's ring computes it."""
    workers, total = len(parts), parts[0].clone()
    size = _chunk(total.numel(), workers)
    for chunk in range(workers):
        numbers = slice(chunk * size, (chunk + 1) * size)
        # Adding two numbers gives the same bits in either order.
        total[numbers] = parts[chunk - 1][numbers]
        for rank in range(chunk - 2, chunk - 1 - workers, -1):
            total[numbers] += parts[rank][numbers]
    return total


def _length(elements: int, workers: int, chunk: int) -> int:
    size = _chunk(elements, workers)
    return min((chunk + 1) * size, elements) - min(chunk * size, elements)


def _chunk(elements: int, workers: int) -> int:
    """Return the number of elements of a full chunk: equally many segments in all chunks, each up to SEGMENT_BYTES."""
    total = FLOAT_BYTES * elements
    of_chunk = max(SEGMENTS, _up(_up(total, SEGMENT_BYTES), workers))
    return of_chunk * _up(_up(total, of_chunk * workers), FLOAT_BYTES)


def _up(number: int, divisor: int) -> int:
    return -(-number // divisor)
