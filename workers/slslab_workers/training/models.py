"""The papers' models in plain torch."""

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from slslab_workers.models import CLASSES, ROW_CLASSES, TORCHVISION, ModelSpec, spec
from slslab_workers.plan import PlanError

if TYPE_CHECKING:
    import torch
    from torch import nn

_BUILDING = threading.Lock()


def build(name: str, seed: int, memory_format: str = "default") -> "nn.Module":
    """Return the network with seeded initial weights: equal seeds give equal bits, and no global generator changes.

    A memory format changes the layout of the convolutions' weights, and none of their values.
    """
    import torch

    known = spec(name)
    # Layers draw from the process's one generator, so two threads must not build at once.
    with _BUILDING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if known.features:
            model = _centroids(known) if known.clusters else _linear(name.partition("-")[0], known.features)
        else:
            model = _torchvision(name.removeprefix(TORCHVISION)) if name.startswith(TORCHVISION) else _BUILDERS[name]()
    if memory_format != "default":
        # torch's type stubs do not have this argument.
        model.to(memory_format=_torch_format(memory_format))  # type: ignore[call-overload]
    return model


def loss(
    model: "nn.Module", scores: "torch.Tensor", targets: "torch.Tensor", reduction: str = "mean"
) -> "torch.Tensor":
    """Return the mean (or sum) of the losses of a model's scores (B, classes): cross-entropy, or of an SVM the hinge
    loss of the margin between the two classes' scores, or of k-means the squared distance to the nearest centroid."""
    from torch.nn import functional

    if clusters(model):
        nearest = -scores.amax(1)
        return nearest.mean() if reduction == "mean" else nearest.sum()

    if getattr(model, "hinge", False):
        # PyTorch divides by the number of classes.
        return ROW_CLASSES * functional.multi_margin_loss(scores, targets, reduction=reduction)
    return functional.cross_entropy(scores, targets, reduction=reduction)


def clusters(model: "nn.Module") -> int:
    """Return how many clusters k-means makes; 0 for a model that tells classes apart."""
    return len(getattr(model, "centroids", ()))


def arranged(images: "torch.Tensor", memory_format: str) -> "torch.Tensor":
    """Return images (B, C, H, W) in a memory format; the same tensor if they are in it already, or are rows (B, D)."""
    if images.dim() == 2:
        return images
    return images.contiguous(memory_format=_torch_format(memory_format))


def _torch_format(memory_format: str) -> "torch.memory_format":
    import torch

    return torch.channels_last if memory_format == "channels-last" else torch.contiguous_format


def _torchvision(name: str) -> "nn.Module":
    try:
        import torchvision
    except ImportError as error:
        raise PlanError(
            f"The model torchvision:{name} needs torchvision, which is not installed.",
            "pip install 'slslab[torchvision]'",
        ) from error
    try:
        model: nn.Module = torchvision.models.get_model(name, weights=None, num_classes=CLASSES)
    except ValueError as error:
        raise PlanError(f"torchvision has no model {name!r}.", "see torchvision.models.list_models().") from error
    return model


def _linear(name: str, features: int) -> "nn.Module":
    """Return logistic regression or a linear SVM on rows (N, D), which differ in their loss alone."""
    from torch import nn

    class SVM(nn.Linear):
        hinge = True

    return (SVM if name == "svm" else nn.Linear)(features, ROW_CLASSES)


def _centroids(known: ModelSpec) -> "nn.Module":
    """Return k-means, whose scores of rows (N, D) are minus their squared distances to the centroids, (N, clusters)."""
    import torch
    from torch import nn

    class KMeans(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.centroids = nn.Parameter(torch.zeros(known.clusters, known.features))

        def forward(self, rows: "torch.Tensor") -> "torch.Tensor":
            rows = rows.to_dense()
            distances = 2 * rows @ self.centroids.T - self.centroids.square().sum(1)
            return distances - rows.square().sum(1, keepdim=True)

    return KMeans()


def _lenet() -> "nn.Module":
    """Return LeNet-5 (LeCun et al. 1998) on (N, 1, 32, 32), with max pooling and ReLU as is usual today."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, CLASSES),
    )


def _mobilenet() -> "nn.Module":
    """Return MobileNet v1 in its CIFAR variant on (N, 3, 32, 32): stem of stride 1, 13 depthwise-separable blocks."""
    from torch import nn

    def normalised(convolution: "nn.Conv2d") -> list["nn.Module"]:
        return [convolution, nn.BatchNorm2d(convolution.out_channels), nn.ReLU()]

    blocks = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    layers = normalised(nn.Conv2d(3, 32, 3, padding=1, bias=False))
    width = 32
    for output, stride in blocks:
        layers += normalised(nn.Conv2d(width, width, 3, stride, 1, groups=width, bias=False))
        layers += normalised(nn.Conv2d(width, output, 1, bias=False))
        width = output
    return nn.Sequential(*layers, nn.AvgPool2d(2), nn.Flatten(), nn.Linear(width, CLASSES))


def _resnet(blocks: tuple[int, ...], bottleneck: bool) -> "nn.Module":
    """Return ResNet (He et al. 2016) with the CIFAR stem (3×3, stride 1, no pooling) on (N, 3, 32, 32)."""
    import torch
    from torch import nn

    expansion = 4 if bottleneck else 1

    class Residual(nn.Module):
        def __init__(self, inputs: int, planes: int, stride: int) -> None:
            super().__init__()
            outputs = planes * expansion
            # (kernel, stride, in, out) of each convolution on the main path
            path = (
                [(1, 1, inputs, planes), (3, stride, planes, planes), (1, 1, planes, outputs)]
                if bottleneck
                else [(3, stride, inputs, planes), (3, 1, planes, outputs)]
            )
            layers: list[nn.Module] = []
            for number, (kernel, step, width, output) in enumerate(path):
                layers += [nn.ReLU()] if number else []
                layers += [
                    nn.Conv2d(width, output, kernel, step, kernel // 2, bias=False),
                    nn.BatchNorm2d(output),
                ]
            self.path = nn.Sequential(*layers)
            self.shortcut: nn.Module = nn.Identity()
            if stride != 1 or inputs != outputs:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
                )

        def forward(self, x: "torch.Tensor") -> "torch.Tensor":
            return torch.relu(self.path(x) + self.shortcut(x))

    layers: list[Any] = [nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    width = 64
    for stage, count in enumerate(blocks):
        planes = 64 * 2**stage
        for number in range(count):
            layers.append(Residual(width, planes, 2 if stage and not number else 1))
            width = planes * expansion
    return nn.Sequential(*layers, nn.AvgPool2d(4), nn.Flatten(), nn.Linear(width, CLASSES))


_BUILDERS: Mapping[str, Callable[[], "nn.Module"]] = MappingProxyType(
    {
        "lenet": _lenet,
        "mobilenet": _mobilenet,
        "resnet18": lambda: _resnet((2, 2, 2, 2), bottleneck=False),
        "resnet34": lambda: _resnet((3, 4, 6, 3), bottleneck=False),
        "resnet50": lambda: _resnet((3, 4, 6, 3), bottleneck=True),
    }
)
