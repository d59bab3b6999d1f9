"""A run, read from its directory or kept in memory."""

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from slslab.errors import RequestError
from slslab.predict.gpus import load_gpus
from slslab.predict.profiles.profile import Containers, Profile, load_platform
from slslab.run import metrics
from slslab.run.bill import DEFAULT_BOOK, Book, Cost, Usage, compute_bill, load_book
from slslab.run.containers import container_usage
from slslab.run.directory import RunDirectory
from slslab.run.document import SCHEMA, Alone, AloneKind, NotAlone, not_modelled
from slslab.run.failure import describe_failure
from slslab.run.faults import epochs_with_losses, injected
from slslab.run.log import load, metered_records
from slslab.run.records import notes, seconds_used
from slslab.run.table import Trace
from slslab_workers.architecture import Outcome, RunFailed, read_plan
from slslab_workers.models import spec_of
from slslab_workers.plan import Plan, PlanError
from slslab_workers.trace.kinds import COMPUTE, kind_of

# Stands for the directory of a run that is only in memory.
MEMORY = RunDirectory(Path(os.devnull))
NOT_ENDED = not_modelled("The run didn't finish, so its trace is incomplete.")
# Host figures that are unknown if the command was killed.
UNKNOWN: Mapping[str, Any] = {
    **dict.fromkeys(("cores", "cpu_share_enforced", "confinement", "package", "own_cpu_seconds")),
    "stack": {},
}
# Fields of the plan that a document repeats.
PLANNED = ("architecture", "model", "dataset", "workers", "batch_size", "batches", "epochs", "memory_mb", "seed")
Place = tuple[int, int]


class Run:
    """A run. A part that isn't given is read from the run's directory when it is first asked for.

    `events` are the rows of its trace, and `torn` tells whether its log broke off in the middle of a line.
    `invocations` and `instances` are metered records. `document` is its run.json, None while it runs and if its command
    was killed. A run that isn't `complete` failed, was interrupted, or lost the end of its trace, so missing events
    prove nothing. `running_hosts` are the hosts of databases and queues that still run, as if they ended now.
    """

    PARTS: ClassVar[tuple[str, ...]] = (
        *("plan", "_trace", "events", "torn", "invocations", "instances", "running_hosts", "document", "complete"),
    )
    running_hosts: metrics.Records = ()

    def __init__(self, directory: RunDirectory = MEMORY, **parts: Any) -> None:
        self.directory = directory
        vars(self).update(parts)

    @classmethod
    def read(cls, directory: RunDirectory) -> Self:
        """Return the run of a directory; RequestError if it is still running."""
        run = cls(directory)
        if run.document is None and directory.status() == "running":
            raise RequestError(f"The run {directory.id} is still running.", "wait until it ends.")
        return run

    def parts(self) -> dict[str, Any]:
        """Return the parts that were given or have been read."""
        return {name: value for name, value in vars(self).items() if name in self.PARTS}

    def replace(self, **parts: Any) -> Self:
        """Return the run with other parts."""
        return type(self)(self.directory, **{**self.parts(), **parts})

    @cached_property
    def document(self) -> dict[str, Any] | None:
        """Its run.json, None if it has no document."""
        return self.directory.document()

    @cached_property
    def plan(self) -> Plan:
        """Its plan. A finished run has two copies; the document's copy is the executed one."""
        return read_plan(self.directory.plan() if self.document is None else self.document["plan"])

    @property
    def id(self) -> str:
        """Its id, whatever its directory is called."""
        return str((self.document or {}).get("run") or self.plan.run)

    @cached_property
    def _trace(self) -> Trace:
        return load(self.directory.path)

    @cached_property
    def events(self) -> metrics.Rows:
        """The rows of its trace; RunError if it is missing or unreadable."""
        return self._trace.events

    @cached_property
    def torn(self) -> bool:
        """Whether its log broke off in the middle of a line."""
        return self.directory != MEMORY and self._trace.torn

    @cached_property
    def invocations(self) -> metrics.Records:
        """The metered records of its invocations."""
        return metered_records(self.directory.path)

    @cached_property
    def instances(self) -> metrics.Records:
        """The metered records of its instances."""
        return metered_records(self.directory.path, "instance")

    @cached_property
    def complete(self) -> bool:
        """Whether it finished and its trace is complete."""
        return self.document is not None and self.document["status"] == "done" and not self.torn

    @property
    def arch(self) -> str:
        """The processor architecture of its functions, x86_64 or arm64."""
        return str(self.invocations[0]["architecture"]) if self.invocations else "x86_64"

    @property
    def peak_memory_mb(self) -> int:
        """The peak memory of training functions (those with the plan's memory size), MB; 0 for a run on instances."""
        return max((r["max_memory_mb"] for r in self.invocations if r["memory_mb"] == self.plan.memory_mb), default=0)

    @property
    def alone(self) -> Sequence[AloneKind] | None:
        """CPU times of steps measured alone, by kind; None if they weren't measured alone."""
        kinds: Sequence[AloneKind] | None = ((self.document or {}).get("alone") or {}).get("kinds")
        return kinds

    @cached_property
    def parameters(self) -> int | None:
        """The model's number of parameters; None if neither the document nor the model's specification has it."""
        if self.document is not None and self.document["parameters"] is not None:
            return int(self.document["parameters"])
        try:
            return spec_of(self.plan).parameters
        except PlanError:  # an architecture of another package may have models of its own
            return None

    @property
    def gradient_bytes(self) -> int | None:
        """The bytes of all parameters in float32, None if their number is unknown."""
        return None if self.parameters is None else 4 * self.parameters

    @cached_property
    def failing(self) -> int | None:
        """The first epoch in which a worker failed, was left out, or lost database or message to a fault; or None."""
        details = {} if self.document is None else self.document["details"]
        left_out = (details.get(name, ()) for name in ("deaths", "late", "failed_functions"))
        without = (int(one["epoch"]) for each in left_out for one in each)
        return min((*without, *epochs_with_losses(self.events)), default=None)

    @cached_property
    def computed(self) -> dict[tuple[int, int, int], list[int]]:
        """Numbers of the events that computed a minibatch, by worker, epoch and step."""
        return self._numbers("compute")

    @cached_property
    def puts(self) -> dict[tuple[int, int, int], list[int]]:
        """Numbers of the training protocol's events that put an object, by worker, epoch and step."""
        return self._numbers("object.put", overhead=False)

    def _numbers(self, op: str, *, overhead: bool = True) -> dict[tuple[int, int, int], list[int]]:
        chosen = (e for e in self.events if e["op"] == op and e["step"] >= 0 and e["overhead"] is overhead)
        return metrics.grouped(((e["worker"], e["epoch"], e["step"]), e["event"]) for e in chosen)

    @cached_property
    def updated(self) -> dict[tuple[int, int, int, str], list[int]]:
        """Numbers of the events that updated a model, by worker, epoch, step and phase."""
        updates = (e for e in self.events if e["op"] == "update")
        return metrics.grouped(((e["worker"], e["epoch"], e["step"], e["phase"]), e["event"]) for e in updates)

    def entered(self, worker: int, after: Place) -> int | None:
        """Return the number of the first event of a worker's next step after this epoch and step."""
        steps, first = self._steps.get(worker, ([], []))
        index = bisect_right(steps, after)
        return first[index] if index < len(steps) else None

    @cached_property
    def _steps(self) -> dict[int, tuple[list[Place], list[int]]]:
        found: dict[int, dict[Place, int]] = {}
        for event in self.events:
            if event["step"] >= 0:
                found.setdefault(event["worker"], {}).setdefault((event["epoch"], event["step"]), event["event"])
        return {worker: (sorted(first), [first[step] for step in sorted(first)]) for worker, first in found.items()}

    def totals(self) -> dict[str, Any]:
        """Return the figures from its trace, invocations and instances (`metrics.totals`)."""
        return metrics.totals(self.events, self.invocations, self.instances)

    def measured(self, host: Mapping[str, Any], seconds: float, faults: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return what every document has from trace, invocations and instances.

        `host` is what is known of the host, `seconds` how long the command has taken, `faults` the fault plan."""
        totals = self.totals()
        return {
            **totals,
            "host": {**host, **totals["host"]},
            "host_imports": metrics.host_imports(self.events),
            "seconds": {"measured": round(seconds, 3), "span": round(self.span_s, 3)},
            "faults": injected(self.events, faults),
        }

    def span_ns(self) -> tuple[int, int]:
        """Return the first event's start and the last one's end, ns on the trace's clock; zeros without events."""
        starts, ends = ([event[name] for event in self.events] for name in ("start_ns", "end_ns"))
        return min(starts, default=0), max(ends, default=0)

    @property
    def span_s(self) -> float:
        """The wall seconds from the first invocation's acceptance or instance's launch to the end of the last one."""
        return metrics.span_seconds(self.events, self.instances)

    @cached_property
    def platform(self) -> Profile | None:
        """The platform of functions with GPUs that its plan names; None if it names none."""
        return None if self.plan.platform is None else load_platform(self.plan.platform)

    @property
    def _containers(self) -> Containers | None:
        return None if self.platform is None else self.platform.containers

    @property
    def gpus(self) -> list[str]:
        """The GPUs that its functions computed on, by torch's numbers and names."""
        return sorted({record["gpu"] for record in self.invocations if record.get("gpu")})

    def usage(self, containers: Containers | None = None) -> Usage:
        """Return its billed usage, as metered on this host: of invocations, or of a platform's containers."""
        _, running, idle = container_usage(containers, self._lives())
        return Usage(
            () if containers else self.invocations,
            metrics.object_requests(self.events),
            metrics.transitions(self.events),
            hosts=tuple((instance["type"], seconds_used(instance)) for instance in self.instances),
            service_hosts=tuple(metrics.hosts([*self.events, *self.running_hosts])),
            containers=running,
            idle=idle,
        )

    def _lives(self) -> Iterator[tuple[bool, int, int]]:
        """Yield for each environment whether it computes, when its first init began and its last invocation ended."""
        computing = {event["invocation"] for event in self.events if kind_of(event["op"]) == COMPUTE}
        for records in metrics.grouped((record["environment"], record) for record in self.invocations).values():
            first = min(records, key=lambda record: int(record["start_ns"]))
            begun = first["start_ns"] - round((first["init_ms"] or 0.0) * 1e6)
            computes = any(record["request_id"] in computing for record in records)
            yield computes, begun, max(record["end_ns"] for record in records)

    def cost(self, book: Book) -> Cost:
        """Return what its usage on this host costs by a book."""
        said = [*notes(self.instances), *self._platform_notes()]
        return cast(Cost, {**compute_bill(self.usage(self._containers), book).as_document(), "notes": said})

    def _platform_notes(self) -> Iterator[str]:
        if self.platform is not None:
            billed = f"containers of {self.platform.name} are billed"
            on_gpu = f"ran on {', '.join(self.gpus)}: these are its times, and {billed} for them"
            yield on_gpu if self.gpus else f"ran on the CPU, not on a GPU, though {billed}"

    def _gpu(self) -> dict[str, Any]:
        """Return the parts of a document that only runs on a platform with GPUs have."""
        if self._containers is None:
            return {}
        kind = self._containers.gpu
        peaks = [record["max_gpu_memory_mb"] for record in self.invocations if record.get("gpu")]
        peak = {"peak_memory_mb": max(peaks)} if peaks else {}
        gpu = {"kind": kind, "memory_mb": load_gpus().memory_mb(kind), **peak}
        return {"device": ", ".join(self.gpus) or "cpu", "gpu": gpu}

    def summary(self) -> dict[str, Any]:
        """Return its document; without one, make it from what was recorded."""
        return self._unwritten if self.document is None else self.document

    @cached_property
    def _unwritten(self) -> dict[str, Any]:
        """The document after the command was killed."""
        failure = RunFailed("Killed", "The command was killed before the run ended; this is what its trace contains.")
        book = load_book(self.plan.prices if self.platform else DEFAULT_BOOK)
        made = self.describe(UNKNOWN, None, failure, None, book)
        made["error"]["hint"] = "what was running when it was killed is in the trace, but not in the bill."
        return made

    def describe(
        self,
        host: Mapping[str, Any],
        outcome: Outcome | None,
        failure: RunFailed | None,
        seconds: float | None,
        book: Book,
        alone: Alone | NotAlone | None = None,
        processor: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the document (`RunDocument`) of a run that has ended, from its trace, its host, its driver's outcome,
        the measurements before it, and a comparison of the host's processor with Lambda's.

        `seconds` is how long the command took; None takes the trace's duration. Replay fills in `lambda` later.
        """
        plan, (began_ns, ended_ns) = self.plan, self.span_ns()
        parameters = outcome.parameters if outcome else self.parameters
        known = [name for name in ("name", "processors", "nodes", "stolen_share") if name in host]
        return {
            "schema": SCHEMA,
            "run": plan.run,
            "status": _status(failure),
            "error": describe_failure(failure, plan, self.events, self.invocations) if failure else None,
            "lambda": NOT_ENDED,
            **{name: getattr(plan, name) for name in PLANNED},
            "plan": plan.to_document(),
            "parameters": parameters,
            "gradient_bytes": None if parameters is None else 4 * parameters,
            "parameters_sha256": outcome.parameters_sha256 if outcome else None,
            "replicas_equal": outcome.replicas_equal if outcome else None,
            "epochs_trained": outcome.epochs if outcome else None,
            "updates": outcome.updates if outcome else None,
            "threads": outcome.threads if outcome else None,
            "details": dict(outcome.details) if outcome else {},
            "torch": version("torch") if outcome else None,
            "loss": list(outcome.loss) if outcome else [],
            "accuracy": list(outcome.accuracy) if outcome else [],
            "stack": host["stack"],
            "environment": plan.environment,
            "confinement": host["confinement"],
            "package": host["package"],
            **self.measured(
                {name: host[name] for name in ("cores", "cpu_share_enforced", "own_cpu_seconds", *known)},
                (ended_ns - began_ns) / 1e9 if seconds is None else seconds,
                plan.faults,
            ),
            **self._gpu(),
            "alone": alone,
            "processor": dict(processor) if processor else None,
            "cost": self.cost(book),
            "trace_torn": self.torn,
        }


def _status(failure: RunFailed | None) -> str:
    if failure is None:
        return "done"
    return "interrupted" if failure.type in ("Interrupted", "Killed") else "failed"


def read_run(directory: RunDirectory) -> Run:
    """Return a run that has ended, after checking that its files haven't changed.

    RequestError for a run that is still running, and for a record of `slslab up`; RunError for a changed file.
    """
    if directory.service() is not None:
        raise RequestError(
            f"{directory.id} is a record of `slslab up`, which has no plan.", "name a run: `slslab runs`."
        )
    run = Run.read(directory)
    if run.document is not None:
        directory.verify(run.document)
    return run
