"""Measure this host's processor, and probe its speed before and after a run."""

from contextlib import suppress
from typing import Any

from slslab.errors import HostError
from slslab.processor.kept import load_processor, measure_processor, probe
from slslab_workers.architecture import Progress
from slslab_workers.plan import Plan
from slslab_workers.trace.kinds import Kind


def measure_first(progress: Progress) -> None:
    """Measure this host's processor in short form (at most 20 s) if it never was, and keep the result.

    If that fails, the host stays unanchored, and the run's document says so.
    """
    if not load_processor().anchored:
        with suppress(HostError):
            measure_processor(short=True, progress=lambda _, done, total: progress.report("processor", done, total))


class ProcessorWatch:
    """Probes this host's processor for about a second before and after a recording.

    A host's speed can drift by a third within minutes. Skips the probe if the processor was never measured, or if the
    run's workers compute on other hosts.
    """

    def __init__(self, plan: Plan, progress: Progress) -> None:
        self._processor = None if plan.environment == "ray" else load_processor()
        self._progress = progress
        self._before = self._probe(1)

    def end(self) -> dict[str, Any] | None:
        """Return the processor's document, corrected by both probes; None if the workers compute on other hosts."""
        if self._processor is None:
            return None
        return self._processor.drifted(self._before, self._probe(2)).to_dict()

    def _probe(self, number: int) -> dict[Kind, float]:
        if self._processor is None or not self._processor.anchored:
            return {}
        self._progress.report("probe", number - 1, 2)
        found = probe()
        self._progress.report("probe", number, 2)
        return found
