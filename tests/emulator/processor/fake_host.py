"""A fake host: its workloads take a chosen multiple of the reference machine's seconds, without running anything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slslab.predict.anchors import load_anchors
from slslab.processor.measurement import PROBES

VERSIONS = {"python": "3.11.9", "build": "CPython", "openssl": "OpenSSL 3.0.1", "torch": "2.13.0", "numpy": "2.4"}


@dataclass
class FakeHost:
    """Stands for `measurement.run_workloads`: `times` the reference's seconds, by workload, and by form where given.

    Workloads in `unfinished`, written as FORM NAME, are killed before they end.
    """

    times: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=lambda: VERSIONS)
    unfinished: frozenset[str] = frozenset()
    probe_s: float = 0.1
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def __call__(
        self, _interpreter: str, names: Sequence[str], form: str, *_limits: float, **_more: float
    ) -> list[dict[str, Any]]:
        """Return the lines that a child process would print, up to the first unfinished workload."""
        self.calls.append((form, *names))
        lines: list[dict[str, Any]] = []
        for name in names:
            if f"{form} {name}" in self.unfinished:
                break
            lines.append({"name": name, "cpu_s": [1.01 * self._seconds(name, form), self._seconds(name, form)]})
        return lines

    def _seconds(self, name: str, form: str) -> float:
        if form == "probe":
            assert name in {probe for probes in PROBES.values() for probe in probes}
            return self.probe_s * self.times.get(f"probe {name}", 1.0)
        workload = load_anchors().workloads[name]
        seconds = workload.whole_s if form == "whole" else workload.short_s
        assert seconds is not None
        return seconds * self.times.get(f"{form} {name}", self.times.get(name, 1.0))
