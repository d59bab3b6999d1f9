"""What an architecture is to those who run it: the whole plugin surface.

A package registers one object with these attributes under the entry point group `slslab.architectures`; the built-in
ones do the same. Importing it must not import torch.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from slslab_workers.plan import Plan, Value

if TYPE_CHECKING:
    from slslab_workers.communication import Pattern, Workload
    from slslab_workers.replicas import Replicas

NO_OPTIONS: Mapping[str, Value] = MappingProxyType({})


@dataclass(frozen=True)
class Option:
    """One option of a room: name as on the command line, type, default, help and, if limited, its choices.

    `released` is what `--as-released` chooses, where the authors' code differs from the default.
    """

    name: str
    type: type[str] | type[int] | type[float] | type[bool]
    default: Value
    help: str
    choices: tuple[str, ...] = ()
    released: Value | None = None


@dataclass(frozen=True)
class ResidentPhase:
    """What must be resident at once in a phase, because it waits for each other.

    `environments` have the plan's memory size; `beside_mb` is the memory of smaller functions and of databases, MB.
    """

    name: str
    environments: int
    beside_mb: int = 0


@dataclass(frozen=True)
class Fleet:
    """Long-running machines that are no functions: their EC2 instance type, and what they are to compute on.

    `device` is `cuda`, `cpu`, or `auto`: CUDA where there is a GPU.
    """

    instance_type: str
    device: str = "auto"


@dataclass(frozen=True)
class Requirements:
    """What a plan needs beside Lambda and S3.

    `tensor_databases` counts RedisAI-compatible databases, one per peer; `queue` is the kind that is asked for
    (`auto`, `rabbitmq`, `embedded`), or empty; `instances` are long-running machines, one per worker.
    """

    tensor_databases: int = 0
    queue: str = ""
    state_machines: bool = False
    instances: Fleet | None = None


@dataclass(frozen=True)
class Counts:
    """Messages and bytes of the training protocol; `bytes_in` go to stores, `bytes_out` come from them."""

    operations: Mapping[str, int]
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True)
class Outcome:
    """What a finished run computed.

    `loss` is the mean training loss over all minibatches of each epoch, `accuracy` the test accuracy after it;
    `parameters_sha256` is of rank 0's final float32 parameters in `model.parameters()` order; `updates` counts how
    often rank 0's model was updated.
    """

    loss: tuple[float, ...]
    accuracy: tuple[float, ...]
    parameters: int
    parameters_sha256: str
    replicas_equal: bool
    epochs: int
    updates: int
    threads: int
    details: Mapping[str, Any] = field(default_factory=dict)


class RunFailed(Exception):
    """A worker failed, and with it the run."""

    def __init__(
        self, type_: str, message: str, worker: int | None = None, step: int | None = None, log_tail: str = ""
    ) -> None:
        super().__init__(message)
        self.type = type_
        self.message = message
        self.worker = worker
        self.step = step
        self.log_tail = log_tail


class Progress(Protocol):
    """Hears how far a run is; stages: load, upload, deploy, train, evaluate."""

    def report(self, stage: str, done: int, total: int) -> None:
        """`done` of `total` of this stage."""


class Instances(Protocol):
    """Instances that have been launched."""

    def check(self) -> None:
        """RunFailed if one of them has failed; the others are ended then."""

    def join(self) -> None:
        """Wait until all have ended well; RunFailed as soon as one of them fails."""


class InstanceLauncher(Protocol):
    """Starts long-running instances of the fleet that the room requires, and bills them from launch to end."""

    def launch(
        self, module: str, events: Sequence[Mapping[str, Any]], variables: Mapping[str, str]
    ) -> AbstractContextManager[Instances]:
        """Launch one instance per event, of rank 0 and up, which find `variables` in their environment.

        Each runs `python -m module` with its event as JSON on standard input, and its end says whether it failed; what
        it computes it stores. Instances that still run at the end of the context are ended.
        """


@dataclass(frozen=True)
class Cloud:
    """AWS as the driver sees it: boto3 clients by service name, and where the driver's own trace events go.

    `environment` holds what the functions find in theirs: addresses of the stack's parts that are no AWS services.
    `launcher` is there if the room's requirements name instances.
    """

    client: Callable[[str], Any]
    emit: Callable[[dict[str, Any]], None]
    environment: Mapping[str, str] = field(default_factory=dict)
    launcher: InstanceLauncher | None = None


class Architecture(Protocol):
    """An architecture's room; to inherit from it gives the defaults."""

    name: str
    summary: str
    options: tuple[Option, ...] = ()

    def requirements(self, plan: Plan) -> Requirements:  # noqa: ARG002 - rooms that override it use it
        """Parts of the stack beside Lambda and S3; PlanError for a plan that this architecture cannot carry out."""
        return Requirements()

    def resident_set(self, plan: Plan) -> tuple[ResidentPhase, ...]:
        """Environments that must be resident together, per phase; by default all workers, who wait for each other."""
        return (ResidentPhase(self.name, plan.workers),)

    def counts(
        self, workers: int, batches: int, epochs: int, parameters: int, options: Mapping[str, Value] = NO_OPTIONS
    ) -> Counts:
        """Closed-form messages and bytes of the training protocol over all epochs, with the room's options as given."""

    def pattern(self, workload: "Workload") -> "Pattern | None":  # noqa: ARG002 - rooms that override it use it
        """Who sends what to whom and waits for whom, by which replay makes runs of other sizes; by default it cannot.

        PlanError for options that it does not cover.
        """
        return None

    def replicas(self) -> "type[Replicas] | None":
        """All workers in one process, by which `slslab accuracy` tells what is learnt; by default it cannot."""
        return None

    def drive(self, plan: Plan, cloud: Cloud, progress: Progress) -> Outcome:
        """Run the plan through AWS's APIs; raises RunFailed when a worker fails."""
