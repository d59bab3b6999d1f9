"""Find out which processes of this host own a TCP connection. sock_diag(7) finds the socket, and /proc its processes.

An exact lookup takes 10 µs, however many sockets exist. Where the kernel doesn't support it, we read /proc/net/tcp,
which takes at least 5 ms because the kernel walks its whole table.
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
# local and remote port, local and remote address, interface, cookie.
REQUEST = struct.Struct("=BBBxI 2s2s 4s12x 4s12x I8s")
ANY_COOKIE = b"\xff" * 8
# `struct inet_diag_msg` of the answer: the last two fields are the user and the inode. Attributes follow, each with its
# length and kind. INET_DIAG_CGROUP_ID (Linux 5.8) is one of them.
MESSAGE = struct.Struct("=64xII")
ATTRIBUTE = struct.Struct("=HH")
INET_DIAG_CGROUP_ID = 21


@dataclass(frozen=True)
class Socket:
    """A socket of this network namespace. The inode is 0 if its process has closed it.

    `group` is the inode of the control group (v2) that created it, or 0 if the kernel doesn't report it.
    """

    inode: int
    uid: int
    group: int


def find_socket(own: Address, other: Address) -> Socket | None:
    """Return the TCP socket with local address `own` and remote address `other`, both IPv4, or None.

    An IPv6 socket is found by the IPv4 address that it is bound to.
    """
    return _ask_kernel(own, other) if _kernel_answers() else _read_table(own, other)


def hold(pids: Iterable[int], inode: int) -> bool:
    """Return whether one of these processes has this socket open.

    Raises PermissionError for processes that belong to another user.
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
    """Return whether the kernel supports lookups of single sockets: its module tcp_diag may be missing."""
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
        at += (size + 3) & ~3  # attributes are aligned to 4 bytes
    return Socket(inode, uid, group)


def _read_table(own: Address, other: Address) -> Socket | None:
    """Find the socket by reading the whole table, which is slow."""
    ends = [f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}" for host, port in (own, other)]
    for path, prefix in (("/proc/net/tcp", ""), ("/proc/net/tcp6", "0000000000000000FFFF0000")):
        with suppress(FileNotFoundError), open(path) as table:  # a kernel without IPv6
            for line in table:
                _, local, remote, _, _, _, _, uid, _, inode, *_ = line.split()
                if [local, remote] == [prefix + end for end in ends]:
                    return Socket(int(inode), int(uid), 0)
    return None
