"""Evaluate a model on images: accuracy and loss; and the mean training loss of an epoch."""

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from slslab_workers.channels.objects import Object
from slslab_workers.training import datasets, gradients
from slslab_workers.training.state import buffers_from_bytes


def evaluate(
    model: torch.nn.Module, stored: bytearray, images: Any, labels: Any, policy: datasets.Policy
) -> tuple[float, float]:
    """Return accuracy (0..1) and mean loss of a stored model (parameters and buffers) on images (N, C, H, W) uint8."""
    count = sum(parameter.numel() for parameter in model.parameters())
    gradients.write_parameters(model, gradients.from_bytes(memoryview(stored)[: 4 * count]))
    buffers_from_bytes(model, memoryview(stored)[4 * count :])
    return judge(model, images, labels, policy)


def validation_loss(model: torch.nn.Module, stored: Object) -> float:
    """Return a model's mean loss on stored validation images (as `datasets.encode_minibatch` wrote them)."""
    images, labels = datasets.decode_minibatch(stored.body, stored.metadata)
    return judge(model, images, labels, datasets.Policy.from_metadata(stored.metadata))[1]


def judge(model: torch.nn.Module, images: Any, labels: Any, policy: datasets.Policy) -> tuple[float, float]:
    """Return accuracy (0..1) and mean loss of a model on images (N, C, H, W) uint8, computed where the model is.

    The model is left in evaluation mode.
    """
    model.eval()
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    correct, losses = 0, []
    with torch.no_grad():
        for start in range(0, len(labels), 500):
            inputs, targets = datasets.prepare_test(images[start : start + 500], labels[start : start + 500], policy)
            inputs, targets = inputs.to(device), targets.to(device)
            scores = model(inputs)
            correct += int((scores.argmax(1) == targets).sum())
            losses.append(float(torch.nn.functional.cross_entropy(scores, targets, reduction="sum")))
    return correct / len(labels), math.fsum(losses) / len(labels)


def mean_losses(results: Sequence[Mapping[str, Any]], starts: Sequence[int]) -> tuple[float, ...]:
    """Return each epoch's mean training loss over all workers' minibatches, also of an unfinished one.

    `starts` are the positions that the epochs begin with; a loss of None is of a worker that did not take part yet.
    """
    return tuple(
        statistics.fmean(loss for result in results for loss in result["losses"][first:until] if loss is not None)
        for first, until in pairwise([*starts, None])
    )
