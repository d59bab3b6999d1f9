"""What metered invocations take and cost on Lambda, as parts of a document: figures with ranges and their basis."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import median
from typing import Any

from slslab.errors import counted
from slslab.predict.invocation import NOTHING, Prediction, Predictor, Range, Request, billed, match_requests
from slslab.predict.processor import UNKNOWN
from slslab.predict.profiles.profile import Profile
from slslab.run.bill import DEFAULT_BOOK, Book, Usage, compute_bill, load_book
from slslab.run.metrics import Key, Records, Rows, grouped

# Waits below this share of the time aren't mentioned.
NOTEWORTHY = 0.01
Requests = Mapping[str, Sequence[Request]]
# Returns the bill of records as a document.
Bill = Callable[[Records], Mapping[str, Any]]


@dataclass(frozen=True)
class Predicted:
    """Metered records with what each of them takes on Lambda.

    `requests` are each record's billed requests to S3 and SQS. `profiles`, by function, were fitted to times on AWS.
    """

    predictor: Predictor
    records: Records
    predictions: Sequence[Prediction]
    requests: Sequence[Sequence[Request]]
    profiles: Mapping[str, Profile]

    def by(self, keys: Sequence[Key]) -> dict[Key, "Predicted"]:
        """Return the records and their predictions by a key for each record."""
        groups = grouped((key, position) for position, key in enumerate(keys))
        return {
            name: replace(
                self,
                records=[self.records[position] for position in positions],
                predictions=[self.predictions[position] for position in positions],
                requests=[self.requests[position] for position in positions],
            )
            for name, positions in groups.items()
        }

    def bill(self, book: Book | None = None) -> Bill:
        """Return a function that bills these records and their requests to S3 and SQS, by a book."""
        return bill_of(book, billed(chain.from_iterable(self.requests)))

    def costs(self, book: Book | None = None) -> dict[str, Any]:
        """Return the exact cost as this host metered it, as text, and the figures on Lambda."""
        bill = self.bill(book)
        return {"cost": str(bill(self.records)["total"]), "predicted": self.figures(bill)}

    def figures(self, bill: Bill) -> dict[str, Any]:
        """Return durations, billed seconds and the cost on Lambda.

        The range of a sum is the sum of the ends, since all invocations have the same errors.
        """
        durations = [prediction.duration_ms for prediction in self.predictions]
        inits = [prediction.init_ms for prediction in self.predictions if prediction.init_ms is not None]
        billed = sum((prediction.billed_ms for prediction in self.predictions), NOTHING)
        parts = {
            name: sum(each.parts[name] for each in self.predictions) / 1000
            for name in ("init", "cpu", "requests", "waits")
        }
        ends = ("value", "low", "high")
        costs = {end: bill(self._billed(end)) for end in ends}
        return {
            "status": "modelled",
            "duration_ms": _document(_median(durations)) if durations else None,
            "init_ms": _document(_median(inits)) if inits else None,
            "billed_seconds": _document(Range(*(getattr(billed, end) / 1000 for end in ends))),
            "cost": {**costs["value"], "range": {end: float(costs[end]["total"]) for end in ends[1:]}},
            "parts": {name: round(seconds, 6) for name, seconds in parts.items()},
        }

    def document(self, bill: Bill) -> dict[str, Any]:
        """Return the figures of all records, with the profile and the processor that they rest on."""
        figures = self.figures(bill)
        profile, processor = self.predictor.profile, self.predictor.processor
        return {
            **figures,
            "kind": self.predictor.kind,
            "profile": {"name": profile.name, "date": profile.date.isoformat()},
            "processor": {"name": processor.name, "form": processor.form, "anchors": dict(processor.anchors)},
            "notes": list(self._notes(figures)),
        }

    def _billed(self, end: str) -> list[dict[str, Any]]:
        billed = zip(self.records, self.predictions, strict=True)
        return [{**record, "billed_ms": int(getattr(prediction.billed_ms, end))} for record, prediction in billed]

    def _notes(self, figures: Mapping[str, Any]) -> list[str]:
        predictor, parts = self.predictor, figures["parts"]
        functions = dict.fromkeys(record["function"] for record in self.records)
        fitted = {name: self.profiles[name].compute.speed.source for name in functions if name in self.profiles}
        notes = [f"The speed of {name} on Lambda is measured: {source}." for name, source in fitted.items()]
        if len(fitted) < len(functions) and predictor.profile.compute.speed.status == "assumed":
            notes += [predictor.processor.missing] * bool(predictor.processor.missing)
            if predictor.kind == UNKNOWN:
                notes.append(
                    "The kind of work is unknown, so the range covers all kinds. To narrow it, name the kind: --kind "
                    "(in a test, kind=) dense, streaming or interpreter."
                )
        if parts["waits"] > NOTEWORTHY * sum(parts.values()):
            waits_s = f"{parts['waits']:,.2f}" if parts["waits"] >= 1 else f"{parts['waits']:.3g}"
            notes.append(
                f"{waits_s} s of waits for anything but S3 (sleeps, databases, queues, the network) stay as measured "
                "here."
            )
        if stopped := sum(prediction.timed_out for prediction in self.predictions):
            notes.append(f"{counted(stopped, 'invocation')} timed out here. On Lambda they take at most their timeout.")
        if any(record.get("template") for record in self.records):
            notes.append("Environments were forked from a template, so their init is shorter than on Lambda.")
        if not predictor.enforced:
            notes.append("This host doesn't enforce CPU shares. Lambda's are modelled.")
        return notes


def predict(
    records: Records, requests: Requests, predictor: Predictor, profiles: Mapping[str, Profile] | None = None
) -> Predicted:
    """Predict what these records take on Lambda.

    `requests` are each function's requests to S3 and SQS, and `profiles` the profiles that were fitted to its times on
    AWS.
    """
    profiles = profiles or {}
    own = {name: replace(predictor, profile=profile) for name, profile in profiles.items()}
    matched = assign(records, requests)
    predictions = [
        own.get(record["function"], predictor).predict(record, made)
        for record, made in zip(records, matched, strict=True)
    ]
    return Predicted(predictor, records, predictions, matched, profiles)


def assign(records: Records, requests: Requests) -> list[list[Request]]:
    """Return each record's requests.

    A poll of a function's event source counts for the last invocation that had begun.
    """
    assigned = match_requests(records, requests)
    begun = grouped((record["function"], (record["start_ns"], position)) for position, record in enumerate(records))
    for function, own in begun.items():
        own.sort()
        for request in requests.get(function, ()):
            if request.is_poll and (before := bisect_right(own, (request.start_ns, len(records)))):
                assigned[own[before - 1][1]].append(request)
    return assigned


def requests_of(events: Rows) -> Requests:
    """Return the requests to S3 and SQS that AWS bills, by the function that made them or was polled for."""
    return grouped(
        (event["function"], Request(event["op"], event["start_ns"], event["end_ns"], event["bytes"]))
        for event in events
        if event["op"].startswith(("object.", "sqs.")) and event["function"] and not event["invocation"]
    )


def bill_of(book: Book | None = None, requests: Mapping[str, int] | None = None) -> Bill:
    """Return a function that bills records by a book: Lambda's lines, and requests by operation."""
    book = book or load_book(DEFAULT_BOOK)
    return lambda records: compute_bill(Usage(records, requests or {}), book).as_document()


def _median(ranges: Sequence[Range]) -> Range:
    """Return the medians of the figures and of their ends, which move together."""
    return Range(*(median(getattr(each, end) for each in ranges) for end in ("value", "low", "high")))


def _document(figure: Range) -> dict[str, float]:
    return {name: round(value, 3) for name, value in vars(figure).items()}
