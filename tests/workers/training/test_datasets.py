"""Images and labels: real ones, made ones, and the ways in which files can be wrong."""

import hashlib
import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from slslab_workers.models import spec
from slslab_workers.plan import PlanError
from slslab_workers.training import datasets
from slslab_workers.training import images as readers
from slslab_workers.training.datasets import Policy
from slslab_workers.training.images import CIFAR_POLICY, DIGITS_POLICY


def test_digits_are_real_and_stratified() -> None:
    digits = datasets.load("digits")
    assert digits.train_images.shape == (1433, 1, 32, 32)
    assert digits.test_images.shape == (364, 1, 32, 32)
    assert digits.train_images.dtype == np.uint8
    assert set(np.bincount(digits.test_labels)) <= {35, 36, 37}
    again = datasets.load("digits", seed=9)
    assert np.array_equal(digits.test_labels, again.test_labels), "the split does not depend on the run"
    grey = digits.train_images.astype(np.float64) / 255
    assert grey.mean() == pytest.approx(DIGITS_POLICY.mean[0], abs=1e-3)
    assert grey.std() == pytest.approx(DIGITS_POLICY.std[0], abs=1e-3)


def test_the_digits_that_are_shipped_are_scikit_learns() -> None:
    # It takes a second to import, which only this test needs.
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    with np.load(readers.DIGITS) as shipped:
        assert np.array_equal(shipped["images"].reshape(-1, 64).astype(np.float64), images)
        assert np.array_equal(shipped["labels"], labels)


def test_mnist5k_is_real_stratified_and_as_its_page_says() -> None:
    page = readers.MNIST5K.with_suffix(".md").read_text()
    with np.load(readers.MNIST5K) as shipped:
        images, labels = shipped["images"], shipped["labels"]
    assert (images.shape, images.dtype, np.bincount(labels).tolist()) == ((5000, 28, 28), np.uint8, [500] * 10)
    for array in (images, labels):
        assert hashlib.sha256(array.tobytes()).hexdigest() in page
    assert "Redistribution and use in source and binary forms" in page
    found = datasets.load("mnist5k")
    assert (found.train_images.shape, found.test_images.shape) == ((4000, 1, 32, 32), (1000, 1, 32, 32))
    assert np.bincount(found.test_labels).tolist() == [100] * 10
    assert not found.train_images[:, :, :2].any()
    assert found.train_images[:, :, 2:30, 2:30].sum() == found.train_images.sum() > 0
    # MNIST's own mean and deviation, within what 5,000 of its 70,000 images may differ.
    assert found.policy is not None
    assert (images.mean() / 255, images.std() / 255) == pytest.approx((*found.policy.mean, *found.policy.std), abs=1e-3)


def test_digits_have_the_bits_that_recorded_runs_were_trained_on() -> None:
    digits = datasets.load("digits")
    arrays = (digits.train_images, digits.train_labels, digits.test_images, digits.test_labels)
    assert [array.dtype for array in arrays] == [np.uint8, np.int64] * 2
    digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    assert digest == "ae955c5c0727c4502885b9c79a1113ebc3a77c7afceddf8f6a9311a9128ac7b9"


def test_channels_are_repeated_and_never_dropped() -> None:
    digits = datasets.load("digits").for_model(spec("mobilenet"))
    assert digits.train_images.shape == (1433, 3, 32, 32)
    assert digits.policy is not None
    assert len(digits.policy.mean) == 3
    with pytest.raises(PlanError, match="takes images of 1 × 32 × 32, and synthetic has images of 3 × 32 × 32"):
        datasets.load("synthetic", 100).for_model(spec("lenet"))


def test_synthetic_is_seeded_and_as_large_as_asked() -> None:
    one, two = datasets.load("synthetic", 300, 1), datasets.load("synthetic", 300, 1)
    assert len(one.train_labels) == 300
    assert np.array_equal(one.train_images, two.train_images)
    assert not np.array_equal(one.train_images, datasets.load("synthetic", 300, 2).train_images)


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 8), st.integers(0, 3), st.integers(0, 3))
def test_partitions_are_disjoint_seeded_and_reshuffled(
    workers: int, batches: int, size: int, seed: int, epoch: int
) -> None:
    samples = workers * batches * size + 3
    indices = datasets.partition(samples, workers, batches, size, seed, epoch)
    assert indices.shape == (workers, batches, size)
    assert len(np.unique(indices)) == indices.size
    assert np.array_equal(indices, datasets.partition(samples, workers, batches, size, seed, epoch))
    if indices.size > 12:
        assert not np.array_equal(indices, datasets.partition(samples, workers, batches, size, seed, epoch + 1))
        assert not np.array_equal(indices, datasets.partition(samples, workers, batches, size, seed + 1, epoch))


def test_overlapping_partitions_are_the_authors() -> None:
    indices = datasets.partition(400, 4, 10, 10, 0, 0, overlapping=True)
    assert all(len(np.unique(slice_)) == 100 for slice_ in indices)
    covered = len(np.unique(indices)) / 400
    assert 0.6 < covered < 0.77, "expected coverage 1 - (1 - 1/4)^4 = 68.4 %"


def test_too_large_a_plan_is_refused_with_the_arithmetic() -> None:
    with pytest.raises(PlanError, match=r"4 workers × 24 batches × 512 samples = 49,152 samples.*has 1,433") as caught:
        datasets.partition(1433, 4, 24, 512, 0, 0)
    assert caught.value.hint == "--batch-size 14 fits."
    with pytest.raises(PlanError) as caught:
        datasets.partition(1433, 4, 24, 64, 0, 0)
    assert caught.value.hint == "--batches 5 fits."


def test_minibatches_survive_the_wire() -> None:
    images = np.random.default_rng(0).integers(0, 256, (7, 3, 32, 32), dtype=np.uint8)
    labels = np.arange(7)
    body, metadata = datasets.encode_minibatch(images, labels, CIFAR_POLICY)
    assert len(body) == 7 * 3072 + 7 * 8
    decoded, targets, policy = datasets.decode_minibatch(bytearray(body), metadata)
    assert np.array_equal(decoded, images)
    assert np.array_equal(targets, labels)
    assert policy == CIFAR_POLICY
    with pytest.raises(ValueError, match="not 10"):
        datasets.decode_minibatch(body[:10], metadata)


def test_augmentation_depends_on_its_position_alone() -> None:
    images = np.random.default_rng(0).integers(0, 256, (64, 3, 32, 32), dtype=np.uint8)
    labels = np.zeros(64, np.int64)
    first, _ = datasets.prepare(images, labels, CIFAR_POLICY, 1, 2, 3, 4)
    same, _ = datasets.prepare(images, labels, CIFAR_POLICY, 1, 2, 3, 4)
    assert torch.equal(first, same)
    assert (first.shape, first.dtype) == ((64, 3, 32, 32), torch.float32)
    for position in ((0, 2, 3, 4), (1, 0, 3, 4), (1, 2, 0, 4), (1, 2, 3, 0)):
        other, _ = datasets.prepare(images, labels, CIFAR_POLICY, *position)
        assert not torch.equal(first, other)


def test_augmentation_is_a_crop_a_flip_and_the_normalisation() -> None:
    policy = Policy((0.5, 0.25, 0.0), (0.5, 0.5, 1.0), 4, True)
    images = np.random.default_rng(0).integers(0, 256, (40, 3, 32, 32), dtype=np.uint8)
    inputs, _ = datasets.prepare(images, np.zeros(40, np.int64), policy, 0, 0, 0, 0)
    padded = np.pad(images, ((0, 0), (0, 0), (4, 4), (4, 4)))
    mirrored = 0
    for number in range(40):
        candidates = {
            (row, column, flip): np.ascontiguousarray(crop[..., ::-1] if flip else crop)
            for row in range(9)
            for column in range(9)
            for crop in [padded[number, :, row : row + 32, column : column + 32]]
            for flip in (False, True)
        }
        mean, std = np.array([0.5, 0.25, 0.0]), np.array([0.5, 0.5, 1.0])
        found = [
            key
            for key, crop in candidates.items()
            if np.allclose((crop / 255 - mean[:, None, None]) / std[:, None, None], inputs[number], atol=1e-5)
        ]
        assert len(found) == 1
        mirrored += found[0][2]
    assert 8 < mirrored < 32


def test_plain_images_are_only_normalised() -> None:
    images = np.full((1, 1, 32, 32), 255, np.uint8)
    inputs, targets = datasets.prepare_test(images, np.array([3]), Policy((0.5,), (0.25,), 2, False))
    assert torch.allclose(inputs, torch.full((1, 1, 32, 32), 2.0))
    assert targets.tolist() == [3]


def picture(path: Path, colour: tuple[int, int, int], size: int = 32) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (size, size), colour).save(path)


def test_folders_of_images(tmp_path: Path) -> None:
    for number in range(12):
        picture(tmp_path / "red" / f"{number}.png", (255, 0, number), 48)
        picture(tmp_path / "blue" / f"{number}.jpg", (0, number, 255))
    progress: list[tuple[int, int]] = []
    loaded = datasets.load(f"folder:{tmp_path}", report=lambda done, total: progress.append((done, total)))
    assert loaded.train_images.shape == (20, 3, 32, 32)
    assert len(loaded.test_labels) == 4
    red = loaded.train_images[loaded.train_labels == 1]
    assert (red[:, 0] == 255).all(), "classes are in the order of their names"
    assert progress[-1] == (24, 24)


def test_folders_with_a_split_of_their_own(tmp_path: Path) -> None:
    for split, count in (("train", 3), ("test", 2)):
        for number in range(count):
            picture(tmp_path / split / "a" / f"{number}.png", (1, 2, 3))
            picture(tmp_path / split / "b" / f"{number}.png", (4, 5, 6))
    loaded = datasets.load(f"folder:{tmp_path}")
    assert (len(loaded.train_labels), len(loaded.test_labels)) == (6, 4)


def test_a_folder_is_read_again_when_one_of_its_images_changed(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for name in ("a", "b"):
            picture(tmp_path / split / name / "0.png", (1, 2, 3))
    heard: list[int] = []

    def load() -> datasets.Dataset:
        return datasets.load(f"folder:{tmp_path}", report=lambda done, _total: heard.append(done))

    first = load()
    first.train_labels[:] = 9
    assert load().train_labels.tolist() == [0, 1]
    assert heard == [4], "read once"
    with pytest.raises(ValueError, match="read-only"):
        first.train_images[:] = 0
    changed = tmp_path / "test" / "b" / "0.png"
    before = changed.stat().st_mtime_ns
    picture(changed, (7, 7, 7))
    os.utime(changed, ns=(before + 1, before + 1))
    assert load().test_images[1, 0, 0, 0] == 7
    assert heard == [4, 4]


def test_wrong_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="is not a directory"):
        datasets.load("folder:/nowhere")
    with pytest.raises(PlanError, match="0 class folders"):
        datasets.load(f"folder:{tmp_path}")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with pytest.raises(PlanError, match="has no images"):
        datasets.load(f"folder:{tmp_path}")
    (tmp_path / "a" / "broken.png").write_bytes(b"not a picture")
    with pytest.raises(PlanError, match=r"broken\.png cannot be read"):
        datasets.load(f"folder:{tmp_path}")
    with pytest.raises(PlanError, match="no data set"):
        datasets.load("imagenet")


def test_cifar10_is_read_from_its_binary_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLSLAB_DATASETS", str(tmp_path))
    generator = np.random.default_rng(0)
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    records = {name: generator.integers(0, 10, (4, 3073), dtype=np.uint8) for name in names}
    archive = tmp_path / readers.CIFAR10
    with tarfile.open(archive, "w:gz") as members:
        for name, batch in records.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            entry.size = batch.nbytes
            members.addfile(entry, io.BytesIO(batch.tobytes()))
    with pytest.raises(PlanError, match="MD5 checksum"):
        datasets.load("cifar10")
    monkeypatch.setattr(readers, "CIFAR10_MD5", hashlib.md5(archive.read_bytes()).hexdigest())
    found = datasets.load("cifar10")
    train = np.concatenate([records[name] for name in names[:-1]])
    for images, labels, batch in (
        (found.train_images, found.train_labels, train),
        (found.test_images, found.test_labels, records["test_batch"]),
    ):
        assert np.array_equal(images, batch[:, 1:].reshape(-1, 3, 32, 32))
        assert np.array_equal(labels, batch[:, 0])


def test_a_missing_archive_says_where_to_put_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLSLAB_DATASETS", str(tmp_path))
    with pytest.raises(PlanError) as caught:
        datasets.load("cifar10")
    assert "cifar-10-binary.tar.gz" in caught.value.hint


@pytest.mark.cifar10
@pytest.mark.exhaustive
def test_real_cifar10_images() -> None:
    directory = os.environ.get("SLSLAB_CIFAR10")
    if directory is None:
        pytest.skip("SLSLAB_CIFAR10 names no folder of the real CIFAR-10 images")
    loaded = datasets.load(f"folder:{directory}")
    assert loaded.train_images.shape == (50_000, 3, 32, 32)
    assert loaded.test_images.shape == (10_000, 3, 32, 32)
    assert np.array_equal(np.bincount(loaded.train_labels), np.full(10, 5000))
    mean = loaded.train_images.astype(np.float32).mean((0, 2, 3)) / 255
    assert mean == pytest.approx(np.array(CIFAR_POLICY.mean), abs=0.005)
