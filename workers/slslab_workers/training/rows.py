"""Data sets of rows of features with two classes: one that is shipped, two that are made, and files in LIBSVM's format.

Rows are float32 (N, D), or sparse ones, labels int64 (N,), 0 or 1. Importing this module does not import torch.
"""

import math
from array import array
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slslab_workers.plan import PlanError
from slslab_workers.training.sparse_rows import SparseRows

Rows = NDArray[np.float32] | SparseRows
Labels = NDArray[np.int64]
# Features (569, 30) float32 and labels (569,) uint8; breast_cancer.md says where they are from.
BREAST_CANCER = Path(__file__).with_name("breast_cancer.npz")
LIBSVM = "libsvm:"
NAMES = ("breast-cancer", "higgs-shaped", "rcv1-shaped", "libsvm:FILE")
# As many features as HIGGS has (11 M × 28; Jiang et al. 2021).
HIGGS_FEATURES = 28
# Standard deviation of the log odds of a made row, with which no model's loss is below 0.64: logistic regression of
# HIGGS is said to have converged at 0.68 (Jiang et al. 2021), and knowing nothing is ln 2 = 0.693.
HIGGS_LOG_ODDS = 0.68
# RCV1 (697 K × 47,236; Jiang et al. 2021), and about the entries of a row of it.
RCV1_FEATURES, RCV1_ENTRIES = 47_236, 73
# Assumed: the k-th most frequent of its features is in as many rows as 1 ÷ (k + this) (Zipf's law, as Mandelbrot has
# it), by which the first is in a fifth of all rows.
RCV1_OFFSET = 50
# Rows of a file of which a smaller share is not zero stay sparse.
SPARSE_SHARE = 0.1
# What a dense array of a file may take, and the largest index.
MOST_BYTES = 4 << 30
MOST_FEATURES = 100_000_000
# A line with a million entries; one without a line break would be read whole.
LONGEST_LINE = 16 << 20
FORMAT_HINT = f"a line is LABEL INDEX:VALUE INDEX:VALUE …, with indices that ascend, from 1 to {MOST_FEATURES:,}."


def are_in(name: str) -> bool:
    """Return whether this is the name of a data set of rows."""
    return name.startswith(LIBSVM) or name in NAMES


def features(name: str) -> int:
    """Return how many features a data set's rows have; PlanError for a file that cannot be used."""
    match name:
        case "breast-cancer":
            return 30
        case "higgs-shaped":
            return HIGGS_FEATURES
        case "rcv1-shaped":
            return RCV1_FEATURES
        case _:
            return _read_libsvm(name)[0].width


def are_sparse(name: str) -> bool:
    """Return whether a data set's rows are held sparse; PlanError for a file that cannot be used."""
    return name == "rcv1-shaped" or (name.startswith(LIBSVM) and _is_sparse(_read_libsvm(name)[0]))


def load(name: str, samples: int, seed: int) -> tuple[Rows, Labels, Rows, Labels]:
    """Return rows and labels for training, and those for tests; a generator makes as many as `samples` to train with,
    and a fifth more to test with. Sparse rows of a file are as they are, others are standardised. PlanError for a file
    that cannot be used."""
    match name:
        case "breast-cancer":
            with np.load(BREAST_CANCER) as arrays:
                found, labels = arrays["features"], arrays["labels"].astype(np.int64)
        case "higgs-shaped":
            return _higgs_shaped(samples, seed)
        case "rcv1-shaped":
            return _rcv1_shaped(samples, seed)
        case _:
            read, labels = _read_libsvm(name)
            if _is_sparse(read):
                train, test = split(labels, 5)
                return read[train], labels[train], read[test], labels[test]
            found = _dense(read, name)
    train, test = split(labels, 5)
    mean, scale = found[train].mean(0), found[train].std(0)
    # A feature that never changes says nothing.
    standard = ((found - mean) / np.where(scale > 0, scale, 1)).astype(np.float32)
    return standard[train], labels[train], standard[test], labels[test]


def split(labels: Labels, fraction: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return indices for training and test: every `fraction`-th sample of each class after one fixed shuffle tests."""
    order = np.random.default_rng(1797).permutation(len(labels))
    test = np.sort(np.concatenate([order[labels[order] == label][::fraction] for label in np.unique(labels)]))
    return np.setdiff1d(np.arange(len(labels)), test), test


def _higgs_shaped(samples: int, seed: int) -> tuple[Rows, Labels, Rows, Labels]:
    """Make rows of HIGGS's width: normal features, and labels whose log odds are linear in them."""
    generator = np.random.default_rng([seed, HIGGS_FEATURES])
    direction = generator.standard_normal(HIGGS_FEATURES)
    weights = HIGGS_LOG_ODDS * direction / np.linalg.norm(direction)

    def draw(count: int) -> tuple[Rows, Labels]:
        made = generator.standard_normal((count, HIGGS_FEATURES)).astype(np.float32)
        odds = 1 / (1 + np.exp(-(made @ weights)))
        return made, (generator.random(count) < odds).astype(np.int64)

    return *draw(samples), *draw(max(samples // 5, 20))


def _rcv1_shaped(samples: int, seed: int) -> tuple[Rows, Labels, Rows, Labels]:
    """Make rows as wide and as sparse as RCV1's, of length 1, and labels that say on which side of a plane they are.

    The features are cut into as many ranges as a row has entries, all of them as likely, and a row has one of each.
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

    return *draw(samples), *draw(max(samples // 5, 20))


def _is_sparse(rows: SparseRows) -> bool:
    return len(rows.values) < SPARSE_SHARE * len(rows) * rows.width


def _dense(rows: SparseRows, name: str) -> NDArray[np.float32]:
    if 4 * len(rows) * rows.width > MOST_BYTES:
        raise PlanError(
            f"{name.removeprefix(LIBSVM)} has {len(rows):,} rows of {rows.width:,} features, more than "
            f"{MOST_BYTES >> 30} GB as a dense array.",
            "use fewer rows.",
        )
    return rows.to_array()


def _read_libsvm(name: str) -> tuple[SparseRows, Labels]:
    path = Path(name.removeprefix(LIBSVM)).expanduser()
    try:
        return _parse_libsvm(path, path.stat().st_mtime_ns)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text"
        raise PlanError(f"{path} cannot be read: {reason}.", "libsvm:FILE names a file in LIBSVM's format.") from error


# A plan is made from the same file that the run then reads.
@lru_cache(maxsize=1)
def _parse_libsvm(path: Path, _version: int) -> tuple[SparseRows, Labels]:
    """Return a file's rows and its labels, the smaller of the two being 0; PlanError names the line that is wrong."""
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
