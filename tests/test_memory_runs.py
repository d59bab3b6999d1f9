"""Random runs in memory: some here and now, defects that are planted in them, and what `python -m tests.memory_runs`
found."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import memory_runs
from tests.memory_runs import PLACES, make
from tests.random_faults import ENDINGS

from slslab.lambda_.memory import MemoryMeter
from slslab_workers.allreduce.handlers import AllReduceWorker
from slslab_workers.channels.objects import ObjectChannel
from slslab_workers.driver.deployment import Deployment
from slslab_workers.training.exchange import ObjectWorker

DOCUMENT = json.loads(memory_runs.DATA.read_text())
SUMS = DOCUMENT["sums"]
ROOT = memory_runs.DATA.parents[1]
PAGE = (ROOT / "docs" / "reliability.md").read_text()
# In so many runs a planted defect must be seen.
PLANTED_SEEDS = 150
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("seeds", [60, pytest.param(200, marks=pytest.mark.exhaustive)])
def test_random_runs_end_within_their_bounds_by_name_and_hold(seeds: int, tmp_path: Path) -> None:
    sums = memory_runs.nothing()
    for seed in range(seeds):
        memory_runs.add(sums, make(seed, tmp_path))
    assert sums["wrong"] == []
    assert sums["held"] == sums["done"] + sums["failed"] == seeds
    assert min(sums["done"], sums["failed"], sums["handed_over"]) > 0
    assert sums["endings"].keys() == ENDINGS.keys()
    assert len(sums["places"]) == len(PLACES)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seed", [3, 14, 15])
def test_a_seed_decides_everything(seed: int, tmp_path: Path) -> None:
    assert make(seed, tmp_path) == make(seed, tmp_path)


def test_a_run_is_the_same_in_a_process_that_has_imported_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.memory_runs", "--seed", "0"]
    alone = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(alone.stdout) == make(0, tmp_path)


def counts_a_gradient_twice(patch: Patch) -> None:
    collect = ObjectWorker.collect

    def collected(worker: Any, *arguments: Any, **named: Any) -> Iterator[tuple[int, torch.Tensor]]:
        for rank, vector in collect(worker, *arguments, **named):
            yield rank, vector + vector if rank == 1 else vector

    patch.setattr(ObjectWorker, "collect", collected)


def takes_a_mean_twice(patch: Patch) -> None:
    wait_for = ObjectChannel.wait_for

    def waited(channel: Any, key: str, poll: Any, phase: str, *, overhead: bool = True) -> Any:
        wait_for(channel, key, poll, phase, overhead=overhead)
        return channel.get(key, phase, overhead=overhead)

    patch.setattr(ObjectChannel, "wait_for", waited)


def passes_a_barrier_early(patch: Patch) -> None:
    patch.setattr(AllReduceWorker, "get_merged", lambda _worker, _state: torch.zeros(62))


def takes_a_want_of_memory_for_a_kill(patch: Patch) -> None:
    patch.setattr(MemoryMeter, "look", lambda *_, **__: None)


def overlooks_the_failure_of_an_event(patch: Patch) -> None:
    patch.setattr(Deployment, "_raise_recorded", lambda *_: None)


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (counts_a_gradient_twice, "it learnt something else than one process"),
        (takes_a_mean_twice, "more often than the protocol says"),
        (passes_a_barrier_early, "passed the barrier"),
        (takes_a_want_of_memory_for_a_kill, "out-of-memory is reported as Runtime.ExitError"),
        (overlooks_the_failure_of_an_event, "it took"),
    ],
)
def test_a_planted_defect_is_seen(
    plant: Callable[[Patch], None], said: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    wrong = (sentence for seed in range(PLANTED_SEEDS) for sentence in make(seed, tmp_path)["wrong"])
    assert any(said in sentence for sentence in wrong)


def test_all_committed_runs_held() -> None:
    assert DOCUMENT["seeds"] == [0, memory_runs.RUNS - 1]
    assert SUMS["wrong"] == []
    assert SUMS["held"] == SUMS["done"] + SUMS["failed"] == SUMS["runs"] == memory_runs.RUNS
    assert SUMS["longest"]["share"] <= 1
    assert len(SUMS["places"]) == len(PLACES)


def test_every_death_was_recognised() -> None:
    assert {kind: list(endings) for kind, endings in SUMS["endings"].items()} == {
        kind: [ending] for kind, ending in ENDINGS.items()
    }


def test_the_page_has_the_figures() -> None:
    deaths = {kind: next(iter(endings.values())) for kind, endings in SUMS["endings"].items()}
    figures = (
        f"{SUMS['runs']:,} runs",
        f"{SUMS['done']:,} ended well",
        f"{SUMS['failed']:,} failed by name",
        f"{deaths['kill']:,} kills",
        f"{deaths['out-of-memory']:,} out of memory",
        f"{deaths['timeout']:,} time-outs",
        f"{SUMS['handed_over']:,} hand-overs",
        f"{SUMS['events']:,} events",
        f"{100 * SUMS['longest']['share']:.0f} % of its bound",
    )
    text = " ".join(PAGE.split())
    assert [figure for figure in figures if figure not in text] == []
    assert f"made on {DOCUMENT['date']}" in text
