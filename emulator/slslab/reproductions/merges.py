"""KubeML's merge rounds by its pattern alone: how many there are in an epoch, and whether published times follow them.

The released code splits the documents among the functions, and each merges after every K minibatches of B samples.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from slslab.papers.paper import Paper

TABLE = "epochs"
# The numbers of functions over which the published seconds are means.
FUNCTIONS, FUNCTIONS_OF_ONE_MERGE = (2, 4), (2, 4, 8)


@dataclass(frozen=True)
class MergeFit:
    """Seconds of one merge round, one figure for all rows beside a constant of each minibatch, and relative errors."""

    seconds: float
    errors: tuple[float, ...]


def merges(documents: int, samples: int, functions: int, batch_size: int, steps: int) -> int:
    """Return the merge rounds of an epoch: those of the function with most documents; `steps` 0 merges once."""
    if not steps:
        return 1
    period = math.ceil(batch_size * steps / samples)
    return math.ceil(math.ceil(documents / functions) / period)


def fit_merges(paper: Paper) -> MergeFit:
    """Fit the published seconds as a constant for each minibatch, and one time for each merge round."""
    table = paper.table(TABLE)
    rows = [{**table.inputs_of(row), **row.published} for row in table.rows]
    rounds = [_rounds(row) for row in rows]
    sizes = sorted({int(row["batch_size"]) for row in rows})
    seconds = np.array([float(row["seconds"]) for row in rows])
    columns = [rounds, *([int(row["batch_size"]) == size for row in rows] for size in sizes)]
    # Relative errors, as everywhere on the page.
    matrix = np.array(columns, float).T / seconds[:, None]
    found = np.linalg.lstsq(matrix, np.ones(len(rows)), rcond=None)[0]
    return MergeFit(float(found[0]), tuple(float(error) for error in matrix @ found - 1))


def _rounds(row: Mapping[str, object]) -> float:
    """Return the merge rounds of all epochs, the mean over the numbers of functions."""
    documents, samples, epochs, batch, steps = (
        int(str(row[name])) for name in ("documents", "samples", "epochs", "batch_size", "steps")
    )
    functions: Sequence[int] = FUNCTIONS if steps else FUNCTIONS_OF_ONE_MERGE
    return epochs * fmean(merges(documents, samples, number, batch, steps) for number in functions)
