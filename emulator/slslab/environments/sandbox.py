"""What an execution environment needs of whatever confines it: processes of this host, or a container."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from slslab.configuration import Function
from slslab.environments.confinement import Hierarchy
from slslab.environments.groups import GroupAccounts
from slslab.environments.isolation import Isolation
from slslab.packages import Image


class StartFailed(Exception):
    """The host could not start the environment; the message says why."""


@dataclass(frozen=True)
class Setting:
    """What one sandbox is started with.

    `home` is a directory of its own, in which `clock` lies; `variables` are the environment variables that do not
    depend on the kind of sandbox; what the function writes goes to `log`, the frames of its trace to `trace`.
    """

    name: str
    number: int
    function: Function
    home: Path
    clock: Path
    variables: Mapping[str, str]
    processors: tuple[int, ...]
    log: Callable[[bytes], None]
    trace: Callable[[bytes], None]


class Sandbox(Protocol):
    """One runtime with everything that it starts, from its first instruction to its certain end.

    `exited` becomes the runtime's exit code (negative for a signal); `ended_ns` is when it ended (CLOCK_MONOTONIC), if
    that is known earlier than how.
    """

    exited: asyncio.Future[int]
    ended_ns: int | None

    @property
    def failure(self) -> str:
        """Why the runtime never started; empty if it did."""

    @property
    def accounts(self) -> GroupAccounts | None:
        """The accounts of its control group, if it has one."""

    @property
    def freezes(self) -> bool:
        """Whether it can be frozen."""

    def pids(self) -> list[int]:
        """Its processes, as this host numbers them."""

    def files_bytes(self) -> int:
        """What is used of a /tmp that is memory, bytes."""

    def drain(self) -> None:
        """Read what it has written until now."""

    async def freeze(self) -> None:
        """Stop its processes where they stand."""

    async def thaw(self) -> None:
        """Let them go on."""

    async def end(self) -> None:
        """Kill its processes, and return when they are gone."""

    async def close(self) -> None:
        """Read what is left of its output, and remove what confined it: nobody needs its accounts any more."""


class Sandboxes(Protocol):
    """Makes sandboxes of one kind; a context manager, whose end leaves nothing of them.

    `address` is where functions reach their Runtime API; `hierarchy` and `isolation` tell what confines them;
    `template` names the modules that each begins with, if any.
    """

    address: str
    hierarchy: Hierarchy
    isolation: Isolation
    template: str

    def runtime(self, function: Function) -> str:
        """What the function really runs on, for its log."""

    def find_image(self, uri: str) -> Image:
        """The container image of this name; InvalidParameterValueException if there is none, or none can be used."""

    async def start(self, setting: Setting) -> Sandbox:
        """Start a runtime. Raises StartFailed, or OSError, if the host cannot."""
