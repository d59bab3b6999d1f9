"""Pages as text: of a run, of a comparison of runs, of a reproduction, and of a session of tests.

They are pure functions of documents, so the same page can be written to a file at a run's end and served during it.
"""

import base64
import hashlib
import math
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from slslab.installation import __version__
from slslab.reports.html.bundle import charting_library
from slslab.reports.html.parts import Data, Document, Live, Page, Played
from slslab.trace.metrics import Records, Rows

if TYPE_CHECKING:
    from jinja2 import Environment


def run_page(
    document: Document,
    events: Rows | None = None,
    invocations: Records = (),
    modelled: Played | None = None,
    *,
    live: Live | None = None,
) -> str:
    """Return the page of a run.

    `document` is the run's document; any part but `run` and `status` may be missing, as during a run.
    `events` are the rows of its trace (metrics.rows), None if there is no trace to be read; `invocations` the metered
    records; `modelled` has both of the run on Lambda. With `live`, the page fetches `run_content` from the same host
    whenever that reports a change.
    """
    from slslab.reports.html.runs import describe_run

    return _write(describe_run(document, events, invocations, modelled), live)


def run_content(
    document: Document, events: Rows | None = None, invocations: Records = (), modelled: Played | None = None
) -> str:
    """Return what of a run's page changes during the run: its main part and the data of its charts, as HTML."""
    from slslab.reports.html.runs import describe_run

    return _content(describe_run(document, events, invocations, modelled))


def comparison_page(documents: Sequence[Document], traces: Sequence[Rows | None]) -> str:
    """Return the page of runs side by side, each beside the first, with intervals where there are samples.

    `documents` are of runs that have ended, `traces` the rows of each one's trace, None where it cannot be read."""
    from slslab.reports.html.comparisons import describe_comparison

    return _write(describe_comparison(documents, traces))


def reproduction_page(document: Document) -> str:
    """Return the page of a reproduction: what `slslab reproduce --json` prints."""
    from slslab.reports.html.reproductions import describe_reproduction

    return _write(describe_reproduction(document))


def atlas_page(document: Document) -> str:
    """Return the page of the atlas: what `slslab atlas --json` prints."""
    from slslab.reports.html.atlas import describe_atlas

    return _write(describe_atlas(document))


def session_page(document: Document) -> str:
    """Return the page of a session of tests: what `pytest --slslab-report FILE.json` writes."""
    from slslab.reports.html.functions import describe_session

    return _write(describe_session(document))


def _write(page: Page, live: Live | None = None) -> str:
    style, script = page_file("page.css"), page_file("page.js")
    # A page that changes may get charts later.
    library = charting_library() if live is not None or any(card.charts for card in page.cards) else ""
    policy = {
        "default-src": "'none'",
        "style-src": inline_hash(style),
        "script-src": f"{inline_hash(library)} {inline_hash(script)}",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        **({"connect-src": "'self'"} if live is not None else {}),
    }
    return templates(__package__).get_template("page.html.j2").render(
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
    return templates(__package__).get_template("content.html.j2").render(page=page, charts=charts, version=__version__)


def _finite(data: Data) -> list[list[str | int | float | None]]:
    """Return rows without infinities and NaN, such as the loss of a run that diverged: JSON has neither."""
    return [
        [None if isinstance(value, float) and not math.isfinite(value) else value for value in row] for row in data.rows
    ]


@cache
def templates(package: str) -> "Environment":
    """Return the templates of a package."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(package, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def page_file(name: str) -> str:
    """Return a file of which pages are made: their style, or their script."""
    return files("slslab.reports.html").joinpath(name).read_text(encoding="utf-8")


def inline_hash(text: str) -> str:
    """Return the hash by which a content security policy names an inline element's text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
