"""`slslab reproduce lambdaml-fig7 | lambdaml-fig8` on the project's own losses, small ones made now, and refusals."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slslab_lab.studies.catalogue import LAMBDAML_FIGURE7
from slslab_lab.studies.lambdaml import figure7, losses

NAMES = ("lambdaml-fig7", "lambdaml-fig8")
Run = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("name", NAMES)
def test_kept_losses_are_read(name: str, slslab: Run, tmp_path: Path) -> None:
    picture = tmp_path / "figure.svg"
    code, out, err = slslab("reproduce", name, "--fidelity", "replayed", "--plot", picture, "--json")
    document = json.loads(out)
    assert (code, document["schema"], document["reproduces"], picture.exists()) == (0, 1, name, True)
    saved = tmp_path / "runs" / f"reproduce-{name}-replayed"
    assert {path.name for path in saved.iterdir()} == {f"{name}.{kind}" for kind in ("json", "csv", "html")}
    assert json.loads((saved / f"{name}.json").read_text()) == document
    assert "Orders" in (saved / f"{name}.html").read_text()
    assert "Saved: " in err


def test_small_models_are_trained_again_with_the_same_losses(
    slslab: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figure7, "PASSES", 2)
    monkeypatch.setitem(LAMBDAML_FIGURE7.effort, "sampled", 1)
    monkeypatch.setattr(losses, "SHAPES", dict.fromkeys(losses.SHAPES, losses.SHAPES["breast-cancer"]))
    outs = [tmp_path / "first", tmp_path / "second"]
    printed = [slslab("reproduce", "lambdaml-fig7", "--out", out) for out in outs]
    assert [code for code, _, _ in printed] == [0, 0]
    first, second = map(LAMBDAML_FIGURE7.read, outs)
    assert first.series == second.series
    text = printed[0][1]
    assert text.index("rounds to the loss: ") < text.index("Orders") < text.index("Rounds of communication to the loss")
    assert "training small models: 14 of 14" in printed[0][2]


def test_refusals(slslab: Run, tmp_path: Path) -> None:
    for name in NAMES:
        code, _, err = slslab("reproduce", name, "--recordings", tmp_path)
        assert (code, "--recordings needs --fidelity replayed." in err) == (2, True)
        code, _, err = slslab("reproduce", name, "--fidelity", "replayed", "--recordings", tmp_path)
        assert (code, "losses.json cannot be read" in err) == (2, True)
        code, _, err = slslab("reproduce", name, "--plot", "figure.txt")
        assert (code, ".svg" in err) == (2, True)
    code, _, err = slslab("reproduce", NAMES[0], "--accuracy", tmp_path)
    assert (code, "has no accuracy curves" in err) == (1, True)
