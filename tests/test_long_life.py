"""What results/long-life.json says of the emulator's long life, and how its slope is found."""

import importlib.util
import json
import random
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PARTS = json.loads((ROOT / "results" / "long-life.json").read_text())["parts"]


@pytest.fixture(scope="module")
def benchmark() -> Any:
    spec = importlib.util.spec_from_file_location("long_life", ROOT / "benchmarks" / "long_life.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_hundred_thousand_invocations_are_answered_and_memory_is_flat() -> None:
    part = PARTS["invocations"]
    assert (part["invocations"], part["wrong"]) == (100_000, 0)
    low, high = part["interval"]
    assert high < 100
    assert part["flat"]
    page = (ROOT / "docs" / "reliability.md").read_text()
    assert f"(95 % interval {low} to {high})" in page
    first, _, most, _ = part["after_the_first_tenth"]["descriptors"]
    assert most - first <= 200


def test_two_hundred_at_once_are_all_answered() -> None:
    assert PARTS["at-once"]["answers"] == {"answered": 200}
    assert PARTS["at-once"]["environments"] > 0


def test_a_day_of_lives_learns_the_same_bits() -> None:
    part = PARTS["day"]
    assert part["equal_bits"]
    assert part["re-invoked"]["lives"] >= 96
    assert part["uninterrupted"]["lives"] == 1
    for run in (part["re-invoked"], part["uninterrupted"]):
        assert run["holds"]
        assert run["endings"] == {"success": run["lives"]}


def test_the_interval_holds_the_slope_of_what_grows(benchmark: Any) -> None:
    """Memory that grows by 500 bytes an invocation, and memory that does not, both with noise of 100 kB."""
    for grows, flat in ((500.0, False), (0.0, True)):
        noise = random.Random(1)
        points = [(at * 1000, 9e7 + grows * at * 1000 + noise.gauss(0, 1e5)) for at in range(11, 101)]
        slope, half = benchmark.line(points)
        assert slope - half <= grows <= slope + half
        assert (slope + half < benchmark.FLAT_BYTES) is flat
