"""Samples and labels: loading, seeded disjoint partitions, the minibatch's wire format, augmentation in the worker.

Samples are images, sent and stored as uint8 (N, C, 32, 32), or rows of features, float32 (N, D), perhaps sparse; labels
are int64 (N,).
All randomness comes from seeds, so that every architecture sees the same minibatches in the same order. Importing this
module does not import torch.
"""

import hashlib
import io
import os
import pickle
import tarfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from slslab_workers.models import ROW_MODELS, ModelSpec
from slslab_workers.plan import PlanError
from slslab_workers.training import rows
from slslab_workers.training.sparse_rows import SparseRows

if TYPE_CHECKING:
    import torch

Images = NDArray[np.uint8]
# Images or rows; these may be sparse.
Inputs: TypeAlias = Any
Labels = NDArray[np.int64]
SIDE = 32
# Images (1797, 8, 8) uint8 and labels (1797,) uint8; digits.md says where they are from.
DIGITS = Path(__file__).with_name("digits.npz")
# Images (5000, 28, 28) uint8 and labels (5000,) uint8; mnist5k.md says where they are from.
MNIST5K = Path(__file__).with_name("mnist5k.npz")
IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
# Checksums that the data set's own page publishes (https://www.cs.toronto.edu/~kriz/cifar.html).
CIFAR10_MD5 = {
    "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
    "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
}


@dataclass(frozen=True)
class Policy:
    """How a data set's images become inputs.

    Per-channel mean and standard deviation of values in 0..1, the padding of the random crop, and whether images may be
    mirrored (a mirrored digit is not a digit).
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    pad: int
    flip: bool

    def to_metadata(self) -> dict[str, str]:
        """Return the policy as user metadata of a stored minibatch."""
        return {
            "mean": ",".join(map(str, self.mean)),
            "std": ",".join(map(str, self.std)),
            "pad": str(self.pad),
            "flip": str(int(self.flip)),
        }

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> "Policy | None":
        """Read what `to_metadata` wrote; None for rows."""
        if "mean" not in metadata:
            return None
        mean, std = (tuple(map(float, metadata[name].split(","))) for name in ("mean", "std"))
        return cls(mean, std, int(metadata["pad"]), metadata["flip"] == "1")


# CIFAR statistics, pad-4 random crop and horizontal flip, as in LambdaML and its replication.
CIFAR_POLICY = Policy((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010), 4, True)
DIGITS_POLICY = Policy((0.3055,), (0.3237,), 2, False)
# MNIST's own statistics; nothing is cropped, as in KubeML.
MNIST_POLICY = Policy((0.1307,), (0.3081,), 0, False)


@dataclass(frozen=True)
class Dataset:
    """Training and test samples with labels (N,) int64.

    Images (N, C, 32, 32) uint8 with labels 0..9 and a policy, or rows (N, D) float32, perhaps sparse, with labels 0..1
    and no policy: they are taken as they are.
    """

    name: str
    train_images: Inputs
    train_labels: Labels
    test_images: Inputs
    test_labels: Labels
    policy: Policy | None

    def for_model(self, spec: ModelSpec) -> "Dataset":
        """Return the samples as a model takes them: grey images are repeated, colours are never dropped; PlanError if
        the model takes others."""
        width, policy = int(self.train_images.shape[1]), self.policy
        if policy is None or spec.features:
            if policy is not None:
                raise PlanError(
                    f"The model {spec.name} takes rows of features, and {self.name} has images.",
                    f"choose {', '.join(rows.NAMES)}; or one of the models for images.",
                )
            if spec.features != width:
                takes = f"rows of {spec.features} features" if spec.features else "images"
                raise PlanError(
                    f"The model {spec.name} takes {takes}, and {self.name} has rows of {width} features.",
                    f"choose {' or '.join(ROW_MODELS)}, which become as wide as the rows.",
                )
            return self
        channels = spec.channels
        if channels == width:
            return self
        if width != 1:
            raise PlanError(
                f"The model takes {channels}-channel images, and {self.name} has {width} channels.",
                "choose mobilenet, resnet18, resnet34 or resnet50.",
            )
        return replace(
            self,
            train_images=np.repeat(self.train_images, channels, axis=1),
            test_images=np.repeat(self.test_images, channels, axis=1),
            policy=replace(policy, mean=policy.mean * channels, std=policy.std * channels),
        )


def load(
    name: str, samples: int = 0, seed: int = 0, report: Callable[[int, int], None] = lambda _done, _total: None
) -> Dataset:
    """Load a data set by its name: digits, mnist5k, cifar10, synthetic, folder:PATH, or one of `rows.NAMES`.

    `samples` is how many training samples a plan needs (generators make exactly as many); `report` receives how many of
    how many are done. Raise PlanError with a hint for a name or a file that cannot be used.
    """
    if rows.are_in(name):
        train, train_labels, test, test_labels = rows.load(name, max(samples, 100), seed)
        return Dataset(name, train, train_labels, test, test_labels, None)
    match name.partition(":"):
        case "digits", "", "":
            return _digits()
        case "mnist5k", "", "":
            return _mnist5k()
        case "synthetic", "", "":
            return _synthetic(max(samples, 100), seed)
        case "cifar10", "", "":
            return load_cifar10(_datasets())
        case "folder", ":", path:
            return _folder(name, Path(path).expanduser(), report)
        case _:
            names = ("digits", "mnist5k", "cifar10", "synthetic", "folder:PATH", *rows.NAMES)
            raise PlanError(f"There is no data set {name!r}.", f"choose {', '.join(names)}.")


def check(name: str) -> None:
    """Raise PlanError for a data set of files that are not there; all else is found out by `load`."""
    match name.partition(":"):
        case "cifar10", "", "":
            _cifar10_archive(_datasets())
        case "folder", ":", path:
            _class_folders(Path(path).expanduser())


def _datasets() -> Path:
    return Path(os.environ.get("SLSLAB_DATASETS", ".datasets"))


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

    One seeded permutation per epoch, cut into contiguous slices by rank. `overlapping` is what the authors' code did:
    every worker shuffles the whole set for itself and takes the slice of its rank, so that slices overlap. With `kept`
    each worker keeps its slice of the first epoch, and shuffles that.
    Raise PlanError, with the arithmetic, when the set holds too few.
    """
    needed = workers * batches * batch_size
    if needed > samples:
        most = samples // (workers * batch_size)
        hint = f"--batches {most} fits." if most else f"--batch-size {samples // (workers * batches)} fits."
        raise PlanError(
            f"{workers} workers × {batches} batches × {batch_size} samples = {needed:,} samples an epoch, and the "
            f"training set holds {samples:,}.",
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


def encode_minibatch(images: Inputs, labels: Labels, policy: Policy | None) -> tuple[bytes, dict[str, str]]:
    """Return a minibatch as an object, raw samples and then labels, all little-endian, and its metadata."""
    metadata = {"shape": ",".join(map(str, images.shape)), **(policy.to_metadata() if policy is not None else {})}
    if isinstance(images, SparseRows):
        body, metadata["layout"] = images.to_bytes(), "sparse"
    else:
        body = np.ascontiguousarray(images).tobytes()
    return body + labels.astype("<i8").tobytes(), metadata


def decode_minibatch(body: bytearray | bytes, metadata: Mapping[str, str]) -> tuple[Inputs, Labels]:
    """Return views of a stored minibatch, without a copy of the samples."""
    shape = tuple(int(size) for size in metadata["shape"].split(","))
    if "layout" in metadata:
        size = len(body) - 8 * shape[0]
        return SparseRows.from_bytes(memoryview(body)[:size], *shape), _labels(body[size:])
    kind = np.dtype(np.uint8 if Policy.from_metadata(metadata) is not None else "<f4")
    size = int(np.prod(shape)) * kind.itemsize
    if len(body) != size + 8 * shape[0]:
        raise ValueError(f"a minibatch of shape {shape} has {size + 8 * shape[0]} bytes, not {len(body)}")
    images = np.frombuffer(body, kind, int(np.prod(shape))).reshape(shape)
    return images, _labels(body[size:])


def _labels(body: bytearray | bytes) -> Labels:
    return np.frombuffer(bytes(body), "<i8").astype(np.int64)


def prepare(
    images: Inputs, labels: Labels, policy: Policy | None, seed: int, epoch: int, rank: int, step: int
) -> tuple["torch.Tensor", "torch.Tensor"]:
    """Return augmented, normalised inputs (B, C, 32, 32) float32 and targets (B,) int64; rows (B, D) as they are,
    sparse ones as a sparse tensor.

    Random crop out of the zero-padded image, then a mirror image for every second one on average; all of it depends on
    (seed, epoch, rank, step) alone.
    """
    import torch

    if policy is None:
        return prepare_test(images, labels, policy)
    generator = np.random.default_rng([seed, epoch, rank, step])
    count, channels, height, width = images.shape
    pad = policy.pad
    padded = np.pad(images, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
    rows, columns = generator.integers(0, 2 * pad + 1, (2, count))
    cropped = windows[np.arange(count), :, rows, columns]
    if policy.flip:
        mirrored = generator.random((count, 1, 1, 1)) < 0.5
        cropped = np.where(mirrored, cropped[..., ::-1], cropped)
    return _normalised(cropped, policy, channels), torch.from_numpy(labels)


def prepare_test(images: Inputs, labels: Labels, policy: Policy | None) -> tuple["torch.Tensor", "torch.Tensor"]:
    """Return normalised inputs and targets as `prepare` does, without augmentation."""
    import torch

    if isinstance(images, SparseRows):
        return images.to_tensor(), torch.from_numpy(labels)
    if policy is None:
        return torch.from_numpy(images), torch.from_numpy(labels)
    return _normalised(images, policy, images.shape[1]), torch.from_numpy(labels)


def _normalised(images: Images, policy: Policy, channels: int) -> "torch.Tensor":
    import torch

    scale = (1 / (255 * np.array(policy.std))).astype(np.float32).reshape(1, channels, 1, 1)
    shift = (np.array(policy.mean) / np.array(policy.std)).astype(np.float32).reshape(1, channels, 1, 1)
    return torch.from_numpy(images.astype(np.float32) * scale - shift)


def _digits() -> Dataset:
    """Read the 1,797 handwritten digits (8×8, 0..16), bilinear to 32×32; a fixed stratified fifth is for test."""
    import torch

    with np.load(DIGITS) as arrays:
        images, labels = arrays["images"], arrays["labels"].astype(np.int64)
    small = torch.from_numpy(images[:, None].astype(np.float32) * (255 / 16))
    large = torch.nn.functional.interpolate(small, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    pixels = large.round().to(torch.uint8).numpy()
    train, test = rows.split(labels, 5)
    return Dataset("digits", pixels[train], labels[train], pixels[test], labels[test], DIGITS_POLICY)


def _mnist5k() -> Dataset:
    """Read 5,000 images of MNIST (28×28), with a border of two zeros; a fixed stratified fifth is for test."""
    with np.load(MNIST5K) as arrays:
        images, labels = arrays["images"], arrays["labels"].astype(np.int64)
    border = (SIDE - images.shape[1]) // 2
    pixels = np.pad(images, ((0, 0), (border, border), (border, border)))[:, None]
    train, test = rows.split(labels, 5)
    return Dataset("mnist5k", pixels[train], labels[train], pixels[test], labels[test], MNIST_POLICY)


def _synthetic(samples: int, seed: int) -> Dataset:
    """Return noise around a mean colour per class: learnable, as large as a plan needs, and a fifth more for test."""
    generator = np.random.default_rng([seed, 10])
    centres = generator.integers(64, 192, (10, 3, 1, 1))

    def draw(count: int) -> tuple[Images, Labels]:
        labels = generator.integers(0, 10, count)
        noise = generator.integers(-64, 64, (count, 3, SIDE, SIDE), dtype=np.int16)
        return (centres[labels].astype(np.int16) + noise).astype(np.uint8), labels

    train, test = draw(samples), draw(max(samples // 5, 20))
    return Dataset("synthetic", *train, *test, CIFAR_POLICY)


def _class_folders(path: Path) -> tuple[list[Path], list[str]]:
    """Return the folders for training and for tests, or the one for both, and the names of the classes in them."""
    if not path.is_dir():
        raise PlanError(f"{path} is not a directory.", "folder:PATH holds a folder of images for each class.")
    split = (path / "train").is_dir() and (path / "test").is_dir()
    roots = [path / "train", path / "test"] if split else [path]
    classes = sorted(folder.name for folder in roots[0].iterdir() if folder.is_dir())
    if not 2 <= len(classes) <= 10:
        raise PlanError(
            f"{roots[0]} has {len(classes)} class folders, and the models tell ten classes apart.",
            "use 2 to 10 folders, one per class.",
        )
    return roots, classes


def _folder(name: str, path: Path, report: Callable[[int, int], None]) -> Dataset:
    """Read class folders of images: PATH/train/CLASS/* and PATH/test/CLASS/*, or PATH/CLASS/* with a sixth for test."""
    roots, classes = _class_folders(path)
    files = [
        [
            (file, label)
            for label, class_name in enumerate(classes)
            for file in sorted((root / class_name).glob("*"))
            if file.suffix.lower() in IMAGE_SUFFIXES
        ]
        for root in roots
    ]
    if not all(files):
        raise PlanError(f"{path} has no images.", f"images end in {', '.join(sorted(IMAGE_SUFFIXES))}.")
    # Several runs of one process mostly read the same images, and reading 60,000 takes as long as some minibatches.
    versions = tuple((file, label, file.stat().st_mtime_ns) for group in files for file, label in group)
    if _last_read.get("versions") != versions:
        _last_read.update(versions=versions, groups=_read_images(files, report))
    loaded = [(pixels, labels.copy()) for pixels, labels in _last_read["groups"]]
    if len(roots) == 2:
        return Dataset(name, *loaded[0], *loaded[1], CIFAR_POLICY)
    images, labels = loaded[0]
    train, test = rows.split(labels, 6)
    return Dataset(name, images[train], labels[train], images[test], labels[test], CIFAR_POLICY)


# The folder that was read last: `versions` of its files then, and its `groups` of images with labels.
_last_read: dict[str, Any] = {}


def _read_images(
    files: list[list[tuple[Path, int]]], report: Callable[[int, int], None]
) -> list[tuple[Images, Labels]]:
    """Read groups of files with their labels as images (N, 3, 32, 32) uint8, read-only, and labels (N,) int64."""
    total, done = sum(map(len, files)), 0
    loaded: list[tuple[Images, Labels]] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for group in files:
            pixels = np.empty((len(group), 3, SIDE, SIDE), np.uint8)
            for index, image in enumerate(pool.map(_read_image, [file for file, _ in group])):
                pixels[index] = image
                done += 1
                if done % 500 == 0 or done == total:
                    report(done, total)
            pixels.flags.writeable = False
            loaded.append((pixels, np.array([label for _, label in group], np.int64)))
    return loaded


def _read_image(path: Path) -> Images:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            colour = image.convert("RGB")
            if colour.size != (SIDE, SIDE):
                colour = colour.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
            return np.asarray(colour).transpose(2, 0, 1)
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise PlanError(f"The image {path} cannot be read: {error}.", "remove or replace the file.") from error


def _cifar10_archive(directory: Path) -> Path:
    for name in ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"):
        if (directory / name).is_file():
            return directory / name
    raise PlanError(
        f"There is no CIFAR-10 archive in {directory}.",
        "put cifar-10-binary.tar.gz or cifar-10-python.tar.gz there (or point SLSLAB_DATASETS at it); with the "
        "extra torchvision, `python -m slslab_workers.training.datasets` downloads it.",
    )


def load_cifar10(directory: Path, md5: Mapping[str, str] = CIFAR10_MD5) -> Dataset:
    """Read the official CIFAR-10 archive (binary or Python version) in a directory, its checksum verified."""
    archive = _cifar10_archive(directory)
    name = archive.name
    with archive.open("rb") as stream:
        checksum = hashlib.file_digest(stream, "md5").hexdigest()
    if checksum != md5[name]:
        raise PlanError(
            f"{archive} has the MD5 checksum {checksum}, and the official archive has {md5[name]}.",
            "download the archive again.",
        )
    batches = [f"data_batch_{number}" for number in range(1, 6)], ["test_batch"]
    with tarfile.open(archive) as members:
        read = _binary_batch if "binary" in name else _python_batch
        (train, test) = ([read(members, batch) for batch in group] for group in batches)
    return Dataset(
        "cifar10",
        np.concatenate([images for images, _ in train]),
        np.concatenate([labels for _, labels in train]),
        test[0][0],
        test[0][1],
        CIFAR_POLICY,
    )


def _binary_batch(members: tarfile.TarFile, name: str) -> tuple[Images, Labels]:
    """Read records of one label byte and 3,072 pixel bytes, channel by channel."""
    records = np.frombuffer(_member(members, f"cifar-10-batches-bin/{name}.bin"), np.uint8).reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, SIDE, SIDE).copy(), records[:, 0].astype(np.int64)


def _python_batch(members: tarfile.TarFile, name: str) -> tuple[Images, Labels]:
    """Read a pickled dictionary with `data` (N, 3072) uint8 and `labels`."""
    stream = io.BytesIO(_member(members, f"cifar-10-batches-py/{name}"))
    batch: dict[Any, Any] = _ArrayUnpickler(stream, encoding="bytes").load()
    return batch[b"data"].reshape(-1, 3, SIDE, SIDE), np.array(batch[b"labels"], np.int64)


def _member(members: tarfile.TarFile, name: str) -> bytes:
    stream = members.extractfile(name)
    if stream is None:
        raise PlanError(f"The CIFAR-10 archive has no {name}.", "download the archive again.")
    return stream.read()


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickles numpy arrays and plain containers, and nothing that could run code."""

    ALLOWED = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise PlanError(f"The CIFAR-10 batch asks for {module}.{name}.", "it is not an official file.")
        return super().find_class(module, name)


def download_cifar10(directory: Path) -> None:
    """Download the official archive through torchvision (an extra)."""
    try:
        from torchvision.datasets import CIFAR10
    except ImportError as error:
        raise PlanError(
            "Downloading CIFAR-10 needs torchvision, which is not installed.", "pip install 'slslab[torchvision]'"
        ) from error
    CIFAR10(str(directory), download=True)


if __name__ == "__main__":
    download_cifar10(_datasets())
