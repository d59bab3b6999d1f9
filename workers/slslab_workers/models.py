"""The papers' models, described without building them (`slslab_workers.training.models` builds them).

Networks for images, with ten classes: LeNet-5, MobileNet v1, ResNet-18, ResNet-34 and ResNet-50 for CIFAR; their
parameter counts were measured by building them. Models for rows of features: logistic regression and a linear SVM, with
two classes, and k-means. Their names end in the number of features, such as lr-30, or kmeans-10x30 with ten clusters.
"""

import re
from dataclasses import dataclass
from types import MappingProxyType

from slslab_workers.plan import PlanError

CLASSES = 10
# Models for rows. In a plan, the number of features follows the name; kmeans has the number of clusters before it.
ROW_MODELS = ("lr", "svm", "kmeans")
ROW_CLASSES = 2
TORCHVISION = "torchvision:"


@dataclass(frozen=True)
class ModelSpec:
    """A model's figures, known without building it.

    `channels` is its images' number of channels, or 0 for rows of `features`, in `clusters` for k-means. `parameters`
    is None if only building the model can count them. `memory_mb` is enough for a minibatch of 512 with PyTorch 2.13.
    Its state_dict has `tensors` entries (0 if only building can count them), with `buffers` numbers besides the
    parameters (BatchNorm's).
    """

    name: str
    channels: int
    parameters: int | None
    memory_mb: int
    features: int = 0
    clusters: int = 0
    tensors: int = 0
    buffers: int = 0


SPECS = MappingProxyType(
    {
        "lenet": ModelSpec("lenet", 1, 61_706, 1024, tensors=10),
        "mobilenet": ModelSpec("mobilenet", 3, 3_217_226, 3008, tensors=164, buffers=21_915),
        "resnet18": ModelSpec("resnet18", 3, 11_173_962, 4096, tensors=122, buffers=9_620),
        "resnet34": ModelSpec("resnet34", 3, 21_282_122, 6144, tensors=218, buffers=17_060),
        "resnet50": ModelSpec("resnet50", 3, 23_520_842, 10_240, tensors=320, buffers=53_173),
    }
)


def spec(name: str) -> ModelSpec:
    """Return the model's specification; raise PlanError for a model that does not exist."""
    if name.startswith(TORCHVISION):
        return ModelSpec(name, 3, None, 4096)
    row_model = re.fullmatch(r"(?:lr-|svm-|kmeans-([1-9]\d{0,5})x)([1-9]\d{0,8})", name)
    if row_model:
        clusters, width = int(row_model[1] or 0), int(row_model[2])
        parameters = clusters * width or ROW_CLASSES * (width + 1)
        tensors = 1 if clusters else 2
        return ModelSpec(name, 0, parameters, 1024, features=width, clusters=clusters, tensors=tensors)
    if name in SPECS:
        return SPECS[name]
    raise PlanError(f"There is no model {name!r}.", f"choose {', '.join((*SPECS, *ROW_MODELS))} or torchvision:NAME.")
