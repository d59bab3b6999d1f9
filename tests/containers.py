"""Whether tests of containers can run here: one place that skips them, and fails them where they must run."""

import os
import shutil
import subprocess
from typing import NoReturn

import pytest

IMAGES = tuple(f"slslab/{n}:local" for n in ("emulator", "worker", "tensordb", "localstack", "rabbitmq", "seaweedfs"))


def need_containers(*, compose: bool = False) -> None:
    """Skip without an engine, or the images, or `docker compose` if that is needed, too."""
    _need("no Docker engine answers: images/install-engine starts one", "docker", "info")
    if compose:
        _need("there is no `docker compose`: images/install-engine installs it", "docker", "compose", "version")
    _need("the images are not built: `make images` builds them", "docker", "image", "inspect", *IMAGES)


def lack(reason: str) -> NoReturn:
    """Skip; or fail, where somebody has seen to it that nothing is lacking and says so (SLSLAB_CONTAINERS=required)."""
    if os.environ.get("SLSLAB_CONTAINERS") == "required":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _need(reason: str, *command: str) -> None:
    if shutil.which(command[0]) is None or subprocess.run(command, capture_output=True).returncode:
        lack(reason)
