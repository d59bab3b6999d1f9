"""GradsSharding's rounds: the fit, what is foretold, and what a file of measurements adds."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests import commands

from slslab.papers.paper import load_paper
from slslab.replay.profiles.profile import load_profile
from slslab.reproductions.aggregation import Cost, Setting, fit_network, play_round, slowest_of, transfers
from slslab.reproductions.gradssharding import BASE, FORETOLD, PAPER, PROFILE, build, foretold_settings, observations

PROFILED = load_profile(PROFILE)
COST = Cost(1.0, 0.1858)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return build(load_paper(PAPER), PROFILED, None)


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
        one.__class__(one.setting, read / gets, written / puts, one.add_s_per_gb, 1.0, 0.1, one.function_s, 1.0, 1.0)
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
        topology: play_round(Setting("any", 1_000_000, topology, 4, 1769), COST, PROFILED)
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


def test_a_cold_round_takes_its_init_and_more_functions_than_the_concurrency_a_second_wave() -> None:
    setting = Setting("any", 100_000_000, "shards", 8, 3008)
    warm, cold = (play_round(setting, COST, PROFILED, cold=cold) for cold in (False, True))
    assert cold.wall_s - warm.wall_s == pytest.approx(1.0, abs=0.2)
    assert play_round(Setting("any", 100_000_000, "shards", 16, 3008), COST, PROFILED).wall_s == pytest.approx(
        2 * play_round(Setting("any", 50_000_000, "shards", 8, 3008), COST, PROFILED).wall_s, rel=0.01
    )


def test_less_memory_takes_longer_where_the_processor_bounds_a_transfer() -> None:
    small, large = (
        play_round(Setting("any", 10_000_000, "shards", 4, memory_mb), COST, PROFILED).wall_s
        for memory_mb in (472, 1769)
    )
    assert small > 1.5 * large


def test_memory_sizes_of_what_is_foretold_are_the_released_ones() -> None:
    sizes = {(one.model, one.topology): one.memory_mb for one in foretold_settings()}
    assert sizes == {
        ("ResNet-18", "shards"): 472,
        ("ResNet-18", "lambda-fl"): 536,
        ("ResNet-18", "lifl"): 536,
        ("VGG-16", "shards"): 835,
        ("VGG-16", "lambda-fl"): 1987,
        ("VGG-16", "lifl"): 1987,
        ("GPT-2 Large", "shards"): 2665,
        ("synthetic 5 GB", "shards"): 2370,
    }


def test_rows_are_those_measured_and_those_foretold(document: dict[str, Any]) -> None:
    rows = document["rows"]
    assert [row["experiment"] for row in rows] == ["RQ2"] * 5 + ["RQ3"] * 8
    for row in rows:
        seconds = row["wall_seconds"]
        assert seconds["low"] < seconds["modelled"] < seconds["high"]
        assert (seconds["measured"] is None) == (row["experiment"] == "RQ3")
        assert row["usd"] > 0
        assert len(row["baselines"]) == 2
    fitted = [row["wall_seconds"] for row in rows[:5]]
    assert max(abs(seconds["modelled"] / seconds["measured"] - 1) for seconds in fitted) < 0.15
    assert max(abs(left["error"]) for left in document["fit"]["left_out"]) < 0.2
    assert document["comparison"] is None


def test_measurements_add_errors_of_the_model_and_the_baselines(tmp_path: Path, document: dict[str, Any]) -> None:
    """What is printed is also what is read; a number alone is enough."""
    foretold = [row for row in document["rows"] if row["experiment"] == "RQ3"][:2]
    first, second = ({name: row[name] for name in ("model", "topology", "shards")} for row in foretold)
    path = tmp_path / "rq3.json"
    seconds = [row["wall_seconds"]["modelled"] for row in foretold]
    rows = [first | {"wall_seconds": {"measured": seconds[0] / 1.1}}, second | {"wall_seconds": seconds[1] / 9}]
    path.write_text(json.dumps({"schema": 1, "rows": rows}))
    comparison = build(load_paper(PAPER), PROFILED, path)["comparison"]
    assert [row["errors"]["modelled"] for row in comparison["rows"]] == pytest.approx([0.1, 8])
    assert (comparison["mean"]["modelled"], comparison["worst"]["modelled"]) == pytest.approx((4.05, 8))
    assert (comparison["covered"], comparison["of"]) == (1, 2)
    assert set(comparison["mean"]) == {"modelled", "60.7 MB/s", BASE}


def rows_of(*ends: str) -> str:
    """A file with rows of VGG-16 in shards that end so."""
    rows = ", ".join('{"model": "VGG-16", "topology": "shards", ' + end + "}" for end in ends)
    return '{"schema": 1, "rows": [' + rows + "]}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "has no entries"),
        ("{", "is not JSON"),
        ('{"schema": 2, "rows": []}', "schema"),
        (
            '{"schema": 1, "rows": [{"model": "VGG-16", "topology": "shards", "shards": 5, "wall_seconds": 1}]}',
            "foretold",
        ),
        (
            '{"schema": 1, "rows": [{"model": "VGG-16", "topology": "shards", "shards": 4, "wall_seconds": 0}]}',
            "wall_seconds",
        ),
        ('{"schema": 1, "rows": [{"model": "VGG-16", "topology": "shards", "shards": 4}]}', "wall_seconds"),
    ],
)
def test_measurements_that_are_none_are_a_wrong_request(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "rq3.json").write_text(text)
    done = commands.slslab("reproduce", "gradssharding", "--measured", "rq3.json", directory=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert "Hint: " in done.err


def test_the_command_prints_and_saves_the_rows(tmp_path: Path) -> None:
    done = commands.slslab("reproduce", "gradssharding", "--out", "made", "--json", directory=tmp_path)
    assert [(row["model"], row["topology"], row["shards"]) for row in done.document["rows"][5:]] == [
        *FORETOLD[:1], *FORETOLD[4:6], FORETOLD[1], *FORETOLD[6:], *FORETOLD[2:4]
    ]  # fmt: skip
    assert {path.suffix for path in (tmp_path / "made").iterdir()} == {".json", ".csv", ".html"}
