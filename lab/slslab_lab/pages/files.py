"""Pages of runs, as text and as files."""

from pathlib import Path

from slslab.errors import SlslabError
from slslab.installation import require
from slslab.report.html.page import make_content, make_page, write_page
from slslab.report.page import Live, Page
from slslab.report.summaries import replayed
from slslab.run.run import Run
from slslab_lab.pages.run_charts import describe_run

PAGE = "report.html"


def leave_page(path: Path, run: Run) -> dict[str, str | None]:
    """Write the page of a finished run; return the file's name, or the error.

    It raises no error: the run's results are valid without a page."""
    try:
        require("altair")
        write_page(path, page_of(run))
    except SlslabError as error:
        return {"file": None, "error": f"{error.message} Hint: {error.hint}"}
    except Exception as error:
        return {"file": None, "error": f"{type(error).__name__}: {error}"}
    return {"file": path.name, "error": None}


def page_of(run: Run, live: Live | None = None) -> str:
    """Return the page of a run; with `live`, the page fetches `content_of` from the same host whenever that changes."""
    return make_page(_describe(run), live)


def content_of(run: Run) -> str:
    """Return the changing part of a run's page: its main part and the data of its charts, as HTML."""
    return make_content(_describe(run))


def _describe(run: Run) -> Page:
    """Return the content of a run's page. An unreadable trace is left out, and the page says so."""
    try:
        events = run.events
    except SlslabError:  # for instance from another version of slslab
        events = None
    modelled = None
    if events is not None and replayed(run.summary()) is not None:
        from slslab_lab.replay.as_trace import as_trace
        from slslab_lab.replay.modelled import play_on_platform

        modelled = as_trace(play_on_platform(run))
    return describe_run(run.summary(), events, run.invocations, modelled)
