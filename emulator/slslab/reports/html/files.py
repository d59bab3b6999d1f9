"""Pages as files: of a run that has ended, in its directory or elsewhere."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slslab import metrics, trace
from slslab.errors import RequestError, SlslabError
from slslab.reports.html.pages import run_page

PAGE = "report.html"


def leave_page(
    path: Path, document: Mapping[str, Any], events: metrics.Rows, invocations: metrics.Records
) -> dict[str, str | None]:
    """Write the page of a run at its end, and tell the file's name, or why there is none.

    Whatever goes wrong: what was trained and measured stands, with a page or without one."""
    try:
        write_page(path, run_page(document, events, invocations))
    except SlslabError as error:
        return {"file": None, "error": error.message}
    except Exception as error:
        return {"file": None, "error": f"{type(error).__name__}: {error}"}
    return {"file": path.name, "error": None}


def page_of(document: Mapping[str, Any], directory: Path) -> str:
    """The page of a run in this directory that has ended. A trace that cannot be read is left out, and the page says
    so."""
    return run_page(document, read_events(directory), trace.invocations(directory))


def read_events(directory: Path) -> metrics.Rows | None:
    """The rows of a run's trace; None if it cannot be read, as one of another version of slslab."""
    try:
        return metrics.rows(trace.load(directory).events)
    except SlslabError:
        return None


def write_page(path: Path, text: str) -> None:
    """Write the file at once or not at all; RequestError if it cannot be written."""
    try:
        with trace.replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}.", "choose another file.") from error
