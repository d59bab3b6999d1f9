"""Read rows of features with two classes: a shipped data set, two generated ones, and files in LIBSVM's format.

Rows are float32 (N, D), dense or sparse; labels are int64 (N,), 0 or 1. Importing this module does not import torch.
"""

import math
from array import array
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slslab_workers.plan import PlanError
from slslab_workers.training.datasets import Dataset, Labels, Report, Source, read_file, split, standardised
from slslab_workers.training.sparse_rows import SparseRows

Rows = NDArray[np.float32] | SparseRows
# Features (569, 30) float32 and labels (569,) uint8; breast_cancer.md names their source.
BREAST_CANCER = Path(__file__).with_name("breast_cancer.npz")
# The number of features of HIGGS (11 M × 28; Jiang et al. 2021).
HIGGS_FEATURES = 28
# Standard deviation of a generated row's log odds. With it, no model's loss is below 0.64. For comparison: logistic
# regression on HIGGS converged at 0.68 (Jiang et al. 2021), and guessing gives ln 2 = 0.693.
HIGGS_LOG_ODDS = 0.68
# The features of RCV1 (697 K × 47,236; Jiang et al. 2021), and roughly the entries of one of its rows.
RCV1_FEATURES, RCV1_ENTRIES = 47_236, 73
# Assumed: the k-th most frequent feature is in a share of rows proportional to 1 ÷ (k + RCV1_OFFSET), by the
# Zipf-Mandelbrot law. The most frequent feature is then in a fifth of all rows.
RCV1_OFFSET = 50
# Rows of a file stay sparse if the share of numbers that aren't zero is smaller than this.
SPARSE_SHARE = 0.1
# The largest size of a dense array from a file, bytes, and the largest index.
MOST_BYTES = 4 << 30
MOST_FEATURES = 100_000_000
# The length of a line with a million entries. Without a limit, a file without line breaks would be read whole.
LONGEST_LINE = 16 << 20
FORMAT_HINT = f"a line is LABEL INDEX:VALUE INDEX:VALUE …, with indices that ascend, from 1 to {MOST_FEATURES:,}."


def libsvm(path: str) -> Source:
    """Return the rows of a file in LIBSVM's format; raise PlanError for a file that can't be used."""
    name, file = f"libsvm:{path}", Path(path).expanduser()
    rows, labels = read_file(name, file, parse_libsvm)
    is_sparse = len(rows.values) < SPARSE_SHARE * len(rows) * rows.width

    def read(*_: object) -> Dataset:
        """Return the rows: sparse ones unchanged, others standardised."""
        if is_sparse:
            train, test = split(labels, 5)
            return Dataset(name, rows[train], labels[train], rows[test], labels[test], None)
        if 4 * len(rows) * rows.width > MOST_BYTES:
            raise PlanError(
                f"{path} has {len(rows):,} rows of {rows.width:,} features, more than "
                f"{MOST_BYTES >> 30} GB as a dense array.",
                "use fewer rows.",
            )
        return standardised(name, rows.to_array(), labels)

    return Source((rows.width,), 2, read, sparse=is_sparse, files=(file,))


def _breast_cancer(*_: object) -> Dataset:
    """Read the shipped rows, which describe tumours."""
    with np.load(BREAST_CANCER) as arrays:
        return standardised("breast-cancer", arrays["features"], arrays["labels"].astype(np.int64))


def _higgs_shaped(samples: int, seed: int, _report: Report) -> Dataset:
    """Make rows with the width of HIGGS: features are normal, and the labels' log odds are linear in them."""
    generator = np.random.default_rng([seed, HIGGS_FEATURES])
    direction = generator.standard_normal(HIGGS_FEATURES)
    weights = HIGGS_LOG_ODDS * direction / np.linalg.norm(direction)

    def draw(count: int) -> tuple[Rows, Labels]:
        made = generator.standard_normal((count, HIGGS_FEATURES)).astype(np.float32)
        odds = 1 / (1 + np.exp(-(made @ weights)))
        return made, (generator.random(count) < odds).astype(np.int64)

    return Dataset("higgs-shaped", *draw(samples), *draw(max(samples // 5, 20)), None)


def _rcv1_shaped(samples: int, seed: int, _report: Report) -> Dataset:
    """Make rows as wide and as sparse as RCV1's, of length 1; the label is the side of a plane on which a row lies.

    The features are cut into one range per entry of a row. All ranges are equally likely, and a row has one feature of
    each.
    """
    generator = np.random.default_rng([seed, RCV1_FEATURES])
    weights = generator.standard_normal(RCV1_FEATURES, np.float32)
    ratio = 1 + RCV1_FEATURES / RCV1_OFFSET
    bounds = np.rint(RCV1_OFFSET * (ratio ** np.linspace(0, 1, RCV1_ENTRIES + 1) - 1)).astype(np.int64)

    def draw(count: int) -> tuple[Rows, Labels]:
        columns = generator.integers(bounds[:-1], bounds[1:], (count, RCV1_ENTRIES), np.uint32)
        values = 1 - generator.random((count, RCV1_ENTRIES), np.float32)
        values /= np.linalg.norm(values, axis=1, keepdims=True)
        side = np.einsum("ij,ij->i", values, weights[columns])
        lengths = np.full(count, RCV1_ENTRIES)
        return SparseRows.of(lengths, columns.ravel(), values.ravel(), RCV1_FEATURES), (side > 0).astype(np.int64)

    return Dataset("rcv1-shaped", *draw(samples), *draw(max(samples // 5, 20)), None)


def parse_libsvm(path: Path) -> tuple[SparseRows, Labels]:
    """Return a file's rows and labels; the smaller label becomes 0. PlanError names the wrong line."""
    lengths, indices = array("q"), array("I")
    labels, values = array("d"), array("f")
    number = 0
    with path.open(encoding="utf-8") as file:
        while line := file.readline(LONGEST_LINE):
            number += 1
            if len(line) == LONGEST_LINE:
                raise PlanError(f"{path}, line {number} has more than {LONGEST_LINE >> 20} MB.", FORMAT_HINT)
            words = line.partition("#")[0].split()
            if words:
                _parse_line(words, f"{path}, line {number}", labels, indices, values)
                lengths.append(len(words) - 1)
    classes = np.unique(labels)
    if len(classes) != 2:
        raise PlanError(
            f"{path} has {len(classes)} different labels.", "models of rows tell two classes apart, such as -1 and 1."
        )
    columns = np.frombuffer(indices, np.uint32) if indices else np.zeros(0, np.uint32)
    read = SparseRows.of(lengths, columns - 1, values, int(columns.max(initial=0)))
    return read, (np.array(labels) == classes[1]).astype(np.int64)


def _parse_line(
    words: list[str], where: str, labels: "array[float]", indices: "array[int]", values: "array[float]"
) -> None:
    last = 0
    for position, word in enumerate(words):
        index, _, value = word.rpartition(":")
        try:
            parsed = float(value)
            if position == 0:
                labels.append(float(word))
            elif last < int(index) <= MOST_FEATURES:
                last = int(index)
                indices.append(last)
                values.append(parsed)
                parsed = values[-1]
            else:
                raise ValueError
            if not math.isfinite(parsed):
                raise ValueError
        except ValueError:
            raise PlanError(f"{where}: {word[:40]!r} cannot be here.", FORMAT_HINT) from None


breast_cancer = Source((30,), 2, _breast_cancer, batches=(16, 7), files=(BREAST_CANCER,))
higgs_shaped = Source((HIGGS_FEATURES,), 2, _higgs_shaped)
rcv1_shaped = Source((RCV1_FEATURES,), 2, _rcv1_shaped, sparse=True)
