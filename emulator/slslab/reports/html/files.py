"""Pages as files: of a run that has ended, in its directory or elsewhere."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slslab import metrics
from slslab.errors import RequestError, SlslabError
from slslab.reports.html.pages import run_page
from slslab.trace import invocations, load, replacing

PAGE = "report.html"


def page_of(document: Mapping[str, Any], directory: Path) -> str:
    """The page of a run in this directory that has ended. A trace that cannot be read is left out, and the page says
    so."""
    return run_page(document, read_events(directory), invocations(directory))


def read_events(directory: Path) -> metrics.Rows | None:
    """The rows of a run's trace; None if it cannot be read, as one of another version of slslab."""
    try:
        return metrics.rows(load(directory).events)
    except SlslabError:
        return None


def write_page(path: Path, text: str) -> None:
    """Write the file at once or not at all; RequestError if it cannot be written."""
    try:
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}.", "choose another file.") from error
