"""REPORT lines as AWS writes them, in all forms in which they are exported, and what is fitted to them."""

import json
import re
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.metered import record

from slslab.aws.limits import billed_ms
from slslab.errors import RequestError
from slslab.predict.invocation import Predictor
from slslab.predict.processor import UNANCHORED
from slslab.predict.profiles.profile import Figure, Profile, load_profile
from slslab.run.records import report_line
from slslab_lab.calibration.cloudwatch import (
    Report,
    choose_function,
    fit_reports,
    parse_reports,
    predicted_times,
    read_reports,
    replayed_times,
)
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.program import Program, Step, Track

# As recorded from AWS before August 2025, when init was not billed for archives.
RECORDED = (
    "REPORT RequestId: 8f507cfc-0f8b-4f4c-a5d1-3f1e2d3c4b5a\tDuration: 3.01 ms\tBilled Duration: 4 ms\t"
    "Memory Size: 128 MB\tMax Memory Used: 36 MB\tInit Duration: 110.10 ms\t\n"
)
FIRST = Report("8f507cfc-0f8b-4f4c-a5d1-3f1e2d3c4b5a", 3.01, 4, 128, 36, 110.10)
TIMEOUT = (
    "REPORT RequestId: 11111111-2222-3333-4444-555555555555\tDuration: 31000.00 ms\tBilled Duration: 34440 ms\t"
    "Memory Size: 512 MB\tMax Memory Used: 200 MB\tInit Duration: 3439.00 ms\tStatus: timeout\n"
)
PLATFORM = {
    "time": "2026-11-21T12:00:00.000Z",
    "type": "platform.report",
    "record": {
        "requestId": "6d68ca91-49c9-448d-89b8-7ca3e6dc66aa",
        "metrics": {
            "billedDurationMs": 1040,
            "durationMs": 940.5,
            "initDurationMs": 98.8,
            "maxMemoryUsedMB": 33,
            "memorySizeMB": 1769,
        },
        "status": "success",
    },
}
THIRD = Report("6d68ca91-49c9-448d-89b8-7ca3e6dc66aa", 940.5, 1040, 1769, 33, 98.8)

milliseconds = st.integers(0, 90_000_000).map(lambda hundredths: hundredths / 100)
lines = st.builds(
    Report,
    st.uuids().map(str),
    milliseconds,
    st.just(0),
    st.integers(128, 10_240),
    st.integers(1, 10_240),
    st.none() | milliseconds,
    st.sampled_from(["success", "timeout", "error"]),
).map(lambda report: replace(report, billed_ms=billed_ms(report.duration_ms, report.init_ms)))


def write(report: Report) -> str:
    error = "Runtime.ExitError" if report.status == "error" else None
    return report_line(
        report.request_id,
        report.duration_ms,
        report.init_ms,
        report.memory_mb,
        report.max_memory_mb,
        report.status,
        error,
    )


def event(line: str) -> dict[str, Any]:
    return {"logStreamName": "2026/11/21/[$LATEST]ab", "timestamp": 1, "message": line, "ingestionTime": 2}


@given(st.lists(lines, max_size=5))
def test_the_emulator_s_own_lines_are_read_in_every_form_of_export(reports: list[Report]) -> None:
    own = [write(report) for report in reports]
    noise = ["START RequestId: x Version: $LATEST\n", "a {broken} line: {\n", "INIT_REPORT Init Duration: 3.00 ms\n"]
    forms = {
        "plain": "".join(noise + own + noise),
        "pasted": " ".join(own).replace("\t", " "),
        "tail": "".join(f"2026-11-21T12:00:00+00:00 2026/11/21/[$LATEST]ab {line}" for line in noise + own),
        "events": json.dumps({"events": [event(line) for line in noise + own], "searchedLogStreams": []}, indent=4),
        "lines": "\n".join(json.dumps(event(line)) for line in noise + own),
        "insights": json.dumps([{"@message": line} for line in noise + own]),
    }
    for form, text in forms.items():
        assert list(parse_reports(text)) == reports, form


def test_lines_that_aws_wrote() -> None:
    assert list(parse_reports(RECORDED)) == [FIRST]
    assert not FIRST.billed_as_here
    (timeout,) = parse_reports(TIMEOUT)
    assert timeout is not None
    assert (timeout.status, timeout.billed_ms, timeout.init_ms) == ("timeout", 34_440, 3439.0)
    assert timeout.billed_as_here, "31000.00 + 3439.00 ms and something that is not printed, rounded up"


def test_the_json_log_format_alone_in_messages_and_as_tail_prints_it() -> None:
    assert list(parse_reports(json.dumps(PLATFORM))) == [THIRD]
    assert list(parse_reports(json.dumps({"events": [event(json.dumps(PLATFORM))]}))) == [THIRD]
    pretty = f"2026-11-21T12:00:00+00:00 2026/11/21/[$LATEST]ab {json.dumps(PLATFORM, indent=4)}\n"
    assert list(parse_reports(pretty + RECORDED + pretty)) == [THIRD, FIRST, THIRD]


@pytest.mark.parametrize(
    "line",
    [
        "REPORT RequestId: abc\tDuration: 3.01 ms\tMemory Size: 128 MB\tMax Memory Used: 36 MB\n",
        "REPORT RequestId:\n",
        RECORDED[:70],
        json.dumps({**PLATFORM, "record": {"requestId": "abc"}}),
        json.dumps({**PLATFORM, "record": None}),
    ],
)
def test_what_cannot_be_read_is_counted(line: str) -> None:
    assert list(parse_reports(RECORDED + line)) == [FIRST, None]


@given(st.text())
def test_no_text_is_too_odd(text: str) -> None:
    assert list(parse_reports(text + "\n" + RECORDED))[-1:] == [FIRST]


def test_a_file_without_report_lines_is_refused_in_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    with pytest.raises(RequestError, match=re.escape(f"{file} cannot be read: No such file or directory.")):
        read_reports(file)
    file.write_text("START RequestId: x\nEND RequestId: x\n")
    with pytest.raises(RequestError, match=re.escape(f"{file} cannot be fitted: it has no REPORT line.")):
        read_reports(file)
    file.write_text("REPORT RequestId: x\n" * 2)
    with pytest.raises(RequestError, match=re.escape("none of its 2 REPORT lines can be read.")):
        read_reports(file)


def platform() -> Profile:
    """AWS's profile with puts of 100 ms and no bound on bytes, so that all can be calculated by hand."""
    base = load_profile("aws-us-east-1")
    round_figure = Figure(value=100, status="assumed", source="made up for a test")
    put = base.operation("object.put").model_copy(update={"latency_ms": round_figure, "bandwidth_mb_s": None})
    channel = base.channels["object"].model_copy(update={"operations": {"put": put}})
    return base.model_copy(update={"channels": {"object": channel}})


def program(*names: str) -> Program:
    """Functions that compute for 1 s and put once, after an init of 0.5 s."""
    steps = (Step("update", "update", 1_000_000_000), Step("object.put", "other", requests=1))
    tracks = tuple(Track(name, "invocation", 0, steps, memory_mb=512, init_cpu_ns=500_000_000) for name in names)
    return Program("test", 1, tracks, ())


def fit(reports: list[Report], *names: str, function: str | None = None) -> tuple[Profile, Any]:
    names = names or ("worker",)
    chosen = choose_function(sorted(names), function)
    return fit_reports(
        reports, chosen, partial(replayed_times, program(*names), chosen), platform(), "log", date(2026, 11, 21)
    )


def report(duration_ms: float, init_ms: float | None = None, memory_mb: int = 1769) -> Report:
    return Report("x", duration_ms, billed_ms(duration_ms, init_ms), memory_mb, 300, init_ms)


def test_speed_and_init_are_those_with_which_the_run_takes_what_the_lines_say() -> None:
    """Real: 2,100 ms with a put of 100, so processors at half speed; the init of 1,000 ms waits 2,000."""
    profile, found = fit([report(2000), report(2100, 3000), report(9000)])
    medians = {when: (found["duration_ms"][when], found["init_ms"][when]) for when in ("real", "before", "after")}
    assert medians["before"] == pytest.approx((1100, 500))
    assert profile.compute.speed.value == pytest.approx(0.5, rel=1e-3)
    assert medians["after"] == pytest.approx((2100, 3000), rel=1e-3)
    assert medians["real"] == (2100, 3000)
    wait = profile.functions.init_wait_ms
    assert wait is not None
    assert wait.value == pytest.approx(2000, rel=1e-3)
    assert (found["lines"]["fitted"], found["lines"]["cold"], found["lines"]["billed_as_here"]) == (3, 1, 3)
    speed = profile.compute.speed
    assert (speed.status, speed.source, wait.source) == (
        "measured",
        "log: median of 3 lines",
        "log: median of 1 cold start",
    )
    # All else is the base's, and the modelled init is billed.
    assert profile.compute.vcpu_mb == platform().compute.vcpu_mb
    (call,) = play(program("worker"), profile).calls
    assert call.init_ns > 2_000_000_000


def test_metered_invocations_are_fitted_alike() -> None:
    """Here 1 s of CPU time and 0.1 s of waits, after an init of 0.5 s and 0.2 s of waits."""
    records = [(record(1000, 1100, init=(500, 700)), ()), (record(1000, 1100), ())]
    recorded = partial(predicted_times, Predictor(UNANCHORED, platform()), records)
    reports = [report(2100), report(2100, 3000)]
    profile, found = fit_reports(reports, "f", recorded, platform(), "log", date(2026, 11, 21))
    assert profile.compute.speed.value == pytest.approx(0.5, rel=1e-3)
    assert (found["duration_ms"]["before"], found["init_ms"]["before"]) == (1100, 700)
    assert found["init_ms"]["after"] == pytest.approx(3000, rel=1e-3)
    predicted = Predictor(UNANCHORED, profile).predict(records[0][0])
    assert predicted is not None
    assert predicted.init_ms is not None
    assert (predicted.duration_ms.value, predicted.init_ms.value) == pytest.approx((2100, 3000), rel=1e-3)
    assert predicted.duration_ms.low == predicted.duration_ms.high, "no factor is in it any more"


def test_lines_without_cold_starts_leave_init_alone_and_failed_ones_do_not_count() -> None:
    profile, found = fit([report(600), replace(report(100_000), status="timeout")])
    assert profile.compute.speed.value == pytest.approx(2, rel=1e-3)
    assert profile.functions == platform().functions
    assert (found["lines"]["fitted"], found["lines"]["failed"], found["init_ms"]["real"]) == (1, 1, None)


def test_an_init_that_is_quicker_than_modelled_waits_for_nothing() -> None:
    wait = fit([report(1100, 200)])[0].functions.init_wait_ms
    assert wait is not None
    assert wait.value == 0


def test_a_log_that_cannot_be_compared_is_refused_in_a_sentence() -> None:
    with pytest.raises(RequestError, match="have several memory sizes: 512, 1769 MB"):
        fit([report(1000), report(1000, memory_mb=512)])
    with pytest.raises(RequestError, match="All REPORT lines are from failed invocations"):
        fit([replace(report(1), status="error")])
    with pytest.raises(
        RequestError, match="has the functions auth, worker, and the REPORT lines belong to one of them"
    ):
        fit([report(1000)], "worker", "auth")
    with pytest.raises(RequestError, match="has the functions worker, and the REPORT lines belong to 'other'"):
        fit([report(1000)], function="other")
    assert fit([report(1100)], "worker", "auth", function="auth")[1]["function"] == "auth"
    with pytest.raises(RequestError, match="worker takes even without computing 116 ms"):
        fit([report(50)])
    with pytest.raises(RequestError, match="worker takes at most 64,100 ms"):
        fit([report(100_000)])
