"""Samples and labels: find data sets, partition them by seed, encode minibatches, and augment them in the worker.

Samples are images, sent and stored as uint8 (N, C, H, W); or rows of features, float32 (N, D), perhaps sparse; or other
float32 arrays. Labels are classes, int64 (N,), or the numbers of a regression, float32 (N,). All randomness comes from
seeds, so every architecture sees the same minibatches in the same order. Importing this module does not import torch.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from slslab_workers.models import ROW_MODELS, SIDE, SPECS, ModelSpec
from slslab_workers.plan import PlanError
from slslab_workers.training.sparse_rows import SparseRows

if TYPE_CHECKING:
    import torch

Images = NDArray[np.uint8]
T = TypeVar("T")
# Images or rows; rows may be sparse.
Inputs: TypeAlias = Any
# Classes, int64, or the numbers of a regression, float32.
Labels = NDArray[Any]


@dataclass(frozen=True)
class Policy:
    """How a data set's images become a model's inputs.

    Per-channel mean and standard deviation of values in 0..1, the padding of the random crop, and whether images may be
    mirrored (digits may not).
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    pad: int
    flip: bool


@dataclass(frozen=True)
class Dataset:
    """Training and test samples with labels (N,), int64 or float32.

    Images (N, C, H, W) uint8 have a policy. Rows (N, D) float32, perhaps sparse, and other float32 arrays have none:
    models take them unchanged.
    """

    name: str
    train_images: Inputs
    train_labels: Labels
    test_images: Inputs
    test_labels: Labels
    policy: Policy | None

    def for_model(self, spec: ModelSpec) -> "Dataset":
        """Return the samples in the shape that a model takes; raise PlanError if they don't fit.

        Grey images are repeated for each channel; colours are never dropped.
        """
        shape, policy = tuple(map(int, self.train_images.shape[1:])), self.policy
        check_shape(spec, self.name, shape)
        if spec.shape == shape:
            return self
        channels = spec.channels
        if policy is not None:
            policy = replace(policy, mean=policy.mean * channels, std=policy.std * channels)
        return replace(
            self,
            train_images=np.repeat(self.train_images, channels, axis=1),
            test_images=np.repeat(self.test_images, channels, axis=1),
            policy=policy,
        )


Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Source:
    """A data set before it is read.

    `shape` is a sample's shape, (C, H, W) or (D,), and `classes` the number of classes, 0 for a regression. `read`
    takes the number of training samples to generate, a seed, and a function that receives the progress. It raises
    PlanError for missing files; `check` does so before anything is deployed. `batches` are the usual batch size and
    number of minibatches. `samples` is the number of training samples, if that is known without reading. `sparse` rows
    stay sparse in memory. `files` are the files that an export needs to read the data set.
    """

    shape: tuple[int, ...]
    classes: int
    read: Callable[[int, int, Report], Dataset]
    check: Callable[[], object] = lambda: None
    batches: tuple[int, int] | None = None
    samples: int = 0
    sparse: bool = False
    files: tuple[Path, ...] = ()


def check_shape(spec: ModelSpec, dataset: str, shape: tuple[int, ...]) -> None:
    """Raise PlanError if a model can't take samples of this shape, even if grey images are repeated."""
    if shape != spec.shape and not (len(shape) == 3 and shape == (1, *spec.shape[1:])):
        raise PlanError(
            f"The model {spec.name} takes {_shaped(spec.shape)}, and {dataset} has {_shaped(shape)}.",
            f"choose {', '.join(ROW_MODELS)} for rows, {', '.join(SPECS)} for images of {SIDE} × {SIDE}, or a model of "
            "your own: --model module:function.",
        )


def _shaped(shape: tuple[int, ...]) -> str:
    kind = {1: "rows of {} features", 3: "images of {}"}.get(len(shape), "arrays of {}")
    return kind.format(" × ".join(map(str, shape)))


def split(labels: Labels, fraction: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return indices for training and test: after one fixed shuffle, every `fraction`-th of a class is for test."""
    order = np.random.default_rng(1797).permutation(len(labels))
    test = np.sort(np.concatenate([order[labels[order] == label][::fraction] for label in np.unique(labels)]))
    return np.setdiff1d(np.arange(len(labels)), test), test


def standardised(name: str, rows: NDArray[Any], labels: Labels) -> Dataset:
    """Return rows (N, D) as a data set, with a fixed fifth of each class for test, scaled by `standard`."""
    train, test = split(labels, 5)
    inputs = standard([rows[train], rows[test]])
    return Dataset(name, inputs[0], labels[train], inputs[1], labels[test], None)


def standard(parts: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return training and test arrays, scaled so that each feature of the training arrays has mean 0 and standard
    deviation 1; a constant feature isn't scaled."""
    mean, scale = parts[0].mean(0), parts[0].std(0)
    return [((part - mean) / np.where(scale > 0, scale, 1)).astype(np.float32) for part in parts]


# Built-in data sets, or functions that find one: by name, by the part before a colon, or by the end of a file's name.
# They aren't entry points of the group, which an exported driver and its functions can't read.
GROUP = "slslab.datasets"
IMAGES, ROWS, ARRAYS = (f"slslab_workers.training.{module}" for module in ("images", "rows", "arrays"))
BUILT_IN = MappingProxyType(
    {
        "digits": f"{IMAGES}:digits",
        "mnist5k": f"{IMAGES}:mnist5k",
        "cifar10": f"{IMAGES}:cifar10",
        "synthetic": f"{IMAGES}:synthetic",
        "folder:": f"{IMAGES}:folder",
        "breast-cancer": f"{ROWS}:breast_cancer",
        "higgs-shaped": f"{ROWS}:higgs_shaped",
        "rcv1-shaped": f"{ROWS}:rcv1_shaped",
        "libsvm:": f"{ROWS}:libsvm",
        ".csv": f"{ARRAYS}:csv_file",
        ".npz": f"{ARRAYS}:npz_file",
    }
)
SHOWN = (
    "digits, mnist5k, cifar10, synthetic or folder:PATH for images; breast-cancer, higgs-shaped, rcv1-shaped or "
    "libsvm:FILE for rows; or FILE.csv, FILE.npz, or module:function of your own"
)


def find(name: str) -> Source:
    """Find a data set by its name, without reading it; raise PlanError, with a hint, for an unusable name or file.

    If the name is in the group `slslab.datasets`, or is module:function, call that function.
    """
    family, colon, argument = name.partition(":")
    arguments: tuple[str, ...] = (argument,) if colon else ()
    path = BUILT_IN.get(family + colon)
    if path is None and _file_kind(name):
        path, arguments = BUILT_IN[_file_kind(name)], (name,)
    elif path is None and (value := value_of(name)):
        path, arguments = f"{ARRAYS}:function", (name, value)
    if path is None:
        raise PlanError(f"There is no data set {name!r}.", f"choose {SHOWN}.")
    found: Source | Callable[..., Source] = resolve_name(path)
    return found if isinstance(found, Source) else found(*arguments)


def _file_kind(name: str) -> str:
    """Return the suffix of a file that a built-in reader reads, or folder: for a directory; otherwise an empty text."""
    suffix = Path(name.partition(":")[0]).suffix.lower()
    if suffix in BUILT_IN:
        return suffix
    return "folder:" if Path(name).is_dir() else ""


def value_of(name: str) -> str | None:
    """Return the "module:function" of another package's data set; None for built-in names, files and unknown names."""
    family, colon, _ = name.partition(":")
    if family + colon in BUILT_IN or _file_kind(name):
        return None
    registered = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    return registered.get(name) or (name if ":" in name else None)


def load(name: str, samples: int = 0, seed: int = 0, report: Report = lambda _done, _total: None) -> Dataset:
    """Load a data set by its name (`find`).

    `samples` is the number of training samples that a plan needs; generators make exactly this number. `report`
    receives the progress. Raise PlanError, with a hint, for a name or file that can't be used.
    """
    return find(name).read(max(samples, 100), seed, report)


def partition(
    samples: int,
    workers: int,
    batches: int,
    batch_size: int,
    seed: int,
    epoch: int,
    *,
    overlapping: bool = False,
    kept: bool = False,
) -> NDArray[np.int64]:
    """Return indices of the samples of every minibatch of an epoch: (workers, batches, batch_size), all different.

    Each epoch has one seeded permutation, cut into contiguous slices by rank. `overlapping` does what the authors' code
    did: each worker shuffles the whole set by itself and takes the slice of its rank, so the slices overlap. With
    `kept`, each worker keeps its slice of the first epoch and shuffles it. Raise PlanError, with the arithmetic, if the
    set has too few samples.
    """
    needed = workers * batches * batch_size
    if needed > samples:
        most = samples // (workers * batch_size)
        hint = f"--batches {most} fits." if most else f"--batch-size {samples // (workers * batches)} fits."
        raise PlanError(
            f"{workers} workers × {batches} batches × {batch_size} samples = {needed:,} samples an epoch, but the "
            f"training set has {samples:,}.",
            hint,
        )
    each, drawn = batches * batch_size, 0 if kept else epoch
    if overlapping:
        slices = [
            np.random.default_rng([seed, drawn, rank]).permutation(samples)[rank * each : (rank + 1) * each]
            for rank in range(workers)
        ]
    else:
        slices = list(np.random.default_rng([seed, drawn]).permutation(samples)[:needed].reshape(workers, each))
    if drawn != epoch:
        slices = [np.random.default_rng([seed, epoch, rank, 1]).permutation(kept) for rank, kept in enumerate(slices)]
    return np.stack(slices).reshape(workers, batches, batch_size)


def kept(version: object, read: Callable[[], T]) -> T:
    """Return what was read last if it has this version; otherwise read it.

    Making a plan and running it read the same files or call the same function, which may return other samples each
    time. Runs in the same process mostly read the same data set, too.
    """
    global _last_read
    last = _last_read
    if last[0] != version:
        last = _last_read = version, read()
    found: T = last[1]
    return found


def read_file(name: str, path: Path, read: Callable[[Path], T]) -> T:
    """Return what a file holds, which is read again once it changed; raise PlanError if it can't be read."""
    try:
        return kept((name, path.stat().st_mtime_ns), lambda: read(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it isn't UTF-8 text"
        raise PlanError(
            f"{path} can't be read: {reason}.", "give the path of a .csv or .npz file, or libsvm:FILE."
        ) from error


# The version of what was read last, and what it was, which other threads may replace.
_last_read: tuple[object, Any] = (None, None)


def encode_minibatch(images: Inputs, labels: Labels, policy: Policy | None) -> tuple[bytes, dict[str, str]]:
    """Return a minibatch as an object, with its metadata: raw samples and then labels, all little-endian."""
    metadata = {"shape": ",".join(map(str, images.shape))}
    if policy is not None:
        metadata["policy"] = json.dumps(astuple(policy))
    if isinstance(images, SparseRows):
        body, metadata["layout"] = images.to_bytes(), "sparse"
    else:
        body = np.ascontiguousarray(images).tobytes()
    if labels.dtype.kind == "f":
        metadata["labels"] = "numbers"
    return body + labels.astype(_stored(metadata)).tobytes(), metadata


def decode_minibatch(body: bytearray | bytes, metadata: Mapping[str, str]) -> tuple[Inputs, Labels, Policy | None]:
    """Return views of a stored minibatch, without copying the samples, and how images become inputs."""
    shape = tuple(int(size) for size in metadata["shape"].split(","))
    if "layout" in metadata:
        size = len(body) - 8 * shape[0]
        return SparseRows.from_bytes(memoryview(body)[:size], *shape), _labels(body[size:], metadata), None
    policy = None
    if "policy" in metadata:
        mean, std, pad, flip = json.loads(metadata["policy"])
        policy = Policy(tuple(mean), tuple(std), pad, flip)
    kind = np.dtype("<f4" if policy is None else np.uint8)
    size = int(np.prod(shape)) * kind.itemsize
    if len(body) != size + 8 * shape[0]:
        raise ValueError(f"a minibatch of shape {shape} has {size + 8 * shape[0]} bytes, not {len(body)}")
    images = np.frombuffer(body, kind, int(np.prod(shape))).reshape(shape)
    return images, _labels(body[size:], metadata), policy


def _labels(body: bytearray | bytes, metadata: Mapping[str, str]) -> Labels:
    labels = np.frombuffer(bytes(body), _stored(metadata))
    return labels.astype(np.float32 if labels.dtype.kind == "f" else np.int64)


def _stored(metadata: Mapping[str, str]) -> str:
    """Return the type of stored labels, which have 8 bytes each."""
    return "<f8" if "labels" in metadata else "<i8"


def prepare(
    images: Inputs, labels: Labels, policy: Policy | None, seed: int, epoch: int, rank: int, step: int
) -> tuple["torch.Tensor", "torch.Tensor"]:
    """Return augmented, normalised inputs (B, C, H, W) float32 and targets (B,).

    Samples without a policy stay unchanged; sparse rows become a sparse tensor. Augmentation crops the zero-padded
    image at random, then mirrors half of the images on average. It depends only on (seed, epoch, rank, step).
    """
    if policy is None:
        return prepare_test(images, labels, policy)
    generator = np.random.default_rng([seed, epoch, rank, step])
    count, _, height, width = images.shape
    pad = policy.pad
    padded = np.pad(images, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
    rows, columns = generator.integers(0, 2 * pad + 1, (2, count))
    cropped = windows[np.arange(count), :, rows, columns]
    if policy.flip:
        mirrored = generator.random((count, 1, 1, 1)) < 0.5
        cropped = np.where(mirrored, cropped[..., ::-1], cropped)
    return prepare_test(cropped, labels, policy)


def prepare_test(images: Inputs, labels: Labels, policy: Policy | None) -> tuple["torch.Tensor", "torch.Tensor"]:
    """Return normalised inputs and targets as `prepare` does, without augmentation."""
    import torch

    if isinstance(images, SparseRows):
        return images.to_tensor(), torch.from_numpy(labels)
    if policy is None:
        return torch.from_numpy(images), torch.from_numpy(labels)
    scale = (1 / (255 * np.array(policy.std))).astype(np.float32).reshape(1, -1, 1, 1)
    shift = (np.array(policy.mean) / np.array(policy.std)).astype(np.float32).reshape(1, -1, 1, 1)
    return torch.from_numpy(images.astype(np.float32) * scale - shift), torch.from_numpy(labels)
