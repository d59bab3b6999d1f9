"""Pages as files: of a finished run, in its directory or elsewhere."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slslab.errors import RequestError, SlslabError
from slslab.installation import require
from slslab.reports.html.pages import run_page
from slslab.trace import log, metrics

PAGE = "report.html"


def leave_page(
    path: Path, document: Mapping[str, Any], events: metrics.Rows, invocations: metrics.Records
) -> dict[str, str | None]:
    """Write the page of a run at its end; return the file's name, or why there is none.

    No error is raised: what was trained and measured is valid without a page."""
    try:
        require("altair")
        write_page(path, run_page(document, events, invocations))
    except SlslabError as error:
        return {"file": None, "error": f"{error.message} Hint: {error.hint}"}
    except Exception as error:
        return {"file": None, "error": f"{type(error).__name__}: {error}"}
    return {"file": path.name, "error": None}


def page_of(document: Mapping[str, Any], directory: Path) -> str:
    """Return the page of a finished run in this directory. A trace that cannot be read is left out, and the page says
    so."""
    return run_page(document, read_events(directory), log.invocations(directory))


def read_events(directory: Path) -> metrics.Rows | None:
    """Return the rows of a run's trace; None if it cannot be read, for instance one of another version of slslab."""
    try:
        return log.load(directory).events
    except SlslabError:
        return None


def write_page(path: Path, text: str) -> None:
    """Write the file at once or not at all; RequestError if it cannot be written."""
    try:
        with log.replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}.", "choose another file.") from error
