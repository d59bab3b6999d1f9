"""One small real run of each architecture, recorded once and read by many tests."""

import fcntl
import json
import os
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from tests.commands import forked_environments, shared_object_store, slslab
from tests.leftovers import leftovers

from slslab.run.directory import DOCUMENT

SMALL = ("--epochs", 2, "--workers", 2, "--batches", 2, "--batch-size", 32)
# Forks hold everything that any environment imports, so functions without torch need more memory than on Lambda.
OPTIONS: dict[str, tuple[object, ...]] = {
    "gloo": ("--workers", 3),
    "gradssharding": ("--aggregator-memory", 1024),
    "kubeml": ("--job-memory", 1024),
    "mlless": ("--threshold", 0.01, "--tensor-host", "t4g.medium", "--queue-host", "mq.m5.large"),
    "spirt": ("--light-memory", 1024),
}
# Its environments make their own imports, as a user's do.
IMPORTED = "allreduce"


class RecordedRun(NamedTuple):
    """A finished run. Copy its directory before you change anything in it."""

    path: Path
    document: dict[str, Any]


class RecordedRuns:
    """Runs that all processes of a test session share; `folder` is where the command line finds them."""

    def __init__(self, shared: Path) -> None:
        self.folder = shared / "recorded-runs"
        self._making = shared / "recording"
        self.folder.mkdir(exist_ok=True)
        self._making.mkdir(exist_ok=True)

    def __getitem__(self, architecture: str) -> RecordedRun:
        """Return the run of this architecture. The first process that needs it makes it; the others wait."""
        path = self.folder / architecture
        with (self._making / f"{architecture}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                self._record(architecture).rename(path)
        return RecordedRun(path, json.loads((path / DOCUMENT).read_text()))

    @staticmethod
    def options(architecture: str) -> tuple[object, ...]:
        """Return the options of the `slslab run` that made this architecture's run."""
        return (*SMALL, *OPTIONS.get(architecture, ()))

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of commands that read these runs."""
        return {"SLSLAB_RUNS": str(self.folder), "CUDA_VISIBLE_DEVICES": ""}

    def _record(self, architecture: str) -> Path:
        shared_object_store()  # which stays
        out, before = self._making / architecture, leftovers(os.getpid())
        shutil.rmtree(out, ignore_errors=True)
        with nullcontext() if architecture == IMPORTED else forked_environments():
            plan = ("run", architecture, *self.options(architecture), "--out", out, "--json")
            done = slslab(*plan, variables={"CUDA_VISIBLE_DEVICES": ""})
        assert json.loads((out / DOCUMENT).read_text()) == done.document
        assert set(leftovers(os.getpid())) <= set(before)
        return out
