"""Data sets of rows of features with two classes: one that is shipped, one that is made, and files in LIBSVM's format.

Rows are float32 (N, D), labels int64 (N,), 0 or 1. Importing this module does not import torch.
"""

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slslab_workers.plan import PlanError

Rows = NDArray[np.float32]
Labels = NDArray[np.int64]
# Features (569, 30) float32 and labels (569,) uint8; breast_cancer.md says where they are from.
BREAST_CANCER = Path(__file__).with_name("breast_cancer.npz")
LIBSVM = "libsvm:"
NAMES = ("breast-cancer", "higgs-shaped", "libsvm:FILE")
# As many features as HIGGS has (11 M × 28; Jiang et al. 2021).
HIGGS_FEATURES = 28
# Standard deviation of the log odds of a made row, with which no model's loss is below 0.64: logistic regression of
# HIGGS is said to have converged at 0.68 (Jiang et al. 2021), and knowing nothing is ln 2 = 0.693.
HIGGS_LOG_ODDS = 0.68
# What a dense array of a file may take.
MOST_BYTES = 4 << 30
FORMAT_HINT = "a line is LABEL INDEX:VALUE INDEX:VALUE …, with indices that ascend from 1."


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
        case _:
            return int(_read_libsvm(name)[0].shape[1])


def load(name: str, samples: int, seed: int) -> tuple[Rows, Labels, Rows, Labels]:
    """Return rows and labels for training, and those for tests; a generator makes as many as `samples` to train with,
    and a fifth more to test with. PlanError for a file that cannot be used."""
    match name:
        case "breast-cancer":
            with np.load(BREAST_CANCER) as arrays:
                found, labels = arrays["features"], arrays["labels"].astype(np.int64)
        case "higgs-shaped":
            return _higgs_shaped(samples, seed)
        case _:
            found, labels = _read_libsvm(name)
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


def _read_libsvm(name: str) -> tuple[Rows, Labels]:
    path = Path(name.removeprefix(LIBSVM)).expanduser()
    try:
        return _parse_libsvm(path, path.stat().st_mtime_ns)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text"
        raise PlanError(f"{path} cannot be read: {reason}.", "libsvm:FILE names a file in LIBSVM's format.") from error


# A plan is made from the same file that the run then reads.
@lru_cache(maxsize=1)
def _parse_libsvm(path: Path, _version: int) -> tuple[Rows, Labels]:
    """Return a file's rows, dense, and its labels, the smaller of the two being 0; PlanError names the line that is
    wrong."""
    lengths: list[int] = []
    labels: list[float] = []
    indices: list[int] = []
    values: list[float] = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            words = line.partition("#")[0].split()
            if words:
                _parse_line(words, f"{path}, line {number}", labels, indices, values)
                lengths.append(len(words) - 1)
    classes = np.unique(labels)
    if len(classes) != 2:
        raise PlanError(
            f"{path} has {len(classes)} different labels.", "models of rows tell two classes apart, such as -1 and 1."
        )
    width = max(indices, default=0)
    if 4 * len(labels) * width > MOST_BYTES:
        raise PlanError(
            f"{path} has {len(labels):,} rows of {width:,} features, more than {MOST_BYTES >> 30} GB as a dense array.",
            "use fewer rows.",
        )
    rows = np.zeros((len(labels), width), np.float32)
    rows[np.repeat(np.arange(len(labels)), lengths), np.array(indices, np.int64) - 1] = values
    return rows, (np.array(labels) == classes[1]).astype(np.int64)


def _parse_line(words: list[str], where: str, labels: list[float], indices: list[int], values: list[float]) -> None:
    last = 0
    for position, word in enumerate(words):
        index, _, value = word.rpartition(":")
        try:
            parsed = float(value)
            if position == 0:
                labels.append(float(word))
            elif int(index) > last:
                last = int(index)
                indices.append(last)
                values.append(parsed)
            else:
                raise ValueError
            if not np.isfinite(parsed):
                raise ValueError
        except ValueError:
            raise PlanError(f"{where}: {word[:40]!r} cannot be here.", FORMAT_HINT) from None
