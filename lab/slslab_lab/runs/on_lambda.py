"""What a recorded run takes and costs on Lambda."""

from collections.abc import Mapping
from typing import Any, cast

from slslab.installation import installed, lacking
from slslab.report.services import Service, open_run
from slslab.run.bill import Book, load_book
from slslab.run.directory import resolve
from slslab.run.document import Modelled, NotModelled, not_modelled
from slslab.run.run import NOT_ENDED, Run, bill_document


def play(run: Run, book: Book) -> Modelled | NotModelled:
    """Return what a run takes and costs on Lambda, or why that is not known."""
    if not run.complete:
        return NOT_ENDED
    if not installed("numpy") or not installed("scipy"):
        missing = lacking("numpy")
        return not_modelled(f"{missing.message} Install it: {missing.hint}")
    if run.plan.faults is not None:
        return not_modelled("Faults were injected into it, and a replay would be of a run without them.")
    from slslab_lab.replay.modelled import model

    return cast(Modelled, model(run, book))


def bill_of(name: str, book: str, kind: str | None = None) -> Mapping[str, Any]:
    """Return the bill of a run by another book, from its trace and its invocations (`bill_document`).

    That of a service (`slslab up`) is the bill of its invocations as Lambda would run them; `kind` as for `open_run`.
    """
    directory, prices = resolve(name), load_book(book)
    run = open_run(directory, kind)
    if isinstance(run, Service):
        return run.bill_document(prices)
    directory.verify(run.summary())
    return bill_document(play(run, prices), run.cost(prices))
