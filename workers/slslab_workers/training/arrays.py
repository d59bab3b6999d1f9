"""Read users' data sets: CSV files, NumPy's .npz files, and functions that return arrays.

Arrays are x and y, with a fixed fifth for test; or x_train, y_train, x_test, y_test. If x is uint8 (N, H, W) or
(N, C, H, W), it holds images. Other numbers are rows (N, D), which are standardised, or arrays of any other shape,
which stay unchanged. If y has floating-point numbers, they are standardised and predicted by regression; all other
values name classes. Importing this module does not import torch.
"""

import csv
import os
import sys
import zlib
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TextIO
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from slslab_workers.plan import PlanError
from slslab_workers.training.datasets import Dataset, Labels, Policy, Source, kept, read_file, split, standard

SPLIT = ("x_train", "y_train", "x_test", "y_test")
HINT = f"give x and y, or {', '.join(SPLIT)}: samples (N, ...) and labels (N,)."
LABEL = "FILE.csv:LABEL names the label's column, or counts it from 0; by default it is the last one"
ROW = "a row has features and a label, with commas between them."
REGRESSION = "for a regression, give FILE.csv:LABEL:regression."
Arrays = tuple[NDArray[Any], ...]


def csv_file(name: str) -> Source:
    """Return the rows of FILE.csv, FILE.csv:LABEL or FILE.csv:LABEL:regression; raise PlanError if that fails."""
    path, label, kind, *_ = [*name.split(":", 2), "", ""]
    if kind not in ("", "regression"):
        raise PlanError(f"{name} ends in {kind!r}.", REGRESSION)
    return _of_file(name, path, partial(_read_csv, label=label, regression=kind != ""))


def npz_file(name: str) -> Source:
    """Return the arrays of FILE.npz; raise PlanError if they can't be used."""
    return _of_file(name, name, _read_npz)


def function(name: str, value: str) -> Source:
    """Return the arrays of another package's "module:function"; raise PlanError if they can't be used."""
    made = load_object("data set", value)
    try:
        return _described(kept((name, made), lambda: arranged(name, made())))
    except PlanError:
        raise
    except Exception as error:  # another package's function may raise or return anything
        raise failed("data set", name, error) from error


def load_object(kind: str, value: str) -> Any:
    """Import "module:function" from an installed package or a file in this directory.

    Raise PlanError if it can't be imported.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return resolve_name(value)
    except Exception as error:  # another package's module may raise anything
        raise PlanError(
            f"The {kind} {value} can't be imported: {type(error).__name__}: {error}.",
            "give module:function, of an installed package or of a file in this directory.",
        ) from error


def failed(kind: str, name: str, error: Exception) -> PlanError:
    """Return the PlanError for another package's function that raised an error."""
    return PlanError(f"The {kind} {name} can't be made: {type(error).__name__}: {error}.", "correct its function.")


def _of_file(name: str, path: str, read: Callable[[Path], Any]) -> Source:
    file = Path(path).expanduser()
    return _described(read_file(name, file, lambda found: arranged(name, read(found))), file)


def _described(dataset: Dataset, *files: Path) -> Source:
    labels = np.concatenate([dataset.train_labels, dataset.test_labels])
    classes = 0 if labels.dtype.kind == "f" else int(labels.max()) + 1
    shape, samples = dataset.train_images.shape[1:], len(dataset.train_labels)
    return Source(shape, classes, lambda *_: dataset, samples=samples, files=files)


def arranged(name: str, made: Any) -> Dataset:
    """Return arrays as a data set: (x, y) or (x_train, y_train, x_test, y_test); PlanError says what is wrong."""
    if not isinstance(made, tuple | list) or len(made) not in (2, 4):
        raise PlanError(f"The data set {name} isn't two or four arrays.", HINT)
    inputs = [_inputs(name, x) for x in made[::2]]
    if len({x.dtype for x in inputs}) > 1:
        raise PlanError(
            f"{name} has samples of different types for training and for test.", "give both as uint8, or both as float."
        )
    labels, regression = _labels(name, [np.asarray(y) for y in made[1::2]])
    for x, y in zip(inputs, labels, strict=True):
        if len(x) != len(y) or not len(x) or x.shape[1:] != inputs[0].shape[1:]:
            raise PlanError(f"{name} has samples of shape {x.shape} and labels of shape {y.shape}.", HINT)
    if len(made) == 2:
        train, test = split(np.zeros(len(labels[0])) if regression else labels[0], 5)
        if not len(train):
            raise PlanError(
                f"The data set {name} has no sample left to train on, because a sample of each class is for test.",
                "give each class at least two samples.",
            )
        inputs, labels = ([part[train], part[test]] for part in (inputs[0], labels[0]))
    if regression:
        labels = standard(labels)
    policy = None
    if inputs[0].dtype == np.uint8:
        mean, std = (getattr(inputs[0], moment)((0, 2, 3)) / 255 for moment in ("mean", "std"))
        policy = Policy(tuple(map(float, mean)), tuple(map(float, np.where(std > 0, std, 1))), 0, False)
    elif inputs[0].ndim == 2:
        inputs = standard(inputs)
    return Dataset(name, inputs[0], labels[0], inputs[1], labels[1], policy)


def _inputs(name: str, x: Any) -> NDArray[Any]:
    """Return images (N, C, H, W) uint8, or float32 arrays."""
    try:
        found = np.asarray(x)
    except ValueError:
        found = np.empty(0, object)
    if found.dtype.kind not in "biuf":
        raise PlanError(f"The samples of {name} aren't numbers, or differ in size.", "give all of them the same size.")
    if found.ndim < 2:
        raise PlanError(f"The samples of {name} have the shape {found.shape}.", HINT)
    if found.dtype != np.uint8 or found.ndim not in (3, 4):
        bad = np.flatnonzero(~np.isfinite(found).reshape(len(found), -1).all(1))
        if len(bad):
            raise PlanError(
                f"Sample {bad[0]} of {name} is infinite or not a number, like {len(bad) - 1} others.",
                "leave these samples out, or fill in their values.",
            )
        return found.astype(np.float32)
    images = found if found.ndim == 4 else found[:, None]
    if images.shape[-1] in (1, 3) and images.shape[1] > 4:
        raise PlanError(
            f"The images of {name} have the shape {images.shape[1:]}, with the channels last.",
            "put them first: x.transpose(0, 3, 1, 2).",
        )
    return images


def _labels(name: str, parts: list[NDArray[Any]]) -> tuple[list[Labels], bool]:
    """Return the labels, and whether they are a regression's; classes are numbered in the order of their names."""
    if any(part.ndim != 1 for part in parts):
        raise PlanError(f"The labels of {name} have the shape {parts[0].shape}.", HINT)
    if any(part.dtype == object and not all(isinstance(label, str) for label in part) for part in parts):
        raise PlanError(
            f"The labels of {name} are objects, and not all of them are texts.",
            "give texts, or an array of numbers: y.astype(int), or y.astype(float) for a regression.",
        )
    together = np.concatenate(parts)
    if together.dtype.kind == "f":
        if not np.isfinite(together).all():
            raise PlanError(f"A label of {name} is infinite or not a number.", "leave these samples out.")
        return [part.astype(np.float64) for part in parts], True
    classes, numbers = np.unique(together, return_inverse=True)
    if len(classes) < 2 or len(classes) > max(20, len(together) // 2):
        raise PlanError(
            f"The labels of {name} have {len(classes)} different values in {len(together):,} samples.",
            f"{LABEL}; {REGRESSION}",
        )
    return np.split(numbers.astype(np.int64), np.cumsum([len(part) for part in parts])[:-1]), False


def _read_npz(path: Path) -> list[NDArray[Any]]:
    try:
        with path.open("rb") as file, np.load(file) as arrays:
            found = dict(arrays)
    except (BadZipFile, EOFError, TypeError, ValueError, zlib.error) as error:
        # NumPy saves arrays of different sizes as objects, which it doesn't load.
        raise PlanError(
            f"{path} holds arrays of objects, such as images of different sizes, or isn't a complete .npz file.", HINT
        ) from error
    names = ("x", "y") if "x" in found else SPLIT
    if missing := [name for name in names if name not in found]:
        raise PlanError(f"{path} has no array {missing[0]}, but {', '.join(found)}.", HINT)
    return [found[name] for name in names]


def _read_csv(path: Path, label: str, regression: bool) -> Arrays:
    """Return the rows of a file (N, D) float32, and their labels (N,): numbers, or the texts that name classes."""
    features, labels = array("f"), list[str]()
    with path.open(newline="", encoding="utf-8-sig") as file:
        names, width, column = list[str](), 0, 0
        for where, row in _rows(path, file):
            if not width:
                width = len(row)
                if width < 2:
                    raise PlanError(f"{where} has only one column.", ROW)
                names = [] if any(map(_is_number, row)) else [cell.strip() for cell in row]
                column = _column(path, label, names, width)
                if names:
                    continue
            if len(row) != width or not row[column].strip():
                raise PlanError(f"{where} has {len(row)} columns of {width}, or no label.", "complete or remove it.")
            labels.append(row.pop(column).strip())
            try:
                features.extend(map(float, row))
            except ValueError:
                wrong = next(cell for cell in row if not _is_number(cell))
                raise PlanError(
                    f"{where}: {wrong[:40]!r} is not a number.", f"features are numbers; {LABEL}."
                ) from None
    if not labels:
        raise PlanError(f"{path} has no rows.", ROW)
    return np.array(features, np.float32).reshape(len(labels), -1), _read_labels(path, labels, regression)


def _rows(path: Path, file: TextIO) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows of a CSV file that aren't empty, and where each ends; raise PlanError if one can't be read."""
    first = file.readline()
    file.seek(0)
    rows, until = csv.reader(file, delimiter=max(",;\t", key=first.count)), 0
    try:
        for row in rows:
            until = rows.line_num
            if row:
                yield f"{path}, line {until}", row
    except csv.Error as error:
        raise PlanError(f"{path}, line {until + 1}: {error}.", "close the quotes of this row.") from error


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _column(path: Path, label: str, names: list[str], width: int) -> int:
    """Return the index of the label's column; raise PlanError if no column has this name or number."""
    if label in names:
        return names.index(label)
    try:
        return range(width)[int(label or -1)]
    except (ValueError, IndexError):
        there = f"its columns are {', '.join(names)}" if names else f"it has no header, and {width} columns"
        raise PlanError(f"{path} has no column {label!r}.", f"{there}; {LABEL}.") from None


def _read_labels(path: Path, labels: list[str], regression: bool) -> NDArray[Any]:
    try:
        numbers = np.array(labels, np.float64)
    except ValueError:
        if regression:
            wrong = next(label for label in labels if not _is_number(label))
            raise PlanError(f"{path} has the label {wrong[:40]!r}, which is not a number.", f"{LABEL}.") from None
        return np.array(labels)
    if regression:
        return numbers
    whole = np.round(numbers)
    if not (whole == numbers).all():
        raise PlanError(f"The labels of {path} aren't whole numbers.", REGRESSION)
    return whole.astype(np.int64)
