"""What an execution environment needs from whatever confines it: processes of this host, or a container."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from slslab.host.cgroup_accounts import GroupAccounts
from slslab.host.connections import Address
from slslab.host.output import Stream
from slslab.host.procfs import Sample


class Sandbox(Protocol):
    """One runtime with everything that it starts. `ProcessSandbox` and `Container` document each method.

    Its output comes in `streams`: the log and the trace. `began` becomes the state of its accounts when the runtime's
    first instruction ran, or when it failed to start. `exited` becomes the runtime's exit code (negative for a signal);
    `ended_ns` is when it ended (CLOCK_MONOTONIC), if that is known before its exit code. `failure` is why it did not
    start, empty if it did; `accounts` are its control group's, if it has one; `freezes` is whether it can be frozen.
    """

    streams: tuple[Stream, ...]
    began: asyncio.Future[Sample]
    exited: asyncio.Future[int]
    ended_ns: int | None

    @property
    def failure(self) -> str: ...

    @property
    def accounts(self) -> GroupAccounts | None: ...

    @property
    def freezes(self) -> bool: ...

    def pids(self) -> list[int]: ...

    async def owns(self, client: Address, server: Address) -> bool: ...

    def files_bytes(self) -> int | None: ...

    async def limit_cpu(self, share: float) -> None: ...

    async def freeze(self) -> None: ...

    async def thaw(self) -> None: ...

    async def end(self) -> None: ...

    async def close(self) -> None: ...


def in_wrapper(variables: Mapping[str, str], program: list[str]) -> list[str]:
    """Return the command line of a runtime, or of its wrapper script if the function has one.

    documented: runtimes-modify.html, "Wrapper scripts": the script gets the runtime's command line as its arguments.
    The shell exits with status 127 if the script is missing.
    """
    wrapper = variables.get("AWS_LAMBDA_EXEC_WRAPPER")
    return ["/bin/sh", "-c", 'exec "$@"', "/var/runtime/bootstrap", wrapper, *program] if wrapper else program
