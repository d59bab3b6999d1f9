"""The owner of a connection to a container's Runtime API, when the rules for processes don't find it."""

import asyncio
import http.client
import ipaddress
import json
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slslab.host.connections import find_socket
from slslab.host.containers import ContainerAccounts
from slslab.host.docker_engine import Engine
from slslab.lambda_ import container_sandbox
from slslab.lambda_.container_sandbox import ContainerSandbox
from slslab.lambda_.emulator import Emulator
from slslab.testing import create_function

# What a connection to the address in the event, or to its own Runtime API, is answered.
HANDLER = """
import http.client, os

def handler(event, context):
    own = os.environ["AWS_LAMBDA_RUNTIME_API"]
    connection = http.client.HTTPConnection(event.get("address", own), timeout=20)
    connection.request("GET", "/2018-06-01/runtime/other")
    return [own, connection.getresponse().status]
"""


def test_in_a_network_of_containers_each_has_an_address(
    emulator_settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process isn't a container in it, but has an address of the host there."""
    bridge = Engine()
    (network,) = bridge.api.inspect_network("bridge")["IPAM"]["Config"]
    # An engine that has just started may tell of the subnet alone, whose first address is the host's.
    gateway = network.get("Gateway") or str(next(ipaddress.ip_network(network["Subnet"]).hosts()))
    bridge.close()
    monkeypatch.setattr(Engine, "network", lambda _engine: "bridge")
    monkeypatch.setattr(Engine, "address", lambda _engine: gateway)
    with Emulator(**emulator_settings) as emulator:
        client = emulator.client("lambda")

        def invoke(name: str, event: Any) -> Any:
            return json.loads(client.invoke(FunctionName=name, Payload=json.dumps(event))["Payload"].read())

        for name in ("victim", "stranger"):
            create_function(client, name, HANDLER)
        address, status = invoke("victim", {})
        assert address.startswith(gateway + ":")
        assert status == 404
        assert invoke("stranger", {"address": address})[1] == 403
        connection = http.client.HTTPConnection(address, timeout=20)
        connection.request("GET", "/2018-06-01/runtime/invocation/next")
        assert connection.getresponse().status == 403
        connection.close()
        client.close()


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_a_user_who_may_not_read_descriptors_goes_by_the_sockets_group_or_user(
    version: int, own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process is the client, and the container has its user, or its control group, or another."""

    def forbidden(*_arguments: object) -> bool:
        raise PermissionError

    async def ask(client: socket.socket) -> bool:
        containers: Any = SimpleNamespace(call=None, engine=SimpleNamespace(api=None))
        sandbox = ContainerSandbox(containers, tmp_path, {}, lambda _: {}, lambda _: None, lambda _: None)
        found = find_socket(client.getsockname(), client.getpeername())
        assert found is not None
        number = found.group if own else found.group + 1
        group: Any = SimpleNamespace(stat=lambda: SimpleNamespace(st_ino=number))
        sandbox.accounts = ContainerAccounts(version, {"memory": group})
        monkeypatch.setattr(sandbox, "pids", list)
        assert not await sandbox.owns(("127.0.0.1", 1), client.getpeername())
        return await sandbox.owns(client.getsockname(), client.getpeername())

    monkeypatch.setattr(container_sandbox, "hold", forbidden)
    monkeypatch.setattr(container_sandbox, "LAMBDA_UID", os.getuid() if own else os.getuid() + 1)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert asyncio.run(ask(client)) is own
