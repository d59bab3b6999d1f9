"""GradsSharding's rounds: the fit, and the predictions that were committed before they were compared."""

import math
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from tests import commands
from tests.lab.studies.setups import setup, todays_seconds

from slslab.predict.profiles.profile import load_profile
from slslab_lab.papers.paper import load_paper
from slslab_lab.studies.aggregation import INIT_S, Setting, fit_network, play_round, slowest_of, transfers
from slslab_lab.studies.gradssharding import BASE, BLIND, PROFILE, build, observations, predictions
from slslab_workers.gradssharding.topology import memory_mb

PAPER = "gradssharding-2026"
PROFILED = load_profile(PROFILE)
ADD_S_PER_GB = 0.1858
# "a round" and "cost of a round" in docs/accuracy-of-replay.md at commit f688271, eight minutes after dade1f3.
COMMITTED = {
    ("ResNet-18", "shards"): ("6.4 (3.2 to 12.7)", "0.000211"),
    ("ResNet-18", "lambda-fl"): ("11.3 (5.6 to 23.0)", "0.000258"),
    ("ResNet-18", "lifl"): ("13.3 (6.5 to 27.1)", "0.000394"),
    ("VGG-16", "shards"): ("53.6 (42.9 to 67.0)", "0.002625"),
    ("VGG-16", "lambda-fl"): ("98.5 (81.2 to 119.5)", "0.007954"),
    ("VGG-16", "lifl"): ("102.7 (84.6 to 124.6)", "0.010242"),
    ("GPT-2 Large", "shards"): ("326.3 (269.0 to 395.8)", "0.050268"),
    ("synthetic 5 GB", "shards"): ("295.7 (243.8 to 358.7)", "0.077207"),
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return build(setup("gradssharding"))


def test_the_profile_is_the_fit_to_the_measured_rounds() -> None:
    fit = fit_network(observations(load_paper(PAPER)), load_profile(BASE))
    network, operations = PROFILED.functions.network, PROFILED.channels["object"].operations
    assert network is not None
    assert network.rate_mb_s.value == pytest.approx(fit.refill_mb_s, rel=2e-3)
    assert network.burst_mb.value == pytest.approx(fit.burst_mb, rel=2e-3)
    for name in ("get", "put"):
        bandwidth = operations[name].bandwidth_mb_s
        assert bandwidth is not None
        assert bandwidth.value == pytest.approx(fit.connection_mb_s, rel=2e-3)


def test_a_fit_finds_what_rounds_were_made_with() -> None:
    """Rounds that are played on a known network, measured without error, give it back."""
    made = [
        one.__class__(one.setting, read / gets, written / puts, one.add_s_per_gb, 1.0, 0.1, one.function_s)
        for one in observations(load_paper(PAPER))
        for read, written in [one.moved]
        for gets, puts in [transfers(one.setting, PROFILED, one.add_s_per_gb)]
    ]
    fit = fit_network(made, load_profile(BASE))
    assert (fit.connection_mb_s, fit.refill_mb_s, fit.burst_mb) == pytest.approx((94.4, 55.07, 223.8), rel=0.02)


@pytest.mark.parametrize(("number", "expected"), [(1, 0.0), (2, 1 / math.sqrt(math.pi)), (5, 1.16296), (16, 1.76599)])
def test_the_expected_greatest_of_normal_numbers(number: int, expected: float) -> None:
    assert slowest_of(number) == pytest.approx(expected, abs=2e-3)


def test_a_round_has_the_requests_of_its_tree_and_its_levels_follow_each_other() -> None:
    rounds = {
        topology: play_round(Setting("any", 1_000_000, topology, 4, 1769), ADD_S_PER_GB, PROFILED)
        for topology in ("shards", "lambda-fl", "lifl")
    }
    assert {name: (one.gets, one.puts) for name, one in rounds.items()} == {
        "shards": (80, 4),
        "lambda-fl": (24, 5),
        "lifl": (30, 11),
    }
    assert rounds["shards"].wall_s == pytest.approx(rounds["shards"].slowest_s, abs=0.05)
    # Two levels of four or five objects each, and three of three.
    assert rounds["lambda-fl"].wall_s > 1.7 * rounds["lambda-fl"].slowest_s
    assert rounds["lifl"].wall_s > 2.7 * rounds["lifl"].slowest_s


def test_a_cold_round_takes_its_init() -> None:
    setting = Setting("any", 100_000_000, "shards", 8, 3008)
    warm, cold = (play_round(setting, ADD_S_PER_GB, PROFILED, cold=cold) for cold in (False, True))
    assert cold.wall_s - warm.wall_s == pytest.approx(INIT_S, abs=0.2)


def test_more_functions_than_the_concurrency_take_a_second_wave() -> None:
    assert play_round(Setting("any", 100_000_000, "shards", 16, 3008), ADD_S_PER_GB, PROFILED).wall_s == pytest.approx(
        2 * play_round(Setting("any", 50_000_000, "shards", 8, 3008), ADD_S_PER_GB, PROFILED).wall_s, rel=0.01
    )


def test_less_memory_takes_longer_where_the_processor_bounds_a_transfer() -> None:
    small, large = (
        play_round(Setting("any", 10_000_000, "shards", 4, memory_mb), ADD_S_PER_GB, PROFILED).wall_s
        for memory_mb in (472, 1769)
    )
    assert small > 1.5 * large


def test_memory_sizes_of_predicted_rounds_are_the_released_ones() -> None:
    for row in load_paper(PAPER).table(BLIND).rows:
        share = row.inputs["shards"] if row.inputs["topology"] == "shards" else 1
        largest = 4 * int(row.inputs["parameters"]) // int(share)
        assert row.inputs["memory_mb"] == memory_mb(largest, 2 if row.inputs["model"] == "ResNet-18" else 3)


def test_predictions_are_those_of_the_commit() -> None:
    assert predictions().commit.startswith("dade1f3")
    assert predictions().profile == PROFILE
    assert {
        (row.model, row.topology): (f"{row.seconds:.1f} ({row.low:.1f} to {row.high:.1f})", f"{row.usd:.6f}")
        for row in predictions().rows
    } == COMMITTED
    assert [row.shards for row in predictions().rows] == [4, 1, 1, 4, 1, 1, 4, 8]


def test_rows_are_the_fitted_and_the_predicted(document: dict[str, Any]) -> None:
    rows = document["rows"]
    assert [row["variant"] for row in rows] == ["RQ2, fitted"] * 5 + ["RQ3, predicted"] * 8
    for row in rows:
        seconds = row["cells"]["wall_seconds"]["modelled"]
        assert seconds["low"] < seconds["value"] < seconds["high"]
    fitted, predicted = rows[:5], rows[5:]
    for row, of_commit in zip(predicted, predictions().rows, strict=True):
        topology = f"shards, M = {of_commit.shards}" if of_commit.topology == "shards" else of_commit.topology
        assert (row["group"], row["name"]) == (of_commit.model, topology)
        for column, value in (
            ("wall_seconds", of_commit.seconds), ("usd", of_commit.usd), ("slowest_seconds", of_commit.slowest_seconds)
        ):  # fmt: skip
            assert row["cells"][column]["modelled"]["value"] == value
    errors = [row["cells"]["wall_seconds"]["difference"] for row in fitted]
    assert max(map(abs, errors)) < 0.15
    assert max(abs(left["error"]) for left in document["fit"]["left_out"]) < 0.2
    # That a figure agrees with what the model was fitted to says nothing.
    assert {cell["verdict"] for row in fitted for cell in row["cells"].values()} == {""}


def test_errors_of_the_predictions(document: dict[str, Any]) -> None:
    """All figures are calculated here again, from the released digits."""
    comparison = document["comparison"]
    errors = comparison["errors"]
    assert (comparison["covered"], comparison["of"], comparison["confidence"]) == (6, 8, 0.8)
    assert [row["inside"] for row in comparison["rows"]] == [True, True, True, False, True, False, True, True]
    seconds = [7.90, 10.40, 12.28, 67.25, 117.35, 126.59, 362.49, 299.44]
    usd = [0.000263, 0.000269, 0.000415, 0.003383, 0.010167, 0.012919, 0.058853, 0.084800]
    made = predictions().rows
    by_hand = {
        "seconds": [row.seconds / value - 1 for row, value in zip(made, seconds, strict=True)],
        "usd": [row.usd / value - 1 for row, value in zip(made, usd, strict=True)],
        **{
            name: [row.baselines[name] / value - 1 for row, value in zip(made, seconds, strict=True)]
            for name in ("60.7 MB/s", BASE)
        },
    }
    for name, values in by_hand.items():
        assert [row["errors"][name] for row in comparison["rows"]] == pytest.approx(values)
        sizes = [abs(value) for value in values]
        assert errors[name] == {
            "mean": pytest.approx(fmean(sizes)),
            "worst": pytest.approx(max(sizes)),
            "bias": pytest.approx(fmean(values)),
            "too_low": sum(value < 0 for value in values),
        }
    assert {name: round(100 * errors[name]["mean"], 1) for name in by_hand} == {
        "seconds": 12.8,
        "usd": 14.6,
        "60.7 MB/s": 26.7,
        BASE: 40.3,
    }
    assert (round(100 * errors["seconds"]["bias"], 1), errors["seconds"]["too_low"]) == (-8.6, 6)


def test_todays_code_is_near_the_committed_predictions(document: dict[str, Any]) -> None:
    """Replay may change; after a change of more than 10 % the published errors no longer describe it."""
    today = todays_seconds(PROFILED, document["fit"]["spread"])
    assert len(today) == 8
    assert today == pytest.approx([row.seconds for row in predictions().rows], rel=0.1)


def test_nothing_is_fitted_to_the_predicted_rounds(document: dict[str, Any]) -> None:
    """With other measurements of RQ3 the fit, RQ2's figures and the predictions stay as they are."""
    paper = load_paper(PAPER)
    table = paper.table(BLIND)
    rows = tuple(
        row.model_copy(update={"published": {name: 3 * value for name, value in row.published.items()}})
        for row in table.rows
    )
    other = paper.model_copy(update={"tables": {**paper.tables, BLIND: table.model_copy(update={"rows": rows})}})
    assert observations(other) == observations(paper)
    assert {(one.setting.model, one.setting.memory_mb) for one in observations(paper)} == {("VGG-16", 3008)}
    changed = build(setup("gradssharding", {"paper": other}))
    assert changed["fit"] == document["fit"]
    assert changed["rows"][:5] == document["rows"][:5]
    for row, before in zip(changed["rows"][5:], document["rows"][5:], strict=True):
        seconds, seconds_before = row["cells"]["wall_seconds"], before["cells"]["wall_seconds"]
        assert float(seconds["published"]) == pytest.approx(3 * float(seconds_before["published"]))
        assert seconds["modelled"] == seconds_before["modelled"]
        assert row["cells"]["usd"]["modelled"] == before["cells"]["usd"]["modelled"]
    assert changed["comparison"]["errors"]["seconds"]["too_low"] == 8


def test_answers_come_first_and_name_the_commit(document: dict[str, Any]) -> None:
    assert document["findings"][:4] == [
        "RQ3's 8 rounds were predicted on 2026-11-23 (commit dade1f3), before the comparison: their seconds are "
        "off by 12.8 % on average (at most 20.2 %), and 6 of 8 intervals of 80 % contain the measured time.",
        "6 of 8 predicted times are too low; the mean error is -8.6 %.",
        "Predicted costs are off by 14.6 % on average (at most 22.4 %); 8 of 8 are too low.",
        "Baselines: bytes ÷ 60.7 MB/s is off by 26.7 % on average (at most 51.0 %); profile aws-us-east-1 is off by "
        "40.3 % on average (at most 54.7 %).",
    ]


def test_the_command_prints_and_saves_the_comparison(tmp_path: Path) -> None:
    done = commands.slslab("reproduce", "gradssharding", "--full", "--out", "made", directory=tmp_path)
    assert done.code == 0
    lines = done.out.splitlines()
    assert "12.8 % on average" in " ".join(lines[:5])
    words = {tuple(line.split()) for line in lines}
    for row in (
        "shards, M = 4 VGG-16 RQ3, predicted 67.25 ≈53.6 (42.9 to 67.0) -20 % agrees",
        "shards, M = 4 VGG-16 RQ3, predicted 0.003383 ≈0.002625 -22 % agrees",
        "lifl ResNet-18 RQ3, predicted 12.28 ≈8.8 -28 %",
        "lifl ResNet-18 RQ3, predicted 12.28 ≈7.4 -40 %",
        "shards, M = 1 VGG-16 RQ2, fitted 181.9 ≈196.9 +8 %",
    ):
        assert tuple(row.split()) in words, row
    files = {path.suffix: path.read_text() for path in (tmp_path / "made").iterdir()}
    assert files.keys() == {".json", ".csv", ".html"}
    for text in ("67.25", "53.6 (42.9 to 67.0)", "-20 %", "6 of 8 intervals of 80 % contain the measured time"):
        assert text in files[".html"], text
    assert "RQ3, predicted" in files[".csv"]
