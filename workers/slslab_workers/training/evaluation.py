"""Compute the accuracy and loss of a model."""

import math
from typing import Any

import torch

from slslab_workers.training import datasets, gradients, models
from slslab_workers.training.state import buffers_from_bytes


def evaluate(
    model: torch.nn.Module, stored: bytearray, images: Any, labels: Any, policy: datasets.Policy | None
) -> tuple[float, float]:
    """Return accuracy (0..1) and mean loss of a stored model (parameters and buffers) on a data set's samples."""
    count = sum(parameter.numel() for parameter in model.parameters())
    gradients.write_parameters(model, gradients.from_bytes(memoryview(stored)[: 4 * count]))
    buffers_from_bytes(model, memoryview(stored)[4 * count :])
    return judge(model, images, labels, policy)


def judge(model: torch.nn.Module, images: Any, labels: Any, policy: datasets.Policy | None) -> tuple[float, float]:
    """Return accuracy (0..1) and mean loss of a model on a data set's samples, computed on the model's device.

    For k-means, the accuracy is its purity: each cluster stands for the most frequent label of its samples. For a
    regression, it is R², the share of the targets' variance that the model explains; it is negative if the model is
    worse than the mean. The model stays in evaluation mode.
    """
    model.eval()
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    correct, losses, squares, is_regression = 0, [], [], labels.dtype.kind == "f"
    # Only k-means has centroids.
    clusters, classes = len(getattr(model, "centroids", ())), 0 if is_regression else int(labels.max()) + 1
    labels_of_clusters = torch.zeros((clusters, classes), dtype=torch.int64)
    with torch.no_grad():
        for start in range(0, len(labels), 500):
            inputs, targets = datasets.prepare_test(images[start : start + 500], labels[start : start + 500], policy)
            inputs, targets = inputs.to(device), targets.to(device)
            scores = model(inputs)
            if is_regression:  # the model's own loss may be another
                squares.append(float(((scores.squeeze(1) - targets) ** 2).sum()))
            elif len(labels_of_clusters):
                found = scores.argmax(1).cpu(), targets.cpu()
                labels_of_clusters.index_put_(found, torch.ones(len(targets), dtype=torch.int64), accumulate=True)
            else:
                correct += int((scores.argmax(1) == targets).sum())
            losses.append(float(models.loss(model, scores, targets, reduction="sum")))
    loss = math.fsum(losses) / len(labels)
    if is_regression:
        return 1 - math.fsum(squares) / len(labels) / max(float(labels.var()), 1e-30), loss
    correct += int(labels_of_clusters.amax(1).sum())
    return correct / len(labels), loss
