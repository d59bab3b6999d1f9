"""Describe models without building them, which `slslab_workers.training.models` does.

The papers' networks for images are LeNet-5, MobileNet v1, ResNet-18, ResNet-34 and ResNet-50 for CIFAR; their parameter
counts were measured by building them. Models for rows of features are logistic regression, a linear SVM and k-means;
their names end in the number of features, such as lr-30, or kmeans-10x30 with ten clusters. If a plan's model comes
from another package, or has another number of classes, `model_spec` describes it.
"""

import re
from dataclasses import asdict, dataclass
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any

from slslab_workers.plan import Plan, PlanError

# Models for rows. In a plan, the number of features follows the name; kmeans has the number of clusters before it.
ROW_MODELS = ("lr", "svm", "kmeans")
NETWORKS = "slslab_workers.training.models"
SIDE = 32


@dataclass(frozen=True)
class ModelSpec:
    """A model's figures, known without building it.

    A sample has this `shape`: (C, H, W) for an image, (D,) for a row of features. The model returns `outputs`
    numbers: the scores of classes or clusters, or the one number of a regression. `builder` is the "module:function"
    that builds it. `memory_mb` is enough for a minibatch of 512 with PyTorch 2.13. Its state_dict has `tensors`
    entries, with `buffers` numbers in addition to the parameters (BatchNorm's).
    """

    name: str
    shape: tuple[int, ...]
    parameters: int
    memory_mb: int
    builder: str
    outputs: int = 10
    clusters: int = 0
    tensors: int = 0
    buffers: int = 0

    @property
    def channels(self) -> int:
        """Return the channels of its images; 0 for samples that aren't images."""
        return self.shape[0] if len(self.shape) == 3 else 0

    @property
    def features(self) -> int:
        """Return the features of its rows; 0 for samples that aren't rows."""
        return self.shape[0] if len(self.shape) == 1 else 0


def _network(name: str, channels: int, parameters: int, memory_mb: int, tensors: int, buffers: int) -> ModelSpec:
    shape, builder = (channels, SIDE, SIDE), f"{NETWORKS}:{name}"
    return ModelSpec(name, shape, parameters, memory_mb, builder, tensors=tensors, buffers=buffers)


SPECS = MappingProxyType(
    {
        known.name: known
        for known in (
            _network("lenet", 1, 61_706, 1024, 10, 0),
            _network("mobilenet", 3, 3_217_226, 3008, 164, 21_915),
            _network("resnet18", 3, 11_173_962, 4096, 122, 9_620),
            _network("resnet34", 3, 21_282_122, 6144, 218, 17_060),
            _network("resnet50", 3, 23_520_842, 10_240, 320, 53_173),
        )
    }
)


def registered() -> dict[str, str]:
    """Return the "module:function" of each model that a package registers in the group `slslab.models`, by name."""
    return {entry.name: entry.value for entry in entry_points(group="slslab.models")}


def spec(name: str) -> ModelSpec:
    """Return the specification of a built-in model; raise PlanError for an unknown name."""
    row_model = re.fullmatch(r"(?:(lr|svm)-|(kmeans)-([1-9]\d{0,5})x)([1-9]\d{0,8})", name)
    if row_model:
        kind, clusters, width = row_model[1] or row_model[2], int(row_model[3] or 0), int(row_model[4])
        outputs = clusters or 2
        parameters, tensors = (clusters * width, 1) if clusters else (outputs * (width + 1), 2)
        return ModelSpec(name, (width,), parameters, 1024, f"{NETWORKS}:{kind}", outputs, clusters, tensors)
    if name in SPECS:
        return SPECS[name]
    raise PlanError(
        f"There is no model {name!r}.",
        f"choose {', '.join((*SPECS, *ROW_MODELS, *registered()))}, or module:function of your own.",
    )


def spec_of(plan: Plan) -> ModelSpec:
    """Return the specification of a plan's model; raise PlanError for an unknown name or a wrong model_spec."""
    if plan.model_spec is None:
        return spec(plan.model)
    try:
        document = dict(plan.model_spec)
        found = ModelSpec(plan.model, tuple(document.pop("shape")), **document)
        positive = (found.outputs, found.memory_mb, found.parameters, *found.shape)
        numbers = (*positive, found.clusters, found.tensors, found.buffers)
        if found.builder.partition(":")[2] and all(type(number) is int for number in numbers) and min(positive) > 0:
            return found
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    raise PlanError(
        f"The plan's model_spec doesn't describe the model {plan.model}.",
        "leave it to `slslab run --model` to make it.",
    )


def exchanged_buffers(plan: Plan) -> int:
    """Return how many numbers of buffers follow each vector that the plan's workers exchange; 0 if none do."""
    return 0 if plan.options.get("buffers", "local") == "local" else spec_of(plan).buffers


def to_document(known: ModelSpec) -> dict[str, Any] | None:
    """Return the model_spec that a plan records; None for a built-in model that its name describes fully."""
    document = asdict(known)
    name = document.pop("name")
    try:
        return None if spec(name) == known else {**document, "shape": list(known.shape)}
    except PlanError:
        return {**document, "shape": list(known.shape)}


def own_packages(plan: Plan) -> tuple[str, ...]:
    """Return the top-level module that builds the plan's model; functions need it. Empty for a built-in model."""
    module = spec_of(plan).builder.partition(":")[0].partition(".")[0]
    return () if module == __name__.partition(".")[0] else (module,)
