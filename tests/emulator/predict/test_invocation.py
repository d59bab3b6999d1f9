"""What one metered invocation takes on Lambda: laws, and cases that can be computed by hand."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.metered import ANCHORED, EXACT, FACTOR, MS, PROFILE, SAME, START_NS, record

from slslab.errors import RunError
from slslab.predict.anchors import Z80
from slslab.predict.invocation import Prediction, Predictor, Range, Request, make_predictor, match_requests
from slslab.predict.processor import UNANCHORED, Factor, Processor
from slslab.predict.profiles.profile import Figure, with_speed
from slslab_workers.trace.kinds import INIT, KINDS

assert PROFILE.functions.init_wait_ms is not None
WAIT_MS = PROFILE.functions.init_wait_ms.value


def predict(processor: Processor, *arguments: Any, kind: str = "unknown", **changed: Any) -> Prediction:
    return Predictor(processor, PROFILE, kind).predict(record(*arguments, **changed))


def test_cpu_time_is_scaled_and_waits_stay() -> None:
    predicted = predict(EXACT, 100, 350, init=(50, 60))
    assert predicted.parts == pytest.approx({"init": 110 + WAIT_MS, "cpu": 200, "requests": 0, "waits": 250})
    assert predicted.init_ms == Range(*[110 + WAIT_MS] * 3)
    assert predicted.duration_ms == Range(450, 450, 450)
    assert predicted.billed_ms == Range(*[math.ceil(560 + WAIT_MS)] * 3)


def test_the_range_is_the_factors() -> None:
    predicted = predict(ANCHORED, 100, 100)
    reach = math.exp(Z80 * FACTOR.deviation)
    assert predicted.duration_ms.value == 200
    assert (predicted.duration_ms.low, predicted.duration_ms.high) == pytest.approx((200 / reach, 200 * reach))


def test_init_has_a_full_processor_and_the_invocation_its_share() -> None:
    """At a tenth of a processor 2 ms of each 20 may be used: 40 ms of CPU time take 19 whole periods and 2 ms."""
    predicted = predict(SAME, 20, 182, memory_mb=177, init=(400, 400), cpu_share=0.1)
    assert predicted.init_ms == Range(*[400 + WAIT_MS] * 3)
    assert predicted.duration_ms.value == pytest.approx(182, rel=0.01)
    twice = predict(EXACT, 20, 182, memory_mb=177, cpu_share=0.1)
    assert twice.duration_ms.value == pytest.approx(19 * 20 + 2, rel=0.01)
    # When in a period an invocation begins is chance.
    assert (twice.duration_ms.low, twice.duration_ms.high) == pytest.approx((374, 390), rel=0.01)


def test_a_quota_that_did_not_hold_here_may_hold_on_lambda() -> None:
    """1.4 ms of CPU time are within a period of 128 MB, 2.8 ms aren't."""
    assert predict(SAME, 1.4, 1.4, memory_mb=128).duration_ms.value == pytest.approx(1.4)
    assert predict(EXACT, 1.4, 1.4, memory_mb=128).duration_ms.value > 20


def test_threads_that_ran_at_once_do_so_on_lambda() -> None:
    predicted = predict(EXACT, 2000, 1000, memory_mb=3538)
    assert predicted.duration_ms == Range(2000, 2000, 2000)


def at(memory_mb: int, measured: dict[str, Any], cores: int = 2) -> dict[str, tuple[float, float]]:
    """The duration with another memory size, ms: as it is, and with all threads at once."""
    found = Predictor(SAME, PROFILE).model(measured, (), memory_mb, cores)
    assert found is not None
    ends = found.figures({})["duration"], found.figures({"threads": -Z80})["duration"]
    return {"threads" if "threads" in found.sources else "known": (round(ends[0]), round(ends[1]))}


def test_threads_share_the_quota_of_a_smaller_memory_size() -> None:
    """Two processes took a second for two CPU seconds; half of a processor gives them four seconds."""
    (ends,) = at(884, record(2000, 1000, 3538)).values()
    assert ends == pytest.approx((4000, 4000), rel=0.01)


def test_threads_that_a_quota_hid_may_run_at_once_with_more_processors() -> None:
    assert at(3538, record(500, 1000, 884)) == {"threads": (500, 250)}
    # It had two processors and used one, so it has one thread.
    assert at(7076, record(500, 500, 3538)) == {"known": (500, 500)}
    # A processor and 1.3 % of another one show nothing.
    assert at(3538, record(500, 494, 1792)) == {"threads": (494, 250)}
    # It used several: of Lambda's share, and of this machine's processors.
    assert at(7076, record(2000, 1000, 3538)) == {"threads": (1000, 500)}
    assert at(7076, record(2000, 1000, 5307)) == {"threads": (1000, 500)}
    assert at(7076, record(2000, 1000, 7076), cores=4) == {"known": (1000, 1000)}
    # Less than a processor is the same to one thread and to two.
    assert at(1769, record(500, 1000, 884)) == {"known": (500, 500)}


def test_shares_that_the_host_did_not_enforce_are_modelled() -> None:
    free = Predictor(SAME, PROFILE, enforced=False).predict(record(20, 20, memory_mb=177))
    assert free is not None
    assert free.duration_ms.value == pytest.approx(182, rel=0.01)


def test_requests_to_s3_take_the_profiles_time() -> None:
    """5 ms here for 10 MB; the rest of the waits stays."""
    get = PROFILE.operation("object.get")
    assert get.bandwidth_mb_s is not None
    request = Request("object.get", START_NS + 10 * MS, START_NS + 15 * MS, 10_000_000)
    predicted = Predictor(SAME, PROFILE).predict(record(10, 100), [request])
    assert predicted is not None
    took_ms = get.latency_ms.value + 10_000 / get.bandwidth_mb_s.value
    assert predicted.parts == pytest.approx({"init": 0, "cpu": 10, "requests": took_ms, "waits": 85})
    assert predicted.duration_ms.low < predicted.duration_ms.value < predicted.duration_ms.high


def test_tls_has_the_memory_sizes_share_of_a_processor() -> None:
    get = PROFILE.operation("object.get")
    assert get.cpu_ms_per_mb is not None
    cpu_ms = 100 * get.cpu_ms_per_mb.value
    made = [Request("object.get", START_NS, START_NS + MS, 100_000_000)]
    small, large = (Predictor(SAME, PROFILE).predict(record(0, 1000, memory_mb=mb), made) for mb in (177, 1769))
    assert small is not None
    assert large is not None
    assert small.parts["requests"] == pytest.approx(get.latency_ms.value + 10 * cpu_ms, rel=0.01)
    assert get.bandwidth_mb_s is not None
    assert large.parts["requests"] == pytest.approx(get.latency_ms.value + 100_000 / get.bandwidth_mb_s.value)


def test_a_request_ends_when_the_next_one_begins() -> None:
    requests = [
        Request("object.get", START_NS + start * MS, START_NS + end * MS, 0) for start, end in ((0, 20), (5, 20))
    ]
    predicted = Predictor(SAME, PROFILE).predict(record(0, 12), requests)
    assert predicted is not None
    assert predicted.parts == pytest.approx({"init": 0, "cpu": 0, "requests": 2 * 24.5, "waits": 0})


def test_requests_before_the_handler_are_inits() -> None:
    request = Request("object.get", START_NS - 30 * MS, START_NS - 10 * MS, 0)
    predicted = Predictor(SAME, PROFILE).predict(record(5, 5, init=(10, 60)), [request])
    assert predicted is not None
    assert predicted.init_ms is not None
    assert predicted.init_ms.value == pytest.approx(60 - 20 + 24.5 + WAIT_MS)
    assert predicted.parts["requests"] == 0


def test_waits_that_may_be_the_hosts_lower_the_lower_end() -> None:
    assert predict(SAME, 10, 100, uncertain_ms=40.0).duration_ms == Range(100, 60, 100)


def test_a_timeout_is_the_most_that_an_invocation_takes() -> None:
    predicted = predict(ANCHORED, 900, 1000, error_type="Sandbox.Timedout")
    assert predicted.timed_out
    assert (predicted.duration_ms.value, predicted.duration_ms.high) == (1000, 1000)
    fast = Processor("host", "whole", "", "1", {}, Factor(0.5), UNANCHORED.arm64, {}, "")
    assert predict(fast, 900, 1000, error_type="Sandbox.Timedout").duration_ms.low == 550


def test_a_cold_start_of_a_former_version_is_refused() -> None:
    older = record(10, 20, init=(5, 5))
    del older["init_cpu_ms"]
    with pytest.raises(RunError, match=r"was recorded by a version before 0\.2"):
        make_predictor(UNANCHORED, None, None).predict(older)


def test_the_kind_of_work_chooses_the_factor() -> None:
    factors = {**dict.fromkeys(KINDS, Factor(2.0)), "dense": Factor(0.5), INIT: Factor(3.0)}
    processor = Processor("host", "whole", "", "1", factors, Factor(1.0), UNANCHORED.arm64, {}, "")
    for kind, expected_ms in (("dense", 50), ("streaming", 200), ("unknown", 100)):
        predicted = predict(processor, 100, 100, init=(10, 10), kind=kind)
        assert (predicted.duration_ms.value, predicted.init_ms) == (expected_ms, Range(*[30 + WAIT_MS] * 3))


def test_arm64_has_factors_of_its_own() -> None:
    arm64 = {**UNANCHORED.arm64, "unknown": (0.5, 0.2)}
    processor = Processor("host", "whole", "", "1", {}, Factor(2.0), arm64, {}, "")
    predicted = predict(processor, 100, 100, architecture="arm64")
    assert predicted.duration_ms.value == 100
    assert predicted.duration_ms.high == pytest.approx(100 * math.exp(0.2 * Z80))


def test_a_speed_by_report_lines_replaces_the_processor() -> None:
    figure = Figure(value=0.5, status="measured", source="reports.json: median of 3 lines")
    profile = with_speed(PROFILE, figure)
    for processor in (UNANCHORED, ANCHORED):
        predicted = Predictor(processor, profile).predict(record(100, 100))
        assert predicted.duration_ms == Range(200, 200, 200)


def test_requests_count_to_the_invocation_that_was_under_way() -> None:
    warm = record(1, 10, start_ns=100 * MS, end_ns=110 * MS)
    cold = record(1, 10, init=(20, 20), start_ns=200 * MS, end_ns=210 * MS)
    at_once = record(1, 10, start_ns=205 * MS, end_ns=215 * MS)
    other = record(1, 10, start_ns=100 * MS, end_ns=300 * MS, function="g")
    times = {"none": 150, "warm": 105, "init": 185, "cold": 201, "both": 206, "after": 214}
    requests = {name: Request("object.get", at * MS, at * MS + 1, 0) for name, at in times.items()}
    matched = match_requests([warm, at_once, cold, other], {"f": list(requests.values())})
    assert matched == [
        [requests["warm"]],
        [requests["both"], requests["after"]],
        [requests["init"], requests["cold"]],
        [],
    ]


milliseconds = st.floats(0, 10_000)
memories = st.sampled_from([128, 512, 1024, 1769, 3008, 10240])


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    """Records of one thread, with any waits."""
    memory_mb, cpu_ms = draw(memories), draw(milliseconds)
    waits_ms, init = draw(milliseconds), (draw(milliseconds), draw(milliseconds))
    took_ms = cpu_ms / min(1.0, memory_mb / 1769) + waits_ms
    cold = (init[0], sum(init)) if draw(st.booleans()) else None
    return record(cpu_ms, took_ms, memory_mb, cold, uncertain_ms=draw(st.floats(0, 100)))


@given(records(), st.sampled_from(["unknown", *KINDS]))
def test_a_range_holds_its_value(metered: dict[str, Any], kind: str) -> None:
    for processor in (UNANCHORED, ANCHORED):
        predicted = Predictor(processor, PROFILE, kind).predict(metered)
        for figure in (predicted.duration_ms, predicted.billed_ms, predicted.init_ms or Range(0, 0, 0)):
            assert 0 <= figure.low <= figure.value <= figure.high


@given(records(), st.floats(1, 5000))
def test_more_cpu_time_never_costs_less(metered: dict[str, Any], more_ms: float) -> None:
    share = min(1.0, metered["cpu_share"])
    larger = {
        **metered,
        "cpu_ms": metered["cpu_ms"] + more_ms,
        "duration_ms": metered["duration_ms"] + more_ms / share + (40 if share < 1 else 0),
    }
    for processor in (UNANCHORED, ANCHORED, SAME):
        predicted = [Predictor(processor, PROFILE).predict(each) for each in (metered, larger)]
        assert predicted[1].billed_ms.value >= predicted[0].billed_ms.value - 1


@given(records())
def test_an_anchored_host_knows_more(metered: dict[str, Any]) -> None:
    """Relative to the figure."""
    widths = []
    for processor in (ANCHORED, UNANCHORED):
        predicted = Predictor(processor, PROFILE).predict({**metered, "uncertain_ms": 0.0})
        figure = predicted.duration_ms
        widths.append((figure.high - figure.low) / max(figure.value, 1e-9))
    assert widths[0] <= widths[1] * (1 + 1e-9) + 16 / max(1.0, metered["duration_ms"])


@given(records())
def test_a_host_as_fast_as_lambda_predicts_what_it_measured(metered: dict[str, Any]) -> None:
    predicted = Predictor(SAME, PROFILE).predict(metered)
    assert predicted is not None
    assert predicted.duration_ms.value == pytest.approx(metered["duration_ms"], rel=1e-6, abs=1e-3)
