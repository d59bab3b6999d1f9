"""The time and cost of a recorded run on Lambda."""

from collections.abc import Mapping
from typing import Any, cast

from slslab.installation import installed, lacking
from slslab.run.bill import DEFAULT_BOOK, Book, load_book
from slslab.run.directory import resolve
from slslab.run.document import Modelled, NotModelled, not_modelled
from slslab.run.run import NOT_ENDED, Run
from slslab.run.service import Service, open_run
from slslab_workers.faults.plan import kinds_left_out


def play(run: Run, book: Book) -> Modelled | NotModelled:
    """Return a run's time and cost on Lambda, or why it can't be modelled."""
    if not run.complete:
        return NOT_ENDED
    if not installed("numpy") or not installed("scipy"):
        missing = lacking("numpy")
        return not_modelled(f"{missing.message} Install it: {missing.hint}")
    if run.plan.faults is not None and (kinds := kinds_left_out(run.plan.faults["fault"])):
        return not_modelled(f"Faults were injected into it, and a replay would run without them: {', '.join(kinds)}.")
    from slslab_lab.replay.modelled import model

    return cast(Modelled, model(run, book))


def bill_of(name: str, book: str | None, kind: str | None = None) -> Mapping[str, Any]:
    """Return a run's bill on Lambda with its 80 % range, or why it isn't modelled; `host` bills what its host metered.

    Without a book it is by AWS's prices, or by the plan's if that is for a platform with GPUs.

    For a record of `slslab up`, the bill is of its invocations as Lambda would run them; `kind` as for `open_run`.
    """
    directory = resolve(name)
    run = open_run(directory, kind)
    if isinstance(run, Service):
        return run.bill_document(load_book(book or DEFAULT_BOOK))
    directory.verify(run.summary())
    prices = load_book(book or (run.plan.prices if run.platform else DEFAULT_BOOK))
    found, host = play(run, prices), run.cost(prices)
    if found["status"] != "modelled":
        return {"schema": 1, **found, "host": host}
    basis = {"profile": found["profile"], "range": found["ranges"]["cost"], "uncertainty": found["uncertainty"]["cost"]}
    return {"schema": 1, **found["cost"], **basis, "host": host}
