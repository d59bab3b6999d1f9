"""Whatever way an emulator ends, nothing of it stays."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slslab.host.cgroups import detect
from slslab.host.reaper import marked_processes

pytestmark = pytest.mark.server

HANDLER = """
import subprocess, sys, time

def handler(event, context):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
    print("started", flush=True)
    time.sleep(event)
"""
COMMAND = """
import sys, threading, time
from pathlib import Path
from slslab import Emulator

with Emulator(code_roots=[Path(sys.argv[1])]) as emulator:
    client = emulator.client("lambda")
    client.create_function(FunctionName="f", Runtime="python3.11", Role="arn:aws:iam::000000000000:role/r", Timeout=300,
                           MemorySize=1769, Handler="app.handler",
                           Code={"S3Bucket": "hot-reload", "S3Key": sys.argv[1]})
    client.invoke(FunctionName="f", Payload=b"0")
    threading.Thread(target=client.invoke, kwargs={"FunctionName": "f", "Payload": b"300"}, daemon=True).start()
    log = emulator.home / "logs" / "f-0001.log"
    while log.read_text().count("started") < 2:
        time.sleep(0.01)
    print(emulator.id, emulator.home, flush=True)
    ENDING
"""


def start(ending: str, code: Path) -> tuple[subprocess.Popen[str], str, Path]:
    (code / "app.py").write_text(HANDLER)
    command = [sys.executable, "-c", COMMAND.replace("ENDING", ending), str(code)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    identifier, home = process.stdout.readline().split()
    return process, identifier, Path(home)


def leftovers(identifier: str, home: Path) -> list[str]:
    groups = [str(p) for parent in detect().parents.values() for p in parent.glob(f"slslab-{identifier}")]
    return [str(pid) for pid in marked_processes(identifier)] + groups + ([str(home)] if home.exists() else [])


@pytest.mark.parametrize(
    ("ending", "number", "status"),
    [
        ("sys.exit(0)", None, 0),
        ("raise RuntimeError", None, 1),
        ("time.sleep(300)", signal.SIGINT, -signal.SIGINT),
        ("time.sleep(300)", signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_nothing_is_left(ending: str, number: signal.Signals | None, status: int, tmp_path: Path) -> None:
    process, identifier, home = start(ending, tmp_path)
    if number is not None:
        assert len(marked_processes(identifier)) >= 3, "the runtime and the two children it started"
        assert home.exists()
        process.send_signal(number)
    process.communicate(timeout=30)
    deadline = time.monotonic() + 10
    while leftovers(identifier, home) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert leftovers(identifier, home) == []
    assert process.returncode == status
