"""The interface of an architecture, which is the whole plugin surface.

A package registers one object with these attributes under the entry point group `slslab.architectures`, as the built-in
architectures do. Importing that object must not import torch.
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

from slslab_workers.models import exchanged_buffers, spec_of
from slslab_workers.option import Option
from slslab_workers.patterns import Chain, Counts, Pattern, Workload, count
from slslab_workers.patterns.messages import Protocol, Recorded, derive
from slslab_workers.plan import Plan, PlanError, Value
from slslab_workers.trace.operations import SERVERS

# Steps of a single worker in each environment while its CPU time is measured.
SOLO_BATCHES = 4
# Former names of methods that a package's architecture may override, and what it has instead.
RENAMED = {"alone": "solo", "run_scripts_alone": "run_solo_scripts", "memory_sizes": "needed_mb of an option"}
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
HOSTS = (TENSOR_HOST, QUEUE_HOST)


@dataclass(frozen=True)
class ResidentPhase:
    """The memory that a phase needs at once, because its functions wait for each other.

    `environments` counts those with the plan's memory size; `beside_mb` adds smaller functions and databases, MB.
    `companions` counts the smaller functions that run all the time.
    """

    name: str
    environments: int
    beside_mb: int = 0
    companions: int = 0


@dataclass(frozen=True)
class Fleet:
    """Long-running machines instead of functions: their EC2 instance type, and the device they compute on.

    `device` is `cuda`, `cpu`, or `auto`, which uses CUDA if there is a GPU.
    """

    instance_type: str
    device: str = "auto"

    @property
    def has_gpu(self) -> bool:
        """Return whether machines of this type have GPUs, as AWS's families G and P do."""
        return self.instance_type.startswith(("g", "p"))


@dataclass(frozen=True)
class Requirements:
    """What a plan needs in addition to Lambda and S3.

    `tensor_databases` counts RedisAI-compatible databases, one per peer. `queue` is the requested kind (`auto`,
    `rabbitmq`, `embedded`), or empty. `channel` is the service through which workers exchange objects (`memcached`,
    `redis`, `dynamodb`), or empty. `instances` are long-running machines, one per worker. A database, the queue and the
    channel's server are billed as the instance types `tensor_host`, `queue_host` and `channel_host`; AWS bills DynamoDB
    by requests.
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
        queue, hosts = str(options["queue"]), (str(options[host.name]) for host in HOSTS)
        return cls(tensor_databases, queue, "", state_machines, None, *hosts)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Instance types of the hosts that AWS would bill for the databases, the queue and the channel."""
        databases = (self.tensor_host,) * self.tensor_databases
        return databases + (self.queue_host,) * bool(self.queue) + (self.channel_host,) * bool(self.channel_host)


@dataclass(frozen=True)
class Outcome:
    """What a finished run computed.

    `loss` is the mean training loss over all minibatches of each epoch, and `accuracy` the test accuracy after it.
    `parameters_sha256` is the fingerprint of rank 0's final float32 parameters in `model.parameters()` order. `updates`
    counts the updates of rank 0's model. A run that trains no model has the fingerprint of its result instead, and
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
    """The run failed because a worker failed."""

    def __init__(self, type_: str, message: str, worker: int | None = None, log_tail: str = "") -> None:
        super().__init__(message)
        self.type = type_
        self.message = message
        self.worker = worker
        self.log_tail = log_tail


class Progress(Interface):
    """Receives the progress of a run in its stages: load, upload, deploy, train, evaluate."""

    def report(self, stage: str, done: int, total: int) -> None:
        """Report that `done` of this stage's `total` units are done."""


class Instances(Interface):
    """Instances that have been launched."""

    def check(self) -> None:
        """Raise RunFailed if an instance has failed, and stop the others."""

    def join(self) -> None:
        """Wait until all instances have finished; raise RunFailed as soon as one fails."""


class InstanceLauncher(Interface):
    """Starts long-running instances of the fleet that the architecture requires, billed from launch to end."""

    def launch(
        self, module: str, events: Sequence[Mapping[str, Any]], variables: Mapping[str, str]
    ) -> AbstractContextManager[Instances]:
        """Launch one instance per event, with ranks from 0 and `variables` in their environment.

        Each runs `python -m module` with its event as JSON on standard input, stores its results, and reports a failure
        by its exit code. Instances that still run at the end of the context are stopped.
        """


@dataclass(frozen=True)
class Deployed:
    """What a template created and the driver must not delete: functions, bucket and state machine (its ARN).

    The functions are named as a driver names them; `function` is the workers' function.
    """

    function: str
    bucket: str
    machine: str


@dataclass(frozen=True)
class Cloud:
    """AWS as the driver sees it: boto3 clients by service name, and the function that takes the driver's trace events.

    `environment` is added to the functions' environment: addresses of the parts of the stack that are not AWS services.
    `launcher` is set if the architecture's requirements name instances. `deployed` is set if the driver should use
    existing functions, bucket and state machine instead of creating them.
    """

    client: Callable[[str], Any]
    emit: Callable[[dict[str, Any]], None]
    environment: Mapping[str, str] = field(default_factory=dict)
    launcher: InstanceLauncher | None = None
    deployed: Deployed | None = None


class Architecture(Interface):
    """The object that a package registers. Inherit from this class to get the defaults."""

    name: str
    summary: str
    # Its name in papers, if that differs from `name`; and the papers that describe it.
    title: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    # The number of its colour on pages, 1 to 8, where names contain the first word of `title`. Empty: by its row.
    colour: ClassVar[str] = ""
    # Other spellings of --workers, if its authors call workers something else.
    workers_also: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    # Options that it no longer has, each with the one value that earlier plans may give: what it does anyway.
    former: ClassVar[Mapping[str, Value]] = NO_OPTIONS
    # Makes what `pattern` returns, for a workload with all options. None: replay doesn't support it.
    messages: ClassVar[Callable[..., Pattern] | None] = None
    # "module:function" that returns a recorded run's `protocol`, if the keys of `messages` don't define it.
    exchange: ClassVar[str] = ""
    # The longest chain of puts and gets in a round, from the number of workers. None if the formula isn't known.
    longest_chain: ClassVar[Callable[..., Chain] | None] = None
    # "module:class" that `replicas` returns. Empty: `slslab accuracy` doesn't support it.
    learns: ClassVar[str] = ""

    def complete(self, options: Mapping[str, Value]) -> dict[str, Value]:
        """Return these options without former ones, and the defaults of the architecture's other options."""
        defaults = {option.name: option.default for option in self.options}
        return defaults | {name: value for name, value in dict(options).items() if self.former.get(name) != value}

    def requirements(self, plan: Plan) -> Requirements:  # noqa: ARG002 - overriding methods use it
        """Return what the plan needs in addition to Lambda and S3; raise PlanError for a plan that can't run."""
        return Requirements()

    def resident_set(self, plan: Plan) -> tuple[ResidentPhase, ...]:
        """Return the environments that must be in memory together in each phase; by default all workers at once."""
        return (ResidentPhase(self.name, plan.workers),)

    def concurrency(self, plan: Plan) -> int:
        """Return how many functions the plan needs at once; by default the most of a phase."""
        return max(phase.environments + phase.companions for phase in self.resident_set(plan))

    def counts(
        self,
        workers: int,
        batches: int,
        epochs: int,
        parameters: int,
        options: Mapping[str, Value] = NO_OPTIONS,
        **more: Any,
    ) -> Counts:
        """Return the messages and bytes of the training protocol over all epochs.

        Missing options have their defaults; `more` are other fields of the workload. The counts come from the pattern.
        An architecture without a pattern must override this method, or it raises NotImplementedError.
        """
        patterns = self.counted(Workload(workers, batches, epochs, parameters, options, **more))
        if not patterns:
            raise NotImplementedError
        return count(*patterns)

    def counted(self, workload: Workload) -> tuple[Pattern, ...]:
        """Return the patterns that `counts` adds up: `pattern`'s, if there is one."""
        pattern = self.pattern(workload)
        return () if pattern is None else (pattern,)

    def counts_of(self, plan: Plan, epochs: int, parameters: int) -> Counts:
        """Return the `counts` of a plan that trained a model of this size for this number of epochs."""
        workload = vars(workload_of(plan, parameters)) | {"epochs": epochs}
        if self.messages is None:
            workload = {name: workload[name] for name in ("workers", "batches", "epochs", "parameters", "options")}
        return self.counts(**workload)

    def pattern(self, workload: Workload) -> Pattern | None:
        """Return the pattern of messages between workers, from which replay predicts runs of other sizes.

        `messages` makes it; without it return None, and replay doesn't support the architecture. Raise PlanError for
        options that the pattern doesn't cover.
        """
        complete = replace(workload, options=self.complete(workload.options))
        return None if self.messages is None else self.messages(complete)

    def counts_in(self, run: Recorded, epochs: int) -> Counts:
        """Return the `counts` of a recorded run that trained this number of epochs.

        Raise PlanError, with the reason, if the number of messages depends on what happened in the run.
        """
        assert run.parameters is not None
        return self.counts_of(run.plan, epochs, run.parameters)

    def protocol(self, run: Recorded) -> Protocol | None:
        """Return the objects that workers exchange in a recorded run, against which `slslab check` compares its trace.

        Return None without `exchange` if the pattern's signals have no keys. Raise PlanError as `pattern` does.
        """
        if self.exchange:
            made: Protocol = resolve_name(self.exchange)(run)
            return made
        plan = run.plan
        # If the number is unknown, no size is used.
        parameters = (run.parameters or plan.workers) + exchanged_buffers(plan)
        workload = Workload(plan.workers, plan.batches, plan.epochs, parameters, plan.options)
        pattern = self.pattern(workload)
        # A single worker may have no partner for its messages.
        several = pattern if plan.workers > 1 else self.pattern(replace(workload, workers=2))
        return derive(pattern, run) if pattern and several and several.names_messages else None

    def participant(self, plan: Plan, worker: int) -> str:  # noqa: ARG002 - overriding methods use it
        """Return the name of a worker number in the trace. Numbers above the workers' ranks are other functions."""
        return f"worker {worker}"

    def replicas(self) -> Any:
        """Import `learns` and return it; None if it is empty.

        It is a subclass of `slslab_workers.training.replicas.Replicas`, with which `slslab accuracy` trains all workers
        in one process.
        """
        return resolve_name(self.learns) if self.learns else None

    def solo(self, plan: Plan) -> Plan:
        """Return the plan of a single worker that does a few of this plan's steps, one after the other.

        It measures CPU time while no other worker runs.
        """
        return replace(
            plan,
            workers=1,
            # No more images than the plan has.
            batches=min(SOLO_BATCHES, plan.workers * plan.batches),
            epochs=1,
            until_accuracy=None,
            early_stopping=False,
            evaluation=False,
            # One worker has all samples.
            options={**plan.options, **{each.name: each.default for each in self.options if each.name == "partition"}},
        )

    def deployment(self, plan: Plan, cloud: Cloud, progress: Progress) -> Any:  # noqa: ARG002
        """Return the `slslab_workers.driver.deployment.Deployment` that `drive` runs, with its functions.

        `slslab export sam` makes a template from it. By default return None: the export doesn't support it.
        """
        return None

    def drive(self, plan: Plan, cloud: Cloud, progress: Progress) -> Outcome:
        """Run the plan, by default its deployment, through AWS's APIs; raise RunFailed if a worker fails."""
        deployment = self.deployment(plan, cloud, progress)
        if deployment is None:
            raise PlanError(f"The architecture {self.name} has nothing to run.", "override drive, or set deploys.")
        outcome: Outcome = deployment.run()
        return outcome

    def run_solo_scripts(self, plan: Plan, cloud: Cloud, parameters: int) -> None:  # noqa: ARG002
        """Run the plan's scripts that `solo` leaves out on the first tensor database, while nothing else runs.

        By default, do nothing.
        """
        return


def workload_of(plan: Plan, parameters: int) -> Workload:
    """Return the workload of a plan with a model of this number of parameters, among which exchanged buffers count."""
    known = spec_of(plan)
    return Workload(
        plan.workers,
        plan.batches,
        plan.epochs,
        parameters + exchanged_buffers(plan),
        plan.options,
        batch_size=plan.batch_size,
        tensors=known.tensors,
        buffers=known.buffers,
        evaluation=plan.evaluation,
    )


def architectures() -> dict[str, Architecture]:
    """Return every registered architecture by name, built in or from another package; empty if NumPy is missing.

    Architectures that can't be used are left out: `unusable` gives the reasons.
    """
    if find_spec("numpy") is None:
        return {}
    loaded = {entry.name: _load(entry) for entry in _registered(tuple(sys.path))}
    return {name: each for name, each in loaded.items() if not isinstance(each, str)}


def unusable() -> dict[str, str]:
    """Return the names of the architectures that can't be used, with the reasons."""
    loaded = {entry.name: _load(entry) for entry in _registered(tuple(sys.path))}
    return {name: why for name, why in loaded.items() if isinstance(why, str)}


def _load(entry: EntryPoint) -> Architecture | str:
    """Return the architecture of an entry point, or a sentence that says why it can't be used."""
    try:
        loaded: Architecture = entry.load()
    except Exception as error:  # another package's module may raise anything
        return f"{entry.value} cannot be imported: {type(error).__name__}: {error}."
    for former, name in RENAMED.items():
        if hasattr(loaded, former):
            return f"{entry.value} defines {former}, which is now {name}."
    return loaded


def with_chains() -> tuple[str, ...]:
    """Return the names of the architectures that have a `longest_chain`."""
    return tuple(name for name, registered in architectures().items() if registered.longest_chain)


def on_gpus() -> str:
    """Return the name of the architecture that uses GPU instances by default."""
    chosen = {name: each.complete({}).get("instance-type", "") for name, each in architectures().items()}
    return next(name for name, instance_type in chosen.items() if Fleet(str(instance_type)).has_gpu)


def title(name: str) -> str:
    """Return the architecture's name in papers, or else its own name."""
    registered = architectures().get(name)
    return (registered and registered.title) or name


@cache
def _registered(_path: tuple[str, ...]) -> list[EntryPoint]:
    """Read the entry points of all packages on the path; cached, because it takes milliseconds."""
    return sorted(entry_points(group="slslab.architectures"), key=lambda entry: entry.name)


# Options that schema 2 didn't have at first. Their defaults are what happened before.
LATER_OPTIONS = ("partition", "buffers")


def read_plan(document: Mapping[str, Any]) -> Plan:
    """Return the plan that a run recorded, with all options; raise PlanError as `Plan.from_document` does.

    Plans of schema 1 leave out options that had their defaults. The defaults haven't changed since: when one does, fill
    in its old value here. There is one exception: before the option `mean-over`, sums were divided by the senders.
    No code that reads a plan depends on it.
    """
    plan = Plan.from_document(document)
    architecture = architectures().get(plan.architecture)
    return plan if architecture is None else replace(plan, options=architecture.complete(plan.options))


def chosen_options(architecture: str, options: Mapping[str, Value]) -> dict[str, Value]:
    """Return the options that differ from the architecture's defaults; all options if it isn't registered."""
    registered = architectures().get(architecture)
    defaults = {} if registered is None else {**registered.former, **registered.complete({})}
    return {name: value for name, value in options.items() if name not in defaults or value != defaults[name]}
