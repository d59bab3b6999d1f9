"""Hosts that give less than this one: no control groups, no privileges, no namespaces at all.

unshare(1) makes them out of this host, so that slslab doesn't have to pretend: it tries what it can use, and must
enforce Lambda's limits with that.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.server

# Control groups disappear behind an empty file system, in a mount namespace of the command's own.
HIDE = "mount -t tmpfs -o ro none /sys/fs/cgroup"
# Without this capability the kernel refuses mount, pid and IPC namespaces, unless inside a user namespace …
DROP = "setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin"
# … which a limit of none at all forbids, for this user namespace and those below it.
FORBID = "echo 0 >/proc/sys/user/max_user_namespaces"
MOUNTS = ("unshare", "--mount", "--propagation", "private", "sh", "-c")
USERS = ("unshare", "--user", "--map-root-user", *MOUNTS[1:])
HOSTS = {
    "no-groups": (*MOUNTS, f'{HIDE} && exec "$@"', "sh"),
    "no-privileges": (*MOUNTS, f'{HIDE} && exec {DROP} "$@"', "sh"),
    "no-namespaces": (*USERS, f'{HIDE} && {FORBID} && exec {DROP} "$@"', "sh"),
}
ISOLATION = {
    "no-groups": "mount, pid and IPC namespaces, ",
    "no-privileges": "mount, pid and IPC namespaces in a user namespace, ",
    "no-namespaces": "none: environments see the host's files and processes (",
}
LIMITS = "tests/emulator/lambda_/test_api.py"
MEMORY = "tests/emulator/lambda_/test_memory.py"
RUNTIME_API = "tests/emulator/lambda_/test_runtime_api.py"
# One test for each way in which an invocation can end, one for each thing that is measured of it, and who may answer.
TESTS = (
    f"{LIMITS}::test_invocation_returns_payload_and_log_and_reuses_the_environment",
    f"{LIMITS}::test_handler_exception",
    f"{LIMITS}::test_import_error_is_an_init_error",
    f"{LIMITS}::test_exit",
    f"{LIMITS}::test_timeout",
    f"{LIMITS}::test_out_of_memory",
    f"{LIMITS}::test_max_memory_used_is_what_the_handler_touched",
    MEMORY,
    f"{RUNTIME_API}::test_a_stranger_has_no_effect",
    f"{RUNTIME_API}::test_a_child_of_the_handler_is_answered",
)


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest) -> str:
    """The name of a lesser host; skips where it cannot be made."""
    name: str = request.param
    if not all(shutil.which(program) for program in ("unshare", "setpriv")):
        pytest.skip("util-linux, which makes lesser hosts, is not installed")
    tried = subprocess.run([*HOSTS[name], "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"this host cannot be made here: {tried.stderr.strip()}")
    return name


def on(host: str, *arguments: str) -> "subprocess.Popen[str]":
    """Start Python on that host, in the checkout."""
    command = [*HOSTS[host], sys.executable, *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=Path(__file__).parents[3]
    )


def test_doctor_tells_what_is_missing_and_lambdas_limits_hold_by_the_means_that_are_left(
    host: str, tmp_path: Path
) -> None:
    options = ["-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'pytest'}", f"--rootdir={os.getcwd()}"]
    # Without what the tests of commands import.
    options.append("--confcutdir=tests/emulator")
    with on(host, "-m", "slslab", "doctor", "--json") as doctor, on(host, "-m", "pytest", *options, *TESTS) as tests:
        printed, _ = doctor.communicate(timeout=300)
        assert doctor.returncode == 0, "nothing of it is needed for a run"
        found: dict[str, dict[str, Any]] = {finding["subject"]: finding for finding in json.loads(printed)["findings"]}
        for subject in ("memory limit", "CPU share (memory/1769)", "1,024 processes", "freezing between invocations"):
            assert (found[subject]["state"], bool(found[subject]["hint"])) == ("missing", True), subject
        assert "a watchdog checks the resident set every 10 ms instead" in found["memory limit"]["hint"]
        isolation = found["isolation"]
        assert isolation["found"].startswith(ISOLATION[host])
        assert isolation["state"] == {"no-groups": "ok", "no-privileges": "partly", "no-namespaces": "missing"}[host]
        apart = "functions can read your files and keys" if host == "no-namespaces" else "docs/design.md"
        assert apart in isolation["hint"]
        assert found["Lambda clock"]["state"] == "ok"
        printed, _ = tests.communicate(timeout=300)
        assert tests.returncode == 0, printed
        assert " passed" in printed
        assert "skipped" not in printed
