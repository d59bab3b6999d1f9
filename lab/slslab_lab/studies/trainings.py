"""Many small trainings, each in one process with the bits of a run: one after another, or over many cores."""

import platform
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

from slslab_lab.runs.sweeps.results import Results
from slslab_lab.runs.sweeps.sweep import sweep
from slslab_lab.studies.documents import host


def train(
    learn: Callable[[Any], tuple[float, ...]],
    settings: Sequence[Any],
    on: str | None,
    report: Callable[[str, int, int], None],
) -> list[tuple[float, ...]]:
    """Return what is learnt with each setting, in their order; on a place (`sweep`) it is kept."""
    results = None if on is None else Results(learn, [repr(versions()), repr(host())])
    return sweep(learn, settings, on, partial(report, "training small models"), results)


def versions() -> dict[str, str]:
    """Return the versions of what computes."""
    return {**{name: version(name) for name in ("torch", "numpy")}, "python": platform.python_version()}
