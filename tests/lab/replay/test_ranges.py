"""80 % ranges of modelled figures: what each source adds, and what two systems share."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from slslab.predict.accuracy import profile_errors, replay_errors
from slslab.predict.anchors import Z80
from slslab.predict.processor import UNANCHORED, Factor, Processor
from slslab.predict.profiles.profile import Figure, Profile, load_profile, with_speed
from slslab.predict.uncertainty import PER_MEAN_ERROR, Uncertainty, ratio_range, read_uncertainty
from slslab_lab.replay.ranges import find_uncertainties, with_processor
from slslab_workers.trace.kinds import KINDS

# Compared with measurements, with a speed that is assumed.
PROFILE = "aws-us-east-1-2026"
FACTOR = Factor(2.0, {"anchors": 0.12, "year": 0.05, "host": 0.03})


def processor(factor: Factor = FACTOR) -> Processor:
    return replace(UNANCHORED, form="whole", factors=dict.fromkeys(KINDS, factor), anchors={"hash": 2025})


def seconds_of(profile: Profile, dense_s: float = 6.0, put_ms: float = 4000.0) -> dict[str, float]:
    """A run with this many seconds of dense work on the recording host, and puts that take this long on the profile."""
    latency, usual = (each.operation("object.put").latency_ms.value for each in (profile, load_profile(PROFILE)))
    seconds = dense_s / profile.compute.speeds()["dense"] + put_ms / 1e3 * latency / usual
    return {"seconds": seconds, "billed_seconds": seconds, "cost": 1e-4 * seconds}


def test_a_range_reaches_as_far_down_as_up_in_proportion() -> None:
    uncertainty = Uncertainty({"dense": 0.3}, {"replay": 0.4})
    low, high = uncertainty.around(10.0)
    assert uncertainty.deviation == pytest.approx(0.5)
    assert (low, high) == pytest.approx((10 * math.exp(-0.5 * Z80), 10 * math.exp(0.5 * Z80)))
    assert uncertainty.half_widths() == pytest.approx(
        {"dense": math.exp(0.3 * Z80) - 1, "replay": math.exp(0.4 * Z80) - 1}
    )
    assert read_uncertainty(uncertainty.as_document()) == uncertainty


def test_what_two_systems_share_is_drawn_once_for_their_ratio() -> None:
    one = Uncertainty({"dense": 0.3, "requests": 0.1}, {"replay": 0.06})
    other = Uncertainty({"dense": 0.3}, {"replay": 0.08})
    assert one.of_ratio(other) == pytest.approx(math.hypot(0.1, 0.06, 0.08))
    low, high = ratio_range((12.0, 10.0), (one, other))
    assert low < 1.2 < high
    assert high / low == pytest.approx(math.exp(2 * Z80 * one.of_ratio(other)))


def test_a_processor_gives_an_assumed_speed_alone() -> None:
    profile = load_profile(PROFILE)
    anchored = with_processor(profile, processor())
    assert set(anchored.compute.speeds().values()) == {0.5}
    assert "hash (2025)" in anchored.compute.kinds["dense"].source
    fitted = with_speed(profile, Figure(value=3.0, status="fitted", source="to REPORT lines"))
    for unchanged in (with_processor(fitted, processor()), with_processor(profile, None)):
        assert unchanged.compute.kinds == {}
    assert with_processor(profile, UNANCHORED) == profile


def test_each_source_counts_as_much_as_it_moves_the_figure() -> None:
    known, profile = processor(), with_processor(load_profile(PROFILE), processor())
    plain = seconds_of(profile)
    assert plain["seconds"] == pytest.approx(16.0)
    found = find_uncertainties(plain, seconds_of, profile, known, False)["seconds"]
    # Three quarters of the time are dense work, the rest requests; no other kind matters.
    sensitivity = math.log(1 + 0.75 * (math.exp(FACTOR.deviation) - 1)) / FACTOR.deviation
    assert found.shared["dense work on Lambda"] == pytest.approx(sensitivity * 0.13)
    assert {name for name, deviation in found.shared.items() if deviation} == {
        "dense work on Lambda",
        "the profile's requests",
    }
    errors = profile_errors(PROFILE)
    assert errors is not None
    assert 0.2 * errors["seconds"] < found.shared["the profile's requests"] < 0.4 * errors["seconds"]
    assert found.own == pytest.approx(
        {"this machine's processor": sensitivity * 0.03, "the replay": replay_errors()["seconds"] * PER_MEAN_ERROR}
    )


def test_a_host_that_was_not_measured_has_the_widest_range() -> None:
    profile = load_profile(PROFILE)
    plain = seconds_of(profile)
    wide, known = (find_uncertainties(plain, seconds_of, profile, each, False) for each in (None, processor()))
    assert wide["seconds"].deviation > 3 * known["seconds"].deviation
    assert wide["seconds"].own["this machine's processor"] > 0.5


def test_work_of_several_kinds_is_no_better_known_on_a_host_that_was_not_measured() -> None:
    """Its error is the same for all kinds, so it doesn't average out; errors of anchored kinds are independent."""
    profile = load_profile(PROFILE)

    def halves(profile: Profile) -> dict[str, float]:
        speeds = profile.compute.speeds()
        return dict.fromkeys(("seconds", "billed_seconds", "cost"), 5 / speeds["dense"] + 5 / speeds["startup"])

    one_kind, two_kinds = (
        find_uncertainties(play(profile), play, profile, None, False)["seconds"].own["this machine's processor"]
        for play in (lambda each: seconds_of(each, put_ms=0.0), halves)
    )
    assert two_kinds == pytest.approx(one_kind)
    known = with_processor(profile, processor())
    found = find_uncertainties(halves(known), halves, known, processor(), False)["seconds"]
    assert found.own["this machine's processor"] == pytest.approx(0.03 / math.sqrt(2), rel=0.05)


def test_a_fitted_speed_leaves_the_processor_out() -> None:
    figure = Figure(value=0.5, status="fitted", source="to REPORT lines")
    profile = with_speed(load_profile(PROFILE), figure)
    found = find_uncertainties(seconds_of(profile), seconds_of, profile, processor(), False)["seconds"]
    assert found.shared.keys() == {"the profile's requests"}
    assert found.own["this machine's processor"] == 0


def test_assumed_speeds_of_instances_are_in_the_ranges_of_what_they_compute() -> None:
    profile = load_profile(PROFILE)

    def seconds_on(kind: str) -> Callable[[Profile], dict[str, float]]:
        def play(moved: Profile) -> dict[str, float]:
            instance = moved.instance(kind)
            seconds = 240 / instance.compute_speed.value + 6 / instance.host_speed.value
            return {"seconds": seconds, "billed_seconds": seconds, "cost": 1e-4 * seconds}

        return play

    found = {
        kind: find_uncertainties(seconds_on(kind)(profile), seconds_on(kind), profile, processor(), True)["seconds"]
        for kind in ("g4dn.xlarge", "c5.large")
    }
    # Half of the time on the machine with a GPU is the GPU's; everything on the other runs on processors.
    reached = found["g4dn.xlarge"].half_widths()
    assert 0.5 < reached["the GPU's speed"] < 3.0
    assert 0.1 < reached["the instances' processors"] < 0.75
    assert found["c5.large"].half_widths()["the instances' processors"] == pytest.approx(0.75)
    assert "the GPU's speed" not in found["c5.large"].half_widths()
    # What was measured has no such error, and functions have none.
    measured = Figure(value=1.0, status="measured", source="made up for a test")
    instances = {
        kind: each.model_copy(update={"compute_speed": measured, "host_speed": measured})
        for kind, each in profile.instances.items()
    }
    known = profile.model_copy(update={"instances": instances})
    play = seconds_on("c5.large")
    for platform, billed in ((known, True), (profile, False)):
        sources = find_uncertainties(play(platform), play, platform, processor(), billed)["seconds"].half_widths()
        assert not {"the GPU's speed", "the instances' processors"} & sources.keys()
