"""Pages as text: of a run, of a comparison of runs, of a reproduction, and of the atlas.

They are pure functions of documents, so the same page can be written to a file at a run's end and served during it.
"""

from collections.abc import Sequence

from slslab.report.html.page import make_content, make_page
from slslab.report.page import Document, Live, Played
from slslab.run.metrics import Records, Rows
from slslab_lab.pages.atlas import describe_atlas
from slslab_lab.pages.comparison import describe_comparison
from slslab_lab.pages.reproduction import describe_reproduction
from slslab_lab.pages.run import describe_run


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
    return make_page(describe_run(document, events, invocations, modelled), live)


def run_content(
    document: Document, events: Rows | None = None, invocations: Records = (), modelled: Played | None = None
) -> str:
    """Return what of a run's page changes during the run: its main part and the data of its charts, as HTML."""
    return make_content(describe_run(document, events, invocations, modelled))


def comparison_page(documents: Sequence[Document], traces: Sequence[Rows | None]) -> str:
    """Return the page of runs side by side, each beside the first, with intervals where there are samples.

    `documents` are of runs that have ended, `traces` the rows of each one's trace, None where it cannot be read."""
    return make_page(describe_comparison(documents, traces))


def reproduction_page(document: Document) -> str:
    """Return the page of a reproduction: what `slslab reproduce --json` prints."""
    return make_page(describe_reproduction(document))


def atlas_page(document: Document) -> str:
    """Return the page of the atlas: what `slslab atlas --json` prints."""
    return make_page(describe_atlas(document))
