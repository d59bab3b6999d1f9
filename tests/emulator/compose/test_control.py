"""The control API refuses wrong bodies, and requests about a recording that has ended."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from slslab.aws.keys import Keyring, Pair
from slslab.compose.client import DEFAULT_PAIR, RemoteEmulator, granted
from slslab.compose.control import Control
from slslab.compose.network import Network
from slslab.compose.recording import PIECE_BYTES, _log_lines
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
        ("/instances", LAUNCH | {"code": "~"}),
        ("/instances", LAUNCH | {"self": 1}),
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
        recording.ask("DELETE", "/instances")  # there is nothing to end
    assert "slslab status" in error.value.hint


def test_a_long_log_arrives_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "f.log").write_bytes(b"\xe2\x82\xac" * PIECE_BYTES)
    *pieces, end = [json.loads(line)["text"].encode("latin-1") for line in _log_lines("f", tmp_path / "f.log")]
    assert [len(piece) for piece in pieces] == [PIECE_BYTES] * 3
    assert (b"".join(pieces), end) == ((tmp_path / "f.log").read_bytes(), b"")


def test_addresses_may_be_of_ipv6() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(RemoteEmulator(f"http://[::1]:{server.getsockname()[1]}").ask, "GET", "/")
        with server.accept()[0] as connection:
            assert f"Host: [::1]:{server.getsockname()[1]}".encode() in connection.recv(4096)
            connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
            assert asked.result(10) == (204, b"")


@pytest.mark.parametrize("body", [b"", b"Internal Server Error", b"[1]"])
def test_refusals_by_others_have_the_status(body: bytes) -> None:
    with pytest.raises(HostError, match="answered with status 500"):
        granted(500, body)
