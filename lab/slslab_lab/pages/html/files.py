"""Pages as files: of a finished run, in its directory or elsewhere."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slslab.errors import SlslabError
from slslab.installation import require
from slslab.report.html.page import write_page
from slslab.report.page import Played
from slslab.report.summaries import replayed
from slslab.run import log, metrics
from slslab_lab.pages.html.pages import run_page

PAGE = "report.html"


def leave_page(
    path: Path, document: Mapping[str, Any], events: metrics.Rows, invocations: metrics.Records
) -> dict[str, str | None]:
    """Write the page of a run at its end; return the file's name, or why there is none.

    No error is raised: what was trained and measured is valid without a page."""
    try:
        require("altair")
        played = modelled_trace(document, events, invocations)
        write_page(path, run_page(document, events, invocations, played))
    except SlslabError as error:
        return {"file": None, "error": f"{error.message} Hint: {error.hint}"}
    except Exception as error:
        return {"file": None, "error": f"{type(error).__name__}: {error}"}
    return {"file": path.name, "error": None}


def page_of(document: Mapping[str, Any], directory: Path) -> str:
    """Return the page of a finished run in this directory. A trace that cannot be read is left out, and the page says
    so."""
    return run_page(document, *read_parts(document, directory))


def read_parts(
    document: Mapping[str, Any], directory: Path
) -> tuple[metrics.Rows | None, metrics.Records, Played | None]:
    """Return what the page of a finished run is made of beside its document: events, invocations, and it on Lambda."""
    events, invocations = read_events(directory), log.invocations(directory)
    return events, invocations, modelled_trace(document, events, invocations)


def modelled_trace(
    document: Mapping[str, Any], events: metrics.Rows | None, invocations: metrics.Records
) -> Played | None:
    """Return what each worker does when on Lambda; None of a run whose document is without a model."""
    if events is None or replayed(document) is None:
        return None
    from slslab_lab.replay.as_trace import as_trace
    from slslab_lab.replay.modelled import play_on_aws
    from slslab_lab.replay.programs.recording import Recording, kinds_alone, processor_of
    from slslab_workers.architecture import read_plan

    launched = document.get("instances") or ()
    processor = processor_of(document, invocations, launched)
    recording = Recording(read_plan(document["plan"]), events, invocations, launched, kinds_alone(document), processor)
    return as_trace(play_on_aws(recording))


def read_events(directory: Path) -> metrics.Rows | None:
    """Return the rows of a run's trace; None if it cannot be read, for instance one of another version of slslab."""
    try:
        return log.load(directory).events
    except SlslabError:
        return None
