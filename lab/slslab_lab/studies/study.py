"""A study reproduces a paper's table or figure. It declares its own parts; everything common is here.

The module `source` gets a study's results: `measure(setup)` measures them now, and `read(setup)` reads recordings. If
the results are one file, the source names its type (`RESULTS`), and this module reads and writes it. A study of
published figures needs neither. The module `document` has `build(setup, results)`, which returns the document.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from slslab.errors import RequestError
from slslab_lab.studies import MODELS, committed

if TYPE_CHECKING:
    from slslab.predict.profiles.profile import Profile
    from slslab.run.bill import Book
    from slslab_lab.papers.paper import Paper
    from slslab_lab.runs.accuracy.curve import Watcher

Item = TypeVar("Item")
REPLAYED = "replayed"
# The profile that published tables are fitted on, and the price book; they only share a name.
PROFILE = BOOK = "aws-us-east-1"
# Options that a command leaves out have these values, and all others None.
DEFAULTS: Mapping[str, Any] = {
    "models": MODELS,
    "batches": 4,
    "dataset": "cifar10",
    "prices": BOOK,
}
# The version of a file of results.
SCHEMA = 1
HINT = "compute them with --fidelity sampled."


@dataclass(frozen=True)
class Setup:
    """Inputs of a study: its paper, the platform and prices of its model, how much to measure, the output directory,
    the watcher, and all options."""

    study: "Study"
    paper: "Paper"
    profile: "Profile"
    book: "Book"
    fidelity: str
    out: Path
    watcher: "Watcher"
    options: Mapping[str, Any]

    @property
    def effort(self) -> Any:
        """Return how much to measure at this fidelity; its form depends on the study."""
        return self.study.effort[self.fidelity]

    def watched(self, stage: str, items: Collection[Item]) -> Iterator[Item]:
        """Yield the items of a stage; the watcher sees how many are done."""
        for number, item in enumerate(items, 1):
            yield item
            self.watcher.report(stage, number, len(items))


@dataclass(frozen=True)
class Study:
    """A table or figure of a paper; `about` is its command's help.

    `source` is the module that gets the results, by default the document's. `options` are its command's options in the
    order of its help, `texts` their help where it is special. `effort` says how much to measure, by fidelity, and
    `amounts` the same in words; the first fidelity is the default, or else `usual`. `kept` names its results in words,
    and the file of results that are one file. Its files are in reproduce-NAME-FIDELITY unless --out says otherwise. The
    module `further` adds to the document if the project's own recordings are replayed.
    """

    name: str
    paper: str
    document: str
    about: str
    source: str = ""
    options: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    effort: Mapping[str, Any] = field(default_factory=dict)
    amounts: tuple[str, ...] = ()
    usual: str = ""
    profile: str = PROFILE
    kept: str = "runs"
    further: str = ""

    @property
    def fidelity(self) -> str:
        """Return the default fidelity."""
        return self.usual or next(iter(self.effort), REPLAYED)

    def setup(self, watcher: "Watcher | None" = None, **options: Any) -> Setup:
        """Return the study's inputs for these options; None and () mean the default.

        RequestError for options that exclude each other, and for an unknown profile or price book.
        """
        from slslab.predict.profiles.profile import load_profile
        from slslab.run.bill import load_book
        from slslab.run.directory import root
        from slslab_lab.papers.paper import load_paper

        if watcher is None:
            from slslab_lab.runs.accuracy.curve import Unwatched

            watcher = Unwatched()
        given = {name: value for name, value in options.items() if value not in (None, ())}
        values = {**DEFAULTS, "profile": self.profile, "fidelity": self.fidelity, **given}
        fidelity = values["fidelity"]
        if "recordings" in values and fidelity != REPLAYED:
            raise RequestError("--recordings needs --fidelity replayed.", "add it, or leave out --recordings.")
        if "on" in values and fidelity == REPLAYED:
            raise alone_error()
        return Setup(
            self,
            load_paper(self.paper),
            load_profile(values["profile"]),
            load_book(values["prices"]),
            fidelity,
            values.get("out") or root() / f"reproduce-{self.name}-{fidelity}",
            watcher,
            values,
        )

    def make(self, setup: Setup) -> dict[str, Any]:
        """Return the document, from results measured now (and saved if they are one file) or from recordings."""
        source = _module(self.source or self.document)
        results = None
        if setup.fidelity != REPLAYED:
            results = source.measure(setup)
            if hasattr(source, "RESULTS"):
                setup.watcher.say(f"{self.kept.capitalize()}: {self.write(results, setup.out)}")
        elif hasattr(source, "RESULTS"):
            results = self.read(setup.options.get("recordings"))
        elif hasattr(source, "read"):
            results = source.read(setup)
        document: dict[str, Any] = _module(self.document).build(setup, results)
        if self.further and setup.fidelity == REPLAYED and "recordings" not in setup.options:
            document |= _module(self.further).further(setup)
        return document

    def replay(self) -> dict[str, Any]:
        """Return the document of the project's own recordings, with default options."""
        return self.make(self.setup(fidelity=REPLAYED))

    def read(self, directory: Path | None = None) -> Any:
        """Return the results in the file of a directory, by default the project's own.

        RunError if the project's file is missing; RequestError if a directory's is, or for the first wrong entry.
        """
        from slslab_lab.studies.kept import read_entries

        file = f"{self.kept}.json"
        if directory is None:
            directory = committed(f"{self.name}/{file}").parent
        kind = _module(self.source or self.document).RESULTS
        return read_entries(directory / file, kind, SCHEMA, f"file of {self.kept}", HINT)

    def write(self, results: Any, directory: Path) -> Path:
        """Write results that are one file, and return its path; RequestError if they can't be written."""
        from slslab_lab.studies.saving import write_texts

        (path,) = write_texts(directory, {f"{self.kept}.json": results.model_dump_json(by_alias=True) + "\n"})
        return path


def alone_error() -> RequestError:
    """Return the error for --on where runs are made or read."""
    return RequestError(
        "--on doesn't apply here: measured runs need the host to themselves, and recordings take seconds.",
        "leave it out.",
    )


def _module(name: str) -> Any:
    return import_module(f"slslab_lab.studies.{name}")
