"""What the document of a run that failed says."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from slslab.run.bill import DEFAULT_BOOK, load_book
from slslab.run.directory import RunDirectory
from slslab.run.run import Run
from slslab_workers.architecture import RunFailed

RECORDED = Path(__file__).parents[2] / "lab" / "replay" / "traces" / "allreduce"
HOST = dict.fromkeys(("cores", "cpu_share_enforced", "own_cpu_seconds", "stack", "confinement", "package"))
PEAKED = "the last run of this plan that finished peaked at {} MB: "


@pytest.mark.parametrize(
    ("memory_mb", "peak_mb", "says"),
    [
        (512, 700, f"512 MB; {PEAKED.format(700)}try --memory 704."),
        (512, 704, f"512 MB; {PEAKED.format(704)}try --memory 768."),
        (128, None, "128 MB; try --memory 1024, the model's default."),
        (512, None, "512 MB; try --memory 1024."),
        (1769, None, "1,769 MB; try --memory 3538."),
        (512, 400, f"512 MB; {PEAKED.format(400)}try --memory 1024."),
        (6000, None, "6,000 MB; try --memory 10240."),
        (10_000, 10_235, f"10,000 MB; {PEAKED.format('10,235')}try --memory 10240."),
        (10_240, 10_235, "10,240 MB; Lambda has no larger memory size: give a smaller --batch-size."),
    ],
)
def test_what_was_killed_for_memory_is_told_the_next_size(
    memory_mb: int, peak_mb: int | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLSLAB_RUNS", str(tmp_path))
    if peak_mb is not None:
        shutil.copytree(RECORDED, tmp_path / "finished")
        path = tmp_path / "finished" / "run.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "peak_memory_mb": peak_mb}))
    recorded, failure = Run(RunDirectory(RECORDED)), RunFailed("Runtime.OutOfMemory", "signal: killed")
    run = Run(plan=replace(recorded.plan, memory_mb=memory_mb), events=recorded.events)
    document = run.describe(HOST, None, failure, 1.0, load_book(DEFAULT_BOOK))
    assert document["error"]["hint"] == f"killed at its limit of {says}"


def test_what_was_killed_on_a_platform_with_gpus_is_told_its_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLSLAB_RUNS", str(tmp_path))
    recorded = Run(RunDirectory(RECORDED))

    def hint(failure: str, memory_mb: int) -> str:
        run = Run(plan=replace(recorded.plan, platform="modal-t4", memory_mb=memory_mb), events=[], invocations=[])
        document = run.describe(HOST, None, RunFailed(failure, "why"), 1.0, load_book("modal"))
        return str(document["error"]["hint"])

    assert hint("Lambda.TooManyRequestsException", 6000) == (
        "it needs more functions at once than the platform modal-t4 allows: give fewer --workers."
    )
    assert hint("Runtime.OutOfMemory", 6000) == "killed at its limit of 6,000 MB; try --memory 8192."
    assert hint("Runtime.OutOfMemory", 8192) == (
        "killed at its limit of 8,192 MB; modal-t4 has no larger memory size: give a smaller --batch-size."
    )
    assert hint("OutOfMemoryError", 8192).startswith("the GPU has too little memory: give a smaller --batch-size")
