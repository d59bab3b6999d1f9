"""Executes a plan: stack and emulator up, the architecture's driver, then the run's document from its trace.

Data flows one way: plan → invocations and events → trace → bill and metrics → document.
"""

import shutil
import threading
import time
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

from slslab import metrics
from slslab.billing import Book, Usage, compute_bill, load_book
from slslab.errors import HostError, RequestError
from slslab.instances import InstanceRecord, check_fleet, notes, seconds_used
from slslab.metering import InvocationRecord
from slslab.replay.modelled import model, not_modelled
from slslab.replay.recording import Recording
from slslab.reports.html.files import PAGE, leave_page
from slslab.running import EmbeddedSystem, System
from slslab.runs import DOCUMENT, RunDirectory, list_runs, new_id, resolve, root
from slslab.trace import Trace, TraceWriter, instances, invocations, load
from slslab_workers.architecture import Architecture, Outcome, Progress, ResidentPhase, RunFailed
from slslab_workers.models import spec
from slslab_workers.plan import Plan, PlanError

SCHEMA = 1
DEFAULT_BOOK = "aws-us-east-1"
BATCHES = {"digits": (64, 5)}
USUAL_BATCHES = (512, 24)
# What functions run in, by the stack, unless it is chosen.
ENVIRONMENTS = {"embedded": "process", "compose": "docker"}


def architectures() -> dict[str, Architecture]:
    """Every registered architecture by name, built in or installed by somebody else."""
    found = entry_points(group="slslab.architectures")
    return {entry.name: entry.load() for entry in sorted(found, key=lambda entry: entry.name)}


def make_plan(architecture: Architecture, values: Mapping[str, Any], options: Mapping[str, Any]) -> Plan:
    """A complete plan out of what the command line gave, with the defaults of its model and data set."""
    given = {name: value for name, value in values.items() if value is not None}
    dataset = given.get("dataset", "digits")
    model = given.setdefault("model", "lenet" if dataset == "digits" else "mobilenet")
    batch_size, batches = BATCHES.get(dataset, USUAL_BATCHES)
    given.setdefault("batch_size", batch_size)
    given.setdefault("batches", batches)
    given.setdefault("environment", ENVIRONMENTS[given.get("stack", "embedded")])
    memory = given.pop("memory", None)
    if given.get("as_released"):
        released = {option.name: option.released for option in architecture.options if option.released is not None}
        options = {**released, **options}
    return Plan(
        run=new_id(architecture.name, model),
        architecture=architecture.name,
        memory_mb=_memory(memory, model, architecture.name),
        options=dict(options),
        **given,
    )


def _memory(memory: str | None, model: str, architecture: str) -> int:
    known = spec(model)
    if memory is None:
        return known.memory_mb
    if memory == "paper":
        if architecture not in known.paper_memory_mb:
            raise PlanError(
                f"The paper gives no memory size for {architecture} with {model}.",
                "Table 2 has mobilenet and resnet18; else give --memory in MB.",
            )
        return known.paper_memory_mb[architecture]
    if not memory.isdecimal():
        raise PlanError(f"--memory {memory} is not a size.", "give MB, such as --memory 3008, or `paper`.")
    return int(memory)


def run_plan(
    name: str, values: Mapping[str, Any], options: Mapping[str, Any], *, out: Path | None, book: str, progress: Progress
) -> dict[str, Any]:
    """What `slslab run` does; RequestError or HostError if it cannot begin, a failed document if it fails."""
    architecture = architectures()[name]
    try:
        plan = make_plan(architecture, values, options)
        prices = load_book(book)
        fleet = architecture.requirements(plan).instances
        if fleet is not None:
            check_fleet(fleet, prices)
        system = find_system(plan, architecture)
        admit(plan, architecture, system.budget_mb)
        directory = RunDirectory.create(out if out is not None else root() / plan.run)
        return execute(plan, architecture, directory, progress, prices, system)
    except PlanError as error:
        raise RequestError(error.message, error.hint) from error


def find_system(plan: Plan, architecture: Architecture) -> System:
    """What the plan runs on; HostError or RequestError if it cannot."""
    requirements = architecture.requirements(plan)
    if plan.stack == "embedded":
        return EmbeddedSystem(plan, requirements)
    from slslab.stack.compose import ComposeSystem

    return ComposeSystem(plan, requirements)


def admit(plan: Plan, architecture: Architecture, budget_mb: int) -> None:
    """Refuse a plan that cannot be resident in the host's memory for functions, with the arithmetic (HostError)."""
    for phase in architecture.resident_set(plan):
        needed_mb = _needed_mb(phase, plan)
        if needed_mb > budget_mb:
            beside = f" + {phase.beside_mb:,} MB of smaller functions and databases" if phase.beside_mb else ""
            fits = bisect_right(range(1, plan.workers), budget_mb, key=lambda n: _largest_mb(plan, architecture, n))
            raise HostError(
                f"{phase.name} needs {phase.environments} environment{'s' * (phase.environments != 1)} at once: "
                f"{phase.environments} × "
                f"{plan.memory_mb:,} MB{beside} = {needed_mb:,} MB, and this host has {budget_mb:,} MB for functions.",
                f"--workers {fits} fits, or a smaller --memory." if fits else "choose a smaller --memory.",
            )


def _needed_mb(phase: ResidentPhase, plan: Plan) -> int:
    return phase.environments * plan.memory_mb + phase.beside_mb


def _largest_mb(plan: Plan, architecture: Architecture, workers: int) -> int:
    """What the plan would need at once with another number of workers."""
    smaller = replace(plan, workers=workers)
    return max((_needed_mb(phase, smaller) for phase in architecture.resident_set(smaller)), default=0)


@dataclass
class _Recorder:
    """Collects what the emulator tells while a run goes on, and passes it to the trace and the progress."""

    writer: TraceWriter
    plan: Plan
    progress: Progress
    records: list[InvocationRecord] = field(default_factory=list)
    computed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def event(self, record: dict[str, Any]) -> None:
        """A trace record: written at once, so that a killed run keeps it."""
        self.writer.write(record)
        if record.get("op") == "compute":
            with self.lock:
                self.computed += 1
            total = self.plan.workers * self.plan.batches * self.plan.epochs
            # Where workers leave, those who are left may take a few minibatches twice.
            self.progress.report("train", min(self.computed, total), total)

    def driver_event(self, record: dict[str, Any]) -> None:
        """A trace event of the driver, which is no function and runs in no environment."""
        self.writer.write({"record": "event", **record, "function": "driver", "environment": "driver"})

    def invocation(self, record: InvocationRecord) -> None:
        """A metered invocation."""
        self.records.append(record)
        self.writer.write({"record": "invocation", **record.as_document()})

    def instance(self, record: InstanceRecord) -> None:
        """A metered instance."""
        self.writer.write({"record": "instance", **record.as_document()})


def execute(
    plan: Plan,
    architecture: Architecture,
    directory: RunDirectory,
    progress: Progress,
    book: Book,
    system: System,
) -> dict[str, Any]:
    """Run the plan to its end and return the run's document (status `done` or `failed`)."""
    lock = directory.lock()
    began = False
    try:
        directory.write_plan(plan.to_document())
        started = time.monotonic()
        outcome: Outcome | None = None
        failure: RunFailed | None = None
        with TraceWriter(directory.trace_log, plan.run) as writer:
            recorder = _Recorder(writer, plan, progress)
            with system.running(recorder, directory.logs) as running:
                began, host = True, running.host
                try:
                    outcome = architecture.drive(plan, running.cloud, progress)
                except RunFailed as error:
                    failure = error
                except KeyboardInterrupt:
                    failure = RunFailed("Interrupted", "The run was interrupted; its trace up to then is kept.")
                host |= running.finish()
        seconds = time.monotonic() - started
        records = [record.as_document() for record in recorder.records]
        directory.write_invocations(records)
        trace, launched = load(directory.path), instances(directory.path)
        document = _document(plan, trace, records, launched, host, outcome, failure, seconds, book)
        directory.write("bill.json", document["cost"])
        directory.write("metrics.json", {key: document[key] for key in METRICS})
        document["report"] = leave_page(directory.path / PAGE, document, metrics.rows(trace.events), records)
        directory.write(DOCUMENT, document)
        return document
    except (PlanError, HostError) as error:
        # A plan that turned out wrong, or a system that did not start, leaves no run behind.
        if isinstance(error, PlanError) or not began:
            shutil.rmtree(directory.path, ignore_errors=True)
        raise
    finally:
        directory.unlock(lock)


METRICS = ("loss", "accuracy", "counts", "bytes", "overheads", "phases", "per_worker")


def _document(
    plan: Plan,
    trace: Trace,
    records: list[dict[str, Any]],
    launched: list[dict[str, Any]],
    host: Mapping[str, Any],
    outcome: Outcome | None,
    failure: RunFailed | None,
    seconds: float,
    book: Book,
) -> dict[str, Any]:
    events = metrics.rows(trace.events)
    totals = metrics.totals(events, records, launched)
    delay, oversubscribed = totals.pop("host_delay_seconds"), totals.pop("oversubscribed")
    if failure is not None or trace.torn:
        modelled = not_modelled("The run did not come to its end, and so its trace has none.")
    else:
        modelled = model(Recording(plan, events, records, launched), book)
    described = plan.to_document()
    names = ("architecture", "model", "dataset", "workers", "batch_size", "batches", "epochs", "memory_mb", "seed")
    parameters = outcome.parameters if outcome else spec(plan.model).parameters
    return {
        "schema": SCHEMA,
        "run": plan.run,
        "status": "failed" if failure else "done",
        "error": _error(failure, plan, events) if failure else None,
        **{name: described[name] for name in names},
        "plan": described,
        "parameters": parameters,
        "gradient_bytes": None if parameters is None else 4 * parameters,
        "parameters_sha256": outcome.parameters_sha256 if outcome else None,
        "replicas_equal": outcome.replicas_equal if outcome else None,
        "epochs_trained": outcome.epochs if outcome else None,
        "updates": outcome.updates if outcome else None,
        "threads": outcome.threads if outcome else None,
        "details": dict(outcome.details) if outcome else {},
        "torch": version("torch"),
        "loss": list(outcome.loss) if outcome else [],
        "accuracy": list(outcome.accuracy) if outcome else [],
        "host": {
            "cores": host["cores"],
            "cpu_share_enforced": host["cpu_share_enforced"],
            "delay_seconds": delay,
            "oversubscribed": oversubscribed,
            "own_cpu_seconds": host["own_cpu_seconds"],
        },
        "stack": host["stack"],
        "environment": plan.environment,
        "confinement": host["confinement"],
        "package": host["package"],
        "seconds": {
            "measured": round(seconds, 3),
            "span": round(metrics.span_seconds(events, launched), 3),
            "modelled": modelled.get("seconds"),
        },
        **totals,
        "modelled": modelled,
        "cost": make_bill(events, records, launched, book),
        "trace_torn": trace.torn,
    }


def make_bill(
    events: metrics.Rows, records: list[dict[str, Any]], launched: list[dict[str, Any]], book: Book
) -> dict[str, Any]:
    """The bill of these events, metered invocations and metered instances, as the run's document has it."""
    hosts = [*metrics.hosts(events), *((one["type"], seconds_used(one)) for one in launched)]
    usage = Usage(records, metrics.object_requests(events), metrics.transitions(events), hosts=tuple(hosts))
    return {**compute_bill(usage, book).as_document(), "notes": notes(launched)}


def _error(failure: RunFailed, plan: Plan, events: metrics.Rows) -> dict[str, Any]:
    position = metrics.last_position(events, failure.worker)
    return {
        "type": failure.type,
        "message": failure.message,
        "hint": _hint(failure, plan),
        "worker": failure.worker,
        "epoch": position[0] if position else None,
        "step": position[1] if position else None,
    }


def _hint(failure: RunFailed, plan: Plan) -> str:
    if failure.type == "Runtime.OutOfMemory":
        peak = _finished_peak_mb(plan)
        killed = f"killed at its limit of {plan.memory_mb:,} MB; "
        if peak is None:
            return killed + "measure it with --memory 10240."
        return killed + f"the last run of this plan that finished peaked at {peak:,} MB."
    if failure.type == "Sandbox.Timedout":
        return f"a step and its waits did not fit into {plan.timeout} s: give more --timeout, or more --memory (CPU)."
    if failure.type == "Interrupted":
        return "run it again; `slslab show` has what was measured."
    return "the logs are in the run's directory, logs/."


def _finished_peak_mb(plan: Plan) -> int | None:
    """Peak memory of the latest finished run of the same plan, but for its memory size, seed and length."""
    same = ("architecture", "model", "dataset", "workers", "batch_size")
    for directory in list_runs():
        document = directory.document()
        if document is None or document["status"] != "done":
            continue
        # Runs of before there were memory formats had the default one.
        formatted = document["plan"].get("memory_format", "default") == plan.memory_format
        if formatted and all(document[name] == getattr(plan, name) for name in same):
            return int(document["peak_memory_mb"])
    return None


def read_document(run: str) -> dict[str, Any]:
    """The document of a run; one that was killed is read from its trace, as far as that goes."""
    directory = resolve(run)
    document = directory.document()
    if document is not None:
        return document
    if directory.status() == "running":
        raise RequestError(f"The run {directory.id} is still going on.", "wait for its end.")
    plan = Plan.from_document(directory.plan())
    records = invocations(directory.path)
    trace = load(directory.path)
    if records:
        directory.write_invocations(records)
    unknown: dict[str, Any] = {
        "cores": None,
        "cpu_share_enforced": None,
        "confinement": None,
        "package": None,
        "stack": {},
        "own_cpu_seconds": None,
    }
    failure = RunFailed("Killed", "The command was killed before the run ended; this is what its trace holds.")
    last = metrics.rows(trace.events)
    seconds = (max(e["end_ns"] for e in last) - min(e["start_ns"] for e in last)) / 1e9 if last else 0.0
    launched = instances(directory.path)
    killed = _document(plan, trace, records, launched, unknown, None, failure, seconds, load_book(DEFAULT_BOOK))
    killed["error"]["hint"] = (
        "invocations and instances that were running when it was killed are in the trace and not in the bill."
    )
    return killed


def bill_of(run: str, book: str) -> dict[str, Any]:
    """The bill of a run by another book, from its trace and its invocations."""
    directory = resolve(run)
    if directory.document() is None:
        read_document(run)
    trace = load(directory.path)
    launched = instances(directory.path)
    return make_bill(metrics.rows(trace.events), invocations(directory.path), launched, load_book(book))
