"""What an architecture is to those who run it: the whole plugin surface.

A package registers one object with these attributes under the entry point group `slslab.architectures`; the built-in
ones do the same. Importing it must not import torch.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, ClassVar, Self
from typing import Protocol as Interface

from slslab_workers.option import Option
from slslab_workers.patterns import Chain, Counts, Pattern, Workload, count
from slslab_workers.patterns.messages import Protocol, Recorded, derive
from slslab_workers.plan import Plan, Value
from slslab_workers.trace.operations import SERVERS

# What one worker does in each environment while its CPU time is measured.
ALONE_BATCHES = 4
NO_OPTIONS: Mapping[str, Value] = MappingProxyType({})
TENSOR_HOST = Option(
    "tensor-host",
    str,
    str(SERVERS["tensor"].instance_type),
    "EC2 instance type by which the price book bills the host of each tensor database; the papers name none.",
)
QUEUE_HOST = Option(
    "queue-host",
    str,
    str(SERVERS["queue"].instance_type),
    "Instance type by which the price book bills the queue's host; the papers name none.",
)


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
    """Long-running machines instead of functions: their EC2 instance type, and what they are to compute on.

    `device` is `cuda`, `cpu`, or `auto`: CUDA where there is a GPU.
    """

    instance_type: str
    device: str = "auto"

    @property
    def has_gpu(self) -> bool:
        """Return whether machines of this type have GPUs: AWS's families G and P."""
        return self.instance_type.startswith(("g", "p"))


@dataclass(frozen=True)
class Requirements:
    """What a plan needs beside Lambda and S3.

    `tensor_databases` counts RedisAI-compatible databases, one per peer; `queue` is the kind that is asked for
    (`auto`, `rabbitmq`, `embedded`), or empty; `channel` is what workers exchange objects by (`memcached`, `redis`,
    `dynamodb`), or empty; `instances` are long-running machines, one per worker. `tensor_host`, `queue_host` and
    `channel_host` are the instance types by which a database, the queue and the channel's server are billed; AWS bills
    DynamoDB by requests.
    """

    tensor_databases: int = 0
    queue: str = ""
    channel: str = ""
    state_machines: bool = False
    instances: Fleet | None = None
    tensor_host: str = str(TENSOR_HOST.default)
    queue_host: str = str(QUEUE_HOST.default)
    channel_host: str = ""

    @classmethod
    def with_queue(cls, options: Mapping[str, Value], tensor_databases: int, *, state_machines: bool = False) -> Self:
        """Return a queue and tensor databases, on the hosts that the options name."""
        queue, hosts = str(options["queue"]), (str(options[host.name]) for host in (TENSOR_HOST, QUEUE_HOST))
        return cls(tensor_databases, queue, "", state_machines, None, *hosts)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Instance types of the hosts that AWS would bill for the databases, the queue and the channel."""
        databases = (self.tensor_host,) * self.tensor_databases
        return databases + (self.queue_host,) * bool(self.queue) + (self.channel_host,) * bool(self.channel_host)


@dataclass(frozen=True)
class Outcome:
    """What a finished run computed.

    `loss` is the mean training loss over all minibatches of each epoch, `accuracy` the test accuracy after it;
    `parameters_sha256` is of rank 0's final float32 parameters in `model.parameters()` order; `updates` counts how
    often rank 0's model was updated. Where no model is trained the fingerprint is of what was made instead, and
    `replicas_equal` is None.
    """

    loss: tuple[float, ...]
    accuracy: tuple[float, ...]
    parameters: int
    parameters_sha256: str
    replicas_equal: bool | None
    epochs: int
    updates: int
    threads: int
    details: Mapping[str, Any] = field(default_factory=dict)


class RunFailed(Exception):
    """A worker failed, and with it the run."""

    def __init__(self, type_: str, message: str, worker: int | None = None, log_tail: str = "") -> None:
        super().__init__(message)
        self.type = type_
        self.message = message
        self.worker = worker
        self.log_tail = log_tail


class Progress(Interface):
    """Receives how far a run is; stages: load, upload, deploy, train, evaluate."""

    def report(self, stage: str, done: int, total: int) -> None:
        """Report that `done` of `total` of this stage are done."""


class Instances(Interface):
    """Instances that have been launched."""

    def check(self) -> None:
        """Raise RunFailed if one of them has failed; the others are ended then."""

    def join(self) -> None:
        """Wait until all have ended without an error; RunFailed as soon as one of them fails."""


class InstanceLauncher(Interface):
    """Starts long-running instances of the fleet that the architecture requires, billed from launch to end."""

    def launch(
        self, module: str, events: Sequence[Mapping[str, Any]], variables: Mapping[str, str]
    ) -> AbstractContextManager[Instances]:
        """Launch one instance per event, of rank 0 and up, which find `variables` in their environment.

        Each runs `python -m module` with its event as JSON on standard input, stores what it computes, and fails by its
        exit code. Instances that still run at the end of the context are ended.
        """


@dataclass(frozen=True)
class Deployed:
    """What a template has made before the driver starts, and what stays: functions, bucket and state machine (its ARN).

    The functions have the names that a driver gives them, with `function` as the workers'.
    """

    function: str
    bucket: str
    machine: str


@dataclass(frozen=True)
class Cloud:
    """AWS as the driver sees it: boto3 clients by service name, and where the driver's own trace events go.

    `environment` holds what the functions find in theirs: addresses of the stack's parts that are not AWS services.
    `launcher` is there if the architecture's requirements name instances, `deployed` if the driver is not to make what
    it runs on.
    """

    client: Callable[[str], Any]
    emit: Callable[[dict[str, Any]], None]
    environment: Mapping[str, str] = field(default_factory=dict)
    launcher: InstanceLauncher | None = None
    deployed: Deployed | None = None


class Architecture(Interface):
    """What a package registers; a class that inherits from it has the defaults."""

    name: str
    summary: str
    # What papers call it, if that is not its name; and the papers that describe it.
    title: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    # Other spellings of --workers, if its authors call them otherwise.
    workers_also: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    # What `pattern` returns for a workload with all options; None: replay cannot.
    messages: ClassVar[Callable[..., Pattern] | None] = None
    # What `protocol` returns, as "module:function" of a recorded run, where the keys of `messages` don't say it.
    exchange: ClassVar[str] = ""
    # The puts and gets of a round that follow each other, by the number of workers; None: there is no such formula.
    longest_chain: ClassVar[Callable[..., Chain] | None] = None
    # What `replicas` returns, as "module:class"; empty: `slslab accuracy` cannot.
    learns: ClassVar[str] = ""

    def complete(self, options: Mapping[str, Value]) -> dict[str, Value]:
        """Return these options, and all others of the architecture with their defaults."""
        return {option.name: option.default for option in self.options} | dict(options)

    def requirements(self, plan: Plan) -> Requirements:  # noqa: ARG002 - those that override it use it
        """Return the parts of the stack beside Lambda and S3; PlanError for a plan that cannot be carried out."""
        return Requirements()

    def resident_set(self, plan: Plan) -> tuple[ResidentPhase, ...]:
        """Return the environments that must be resident together, by phase; by default all workers at once."""
        return (ResidentPhase(self.name, plan.workers),)

    def counts(
        self, workers: int, batches: int, epochs: int, parameters: int, options: Mapping[str, Value] = NO_OPTIONS
    ) -> Counts:
        """Return messages and bytes of the training protocol over all epochs.

        Options that are left out have their defaults. Counts the pattern; an architecture without a pattern overrides
        this method, or raises NotImplementedError.
        """
        pattern = self.pattern(Workload(workers, batches, epochs, parameters, self.complete(options)))
        if pattern is None:
            raise NotImplementedError
        return count(pattern)

    def counts_of(self, plan: Plan, epochs: int, parameters: int) -> Counts:
        """Return the `counts` of a plan that trained so many epochs of a model with so many parameters."""
        return self.counts(plan.workers, plan.batches, epochs, parameters, plan.options)

    def pattern(self, workload: Workload) -> Pattern | None:
        """Return who sends what to whom and waits for whom, from which replay makes runs of other sizes: `messages`.

        None without it: replay cannot. PlanError for options that it does not cover.
        """
        complete = replace(workload, options=self.complete(workload.options))
        return None if self.messages is None else self.messages(complete)

    def counts_in(self, run: Recorded, epochs: int) -> Counts:
        """Return the `counts` of a recorded run that trained so many epochs; PlanError where what happened in it
        decides how many messages there are: its message says why."""
        assert run.parameters is not None
        return self.counts_of(run.plan, epochs, run.parameters)

    def protocol(self, run: Recorded) -> Protocol | None:
        """Return what workers make for each other in a recorded run, by which `slslab check` judges it.

        None if neither the pattern's signals have keys nor `exchange` says it; PlanError as `pattern` raises it.
        """
        if self.exchange:
            made: Protocol = resolve_name(self.exchange)(run)
            return made
        plan = run.plan
        # Of an unknown number no size is used.
        parameters = run.parameters or plan.workers
        workload = Workload(plan.workers, plan.batches, plan.epochs, parameters, plan.options)
        # A single worker may have nobody to make anything for.
        pattern, several = self.pattern(workload), self.pattern(replace(workload, workers=max(2, plan.workers)))
        return derive(pattern, run) if pattern and several and several.names_messages else None

    def participant(self, plan: Plan, worker: int) -> str:  # noqa: ARG002 - those that override it use it
        """Return who has a number in the trace; numbers from the plan's workers on are of other functions."""
        return f"worker {worker}"

    def replicas(self) -> Any:
        """Return a subclass of `slslab_workers.training.replicas.Replicas`, all workers in one process, with which
        `slslab accuracy` trains: `learns`, imported now; None without it."""
        return resolve_name(self.learns) if self.learns else None

    def alone(self, plan: Plan) -> Plan:
        """Return the plan of a single worker that does a few of this plan's steps, no two at once: by it CPU time is
        measured alone."""
        return replace(
            plan,
            workers=1,
            # No more images than the plan has.
            batches=min(ALONE_BATCHES, plan.workers * plan.batches),
            epochs=1,
            until_accuracy=None,
            early_stopping=False,
            evaluation=False,
            # One worker has all samples.
            options={**plan.options, **{each.name: each.default for each in self.options if each.name == "partition"}},
        )

    def deployment(self, plan: Plan, cloud: Cloud, progress: Progress) -> Any | None:  # noqa: ARG002
        """Return the `slslab_workers.driver.deployment.Deployment` that `drive` runs, which says what functions it has:
        `slslab export sam` makes a template of it. None by default: it cannot."""
        return None

    def drive(self, plan: Plan, cloud: Cloud, progress: Progress) -> Outcome:
        """Run the plan through AWS's APIs; RunFailed when a worker fails."""

    def run_scripts_alone(self, plan: Plan, cloud: Cloud, parameters: int) -> None:  # noqa: ARG002
        """Have the first tensor database do for a worker of the plan what it does not for that single one, likewise; by
        default nothing."""
        return


def architectures() -> dict[str, Architecture]:
    """Return every registered architecture by name, built in or of another package; none where nothing can train.

    One that cannot be imported is left out: `unusable` says why.
    """
    if find_spec("numpy") is None:
        return {}
    loaded = {entry.name: _load(entry) for entry in _registered(tuple(sys.path))}
    return {name: each for name, each in loaded.items() if not isinstance(each, str)}


def unusable() -> dict[str, str]:
    """Return why registered architectures cannot be imported, by name."""
    loaded = {entry.name: _load(entry) for entry in _registered(tuple(sys.path))}
    return {name: why for name, why in loaded.items() if isinstance(why, str)}


def _load(entry: EntryPoint) -> Architecture | str:
    """Return the architecture of an entry point, or in one sentence why it cannot be imported."""
    try:
        loaded: Architecture = entry.load()
    except Exception as error:  # whatever a stranger's module raises
        return f"{entry.value} cannot be imported: {type(error).__name__}: {error}."
    return loaded


def with_chains() -> tuple[str, ...]:
    """Return the names of the architectures that know their `longest_chain`."""
    return tuple(name for name, registered in architectures().items() if registered.longest_chain)


def on_gpus() -> str:
    """Return the name of the architecture whose instances have GPUs by default."""
    chosen = {name: each.complete({}).get("instance-type", "") for name, each in architectures().items()}
    return next(name for name, instance_type in chosen.items() if Fleet(str(instance_type)).has_gpu)


def title(name: str) -> str:
    """Return what papers call an architecture, or its name."""
    registered = architectures().get(name)
    return (registered and registered.title) or name


@cache
def _registered(_path: tuple[str, ...]) -> list[EntryPoint]:
    """Read the entry points of all packages on the path, which takes milliseconds."""
    return sorted(entry_points(group="slslab.architectures"), key=lambda entry: entry.name)


def read_plan(document: Mapping[str, Any]) -> Plan:
    """Return the plan that a run recorded, complete; PlanError as `Plan.from_document` raises it.

    Plans of schema 1 leave out the options that had their defaults. Today's defaults are still those of the versions
    that wrote them: when one changes, its old value must be filled in here. One option decided otherwise before it
    existed: MLLess divided by the senders before it had `mean-over`, which nothing that reads a plan depends on.
    """
    plan = Plan.from_document(document)
    architecture = architectures().get(plan.architecture)
    return plan if architecture is None else replace(plan, options=architecture.complete(plan.options))


def chosen_options(architecture: str, options: Mapping[str, Value]) -> dict[str, Value]:
    """Return the options that differ from the architecture's defaults; all, if it is not registered."""
    registered = architectures().get(architecture)
    defaults = {} if registered is None else registered.complete({})
    return {name: value for name, value in options.items() if name not in defaults or value != defaults[name]}
