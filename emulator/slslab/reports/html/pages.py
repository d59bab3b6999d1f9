"""Pages as text: of a run, of a comparison of runs, and of a reproduction.

They are pure functions of documents, so that the same page can be written to a file at a run's end and served while the
run goes on.
"""

import base64
import hashlib
import math
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from slslab import __version__
from slslab.metrics import Records, Rows
from slslab.reports.html.bundle import charting_library
from slslab.reports.html.parts import Data, Document, Live, Page

if TYPE_CHECKING:
    from jinja2 import Environment


def run_page(
    document: Document, events: Rows | None = None, invocations: Records = (), live: Live | None = None
) -> str:
    """The page of a run.

    `document` is the run's document; any part but `run` and `status` may be missing, as it is while a run goes on.
    `events` are the rows of its trace (metrics.rows), None if there is no trace to be read; `invocations` the metered
    records. With `live`, the page fetches `run_content` from the same host when that tells of changes, and shows them.
    """
    from slslab.reports.html.runs import describe_run

    return _write(describe_run(document, events, invocations), live)


def run_content(document: Document, events: Rows | None = None, invocations: Records = ()) -> str:
    """What of a run's page changes while the run goes on: its main part and the data of its charts, as HTML."""
    from slslab.reports.html.runs import describe_run

    return _content(describe_run(document, events, invocations))


def comparison_page(documents: Sequence[Document], traces: Sequence[Rows | None]) -> str:
    """The page of runs side by side, each beside the first, with intervals where there are samples.

    `documents` are of runs that have ended, `traces` the rows of each one's trace, None where it cannot be read."""
    from slslab.reports.html.comparisons import describe_comparison

    return _write(describe_comparison(documents, traces))


def reproduction_page(document: Document) -> str:
    """The page of a reproduction: what `slslab reproduce --json` prints."""
    from slslab.reports.html.reproductions import describe_reproduction

    return _write(describe_reproduction(document))


def _write(page: Page, live: Live | None = None) -> str:
    style, script, library = _read("page.css"), _read("page.js"), charting_library()
    policy = {
        "default-src": "'none'",
        "style-src": _hash(style),
        "script-src": f"{_hash(library)} {_hash(script)}",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    if live is not None:
        policy["connect-src"] = "'self'"
    return _templates().get_template("page.html.j2").render(
        page=page,
        content=_content(page),
        live=live,
        policy="; ".join(f"{name} {value}" for name, value in policy.items()),
        style=style,
        script=script,
        library=library,
    )  # fmt: skip


def _content(page: Page) -> str:
    charts = [
        {
            "id": chart.id,
            "spec": chart.spec,
            "data": {name: {"columns": data.columns, "rows": _finite(data)} for name, data in chart.data.items()},
        }
        for card in page.cards
        for chart in card.charts
    ]
    return _templates().get_template("content.html.j2").render(page=page, charts=charts, version=__version__)


def _finite(data: Data) -> list[list[str | int | float | None]]:
    """Rows without infinities and what is no number, such as the loss of a run that diverged: JSON has neither."""
    return [
        [None if isinstance(value, float) and not math.isfinite(value) else value for value in row] for row in data.rows
    ]


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("slslab.reports.html", ".")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _read(name: str) -> str:
    return files("slslab.reports.html").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The text of an inline element as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
