"""What a recorded run takes and costs on Lambda."""

from collections.abc import Mapping
from typing import Any, cast

from slslab.installation import installed, lacking
from slslab.report.document import (
    NOT_ENDED,
    bill_document,
    biller,
    make_bill,
    read_document,
    refuse_kind,
    service_bill,
)
from slslab.report.services import predict_recorded, read_recorded
from slslab.run.bill import Book, load_book
from slslab.run.directory import resolve
from slslab.run.document import Modelled, NotModelled, not_modelled
from slslab.run.log import instances, invocations, load
from slslab.run.table import Trace
from slslab_workers.architecture import read_plan
from slslab_workers.plan import Plan


def play(
    plan: Plan,
    trace: Trace,
    records: list[dict[str, Any]],
    launched: list[dict[str, Any]],
    measured: Mapping[str, Any],
    book: Book,
    *,
    complete: bool,
) -> Modelled | NotModelled:
    """Return what a run takes and costs on Lambda, or why that is not known.

    `measured` has what the run's document tells of its host: `alone`, `processor` and `host`.
    """
    if not complete or trace.torn:
        return NOT_ENDED
    if not installed("numpy") or not installed("scipy"):
        missing = lacking("numpy")
        return not_modelled(f"{missing.message} Install it: {missing.hint}")
    if plan.faults is not None:
        return not_modelled("Faults were injected into it, and a replay would be of a run without them.")
    from slslab_lab.replay.modelled import model
    from slslab_lab.replay.programs.recording import Recording, kinds_alone, processor_of

    processor = processor_of(measured, records, launched)
    recording = Recording(plan, trace.events, records, launched, kinds_alone(measured), processor)
    return cast(Modelled, model(recording, book))


def bill_of(run: str, book: str, kind: str | None = None) -> Mapping[str, Any]:
    """Return the bill of a run by another book, from its trace and its invocations (`bill_document`).

    That of a service (`slslab up`) is the bill of its invocations as Lambda would run them; `kind` as for
    `read_document`.
    """
    directory, prices = resolve(run), load_book(book)
    if (about := directory.service()) is not None:
        recorded = read_recorded(directory, about)
        bill = biller(recorded, prices)
        return service_bill(predict_recorded(recorded, kind).document(bill), bill(recorded.invocations))
    refuse_kind(directory.id, kind)
    document = read_document(str(directory.path))
    directory.verify(document)
    trace, records, launched = load(directory.path), invocations(directory.path), instances(directory.path)
    plan, done = read_plan(document["plan"]), document["status"] == "done"
    replayed = play(plan, trace, records, launched, document, prices, complete=done)
    return bill_document(replayed, make_bill(trace.events, records, launched, prices))
