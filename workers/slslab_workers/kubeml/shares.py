"""Shares of the training data: documents of 64 samples, each function's documents, and the rounds of an epoch."""

from dataclasses import dataclass

from slslab_workers.option import Option
from slslab_workers.training.aggregation import chunk

DOCUMENT = 64
ALL = -1
K = Option(
    "k",
    int,
    ALL,
    "Local minibatches between two merges, K; -1 for a whole epoch, which is K = ∞ and best in the paper.",
)


def document_count(samples: int) -> int:
    """Return how many documents this many samples fill; the last may be short."""
    return -(-samples // DOCUMENT)


def share_of(documents: int, functions: int, function: int) -> range:
    """Return a function's documents, which are contiguous. The first (documents mod functions) get one more."""
    return range(documents)[chunk(documents, functions, function)]


def minibatches(samples: int, size: int) -> list[slice]:
    """Split samples into minibatches, in order; the last may be short."""
    return [slice(first, min(first + size, samples)) for first in range(0, samples, size)]


@dataclass(frozen=True)
class Epoch:
    """The shares of an epoch: functions, samples, samples a minibatch, and K, the minibatches between merges."""

    functions: int
    samples: int
    batch_size: int
    k: int

    @property
    def documents(self) -> int:
        """Return the number of training documents."""
        return document_count(self.samples)

    def intervals(self, function: int) -> list[range]:
        """Return a function's documents between merges, in order: ⌈B·K/64⌉ each time, or its whole share."""
        documents = share_of(self.documents, self.functions, function)
        period = len(documents) if self.k == ALL else document_count(self.batch_size * self.k)
        return [documents[first : first + period] for first in range(0, len(documents), max(1, period))]

    def steps(self, documents: range) -> int:
        """Return an interval's minibatches; the last is short if B doesn't divide it."""
        return -(-self.samples_of(documents) // self.batch_size)

    def samples_of(self, documents: range) -> int:
        """Return how many samples these documents contain."""
        return min(documents.stop * DOCUMENT, self.samples) - documents.start * DOCUMENT

    @property
    def rounds(self) -> list[list[int]]:
        """Return the functions that report in each round; each round ends with one merge."""
        each = [len(self.intervals(function)) for function in range(self.functions)]
        return [[function for function, count in enumerate(each) if count > number] for number in range(max(each))]
