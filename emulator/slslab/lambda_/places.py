"""The hosts of execution environments: this one, or several."""

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol

from slslab.host.cgroups import Hierarchy
from slslab.host.managed import Managed
from slslab.host.namespaces import Isolation
from slslab.host.output import FunctionLog
from slslab.host.pressure import Pressure
from slslab.lambda_.configuration import Function
from slslab.lambda_.environment import Environment, Shared, State
from slslab.lambda_.outcome import PhaseEnd
from slslab.lambda_.packages import Image
from slslab.lambda_.runtime_api import NextInvocation
from slslab.lambda_.sandbox import Sandbox, Setting
from slslab.lambda_.system_log import SystemLog


class ExecutionEnvironment(Protocol):
    """An execution environment on any host. `Environment` is one on this host, and documents each method."""

    id: str
    function: Function
    state: State
    log: FunctionLog
    system_log: SystemLog

    async def start(self, limit_s: float) -> PhaseEnd: ...

    async def invoke(self, invocation: NextInvocation, limit_s: float) -> PhaseEnd: ...

    async def ready(self) -> bool: ...

    def rest(self, rests: "Callable[[ExecutionEnvironment], object]") -> None: ...

    def resting_mb(self) -> int: ...

    def send_signal(self, number: int) -> None: ...

    async def reset(self) -> None: ...

    async def stop(self) -> None: ...


class Place(ABC):
    """A host of environments. `budget_mb` is the memory that they may take together; `used_mb` is taken.

    If there are several places, each has a `name`.
    """

    name = ""

    def __init__(self, budget_mb: int) -> None:
        self.budget_mb = budget_mb
        self.used_mb = 0

    @property
    def left_mb(self) -> int:
        """The memory that is not taken."""
        return self.budget_mb - self.used_mb

    @abstractmethod
    def make(self, function: Function, number: int) -> ExecutionEnvironment:
        """Make an environment, to be started by `start`; OSError if the host can't."""

    @abstractmethod
    async def runtime(self, function: Function) -> str:
        """Return what the function really runs on here, for its log."""


class Places(AbstractContextManager[Any], Protocol):
    """All places of one emulator, as a context manager that removes everything at its end.

    `template` names the modules that each environment begins with, if any. With `pack`, environments fill one place
    before the next; otherwise they spread. `hierarchy` describes the control groups in the first place, and
    `isolation` what else separates environments there.
    """

    template: str
    pack: bool

    @property
    def hierarchy(self) -> Hierarchy: ...

    @property
    def isolation(self) -> Isolation: ...

    def share(self, shared: Shared) -> None:
        """Take what environments share; call this first."""

    async def open(self, on_changed: Callable[[], None]) -> None:
        """Open the places, and call `on_changed` when some join or are lost later; HostError without any."""

    async def end(self) -> None:
        """Leave all places, after their environments have ended."""

    def present(self) -> Sequence[Place]:
        """Return the places that can be used now."""

    def prepare(self, function: Function) -> None:
        """Start slow preparations that all environments of a new or changed function share."""

    def find_image(self, uri: str) -> Image:
        """Return the container image of this name; InvalidParameterValueException if it is missing or cannot run."""

    def host(self) -> dict[str, Any]:
        """Return the host's part of a run's document: cores, whether the CPU share is enforced, the confinement."""


def terms(budgets_mb: Iterable[int]) -> str:
    """Return the places' memory for environments, MB, as a sum; equal places are multiplied, such as 3 × 4,000."""
    return " + ".join(f"{f'{count} × ' * (count > 1)}{mb:,}" for mb, count in Counter(budgets_mb).items())


def confinement(hierarchy: Hierarchy, isolation: Isolation) -> str:
    """Return what confines environments, in one line."""
    return f"{hierarchy.description}; {isolation.description}"


class ThisHost(Place, Managed):
    """This host as the only place. Subclasses confine environments in processes or containers.

    `address` is where functions reach their Runtime API; `hierarchy` and `isolation` describe what confines them;
    `template` names the modules that each begins with, if any. Entering it acquires what the environments share;
    leaving it removes all of that.
    """

    address: str
    hierarchy: Hierarchy
    isolation: Isolation
    template = ""
    pack = False

    def _enter(self, stack: ExitStack) -> None:
        self.pressure = Pressure()
        stack.callback(self.pressure.close)

    def share(self, shared: Shared) -> None:
        """Take what its environments share."""
        self._shared = shared

    async def open(self, on_changed: Callable[[], None]) -> None:
        """Do nothing, because this host is always available."""

    async def end(self) -> None:
        """Do nothing, because this host stays available."""

    def present(self) -> Sequence[Place]:
        """Return this place alone."""
        return [self]

    def host(self) -> dict[str, Any]:
        """Return the host's part of a run's document."""
        return {
            "cores": len(os.sched_getaffinity(0)),
            "cpu_share_enforced": "cpu" in self.hierarchy.parents,
            "confinement": confinement(self.hierarchy, self.isolation),
        }

    def make(self, function: Function, number: int) -> ExecutionEnvironment:
        """Make an environment of this host."""
        return Environment(self._shared, function, number, self.start, self.address, self.pressure)

    def prepare(self, function: Function) -> None:
        """Start slow preparations that all environments of a new or changed function share."""

    @abstractmethod
    def find_image(self, uri: str) -> Image:
        """Return the container image of this name; InvalidParameterValueException if it is missing or cannot run."""

    @abstractmethod
    async def start(self, setting: Setting, former: Sandbox | None = None) -> Sandbox:
        """Start a runtime. Raises StartFailed, or OSError, if the host cannot.

        `former` is the environment's earlier sandbox, which has ended; the new one reuses what it can.
        """
