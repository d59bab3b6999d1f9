"""The control API refuses wrong bodies, and requests about a recording that has ended."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from slslab.aws.keys import Keyring, Pair
from slslab.compose.client import DEFAULT_PAIR, RemoteEmulator
from slslab.compose.control import Control
from slslab.compose.network import Network
from slslab.errors import HostError
from slslab.lambda_.emulator import Emulator

KEYS = Keyring(Pair(*DEFAULT_PAIR.values()), temporary=False)
NETWORK = {
    **KEYS.owner.variables(),
    "SLSLAB_LISTEN": "127.0.0.1:0",
    "SLSLAB_ENVIRONMENT": "process",
    "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
    "AWS_ENDPOINT_URL_SFN": "http://127.0.0.1:9",
    "SLSLAB_QUEUE_URL": "redis://127.0.0.1:9",
    "SLSLAB_TENSORS": "redis://nowhere.invalid:9",
}
RECORDING = {"run": "run", "by": "me", "tensor_databases": 0, "channel": ""}
FLEET = {"instance_type": "g4dn.xlarge", "device": "cpu"}
LAUNCH = {"module": "trainer", "code": "", "events": [{}], "variables": {}, "fleet": FLEET}


@pytest.fixture(scope="module")
def control() -> Iterator[RemoteEmulator]:
    """The control API of an emulator that runs processes; nothing else of the stack is there."""
    emulator = Emulator(keys=KEYS)
    emulator.add_routes(Control(emulator, Network.from_variables(NETWORK)).routes())
    with emulator:
        yield RemoteEmulator(emulator.endpoint)


def ask(control: RemoteEmulator, path: str, body: Any) -> tuple[int, str]:
    status, answer = control.ask("POST", path, body)
    return status, json.loads(answer)["message"]


@pytest.mark.parametrize(
    "body", [[], {}, RECORDING | {"run": None}, RECORDING | {"tensor_databases": -1}, RECORDING | {"more": "x"}]
)
def test_a_recording_without_what_it_needs_is_refused(control: RemoteEmulator, body: Any) -> None:
    status, message = ask(control, "/slslab/recordings", body)
    assert (status, message.startswith("The request is wrong: ")) == (400, True)
    assert json.loads(control.ask("GET", "/slslab/about")[1])["recording"] is None


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/resources", {"kind": "queue", "name": "name"}),
        ("/resources", {"kind": "bucket"}),
        ("/resources", {"kind": "bucket", "name": 1}),
        ("/instances", []),
        ("/instances", {}),
        ("/instances", LAUNCH | {"module": None}),
        ("/instances", LAUNCH | {"code": 1}),
        ("/instances", LAUNCH | {"events": {}}),
        ("/instances", LAUNCH | {"events": [1]}),
        ("/instances", LAUNCH | {"variables": {"A": 1}}),
        ("/instances", LAUNCH | {"fleet": {"device": "cpu"}}),
        ("/instances", LAUNCH | {"fleet": FLEET | {"more": "x"}}),
    ],
)
def test_a_wrong_body_is_refused(control: RemoteEmulator, path: str, body: Any) -> None:
    with control.record("run", print) as recording:
        status, message = ask(control, recording.path + path, body)
        assert (status, message.startswith("The request is wrong: ")) == (400, True)


def test_an_emulator_without_containers_launches_nothing(control: RemoteEmulator) -> None:
    with control.record("run", print) as recording, pytest.raises(HostError, match="can't launch instances"):
        recording.ask("POST", "/instances", **LAUNCH)


def test_what_has_ended_takes_nothing_more(control: RemoteEmulator) -> None:
    with control.record("first", print) as recording:
        with pytest.raises(HostError, match=r"The run first of .* uses this stack"):
            control.record("second", print).__enter__()
        assert recording.finish()["package"]["unzipped_bytes"] == 0
        with pytest.raises(HostError, match="has ended") as error:
            recording.name("function", "late")
    assert "slslab status" in error.value.hint
