"""Shared by all test modules; the fixtures are the pytest plugin's (`slslab.testing`).

`make test` runs several files at once in several processes (pytest-xdist), because tests often wait. Tests that need
the machine for themselves are in tests/machines/host or guest and run one after the other.
"""

import gc
import json
import math
import os
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import coverage
import pytest
from hypothesis import settings

from slslab.aws.limits import lambda_limits

if TYPE_CHECKING:
    from tests.recorded_runs import RecordedRuns

# A host that is busy with other tests is no failure of an example.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# Seconds of each test file, recorded by `make test RECORD=--record-durations`.
DURATIONS = Path(__file__).with_name("durations.json")

# Where every test needs a server, and fixtures that start one. Files that start one otherwise are marked themselves.
SERVER_FOLDERS = frozenset(("architectures", "machines"))
SERVER_FIXTURES = frozenset(("emulator", "object_store", "state_machines", "recorded_runs"))


class DurationRecorder:
    """Adds up how long each file's tests take and writes that to `DURATIONS` at the end of a run.

    Files that did not run keep their duration; deleted files lose it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the duration of one phase of a test, s."""
        self._seconds[report.location[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        seconds = json.loads(DURATIONS.read_text())
        seconds |= {file: round(duration, 1) for file, duration in self._seconds.items()}
        present = {file: duration for file, duration in sorted(seconds.items()) if (self._root / file).exists()}
        DURATIONS.write_text(json.dumps(present, indent=1) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that record durations, and that choose the tests which take longest."""
    parser.addoption("--record-durations", action="store_true", help="write tests/durations.json")
    parser.addoption("--exhaustive", action="store_true", help="run the tests marked so, and no others")


def pytest_configure(config: pytest.Config) -> None:
    """Record durations in the process that receives all reports."""
    if config.option.record_durations and not hasattr(config, "workerinput"):
        config.pluginmanager.register(DurationRecorder(config.rootpath))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Save what a worker process has measured: xdist kills one that takes 10 s to end, and `make coverage` lost it."""
    if hasattr(session.config, "workerinput") and (measured := coverage.Coverage.current()) is not None:
        measured.save()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Have Python look for garbage less often, and not among modules and tests: it took a twentieth of all time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 10, 20)
        gc.enable()


@pytest.fixture(scope="session")
def emulator_settings() -> dict[str, Any]:
    """Retries within moments instead of minutes."""
    return {"limits": lambda_limits().changed(event_retry_base_s=0.01, event_throttle_s=0.01)}


@pytest.fixture(scope="session", autouse=True)
def every_run_holds() -> Iterator[None]:
    """Have `slslab check` hold of every run that a test makes."""
    from tests.commands import checked_runs  # a test of the core alone has not what the commands import

    with checked_runs():
        yield


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what this user has measured and computed before out of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def recorded_runs(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> "RecordedRuns":
    """Return one small real run of each architecture, made when a test first needs it."""
    from tests.recorded_runs import RecordedRuns

    own = tmp_path_factory.getbasetemp()
    return RecordedRuns(own.parent if hasattr(pytestconfig, "workerinput") else own)


@pytest.fixture
def real_images(tmp_path: Path) -> Path:
    """Some of the real images of each class, in a folder like the full one: 1,200 to train with, 1,200 to test."""
    images = os.environ.get("SLSLAB_CIFAR10")
    if not images:
        pytest.skip("SLSLAB_CIFAR10 names no folder of the real CIFAR-10 images")
    for part in Path(images).iterdir():
        for label in part.iterdir():
            chosen = tmp_path / "images" / part.name / label.name
            chosen.mkdir(parents=True)
            for image in sorted(label.iterdir())[:120]:
                (chosen / image.name).symlink_to(image)
    return tmp_path / "images"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that need a server: by their folder, or by the fixtures that they use, also through others."""
    folders = item.path.relative_to(Path(__file__).parent).parts
    if not SERVER_FOLDERS.isdisjoint(folders) or not SERVER_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.server)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests that are marked exhaustive, or the others. Order files by their recorded durations, longest
    first.

    So no process still works at the end while the others have nothing left to do. A new file counts as a long one.
    """
    chosen: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        chosen[(item.get_closest_marker("exhaustive") is not None) == config.option.exhaustive].append(item)
    if chosen[False]:
        config.hook.pytest_deselected(items=chosen[False])
    durations: dict[str, float] = json.loads(DURATIONS.read_text())

    def order(item: pytest.Item) -> float:
        return -durations.get(item.path.relative_to(config.rootpath).as_posix(), math.inf)

    items[:] = sorted(chosen[True], key=order)
