"""Options, progress bars on stderr and documents on stdout, for all commands."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import click
from click.shell_completion import CompletionItem
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.text import Text

from slslab.errors import RequestError

if TYPE_CHECKING:
    from slslab.report.page import Parts

# Seconds between two lines about one stage.
EVERY_S = 10.0
# All control characters except tabs and line breaks: C0, DEL and C1.
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
_DROPPED = dict.fromkeys(_CONTROL)


def printable(text: str) -> str:
    """Return the text with control characters escaped, so that a function's output can't control the terminal."""
    return text.translate(_CONTROL)


class _Console(Console):
    """A console that drops control characters, which tables have no room for."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(segment.text.translate(_DROPPED), segment.style)


json_option = click.option("--json", "json_", is_flag=True, help="Print only one JSON document on stdout.")


def find_up(_context: click.Context, _parameter: click.Parameter, value: Any) -> Any:
    """Return runs as named, but replace `up` with the directory of the record of `slslab up`, after updating it.

    RequestError if it has recorded nothing.
    """
    if isinstance(value, tuple):
        return tuple(find_up(_context, _parameter, run) for run in value)
    if value != "up":
        return value
    from slslab.compose.client import kept_variables
    from slslab.run.directory import root
    from slslab.run.log import SERVICE
    from slslab.up import embedded

    directory = embedded.recorded()
    if directory is not None:
        return str(directory)
    if kept_variables():
        raise RequestError(
            "A stack in containers records only runs, not your own functions.",
            "use `slslab up` without --stack compose, or read REPORT lines in `docker compose logs emulator`.",
        )
    if not (root() / "up" / SERVICE).exists():
        raise RequestError(
            f"`slslab up` hasn't recorded anything in {root()}.",
            "type slslab up --detach, or set SLSLAB_RUNS to the folder of its records.",
        )
    return str(root() / "up")


def complete_run(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the runs with names that start like this, for completion; without any, let the shell complete paths."""
    from slslab.run.directory import list_runs

    names = ("last", "up", *(run.id for run in list_runs()))
    found = [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


run_argument = click.argument("run", default="last", callback=find_up, shell_complete=complete_run)


class Bar:
    """Progress on stderr: a bar per stage on a terminal, otherwise a line per finished stage, per evaluated epoch, when
    a solo profile begins, and every 10 s."""

    LABELS: ClassVar = {
        "load": "loading images",
        "upload": "uploading data",
        "deploy": "deploying functions",
        "processor": "measuring the processor",
        "probe": "probing the processor",
        "alone": "measuring steps alone",
        "train": "training (worker steps)",
        "evaluate": "evaluating epochs",
    }

    def __init__(self) -> None:
        self._console = _Console(stderr=True, markup=False, emoji=False)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=self._console, transient=True)
        self._tasks: dict[str, Any] = {}
        self._finished: set[str] = set()
        self._printed_s = time.monotonic()

    def __enter__(self) -> "Bar":
        if self._console.is_terminal:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:  # otherwise this would print an empty line
            self._progress.stop()

    @property
    def on_terminal(self) -> bool:
        """Whether stderr is a terminal."""
        return self._console.is_terminal

    def report(self, stage: str, done: int, total: int) -> None:
        """Show that `done` of a stage's `total` units are done."""
        if not self._console.is_terminal:
            at_once = stage == "evaluate" or (stage == "alone" and not done)
            silent = not at_once and time.monotonic() - self._printed_s < EVERY_S
            if stage not in self._finished and (done >= total or not silent):
                self._printed_s = time.monotonic()
                self._console.print(f"{self.LABELS.get(stage, stage)}: {done} of {total}")
                if done >= total:
                    self._finished.add(stage)
            return
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(self.LABELS.get(stage, stage), total=total)
        self._progress.update(self._tasks[stage], completed=done, total=total)

    def say(self, line: str) -> None:
        """Print a line above the bars, whatever stderr is."""
        self._progress.console.print(line, highlight=False, soft_wrap=True)


def print_document(document: Mapping[str, object], parts: Callable[[], "Parts"], as_json: bool) -> None:
    """Print a document as JSON, or its parts as text. Its schema is 1 unless it contains another."""
    if as_json:
        # Flush, because the reader may wait for a service that keeps running.
        print(json.dumps({"schema": 1, **document}, indent=2), flush=True)
    else:
        # In a pipe, tables keep their width; Rich would guess 80 columns. The terminal wraps sentences, so that
        # addresses and paths in them stay whole.
        from slslab.report.terminal import render

        shown = render(parts())
        # Users' names and texts such as slslab[docker] contain brackets that aren't markup.
        console = _Console(width=None if sys.stdout.isatty() else 140, markup=False, emoji=False)
        console.print(shown, soft_wrap=isinstance(shown, Text))
