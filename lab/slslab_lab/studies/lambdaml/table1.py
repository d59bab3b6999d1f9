"""Table 1 of LambdaML reproduced: seconds and cost of a training job with other channels, over those with S3.

A row's job is replayed with the paper's number of workers, from this project's recorded rounds of 2 workers with each
channel. Replays don't contain the start of an ElastiCache node, so it is added here."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

from slslab.predict.environment import NS
from slslab.predict.profiles.profile import Profile
from slslab.report.formats import percent
from slslab.run.bill import Book, Usage, compute_bill
from slslab.run.metrics import grouped
from slslab.run.run import Run
from slslab_lab.papers.paper import Row
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.measured import Measured, read_measured
from slslab_lab.replay.outcome import outcome
from slslab_lab.replay.programs.scaling import generate
from slslab_lab.replay.whatif import over_timeout
from slslab_lab.runs.planning import architectures, make_plan
from slslab_lab.studies import committed
from slslab_lab.studies.documents import AGREES, Cell, Estimate, ReproducedRow, make_document
from slslab_lab.studies.minibatches import mean_of, ratio_of
from slslab_lab.studies.recording import Recording, channel_options, make_missing, small_run
from slslab_lab.studies.study import Setup
from slslab_workers.channels.choice import PARAMETER_SERVER, TRACED
from slslab_workers.plan import PlanError, Value
from slslab_workers.trace.operations import SERVERS
from slslab_workers.training.algorithms import ALGORITHM

TABLE = "table1"
TITLES = {"memcached": "Memcached", "dynamodb": "DynamoDB", "vm_ps": "VM parameter server"}
RUNNING, STARTED, WAITING = "node running", "node started first", "functions wait for the node"
NO_NODE, PUBLISHED = "no node", "not modelled"
SLOWDOWN, COST = FIGURES = ("slowdown", "cost")
SAME_SIDE = "same side"
TIMEOUT_S = 900
PATTERN, BASE = "allreduce", "s3"
# The table's columns begin with these names; the values are those of --channel.
COLUMNS = {"memcached": "memcached", "dynamodb": "dynamodb", "vm_ps": PARAMETER_SERVER}
CHANNELS = (BASE, *COLUMNS.values())
RECORDED_WORKERS, ROUNDS, MEMORY_MB = 2, 5, 3008
# HIGGS has 11 M rows; the paper trains with 90 % of them.
HIGGS_ROWS, CIFAR_IMAGES = 9_900_000, 50_000
REQUESTS = (".put", ".get", ".push", ".pull")
# The measured rounds count as a sample of this many.
MANY = 1_000_000


@dataclass(frozen=True)
class Job:
    """A training job of the table; its epochs are the defaults of LambdaML's code."""

    name: str
    model: str
    dataset: str
    samples: int
    batch_size: int
    epochs: int
    options: Mapping[str, Value] = field(default_factory=dict)

    @property
    def algorithm(self) -> str:
        """Return the algorithm's name."""
        return str(ALGORITHM.of(self.options)).upper()

    def batches(self, workers: int) -> int:
        """Return the minibatches of a worker's share in an epoch; the last one may not be full."""
        return -(-self.samples // (workers * self.batch_size))

    def recording(self, channel: str) -> Recording:
        """Return its recording with a channel, with the same number of rounds for each algorithm."""
        batches, epochs = (1, ROUNDS) if self.algorithm == "EM" else (ROUNDS, 1)
        values = small_run(self.model, self.dataset, RECORDED_WORKERS, self.batch_size, batches, epochs, MEMORY_MB)
        return Recording(f"{self.name}-{channel}", PATTERN, values, {**self.options, **channel_options(channel)})


def _kmeans(clusters: int) -> Job:
    options: Mapping[str, Value] = {"algorithm": "em", "clusters": clusters}
    return Job(f"kmeans-{clusters}", "kmeans", "higgs-shaped", HIGGS_ROWS, 100_000, 10, options)


# By the model of a row and its clusters.
JOBS = {
    ("LR", 0): Job("lr", "lr", "higgs-shaped", HIGGS_ROWS, 100_000, 2),
    ("KMeans", 10): _kmeans(10),
    ("KMeans", 1000): _kmeans(1000),
    ("MobileNet", 0): Job("mobilenet", "mobilenet", "synthetic", CIFAR_IMAGES, 128, 5),
}


def refusals() -> dict[str, str]:
    """Return why some jobs can't be run with a channel, by the name that their recording would have."""
    architecture, found = architectures()[PATTERN], {}
    for each in _every():
        try:
            architecture.requirements(make_plan(architecture, each.values, each.options))
        except PlanError as error:
            found[each.name] = error.message.removesuffix(".")
    return found


def _every() -> list[Recording]:
    return [job.recording(channel) for job in JOBS.values() for channel in CHANNELS]


def read(setup: Setup) -> dict[str, Measured]:
    """Return all recordings; RunError for a missing or unfinished one."""
    return _read_all(setup.options.get("recordings") or committed("lambdaml-table1"))


def measure(setup: Setup) -> dict[str, Measured]:
    """Make the missing runs, and return all; finished runs are kept, whatever their plan.

    RunError if one fails, RequestError if another command is making one."""
    make_missing(setup.out, _recordings(), setup.watcher)
    return _read_all(setup.out)


def _read_all(directory: Path) -> dict[str, Measured]:
    return {each.name: read_measured(directory / each.name) for each in _recordings()}


def _recordings() -> list[Recording]:
    refused = refusals()
    return [each for each in _every() if each.name not in refused]


def _rounds(recording: Run) -> list[float]:
    """Return the seconds from the end of each exchange to the end of the next, on the wall clock."""
    ends = grouped(
        ((event["epoch"], event["step"]), event["end_ns"])
        for event in recording.events
        if 0 <= event["worker"] < recording.plan.workers
        and event["step"] >= 0
        and event["phase"] == "synchronise"
        and event["op"].endswith(REQUESTS)
    )
    last = [max(ends[when]) for when in sorted(ends)]
    return [(later - earlier) / NS for earlier, later in pairwise(last)]


def ratio_cell(published: Decimal | None, modelled: Estimate, measured: Estimate | None = None) -> Cell:
    """Return the cell of a ratio to S3: it agrees within the tolerance, or else lies on the same side of 1."""
    alike = published is not None and (modelled.value > 1) == (published > 1)
    return Cell(published, measured=measured, modelled=modelled, otherwise=SAME_SIDE if alike else Cell.otherwise)


@dataclass(frozen=True)
class Played:
    """A job with one channel: its seconds, its usage for the bill, and how many functions exceed their time-out."""

    seconds: float
    usage: Usage
    late: int


@dataclass(frozen=True)
class Against:
    """A job with a channel and the same job with S3; `boot_s` is the start of the channel's node, 0 without one, and
    `measured` the ratio of their rounds here."""

    own: Played
    base: Played
    boot_s: float
    book: Book
    measured: Estimate | None = None

    def slowdown(self, *, booted: bool) -> float:
        """Return the ratio of seconds; with `booted`, including the node's start."""
        return (self.own.seconds + self.boot_s * booted) / self.base.seconds

    def cost(self, variant: str) -> float:
        """Return the ratio of whole bills; the functions' bill includes the node's start if they wait for it."""
        usage = self.own.usage
        if variant != RUNNING:
            boot = Decimal(str(self.boot_s))
            usage = replace(usage, service_hosts=tuple((host, s + boot) for host, s in usage.service_hosts))
        if variant == WAITING:
            longer = round(self.boot_s * 1000)
            usage = replace(
                usage, invocations=[{**each, "billed_ms": each["billed_ms"] + longer} for each in usage.invocations]
            )
        return float(compute_bill(usage, self.book).total / compute_bill(self.base.usage, self.book).total)


@dataclass(frozen=True)
class Compared:
    """A row of the table: each column's channel against S3, if it could be run."""

    row: Row
    job: Job
    against: Mapping[str, Against]


def build(setup: Setup, recordings: Mapping[str, Measured]) -> dict[str, Any]:
    """Return the document of the table; recordings by the names of `Job.recording`."""
    profile, table, refused = setup.profile, setup.paper.table(TABLE), refusals()
    rows = [_compare(setup, row, recordings) for row in table.rows]
    return make_document(
        setup,
        table,
        [
            (f"{column}_{figure}", f"{TITLES[column]} ÷ S3, {figure}", "×", 2)
            for column in COLUMNS
            for figure in FIGURES
        ],
        [row for each in rows for row in _rows(each, refused)],
        _notes(rows, recordings, profile),
        profile=profile,
        prices=setup.book,
        findings=[sentence for column in COLUMNS for sentence in _findings(column, rows)],
    )


def _compare(setup: Setup, row: Row, recordings: Mapping[str, Measured]) -> Compared:
    profile, inputs = setup.profile, setup.paper.table(TABLE).inputs_of(row)
    job, workers = JOBS[str(inputs["model"]), int(inputs.get("clusters", 0))], int(inputs["workers"])
    base = recordings[job.recording(BASE).name]
    with_s3 = _play(base, job, workers, profile)
    against: dict[str, Against] = {}
    for column, channel in COLUMNS.items():
        run = recordings.get(job.recording(channel).name)
        if run is not None:
            boot = profile.channels[TRACED.get(channel, channel)].boot_s
            played, boot_s = _play(run, job, workers, profile), 0.0 if boot is None else boot.value
            measured = ratio_of(mean_of(_rounds(run), MANY), mean_of(_rounds(base), MANY))
            against[column] = Against(played, with_s3, boot_s, setup.book, measured)
    return Compared(row, job, against)


def _play(run: Measured, job: Job, workers: int, profile: Profile) -> Played:
    result = outcome(play(generate(run.costs, workers, job.batches(workers), job.epochs), profile), run.arch)
    # Leaves out the requests of the driver, which puts the minibatches.
    return Played(result.seconds, result.as_usage(run.hosts(workers)), len(over_timeout(result.invocations, TIMEOUT_S)))


def _rows(compared: Compared, refused: Mapping[str, str]) -> Iterator[ReproducedRow]:
    """Yield the row with each way to count a node's start, with channels without a node, and with unmodelled ones,
    perhaps because they were refused."""
    for variant in (RUNNING, STARTED, WAITING, NO_NODE):
        cells: dict[str, Cell] = {}
        for column, each in compared.against.items():
            if bool(each.boot_s) == (variant != NO_NODE):
                figures = FIGURES if variant != WAITING else (COST,)
                cells |= {f"{column}_{figure}": _cell(compared, column, figure, variant) for figure in figures}
        if cells:
            yield _row(compared, variant, cells)
    cells = {
        f"{column}_{figure}": Cell(
            compared.row.published.get(f"{column}_{figure}"),
            missing=refused.get(compared.job.recording(channel).name, "") if figure == SLOWDOWN else "",
        )
        for column, channel in COLUMNS.items()
        if column not in compared.against
        for figure in FIGURES
    }
    yield _row(compared, PUBLISHED, cells)


def _row(compared: Compared, variant: str, cells: Mapping[str, Cell]) -> ReproducedRow:
    return ReproducedRow(compared.row.name, compared.row.group, variant, cells, compared.row.note)


def _cell(compared: Compared, column: str, figure: str, variant: str) -> Cell:
    each, booted = compared.against[column], variant != RUNNING
    modelled = Estimate(each.slowdown(booted=booted) if figure == SLOWDOWN else each.cost(variant))
    # Measured rounds have no cost, and don't contain a node's start.
    measured = each.measured if figure == SLOWDOWN and not (booted and each.boot_s) else None
    if not booted:
        return Cell(measured=measured, modelled=modelled)
    return ratio_cell(compared.row.published.get(f"{column}_{figure}"), modelled, measured)


def _findings(column: str, rows: Sequence[Compared]) -> Iterator[str]:
    title, known = TITLES[column], [each for each in rows if column in each.against]
    if not known:
        return
    boot_s = max(each.against[column].boot_s for each in known)

    def same(figure: str, variant: str) -> str:
        cells = [_cell(each, column, figure, variant) for each in known]
        close = sum(cell.verdict == "agrees" for cell in cells)
        alike = sum(cell.otherwise == SAME_SIDE for cell in cells)
        return f"{alike} of {len(cells)} rows ({close} within {percent(AGREES)})"

    slower, dearer = (same(figure, STARTED) for figure in FIGURES)
    sentence = f"{title} is slower or faster than S3 as published in {slower}, dearer or cheaper in {dearer}"
    if boot_s:
        sentence += f", or in {same(COST, WAITING)} if functions are billed while they wait for the node"
    yield f"{sentence}."
    if boot_s:
        faster = sum(each.against[column].slowdown(booted=False) < 1 for each in known)
        yield (
            f"Its start of {boot_s:.0f} s decides that: on a running node {title} is faster in {faster} of "
            f"{len(known)} rows."
        )


def _notes(rows: Sequence[Compared], recordings: Mapping[str, Measured], profile: Profile) -> Iterator[str]:
    jobs = {each.job.name: each.job for each in rows}
    servers = [SERVERS[TRACED.get(channel, channel)] for channel in COLUMNS.values()]
    nodes = sorted({server.instance_type for server in servers if server.instance_type is not None})
    yield (
        f"Modelled on {profile.name} of {profile.date}: whole jobs, cold starts included, AllReduce with functions of "
        f"{MEMORY_MB:,} MB. A ratio agrees within {percent(AGREES)}, or lies on the same side of 1, or differs."
    )
    yield (
        "These are assumed, since the paper doesn't state them: the pattern; the algorithm ("
        + ", ".join(f"{job.name} {job.algorithm}" for job in jobs.values())
        + "); epochs, the defaults of LambdaML's code ("
        + ", ".join(f"{job.name} {job.epochs}" for job in jobs.values())
        + "), not the epochs to a loss; a node of "
        + f"{', '.join(nodes)}; minibatches of {', '.join(f'{job.batch_size:,}' for job in jobs.values())}, which "
        "workers get from S3 with every channel."
    )
    yield (
        "The paper says that a node of ElastiCache takes more than 2 minutes to start; 120 s are used here. For a "
        "virtual machine, 60 s are assumed. A node that is started first is billed from its creation, and functions "
        "start once it serves. Functions that wait for it are billed for that time, too."
    )
    yield (
        "The parameter server gets and sends doubles as lists, as LambdaML's code with Thrift. Thrift itself reaches "
        "a fraction of that speed: 75 MB took 20 to 84 s (Table 2)."
    )
    yield (
        "Not in the model: LambdaML's workers first read the text of their share of the data, which takes equally "
        "long with every channel and brings ratios closer to 1; and its code for DynamoDB scans whole tables."
    )
    busy = sum(bool(run.document["host"]["oversubscribed"]) for run in recordings.values())
    yield (
        f"Measured: rounds of {RECORDED_WORKERS} workers on one host, from the end of an exchange to the end of the "
        "next, without the first. Servers answer over loopback, unlike AWS's network, and DynamoDB is a moto server; "
        f"intervals are 95 %. {busy} of these {len(recordings)} runs were oversubscribed: workers shared processors."
    )
    late = [
        f"{each.row.name}, {each.row.group}, with {title}"
        for each in rows
        for column, one in each.against.items()
        for title, played in ((TITLES[column], one.own), (BASE.upper(), one.base))
        if played.late
    ]
    if late:
        yield (
            f"Functions would reach their time-out of {TIMEOUT_S} s and continue in another one, which isn't included: "
            f"{'; '.join(dict.fromkeys(late))}."
        )
