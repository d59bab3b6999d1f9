"""The processor in a run's document: measured before, and as fast as it was around the run."""

from collections.abc import Iterator
from dataclasses import replace
from math import hypot, log
from pathlib import Path

import pytest

from slslab.errors import HostError
from slslab.predict.processor import UNANCHORED, Factor, Processor
from slslab_lab.runs import processor as module
from slslab_lab.runs.processor import ProcessorWatch, measure_first
from slslab_workers.plan import Plan
from slslab_workers.trace.kinds import KINDS

PLAN = Plan("r", "allreduce", "lenet", "digits", batch_size=64, batches=2, memory_mb=640)
FACTOR = Factor(2.0, {"anchors": 0.1, "year": 0.0, "host": 0.03})
MEASURED = replace(UNANCHORED, form="whole", factors=dict.fromkeys(KINDS, FACTOR))


class Stages:
    """The stages that were reported."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int]] = []

    def report(self, stage: str, done: int, total: int) -> None:
        self.seen.append((stage, done, total))


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, float]]]:
    """What the next probes find; all of it is used."""
    found: list[dict[str, float]] = []
    monkeypatch.setattr(module, "load_processor", lambda: MEASURED)
    monkeypatch.setattr(module, "probe", lambda: found.pop(0))
    yield found
    assert not found


def test_a_host_that_has_slowed_down_is_taken_as_it_was_around_the_run(probes: list[dict[str, float]]) -> None:
    probes += [{"dense": 1.0, "interpreter": 1.2}, {"dense": 1.21}]
    stages = Stages()
    watch = ProcessorWatch(PLAN, stages)
    document = watch.end()
    assert document is not None
    found = Processor.from_dict(document)
    # A CPU second then was a tenth less work than when it was measured.
    assert found.factor("dense").value == pytest.approx(2.0 / 1.1)
    assert found.factor("dense").deviations["host"] == pytest.approx(hypot(0.03, log(1.21) / 2, log(1.1) / 2))
    # A kind that only one probe has stays.
    assert found.factor("interpreter") == FACTOR
    assert stages.seen == [("probe", 0, 2), ("probe", 1, 2), ("probe", 1, 2), ("probe", 2, 2)]


def test_a_host_that_was_never_measured_is_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "load_processor", lambda: UNANCHORED)
    monkeypatch.setattr(module, "probe", lambda: pytest.fail("it was probed"))
    stages = Stages()
    assert ProcessorWatch(PLAN, stages).end() == UNANCHORED.to_dict()
    assert not stages.seen


def test_workers_on_other_hosts_have_another_processor() -> None:
    assert ProcessorWatch(replace(PLAN, environment="ray"), Stages()).end() is None


def test_a_first_run_measures_once_and_a_busy_host_keeps_no_run_from_starting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    measured: list[bool] = []

    def measure(short: bool, **_: object) -> None:
        measured.append(short)
        raise HostError("This machine was too busy.", "try again.")

    monkeypatch.setattr(module, "measure_processor", measure)
    measure_first(Stages())
    assert measured == [True]
    monkeypatch.setattr(module, "load_processor", lambda: MEASURED)
    measure_first(Stages())
    assert measured == [True]
