"""An engine that is slow or away, and ends that come while a container starts: nothing stays behind."""

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
from botocore.exceptions import ClientError

from slslab.aws.limits import lambda_limits
from slslab.errors import HostError
from slslab.host import containers as container_module
from slslab.host.containers import GATE, SHARED, Container, ContainerAccounts, Containers
from slslab.host.docker_engine import MARK_LABEL, Engine
from slslab.host.session import Session
from slslab.lambda_.container_sandbox import ContainerSandboxes
from slslab.lambda_.emulator import Emulator
from slslab.testing import ROLE, create_function

HANDLER = "def handler(event, context):\n    return event\n"


@pytest.fixture
def session(emulator_settings: dict[str, Any]) -> Iterator[Session]:  # noqa: ARG001
    with Session() as made:
        yield made


def descriptors() -> Counter[str]:
    """Count open descriptors, except connections to the engine, which are kept.

    Tests compare by subtraction: environments of earlier tests end in the same process meanwhile.
    """
    found: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # that of the listing itself
            found[os.readlink(f"/proc/self/fd/{number}")] += 1
    return Counter({name: count for name, count in found.items() if not name.startswith("socket:")})


def marked(mark: str) -> list[str]:
    engine = Engine()
    try:
        found = engine.api.containers(all=True, filters={"label": f"{MARK_LABEL}={mark}"})
        return [one["State"] for one in found]
    finally:
        engine.close()


def container(containers: Containers, home: Path, *command: str) -> Container:
    """A container of the worker's image with a command of its own."""

    def configure(shared: Path) -> dict[str, Any]:
        api = containers.engine.api
        host = api.create_host_config(binds=[f"{containers.engine.host_path(shared)}:{SHARED}:ro"], init=True)
        entry = [*GATE, "/dev/null"]
        made: dict[str, Any] = api.create_container_config(
            containers.image, list(command), entrypoint=entry, host_config=host, labels=containers.labels
        )
        return made

    home.mkdir(exist_ok=True)
    return Container(containers, home, {}, configure, lambda _chunk: None, lambda _chunk: None)


def away(*_arguments: Any, **_more: Any) -> Any:
    raise requests.exceptions.ConnectionError("the engine is away")


def test_a_container_whose_home_goes_while_it_starts_is_removed(session: Session, tmp_path: Path) -> None:
    """Its function was deleted meanwhile. Who notices it, and when, differs."""
    with Containers(session) as containers:
        start = containers.engine.api.start

        def starting(id_: str) -> None:
            start(id_)
            for path in (tmp_path / "home").glob("shared-*/*"):
                path.unlink()

        containers.engine.api.start = starting

        async def go() -> None:
            before = descriptors()
            with pytest.raises(OSError, match=r"No such file|ended at once"):
                await container(containers, tmp_path / "home", "sleep", "600").start()
            assert descriptors() - before == Counter()

        asyncio.run(go())
        assert marked(session.id) == []


def test_a_container_that_is_made_while_the_emulator_ends_is_removed(session: Session, tmp_path: Path) -> None:
    with Containers(session) as containers:
        create, asked = containers.engine.api.create_container_from_config, threading.Event()

        def creating(configuration: Any) -> Any:
            asked.set()
            time.sleep(1)
            return create(configuration)

        containers.engine.api.create_container_from_config = creating

        async def go() -> None:
            task = asyncio.ensure_future(container(containers, tmp_path / "home", "sleep", "600").start())
            await asyncio.to_thread(asked.wait)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

        asyncio.run(go())
    assert marked(session.id) == []


@pytest.mark.parametrize("lost", ["wait", "inspect_container"])
def test_a_container_ends_also_for_an_emulator_whose_engine_goes_away(
    lost: str, session: Session, tmp_path: Path
) -> None:
    with Containers(session) as containers:

        async def go() -> int:
            one = container(containers, tmp_path / "home", "sleep", "0.5")
            await one.start()
            setattr(containers.engine.api, lost, away)
            code = await asyncio.wait_for(one.exited, 30)
            await one.end()
            await one.close()
            return code

        assert asyncio.run(go()) < 0


def test_what_cannot_be_removed_now_is_closed_and_removed_in_the_end(session: Session, tmp_path: Path) -> None:
    with Containers(session) as containers:
        remove_container = containers.engine.api.remove_container

        async def go() -> None:
            before = descriptors()
            one = container(containers, tmp_path / "home", "sleep", "600")
            await one.start()
            containers.engine.api.remove_container = away
            try:
                with pytest.raises(OSError, match="away"):
                    await one.end()
            finally:
                containers.engine.api.remove_container = remove_container
            await one.close()
            assert descriptors() - before == Counter()
            assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []

        asyncio.run(go())
        assert marked(session.id) == ["running"]
    assert marked(session.id) == []


def test_an_environment_that_could_not_be_paused_is_of_use_and_ends(
    emulator_settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Emulator(**emulator_settings) as emulator:
        client = emulator.client("lambda")
        create_function(client, "f", HANDLER)
        assert emulator.containers is not None
        paused = threading.Event()

        def pausing(_id: str) -> None:
            paused.set()
            away()

        monkeypatch.setattr(emulator.containers.engine.api, "pause", pausing)
        for number in range(2):
            answer = client.invoke(FunctionName="f", Payload=str(number).encode())
            assert answer["Payload"].read() == str(number).encode()
            assert paused.wait(30)
            paused.clear()
        client.delete_function(FunctionName="f")
        emulator.wait_for(emulator.service.pool.end())
        assert marked(emulator.id) == []
        client.close()


def test_what_the_engine_takes_to_tell_of_an_end_is_not_the_functions(
    emulator_settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Emulator(**emulator_settings) as emulator:
        client = emulator.client("lambda")
        create_function(client, "f", "import os\n\ndef handler(event, context):\n    os._exit(3)\n", Timeout=1)
        assert emulator.containers is not None
        wait = emulator.containers.engine.api.wait

        def waiting(container: str) -> Any:
            time.sleep(2)
            return wait(container)

        monkeypatch.setattr(emulator.containers.engine.api, "wait", waiting)
        answer = client.invoke(FunctionName="f", Payload=b"1")
        assert b"exit status 3" in answer["Payload"].read()
        assert emulator.records[0].duration_ms < 900
        assert emulator.records[0].host_delay_ms < 1900
        client.close()


def test_sandboxes_that_cannot_be_had_leave_no_connection(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Engine] = []
    close = Engine.close

    def closing(engine: Engine) -> None:
        closed.append(engine)
        close(engine)

    def refuse(_engine: Engine) -> str:
        raise HostError("The network is none.", "name one.")

    monkeypatch.setattr(Engine, "close", closing)
    monkeypatch.setattr(Engine, "address", refuse)
    with pytest.raises(HostError, match="The network is none"), ContainerSandboxes(session, lambda_limits()):
        pass
    assert len(closed) == 1


def test_an_engine_that_fails_at_first_is_told(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("docker.APIClient.containers", away)
    with pytest.raises(HostError, match="the engine is away"), Containers(session):
        pass


def test_a_group_that_was_gone_before_it_was_read_used_nothing(tmp_path: Path) -> None:
    accounts = ContainerAccounts(2, {"memory": tmp_path / "gone", "cpu": tmp_path / "gone"})
    assert (accounts.cpu_ns(), accounts.throttled_ns(), accounts.peak_bytes()) == (0, 0, 0)
    accounts.keep()


def test_a_group_is_found_from_another_namespace_while_others_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There its path leads out of the mount (`/../docker-ID.scope`)."""
    for number in range(20):  # whatever the order in which they are looked at
        (tmp_path / f"{number}-gone.slice").mkdir()
    group = tmp_path / "system.slice" / "docker-abc123.scope"
    group.mkdir(parents=True)
    (group / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    monkeypatch.setattr(container_module, "cgroups_of", lambda _pid: {"": "/../docker-abc123.scope"})
    monkeypatch.setattr(container_module, "cgroup_mounts", lambda: iter([(tmp_path, {"cgroup2"})]))
    scandir = os.scandir

    def scanning(path: Any) -> Any:
        if str(path).endswith("gone.slice"):
            raise FileNotFoundError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scanning)
    accounts = container_module.container_accounts(1, "abc123")
    assert (accounts.version, accounts.paths) == (2, dict.fromkeys(("cpu", "memory", "pids"), group))


def test_in_the_hosts_network_the_runtime_api_is_on_loopback(session: Session) -> None:
    with Containers(session) as containers:
        containers.engine.own = {"NetworkSettings": {"Networks": {"host": {"IPAddress": ""}}}}
        assert (containers.engine.network(), containers.engine.address()) == ("host", "127.0.0.1")


def test_code_that_no_other_container_can_see_is_told(
    emulator_settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app.py").write_text(HANDLER)
    host_path = Engine.host_path

    def visible(engine: Engine, path: Path) -> str:
        if path == tmp_path:
            raise HostError("It lies in the emulator's own container.", "mount a volume there.")
        return host_path(engine, path)

    tmp_path.chmod(0o755)
    monkeypatch.setattr(Engine, "host_path", visible)
    with Emulator(**emulator_settings, code_roots=[tmp_path]) as emulator:
        client = emulator.client("lambda")
        client.create_function(
            FunctionName="f",
            Runtime="python3.11",
            Handler="app.handler",
            Role=ROLE,
            Code={"S3Bucket": "hot-reload", "S3Key": str(tmp_path)},
        )
        with pytest.raises(ClientError, match="could not start: It lies in the emulator's own container"):
            client.invoke(FunctionName="f", Payload=b"1")
        client.close()
