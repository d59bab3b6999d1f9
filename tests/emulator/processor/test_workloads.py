"""The stand-alone workloads: one real run each in its smallest form, as a child process."""

import json
import subprocess
import sys
from typing import Any

import pytest

from slslab.processor import workloads
from slslab.processor.workloads import SIZES, WORKLOADS, measure


def run(*arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, workloads.__file__, *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_child_prints_seconds_and_versions() -> None:
    found, versions = run("hash", "versions", "--form", "probe", "--repeat", "2")
    assert found["name"] == "hash"
    assert len(found["cpu_s"]) == len(found["wall_s"]) == 2
    assert 0.001 < min(found["cpu_s"]) < 10
    assert versions["versions"] == workloads.versions()
    assert versions["versions"]["python"] == sys.version.split()[0]


def test_children_of_pbkdf2_count() -> None:
    """Their CPU seconds aren't part of the parent's."""
    (found,) = run("pbkdf2", "--form", "probe", "--processes", "2")
    assert found["cpu_s"][0] > 0.01


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name not in ("sort", "pbkdf2")])
def test_each_workload_can_be_repeated(name: str) -> None:
    work, scale = WORKLOADS[name](2 if name in ("loop", "floats") else 1)
    work()
    work()
    assert 0 < scale <= 1


def test_repetitions_end_in_time() -> None:
    calls: list[None] = []
    measured = measure(lambda: calls.append(None), 0.5, 10, -1.0)
    assert len(calls) == 1
    assert len(measured["cpu_s"]) == 1
    assert len(measure(lambda: None, 1.0, 3, 60.0)["wall_s"]) == 3


def test_every_workload_has_three_forms() -> None:
    assert set(SIZES) == set(WORKLOADS)
    assert all(sizes["whole"] >= sizes["short"] >= sizes["probe"] > 0 for sizes in SIZES.values())


def test_a_package_that_is_not_installed_has_no_version() -> None:
    assert workloads.version_of("no-such-package-here") == ""
