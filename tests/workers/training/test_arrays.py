"""Data sets of a user's own: CSV files, .npz files, folders and functions; and what is said of unusable ones."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.entry_points import register

from slslab_workers.models import spec
from slslab_workers.plan import PlanError
from slslab_workers.training import datasets
from slslab_workers.training.datasets import Policy

GENERATOR = np.random.default_rng(0)
HEADER = "length,width,species\n"
FLOWERS = HEADER + "".join(
    f"{number},{number % 7},{name}\n" for name in ("tulip", "rose", "daisy") for number in range(20)
)


def written(folder: Path, text: str, name: str = "rows.csv") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


@pytest.mark.parametrize("label", ["", ":species", ":2", ":-1"])
def test_a_csv_file_has_classes_in_the_order_of_their_names(label: str, tmp_path: Path) -> None:
    name = written(tmp_path, FLOWERS) + label
    source, loaded = datasets.find(name), datasets.load(name)
    assert (source.shape, source.classes, source.samples) == ((2,), 3, 48)
    assert source.files == (tmp_path / "rows.csv",)
    assert np.bincount(loaded.train_labels).tolist() == [16, 16, 16]
    assert np.bincount(loaded.test_labels).tolist() == [4, 4, 4]
    np.testing.assert_allclose(loaded.train_images.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(loaded.train_images.std(0), 1, rtol=1e-5)


def test_classes_are_named_by_their_texts_or_numbers(tmp_path: Path) -> None:
    """Tulips come first in the file, and last in the alphabet."""
    whole = datasets.load(written(tmp_path, FLOWERS))
    assert sorted(whole.test_labels.tolist()) == [0] * 4 + [1] * 4 + [2] * 4
    numbered = FLOWERS.replace("tulip", "10").replace("rose", "9").replace("daisy", "-1")
    other = datasets.load(written(tmp_path, numbered, "numbers.csv"))
    assert np.array_equal(other.test_labels, whole.test_labels), "-1, 9, 10: in the order of numbers"


def test_a_file_without_a_header_and_with_semicolons(tmp_path: Path) -> None:
    plain = datasets.load(written(tmp_path, FLOWERS))
    other = datasets.load(written(tmp_path, FLOWERS.removeprefix(HEADER).replace(",", ";"), "plain.csv"))
    assert np.array_equal(plain.train_images, other.train_images)
    assert np.array_equal(plain.train_labels, other.train_labels)


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    name = written(tmp_path, FLOWERS)
    assert datasets.find(name).shape == (2,)
    written(tmp_path, "a,b\n" + "1,x\n2,y\n" * 5)
    os.utime(name, ns=(1, 1))
    assert datasets.find(name).shape == (1,)


def test_numbers_to_predict_are_standardised(tmp_path: Path) -> None:
    rows = "".join(f"{number},{100_000 + 1000 * number + 0.5}\n" for number in range(50))
    name = written(tmp_path, "rooms,price\n" + rows) + ":price:regression"
    loaded = datasets.load(name)
    assert datasets.find(name).classes == 0
    assert (str(loaded.train_labels.dtype), len(loaded.train_labels), len(loaded.test_labels)) == ("float32", 40, 10)
    np.testing.assert_allclose(loaded.train_images[:, 0], loaded.train_labels, rtol=1e-4, atol=1e-5)
    body, metadata = datasets.encode_minibatch(loaded.train_images[:7], loaded.train_labels[:7], None)
    _, labels, _ = datasets.decode_minibatch(bytearray(body), metadata)
    assert labels.dtype == np.float32
    assert np.array_equal(labels, loaded.train_labels[:7])


@pytest.mark.parametrize(
    ("text", "label", "said", "hint"),
    [
        ("", "", "has no rows", "commas"),
        (HEADER, "", "has no rows", "commas"),
        ("a\n" + "1\n2\n" * 5, "", "line 1 has only one column", "commas"),
        (HEADER + '1,2,"x\n' + "1,2,x\n" * 25_000, "", "line 2: field larger than", "close the quotes"),
        (HEADER + "".join(f"1,2,{name}\n" for name in "abcdefg"), "", "no sample left to train on", "at least two"),
        (FLOWERS, ":colour", "has no column 'colour'", "its columns are length, width, species"),
        (FLOWERS, ":9", "has no column '9'", "its columns are"),
        (FLOWERS.removeprefix(HEADER), ":species", "has no column 'species'", "no header, and 3 columns"),
        (FLOWERS, ":length", "line 2: 'tulip' is not a number", "the label's column"),
        (FLOWERS.replace("3,3,rose", "three,3,rose"), "", "line 25: 'three' is not a number", "features are numbers"),
        (FLOWERS.replace("3,3,rose", ",3,rose"), "", "line 25: '' is not a number", "features are numbers"),
        (FLOWERS.replace("3,3,rose", "3,rose"), "", "line 25 has 2 columns of 3", "complete or remove it"),
        (FLOWERS.replace("3,3,rose", "3,3,"), "", "line 25 has 3 columns of 3, or no label", "complete or remove it"),
        (FLOWERS.replace("3,3,rose", "nan,3,rose"), "", "Sample 23 of .* not a number, like 0 others", "fill in"),
        (HEADER + "1,2,x\n3,4,x\n", "", "1 different values in 2 samples", "names the label's column"),
        ("a,b\n" + "".join(f"1,{n}\n" for n in range(50)), "", "50 different values in 50", "LABEL:regression"),
        ("a,b\n1,0.5\n2,0.75\n", "", "aren't whole numbers", "LABEL:regression"),
        (FLOWERS, ":species:regression", "has the label 'tulip', which is not a number", "names the label's column"),
        (FLOWERS, ":species:ranks", "ends in 'ranks'", "LABEL:regression"),
        ("a,b\n1,2\n2,nan\n", ":b:regression", "A label of .* is infinite or not a number", "leave"),
    ],
)
def test_a_csv_file_that_cannot_be_used(text: str, label: str, said: str, hint: str, tmp_path: Path) -> None:
    name = written(tmp_path, text) + label
    with pytest.raises(PlanError, match=said) as refused:
        datasets.find(name)
    assert hint in refused.value.hint


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="No such file"):
        datasets.find("/nowhere/rows.csv")
    (tmp_path / "rows.csv").write_bytes(b"\xff\xfe1,2")
    with pytest.raises(PlanError, match="it isn't UTF-8 text"):
        datasets.find(str(tmp_path / "rows.csv"))
    np.savez(tmp_path / "a.npz", x=np.zeros((40, 400)), y=np.arange(40) % 2)
    np.savez_compressed(tmp_path / "b.npz", x=GENERATOR.normal(size=(40, 400)), y=np.arange(40) % 2)
    np.save(tmp_path / "c.npy", np.zeros(3))
    whole, packed = ((tmp_path / f"{name}.npz").read_bytes() for name in "ab")
    damaged = packed[:3000] + bytes(100) + packed[3100:]
    for number, content in enumerate([b"x", b"", whole[:5000], damaged, (tmp_path / "c.npy").read_bytes()]):
        (tmp_path / f"{number}.npz").write_bytes(content)
        with pytest.raises(PlanError, match=rf"{number}\.npz .* isn't a complete \.npz file"):
            datasets.find(str(tmp_path / f"{number}.npz"))


def test_images_of_a_file_are_normalised_by_their_own_mean(tmp_path: Path) -> None:
    images = GENERATOR.integers(0, 256, (60, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "digits.npz", x=images, y=np.arange(60) % 3)
    loaded = datasets.load(str(tmp_path / "digits.npz"))
    assert (loaded.train_images.shape, loaded.test_images.shape) == ((48, 1, 28, 28), (12, 1, 28, 28))
    inputs, targets = datasets.prepare(loaded.train_images, loaded.train_labels, loaded.policy, 0, 0, 0, 0)
    assert (inputs.dtype, targets.dtype) == (torch.float32, torch.int64)
    assert float(inputs.mean()) == pytest.approx(0, abs=1e-3)
    assert float(inputs.std()) == pytest.approx(1, abs=1e-2)


def test_a_split_of_the_files_own_stays(tmp_path: Path) -> None:
    x, y = GENERATOR.normal(size=(9, 5, 2)), np.array(["b", "a", "b", "a", "b", "c", "a", "a", "b"])
    np.savez(tmp_path / "a.npz", x_train=x[:6], y_train=y[:6], x_test=x[6:], y_test=y[6:])
    loaded = datasets.load(str(tmp_path / "a.npz"))
    assert np.array_equal(loaded.train_images, x[:6].astype(np.float32)), "arrays that aren't rows stay as they are"
    assert loaded.train_labels.tolist() == [1, 0, 1, 0, 1, 2]
    assert loaded.test_labels.tolist() == [0, 0, 1]


def test_grey_images_become_a_networks_channels(tmp_path: Path) -> None:
    images = GENERATOR.integers(0, 256, (10, 32, 32), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", x=images, y=np.arange(10) % 2)
    fitted = datasets.load(str(tmp_path / "a.npz")).for_model(spec("mobilenet"))
    assert fitted.train_images.shape[1:] == (3, 32, 32)
    assert isinstance(fitted.policy, Policy)
    assert len(set(fitted.policy.mean)) == 1


def test_grey_images_of_floats_become_a_networks_channels(tmp_path: Path) -> None:
    images = GENERATOR.random((10, 1, 32, 32), np.float32)
    np.savez(tmp_path / "a.npz", x=images, y=np.arange(10) % 2)
    fitted = datasets.load(str(tmp_path / "a.npz")).for_model(spec("mobilenet"))
    assert (fitted.train_images.shape, fitted.test_images.shape) == ((8, 3, 32, 32), (2, 3, 32, 32))
    assert fitted.policy is None
    assert np.array_equal(fitted.train_images[:, 0], fitted.train_images[:, 2])


def test_training_and_test_samples_of_different_types_are_refused(tmp_path: Path) -> None:
    images, labels = GENERATOR.integers(0, 256, (6, 1, 8, 8), dtype=np.uint8), [0, 1, 0, 1, 0, 1]
    np.savez(tmp_path / "a.npz", x_train=images, y_train=labels, x_test=images / 255, y_test=labels)
    with pytest.raises(PlanError, match="samples of different types for training and for test"):
        datasets.find(str(tmp_path / "a.npz"))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"a": [[1.0]], "b": [1]}, "has no array x_train, but a, b"),
        ({"x": [[1.0], [2.0]]}, "has no array y"),
        ({"x": [[1.0], [2.0]], "y": [1, 2, 3]}, r"shape \(2, 1\) and labels of shape \(3,\)"),
        ({"x": [1.0, 2.0], "y": [1, 2]}, r"have the shape \(2,\)"),
        ({"x": [[1.0], [2.0]], "y": [[1], [2]]}, r"labels of .* have the shape \(2, 1\)"),
        ({"x": [["a"], ["b"]], "y": [1, 2]}, "aren't numbers, or differ in size"),
        ({"x": [[1.0], [np.inf]], "y": [1, 2]}, "Sample 1 of .* infinite"),
        ({"x": np.zeros((4, 28, 28, 3), np.uint8), "y": [1, 2, 1, 2]}, "with the channels last"),
        ({"x": np.array([np.zeros((2, 2)), np.zeros((3, 3))], object), "y": [1, 2]}, "images of different sizes"),
    ],
)
def test_a_numpy_file_that_cannot_be_used(arrays: dict[str, Any], said: str, tmp_path: Path) -> None:
    named: Any = {name: np.asarray(array) for name, array in arrays.items()}
    np.savez(tmp_path / "a.npz", **named)
    with pytest.raises(PlanError, match=said):
        datasets.find(str(tmp_path / "a.npz"))


def test_a_folder_is_a_data_set_by_its_path(tmp_path: Path) -> None:
    for number in range(12):
        for name in range(2):
            path = tmp_path / f"{number:02}" / f"{name}.png"
            path.parent.mkdir(exist_ok=True)
            Image.new("RGB", (20 + number, 30), (number, 0, 0)).save(path)
    assert (datasets.find(str(tmp_path)).classes, datasets.find(str(tmp_path)).shape) == (12, (3, 32, 32))
    assert set(datasets.load(str(tmp_path)).test_labels.tolist()) == set(range(12))


STRANGERS = """
import numpy as np

def flowers():
    return np.arange(80.0).reshape(40, 2), np.arange(40) % 4

def ragged():
    return [np.zeros((2, 2)), np.zeros((3, 3))], [0, 1]

def mixed():
    return np.zeros((4, 2)), np.array(["a", 1, None, "b"], object)

def named():
    return np.zeros((4, 2)), np.array(["a", "b", "a", "b"], object)

def uneven():
    return np.zeros((2, 2)), [[0], [0, 1]]

def unseeded():
    return np.random.default_rng().normal(size=(10, 2)), np.arange(10) % 2

def torn():
    raise RuntimeError("no network")

def nothing():
    return None
"""


def test_a_function_returns_a_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "strangers_data.py").write_text(STRANGERS)
    register(tmp_path, "strangers", datasets="flowers = strangers_data:flowers")
    for name in ("flowers", "strangers_data:flowers"):
        assert (datasets.find(name).shape, datasets.find(name).classes) == ((2,), 4)
        assert datasets.value_of(name) == "strangers_data:flowers"
    assert datasets.find("strangers_data:named").classes == 2
    first, again = (datasets.load("strangers_data:unseeded").train_images for _ in range(2))
    assert np.array_equal(first, again), "the plan and the run have the same samples"
    for name, said in {
        "strangers_data:ragged": "aren't numbers, or differ in size",
        "strangers_data:mixed": "are objects, and not all of them are texts",
        "strangers_data:uneven": "can't be made: ValueError: .*inhomogeneous",
        "strangers_data:torn": "can't be made: RuntimeError: no network",
        "strangers_data:nothing": "isn't two or four arrays",
        "strangers_data:none": "can't be imported: AttributeError",
        "no_such_module:data": "can't be imported: ModuleNotFoundError: No module named 'no_such_module'",
    }.items():
        with pytest.raises(PlanError, match=said):
            datasets.find(name)
