"""Sweeps in this process and in others: equal results in order, errors, what is kept, and processes that end."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.lab.runs.sweeps.functions import interrupted_at_five, killed_at_five, noted, process, refuse_three, square

from slslab.errors import HostError, RequestError
from slslab_lab.runs.sweeps.results import Results
from slslab_lab.runs.sweeps.sweep import LOCAL, RAY, check_place, sweep

PLACES = pytest.mark.parametrize("on", [None, LOCAL])


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def silent(_done: int, _total: int) -> None:
    """Receive the progress."""


@PLACES
def test_results_are_in_order_and_progress_is_told(on: str | None) -> None:
    told: list[tuple[int, int]] = []
    assert sweep(square, range(60), on, lambda *each: told.append(each)) == [number**2 for number in range(60)]
    assert told == [(number, 60) for number in range(1, 61)]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor has no second process")
def test_processes_of_this_host_compute_and_end_with_the_sweep(tmp_path: Path) -> None:
    processes = set(sweep(partial(process, tmp_path), range(40), LOCAL, silent))
    assert os.getpid() not in processes
    assert len(processes) > 1
    assert not any(psutil.pid_exists(each) for each in processes)


@PLACES
def test_what_the_function_raises_ends_the_sweep(on: str | None) -> None:
    with pytest.raises(RequestError, match="Three is refused") as raised:
        sweep(refuse_three, range(6), on, silent)
    assert raised.value.hint == "give four."


@PLACES
def test_no_points_have_no_results(on: str | None) -> None:
    assert sweep(square, [], on, silent) == []


def computed(folder: Path) -> dict[int, int]:
    """How often each number was computed."""
    return {int(path.stem): len(path.read_text().splitlines()) for path in folder.glob("*.txt")}


def kept(function: Callable[..., Any], *inputs: str) -> Results:
    return Results(function, inputs)


@PLACES
def test_a_longer_list_computes_only_what_is_new(on: str | None, tmp_path: Path) -> None:
    function = partial(noted, tmp_path)
    assert sweep(function, range(4), on, silent, kept(function)) == [0, 1, 4, 9]
    told: list[tuple[int, int]] = []
    squares = sweep(function, range(7), on, lambda *each: told.append(each), kept(function))
    assert squares == [0, 1, 4, 9, 16, 25, 36]
    assert told == [(4, 7), (5, 7), (6, 7), (7, 7)]
    assert computed(tmp_path) == dict.fromkeys(range(7), 1)


def test_a_sweep_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    results = kept(noted, "the same inputs")
    with pytest.raises(KeyboardInterrupt):
        sweep(partial(interrupted_at_five, tmp_path), range(8), None, silent, results)
    sweep(partial(noted, tmp_path), range(8), LOCAL, silent, results)
    assert computed(tmp_path) == dict.fromkeys(range(8), 1)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="it would be this process")
def test_a_process_that_is_killed_is_one_sentence() -> None:
    with pytest.raises(HostError, match="Something killed a process of the sweep"):
        sweep(killed_at_five, range(40), LOCAL, silent)


def test_places() -> None:
    for place in (LOCAL, RAY, "ray://127.0.0.1:10001", "ray://head.cluster-1:1", "ray://[::1]:10001"):
        assert check_place(place) == place
    for wrong in ("", "dask", "ray:", "ray://", "ray://head", "ray://:1", "ray://head:port", "ray://a b:1"):
        with pytest.raises(RequestError, match="is not a place to compute"):
            check_place(wrong)
