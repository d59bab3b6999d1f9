"""Read data sets of images: two shipped ones, a generated one, CIFAR-10's archive, and class folders.

Importing this module does not import torch.
"""

import hashlib
import os
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from slslab_workers.models import SIDE
from slslab_workers.plan import PlanError
from slslab_workers.training.datasets import Dataset, Images, Labels, Policy, Report, Source, kept, split

# Images (1797, 8, 8) uint8 and labels (1797,) uint8; digits.md names their source.
DIGITS = Path(__file__).with_name("digits.npz")
# Images (5000, 28, 28) uint8 and labels (5000,) uint8; mnist5k.md names their source.
MNIST5K = Path(__file__).with_name("mnist5k.npz")
IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
# The archive, and the checksum on its page, cifar.html.
CIFAR10_PAGE, CIFAR10 = "https://www.cs.toronto.edu/~kriz", "cifar-10-binary.tar.gz"
CIFAR10_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"

# CIFAR statistics, pad-4 random crop and horizontal flip, as in LambdaML and its replication.
CIFAR_POLICY = Policy((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010), 4, True)
DIGITS_POLICY = Policy((0.3055,), (0.3237,), 2, False)
# MNIST's statistics; images aren't cropped, as in Petrescu et al.'s code.
MNIST_POLICY = Policy((0.1307,), (0.3081,), 0, False)


def folder(path: str) -> Source:
    """Return a folder of images; raise PlanError if it has no class folders."""
    place = Path(path).expanduser()
    _, classes = _class_folders(place)
    return Source((3, SIDE, SIDE), len(classes), lambda _samples, _seed, report: _folder(path, place, report))


def _digits(*_: object) -> Dataset:
    """Read the 1,797 handwritten digits (8×8, 0..16), bilinear to 32×32; a fixed stratified fifth is for test."""
    import torch

    with np.load(DIGITS) as arrays:
        images, labels = arrays["images"], arrays["labels"].astype(np.int64)
    small = torch.from_numpy(images[:, None].astype(np.float32) * (255 / 16))
    large = torch.nn.functional.interpolate(small, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    pixels = large.round().to(torch.uint8).numpy()
    train, test = split(labels, 5)
    return Dataset("digits", pixels[train], labels[train], pixels[test], labels[test], DIGITS_POLICY)


def _mnist5k(*_: object) -> Dataset:
    """Read 5,000 images of MNIST (28×28), with a border of two zeros; a fixed stratified fifth is for test."""
    with np.load(MNIST5K) as arrays:
        images, labels = arrays["images"], arrays["labels"].astype(np.int64)
    border = (SIDE - images.shape[1]) // 2
    pixels = np.pad(images, ((0, 0), (border, border), (border, border)))[:, None]
    train, test = split(labels, 5)
    return Dataset("mnist5k", pixels[train], labels[train], pixels[test], labels[test], MNIST_POLICY)


def _synthetic(samples: int, seed: int, _report: Report) -> Dataset:
    """Generate noise around a mean colour per class, which models can learn; add a fifth more for test."""
    generator = np.random.default_rng([seed, 10])
    centres = generator.integers(64, 192, (10, 3, 1, 1))

    def draw(count: int) -> tuple[Images, Labels]:
        labels = generator.integers(0, 10, count)
        noise = generator.integers(-64, 64, (count, 3, SIDE, SIDE), dtype=np.int16)
        return (centres[labels].astype(np.int16) + noise).astype(np.uint8), labels

    train, test = draw(samples), draw(max(samples // 5, 20))
    return Dataset("synthetic", *train, *test, CIFAR_POLICY)


def _class_folders(path: Path) -> tuple[list[Path], list[str]]:
    """Return the folders for training and test, or a single one for both, and the names of their classes."""
    if not path.is_dir():
        raise PlanError(f"{path} is not a directory.", "folder:PATH holds a folder of images for each class.")
    split = (path / "train").is_dir() and (path / "test").is_dir()
    roots = [path / "train", path / "test"] if split else [path]
    classes = sorted(folder.name for folder in roots[0].iterdir() if folder.is_dir())
    if len(classes) < 2:
        raise PlanError(f"{roots[0]} has {len(classes)} class folders.", "use 2 folders or more, one for each class.")
    return roots, classes


def _folder(name: str, path: Path, report: Report) -> Dataset:
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
    versions = tuple((file, label, file.stat().st_mtime_ns) for group in files for file, label in group)
    loaded = [(pixels, labels.copy()) for pixels, labels in kept(versions, lambda: _read_images(files, report))]
    if len(roots) == 2:
        return Dataset(name, *loaded[0], *loaded[1], CIFAR_POLICY)
    images, labels = loaded[0]
    train, test = split(labels, 6)
    return Dataset(name, images[train], labels[train], images[test], labels[test], CIFAR_POLICY)


def _read_images(files: list[list[tuple[Path, int]]], report: Report) -> list[tuple[Images, Labels]]:
    """Read groups of labelled files as images (N, 3, 32, 32) uint8, which are read-only, and labels (N,) int64."""
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


def _cifar10_archive() -> Path:
    directory = Path(os.environ.get("SLSLAB_DATASETS", ".datasets"))
    if (directory / CIFAR10).is_file():
        return directory / CIFAR10
    raise PlanError(
        f"There is no CIFAR-10 archive in {directory}.",
        f"download {CIFAR10_PAGE}/{CIFAR10} into it, or set SLSLAB_DATASETS to its directory.",
    )


def _cifar10(*_: object) -> Dataset:
    """Read the official CIFAR-10 archive, and verify its checksum."""
    archive = _cifar10_archive()
    with archive.open("rb") as stream:
        checksum = hashlib.file_digest(stream, "md5").hexdigest()
    if checksum != CIFAR10_MD5:
        raise PlanError(
            f"{archive} has the MD5 checksum {checksum}, and the official archive has {CIFAR10_MD5}.",
            "download the archive again.",
        )
    with tarfile.open(archive) as members:
        train = [_cifar10_batch(members, f"data_batch_{number}") for number in range(1, 6)]
        test = _cifar10_batch(members, "test_batch")
    images, labels = zip(*train, strict=True)
    return Dataset("cifar10", np.concatenate(images), np.concatenate(labels), *test, CIFAR_POLICY)


def _cifar10_batch(members: tarfile.TarFile, name: str) -> tuple[Images, Labels]:
    """Read records of one label byte and 3,072 pixel bytes, channel by channel."""
    stream = members.extractfile(f"cifar-10-batches-bin/{name}.bin")
    assert stream is not None, "the archive is the official one"
    records = np.frombuffer(stream.read(), np.uint8).reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, SIDE, SIDE).copy(), records[:, 0].astype(np.int64)


GREY, COLOUR = (1, SIDE, SIDE), (3, SIDE, SIDE)
digits = Source(GREY, 10, _digits, batches=(64, 5), files=(DIGITS,))
mnist5k = Source(GREY, 10, _mnist5k, batches=(64, 15), files=(MNIST5K,))
cifar10 = Source(COLOUR, 10, _cifar10, _cifar10_archive)
# Ten classes: noise around a mean colour per class.
synthetic = Source(COLOUR, 10, _synthetic)
