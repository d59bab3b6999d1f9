"""Tell which processes of this host a TCP connection belongs to: sock_diag(7) finds its socket, /proc who has it open.

One exact lookup takes 10 µs however many sockets there are; /proc/net/tcp takes 5 ms even on a host with few, because
reading it walks the kernel's whole table.
"""

import os
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from slslab.errors import HostError

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

    An IPv6 socket is found by the IPv4 address that it is bound to. Raises OSError if the kernel answers no questions.
    """
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


def need_lookups() -> None:
    """Raise HostError unless this kernel finds a socket that there is."""
    with socket.create_server((LOOPBACK, 0)) as server, socket.create_connection(server.getsockname()) as client:
        try:
            found = find_socket(client.getsockname(), client.getpeername())
        except OSError:
            found = None
    if found is None:
        raise HostError(
            "This kernel does not tell to whom a connection belongs, so anybody could answer for a function.",
            "load its module tcp_diag (`modprobe tcp_diag`), or use a kernel with CONFIG_INET_DIAG.",
        )
