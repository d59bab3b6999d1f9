"""What all test modules share; the fixtures themselves are the pytest plugin's (`slslab.testing`).

`make test` runs several files at once, each in one of several processes (pytest-xdist): much of a test is waiting. What
only holds while nothing else of the suite runs (`pytest.mark.alone`) waits until it has the host to itself.
"""

import fcntl
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from slslab.limits import lambda_limits

# A host that is busy with other tests is no failure of an example.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# What takes longest begins first, so that in the end no process works on while all others have nothing left to do.
LONGEST = (
    "compose/test_stack.py",
    "slslab/environments/test_cgroup_v2.py",
    "docker/test_conformance.py",
    "docker/localstack/test_conformance.py",
    "slslab/test_cli.py",
    "architectures/test_registered.py",
    "architectures/test_mlless_drivers.py",
    "architectures/test_spirt.py",
    "slslab/test_service.py",
    "slslab/test_randomised.py",
)


@pytest.fixture(scope="session")
def emulator_settings() -> dict[str, Any]:
    """Retries within moments instead of minutes."""
    return {"limits": lambda_limits().changed(event_retry_base_s=0.01, event_throttle_s=0.01)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files, and end (each file, too) with what all others wait for; else keep the order."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (bool(item.get_closest_marker("alone")), places.get(item.path, len(places))))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Have several processes keep out of each other's way, fixtures included; no test's time-out runs meanwhile."""
    if not hasattr(item.config, "workerinput"):
        return (yield)
    shared = Path(item.config.option.basetemp).parent
    with turn(shared, alone=item.get_closest_marker("alone") is not None):
        return (yield)


@contextmanager
def turn(shared: Path, *, alone: bool) -> Iterator[None]:
    """Run beside whatever else runs, or alone: these locks are on files in a directory that all processes share."""
    with (shared / "queue").open("a") as queue, (shared / "running").open("a") as running:
        # Who wants to be alone holds up those that come later, or there might always be another one running.
        fcntl.flock(queue, fcntl.LOCK_EX)
        fcntl.flock(running, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(queue, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(running, fcntl.LOCK_UN)
