"""Rows of features: shipped ones, made ones, files, what they become as minibatches, and the models that take them."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from slslab_workers.models import spec
from slslab_workers.plan import PlanError
from slslab_workers.training import datasets, gradients, models, rows
from slslab_workers.training.sparse_rows import SparseRows
from slslab_workers.training.step import compute_gradient


def test_the_tumours_that_are_shipped_are_scikit_learns() -> None:
    from sklearn.datasets import load_breast_cancer

    features, labels = load_breast_cancer(return_X_y=True)
    with np.load(rows.BREAST_CANCER) as shipped:
        assert np.array_equal(shipped["features"], features.astype(np.float32))
        assert np.array_equal(shipped["labels"], labels)


def test_tumours_are_stratified_and_standardised_by_what_trains() -> None:
    found = datasets.load("breast-cancer")
    assert (found.train_images.shape, found.test_images.shape) == ((454, 30), (115, 30))
    assert found.train_images.dtype == np.float32
    assert list(np.bincount(found.test_labels)) == [43, 72]
    assert np.allclose(found.train_images.mean(0), 0, atol=1e-5)
    assert np.allclose(found.train_images.std(0), 1, atol=1e-5)
    assert not np.allclose(found.test_images.mean(0), 0, atol=1e-2)
    assert found.policy is None


def test_made_rows_are_as_hard_as_higgs() -> None:
    """No linear model gets below a loss of 0.6, and one that has learned is below the paper's threshold of 0.68."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    found = datasets.load("higgs-shaped", 20_000, seed=3)
    assert (found.train_images.shape, found.test_images.shape) == ((20_000, 28), (4_000, 28))
    learned = LogisticRegression().fit(found.train_images, found.train_labels)
    loss = log_loss(found.test_labels, learned.predict_proba(found.test_images))
    assert 0.6 < loss < 0.68
    again, other = (datasets.load("higgs-shaped", 20_000, seed=seed) for seed in (3, 4))
    assert np.array_equal(found.train_images, again.train_images)
    assert not np.array_equal(found.train_images, other.train_images)


def test_a_file_is_read_as_scikit_learn_reads_it(tmp_path: Path) -> None:
    from sklearn.datasets import load_svmlight_file

    generator = np.random.default_rng(5)
    lines = ["# a comment", ""]
    for number in range(40):
        chosen = np.sort(generator.choice(9, 4, replace=False)) + 1
        pairs = " ".join(f"{index}:{generator.normal():.6g}" for index in chosen)
        lines.append(f"{'+1' if number % 3 else '-1'} {pairs}{' # said' * (number % 2)}")
    path = tmp_path / "rows.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found, labels = rows.parse_libsvm(path)
    expected, signs = load_svmlight_file(str(path))
    assert np.array_equal(found.to_array(), expected.toarray().astype(np.float32))
    assert np.array_equal(labels, (signs > 0).astype(np.int64))
    assert datasets.find(f"libsvm:{path}").shape[0] == found.shape[1]
    assert len(datasets.load(f"libsvm:{path}").train_images) == 31


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 1:0.5\n-1 2:x\n", "line 2: '2:x'"),
        ("1 1:0.5\n\n-1 2\n", "line 3: '2'"),
        ("1 2:1 1:1\n-1 1:1\n", "line 1: '1:1'"),
        ("1 0:1\n-1 1:1\n", "line 1: '0:1'"),
        ("1:1 2:1\n-1 1:1\n", "line 1: '1:1'"),
        ("1 1:nan\n-1 1:1\n", "line 1: '1:nan'"),
        ("1 1:1e300\n-1 1:1\n", "line 1: '1:1e300'"),
        ("inf 1:1\n-1 1:1\n", "line 1: 'inf'"),
        ("1 1:1\n2 1:1\n3 1:1\n", "3 different labels"),
        ("1 1:1\n", "1 different labels"),
        ("", "0 different labels"),
        ("1 1:1\n-1 999999999:1\n", "line 2: '999999999:1'"),
    ],
)
def test_a_wrong_file_is_refused_by_its_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PlanError) as caught:
        datasets.load(f"libsvm:{path}")
    assert said in caught.value.message
    assert str(path) in caught.value.message


def test_a_file_takes_about_its_own_size_to_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    row = " ".join(f"{index}:0.5" for index in range(1, 101))
    path.write_text(f"1 {row}\n-1 {row}\n" * 2000, encoding="utf-8")
    tracemalloc.start()
    try:
        rows.parse_libsvm(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * path.stat().st_size


def test_a_line_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.txt"
    path.write_text(f"1 1:1\n-1 {'1' * 2_000_000}", encoding="utf-8")
    monkeypatch.setattr(rows, "LONGEST_LINE", 1 << 20)
    with pytest.raises(PlanError, match="line 2 has more than 1 MB"):
        datasets.find(f"libsvm:{path}").shape[0]


def test_a_file_that_is_too_large_as_an_array_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.txt"
    path.write_text("1 1:1 9:1\n-1 2:1\n", encoding="utf-8")
    monkeypatch.setattr(rows, "MOST_BYTES", 2 * 9 * 4 - 1)
    with pytest.raises(PlanError, match="2 rows of 9 features, more than 0 GB"):
        datasets.load(f"libsvm:{path}")


@pytest.mark.parametrize(("content", "said"), [(None, "No such file"), (b"\xff\xfe1 1:1", "it isn't UTF-8 text")])
def test_a_file_that_cannot_be_read_is_refused(content: bytes | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PlanError, match=said):
        datasets.find(f"libsvm:{path}").shape[0]


def test_rows_of_rcv1s_shape_are_sparse_and_on_two_sides_of_a_plane() -> None:
    from scipy.sparse import csr_array
    from sklearn.linear_model import LogisticRegression

    found = datasets.load("rcv1-shaped", 6_000, seed=3)
    train, test = found.train_images, found.test_images
    assert (train.shape, test.shape) == ((6_000, 47_236), (1_200, 47_236))
    for made in (train, test):
        assert set(made.lengths) == {73}
        columns = made.columns.reshape(-1, 73)
        assert (np.diff(columns.astype(np.int64), axis=1) > 0).all()
        assert columns.max() < 47_236
        assert made.values.min() > 0
        assert np.allclose(np.square(made.values.reshape(-1, 73)).sum(1), 1, atol=1e-5)
    assert 0.4 < found.train_labels.mean() < 0.6
    # The most frequent feature is in a fifth of the rows.
    assert np.bincount(train.columns).max() / 6_000 == pytest.approx(0.2, abs=0.03)
    learned = LogisticRegression(C=100).fit(
        csr_array((train.values, train.columns, train.starts), train.shape), found.train_labels
    )
    assert learned.score(csr_array((test.values, test.columns, test.starts), test.shape), found.test_labels) > 0.65
    again, other = (datasets.load("rcv1-shaped", 6_000, seed=seed).train_images for seed in (3, 4))
    assert train.to_bytes() == again.to_bytes() != other.to_bytes()
    # 697,641 rows of RCV1 are 413 MB, and not 132 GB.
    assert train.columns.nbytes + train.values.nbytes + train.starts.nbytes == 6_000 * (73 * 8 + 8) + 8


def test_a_sparse_file_stays_sparse_and_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    lines = [f"{1 - 2 * (number % 2)} {number + 1}:0.5 {number + 40}:2" for number in range(20)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    name = f"libsvm:{path}"
    found = datasets.load(name)
    assert datasets.find(name).sparse
    assert datasets.find(name).shape[0] == found.train_images.width == 59
    read = np.concatenate([found.train_images.to_array(), found.test_images.to_array()])
    assert len(read) == 20
    assert sorted(read.sum(1)) == [2.5] * 20
    # One entry more in ten is a dense file, and standardised.
    path.write_text("1 1:0.5\n-1 10:2\n" * 10, encoding="utf-8")
    assert not datasets.find(name).sparse
    assert isinstance(datasets.load(name).train_images, np.ndarray)
    assert [datasets.find(other).sparse for other in ("breast-cancer", "higgs-shaped", "rcv1-shaped")] == [
        False,
        False,
        True,
    ]


@given(
    table=arrays(
        np.float32, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.sampled_from([0.0, 0.0, 1.5])
    ),
    data=st.data(),
)
def test_sparse_rows_are_the_rows_with_their_zeros(table: Any, data: st.DataObject) -> None:
    places = np.nonzero(table)
    made = SparseRows.of((table != 0).sum(1), places[1], table[places], table.shape[1])
    assert made.shape == table.shape
    assert np.array_equal(made.to_array(), table)
    assert torch.equal(made.to_tensor().to_dense(), torch.from_numpy(table))
    chosen = np.array(data.draw(st.lists(st.integers(0, len(table) - 1))), np.int64)
    assert np.array_equal(made[chosen].to_array(), table[chosen])
    assert np.array_equal(made[1:3].to_array(), table[1:3])
    body = made.to_bytes()
    assert len(body) == 8 * int((table != 0).sum()) + 4 * len(table)
    assert np.array_equal(SparseRows.from_bytes(body, *table.shape).to_array(), table)


def test_a_minibatch_of_sparse_rows_comes_back() -> None:
    found = datasets.load("rcv1-shaped", 100)
    body, metadata = datasets.encode_minibatch(found.train_images[:7], found.train_labels[:7], None)
    assert (len(body), metadata) == (7 * (73 * 8 + 4 + 8), {"shape": "7,47236", "layout": "sparse"})
    images, labels, policy = datasets.decode_minibatch(bytearray(body), metadata)
    inputs, targets = datasets.prepare(images, labels, policy, 0, 1, 2, 3)
    assert torch.equal(inputs.to_dense(), torch.from_numpy(found.train_images[:7].to_array()))
    assert torch.equal(targets, torch.from_numpy(found.train_labels[:7]))
    with pytest.raises(ValueError, match="7 sparse rows have 511 entries, and 510 are there"):
        datasets.decode_minibatch(bytearray(body[8:]), metadata)


@pytest.mark.parametrize("name", ["lr", "svm", "kmeans-3x"])
def test_models_learn_of_sparse_rows_what_they_learn_of_dense_ones(name: str) -> None:
    found = datasets.load("rcv1-shaped", 100)
    kind = f"{name}47236" if "x" in name else f"{name}-47236"
    model, threads = models.build(kind, seed=2), torch.get_num_threads()
    sparse, targets = datasets.prepare_test(found.train_images[:50], found.train_labels[:50], None)
    if name == "kmeans-3x":
        gradients.write_parameters(model, sparse.to_dense()[:3].flatten())
    loss, gradient = compute_gradient(model, sparse, targets)
    dense_loss, dense_gradient = compute_gradient(model, sparse.to_dense(), targets)
    assert loss == pytest.approx(dense_loss, rel=1e-5)
    torch.testing.assert_close(gradient, dense_gradient, rtol=1e-4, atol=1e-7)
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            assert torch.equal(compute_gradient(model, sparse, targets)[1], gradient), "the bits are the threads'"
    finally:
        torch.set_num_threads(threads)


def test_a_minibatch_of_rows_comes_back() -> None:
    found = datasets.load("breast-cancer")
    body, metadata = datasets.encode_minibatch(found.train_images[:7], found.train_labels[:7], None)
    assert (len(body), metadata) == (7 * (30 * 4 + 8), {"shape": "7,30"})
    images, labels, policy = datasets.decode_minibatch(bytearray(body), metadata)
    inputs, targets = datasets.prepare(images, labels, policy, 0, 1, 2, 3)
    assert torch.equal(inputs, torch.from_numpy(found.train_images[:7]))
    assert torch.equal(targets, torch.from_numpy(found.train_labels[:7]))


@pytest.mark.parametrize(
    ("model", "dataset", "said"),
    [
        ("lr-30", "digits", "takes rows of 30 features, and digits has images"),
        ("lenet", "breast-cancer", "takes images of 1 × 32 × 32, and breast-cancer has rows of 30 features"),
        ("svm-28", "breast-cancer", "takes rows of 28 features, and breast-cancer has rows of 30 features"),
    ],
)
def test_a_model_and_samples_that_do_not_fit_are_refused(model: str, dataset: str, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        datasets.load(dataset).for_model(spec(model))


@pytest.mark.parametrize("name", ["lr", "lr-0", "lr-030", "svm-x", "kmeans-3"])
def test_a_linear_model_has_a_number_of_features(name: str) -> None:
    with pytest.raises(PlanError, match="There is no model"):
        spec(name)


@pytest.mark.parametrize("name", ["lr", "svm"])
def test_linear_models_have_the_gradient_of_their_loss(name: str) -> None:
    """Written out: of cross-entropy, and of the hinge loss of the margin between two scores."""
    model = models.build(f"{name}-30", seed=2)
    assert spec(f"{name}-30").parameters == sum(parameter.numel() for parameter in model.parameters()) == 62
    found = datasets.load("breast-cancer")
    inputs, targets = torch.from_numpy(found.train_images[:50]), torch.from_numpy(found.train_labels[:50])
    loss, gradient = compute_gradient(model, inputs, targets)
    weight, bias = (parameter.detach() for parameter in model.parameters())
    scores: Any = inputs @ weight.T + bias
    wanted = torch.nn.functional.one_hot(targets, 2).float()
    if name == "lr":
        slopes = torch.softmax(scores, 1) - wanted
        losses = -torch.log_softmax(scores, 1)[torch.arange(50), targets]
    else:
        margin = (scores * (2 * wanted - 1)).sum(1)
        losses = (1 - margin).clamp(min=0)
        assert 0 < int((losses > 0).sum()) < 50
        slopes = -(2 * wanted - 1) * (losses > 0).float()[:, None]
    assert loss == pytest.approx(float(losses.mean()), rel=1e-5)
    expected = gradients.flatten([slopes.T @ inputs / 50, slopes.mean(0)])
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)
