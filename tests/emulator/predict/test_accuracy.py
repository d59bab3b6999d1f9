"""The errors that ranges are made of are the measured ones, here and in docs/replay.md."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.lab.studies.setups import todays_seconds

from slslab.errors import RequestError
from slslab.predict import accuracy
from slslab.predict.accuracy import FILE, profile_errors, replay_errors
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import load_profile
from slslab_lab.studies.catalogue import STUDIES
from slslab_lab.studies.gradssharding import BASE, PROFILE

ROOT = Path(__file__).parents[3]
PAGE, MEASURED = ROOT / "docs" / "replay.md", ROOT / "results" / "replay-error.json"


def written() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text())


def test_the_error_of_the_replay_is_the_measured_one() -> None:
    measured, stated = json.loads(MEASURED.read_text()), written()
    assert stated["date"].isoformat() == measured["date"]
    for name, figure in (("seconds", "duration"), ("billed_seconds", "billed")):
        errors = [abs(row["error"]) for row in measured["rows"] if row["figure"] == figure]
        assert stated[name] == {
            "mean": pytest.approx(sum(errors) / len(errors), abs=0.005),
            "worst": pytest.approx(max(errors), abs=0.005),
        }
    assert replay_errors() == {
        "seconds": stated["seconds"]["mean"],
        "billed_seconds": stated["billed_seconds"]["mean"],
        "cost": stated["billed_seconds"]["mean"],
    }
    assert profile_errors("") is None, "nothing tested a profile of this name"


def test_the_error_of_the_replay_is_the_pages() -> None:
    stated = written()
    seconds, billed = stated["seconds"], stated["billed_seconds"]
    assert 0 < seconds["mean"] < seconds["worst"]
    assert 0 < billed["mean"] < billed["worst"]
    said = (
        f"Mean absolute error of durations {seconds['mean']:.0%}, at worst {seconds['worst']:.0%}; of billed seconds "
        f"{billed['mean']:.0%} and {billed['worst']:.0%}."
    )
    text = " ".join(PAGE.read_text().split())
    assert said.replace("%", " %") in text
    assert f"`{stated['source']}`, {stated['date']:%-d %B %Y}" in text


def rounds(profile: str) -> dict[str, Any]:
    """GradsSharding's rounds on a profile."""
    study = STUDIES["gradssharding"]
    return study.make(study.setup(profile=profile))


def test_a_profiles_error_is_that_of_rounds_predicted_blind() -> None:
    blind = rounds(PROFILE)["comparison"]["errors"]
    # The base predicted no costs, so that its error of seconds stands for them.
    errors = {BASE: (blind[BASE], blind[BASE]), PROFILE: (blind["seconds"], blind["usd"])}
    for profile, (seconds, cost) in errors.items():
        found = profile_errors(profile)
        assert found is not None
        expected = {"seconds": seconds["mean"], "billed_seconds": cost["mean"], "cost": cost["mean"]}
        assert dict(found) == pytest.approx(expected, abs=0.001)


def test_the_default_profiles_error_is_that_of_its_own_times_for_these_rounds() -> None:
    own, base = map(rounds, (DEFAULT_PROFILE, PROFILE))
    fitted, of_base_fitted = ([row for row in one["rows"] if "fitted" in row["variant"]] for one in (own, base))
    assert fitted
    assert fitted == of_base_fitted
    stated, of_base = (profile_errors(name) for name in (DEFAULT_PROFILE, PROFILE))
    assert stated is not None
    assert of_base is not None
    measured = [float(row["cells"]["wall_seconds"]["published"]) for row in own["rows"] if row not in fitted]
    today = todays_seconds(load_profile(DEFAULT_PROFILE), own["fit"]["spread"])
    errors = [abs(ours / theirs - 1) for ours, theirs in zip(today, measured, strict=True)]
    assert stated["seconds"] == pytest.approx(sum(errors) / len(errors), abs=0.001)
    assert stated["cost"] == of_base["cost"]


def test_instances_are_billed_by_their_seconds() -> None:
    tested, of_functions = profile_errors(PROFILE, instances=True), profile_errors(PROFILE)
    assert tested is not None
    assert of_functions is not None
    for errors, expected in ((replay_errors(instances=True), replay_errors()), (tested, of_functions)):
        assert set(errors.values()) == {expected["seconds"]}


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
        replay_errors()
