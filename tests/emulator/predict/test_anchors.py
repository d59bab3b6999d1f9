"""The anchors' file, and the constants and ranges that come from it."""

import math
import re
from pathlib import Path

import pytest

from slslab.errors import RequestError
from slslab.predict.anchors import PATH, Z80, Anchors, envelope, load_anchors
from slslab.processor.workloads import SIZES
from slslab_workers.trace.kinds import KINDS


def edited(tmp_path: Path, *edits: tuple[str, str]) -> Anchors:
    text = PATH.read_text(encoding="utf-8")
    for pattern, replacement in edits:
        text, count = re.subn(pattern, replacement, text, count=1, flags=re.DOTALL)
        assert count, pattern
    path = tmp_path / "anchors.toml"
    path.write_text(text, encoding="utf-8")
    return load_anchors(path)


def test_every_figure_has_a_source_and_every_workload_can_be_run() -> None:
    anchors = load_anchors()
    assert {anchor.kind for anchor in anchors.usable().values()} == set(KINDS)
    assert all(anchor.source and 2019 < anchor.year < 2027 for anchor in anchors.anchors.values())
    hosts = {workload for anchor in anchors.usable().values() for workload in anchor.hosts}
    assert hosts <= set(SIZES)
    assert all(anchors.workloads[name].short_s for name in hosts)


def test_pbkdf2_gives_no_factor() -> None:
    assert load_anchors().anchors["pbkdf2"].ratios_only
    assert "pbkdf2" not in load_anchors().usable()


def test_the_times_on_lambda_are_those_of_the_sources() -> None:
    """Milliseconds at a memory size become seconds of one full vCPU, 1,769 MB."""
    anchors = load_anchors().anchors
    share = 512 / 1769
    for name, x86_ms, arm_ms in (("loop", 6186.48, 4062.16), ("floats", 2097.88, 1850.23)):
        assert anchors[name].seconds["x86_64"] == pytest.approx(x86_ms * share / 1e3, rel=1e-3)
        assert anchors[name].seconds["arm64"] == pytest.approx(arm_ms * share / 1e3, rel=1e-3)
    assert anchors["hash"].seconds["x86_64"] == 0.3369
    assert anchors["sort"].seconds["x86_64"] == 12.931
    assert anchors["sort"].seconds["arm64"] == 12.510
    assert anchors["resnet50"].seconds["x86_64"] == pytest.approx(0.8818 * 1024 / 1769, rel=1e-3)


def test_an_envelope_holds_all_values_in_its_80_percent_range() -> None:
    middle, deviation = envelope([0.5, 1.0, 3.0])
    assert middle * math.exp(-Z80 * deviation) == pytest.approx(0.5)
    assert middle * math.exp(Z80 * deviation) == pytest.approx(3.0)
    assert envelope([2.0]) == pytest.approx((2.0, 0.0))


@pytest.mark.parametrize("kind", KINDS)
def test_one_more_anchor_never_narrows_a_range(kind: str, tmp_path: Path) -> None:
    """Averaging would: the other anchor lies exactly in the middle."""
    anchors = load_anchors()
    middle, _ = envelope(anchors.constants(kind))  # type: ignore[arg-type]
    more = (
        f'[workloads.more]\ndescription = "x"\nwhole_s = 1.0\nspread = 0.0\n\n[anchors.more]\nkind = "{kind}"\n'
        f'seconds = {{ x86_64 = {middle} }}\nmemory_mb = 1769\nyear = 2026\npython = "3.11"\nsource = "x"\n'
        'reference = "more"\nhosts = ["more"]\n\n[anchors.pbkdf2]'
    )
    wider = edited(tmp_path, (r"\[anchors\.pbkdf2\]", more))
    assert wider.deviation(kind) == pytest.approx(anchors.deviation(kind))  # type: ignore[arg-type]


def test_anchors_that_disagree_widen_the_range(tmp_path: Path) -> None:
    apart = edited(tmp_path, (r"(\[anchors\.floats\].*?x86_64 = )[0-9.]+", r"\g<1>6.07"))
    low, high = sorted(apart.constants("interpreter"))
    middle, _ = envelope([low, high])
    assert middle * math.exp(-Z80 * apart.deviation("interpreter")) <= low * 1.0001
    assert middle * math.exp(Z80 * apart.deviation("interpreter")) >= high * 0.9999


def test_arm64_has_a_ratio_for_every_kind_and_says_where_it_is_not_measured() -> None:
    anchors = load_anchors()
    ratio, deviation = anchors.arm64("interpreter")
    assert 0.69 < ratio < 0.89
    assert deviation > 0
    _, unknown = anchors.arm64("streaming")
    assert unknown > deviation


@pytest.mark.parametrize(
    ("pattern", "replacement", "sentence"),
    [
        ("schema = 1", "schema = 2", "has schema 2, and this version reads 1"),
        ("whole_s = [0-9.]+", "whole_s = -1", r"wrong at workloads\.\w+\.whole_s"),
        ('reference = "hash"', 'reference = "sum"', "names the workloads"),
        (r"\[anchors\.add\].*?(?=\[anchors\.resnet50)", "", "no anchor is of the kind streaming"),
        ("schema = 1", "schema =", "is not TOML"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(pattern: str, replacement: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=sentence) as error:
        edited(tmp_path, (pattern, replacement))
    assert "\n" not in error.value.message
