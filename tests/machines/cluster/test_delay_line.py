"""The delay between nodes: it is there, what passes is unchanged, and nothing of it outlives who wanted it."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.machines.cluster.conftest import need_cluster
from tests.machines.cluster.network import Nodes

DELAY_MS = 0.5
LIMIT_S = 60.0
# Returns what it receives.
SERVER = """
import socket, sys
with socket.create_server((sys.argv[1], 5000)) as server:
    print("listens", flush=True)
    peer, _ = server.accept()
    while data := peer.recv(1 << 16):
        peer.sendall(data)
"""
# Prints the shortest of some round trips, in ms, and whether as much comes back as passes in many packets, unchanged.
CLIENT = """
import os, socket, sys, threading, time
with socket.create_connection((sys.argv[1], 5000)) as peer:
    trips = []
    for _ in range(20):
        began = time.perf_counter()
        peer.sendall(b".")
        peer.recv(1)
        trips.append(time.perf_counter() - began)
    print(1000 * min(trips))
    data, returned = os.urandom(16 << 20), bytearray()
    def send():
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
    threading.Thread(target=send).start()
    while received := peer.recv(1 << 20):
        returned += received
    print(returned == data)
"""
# Has a delay between two nodes, until it is killed.
OWNER = """
import time
from tests.machines.cluster.network import Nodes
with Nodes(2, late=2, delay_ms=0.5) as nodes:
    print(nodes.space(0), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def silent() -> Iterator[Nodes]:
    """Two nodes with a delay, and nothing on them."""
    need_cluster()
    with Nodes(2, late=2, delay_ms=DELAY_MS) as nodes:
        yield nodes


def test_a_round_trip_takes_both_delays_and_what_passes_is_unchanged(silent: Nodes) -> None:
    with silent.popen(1, [sys.executable, "-c", SERVER, silent.address(1)]) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "listens\n"
            done = silent.run(0, [sys.executable, "-c", CLIENT, silent.address(1)], limit_s=LIMIT_S)
            assert done.returncode == 0, done.stderr
        finally:
            server.kill()
    trip_ms, unchanged = done.stdout.split()
    assert float(trip_ms) >= 2 * DELAY_MS
    assert unchanged == "True"


def test_a_delay_ends_with_a_process_that_is_killed() -> None:
    need_cluster()
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        space = owner.stdout.readline().strip()
        assert processes(space)
        owner.kill()
    deadline = time.monotonic() + LIMIT_S
    while (left := [*processes(space), *namespaces(space)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def processes(space: str) -> list[Path]:
    """Return the processes with a namespace in their command: the delay line, and what removes the namespaces."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if space.encode() in path.read_bytes():
                found.append(path)
        except OSError:
            continue
    return found


def namespaces(space: str) -> list[Path]:
    """Return the namespaces of a cluster that are left; a tunnel goes with its namespace."""
    return list(Path("/run/netns").glob(f"{space.removesuffix('-0')}*"))
