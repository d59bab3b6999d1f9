"""Many small trainings, each in one process with the same bits as a run: one after another, or over many cores."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from slslab_lab.runs.planning import architectures
from slslab_lab.runs.sweeps.results import Results
from slslab_lab.runs.sweeps.sweep import sweep
from slslab_lab.studies.kept import host, versions
from slslab_workers.plan import Plan
from slslab_workers.training.samples import Samples


class Setting(Protocol):
    """The differences between trainings."""

    def plan(self) -> Plan:
        """Return the complete plan."""


def train(
    learn: Callable[[Any], tuple[float, ...]],
    settings: Sequence[Any],
    on: str | None,
    report: Callable[[str, int, int], None],
) -> list[tuple[float, ...]]:
    """Return the learning result of each setting, in their order; with `on`, results are kept (`sweep`)."""
    results = None if on is None else Results(learn, [repr(versions()), repr(host())])
    return sweep(learn, settings, on, partial(report, "training small models"), results)


def learn(setting: Setting) -> tuple[float, ...]:
    """Return the test accuracy after each epoch, with all workers in one process."""
    plan = setting.plan()
    kind = architectures()[plan.architecture].replicas()
    assert kind is not None
    replicas = kind(plan, Samples(plan))
    accuracies = []
    for _ in range(plan.epochs):
        replicas.train_epoch()
        accuracies.append(float(replicas.judge().accuracy))
    return tuple(accuracies)


def by_seed(settings: Sequence[Any], learnt: Sequence[tuple[float, ...]]) -> dict[Any, dict[int, tuple[float, ...]]]:
    """Group the learning results by the setting with seed 0, then by seed."""
    found: dict[Any, dict[int, tuple[float, ...]]] = {}
    for setting, values in zip(settings, learnt, strict=True):
        found.setdefault(replace(setting, seed=0), {})[setting.seed] = values
    return found
