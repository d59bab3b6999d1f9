"""The compose files: each Compose that is here reads every combination of them, and they keep to their own rules."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.containers import lack

ROOT = Path(__file__).parents[3]
MAIN = "docker-compose.yml"
OVERRIDES = ("compose/seaweedfs.yml", "compose/gpu.yml", "compose/offline.yml")
COMBINATIONS = ((), *((one,) for one in OVERRIDES), OVERRIDES[:2], OVERRIDES[1:])
# What may talk to the engine.
ENGINE = {"emulator", "socket-proxy"}


def versions() -> dict[str, list[str]]:
    """The commands of all Composes here, by their versions; SLSLAB_COMPOSE names further ones, apart by colons."""
    further = [[path] for path in os.environ.get("SLSLAB_COMPOSE", "").split(":") if path]
    found = {}
    for command in (["docker", "compose"], ["docker-compose"], *further):
        if shutil.which(command[0]) is None:
            continue
        done = subprocess.run([*command, "version", "--short"], capture_output=True, text=True)
        if done.returncode == 0:
            found[done.stdout.strip()] = command
    return found


COMPOSES = versions()


def services(file: str) -> dict[str, Any]:
    """A file's services as they are written."""
    read: dict[str, Any] = yaml.safe_load((ROOT / file).read_text())["services"]
    assert read, f"{file} has no services"
    return read


@pytest.mark.parametrize("version", COMPOSES or [None])
@pytest.mark.parametrize(
    "overrides", COMBINATIONS, ids=lambda files: "+".join(Path(file).stem for file in files) or "main"
)
def test_every_compose_reads_every_combination(version: str | None, overrides: tuple[str, ...], tmp_path: Path) -> None:
    if version is None:
        lack("no Compose is installed: images/install-engine installs one")
    files = [word for file in (MAIN, *overrides) for word in ("-f", str(ROOT / file))]
    # From elsewhere: paths are relative to the first file, whoever calls from wherever.
    command = [*COMPOSES[version], *files, "config"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rendered = yaml.safe_load(done.stdout)["services"]
    assert set(rendered) >= {"emulator", "localstack", "tensors", "rabbitmq", "minio", "buckets"}
    if OVERRIDES[2] in overrides:
        started = {name: one for name, one in rendered.items() if "profiles" not in one}
        assert [name for name, one in started.items() if not one["image"].startswith("slslab/")] == []
        assert rendered["minio"]["command"] == services(OVERRIDES[0])["minio"]["command"]


@pytest.mark.parametrize("file", [MAIN, *OVERRIDES])
def test_nothing_is_privileged_and_the_engine_is_for_the_emulator_alone(file: str) -> None:
    for name, service in services(file).items():
        assert not {"privileged", "cap_add", "devices"} & set(service), name
        assert name in ENGINE or "docker.sock" not in yaml.safe_dump(service), name


def test_every_port_is_on_loopback_and_memory_is_limited_without_swap() -> None:
    for name, service in services(MAIN).items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        # The worker is an image: who runs it limits it.
        if name != "worker":
            assert service["mem_limit"] == service["memswap_limit"], name


def test_every_dependency_is_on_health_or_success() -> None:
    all_services = services(MAIN)
    conditions = set()
    for name, service in all_services.items():
        for other, how in service.get("depends_on", {}).items():
            conditions.add(how["condition"])
            assert how["condition"] != "service_healthy" or "healthcheck" in all_services[other], f"{name} on {other}"
    assert conditions == {"service_healthy", "service_completed_successfully"}
