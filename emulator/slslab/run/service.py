"""The document of what `slslab up` recorded: a run's figures, except the ones that need a plan."""

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

from slslab.errors import RequestError
from slslab.predict.invocation import Predictor, make_predictor
from slslab.predict.processor import UNANCHORED, Processor
from slslab.predict.profiles.profile import Profile, load_profile
from slslab.run import metrics
from slslab.run.bill import DEFAULT_BOOK, Book, load_book
from slslab.run.directory import RunDirectory
from slslab.run.document import SCHEMA
from slslab.run.events import clock_domain, host_until
from slslab.run.log import metered, read_log, unmetered
from slslab.run.predictions import Bill, Predicted, predict, requests_of
from slslab.run.run import Run
from slslab.run.table import tabulate
from slslab_workers.trace.operations import OPERATIONS

# What a predicted bill rests on.
BASIS = ("kind", "profile", "processor", "notes")
# Figures of a run that need no plan.
MEASURED = (
    *("billed_seconds", "gb_seconds", "invocations", "cold_starts", "peak_memory_mb", "orchestration_seconds"),
    *("reports", "host", "host_imports", "seconds", "faults"),
)


class Service(Run):
    """What `slslab up` has recorded so far: a description, the status, the trace and the invocations' records.

    Running hosts count as if they ended now, or with the last record if the service was killed. `profiles`, by
    function, were fitted to times on AWS. `kind` is the handlers' kind of work, None if it isn't known.
    """

    PARTS: ClassVar[tuple[str, ...]] = (*Run.PARTS, "about", "status", "seconds", "profiles", "kind")
    platform = None  # it has no plan
    about: Mapping[str, Any]
    status: str
    seconds: float
    profiles: Mapping[str, Profile] = MappingProxyType({})
    kind: str | None = None

    @property
    def id(self) -> str:
        """Its directory's name."""
        return self.directory.id

    def bill_by(self, book: Book) -> Bill:
        """Return a function that bills given invocations, and everything else that the service used."""
        return lambda records: self.replace(invocations=records).cost(book)

    def bill_document(self, book: Book) -> dict[str, Any]:
        """Return its bill on Lambda with the 80 % range; `host` bills what was metered here.

        `functions` has a row for each function and memory size.
        """
        predicted = self.predicted.document(self.bill_by(book))
        basis = {name: predicted[name] for name in BASIS}
        functions = function_rows(self.predicted, book)
        return {"schema": 1, **predicted["cost"], **basis, "host": self.cost(book), "functions": functions}

    @property
    def predictor(self) -> Predictor:
        """The predictor of functions without a profile of their own."""
        described = self.about.get("processor")
        processor = Processor.from_dict(described) if described else UNANCHORED
        return make_predictor(processor, self.kind, self.about["cpu_share_enforced"])

    def predictor_of(self, function: str) -> Predictor:
        """Return the predictor of a function's invocations."""
        profile = self.profiles.get(function)
        return self.predictor if profile is None else replace(self.predictor, profile=profile)

    @cached_property
    def predicted(self) -> Predicted:
        """What the invocations take on Lambda."""
        return predict(self.invocations, requests_of(self.events), self.predictor, self.profiles)

    @cached_property
    def _unwritten(self) -> dict[str, Any]:
        """The document of what was recorded so far, with a run's keys except the ones that need a plan.

        `predicted` is what the functions take and cost on Lambda, given their handlers' kind of work.
        """
        bill, about = self.bill_by(load_book(DEFAULT_BOOK)), self.about
        host = {name: about[name] for name in ("cores", "cpu_share_enforced")} | {"own_cpu_seconds": None}
        measured = self.measured(host, self.seconds, about.get("faults"))
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "run": self.id,
            "status": self.status,
            "error": None,
            "started_at": about["started_at"],
            **{name: about[name] for name in ("stack", "environment", "confinement")},
            **{name: measured[name] for name in MEASURED},
            "counts": metrics.summed(
                (event["op"], event["requests"])
                for event in self.events
                if OPERATIONS[event["op"]].channel or event["op"] == "transition"
            ),
            "predicted": self.predicted.document(bill),
            "functions": function_rows(self.predicted),
            "cost": bill(self.invocations),
            "trace_torn": self.torn,
        }
        if self.status == "interrupted":
            document["error"] = {
                "type": "Killed",
                "message": "`slslab up` was killed; this is what its trace contains.",
                "hint": "what ran when it was killed, and the last requests to stores, are not in the bill.",
                "worker": None,
                "epoch": None,
                "step": None,
            }
        return document


def open_run(directory: RunDirectory, kind: str | None = None) -> Run:
    """Return the run in a directory, or what a service (`slslab up`) has recorded there so far.

    `kind` is the kind of work of a service's handlers. RequestError if it is given for a run, or if the run hasn't
    ended.
    """
    if (about := directory.service()) is not None:
        return read_service(directory, about, kind)
    if kind is not None:
        raise RequestError(
            f"{directory.id} is a run, and its operations have kinds of their own.", "leave out --kind, or name `up`."
        )
    return Run.read(directory)


def read_service(directory: RunDirectory, about: Mapping[str, Any], kind: str | None = None) -> Service:
    """Read the directory of a service; RunError if its trace is broken."""
    # In this order, a service that ends in between is shown as it was before.
    status = directory.status()
    records, torn = read_log(directory.trace_log)
    events, invoked = tabulate(records), metered(records, "invocation")
    running = status == "running" and records[0]["clock"] == clock_domain()
    last_ns = time.monotonic_ns() if running else max((event["end_ns"] for event in events), default=0)
    started = datetime.fromisoformat(about["started_at"])
    until = datetime.fromisoformat(about["ended_at"]) if "ended_at" in about else datetime.now(UTC)
    seconds = (until - started).total_seconds()
    if status == "interrupted":
        last = max((record["started_at"] for record in invoked), default=about["started_at"])
        seconds = (datetime.fromisoformat(last) - started).total_seconds()
    return Service(
        directory,
        about=about,
        status=status,
        seconds=seconds,
        events=events,
        running_hosts=[host_until(host, last_ns) for host in unmetered(records)["host"].values()],
        invocations=invoked,
        # The last line of a log that is being written may be half a line.
        torn=torn and not running,
        profiles={name: load_profile(path) for name, path in directory.profiles().items()},
        kind=kind,
    )


def function_rows(predicted: Predicted, book: Book | None = None) -> list[dict[str, Any]]:
    """Return a row for each function and memory size that it had; the cost includes its requests to S3 and SQS."""
    split = predicted.by([(record["function"], record["memory_mb"]) for record in predicted.records])
    return [
        {
            "function": function,
            "memory_mb": memory_mb,
            **metrics.sums(own.records),
            "errors": sum(record["status"] != "success" or record["error_type"] is not None for record in own.records),
            "reports": metrics.report_summary(own.records),
            **own.costs(book),
        }
        for (function, memory_mb), own in sorted(split.items())
    ]
