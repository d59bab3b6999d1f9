"""Pictures: charts of pages with what a page gives them, as files."""

from pathlib import Path

import pytest
from tests.lab.pages.reproduced import reproduction

from slslab.errors import RequestError
from slslab_lab.pages.pictures import draw_model, draw_reproduction


def test_a_picture_has_the_charts_of_the_page_with_their_colours_and_legends(tmp_path: Path) -> None:
    document = reproduction()
    first, second = tmp_path / "first.svg", tmp_path / "second.svg"
    for picture in (first, second):
        draw_reproduction(document, picture)
    text = first.read_text()
    assert text == second.read_text()
    assert "var(" not in text
    assert "#cc79a7" in text, "the colour of SPIRT on light pages"
    assert f">{document['curves'][0]['title']}</text>" in text
    draw_reproduction({**document, "curves": []}, first)
    for told in ("published", "measured", "modelled"):
        assert f">{told}</text>" in first.read_text(), "the points of columns"


def test_figures_that_are_not_known_are_left_out(tmp_path: Path) -> None:
    def seconds(value: float) -> dict[str, dict[str, float]]:
        return {"seconds": {"value": value}}

    row = {"workers": 2, "model": seconds(1.0), "closed_form": seconds(2.0), "replay": None, "measured": None}
    document = {"run": "r", "profile": {"name": "p"}, "rows": [row]}
    draw_model(document, tmp_path / "model.svg")
    text = (tmp_path / "model.svg").read_text()
    assert [f">{name}</text>" in text for name in ("2 workers", "closed form", "replay")] == [True, True, False]


def test_a_picture_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot be written"):
        draw_reproduction(reproduction(), tmp_path / "none" / "picture.svg")
