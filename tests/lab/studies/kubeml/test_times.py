"""KubeML's times by merges: how many merges there are, the fitted constant, and whether times follow them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests import commands
from tests.lab.studies.setups import setup

from slslab.predict.profiles.profile import Profile
from slslab.run.metrics import grouped
from slslab_lab.studies.kubeml import times
from slslab_lab.studies.kubeml.times import (
    FUNCTIONS,
    MODEL_MB,
    SAMPLES,
    Setting,
    build,
    fit,
    merging,
    merging_seconds,
    settings_of,
    slopes,
    straightness,
    with_rate,
)
from slslab_workers.kubeml.shares import ALL, Epoch

SETUP = setup("kubeml-times")
PROFILED, SETTINGS = SETUP.profile, settings_of(SETUP.paper)


@pytest.fixture(scope="module", autouse=True)
def played() -> Iterator[Callable[[float], list[float]]]:
    """Play the merges of the paper's settings once, and not for every document."""
    merged = merging(SETTINGS, PROFILED)

    def known(settings: Sequence[Setting], profile: Profile) -> Callable[[float], list[float]]:
        assert (settings, profile) == (SETTINGS, PROFILED)
        return merged

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(times, "merging", known)
        yield merged


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return build(SETUP)


@pytest.mark.parametrize(
    ("functions", "batch_size", "k", "rounds"),
    [(4, 128, 8, 13), (2, 32, 8, 98), (4, 32, 8, 49), (2, 256, 32, 4), (1, 64, 1, 782), (8, 64, ALL, 1)],
)
def test_merge_rounds_of_an_epoch(functions: int, batch_size: int, k: int, rounds: int) -> None:
    assert len(Epoch(functions, SAMPLES, batch_size, k).rounds) == rounds


def test_a_round_takes_what_its_longest_chain_of_tensors_moves() -> None:
    """Four functions: each gets and stores a model, the job gets four and stores one; the rest is latency."""
    slow, fast = (with_rate(PROFILED, rate) for rate in (10.0, 20.0))
    epoch = Epoch(4, 4 * 64 * 10, 64, 1)
    more = (merging_seconds(epoch, slow) - merging_seconds(epoch, fast)) / 10
    # At these rates clients are slower than the database's thread.
    assert more == pytest.approx((1 + 1 + 4 + 1) * MODEL_MB * (1 / 10 - 1 / 20), rel=0.01)


def test_what_was_made_with_a_rate_gives_it_back(played: Callable[[float], list[float]]) -> None:
    known = [setting.epochs * (5 + seconds) for setting, seconds in zip(SETTINGS, played(300.0), strict=True)]
    made = [replace(setting, seconds=value) for setting, value in zip(SETTINGS, known, strict=True)]
    rate_mb_s, seconds = fit(made, played)
    assert rate_mb_s == pytest.approx(300, rel=1e-3)
    assert seconds == pytest.approx(known, rel=1e-4)


def test_modelled_times_are_linear_in_the_merges(document: dict[str, Any]) -> None:
    assert min(value for size, value in document["lines"]["modelled"].items() if size != "all") > 0.995
    published, modelled = document["slopes"]["published"], document["slopes"]["modelled"]
    # As protocols' reference has them.
    assert (min(published), max(published), sum(published) / 8) == pytest.approx((1.917, 2.24, 2.039), abs=2e-3)
    assert sum(modelled) / 8 == pytest.approx(2.04, rel=0.1)
    errors = document["fit"]["errors"]
    assert len(errors["fitted"]) == len(errors["left_out"]) == 12
    assert max(map(abs, errors["left_out"])) < 0.05


def test_rows_from_which_figures_come_are_not_compared(document: dict[str, Any]) -> None:
    cells = grouped((row["variant"], row["cells"]) for row in document["rows"])
    assert [len(each) for each in cells.values()] == [12, 4]
    assert all(cell["seconds"]["modelled"] for cell in cells["modelled"])
    assert not any(cell["seconds"]["modelled"] for cell in cells["given"])


def test_straight_lines_and_slopes_by_hand() -> None:
    seconds = [3.0 * setting.epochs * setting.merges + 7 for setting in SETTINGS]
    assert straightness(SETTINGS, seconds) == pytest.approx(1)
    assert slopes(SETTINGS, seconds) == pytest.approx([3.0] * 8)
    assert {one.functions for one in SETTINGS[0].of_functions()} == set(FUNCTIONS)


def test_the_command_answers_first_and_saves_a_page(tmp_path: Any) -> None:
    done = commands.slslab("reproduce", "kubeml-times", "--out", str(tmp_path))
    assert done.code == 0
    first = " ".join(done.out.split())
    assert first.index("Modelled times are linear") < first.index("30 epochs of ResNet34 on CIFAR-10, s")
    assert "12 of 12 published numbers agree" in first
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".csv", ".html"}
