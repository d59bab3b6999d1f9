"""Many small trainings, each in one process with the same bits as a run: one after another, or over many cores."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from slslab_lab.runs.planning import architectures
from slslab_lab.runs.sweeps.results import Results
from slslab_lab.runs.sweeps.sweep import sweep
from slslab_lab.studies.kept import host, versions
from slslab_workers.training.samples import Samples


def train(
    learn: Callable[[Any], tuple[float, ...]],
    settings: Sequence[Any],
    on: str | None,
    report: Callable[[str, int, int], None],
) -> dict[Any, dict[int, tuple[float, ...]]]:
    """Return the learning results by the setting with seed 0, then by seed; with `on`, results are kept (`sweep`)."""
    results = None if on is None else Results(learn, [repr(versions()), repr(host())])
    learnt = sweep(learn, settings, on, partial(report, "training small models"), results)
    found: dict[Any, dict[int, tuple[float, ...]]] = {}
    for setting, values in zip(settings, learnt, strict=True):
        found.setdefault(replace(setting, seed=0), {})[setting.seed] = values
    return found


def learn(setting: Any) -> tuple[float, ...]:
    """Return the test accuracy after each epoch of a setting's plan, with all workers in one process."""
    plan = setting.plan()
    kind = architectures()[plan.architecture].replicas()
    assert kind is not None
    replicas = kind(plan, Samples(plan))
    accuracies = []
    for _ in range(plan.epochs):
        replicas.train_epoch()
        accuracies.append(float(replicas.judge().accuracy))
    return tuple(accuracies)
