"""The shape of a run's document, run.json: what a run leaves at its end, and `--json` prints. It has schema 2.

Documents of schema 1, which earlier versions left, are read as of schema 2: what they call `modelled` is `lambda`, and
states no error."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, TypeAdapter

# Those of `typing` can be checked from Python 3.12 on.
from typing_extensions import TypedDict

from slslab.run.bill import Cost, Decimals
from slslab.run.faults import Injected
from slslab.run.records import check_metered
from slslab_workers.plan import Plan, PlanError

SCHEMA: Literal[2] = 2


def _check_plan(document: dict[str, Any]) -> dict[str, Any]:
    try:
        Plan.from_document(document)
    except PlanError as error:
        raise ValueError(error.message) from error
    return document


def _check_instance(record: dict[str, Any]) -> dict[str, Any]:
    check_metered(record, "instance")
    return record


Instance = Annotated[dict[str, Any], AfterValidator(_check_instance)]
PlanDocument = Annotated[dict[str, Any], AfterValidator(_check_plan)]

# Bytes of bodies that were put into stores or sent to peers, and that were got from them.
Moved = TypedDict("Moved", {"in": int, "out": int})


class Failure(TypedDict):
    """Why a run failed; worker, epoch and step where they are known, and a sentence on what that worker did last."""

    type: str
    message: str
    hint: str
    worker: int | None
    epoch: int | None
    step: int | None
    last_activity: NotRequired[str]


class ClusterNode(TypedDict):
    """A node that had environments, with the memory that it gave them; `clock_error_ms` is by how much times of its
    events may be wrong beside those of other nodes."""

    name: str
    cores: int
    memory_mb: int
    clock_error_ms: float
    lost: bool


class Host(TypedDict):
    """The host that made the run, or the nodes of the cluster together; None for what is not known of a run whose
    command was killed.

    Runs before 0.2 do not tell how much of their durations is uncertain. A host that was not that of the command, but a
    node of a cluster, has its name and processors. `stolen_share` is the share of the processors' work time in which
    the hypervisor ran other guests; the Lambda clock's durations have it.
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
    """The functions' code and the layer that they share, against Lambda's limit."""

    unzipped_bytes: int
    layer: str | None
    layer_bytes: int
    limit_bytes: int
    needs_container_image: bool


class Seconds(TypedDict):
    """Wall time of the run on its host, and of its functions from the first to the last."""

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
    """What one worker did; rank -1 for what belongs to none."""

    worker: int
    phases: Phases
    bytes: Moved
    billed_seconds: float
    invocations: int
    peak_memory_mb: int
    host_delay_seconds: float


class Spread(TypedDict):
    """Least, median and greatest of a figure of the REPORT lines."""

    min: float
    median: float
    max: float


class Reports(TypedDict):
    """The REPORT lines in short; None for a figure that no line has."""

    endings: dict[str, int]
    duration_ms: Spread | None
    init_ms: Spread | None
    billed_ms: Spread | None
    max_memory_mb: Spread | None


class Deviation(TypedDict):
    """Mean and greatest absolute error, as shares."""

    mean: float
    worst: float


class StatedError(TypedDict):
    """How far modelled figures are off, by the replay's error and the profile's, and when the replay's was measured.

    That of billed seconds is the cost's, too.
    """

    seconds: Deviation
    billed_seconds: Deviation
    date: str


class Range(TypedDict):
    """The ends of an 80 % range."""

    low: float
    high: float


class Deviations(TypedDict):
    """Standard deviations of a figure's logarithm, by source: those that all figures share, and its own."""

    shared: dict[str, float]
    own: dict[str, float]


class ModelledProfile(TypedDict):
    """Name and date of the profile that a run is modelled by."""

    name: str
    date: str


class Parts(TypedDict):
    """Seconds of a modelled worker by what they are spent on."""

    init: float
    compute: float
    transfer: float
    waiting: float


class ModelledWorker(TypedDict):
    """One worker's seconds, modelled."""

    worker: int
    seconds: float
    billed_seconds: float
    parts: Parts


class MemorySize(TypedDict):
    """What the run would take and cost with this memory size of its training functions, modelled."""

    memory_mb: int
    seconds: float
    cost: Decimals


class Crossing(TypedDict):
    """A limit that a function kept on the host that recorded a run (or exceeded there) and may not on Lambda (or may).

    `limit` is that of `init` or the `timeout`; `low` and `high` are the 80 % range, s, of the function's longest init
    or invocation on Lambda.
    """

    function: str
    limit: Literal["init", "timeout"]
    limit_seconds: float
    kept_here: bool
    low: float
    high: float


class Modelled(TypedDict):
    """What the run takes and costs on Lambda: its trace replayed (`slslab_lab.replay.modelled`).

    `ranges` are 80 % ranges of seconds, billed seconds and cost, and `uncertainty` what they are made of
    (`slslab_lab.replay.ranges`). Older documents have an `error` instead, None in those of schema 1. `memory_sizes` are
    those that the functions fit into, the run's own among them. Documents before 0.2 do not have them. `limits` are
    Lambda's that the run may be on the other side of there (`slslab_lab.replay.limits`).
    """

    status: Literal["modelled"]
    profile: ModelledProfile
    seconds: float
    billed_seconds: float
    error: NotRequired[StatedError | None]
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
    """Why a trace cannot be replayed."""

    status: Literal["not modelled"]
    reason: str


def not_modelled(reason: str) -> NotModelled:
    """Return the modelled part of the document of a run that cannot be replayed."""
    return {"status": "not modelled", "reason": reason}


# What a reader came for: the run on Lambda.
OnLambda = TypedDict("OnLambda", {"lambda": Modelled | NotModelled})


class Quartiles(TypedDict):
    """Lower quartile, median and upper quartile."""

    lower: float
    median: float
    upper: float


class AloneKind(TypedDict):
    """What steps of a kind took alone, of which `count` were measured.

    `function` is the end of its name, empty for the workers', `*` for any; that of a script is its name. `resource`
    is how gradients are combined. `first` are the first ones of their environments. `bytes` are those that a step went
    over, if its CPU time grows with them.
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
    """CPU seconds measured alone before the run, in so many wall seconds, or `kept` from before another run.

    `quiet` tells whether strangers left the host alone meanwhile: `probe_ratio` is how many times longer than
    undisturbed the same work took, `stalled_share` the share of the time in which anything waited for processors,
    memory or disks (None where the kernel does not tell), `delayed_share` that in which the worker was held up, and
    `stolen_share` the share of the processors' work time in which the hypervisor ran other guests. `priority` tells
    whether the worker ran at the highest priority.
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
    """Why CPU seconds could not be measured alone; replay takes the run's own."""

    status: Literal["not measured"]
    reason: str


class Join(TypedDict):
    """A peer that was not there at the beginning, and the epoch that it joined in."""

    worker: int
    epoch: int | None


class Death(TypedDict):
    """A peer that failed, when (s since 1970), and who found it."""

    worker: int
    epoch: int
    time: float
    found_by: int | str


class ScaleIn(TypedDict):
    """A decision of MLLess's auto-tuner."""

    step: int
    workers: int
    removed: int | None
    knee: int | None
    r: float | None
    loss_base: float | None
    loss_now: float | None


class Late(TypedDict):
    """A peer of SPIRT's that came too late to an epoch's barrier, and the peer that went on without its average."""

    worker: int
    epoch: int
    left_out_by: int


class FailedFunction(TypedDict):
    """A function of KubeML's that failed, and was left out of the merges from then on."""

    epoch: int
    function: int
    error: str


class Details(TypedDict, total=False):
    """What an architecture tells of its own; others may tell more. `shares` counts the samples of each class that each
    worker has, if the partition is uneven."""

    joins: list[Join]
    deaths: list[Death]
    late: list[Late]
    scale_in: list[ScaleIn]
    failed_functions: list[FailedFunction]
    shares: list[list[int]]


class Page(TypedDict):
    """The run's page: its file, or why there is none."""

    file: str | None
    error: str | None


class Totals(TypedDict):
    """The figures that trace, invocations and instances decide.

    `peak_memory_limit_mb` is the memory size of the function that used most; runs before 0.2 do not tell, and instances
    have none.
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
    counts: dict[str, int]
    bytes: Moved
    overheads: Traffic
    orchestration_seconds: float | None
    per_worker: list[Worker]
    reports: Reports


class RunDocument(Totals, OnLambda):
    """Everything that is known of a run that does not go on any more.

    `plan` is the plan's own document; what only a driver or a running system can tell is None for a run whose command
    was killed. Runs before 0.2 that were interrupted say failed. `lambda` has a `status`, and either a `reason` or
    figures; all others are those of this host, and `cost` is what its usage would cost.
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
    seconds: Seconds
    # None if CPU seconds are the run's own (`record` of the plan).
    alone: NotRequired[Alone | NotAlone | None]
    # The host's processor next to Lambda's (`slslab.predict.processor`), None if it was not measured.
    processor: NotRequired[dict[str, Any] | None]
    # What each fault of the plan did; runs before 0.2 have none.
    faults: NotRequired[list[Injected]]
    cost: Cost
    trace_torn: bool


class StoredDocument(RunDocument):
    """A document in a run's directory; `files` are the SHA-256 of its other files by name, which older ones lack."""

    files: NotRequired[dict[str, str]]


class EndedDocument(StoredDocument):
    """The document of a run that came to its end, done or failed, and so has a page."""

    report: Page


_CHECKED: TypeAdapter[StoredDocument] = TypeAdapter(StoredDocument)


def check_document(document: Any) -> dict[str, Any]:
    """Return the document of a run, one of schema 1 as of schema 2; ValueError if it has not the shape of one."""
    if isinstance(document, dict) and document.get("schema") == 1:
        document = _from_schema_1(document)
    _CHECKED.validate_python(document, strict=True)
    return dict(document)


def _from_schema_1(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document of schema 1 as of schema 2; what is not of the shape of either stays as it is."""
    before = not_modelled("It was recorded before runs were modelled; `slslab replay` models it.")
    replayed = document.get("modelled", before)
    if isinstance(replayed, dict) and replayed.get("status") == "modelled":
        replayed = {**replayed, "error": None}
    seconds = document.get("seconds")
    if isinstance(seconds, dict):
        seconds = {name: value for name, value in seconds.items() if name != "modelled"}
    kept = {name: value for name, value in document.items() if name != "modelled"}
    return {**kept, "schema": SCHEMA, "seconds": seconds, "lambda": replayed}
