"""Instances through the control API: wrong requests, and launches during which the recording ends."""

import base64
import io
import json
import socket
import threading
import time
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

from slslab.aws.keys import Keyring, Pair
from slslab.compose import client
from slslab.compose import recording as recording_module
from slslab.compose.client import RemoteEmulator, RemoteRecording
from slslab.compose.control import Control
from slslab.compose.network import Network
from slslab.host.docker_engine import MARK_LABEL
from slslab.lambda_.emulator import Emulator

MODULE = "import time\ntime.sleep(600)\n"
KEYS = Keyring(Pair(*client.DEFAULT_PAIR.values()), temporary=False)
NETWORK = {
    **KEYS.owner.variables(),
    "SLSLAB_LISTEN": "127.0.0.1:0",
    "SLSLAB_WORKER_IMAGE": "slslab/worker:local",
    "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
    "AWS_ENDPOINT_URL_SFN": "http://127.0.0.1:9",
    "SLSLAB_QUEUE_URL": "redis://127.0.0.1:9",
    "SLSLAB_TENSORS": "redis://nowhere.invalid:9",
}


def ignore(_record: object) -> None:
    """Take a record of a recording that is not looked at."""


@pytest.fixture(scope="module")
def control(emulator_settings: dict[str, Any]) -> Iterator[Control]:
    """The control API of an emulator; nothing else of the stack is there."""
    emulator = Emulator(**emulator_settings, keys=KEYS)
    control = Control(emulator, Network.from_variables(NETWORK))
    emulator.add_routes(control.routes())
    with emulator:
        yield control


@pytest.fixture
def composed(control: Control) -> Emulator:
    return control._emulator


@pytest.fixture
def recording(composed: Emulator) -> Iterator[RemoteRecording]:
    with RemoteEmulator(composed.endpoint).record("run", ignore) as begun:
        yield begun


def archive(name: str = "trainer.py") -> str:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as package:
        package.writestr(name, MODULE)
    return base64.b64encode(buffer.getvalue()).decode()


def wanted(**changed: Any) -> dict[str, Any]:
    fleet = {"instance_type": "g4dn.xlarge", "device": "cpu"}
    return {"module": "trainer", "code": archive(), "events": [{}], "variables": {}, "fleet": fleet} | changed


def launch(composed: Emulator, recording: RemoteRecording, body: Any) -> tuple[int, dict[str, Any]]:
    status, answer = RemoteEmulator(composed.endpoint).ask("POST", f"{recording.path}/instances", body)
    return status, json.loads(answer)


def end(composed: Emulator, recording: RemoteRecording) -> None:
    assert RemoteEmulator(composed.endpoint).ask("DELETE", f"{recording.path}/instances")[0] == 200


def containers(composed: Emulator) -> list[Any]:
    assert composed.containers is not None
    filters = {"label": f"{MARK_LABEL}={composed.id}"}
    found: list[Any] = composed.containers.engine.api.containers(all=True, filters=filters)
    return found


def test_code_that_is_no_archive_leaves_nothing(composed: Emulator, recording: RemoteRecording) -> None:
    status, answer = launch(composed, recording, wanted(code=base64.b64encode(b"text").decode()))
    assert (status, "not a zip archive" in answer["message"]) == (409, True), answer
    assert list((composed.home / "instances").glob("*")) == []


def test_a_recording_may_launch_again_when_its_instances_have_ended(
    composed: Emulator, recording: RemoteRecording
) -> None:
    for _ in range(2):
        # Whatever an archive calls its files, they lie in the directory of this launch.
        status, answer = launch(composed, recording, wanted(code=archive("../../trainer.py")))
        assert (status, answer) == (200, {"devices": ["cpu"]})
        assert not (composed.home / "trainer.py").exists()
        assert launch(composed, recording, wanted())[0] == 409
        end(composed, recording)
        assert containers(composed) == []
        assert list((composed.home / "instances").iterdir()) == []


def test_a_launch_that_fails_half_way_leaves_nothing_and_may_be_repeated(
    composed: Emulator, recording: RemoteRecording, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert composed.containers is not None
    api = composed.containers.engine.api
    start, started = api.start, []

    def starting(container: str) -> None:
        started.append(container)
        if len(started) == 2:
            raise ConnectionError("the engine is away")
        start(container)

    with monkeypatch.context() as patched:
        patched.setattr(api, "start", starting)
        status, answer = launch(composed, recording, wanted(events=[{}, {}]))
    assert (status, "the engine is away" in answer["message"]) == (409, True)
    assert containers(composed) == []
    assert list((composed.home / "instances").iterdir()) == []
    assert launch(composed, recording, wanted())[0] == 200
    end(composed, recording)


def test_a_recording_whose_client_dies_during_a_launch_ends_all_of_it(
    control: Control, composed: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert composed.containers is not None
    api = composed.containers.engine.api
    start, starting, goes_on = api.start, threading.Event(), threading.Event()

    def slow(container: str) -> None:
        starting.set()
        goes_on.wait(30)
        start(container)

    monkeypatch.setattr(api, "start", slow)
    answers: list[Any] = []
    with RemoteEmulator(composed.endpoint).record("run", ignore) as recording:
        body = wanted(events=[{}, {}, {}])
        asking = threading.Thread(target=lambda: answers.append(launch(composed, recording, body)))
        asking.start()
        assert starting.wait(30)
    deadline = time.monotonic() + 30
    while control._recording is not None and not control._recording.leaving.is_set():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    goes_on.set()
    asking.join(60)
    assert answers[0][0] == 409
    with RemoteEmulator(composed.endpoint).record("next", ignore) as following:
        assert containers(composed) == []
        following.finish()


def test_an_end_may_take_longer_than_an_answer(composed: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    assert composed.containers is not None
    api = composed.containers.engine.api
    remove_container = api.remove_container

    def slow(*arguments: Any, **more: Any) -> None:
        time.sleep(1.5)
        remove_container(*arguments, **more)

    with RemoteEmulator(composed.endpoint).record("run", ignore) as recording:
        assert launch(composed, recording, wanted())[0] == 200
        monkeypatch.setattr(api, "remove_container", slow)
        monkeypatch.setattr(client, "ANSWER_S", 1.0)
        recording.finish()


def test_a_service_that_hangs_does_not_hold_the_stack(
    control: Control, composed: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_module, "REMOVAL_ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setitem(composed._stack._named, "AWS_ENDPOINT_URL_SFN", url)
        with RemoteEmulator(composed.endpoint).record("run", ignore) as recording:
            recording.name("machine", "m")
            monkeypatch.setattr(client, "WORK_S", 20.0)
            recording.finish()
    assert control._running() is None
