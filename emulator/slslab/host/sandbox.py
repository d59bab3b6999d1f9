"""What a process with its descendants and a container have in common: a program with everything that it starts."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

from slslab.host.cgroup_accounts import GroupAccounts
from slslab.host.connections import Address, find_socket, hold
from slslab.host.output import Stream
from slslab.host.procfs import Sample, files_bytes


class Sandbox(ABC):
    """A program with everything that it starts.

    Its output comes in `streams`: the log and the trace. `began` becomes the state of its accounts when the program's
    first instruction ran, or when it failed to start. `exited` becomes the program's exit code (negative for a signal);
    `ended_ns` is when it ended (CLOCK_MONOTONIC), if that is known before its exit code. `failure` is why it did not
    start, empty if it did; `accounts` are its control group's, if it has one; `freezes` is whether it can be frozen.
    """

    accounts: GroupAccounts | None = None
    ended_ns: int | None = None
    failure = ""
    freezes = False

    def __init__(self, log: Callable[[bytes], object], trace: Callable[[bytes], object]) -> None:
        self.streams = Stream(log), Stream(trace)
        self.began: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def pids(self) -> list[int]:
        """Return its processes by their ids on this host."""
        return self.accounts.pids() if self.accounts is not None else []

    async def owns(self, client: Address, server: Address) -> bool:
        """Return whether one of its processes has the client's socket open."""
        found = find_socket(client, server)
        return found is not None and hold(self.pids(), found.inode)

    def files_bytes(self) -> int | None:
        """Return the size of the files in its /tmp, bytes; None if this user may not look."""
        return files_bytes(self.pids())

    async def limit_cpu(self, share: float) -> None:
        """Limit it to this number of processors from now on."""
        if self.accounts is not None:
            self.accounts.limit_cpu(share)

    @abstractmethod
    async def freeze(self) -> None:
        """Pause its processes."""

    @abstractmethod
    async def thaw(self) -> None:
        """Resume its processes."""

    @abstractmethod
    async def end(self) -> None:
        """Kill its processes, and return when they have ended."""

    @abstractmethod
    async def close(self) -> None:
        """Close its streams and accounts."""

    def close_streams(self) -> None:
        """Close its streams."""
        for stream in self.streams:
            stream.close()
