"""What a handler finds of other functions and of the owner's files, with namespaces and without."""

import json
import os
import tempfile
from pathlib import Path

import pytest

from slslab.host.namespaces import Isolation, Spawner
from slslab.lambda_ import process_sandbox
from slslab.lambda_.emulator import Emulator
from slslab.testing import create_function

pytestmark = pytest.mark.server

SECRETIVE = """
# a secret in the code
def handler(event, context):
    with open(__import__("tempfile").gettempdir() + "/file", "w") as file:
        file.write("a secret in /tmp")
"""
CURIOUS = """
import os

def handler(event, context):
    # Without namespaces the others' are next to its own: HOME/ENVIRONMENT/tmp, HOME/PACKAGE.
    temporary, code = os.environ.get("TMPDIR", "/tmp/own/tmp"), os.environ["LAMBDA_TASK_ROOT"]
    places = [event["folder"], os.path.dirname(os.path.dirname(temporary)), os.path.dirname(code)]
    paths = [f"/proc/{pid}/environ" for pid in os.listdir("/proc") if pid.isdigit() and pid != str(os.getpid())]
    for place in places:
        paths += [os.path.join(top, name) for top, _, names in os.walk(place) for name in names]
    found = []
    for path in paths:
        try:
            with open(path, "rb") as file:
                text = file.read(1_000_000)
        except OSError:
            continue
        found += [secret for secret in event["secrets"] if secret.encode() in text]
    return sorted(set(found))
"""
SECRETS = ("a secret in /tmp", "a secret in a folder", "a secret in a variable", "a secret in the code")


@pytest.mark.parametrize("mode", ["root", "user", ""])
def test_handlers_find_nothing_of_others_where_there_are_namespaces(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if mode == "root" and os.geteuid() != 0:
        pytest.skip("this user is not root")
    wanted = Isolation(mode, own_uid=mode == "root")
    try:
        Spawner(wanted).close()
    except OSError as error:
        pytest.skip(f"not on this host: {error}")
    monkeypatch.setattr(process_sandbox, "namespaces", lambda *_: wanted)
    with tempfile.TemporaryDirectory(prefix="owner-") as folder, Emulator() as emulator:
        Path(folder, "file").write_text(SECRETS[1])
        client = emulator.client("lambda")
        create_function(client, "secretive", SECRETIVE, Environment={"Variables": {"MINE": SECRETS[2]}})
        create_function(client, "curious", CURIOUS, Timeout=60)
        client.invoke(FunctionName="secretive", Payload=b"{}")["Payload"].read()
        event = {"folder": folder, "secrets": SECRETS}
        found = json.loads(client.invoke(FunctionName="curious", Payload=json.dumps(event))["Payload"].read())
        client.close()
    assert found == ([] if mode else list(SECRETS))
