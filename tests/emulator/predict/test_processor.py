"""Factors and their ranges from timings of pretended hosts."""

import json
import math
from typing import Any

import pytest

from slslab.errors import RequestError
from slslab.predict.anchors import Form, load_anchors
from slslab.predict.processor import UNANCHORED, Factor, Host, Processor, Timing, anchor_residuals, make_processor
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import load_profile
from slslab_workers.trace.kinds import INIT, KINDS

HOSTS = ("hash", "loop", "imports", "sort", "floats", "add", "add-new", "fft", "step", "resnet50")


def timings(times: float = 1.0, form: Form = "whole", **others: float) -> dict[str, Timing]:
    """This many times the reference machine's seconds, with other multiples for some workloads."""
    workloads = load_anchors().workloads
    return {name: Timing(form, [workloads[name].seconds(form) * others.get(name, times)]) for name in HOSTS}


def factors(hosts: dict[str, Timing]) -> dict[str, float]:
    return Host(hosts, "", "", load_anchors()).anchor_factors()


def test_a_host_like_the_reference_machine_has_its_constants() -> None:
    anchors, processor = load_anchors(), make_processor(timings(), "a host", "today")
    assert processor.factor("interpreter").value == pytest.approx(
        math.sqrt(anchors.constant("hash") * anchors.constant("sort"))
    )
    assert processor.factor("dense").value == pytest.approx(
        math.sqrt(0.5104 / anchors.workloads["resnet50-2019"].whole_s * 0.7 / anchors.workloads["fft-2022"].whole_s)
    )
    assert (processor.form, processor.anchored) == ("whole", True)
    assert processor.anchors["resnet50"] == 2020


@pytest.mark.parametrize("kind", KINDS)
def test_a_host_that_is_half_as_fast_has_half_the_factor_and_the_same_shared_range(kind: str) -> None:
    fast, slow = (make_processor(timings(times), "a host", "today").factor(kind) for times in (1.0, 2.0))
    assert slow.value == pytest.approx(fast.value / 2)
    assert slow.deviations == pytest.approx(dict(fast.deviations))
    assert slow.low < slow.value < slow.high


def test_the_factor_of_one_anchor_is_lambda_s_time_over_this_host_s() -> None:
    """Both steps collapse: the reference machine has no part in it."""
    hosts = timings(1.7)
    assert factors(hosts)["sort"] == pytest.approx(12.931 / hosts["sort"].least)


def test_a_range_has_three_sources() -> None:
    anchors = load_anchors()
    dense = make_processor(timings(), "a host", "today").factor("dense")
    assert dense.deviations["anchors"] >= anchors.kinds["dense"].deviation
    assert dense.deviations["year"] == anchors.kinds["dense"].year_deviation > 0
    assert dense.deviation == pytest.approx(math.hypot(*dense.deviations.values()))
    assert make_processor(timings(), "a host", "today").factor("streaming").deviations["year"] == 0


@pytest.mark.parametrize(
    ("changed", "kinds"),
    [
        ({"form": "short"}, set(KINDS)),
        ({"python": "3.13.1"}, {"interpreter", "startup"}),
        ({"python": "3.19.0"}, {"interpreter", "startup"}),
        ({"torch": "2.6.0+cpu"}, {"dense"}),
        ({"python": "3.11.0", "torch": "2.13.9"}, set()),
    ],
)
def test_what_is_not_measured_like_the_reference_widens_the_host_s_range(
    changed: dict[str, Any], kinds: set[str]
) -> None:
    form = changed.pop("form", "whole")
    base = make_processor(timings(), "a host", "today")
    other = make_processor(timings(form=form), "a host", "today", **changed)
    wider = {kind for kind in KINDS if other.factor(kind).deviations["host"] > base.factor(kind).deviations["host"]}
    assert wider == kinds
    assert all(other.factor(kind).deviations["anchors"] == base.factor(kind).deviations["anchors"] for kind in KINDS)


def test_another_python_is_compared_with_the_reference_machine_s_own_run_of_it() -> None:
    """A loop that takes twice as long in Python 3.8 takes twice as long there on Lambda, too."""
    workloads = load_anchors().workloads
    old = {name: Timing("whole", [workloads[name].seconds("whole", "3.8")]) for name in HOSTS}
    base, other = make_processor(timings(), "a host", ""), make_processor(old, "a host", "", python="3.8.18")
    assert old["loop"].least > 1.5 * timings()["loop"].least
    assert other.factor("interpreter").value == pytest.approx(base.factor("interpreter").value)
    unknown = make_processor(timings(), "a host", "", python="3.19.0").factor("interpreter")
    assert unknown.deviation > other.factor("interpreter").deviation


def test_init_s_anchors_are_compared_in_their_own_python() -> None:
    """They are of Python 3.13, in which the reference machine takes longer for the same init, too."""
    anchors = load_anchors()
    boto3 = anchors.workloads["boto3"]
    assert anchors.constant("boto3") == pytest.approx(0.488 / (boto3.whole_s * boto3.python["3.13"]))
    assert anchors.constant("boto3") < 0.488 / boto3.whole_s


def test_an_init_takes_longer_than_other_interpreter_work() -> None:
    processor = make_processor(timings(), "a host", "today")
    interpreter, startup = processor.factor("interpreter"), processor.factor(INIT)
    assert startup.value > 1.3 * interpreter.value
    # Seconds of an init on Lambda: init_wait_ms and what the reference machine takes. cebert, December 2025, and
    # maxday, August 2026, are predicted: nothing is fitted to them.
    wait = load_profile(DEFAULT_PROFILE).functions.init_wait_ms
    assert wait is not None
    workloads = load_anchors().workloads
    for name, python, measured_s in (("boto3", 1.0, 0.440), ("start", workloads["imports"].python["3.12"], 0.083)):
        seconds = wait.value / 1e3 + workloads[name].whole_s * python * startup.value
        assert seconds == pytest.approx(measured_s, rel=0.25)
        assert seconds * startup.low / startup.value < measured_s < seconds * startup.high / startup.value


def test_repetitions_that_vary_and_workloads_that_disagree_widen_the_host_s_range() -> None:
    base = make_processor(timings(), "a host", "today").factor("dense")
    drifting = timings()
    drifting["step"] = Timing("whole", [drifting["step"].least * factor for factor in (1.0, 1.3, 1.4)])
    drifted = make_processor(drifting, "a host", "today").factor("dense")
    assert drifted.value == pytest.approx(base.value)
    assert drifted.deviations["host"] > 0.2
    apart = make_processor(timings(step=1.5, resnet50=1.5), "a host", "today").factor("dense")
    assert apart.value == pytest.approx(base.value / math.sqrt(1.5))
    assert apart.low < base.value / 1.5 * 1.0001
    assert apart.high > base.value


def test_short_forms_that_disagree_with_whole_ones_widen_the_host_s_range() -> None:
    """A host that was a third slower half a minute ago is that much less certain."""
    base = make_processor(timings(), "a host", "today")
    checked = make_processor(timings(), "a host", "today", checks=timings(1.5, "short"))
    same = make_processor(timings(), "a host", "today", checks=timings(form="short"))
    for kind in KINDS:
        assert checked.factor(kind).value == base.factor(kind).value
        assert checked.factor(kind).low <= base.factor(kind).value / 1.5
        assert same.factor(kind) == base.factor(kind)


def test_work_of_an_unknown_kind_gets_all_anchors_factors() -> None:
    processor = make_processor(timings(), "a host", "today")
    seen = factors(timings()).values()
    unknown = processor.factor("a handler")
    assert unknown.low <= min(seen) < max(seen) <= unknown.high


def test_one_anchor_alone_leaves_unknown_work_as_uncertain_as_its_own_kind() -> None:
    processor = make_processor({"hash": timings()["hash"]}, "a host", "today")
    assert processor.unknown.deviation >= processor.factor("interpreter").deviation >= 0.17


def test_a_kind_that_was_not_measured_is_named_and_counts_as_unknown() -> None:
    without = {name: timing for name, timing in timings().items() if name not in ("fft", "step", "resnet50")}
    processor = make_processor(without, "a host without PyTorch", "today")
    assert processor.factor("dense") == processor.unknown
    assert processor.missing.endswith("Dense work was not measured here.")
    assert "resnet50" not in processor.anchors


def test_nothing_measured_is_not_anchored() -> None:
    assert make_processor({}, "a host", "today") is UNANCHORED
    assert not UNANCHORED.anchored
    assert UNANCHORED.form == "not anchored"
    factor = UNANCHORED.factor("dense")
    assert factor.value == 1
    # All factors of this project's hosts, from a hash on the slowest to adding arrays.
    assert factor.low <= 0.50
    assert factor.high >= 3.59


def test_arm64_has_factors_of_its_own() -> None:
    processor = make_processor(timings(), "a host", "today")
    x86, arm = processor.factor("interpreter"), processor.factor("interpreter", "arm64")
    assert arm.value < x86.value
    assert processor.factor("dense", "arm64").value > processor.factor("dense").value
    assert processor.factor("streaming", "arm64").deviation > processor.factor("streaming").deviation
    assert processor.factor("?", "arm64").deviation > processor.unknown.deviation


def test_each_anchor_is_predicted_from_the_others() -> None:
    residuals = anchor_residuals({"hash": 1.0, "sort": 4.0, "loop": 3.0, "resnet50": 2.0}, load_anchors())
    errors = {name: error for name, (error, _) in residuals.items()}
    assert errors == pytest.approx({"hash": 3.0, "sort": -3 / 4, "loop": -1 / 3})
    assert {name: near for name, (_, near) in residuals.items()} == {
        "hash": ["sort"],
        "sort": ["hash"],
        "loop": ["hash", "sort"],
    }
    assert anchor_residuals({"add": 1.0}, load_anchors()) == {}


def test_a_document_of_before_a_kind_of_work_was_known_counts_it_as_unknown() -> None:
    document = make_processor(timings(), "a host", "today").to_dict()
    del document["factors"]["startup"], document["arm64"]["startup"]
    processor = Processor.from_dict(document)
    assert processor.factor("startup") == processor.unknown
    assert processor.factor("startup", "arm64").deviation > processor.unknown.deviation


@pytest.mark.parametrize("processor", [UNANCHORED, make_processor(timings(1.3), "a host", "today")])
def test_a_processor_is_the_same_after_json(processor: Processor) -> None:
    assert Processor.from_dict(json.loads(json.dumps(processor.to_dict()))) == processor


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("factors", "dense"), None),
        (("factors",), {}),
        (("factors", "dense", "value"), -1),
        (("factors", "dense", "value"), float("nan")),
        (("factors", "dense", "deviations", "host"), -0.1),
        (("factors", "streaming"), {}),
        (("unknown",), "1"),
        (("arm64", "unknown"), [1]),
        (("arm64", "interpreter"), [0, 0]),
        (("anchors",), ["hash"]),
        (("form",), "guessed"),
    ],
)
def test_a_damaged_description_is_refused_in_one_sentence(path: tuple[str, ...], value: Any) -> None:
    document = json.loads(json.dumps(UNANCHORED.to_dict()))
    place = document
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    with pytest.raises(RequestError, match="The description of a processor is damaged"):
        Processor.from_dict(document)


def test_a_factor_without_deviations_has_no_range() -> None:
    factor = Factor(2.0)
    assert (factor.low, factor.high, factor.scaled(0.5).value) == (2.0, 2.0, 1.0)
