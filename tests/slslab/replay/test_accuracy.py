"""The error that stands beside modelled figures: that of docs/replay.md, from one file."""

import tomllib
from pathlib import Path

import pytest

from slslab.errors import RequestError
from slslab.replay import accuracy
from slslab.replay.accuracy import FILE, stated_error

PAGE = Path(__file__).parents[3] / "docs" / "replay.md"


def test_the_stated_error_is_the_pages() -> None:
    found = stated_error(instances=False)
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


def test_instances_are_billed_by_their_seconds() -> None:
    found = stated_error(instances=True)
    assert found["billed_seconds"] == found["seconds"] == stated_error(instances=False)["seconds"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("schema = 1", "schema = 2", "has schema 2, and this version reads 1"),
        ("mean = 0.13", "mean = -0.13", "is wrong at seconds.mean"),
        ("worst = 0.20", "", "is wrong at billed_seconds.worst"),
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
        stated_error(instances=False)
