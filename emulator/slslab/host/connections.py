"""Tell which processes of this host a TCP connection belongs to: sock_diag(7) finds its socket, /proc who has it open.

One exact lookup takes 10 µs however many sockets there are. Where the kernel does not answer that, the table in
/proc/net/tcp is read, which takes 5 ms even on a host with few, because the kernel walks its own table for it.
"""

import os
import socket
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

# A host and a port.
Address = tuple[str, int]
LOOPBACK = "127.0.0.1"
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST = 4, 20, 1
ALL_STATES = 0xFFFFFFFF
# linux/netlink.h, `struct nlmsghdr`: length, type, flags, sequence, port.
HEADER = struct.Struct("=IHHII")
# linux/inet_diag.h, `struct inet_diag_req_v2`: family, protocol, extensions, states; then `struct inet_diag_sockid`:
# ports and addresses of the socket's own end and of the other, interface, cookie.
REQUEST = struct.Struct("=BBBxI 2s2s 4s12x 4s12x I8s")
ANY_COOKIE = b"\xff" * 8
# `struct inet_diag_msg` of the answer: its last two fields are the user and the inode. Attributes follow, each with its
# length and kind; INET_DIAG_CGROUP_ID is one (Linux 5.8).
MESSAGE = struct.Struct("=64xII")
ATTRIBUTE = struct.Struct("=HH")
INET_DIAG_CGROUP_ID = 21


@dataclass(frozen=True)
class Socket:
    """A socket of this network namespace; one that its process has closed has the inode 0.

    `group` is the inode of the control group (v2) in which it was made; 0 if the kernel does not tell.
    """

    inode: int
    uid: int
    group: int


def find_socket(own: Address, other: Address) -> Socket | None:
    """Return the TCP socket whose own end is at `own` and whose other end is at `other`, both IPv4; None without one.

    An IPv6 socket is found by the IPv4 address that it is bound to.
    """
    return _ask_kernel(own, other) if _kernel_answers() else _read_table(own, other)


def hold(pids: Iterable[int], inode: int) -> bool:
    """Return whether one of these processes has this socket open.

    Raises PermissionError if that may not be known: of another user's processes.
    """
    link = f"socket:[{inode}]"
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):  # the process has exited
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                with suppress(FileNotFoundError):  # it has been closed
                    if os.readlink(f"/proc/{pid}/fd/{descriptor}") == link:
                        return True
    return False


@cache
def _kernel_answers() -> bool:
    """Whether the kernel answers questions about single sockets: its module tcp_diag may be missing."""
    with socket.create_server((LOOPBACK, 0)) as server, socket.create_connection(server.getsockname()) as client:
        try:
            return _ask_kernel(client.getsockname(), client.getpeername()) is not None
        except OSError:
            return False


def _ask_kernel(own: Address, other: Address) -> Socket | None:
    ports = (struct.pack(">H", port) for _, port in (own, other))
    hosts = (socket.inet_aton(host) for host, _ in (own, other))
    request = REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, ALL_STATES, *ports, *hosts, 0, ANY_COOKIE)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        header = HEADER.pack(HEADER.size + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0)
        kernel.send(header + request)
        answer = kernel.recv(8192)
    if HEADER.unpack_from(answer)[1] != SOCK_DIAG_BY_FAMILY:  # an error: ENOENT, also if the kernel lacks INET_DIAG
        return None
    uid, inode = MESSAGE.unpack_from(answer, HEADER.size)
    group, at = 0, HEADER.size + MESSAGE.size
    while at < len(answer):
        size, kind = ATTRIBUTE.unpack_from(answer, at)
        if kind == INET_DIAG_CGROUP_ID:
            (group,) = struct.unpack_from("=Q", answer, at + ATTRIBUTE.size)
        at += (size + 3) & ~3  # each begins at a multiple of 4
    return Socket(inode, uid, group)


def _read_table(own: Address, other: Address) -> Socket | None:
    """Find the socket in the table of all: the slow way."""
    ends = [f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}" for host, port in (own, other)]
    for path, prefix in (("/proc/net/tcp", ""), ("/proc/net/tcp6", "0000000000000000FFFF0000")):
        with suppress(FileNotFoundError), open(path) as table:  # a kernel without IPv6
            for line in table:
                _, local, remote, _, _, _, _, uid, _, inode, *_ = line.split()
                if [local, remote] == [prefix + end for end in ends]:
                    return Socket(int(inode), int(uid), 0)
    return None
