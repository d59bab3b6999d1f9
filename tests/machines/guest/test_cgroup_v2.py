"""The path for cgroup v2, on a host that has it or else in a virtual machine.

`own` is whatever group this process is in, which in the guest is the root. `delegated` is a group below the root that
has this process and another one in it, as under `systemd-run --scope -p Delegate=yes`; `rootless` is the same for a
user other than root.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.machines.guest import hardware_kvm, missing, run_in_guest

from slslab.host.cgroups import detect

# An emulated processor takes half a minute to import all plugins that are installed.
PLUGINS = ["--disable-plugin-autoload", "-p", "slslab.testing", "-p", "pytest_timeout", "-p", "no:cacheprovider"]
# A check that hangs says where, before the guest is ended.
HANGS = ["-o", "faulthandler_timeout=180"]
CHECKS = [sys.executable, "-m", "pytest", *PLUGINS, *HANGS, str(Path(__file__).with_name("cgroup_v2.py"))]
# Where the groups are is found out in all three; what is done in them is checked once.
SELECTION = {"own": ["-k", "found or a_group or left"], "delegated": ["-k", "found or a_group"], "rootless": []}
# Makes a group as a service manager would, for itself and a process beside it, becomes that user, and runs a command.
DELEGATE = """
import os, subprocess, sys

user, root = int(sys.argv[1]), "/sys/fs/cgroup"
group = root + "/delegated"
with open(root + "/cgroup.subtree_control", "w") as file:
    file.write("+memory +cpu +pids")
os.mkdir(group)
os.setxattr(group, "trusted.delegate", b"1")
for name in ("", "/cgroup.procs", "/cgroup.threads", "/cgroup.subtree_control"):
    os.chown(group + name, user, user)
with open(group + "/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))
os.setgroups([])
os.setresgid(user, user, user)
os.setresuid(user, user, user)
subprocess.Popen(["sleep", "600"])
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.parametrize("kind", ["own", "delegated", "rootless"])
def test_cgroup_v2(kind: str) -> None:
    if kind == "own" and detect().version == 2:
        done = subprocess.run(CHECKS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        status, output = done.returncode, done.stdout
    else:
        lacking = missing()
        if lacking is not None:
            pytest.skip(lacking)
        if kind != "rootless" and not hardware_kvm() and os.environ.get("SLSLAB_GUEST") != "all":
            pytest.skip("the processor is emulated here and this takes minutes: SLSLAB_GUEST=all runs it")
        user = "1000" if kind == "rootless" else "0"
        beginning = [sys.executable, "-c", DELEGATE, user] if kind != "own" else []
        status, output = run_in_guest([*beginning, *CHECKS, *SELECTION[kind]])
    print(output)
    assert status == 0
