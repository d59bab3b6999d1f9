"""The schema (2) of a run's document, run.json, which a run writes at its end and `--json` prints.

`Run.describe` makes the document of a run that has ended.

Documents with schema 1, from earlier versions, are converted: their `modelled` becomes `lambda`."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, TypeAdapter

# pydantic can check TypedDicts from `typing` only from Python 3.12 on.
from typing_extensions import TypedDict

from slslab.run.bill import Cost, Dated, Decimals
from slslab.run.containers import Gpu
from slslab.run.faults import Injected
from slslab.run.records import check_metered
from slslab_workers.plan import Plan

SCHEMA: Literal[2] = 2


def _check_plan(document: dict[str, Any]) -> dict[str, Any]:
    Plan.from_document(document)
    return document


def _check_instance(record: dict[str, Any]) -> dict[str, Any]:
    check_metered(record, "instance")
    return record


Instance = Annotated[dict[str, Any], AfterValidator(_check_instance)]
PlanDocument = Annotated[dict[str, Any], AfterValidator(_check_plan)]

# Bytes of bodies put into stores or sent to peers (in), and got from them (out).
Moved = TypedDict("Moved", {"in": int, "out": int})


class Failure(TypedDict):
    """Why a run failed; worker, epoch and step if known, and a sentence on what that worker did last."""

    type: str
    message: str
    hint: str
    worker: int | None
    epoch: int | None
    step: int | None
    last_activity: NotRequired[str]


class ClusterNode(TypedDict):
    """A node that ran environments, and the memory that it gave them; `clock_error_ms` is by how much the times of
    its events may be off compared with other nodes."""

    name: str
    cores: int
    memory_mb: int
    clock_error_ms: float
    lost: bool


class Host(TypedDict):
    """The host that made the run, or all nodes of the cluster together; None for figures that were lost because the
    command was killed.

    Runs before 0.2 don't record how much of their durations is uncertain. A cluster node other than the command's host
    has its name and processors. `stolen_share` is the share of the processors' work time in which the hypervisor ran
    other guests; durations on the Lambda clock include it.
    """

    cores: int | None
    cpu_share_enforced: bool | None
    delay_seconds: float
    oversubscribed: bool
    uncertain_seconds: NotRequired[float]
    uncertain_invocations: NotRequired[int]
    own_cpu_seconds: dict[str, float] | None
    nodes: NotRequired[list[ClusterNode]]
    name: NotRequired[str]
    processors: NotRequired[str]
    stolen_share: NotRequired[float]


class Package(TypedDict):
    """The size of the functions' code and their shared layer, and Lambda's limit."""

    unzipped_bytes: int
    layer: str | None
    layer_bytes: int
    limit_bytes: int
    needs_container_image: bool


class Seconds(TypedDict):
    """Wall time of the run on its host, and from its first function's start to its last one's end."""

    measured: float
    span: NotRequired[float]


class Phases(TypedDict):
    """Seconds by phase."""

    init: float
    fetch: float
    compute: float
    synchronise: float
    update: float
    wait: float
    other: float


class Traffic(TypedDict):
    """Requests by operation, and the bytes that they moved."""

    counts: dict[str, int]
    bytes: Moved


class Worker(TypedDict):
    """What one worker did; rank -1 is everything outside workers."""

    worker: int
    phases: Phases
    bytes: Moved
    billed_seconds: float
    invocations: int
    peak_memory_mb: int
    host_delay_seconds: float


class Spread(TypedDict):
    """Minimum, median and maximum of a figure in the REPORT lines."""

    min: float
    median: float
    max: float


class Reports(TypedDict):
    """A summary of the REPORT lines; None for a figure that no line has, and no `max_gpu_memory_mb` without a GPU."""

    endings: dict[str, int]
    duration_ms: Spread | None
    init_ms: Spread | None
    billed_ms: Spread | None
    max_memory_mb: Spread | None
    max_gpu_memory_mb: NotRequired[Spread | None]


class Range(TypedDict):
    """The ends of an 80 % range."""

    low: float
    high: float


class Deviations(TypedDict):
    """Standard deviations of a figure's logarithm, by source: shared by all figures, and its own."""

    shared: dict[str, float]
    own: dict[str, float]


class Parts(TypedDict):
    """Seconds of a modelled worker, by activity."""

    init: float
    compute: float
    transfer: float
    waiting: float


class ModelledWorker(TypedDict):
    """One worker's modelled seconds."""

    worker: int
    seconds: float
    billed_seconds: float
    parts: Parts


class MemorySize(TypedDict):
    """The run's modelled time and cost with this memory size for its training functions."""

    memory_mb: int
    seconds: float
    cost: Decimals


class Crossing(Range):
    """A limit that a function kept on the recording host but may exceed on Lambda, or the other way round.

    `limit` is the limit of `init` or the `timeout`. `low` and `high` are the 80 % range, s, of the function's longest
    init or invocation on Lambda.
    """

    function: str
    limit: Literal["init", "timeout"]
    limit_seconds: float
    kept_here: bool


class Modelled(TypedDict):
    """The run's time and cost on Lambda, from a replay of its trace (`slslab_lab.replay.modelled`).

    `ranges` are 80 % ranges of seconds, billed seconds and cost, and `uncertainty` their sources
    (`slslab_lab.replay.ranges`); older documents lack them. `memory_sizes` are all sizes that the functions fit into,
    including the run's own; documents before 0.2 lack them. `limits` are Lambda's limits that the run may cross on
    Lambda but not here, or the other way round (`slslab_lab.replay.modelled.crossings`).
    """

    status: Literal["modelled"]
    profile: Dated
    seconds: float
    billed_seconds: float
    ranges: NotRequired[dict[str, Range]]
    uncertainty: NotRequired[dict[str, Deviations]]
    gb_seconds: Decimals
    cold_starts: int
    waiting_share: float
    critical_path: str
    per_worker: list[ModelledWorker]
    cost: Cost
    memory_sizes: NotRequired[list[MemorySize]]
    limits: NotRequired[list[Crossing]]


class NotModelled(TypedDict):
    """Why a trace can't be replayed."""

    status: Literal["not modelled"]
    reason: str


def not_modelled(reason: str) -> NotModelled:
    """Return the `lambda` part of the document of a run that can't be replayed."""
    return {"status": "not modelled", "reason": reason}


OnLambda = TypedDict("OnLambda", {"lambda": Modelled | NotModelled})


class Quartiles(TypedDict):
    """Lower quartile, median and upper quartile."""

    lower: float
    median: float
    upper: float


class AloneKind(TypedDict):
    """CPU seconds of a kind of step, measured alone in `count` steps.

    `function` is the end of the function's name (empty for workers, `*` for any) or a script's name. `resource` is how
    gradients are combined. `first` marks the first step of an environment. `bytes` are the bytes that a step
    processed, if its CPU time grows with them.
    """

    function: str
    op: str
    phase: str
    resource: str
    first: bool
    bytes: int
    count: int
    cpu_seconds: Quartiles


class Alone(TypedDict):
    """CPU seconds measured alone before the run, which took `seconds` of wall time, or `kept` from an earlier run.

    `quiet` tells whether the host was otherwise idle: `probe_ratio` is the time of the same work compared with an idle
    host, `stalled_share` the share of time in which something waited for processors, memory or disks (None if the
    kernel doesn't tell), `delayed_share` the share in which the worker was delayed, and `stolen_share` the share of the
    processors' work time in which the hypervisor ran other guests. `priority` is the worker's scheduling priority.
    """

    status: Literal["measured"]
    kept: NotRequired[bool]
    seconds: float
    priority: NotRequired[Literal["high", "normal"]]
    quiet: bool
    probe_ratio: float
    stalled_share: float | None
    delayed_share: float
    stolen_share: NotRequired[float]
    kinds: list[AloneKind]


class NotAlone(TypedDict):
    """Why CPU seconds couldn't be measured alone; replay uses the run's own."""

    status: Literal["not measured"]
    reason: str


class Join(TypedDict):
    """A peer that joined after the start, and its first epoch."""

    worker: int
    epoch: int | None


class Failed(TypedDict):
    """A peer or function that failed, or was left out, in an epoch; the architecture tells more of it."""

    epoch: int


class Details(TypedDict, total=False):
    """What an architecture tells of its own, as far as other code reads it; `late` are peers that others left out of an
    epoch. `shares` counts the samples of each class that each worker has, if the partition is uneven. `buffers_equal`
    tells whether all workers' buffers are equal in the end."""

    joins: list[Join]
    deaths: list[Failed]
    late: list[Failed]
    failed_functions: list[Failed]
    shares: list[list[int]]
    buffers_equal: bool


class Page(TypedDict):
    """The run's page: its file, or why it lacks one."""

    file: str | None
    error: str | None


class Totals(Traffic):
    """Figures computed from trace, invocations and instances.

    `peak_memory_limit_mb` is the memory size of the function with the highest peak; runs before 0.2 don't record it,
    and it is None for instances.
    """

    billed_seconds: float
    gb_seconds: Decimals
    invocations: int
    cold_starts: int
    peak_memory_mb: int
    peak_memory_limit_mb: NotRequired[int | None]
    instances: list[Instance]
    device: str | None
    phases: Phases
    overheads: Traffic
    orchestration_seconds: float | None
    per_worker: list[Worker]
    reports: Reports


class RunDocument(Totals, OnLambda):
    """Everything known about a run that has ended.

    `plan` is the plan's own document. If the command was killed, it lacks figures from the driver or the running system
    (None). In runs before 0.2, interrupted ones have the status failed. `lambda` has a `status`, and either a `reason`
    or figures. All other figures are this host's, and `cost` is the price of its usage. `report` is the page of a run
    that is done or failed; a killed one lacks it. `files` has the SHA-256 of its directory's files by name; runs before
    0.2 lack it.
    """

    schema: Literal[2]
    run: str
    status: Literal["done", "failed", "interrupted"]
    error: Failure | None
    architecture: str
    model: str
    dataset: str
    workers: int
    batch_size: int
    batches: int
    epochs: int
    memory_mb: int
    seed: int
    plan: PlanDocument
    parameters: int | None
    gradient_bytes: int | None
    parameters_sha256: str | None
    replicas_equal: bool | None
    epochs_trained: int | None
    updates: int | None
    threads: int | None
    details: Details
    torch: str | None
    loss: list[float]
    accuracy: list[float]
    host: Host
    stack: dict[str, str]
    environment: str
    confinement: str | None
    package: Package | None
    # The host's packages that functions imported, by function; runs before 0.3 lack it.
    host_imports: NotRequired[dict[str, list[str]]]
    gpu: NotRequired[Gpu]
    seconds: Seconds
    # None if the run's own CPU seconds are used (`record` in the plan).
    alone: NotRequired[Alone | NotAlone | None]
    # The host's processor compared with Lambda's (`slslab.predict.processor`), None if it wasn't measured.
    processor: NotRequired[dict[str, Any] | None]
    # What each fault in the plan did; runs before 0.2 lack it.
    faults: NotRequired[list[Injected]]
    cost: Cost
    trace_torn: bool
    report: NotRequired[Page]
    files: NotRequired[dict[str, str]]


_CHECKED: TypeAdapter[RunDocument] = TypeAdapter(RunDocument)


def check_document(document: Any) -> dict[str, Any]:
    """Return a run's document, converted to schema 2 if necessary; ValueError if it is invalid."""
    if isinstance(document, dict) and document.get("schema") == 1:
        document = _from_schema_1(document)
    _CHECKED.validate_python(document, strict=True)
    return dict(document)


def _from_schema_1(document: dict[str, Any]) -> dict[str, Any]:
    before = not_modelled("It was recorded by a version without modelling; run `slslab replay`.")
    seconds = document.get("seconds")
    if isinstance(seconds, dict):
        seconds = {name: value for name, value in seconds.items() if name != "modelled"}
    kept = {name: value for name, value in document.items() if name != "modelled"}
    return {**kept, "schema": SCHEMA, "seconds": seconds, "lambda": document.get("modelled", before)}
