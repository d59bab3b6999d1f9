"""What `doctor` finds on this host, and what it says of worse ones. Lesser hosts are in tests/machines/unshare."""

import os
import shutil
from collections import namedtuple
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import pytest

from slslab.stack.queues import RabbitMQ
from slslab.up import doctor
from slslab.up.doctor import MISSING, OK, PARTLY, Finding, examine

Disk = namedtuple("Disk", "total used free")


def examined() -> dict[str, Finding]:
    return {finding.subject: finding for finding in examine()}


def test_everything_is_examined_once_and_what_is_not_well_has_a_hint() -> None:
    findings = examine()
    assert len({finding.subject for finding in findings}) == len(findings)
    for finding in findings:
        assert finding.state in (OK, PARTLY, MISSING)
        assert finding.found
        assert finding.state == OK or finding.hint, f"{finding.subject} is {finding.state}, and now?"


@pytest.mark.parametrize(
    ("number", "says"), [("2.13.0+cpu", "built for CPUs"), ("2.13.0", "it takes about twice the memory of a CPU build")]
)
def test_the_build_of_torch_is_told(number: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "version", lambda name: number if name == "torch" else version(name))
    assert examined()["training"].found.endswith(says)


@pytest.mark.parametrize(("per_core", "state"), [(0.5, OK), (0.51, PARTLY)])
def test_other_work_on_the_host_is_noticed(per_core: float, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    load = per_core * len(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    finding = examined()["processors"]
    assert finding.state == state
    assert f"load {load:.1f}" in finding.found


# Nine tenths of what is available are for functions.
@pytest.mark.parametrize(("available_mb", "state"), [(4552, OK), (4551, PARTLY)])
def test_memory_that_four_workers_need(available_mb: int, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    memory: Any = psutil.virtual_memory()
    lesser = memory._replace(available=available_mb * 2**20)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: lesser)
    finding = examined()["memory"]
    assert finding.state == state
    assert f"{available_mb:,} of " in finding.found


@pytest.mark.parametrize(("free", "state"), [(5 * 10**9, OK), (5 * 10**9 - 1, PARTLY)])
def test_room_for_objects(free: int, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Disk(10**12, 10**12 - free, free))
    assert examined()["S3 server"].state == state


@pytest.mark.parametrize("installed", [True, False])
def test_the_queue_is_rabbitmq_where_its_server_is_installed(installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    server = RabbitMQ(Path("start"), Path("plugins"))
    monkeypatch.setattr(RabbitMQ, "version", property(lambda _self: "RabbitMQ 4.0"))
    monkeypatch.setattr(doctor, "find_rabbitmq", lambda: server if installed else None)
    finding = examined()["RabbitMQ"]
    assert finding.state == (OK if installed else MISSING)
    assert ("lists in the tensor database" in finding.hint) is not installed


@pytest.mark.parametrize("installed", [True, False])
def test_servers_of_channels_are_named_with_what_installs_them(
    installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "find_server", lambda name: Path(name) if installed else None)
    found = examined()
    for name, package in (("Memcached", "memcached"), ("Redis", "redis-server")):
        assert found[name].state == (OK if installed else MISSING)
        assert (f"apt-get install {package}" in found[name].hint) is not installed
