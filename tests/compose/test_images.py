"""The images that `make images` builds: what is in them, and that it runs as the compose files and AWS run it."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest
import redis

from slslab.tensordb.__main__ import UNITS

WORKER, TENSORDB, EMULATOR = "slslab/worker:local", "slslab/tensordb:local", "slslab/emulator:local"
MOST_WORKER_BYTES = 1_300_000_000


def docker(*words: str) -> str:
    """What a docker command printed; fails the test if it fails."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module", autouse=True)
def images() -> None:
    """Skipped with one line where there are none."""
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode:
        pytest.skip("no Docker engine answers: images/install-engine starts one")
    missing = subprocess.run(["docker", "image", "inspect", WORKER, TENSORDB, EMULATOR], capture_output=True).returncode
    if missing:
        pytest.skip("the images are not built: `make images` builds them")
