"""Nothing of a cluster outlives the process that made it."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.machines.cluster.conftest import need_cluster
from tests.machines.cluster.namespace_reaper import pids

SCRIPT = """
import signal
from tests.machines.cluster.network import Nodes

with Nodes(2, late=2) as nodes:
    nodes.popen(1, ["sh", "-c", "echo; exec sleep 600"]).stdout.readline()  # it is on the node by then
    print(nodes.space(1), nodes.folder, flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_cluster_ends_with_its_process(number: int) -> None:
    need_cluster()
    command = [sys.executable, "-c", SCRIPT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as made:
        assert made.stdout is not None
        space, folder = made.stdout.readline().split()
        try:
            (pid,) = pids(space)
            there = os.pidfd_open(pid)
        finally:
            made.send_signal(number)
        made.communicate(timeout=60)  # also until the reaper ends, which has the same standard output
    assert select.select([there], (), (), 0)[0], "the process on a node has ended"
    os.close(there)
    assert not [path for path in Path("/run/netns").iterdir() if path.name.startswith(space.partition("-")[0])]
    assert not Path(folder).exists()
