"""Who trains with what: documents of 64 samples, each function's share of them, and the rounds of an epoch."""

from dataclasses import dataclass

from slslab_workers.option import Option

DOCUMENT = 64
ALL = -1
K = Option(
    "k",
    int,
    ALL,
    "Local minibatches between two merges, K; -1 for all of an epoch, which is the paper's K = ∞ and was its best.",
)


def document_count(samples: int) -> int:
    """Return how many documents hold so many samples; the last may be short."""
    return -(-samples // DOCUMENT)


def share_of(documents: int, functions: int, function: int) -> range:
    """Return a function's documents: contiguous, and one more for the first (documents mod functions) functions."""
    each, more = divmod(documents, functions)
    first = each * function + min(function, more)
    return range(first, first + each + (function < more))


def split(documents: int, functions: int) -> list[range]:
    """Return the documents of all functions."""
    return [share_of(documents, functions, function) for function in range(functions)]


def minibatches(samples: int, size: int) -> list[slice]:
    """Return the minibatches of so many samples in their order; the last may be short."""
    return [slice(first, min(first + size, samples)) for first in range(0, samples, size)]


@dataclass(frozen=True)
class Epoch:
    """Who trains with what in an epoch of so many functions, samples, samples a minibatch, and minibatches K."""

    functions: int
    samples: int
    batch_size: int
    k: int

    @property
    def documents(self) -> int:
        """Return how many documents are trained with."""
        return document_count(self.samples)

    def intervals(self, function: int) -> list[range]:
        """Return a function's documents between two merges, in order: ⌈B·K/64⌉ of them, or all of its share."""
        documents = share_of(self.documents, self.functions, function)
        period = len(documents) if self.k == ALL else document_count(self.batch_size * self.k)
        return [documents[first : first + period] for first in range(0, len(documents), max(1, period))]

    def steps(self, documents: range) -> int:
        """Return the minibatches of an interval: an interval that no multiple of B fills ends with a short one."""
        return -(-self.samples_of(documents) // self.batch_size)

    def samples_of(self, documents: range) -> int:
        """Return how many samples these documents hold."""
        return min(documents.stop * DOCUMENT, self.samples) - documents.start * DOCUMENT

    @property
    def rounds(self) -> list[list[int]]:
        """Return the functions that report in each round; one merge ends each."""
        each = [len(self.intervals(function)) for function in range(self.functions)]
        return [[function for function, count in enumerate(each) if count > number] for number in range(max(each))]
