"""Delay packets between network namespaces in user space, for kernels without `tc netem`.

`python delay_line.py MILLISECONDS DEVICE NAMESPACE=ADDRESS…` makes a TUN device in each namespace, says so by a line,
and forwards each packet for one of the addresses to its namespace MILLISECONDS later, in order, until its standard
input ends, which happens however the process that started it ends.
"""

import ctypes
import fcntl
import os
import select
import socket
import struct
import sys
import time
from collections import deque
from pathlib import Path

CLONE_NEWNET = 0x40000000
TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x1, 0x1000, 0x4000
TUN_F_CSUM, TUN_F_TSO4 = 0x1, 0x2
# Before each packet. It passes as it is from one device to the other: so TCP hands over 64 KB at once, and nobody
# computes a checksum.
VNET_HEADER = 10
DESTINATION = slice(VNET_HEADER + 16, VNET_HEADER + 20)
LARGEST = VNET_HEADER + 65535
LIBC = ctypes.CDLL(None, use_errno=True)
STDIN = 0


def main(delay_ms: str, name: str, *places: str) -> None:
    """Make the devices and forward between them."""
    own, devices = Path("/proc/self/ns/net"), {}
    with own.open() as here:
        for place in places:
            space, address = place.split("=")
            with Path("/run/netns", space).open() as there:
                enter(there.fileno())
            devices[socket.inet_aton(address)] = device(name)
        # In a node's namespace this would be a process of the node, and be killed with it.
        enter(here.fileno())
    print("ready", flush=True)
    forward(devices, int(float(delay_ms) * 1e6))


def enter(space: int) -> None:
    """Go to a network namespace."""
    if LIBC.setns(space, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def device(name: str) -> int:
    """Return a TUN device in this namespace; it is gone with its descriptor."""
    opened = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(opened, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI | IFF_VNET_HDR))
    fcntl.ioctl(opened, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4)
    return opened


def forward(devices: dict[bytes, int], delay_ns: int) -> None:
    """Forward packets to the devices of their addresses, each `delay_ns` after it was read."""
    # All wait equally long, so the first to come is the first to go.
    waiting: deque[tuple[int, int, bytes]] = deque()
    while True:
        pause_s = max(0, waiting[0][0] - time.monotonic_ns()) / 1e9 if waiting else None
        readable, _, _ = select.select([STDIN, *devices.values()], (), (), pause_s)
        if STDIN in readable:
            return
        for source in readable:
            packet = os.read(source, LARGEST)
            # Others are multicast or of IPv6, which no node needs.
            if (target := devices.get(packet[DESTINATION])) is not None:
                waiting.append((time.monotonic_ns() + delay_ns, target, packet))
        while waiting and waiting[0][0] <= time.monotonic_ns():
            _, target, packet = waiting.popleft()
            os.write(target, packet)


if __name__ == "__main__":
    main(*sys.argv[1:])
