"""A model of a user's own, or with another number of classes, is fitted to its data when a plan is made."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.commands import slslab
from tests.entry_points import register

from slslab_lab.runs.planning import architectures, make_plan
from slslab_workers.models import own_packages, spec, spec_of, to_document
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training import datasets, evaluation, fitting, models
from slslab_workers.training.step import compute_gradient

NETS = """
import torch
from torch import nn

def mlp(shape, outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, outputs))

class Cubed(nn.Linear):
    def loss(self, scores, targets, reduction):
        cubes = (scores.squeeze(1) - targets).abs() ** 3
        return cubes.mean() if reduction == "mean" else cubes.sum()

def cubed(shape, outputs):
    return Cubed(shape[0], outputs)

def ten(shape, outputs):
    return nn.Linear(shape[0], 10)

def narrow(shape, outputs):
    return nn.Linear(3, outputs)

def wordy(shape, outputs):
    return "a model"

def double(shape, outputs):
    return nn.Linear(shape[0], outputs).double()

def bare(shape, outputs):
    return nn.Flatten()

def plain():
    return nn.Linear(2, 3)
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models in a file of the working directory, and two data sets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "strangers_nets.py").write_text(NETS)
    register(tmp_path, "strangers", models="mlp = strangers_nets:mlp")
    generator = np.random.default_rng(0)
    x = generator.normal(size=(120, 2))
    np.savez("three.npz", x=x, y=np.arange(120) % 3)
    np.savez("number.npz", x=x, y=x @ [2.0, -1.0])


def planned(architecture: str = "allreduce", **values: Any) -> Plan:
    options = values.pop("options", {})
    return make_plan(architectures()[architecture], {"dataset": "three.npz", "workers": 2, **values}, options)


@pytest.mark.parametrize("name", ["mlp", "strangers_nets:mlp"])
def test_a_model_of_ones_own_is_described_in_the_plan(name: str) -> None:
    plan = planned(model=name)
    assert plan.model == name
    assert plan.model_spec == {
        "shape": [2],
        "parameters": 2 * 5 + 5 + 10 + 5 * 3 + 3,
        "memory_mb": 1024,
        "builder": "strangers_nets:mlp",
        "outputs": 3,
        "clusters": 0,
        "tensors": 9,
        "buffers": 11,
    }
    assert (plan.batch_size, plan.batches) == (4, 12), "all 96 training samples"
    assert own_packages(plan) == ("strangers_nets",)
    again = Plan.from_document(plan.to_document())
    one, other = (models.build(spec_of(each), 7) for each in (plan, again))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    fitting.check(again)


def test_the_hint_and_the_help_list_registered_models() -> None:
    with pytest.raises(PlanError) as caught:
        planned(model="alexnet")
    assert "kmeans, mlp, or module" in caught.value.hint
    done = slslab("run", "allreduce", "--help")
    assert "Registered: mlp." in " ".join(done.out.split())


def test_built_in_models_need_no_description() -> None:
    for model, dataset in (("lenet", "digits"), ("lr", "breast-cancer"), (None, "synthetic"), ("svm", "higgs-shaped")):
        plan = planned(model=model, dataset=dataset)
        assert plan.model_spec is None
        assert "model_spec" not in plan.to_document()
        assert own_packages(plan) == ()


@pytest.mark.parametrize(("model", "parameters"), [("lr", 9), ("svm", 9), (None, 9)])
def test_models_for_rows_tell_as_many_classes_apart_as_there_are(model: str | None, parameters: int) -> None:
    plan = planned(model=model)
    assert spec_of(plan).parameters == parameters
    assert plan.model == f"{model or 'lr'}-2"
    model_, data = models.build(spec_of(plan), 0), datasets.load(plan.dataset)
    loss, _ = compute_gradient(model_, torch.from_numpy(data.train_images), torch.from_numpy(data.train_labels))
    assert 0.1 < loss < 3


def test_networks_get_more_than_ten_classes_and_stay_at_ten_for_fewer() -> None:
    images = np.random.default_rng(0).integers(0, 256, (120, 32, 32), dtype=np.uint8)
    np.savez("many.npz", x=images, y=np.arange(120) % 12)
    np.savez("few.npz", x=images, y=np.arange(120) % 3)
    assert spec_of(planned(dataset="many.npz", model="lenet")).outputs == 12
    few = planned(dataset="few.npz")
    assert (few.model, few.model_spec) == ("lenet", None)


def test_a_regression_is_learnt_and_judged_by_what_it_explains() -> None:
    plan = planned(dataset="number.npz")
    known = spec_of(plan)
    assert (plan.model, known.outputs, known.parameters) == ("lr-2", 1, 3)
    model, data = models.build(known, 0), datasets.load(plan.dataset)
    inputs, targets = torch.from_numpy(data.train_images), torch.from_numpy(data.train_labels)
    optimiser = torch.optim.SGD(model.parameters(), 0.2)
    for _ in range(100):
        loss, _ = compute_gradient(model, inputs, targets)
        optimiser.step()
    r2, test_loss = evaluation.judge(model, data.test_images, data.test_labels, None)
    assert loss < 1e-4
    assert r2 > 0.999
    assert test_loss < 1e-3
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(3.0)
    assert evaluation.judge(model, data.test_images, data.test_labels, None)[0] < 0, "worse than their mean"


def test_a_model_may_have_a_loss_of_its_own() -> None:
    known = spec_of(planned(dataset="number.npz", model="strangers_nets:cubed"))
    model = models.build(known, 0)
    scores, targets = torch.tensor([[2.0], [0.0]]), torch.tensor([0.0, 1.0])
    assert float(models.loss(model, scores, targets)) == 4.5
    assert float(models.loss(model, scores, targets, "sum")) == 9
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    r2, cubes = evaluation.judge(model, np.zeros((2, 2), np.float32), np.array([-2, 2], np.float32), None)
    assert (r2, cubes) == (0, 8), "R² is of squares: the mean explains nothing"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"model": "strangers_nets:no_such"}, "strangers_nets:no_such can't be imported: AttributeError"),
        ({"model": "no_such_module:mlp"}, "can't be imported: ModuleNotFoundError"),
        ({"model": "strangers_nets:ten"}, r"returns the shape \(2, 10\) for 2 samples, .* needs \(2, 3\)"),
        ({"model": "strangers_nets:narrow"}, r"for samples \(2,\) and 3 outputs can't be made: RuntimeError"),
        ({"model": "strangers_nets:wordy"}, "is 'str', and not a torch.nn.Module"),
        ({"model": "strangers_nets:double"}, "has no parameters, or they aren't float32|can't be made"),
        ({"model": "strangers_nets:bare"}, "returns the shape"),
        ({"model": "strangers_nets:plain"}, "can't be made: TypeError: plain"),
        ({"model": "vgg"}, "no model 'vgg'"),
        ({"model": "lenet"}, r"lenet takes images of 1 × 32 × 32, and three\.npz has rows of 2 features"),
        ({"model": "svm", "dataset": "number.npz"}, "svm-2 for samples .* can't be made"),
        ({"model": "kmeans", "dataset": "number.npz", "options": {"algorithm": "em"}}, "is a regression"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said) as refused:
        planned(**values)
    assert refused.value.hint.endswith(".")


@pytest.mark.parametrize("name", ["torchvision:mlp", "torchvision.models:mlp"])
def test_a_model_of_torchvision_is_refused_also_if_it_is_installed(name: str, tmp_path: Path) -> None:
    (tmp_path / "torchvision").mkdir()
    for module in ("__init__", "models"):
        (tmp_path / "torchvision" / f"{module}.py").write_text(NETS)
    with pytest.raises(PlanError, match=f"{name} isn't a function of a sample's shape") as refused:
        planned(model=name)
    assert "docs/own.md" in refused.value.hint


def test_samples_that_no_built_in_model_takes_need_a_model() -> None:
    np.savez("series.npz", x=np.zeros((40, 7, 2)), y=np.arange(40) % 2)
    with pytest.raises(PlanError, match=r"There is no default model for series\.npz"):
        planned(dataset="series.npz")


def test_admm_is_refused_for_other_than_two_classes() -> None:
    plan = planned(model="lr", options={"algorithm": "admm"})
    with pytest.raises(PlanError, match="ADMM is written for 2 classes, and lr-2 has 3 outputs"):
        architectures()["allreduce"].requirements(plan)
    network = planned(model="mlp", options={"algorithm": "admm"})
    with pytest.raises(PlanError, match="mlp is a neural network"):
        architectures()["allreduce"].requirements(network)


def test_a_plan_whose_model_has_changed_since_is_refused() -> None:
    plan = planned(model="mlp")
    assert plan.model_spec is not None
    other = replace(plan, model_spec={**plan.model_spec, "parameters": 40})
    with pytest.raises(PlanError, match="isn't what it was"):
        fitting.check(other)


@pytest.mark.parametrize(
    "document",
    [
        *(None, "abc", {"shape": 3}, {"shape": [2.5]}, {"builder": "none"}, {"colour": 1}, {"parameters": -1}),
        *({name: 2.5} for name in ("outputs", "memory_mb", "parameters", "tensors", "buffers")),
        *({"outputs": 0}, {"outputs": "3"}),
    ],
)
def test_a_wrong_description_is_refused(document: Any) -> None:
    plan = planned(model="mlp")
    assert plan.model_spec is not None
    changed: Any = {**plan.model_spec, **document} if isinstance(document, dict) else document or {}
    with pytest.raises(PlanError, match="model_spec doesn't describe the model mlp"):
        spec_of(replace(plan, model_spec=changed))


def test_a_description_says_what_the_name_does_not() -> None:
    assert to_document(spec("lenet")) is None
    document = to_document(replace(spec("lr-30"), outputs=3, parameters=93))
    assert document is not None
    assert (document["outputs"], document["builder"]) == (3, "slslab_workers.training.models:lr")
