"""Measure this host's processor, and probe its speed before and after a run."""

from contextlib import suppress
from dataclasses import replace
from math import log
from typing import Any

from slslab.errors import HostError
from slslab.processor.kept import load_processor, measure_processor, probe
from slslab_workers.architecture import Progress
from slslab_workers.plan import Plan


def measure_first(progress: Progress) -> None:
    """Measure this host's processor in short form (at most 20 s) and keep the result, if it never was measured."""
    if not load_processor().anchored:
        with suppress(HostError):
            measure_processor(short=True, progress=lambda _, done, total: progress.report("processor", done, total))


class ProcessorWatch:
    """Probes an anchored processor around a recording, because a host's speed can drift by a third within minutes."""

    def __init__(self, plan: Plan, progress: Progress) -> None:
        self._processor = None if plan.environment == "ray" else load_processor()
        self._progress = progress
        self._before = self._probe(1)

    def end(self) -> dict[str, Any] | None:
        """Return the processor's document, corrected by both probes; None if the workers compute on other hosts.

        Another guest may slow a run's work down more or less than the probe, so half of the correction is added as one
        standard deviation.
        """
        if self._processor is None:
            return None
        drifted = self._processor.drifted(self._before, self._probe(2))
        factors = {
            kind: factor.scaled(1.0, "host", log(self._processor.factors[kind].value / factor.value) / 2)
            for kind, factor in drifted.factors.items()
        }
        return replace(drifted, factors=factors).to_dict()

    def _probe(self, number: int) -> dict[str, float]:
        if self._processor is None or not self._processor.anchored:
            return {}
        self._progress.report("probe", number - 1, 2)
        found = probe()
        self._progress.report("probe", number, 2)
        return found
