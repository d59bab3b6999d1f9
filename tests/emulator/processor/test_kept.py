"""What is measured on a host is kept per user and found again: keys, damage, budgets, and the probe."""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.emulator.processor.fake_host import VERSIONS, FakeHost

from slslab.errors import HostError
from slslab.predict.processor import UNANCHORED
from slslab.processor import kept, measurement, workloads
from slslab.processor.kept import load_measurement, load_processor, make_key, measure_processor, probe, read_cpu
from slslab.processor.workloads import SIZES
from slslab_workers.trace.kinds import KINDS


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    _forget()
    yield
    _forget()


def _forget() -> None:
    make_key.cache_clear()
    measurement.read_versions.cache_clear()


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    host = FakeHost()
    monkeypatch.setattr(measurement, "run_workloads", host)
    monkeypatch.setattr(workloads, "versions", lambda: host.versions)
    return host


def path() -> Path:
    return Path(os.environ["XDG_CACHE_HOME"], "slslab", kept.NAME)


def test_nothing_kept_is_not_anchored_and_nothing_is_measured(host: FakeHost) -> None:
    assert load_processor() is UNANCHORED
    assert probe() == {}
    assert host.calls == []
    assert not path().exists()


def test_what_was_measured_is_found_again(host: FakeHost) -> None:
    measured = measure_processor()
    assert load_processor() == measured
    assert measured.form == "whole"
    assert "Python 3.11.9" in measured.name
    assert "torch 2.13.0" in measured.name
    assert host.calls.count(("whole", "sort")) == 2


def test_short_forms_give_a_wider_range_and_do_not_replace_whole_ones(host: FakeHost) -> None:
    short = measure_processor(short=True)
    assert (short.form, load_processor()) == ("short", short)
    assert not any("whole" in call for call in host.calls)
    whole = measure_processor()
    measure_processor(short=True)
    assert load_processor().form == "whole"
    assert all(short.factor(kind).deviation > whole.factor(kind).deviation for kind in KINDS)


def test_a_whole_form_that_does_not_end_in_time_is_replaced_by_its_short_one(host: FakeHost) -> None:
    host.unfinished = frozenset(("whole sort",))
    processor = measure_processor()
    found = load_measurement()
    assert found is not None
    assert (found.timings["sort"].form, found.timings["hash"].form) == ("short", "whole")
    assert processor.form == "short"


def test_a_host_that_ends_nothing_is_refused(host: FakeHost) -> None:
    host.unfinished = frozenset(f"{form} {name}" for form in ("whole", "short", "probe") for name in SIZES)
    with pytest.raises(HostError, match="too busy to measure its processor"):
        measure_processor()
    assert not path().exists()


def test_an_interpreter_without_packages_measures_python_alone(host: FakeHost) -> None:
    host.versions = {**VERSIONS, "torch": "", "numpy": ""}
    processor = measure_processor()
    assert {name for call in host.calls for name in call} & {"step", "add", "fft", "matmul"} == set()
    startup = {"start", "boto3", "start-march", "start-april"}
    assert set(processor.anchors) == {"hash", "loop", "sort", "floats", *startup}
    assert "Dense and streaming work was not measured here" in processor.missing


@pytest.mark.parametrize(
    "changed", [{"build": "PyPy"}, {"openssl": "OpenSSL 1.1.1"}, {"torch": "2.6.0"}, {"numpy": "1.26"}]
)
def test_another_build_is_another_host(changed: dict[str, str], host: FakeHost) -> None:
    measure_processor(short=True)
    host.versions = {**VERSIONS, **changed}
    _forget()
    assert load_processor() is UNANCHORED
    measure_processor(short=True)
    host.versions = VERSIONS
    _forget()
    assert load_processor().anchored
    assert len(json.loads(path().read_text())["hosts"]) == 2


def test_the_processor_s_name_is_no_key_but_its_model_cache_and_flags_are(tmp_path: Path) -> None:
    text = (
        "vendor_id : AuthenticAMD\ncpu family : 25\nmodel : 17\nmodel name : AMD EPYC\nstepping : 1\n"
        "cache size : 1024 KB\nflags : sha_ni avx2\n\nvendor_id : other\n"
    )
    cpus = []
    for number, edited in enumerate(
        (text, text.replace("sha_ni avx2", "avx2 sha_ni"), text.replace("sha_ni ", ""), text.replace("1024", "512"))
    ):
        file = tmp_path / str(number)
        file.write_text(edited)
        cpus.append(read_cpu(file))
    assert cpus[0] == cpus[1]
    assert cpus[0] != cpus[2]
    assert cpus[0] != cpus[3]
    assert cpus[0]["vendor_id"] == "AuthenticAMD"
    assert read_cpu(tmp_path / "none") == {}


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: "",
        lambda text: text[: len(text) // 2],
        lambda _: "[]",
        lambda _: '{"schema": 2}',
        lambda text: text.replace('"schema": 1', '"schema": 0'),
        lambda text: text.replace('"whole"', '"hole"'),
        lambda text: text.replace('"load": ', '"load": "x", "was": '),
        lambda text: text.replace('"hash": [', '"hash": [-1, '),
        lambda text: text.replace('"hash": [', '"hash": ["x", '),
        lambda text: re.sub(r'"hash": \[[^]]*', '"hash": [', text),
    ],
)
def test_a_damaged_file_is_said_and_measured_anew(damage: "object", host: FakeHost) -> None:
    measure_processor(short=True)
    assert callable(damage)
    path().write_text(damage(path().read_text()))
    processor = load_processor()
    assert not processor.anchored
    assert processor.missing.startswith(f"The measurements in {path()} ")
    assert processor.missing.endswith("run: slslab calibrate --processor")
    assert probe() == {}
    assert measure_processor(short=True) == load_processor()
    assert host.calls


def test_a_probe_compares_this_moment_with_the_kept_one(host: FakeHost) -> None:
    measure_processor(short=True)
    host.probe_s *= 1.5
    assert probe() == {kind: pytest.approx(1.5) for kind in KINDS}


def test_a_probe_of_the_interpreter_follows_work_in_the_cache_and_in_memory(host: FakeHost) -> None:
    measure_processor(short=True)
    host.times = {"probe sort": 1.44}
    assert probe() == {kind: pytest.approx(1.2 if kind == "interpreter" else 1.0) for kind in KINDS}
    host.unfinished = frozenset(("probe imports",))
    assert set(probe()) == {"interpreter"}, "a kind that only some of its probes finished is left out"
    host.unfinished = frozenset(("probe sort",))
    assert probe() == {}


def test_a_child_that_is_killed_leaves_the_lines_it_wrote(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text('#!/bin/sh\necho \'{"name": "hash", "cpu_s": [1.0]}\'\nprintf \'{"name": \'\nexec sleep 60\n')
    script.chmod(0o755)
    (line,) = measurement.run_workloads(str(script), ["hash", "loop"], "whole", timeout_s=1.0)
    assert line["name"] == "hash"


def test_this_interpreter_runs_a_real_workload() -> None:
    (line,) = measurement.run_workloads(sys.executable, ["hash"], "probe", repeat=2, seconds=1.0)
    assert min(line["cpu_s"]) > 0
