"""What an execution environment needs from whatever confines it: processes of this host, or a container."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from slslab.host.cgroup_accounts import GroupAccounts
from slslab.host.connections import Address
from slslab.host.output import Stream
from slslab.host.procfs import Sample


class Sandbox(Protocol):
    """One runtime with everything that it starts.

    Its output comes in `streams`: the log and the trace. `began` becomes the state of its accounts when the runtime's
    first instruction ran, or when it failed to start. `exited` becomes the runtime's exit code (negative for a signal);
    `ended_ns` is when it ended (CLOCK_MONOTONIC), if that is known before its exit code.
    """

    streams: tuple[Stream, ...]
    began: asyncio.Future[Sample]
    exited: asyncio.Future[int]
    ended_ns: int | None

    @property
    def failure(self) -> str:
        """Why the runtime did not start; empty if it did."""

    @property
    def accounts(self) -> GroupAccounts | None:
        """The accounts of its control group, if it has one."""

    @property
    def freezes(self) -> bool:
        """Whether it can be frozen."""

    def pids(self) -> list[int]:
        """Return its processes, as this host numbers them."""

    async def owns(self, client: Address, server: Address) -> bool:
        """Return whether the TCP connection between these two addresses belongs to one of its processes."""

    def files_bytes(self) -> int | None:
        """Return the size of the files in a /tmp in memory, bytes; None if no process that sees it is left."""

    async def limit_cpu(self, share: float) -> None:
        """Limit its processes to this number of processors."""

    async def freeze(self) -> None:
        """Pause its processes."""

    async def thaw(self) -> None:
        """Resume its processes."""

    async def end(self) -> None:
        """Kill its processes, and return when they are gone."""

    async def close(self) -> None:
        """Read the rest of its output, and remove its confinement and its accounts."""


def in_wrapper(variables: Mapping[str, str], program: list[str]) -> list[str]:
    """Return the command line of a runtime, or of its wrapper script if the function has one.

    documented: runtimes-modify.html, "Wrapper scripts": the script gets the runtime's command line as its arguments.
    The shell exits with status 127 if the script is missing.
    """
    wrapper = variables.get("AWS_LAMBDA_EXEC_WRAPPER")
    return ["/bin/sh", "-c", 'exec "$@"', "/var/runtime/bootstrap", wrapper, *program] if wrapper else program
