"""The server's pages: the list of runs, and each run's page, finished or so far."""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from slslab.errors import RequestError, SlslabError
from slslab.report import formats
from slslab.report.html.page import inline_hash, make_page, page_file, templates
from slslab.report.summaries import modelled_figures, platform_of, replayed
from slslab.run.bill import Book
from slslab.run.directory import PLAN, RunDirectory, list_runs
from slslab.run.log import GrowingLog
from slslab.run.run import Run
from slslab.run.service import open_run
from slslab_lab.pages.comparison import describe_comparison, read_documents
from slslab_lab.pages.live.underway import Now, describe
from slslab_lab.pages.run_page import content_of, page_of

RUNNING = "running"


# A line of the list of runs: texts are empty where the figure is unknown.
UNKNOWN = dict.fromkeys(("architecture", "model", "seconds", "bill", "measured", "cost", "trouble", "comparable"), "")


class Views:
    """Pages of the runs in a folder; a growing trace's content is kept until its run ends.

    All methods may be called by several threads.
    """

    def __init__(self, folder: Path, book: Book) -> None:
        self._folder = folder
        self._book = book
        self._logs: dict[Path, GrowingLog] = {}
        self._lock = threading.Lock()

    def find(self, id_: str) -> RunDirectory | None:
        """Return the run with this id. It is looked up among all runs, never used as a path."""
        return next((run for run in list_runs(self._folder) if run.id == id_), None)

    def runs(self) -> str:
        """Return the page with the list of runs."""
        script = files(__package__).joinpath("list.js").read_text(encoding="utf-8")
        return _rendered(
            "runs.html.j2", rows=self._rows(), folder=self._folder, script=script, script_hash=inline_hash(script)
        )

    def table(self) -> str:
        """Return only the list of runs."""
        return templates(__package__).get_template("table.html.j2").render(rows=self._rows())

    def page(self, run: RunDirectory, live: str) -> str:
        """Return the page of a run; for a running one, a page that follows it at the URL `live`."""
        underway = self._underway(run)
        return page_of(open_run(run)) if underway is None else page_of(underway, live)

    def content(self, run: RunDirectory) -> str:
        """Return the changing part of a run's page; at its end, everything."""
        return content_of(self._underway(run) or open_run(run))

    def comparison(self, ids: Sequence[str]) -> str:
        """Return the page of runs side by side; RequestError unless these are two or more runs that have ended."""
        found = [run for run in map(self.find, ids) if run is not None and run.status() != RUNNING]
        if len(found) < max(2, len(ids)):
            raise RequestError("A comparison needs two runs or more that have ended.", "tick them in the list of runs.")
        return make_page(describe_comparison(read_documents(found)))

    def trouble(self, message: str, hint: str) -> str:
        """Return an error page of one sentence, which needs no other file."""
        return _rendered("trouble.html.j2", message=message, hint=hint)

    def _underway(self, run: RunDirectory) -> Run | None:
        if run.status() != RUNNING:
            with self._lock:
                self._logs.pop(run.path, None)
            return None
        if run.service() is not None:
            return open_run(run)
        with self._lock:
            log = self._logs.setdefault(run.path, GrowingLog(run.trace_log))
            with suppress(FileNotFoundError):  # the run is beginning, or it has just ended and its log is compacted
                log.read()
            plan = run.plan() if (run.path / PLAN).exists() else {}
            return describe(run.id, plan, log.records, self._book, Now(datetime.now(UTC), time.monotonic_ns()))

    def _rows(self) -> list[dict[str, Any]]:
        return [UNKNOWN | {"id": run.id} | self._row(run) for run in list_runs(self._folder)]

    def _row(self, run: RunDirectory) -> dict[str, Any]:
        """Return a run's time and bill on AWS or its platform, and this host's time and the price of its seconds."""
        try:
            underway = self._underway(run)
            document = run.listed() if underway is None else underway.summary()
        except SlslabError as error:
            return {"status": "unreadable", "trouble": f"{error.message} {error.hint}"}
        except FileNotFoundError:
            return {"status": "gone"}
        row: dict[str, Any] = {name: document[name] for name in ("status", "architecture", "model") if name in document}
        if found := replayed(document):
            seconds, row["bill"] = modelled_figures(found)
            platform = platform_of(document)
            row["seconds"] = f"{seconds} on {platform}" if platform else seconds
        if spent := document.get("seconds"):
            row["measured"] = formats.seconds(spent["measured"])
        if cost := document.get("cost"):
            row["cost"] = f"{formats.significant(float(cost['total']))} {cost['currency']}"
        return row | {"comparable": underway is None and "architecture" in document}


def _rendered(name: str, **values: Any) -> str:
    style = page_file("page.css")
    return templates(__package__).get_template(name).render(style=style, style_hash=inline_hash(style), **values)
