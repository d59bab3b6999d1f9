"""The error that stands beside modelled figures is the measured one, here and in docs/replay.md."""

import json
import math
import tomllib
from pathlib import Path

import pytest

from slslab.errors import RequestError
from slslab.papers.paper import load_paper
from slslab.replay import accuracy
from slslab.replay.accuracy import FILE, stated_error
from slslab.replay.profiles import DEFAULT_PROFILE
from slslab.replay.profiles.profile import load_profile
from slslab.reproductions.gradssharding import BASE, PAPER, PROFILE, build

ROOT = Path(__file__).parents[3]
PAGE, MEASURED = ROOT / "docs" / "replay.md", ROOT / "results" / "replay-error.json"


def test_the_stated_error_is_the_measured_one() -> None:
    measured, found = json.loads(MEASURED.read_text()), stated_error("", instances=False)
    assert found["date"] == measured["date"]
    for stated, figure in (("seconds", "duration"), ("billed_seconds", "billed")):
        errors = [abs(row["error"]) for row in measured["rows"] if row["figure"] == figure]
        assert found[stated] == {
            "mean": pytest.approx(sum(errors) / len(errors), abs=0.005),
            "worst": pytest.approx(max(errors), abs=0.005),
        }


def test_the_stated_error_is_the_pages() -> None:
    found = stated_error("", instances=False)
    seconds, billed = found["seconds"], found["billed_seconds"]
    assert 0 < seconds["mean"] < seconds["worst"]
    assert 0 < billed["mean"] < billed["worst"]
    said = (
        f"Mean absolute error of durations {seconds['mean']:.0%}, at worst {seconds['worst']:.0%}; of billed seconds "
        f"{billed['mean']:.0%} and {billed['worst']:.0%}."
    )
    text = " ".join(PAGE.read_text().split())
    assert said.replace("%", " %") in text
    written = tomllib.loads(FILE.read_text())
    assert f"`{written['source']}`, {written['date']:%-d %B %Y}" in text
    assert found["date"] == written["date"].isoformat()


def test_a_profiles_error_is_that_of_rounds_predicted_blind() -> None:
    blind = build(load_paper(PAPER), load_profile(PROFILE))["comparison"]["errors"]
    # The base predicted no costs, so that its error of seconds stands for them.
    errors = {BASE: (blind[BASE], blind[BASE]), PROFILE: (blind["seconds"], blind["usd"])}
    replay = stated_error("", instances=False)
    for profile, of_profile in errors.items():
        found = stated_error(profile, instances=False)
        for figure, error in zip(("seconds", "billed_seconds"), of_profile, strict=True):
            for name in ("mean", "worst"):
                assert found[figure][name] == pytest.approx(math.hypot(replay[figure][name], error[name]), abs=0.001)


def test_the_default_profile_has_the_error_of_its_base_since_it_takes_nearly_as_long_for_these_rounds() -> None:
    paper = load_paper(PAPER)
    own, base = (build(paper, load_profile(name)) for name in (DEFAULT_PROFILE, PROFILE))
    assert [row for row in own["rows"] if row["experiment"] == "RQ2"] == [
        row for row in base["rows"] if row["experiment"] == "RQ2"
    ]
    today = own["comparison"]["errors"]["today"]
    assert (today["mean"], today["worst"]) == pytest.approx((0.117, 0.239), abs=0.001)
    assert stated_error(DEFAULT_PROFILE, instances=False) == stated_error(PROFILE, instances=False)


def test_instances_are_billed_by_their_seconds() -> None:
    for profile in ("", PROFILE):
        found = stated_error(profile, instances=True)
        assert found["billed_seconds"] == found["seconds"] == stated_error(profile, instances=False)["seconds"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("schema = 1", "schema = 2", "has schema 2, and this version reads 1"),
        ("mean = 0.05", "mean = -0.05", "is wrong at seconds.mean"),
        ("worst = 0.12", "", "is wrong at billed_seconds.worst"),
        ("[seconds]", "[second]", "is wrong at second"),
    ],
)
def test_a_file_that_is_wrong_is_named(
    old: str, new: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = FILE.read_text()
    assert old in text
    path = tmp_path / "accuracy.toml"
    path.write_text(text.replace(old, new))
    monkeypatch.setattr(accuracy, "FILE", path)
    with pytest.raises(RequestError, match=says):
        stated_error("", instances=False)
