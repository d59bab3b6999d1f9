"""Fit a model to a data set when a plan is made, so that a mismatch shows before anything is deployed."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from slslab_workers.models import ROW_MODELS, SPECS, ModelSpec, exchanged_buffers, registered, spec, spec_of
from slslab_workers.plan import Plan, PlanError, Value
from slslab_workers.training import datasets, partitions, robust
from slslab_workers.training.algorithms import ALGORITHM, CLUSTERS, is_asynchronous
from slslab_workers.training.arrays import failed, load_object
from slslab_workers.training.attacks import Attack
from slslab_workers.training.buffers import BUFFERS, LOCAL
from slslab_workers.training.datasets import Source, check_shape
from slslab_workers.training.options import uneven

if TYPE_CHECKING:
    import torch

# Memory of PyTorch and a minibatch of rows or images, MB, and the number of copies of a model.
ROWS_MB, OTHERS_MB, COPIES = 1024, 3008, 6
# The largest default: a run's account or platform may have another limit, which is checked when a plan is admitted.
MOST_MB = 10_240


def fit(name: str | None, dataset: str, source: Source, options: Mapping[str, Value]) -> ModelSpec:
    """Return the model with this name for a data set: built in, from the group `slslab.models`, or module:function.

    It is built for the shape of the samples and the number of classes. Without a name, return the usual model for such
    samples. Raise PlanError if it can't be imported or built, or if its outputs don't fit the data set.
    """
    name = name or _usual(dataset, source.shape)
    if re.match(r"torchvision[.:]", name):
        raise PlanError(
            f"{name} isn't a function of a sample's shape and of the number of outputs.",
            "write a function that returns torchvision's model, and give --model module:function (docs/own.md).",
        )
    outputs = source.classes or 1
    if (builder := value_of(name)) is not None:
        return measure(ModelSpec(name, source.shape, 0, 1, builder, outputs), source)
    if name in ROW_MODELS:
        name = _widened(name, dataset, source, options)
    known = spec(name)
    check_shape(known, dataset, source.shape)
    if known.clusters and not source.classes:
        raise PlanError(f"k-means finds clusters, and {dataset} is a regression.", "choose --model lr.")
    # The papers' networks have at least ten classes, as in the papers.
    if known.clusters or (source.classes and outputs <= known.outputs):
        return known
    return measure(replace(known, outputs=outputs), source)


def check(plan: Plan) -> None:
    """Raise PlanError if an earlier plan can't be carried out anew.

    Its data set is missing, its model has changed since, or its partition doesn't fit.
    """
    source, known = datasets.find(plan.dataset), spec_of(plan)
    source.check()
    check_shape(known, plan.dataset, source.shape)
    check_choices(plan, source)
    if plan.model_spec is not None and measure(known, source) != known:
        raise PlanError(f"The model {plan.model} isn't what it was when the plan was made.", "give --model anew.")


def check_choices(plan: Plan, source: Source) -> None:
    """Raise PlanError if an uneven partition doesn't fit the plan's workers or the data set's classes, or if the plan's
    buffers can't be exchanged."""
    if (partition := uneven(plan)) is not None:
        partitions.check(partition, plan.workers, source.classes)
    if (chosen := BUFFERS.of(plan.options)) == LOCAL:
        return
    if not exchanged_buffers(plan):
        raise PlanError(f"--buffers {chosen} doesn't apply: {plan.model} has no buffers.", "leave it out.")
    if is_asynchronous(plan.options):
        raise PlanError(f"S-ASP exchanges models two by two, and --buffers {chosen} needs all.", "leave it out.")
    if robust.name_of(plan.options) is not None or Attack.of(plan).ranks:
        raise PlanError(
            f"Attacks and rules against them are for gradients, which buffers would follow with --buffers {chosen}.",
            "leave out --buffers, or --attack and --combine.",
        )


def value_of(name: str) -> str | None:
    """Return the "module:function" of another package's model; None for a built-in or unknown name."""
    return registered().get(name) or (name if ":" in name else None)


def measure(known: ModelSpec, source: Source) -> ModelSpec:
    """Build the model and return the specification with its parameters, tensors and memory."""
    import torch

    from slslab_workers.training import models

    load_object("model", known.builder)
    try:
        model = models.build(known, 0)
        if not isinstance(model, torch.nn.Module):
            raise PlanError(
                f"The model {known.name} is {type(model).__name__!r}, and not a torch.nn.Module.",
                "return the module from `def model(shape, outputs)`.",
            )
        _check_answer(known, source, model)
        parameters = list(model.parameters())
    except PlanError:
        raise
    except Exception as error:  # another package's model may raise anything
        raise failed("model", f"{known.name} for samples {known.shape} and {known.outputs} outputs", error) from error
    if not parameters or any(parameter.dtype != torch.float32 for parameter in parameters):
        raise PlanError(f"The model {known.name} has no parameters, or they aren't float32.", "give it some.")
    count = sum(parameter.numel() for parameter in parameters)
    memory_mb = (ROWS_MB if len(known.shape) == 1 else OTHERS_MB) + COPIES * 4 * count // 10**6
    return replace(
        known,
        parameters=count,
        memory_mb=max(known.memory_mb, min(memory_mb, MOST_MB)),
        tensors=len(model.state_dict()),
        buffers=sum(buffer.numel() for buffer in model.buffers()),
    )


def _check_answer(known: ModelSpec, source: Source, model: "torch.nn.Module") -> None:
    """Apply the model to two samples and compute their loss."""
    import torch

    from slslab_workers.training import models

    samples = torch.zeros(2, *known.shape)
    targets = torch.zeros(2, dtype=torch.int64 if source.classes else torch.float32)
    with torch.no_grad():
        scores = model.eval()(samples.to_sparse() if source.sparse else samples)
        if scores.shape != (2, known.outputs):
            raise PlanError(
                f"The model {known.name} returns the shape {tuple(scores.shape)} for 2 samples, but the data set "
                f"needs (2, {known.outputs}).",
                "`def model(shape, outputs)` gets the number of outputs: make the last layer as wide.",
            )
        models.loss(model, scores, targets)


def _usual(dataset: str, shape: tuple[int, ...]) -> str:
    if len(shape) == 1:
        return "lr"
    usual = next((name for name in ("lenet", "mobilenet") if SPECS[name].shape == shape), None)
    if usual is None:
        raise PlanError(
            f"There is no default model for {dataset}, with samples {shape}.", "give --model module:function."
        )
    return usual


def _widened(name: str, dataset: str, source: Source, options: Mapping[str, Value]) -> str:
    """Return the full name of a model for rows, with its number of features and of clusters."""
    if len(source.shape) != 1:
        raise PlanError(
            f"The model {name} takes rows of features, and the data set {dataset} has none.",
            "choose --dataset breast-cancer, higgs-shaped, rcv1-shaped, libsvm:FILE or FILE.csv.",
        )
    clusters = ""
    if name == "kmeans":
        if options.get(ALGORITHM.name) != "em":
            raise PlanError("k-means is trained by EM.", "choose an architecture with --algorithm em.")
        clusters = f"{options[CLUSTERS.name]}x"
    return f"{name}-{clusters}{source.shape[0]}"
