"""Build models: the papers' networks in plain torch, and other packages' models.

A builder takes a sample's shape, (C, H, W) or (D,), and the number of the model's outputs. A module may have its own
`loss(scores, targets, reduction)`.
"""

import threading
from functools import partial
from pkgutil import resolve_name
from typing import Any

import torch
from torch import nn

from slslab_workers.channels.events import Tracer
from slslab_workers.models import ModelSpec, spec, spec_of
from slslab_workers.plan import Plan
from slslab_workers.training.devices import function_device

Shape = tuple[int, ...]
FORMATS = {"default": torch.contiguous_format, "channels-last": torch.channels_last}
_BUILDING = threading.Lock()
# The networks that this environment reuses between invocations.
_kept: dict[tuple[ModelSpec, int, str], nn.Module] = {}


def build(model: str | ModelSpec, seed: int, memory_format: str = "default") -> nn.Module:
    """Return the network with seeded initial weights: equal seeds give equal bits. Global generators stay unchanged.

    A memory format changes the layout of the convolutions' weights, but not their values.
    """
    known = spec(model) if isinstance(model, str) else model
    # Layers use the process's global generator, so two threads must not build at once.
    with _BUILDING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        built: nn.Module = resolve_name(known.builder)(known.shape, known.outputs)
    if memory_format != "default":
        # torch's type stubs lack this argument.
        built.to(memory_format=FORMATS[memory_format])  # type: ignore[call-overload]
    return built


def kept(plan: Plan, tracer: Tracer) -> nn.Module:
    """Return the plan's network on the function's device, built once per environment; callers overwrite its weights."""
    key = (spec_of(plan), plan.seed, plan.memory_format)
    if key not in _kept:
        with tracer.span("build", "other"):
            _kept[key] = build(*key).to(function_device(plan))
    return _kept[key]


def loss(model: nn.Module, scores: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """Return the mean (or sum) of the losses of a model's scores (B, outputs).

    It is the model's own loss if it has one. Otherwise it is the squared error for floating-point targets (B,), which
    mean a regression, and cross-entropy for classes.
    """
    if (own := getattr(model, "loss", None)) is not None:
        own_loss: torch.Tensor = own(scores, targets, reduction)
        return own_loss
    if targets.is_floating_point():
        return nn.functional.mse_loss(scores.squeeze(1), targets, reduction=reduction)
    return nn.functional.cross_entropy(scores, targets, reduction=reduction)


def arranged(images: torch.Tensor, memory_format: str) -> torch.Tensor:
    """Return images (B, C, H, W) in a memory format; return the tensor itself if it has that format or isn't images."""
    if images.dim() != 4:
        return images
    return images.contiguous(memory_format=FORMATS[memory_format])


def lr(shape: Shape, outputs: int) -> nn.Module:
    """Return logistic regression on rows (N, D); with a number as the target it is linear regression."""
    return nn.Linear(shape[0], outputs)


def svm(shape: Shape, outputs: int) -> nn.Module:
    """Return a linear SVM on rows (N, D), with the hinge loss of the margin between the scores of classes."""

    class SVM(nn.Linear):
        def loss(self, scores: torch.Tensor, targets: torch.Tensor, reduction: str) -> torch.Tensor:
            # PyTorch divides by the number of classes.
            return self.out_features * nn.functional.multi_margin_loss(scores, targets, reduction=reduction)

    return SVM(shape[0], outputs)


def kmeans(shape: Shape, outputs: int) -> nn.Module:
    """Return k-means on rows (N, D).

    Its scores (N, clusters) are the negative squared distances to the centroids; its loss is the squared distance to
    the nearest centroid.
    """

    class KMeans(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.centroids = nn.Parameter(torch.zeros(outputs, *shape))

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            rows = rows.to_dense()
            distances = 2 * rows @ self.centroids.T - self.centroids.square().sum(1)
            return distances - rows.square().sum(1, keepdim=True)

        def loss(self, scores: torch.Tensor, _targets: torch.Tensor, reduction: str) -> torch.Tensor:
            nearest = -scores.amax(1)
            return nearest.mean() if reduction == "mean" else nearest.sum()

    return KMeans()


def lenet(_shape: Shape, outputs: int) -> nn.Module:
    """Return LeNet-5 (LeCun et al. 1998) on (N, 1, 32, 32), with max pooling and ReLU, as usual today."""
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
        nn.Linear(84, outputs),
    )


def mobilenet(_shape: Shape, outputs: int) -> nn.Module:
    """Return MobileNet v1 in its CIFAR variant on (N, 3, 32, 32): stem of stride 1, 13 depthwise-separable blocks."""

    def normalised(convolution: nn.Conv2d) -> list[nn.Module]:
        return [convolution, nn.BatchNorm2d(convolution.out_channels), nn.ReLU()]

    blocks = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    layers = normalised(nn.Conv2d(3, 32, 3, padding=1, bias=False))
    width = 32
    for output, stride in blocks:
        layers += normalised(nn.Conv2d(width, width, 3, stride, 1, groups=width, bias=False))
        layers += normalised(nn.Conv2d(width, output, 1, bias=False))
        width = output
    return nn.Sequential(*layers, nn.AvgPool2d(2), nn.Flatten(), nn.Linear(width, outputs))


def _resnet(blocks: tuple[int, ...], bottleneck: bool, _shape: Shape, classes: int) -> nn.Module:
    """Return ResNet (He et al. 2016) with the CIFAR stem (3×3, stride 1, no pooling) on (N, 3, 32, 32)."""
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
                layers += [nn.Conv2d(width, output, kernel, step, kernel // 2, bias=False), nn.BatchNorm2d(output)]
            self.path = nn.Sequential(*layers)
            self.shortcut: nn.Module = nn.Identity()
            if stride != 1 or inputs != outputs:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
                )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.path(x) + self.shortcut(x))

    layers: list[Any] = [nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    width = 64
    for stage, count in enumerate(blocks):
        planes = 64 * 2**stage
        for number in range(count):
            layers.append(Residual(width, planes, 2 if stage and not number else 1))
            width = planes * expansion
    return nn.Sequential(*layers, nn.AvgPool2d(4), nn.Flatten(), nn.Linear(width, classes))


resnet18 = partial(_resnet, (2, 2, 2, 2), False)
resnet34 = partial(_resnet, (3, 4, 6, 3), False)
resnet50 = partial(_resnet, (3, 4, 6, 3), True)
