"""Pages as files: of a finished run, in its directory or elsewhere."""

from pathlib import Path
from typing import Any

from slslab.errors import SlslabError
from slslab.installation import require
from slslab.report.html.page import write_page
from slslab.report.page import Played
from slslab.report.summaries import replayed
from slslab.run import metrics
from slslab.run.run import Run
from slslab_lab.pages.html.pages import run_page

PAGE = "report.html"


def leave_page(path: Path, run: Run) -> dict[str, str | None]:
    """Write the page of a run at its end; return the file's name, or why there is none.

    No error is raised: what was trained and measured is valid without a page."""
    try:
        require("altair")
        write_page(path, page_of(run))
    except SlslabError as error:
        return {"file": None, "error": f"{error.message} Hint: {error.hint}"}
    except Exception as error:
        return {"file": None, "error": f"{type(error).__name__}: {error}"}
    return {"file": path.name, "error": None}


def page_of(run: Run) -> str:
    """Return the page of a run that has ended."""
    return run_page(*parts_of(run))


def parts_of(run: Run) -> tuple[dict[str, Any], metrics.Rows | None, metrics.Records, Played | None]:
    """Return what the page of a run is made of: its document, events, and invocations, and the run on Lambda.

    A trace that cannot be read is left out, and the page says so."""
    events = events_of(run)
    return run.summary(), events, run.invocations, None if events is None else modelled_trace(run)


def events_of(run: Run) -> metrics.Rows | None:
    """Return the rows of a run's trace; None if it cannot be read, for instance one of another version of slslab."""
    try:
        return run.events
    except SlslabError:
        return None


def modelled_trace(run: Run) -> Played | None:
    """Return what each worker does when on Lambda; None of a run whose document is without a model."""
    if replayed(run.summary()) is None:
        return None
    from slslab_lab.replay.as_trace import as_trace
    from slslab_lab.replay.modelled import play_on_aws

    return as_trace(play_on_aws(run))
