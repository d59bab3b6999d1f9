"""The hosts of execution environments, this one or several, and what they need to run one.

These are the base of an environment, the states and endings of environments, the command line
with a function's wrapper script, and the variables that a function sees.
"""

import asyncio
import signal
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from slslab.aws.arns import REGION
from slslab.aws.errors import ServiceError, invalid
from slslab.aws.limits import Limits
from slslab.host.cgroups import Hierarchy
from slslab.host.managed import Managed
from slslab.host.namespaces import Isolation
from slslab.host.reaper import MARK
from slslab.lambda_.configuration import Function
from slslab.lambda_.log_events import EnvironmentLog
from slslab.lambda_.packages import Image
from slslab.lambda_.runtime_api import NextInvocation, RuntimeReport

MORE_MEMORY = (
    "lower MemorySize (`--memory` or `--workers` of a run), or give more with `slslab up --memory-budget` "
    "(`budget_mb` of an Emulator)."
)
# A plan's faults that functions learn of: their bits are one number of 64 bits.
FAULTS = 64
SIGNALS: dict[int, str] = {
    signal.SIGKILL: "killed",
    signal.SIGSEGV: "segmentation fault",
    signal.SIGABRT: "aborted",
    signal.SIGTERM: "terminated",
}


class State(Enum):
    """The state of an execution environment."""

    STARTING = "starting"
    READY = "ready"
    BUSY = "busy"
    RESET = "reset"
    STOPPED = "stopped"


class Ending(Enum):
    """How an initialisation or an invocation ended."""

    RESPONSE = "response"
    ERROR = "error"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out-of-memory"
    EXIT = "exit"


class PhaseEnd(NamedTuple):
    """The end of an initialisation or invocation, with its measurements.

    `began_ns` and `ended_ns` are wall time on CLOCK_MONOTONIC. `lambda_ns` is time on the Lambda clock, without the
    host's delay `host_delay_ns`; `uncertain_ns` is how much of `lambda_ns` the host may also have caused (None if the
    kernel doesn't report pressure). `peak_bytes` is the most memory that the processes held, and `cgroup_peak_bytes`
    the most that the kernel charged to the group. `gpu` is a GPU that torch used, and the most of its memory that was
    allocated, bytes.
    """

    ending: Ending
    report: RuntimeReport | None
    exit_status: int | None
    began_ns: int
    ended_ns: int
    lambda_ns: int
    host_delay_ns: int
    uncertain_ns: int | None
    cpu_ns: int
    peak_bytes: int
    cgroup_peak_bytes: int | None
    gpu: tuple[str, int] | None = None

    @property
    def lambda_ms(self) -> float:
        """The time on the Lambda clock in ms, as a REPORT line prints it."""
        return round(self.lambda_ns / 1e6, 2)


def exit_reason(status: int | None) -> str:
    """Describe the end of the runtime process in Lambda's words (`RequestId: … Error: <reason>`)."""
    if not status:
        return "Runtime exited without providing a reason"
    if status < 0:
        return f"Runtime exited with error: signal: {SIGNALS.get(-status, str(-status))}"
    return f"Runtime exited with error: exit status {status}"


def environment_id(function: Function, number: int) -> str:
    """Return the name of an environment; its number is unique in the emulator."""
    return f"{function.name}-{number:04d}"


class ExecutionEnvironment(ABC):
    """An execution environment on any host: one sandbox with one runtime, reused while it stays warm.

    `number` is unique in the emulator. `held_mb` is the memory that the pool counts for it, MB: its memory size, or
    less while it rests.
    """

    def __init__(self, host: "Host", function: Function, number: int) -> None:
        self.id = environment_id(function, number)
        self.host = host
        self.function = function
        self.number = number
        self.state = State.STARTING
        self.log = host.hosts.open_log(function, self.id)
        self.held_mb = function.memory_mb

    @abstractmethod
    async def start(self, limit_s: float) -> PhaseEnd:
        """Start the runtime and wait until it asks for its first invocation (the init phase).

        The first init has at least one vCPU; an init after a reset has the function's share. Raises OSError if the
        host can't start it.
        """

    @abstractmethod
    async def invoke(self, invocation: NextInvocation, limit_s: float, begin: Callable[[], object]) -> PhaseEnd:
        """Pass one invocation to the waiting runtime and meter it to its end; `begin` is called once it begins."""

    @abstractmethod
    async def ready(self) -> bool:
        """Wait until the runtime asks for its next invocation; an environment that has been reset is ready at once.

        False if the runtime has exited or doesn't ask soon enough. Then the environment can't be used again.
        """

    @abstractmethod
    def rest(self, rests: "Callable[[ExecutionEnvironment], object]") -> None:
        """Freeze the environment soon after its runtime has asked for its next invocation, and call `rests` with it.

        The next invocation thaws it. After a reset there is nothing to freeze. documented:
        lambda-runtime-environment.html: Lambda freezes an environment when its runtime waits for an invocation.
        """

    @abstractmethod
    def resting_mb(self) -> int:
        """Return the memory that it can hold while it rests, MB."""

    @abstractmethod
    def send_signal(self, number: int) -> None:
        """Send a signal to everything in the environment."""

    @abstractmethod
    async def reset(self) -> None:
        """End the runtime and all that it started; `start` starts it again in the same environment, with the same /tmp.

        documented: lambda-runtime-environment.html, "Failures during the invoke phase": the environment is reset and
        may be used again; "the Lambda reset does not clear the /tmp directory content prior to the next init phase".
        """

    @abstractmethod
    async def stop(self) -> None:
        """Kill everything in the environment and remove its files."""


class Host(ABC):
    """A host of environments. `budget_mb` is the memory that they may take together; `left_mb` of it is left.

    It belongs to `hosts`. If there are several, each has a `name`.
    """

    hosts: "Hosts"
    name = ""

    def __init__(self, budget_mb: int) -> None:
        self.budget_mb = self.left_mb = budget_mb

    def give_back(self, memory_mb: int) -> None:
        """Release memory that an environment no longer holds."""
        self.left_mb += memory_mb
        self.hosts.notify()

    @abstractmethod
    def make(self, function: Function, number: int) -> ExecutionEnvironment:
        """Make an environment, to be started by `start`; OSError if the host can't."""

    @abstractmethod
    async def runtime(self, function: Function) -> str:
        """Return what the function really runs on here, for its log."""


class Hosts(Managed):
    """All hosts of one emulator, and what their environments share; leaving it removes everything.

    An environment starts as soon as its memory size fits into a host. `template` names the modules that each
    environment begins with, if any. If several hosts have room, the one with the most free memory is taken, so that
    environments spread; with `pack`, the one with the least. `hierarchy` describes the control groups on the first
    host, and `isolation` what else separates environments there.
    """

    limits: Limits
    hierarchy: Hierarchy
    isolation: Isolation
    template = ""
    pack = False
    # Set at the next change, if somebody waits for it.
    _changed: asyncio.Event | None = None

    def share(
        self,
        *,
        emulator_id: str,
        home: Path,
        variables: Mapping[str, str],
        credentials: Callable[[str], Mapping[str, str]],
        open_log: Callable[[Function, str], EnvironmentLog],
        record: Callable[[dict[str, Any]], None],
    ) -> None:
        """Take what the environments share; call this first.

        Each environment has a directory in `home`, `variables`, and the variables with its keys, which `credentials`
        returns by the function's name. `open_log` returns its log, by its function and its id.
        """
        self.emulator_id = emulator_id
        self.home = home
        self.variables = variables
        self.credentials = credentials
        self.open_log = open_log
        self.record = record
        # A bit for each fault of a plan that workers have reported.
        self.happened = 0

    async def open(self) -> None:
        """Open the hosts, and `notify` when some join or are lost later; HostError without any."""

    async def end(self) -> None:
        """Leave all hosts, after their environments have ended."""

    @abstractmethod
    def present(self) -> Sequence[Host]:
        """Return the hosts that can be used now."""

    def budgets_mb(self) -> list[int]:
        """Return the memory that each host offers, MB."""
        return [host.budget_mb for host in self.present()]

    def take(self, memory_mb: int, host: Host | None = None) -> Host | None:
        """Reserve memory at this host, or any. Return the host, None if full; ServiceException if it never fits."""
        if host is not None and memory_mb <= host.left_mb:
            host.left_mb -= memory_mb
            return host
        hosts = self.present() if host is None else [host]
        if not hosts:
            raise ServiceError(500, "ServiceException", "No node is left that could have environments.")
        most_mb = max(host.budget_mb for host in hosts)
        if memory_mb > most_mb:
            raise ServiceError(
                500,
                "ServiceException",
                f"An environment can have at most {most_mb} MB here, and the function needs {memory_mb} MB. "
                f"Hint: {MORE_MEMORY}",
            )
        fitting = [host for host in hosts if memory_mb <= host.left_mb]
        if not fitting:
            return None
        chosen = (min if self.pack else max)(fitting, key=lambda host: host.left_mb)
        chosen.left_mb -= memory_mb
        return chosen

    def notify(self) -> None:
        """Wake up everything that waits: memory was released, or an environment became idle."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def changed(self) -> None:
        """Wait for the next change."""
        if self._changed is None:
            self._changed = asyncio.Event()
        await self._changed.wait()

    def prepare(self, function: Function) -> None:
        """Start slow preparations that all environments of a new or changed function share."""

    def find_image(self, uri: str) -> Image:
        """Return the container image of this name; InvalidParameterValueException if it is missing or cannot run."""
        raise invalid(f"The image {uri} can only run in a container; package the function as a zip archive.")

    @abstractmethod
    def host(self) -> dict[str, Any]:
        """Return the host's part of a run's document: cores, whether the CPU share is enforced, the confinement."""


def fault_bit(event: Mapping[str, Any]) -> int:
    """Return the bit of the plan's fault that a worker's trace record reports; 0 if it reports none."""
    number = str(event.get("resource")).partition(" ")[0]
    reports = event.get("op") == "fault" and number.isdecimal() and int(number) < FAULTS
    return 1 << int(number) if reports else 0


def terms(budgets_mb: Iterable[int]) -> str:
    """Return the hosts' memory for environments, MB, as a sum; equal hosts are multiplied, such as 3 × 4,000."""
    return " + ".join(f"{f'{count} × ' * (count > 1)}{mb:,}" for mb, count in Counter(budgets_mb).items())


def confinement(hierarchy: Hierarchy, isolation: Isolation) -> str:
    """Return what confines environments, in one line."""
    return f"{hierarchy.description}; {isolation.description}"


def in_wrapper(function: Function, program: list[str]) -> list[str]:
    """Return the command line of a runtime, or of its wrapper script if the function has one.

    documented: runtimes-modify.html, "Wrapper scripts": the script gets the runtime's command line as its arguments.
    The shell exits with status 127 if the script is missing.
    """
    wrapper = (function.variables or {}).get("AWS_LAMBDA_EXEC_WRAPPER")
    return ["/bin/sh", "-c", 'exec "$@"', "/var/runtime/bootstrap", wrapper, *program] if wrapper else program


# documented: configuration-envvars.html; the addresses are measured. Nothing listens there: traces are not emulated.
XRAY = {
    "AWS_XRAY_CONTEXT_MISSING": "LOG_ERROR",
    "AWS_XRAY_DAEMON_ADDRESS": "169.254.79.129:2000",
    "_AWS_XRAY_DAEMON_ADDRESS": "169.254.79.129",
    "_AWS_XRAY_DAEMON_PORT": "2000",
}


def variables(function: Function, hosts: Hosts, log_stream: str, address: str) -> dict[str, str]:
    """Return a function's variables; its own replace shared ones. `address` is its Runtime API's."""
    return {
        "LANG": "en_US.UTF-8",
        "TZ": ":UTC",
        **XRAY,
        **hosts.variables,
        **(function.variables or {}),
        "_HANDLER": function.handler,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EXECUTION_ENV": f"AWS_Lambda_{function.runtime or 'Image'}",
        "AWS_LAMBDA_FUNCTION_NAME": function.name,
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
        "AWS_LAMBDA_FUNCTION_VERSION": function.version,
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        **_logging(function),
        "AWS_LAMBDA_LOG_STREAM_NAME": log_stream,
        "AWS_LAMBDA_RUNTIME_API": address,
        **hosts.credentials(function.name),
        MARK: hosts.emulator_id,
    }


def _logging(function: Function) -> dict[str, str]:
    """Return the variables for the runtime's logging (measured: the format is set once LoggingConfig was given)."""
    config = function.logging
    given = {"AWS_LAMBDA_LOG_FORMAT": config.get("LogFormat", "Text")} if config else {}
    level = {"AWS_LAMBDA_LOG_LEVEL": config["ApplicationLogLevel"]} if "ApplicationLogLevel" in config else {}
    return {"AWS_LAMBDA_LOG_GROUP_NAME": function.log_group, **given, **level}
