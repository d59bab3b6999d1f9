"""How a busy host widens the range of a recording's figures, sign by sign, and not without a sign."""

import math
from dataclasses import replace
from typing import Any

import pytest
from tests.lab.replay.test_ranges import PROFILE, seconds_of

from slslab.predict.processor import UNANCHORED, Factor, Processor
from slslab.predict.profiles.profile import load_profile
from slslab.run.run import Run
from slslab_lab.replay.programs.disturbance import NEIGHBOURS, QUARTILES, widen
from slslab_lab.replay.programs.recording import processor_of
from slslab_lab.replay.ranges import find_uncertainties, with_processor
from slslab_workers.trace.kinds import KINDS

FACTOR = Factor(2.0, {"anchors": 0.12, "year": 0.05, "host": 0.03})
PROCESSOR = replace(UNANCHORED, form="whole", factors=dict.fromkeys(KINDS, FACTOR), unknown=FACTOR)


def kind(op: str, lower: float, median: float, upper: float, count: int = 8) -> dict[str, Any]:
    quartiles = {"lower": lower, "median": median, "upper": upper}
    return {"function": "", "op": op, "phase": "compute", "resource": "", "first": False, "bytes": 0} | {
        "count": count,
        "cpu_seconds": quartiles,
    }


def alone(**changes: Any) -> dict[str, Any]:
    """A solo profile on a perfectly quiet host, except for these changes."""
    quiet = {"status": "measured", "priority": "high", "probe_ratio": 1.0, "delayed_share": 0.0, "stolen_share": 0.0}
    return {**quiet, "kinds": [kind("compute", 0.1, 0.1, 0.1)], **changes}


def host(processor: Processor, name: str = "dense") -> float:
    return processor.factor(name).deviations["host"]


def test_a_perfectly_quiet_host_adds_nothing() -> None:
    assert widen(PROCESSOR, alone(), 0.0, 0.0) == PROCESSOR


@pytest.mark.parametrize(
    ("changes", "added"),
    [
        ({"probe_ratio": 5.0}, 0.8 * NEIGHBOURS["high"]),
        ({"probe_ratio": 5.0, "priority": "normal"}, 0.8 * NEIGHBOURS["normal"]),
        ({"delayed_share": 0.5}, 0.5 * NEIGHBOURS["high"]),
        ({"stolen_share": 0.2}, -math.log(0.8) / 2),
        ({"kinds": [kind("compute", 0.1, 0.11, 0.13)]}, math.log(1.3) / QUARTILES),
        # Of two, quartiles are half of the range apart.
        ({"kinds": [kind("compute", 0.1, 0.11, 0.13, count=2)]}, math.log(1.3)),
    ],
)
def test_each_sign_of_a_busy_host_widens_the_range(changes: dict[str, Any], added: float) -> None:
    widened = widen(PROCESSOR, alone(**changes), 0.0, 0.0)
    assert added > 0.05
    assert host(widened) == pytest.approx(math.hypot(0.03, added))
    assert host(widened, "unknown work") >= host(widened)
    assert widened.factor("dense").value == 2.0


def test_steps_that_differ_count_for_their_kind_of_work_and_by_their_share_of_it() -> None:
    kinds = [
        kind("compute", 0.3, 0.3, 0.3),
        kind("validate", 0.1, 0.1, 0.1 * math.exp(QUARTILES * 0.2)),
        kind("environment.start", 1.0, 1.0, math.exp(0.1), count=2),
        kind("reduce", 0.0, 0.0, 0.001),
    ]
    widened = widen(PROCESSOR, alone(kinds=kinds), 0.0, 0.0)
    assert host(widened) == pytest.approx(math.hypot(0.03, 0.05))
    assert host(widened, "streaming") == 0.03
    assert host(widened, "unknown work") >= 0.1


def test_a_recording_that_was_made_before_there_was_a_priority_is_one_of_the_normal_one() -> None:
    old = {name: value for name, value in alone(probe_ratio=2.0).items() if name not in ("priority", "stolen_share")}
    assert host(widen(PROCESSOR, old, 0.0, 0.0)) == pytest.approx(math.hypot(0.03, 0.5 * NEIGHBOURS["normal"]))


@pytest.mark.parametrize("measured", [None, {"status": "not measured", "reason": "It failed."}])
def test_without_a_solo_profile_the_run_s_own_delay_counts(measured: dict[str, Any] | None) -> None:
    assert widen(PROCESSOR, measured, 0.0, 0.0) == PROCESSOR
    assert host(widen(PROCESSOR, measured, 0.5, 0.0)) == pytest.approx(math.hypot(0.03, NEIGHBOURS["normal"] / 2))
    assert host(widen(PROCESSOR, measured, 0.0, 0.2)) == pytest.approx(math.hypot(0.03, math.log(0.8) / 2))
    assert widen(PROCESSOR, alone(), 0.5, 0.2) == PROCESSOR, "the profile's own come from its CPU seconds"


def test_the_delay_is_that_of_the_metered_records() -> None:
    record = {"start_ns": 0, "end_ns": 3_000_000_000, "init_ms": 1000.0, "host_delay_ms": 2000.0}
    document = {"processor": PROCESSOR.to_dict(), "alone": None}
    found = processor_of(Run(document=document, invocations=[record]))
    assert found is not None
    assert host(found) == pytest.approx(host(widen(PROCESSOR, None, 0.5, 0.0)))
    stolen = processor_of(Run(document={**document, "host": {"stolen_share": 0.2}}))
    assert stolen is not None
    assert host(stolen) == pytest.approx(host(widen(PROCESSOR, None, 0.0, 0.2)))
    assert processor_of(Run(document={"processor": None}, invocations=[record])) is None


def test_the_range_of_a_busy_recording_is_wider_than_that_of_a_quiet_one() -> None:
    kinds = [kind("compute", 0.10, 0.11, 0.14)]
    busy = widen(PROCESSOR, alone(probe_ratio=5.0, delayed_share=0.05, stolen_share=0.05, kinds=kinds), 0.0, 0.0)
    quiet = widen(PROCESSOR, alone(probe_ratio=1.04, kinds=[kind("compute", 0.10, 0.102, 0.104)]), 0.0, 0.0)
    widths = []
    for processor in (quiet, busy):
        profile = with_processor(load_profile(PROFILE), replace(processor, anchors={"hash": 2025}))
        plain = seconds_of(profile)
        low, high = find_uncertainties(plain, seconds_of, profile, processor, False)["seconds"].around(plain["seconds"])
        widths.append(high / low)
    assert widths[1] > 1.1 * widths[0]
