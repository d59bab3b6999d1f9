"""What environments get where this process has no privileges, or no namespaces at all."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.namespaces import without_namespaces

from slslab.host.namespaces import Isolation, Spawner, detect, visible_paths
from slslab.lambda_ import process_sandbox
from slslab.lambda_.emulator import Emulator
from slslab.testing import create_function

pytestmark = pytest.mark.server

HANDLER = """
import os, subprocess, sys, tempfile

def refused(path):
    try:
        open(os.path.join(path, "written"), "w").close()
    except OSError as error:
        return error.strerror

def handler(event, context):
    if event == "leave a process":
        away = "import os, time; os.fork() and os._exit(0); time.sleep(666)"
        subprocess.run([sys.executable, "-c", away], start_new_session=True)
        return None
    if event == "exit":
        os._exit(7)
    with open(os.path.join(tempfile.gettempdir(), "file"), "w") as file:
        file.write("x")
    return {
        "uid": os.getuid(),
        "processes": len([pid for pid in os.listdir("/proc") if pid.isdigit()]),
        "home": os.path.exists(event["home"]),
        "refused": [refused(path) for path in ("/", "/usr", os.environ["LAMBDA_TASK_ROOT"])],
    }
"""


def invoke(client: Any, event: Any) -> Any:
    return json.loads(client.invoke(FunctionName="f", Payload=json.dumps(event))["Payload"].read())


def create(client: Any, code: Path) -> None:
    (code / "app.py").write_text(HANDLER)
    create_function(client, "f", code, Timeout=20)


def left() -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and "time.sleep(666)" in (entry / "cmdline").read_text():
                found.append(entry.name)
        except OSError:
            continue
    return found


def test_a_user_namespace_gives_all_but_an_own_user_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = Isolation("user", False)
    try:
        Spawner(wanted).close()
    except OSError as error:
        pytest.skip(f"no user namespaces here: {error}")
    monkeypatch.setattr(process_sandbox, "namespaces", lambda *_: wanted)
    with Emulator(code_roots=[tmp_path]) as emulator:
        client = emulator.client("lambda")
        create(client, tmp_path)
        seen = invoke(client, {"home": str(emulator.home)})
        assert (seen["uid"], seen["processes"], seen["home"]) == (993, 2, False)
        assert set(seen["refused"]) <= {"Read-only file system", "Permission denied"}
        invoke(client, "leave a process")
        assert left()
        client.close()
    assert not left()


def test_without_namespaces_the_init_cleans_up(tmp_path: Path) -> None:
    with without_namespaces(), Emulator(code_roots=[tmp_path]) as emulator:
        assert emulator.isolation.description.startswith("none: environments see the host's files and processes")
        client = emulator.client("lambda")
        create(client, tmp_path)
        seen = invoke(client, {"home": str(emulator.home)})
        assert (seen["uid"], seen["home"]) == (os.getuid(), True)
        assert seen["processes"] > 2
        invoke(client, "leave a process")
        assert left()
        assert invoke(client, "exit")["errorMessage"].endswith("exit status 7")
        deadline = time.monotonic() + 10
        while left() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not left(), "the end of the runtime ends what it started, also what left its session"
        client.close()


def test_an_unreadable_code_directory_is_shown_to_the_function(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with Emulator(code_roots=[tmp_path]) as emulator:
        client = emulator.client("lambda")
        create(client, tmp_path)
        (tmp_path / "app.py").chmod(0o600)
        assert invoke(client, {"home": "/"})["processes"] >= 1
        assert invoke(client, "exit")["errorMessage"].endswith("exit status 7")
        assert invoke(client, {"home": "/"})["processes"] >= 1, "a reset environment gets it again"
        client.close()


def test_what_is_visible_is_the_system_and_this_python() -> None:
    visible = visible_paths()
    assert "/usr" in visible
    assert not any(path.startswith(("/home", "/var", "/sys", "/proc")) and path.count("/") == 1 for path in visible)
    inside = [path for path in visible for other in visible if path != other and path.startswith(other + "/")]
    assert [path for path in inside if not os.path.islink(os.path.dirname(path))] == []


def test_detection_says_what_it_found() -> None:
    found = detect()
    if os.geteuid() == 0 and not found.missing:
        assert found == Isolation("root", True)
        assert found.description.endswith("own user id")


def command(process: psutil.Process) -> str:
    """The command line of a process; empty if it has ended meanwhile."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def test_the_interpreter_may_be_found_by_a_relative_path() -> None:
    code = "import sys; print(sys.executable); from slslab.host.namespaces import detect; print(detect().mode)"
    done = subprocess.run(
        ["python", "-c", code],
        cwd=sys.prefix,
        env={**os.environ, "PATH": f"bin:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    relative, mode = done.stdout.splitlines()
    assert relative == "bin/python", "what the test is about"
    assert mode == detect().mode


def test_a_spawner_that_is_gone_is_started_anew(tmp_path: Path) -> None:
    with Emulator(code_roots=[tmp_path]) as emulator:
        client = emulator.client("lambda")
        create(client, tmp_path)
        invoke(client, {"home": "/"})
        spawners = [child for child in psutil.Process().children() if "spawner.py" in command(child)]
        max(spawners, key=lambda child: child.create_time()).kill()  # the others are other emulators'
        time.sleep(0.5)  # the warm environment ends with its spawner
        assert invoke(client, {"home": "/"})["processes"] > 0
        assert [record.cold_start for record in emulator.records] == [True, True]
        client.close()
