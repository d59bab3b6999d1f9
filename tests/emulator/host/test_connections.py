"""Find the owner of a connection, for sockets of this process and of others."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slslab.host import connections
from slslab.host.connections import LOOPBACK, Address, Socket, find_socket, hold

# It makes a control group (v2) in a mount of its own, joins it, and connects to itself.
GROUP = """
import os, socket, sys, uuid
from slslab.host.connections import find_socket

group = f"{sys.argv[1]}/{uuid.uuid4()}"
os.mkdir(group)
try:
    child = os.fork()
    if child == 0:
        with open(f"{group}/cgroup.procs", "w") as file:
            file.write("0")
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
            print(find_socket(client.getsockname(), client.getpeername()).group == os.stat(group).st_ino, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
finally:
    os.rmdir(group)
"""


@pytest.fixture(params=["asked", "read"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A listening socket. Its connections are found by asking the kernel, or by reading the kernel's table."""
    assert connections._kernel_answers(), "this test's host has the module tcp_diag"
    monkeypatch.setattr(connections, "_kernel_answers", lambda: request.param == "asked")
    with socket.create_server((LOOPBACK, 0)) as listener:
        yield listener


def inode(own: socket.socket) -> int:
    return os.fstat(own.fileno()).st_ino


def end(own: Address, other: Address) -> tuple[int, int] | None:
    """The inode and the user of the socket at one end of a connection."""
    found = find_socket(own, other)
    return None if found is None else (found.inode, found.uid)


def test_both_ends_of_a_connection_are_found(server: socket.socket) -> None:
    with socket.create_connection(server.getsockname()) as client:
        accepted, address = server.accept()
        with accepted:
            assert end(address, server.getsockname()) == (inode(client), os.getuid())
            assert end(server.getsockname(), address) == (inode(accepted), os.getuid())


def test_an_ipv6_socket_is_found_by_its_ipv4_address(server: socket.socket) -> None:
    """As Java and Node.js open them."""
    with socket.socket(socket.AF_INET6) as client:
        client.connect((f"::ffff:{LOOPBACK}", server.getsockname()[1]))
        accepted, address = server.accept()
        accepted.close()
        assert end(address, server.getsockname()) == (inode(client), os.getuid())


def test_a_closed_socket_is_nobodys(server: socket.socket) -> None:
    client = socket.create_connection(server.getsockname())
    accepted, address = server.accept()
    with accepted:
        client.close()
        found = find_socket(address, server.getsockname())
    assert found is not None
    assert found.inode == 0
    assert not hold([os.getpid()], found.inode)


def test_a_connection_that_there_is_not_is_not_found(server: socket.socket) -> None:
    assert find_socket((LOOPBACK, 1), server.getsockname()) is None


def test_a_socket_tells_its_control_group(tmp_path: Path) -> None:
    alone = ("unshare", "--mount", "--propagation", "private", "sh", "-c")
    mount = (*alone, 'mount -t cgroup2 none "$0" && exec "$@"', str(tmp_path))
    if shutil.which("unshare") is None or subprocess.run([*mount, "true"], capture_output=True).returncode:
        pytest.skip("only root can mount control groups")
    done = subprocess.run([*mount, sys.executable, "-c", GROUP, str(tmp_path)], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_socket_is_held_by_those_that_have_it_open(server: socket.socket) -> None:
    exited = subprocess.Popen(["true"])
    exited.wait()
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[server.fileno()])
    with child, socket.socket() as own:
        assert hold([exited.pid, child.pid], inode(server))
        assert not hold([exited.pid, child.pid], inode(own))
        assert hold([exited.pid, child.pid, os.getpid()], inode(own))
        child.kill()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start another user's process")
def test_what_another_users_process_holds_may_not_be_known() -> None:
    code = "import os, sys; from slslab.host.connections import hold; os.setuid(65534); hold([os.getppid()], 1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "PermissionError" in done.stderr


@pytest.mark.parametrize(
    ("answer", "noticed"), [(Socket(1, 0, 0), True), (None, False), (OSError("Protocol not supported"), False)]
)
def test_whether_the_kernel_answers_is_noticed(
    answer: Socket | OSError | None, noticed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*_addresses: object) -> Socket | None:
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(connections, "_ask_kernel", ask)
    assert connections._kernel_answers.__wrapped__() == noticed
