"""docs/results.md: what the project's own recordings and curves say of the papers. Built from `results/` and `papers/`
alone: recordings are played, nothing is run."""

from collections.abc import Iterator, Sequence
from functools import cache

from slslab.predict.profiles.profile import load_profile
from slslab.report.page import Document
from slslab.run.bill import load_book
from slslab_lab.pages.grids import grids, notes, reasons
from slslab_lab.pages.verdicts import model_errors
from slslab_lab.papers.paper import load_paper
from slslab_lab.studies import MODELS, communication, filtering, table2, table3
from slslab_lab.studies.accuracy_by_time import play_epochs
from slslab_lab.studies.curves import committed as committed_curves
from slslab_lab.studies.curves import read_curves, select
from slslab_lab.studies.experiments import Runs, experiments, read_all
from slslab_lab.studies.experiments import committed as recorded
from slslab_lab.studies.in_database import measurements
from slslab_lab.studies.in_database.table import build as build_in_database
from slslab_lab.studies.kubeml import accuracy as kubeml_accuracy
from slslab_lab.studies.kubeml import times as kubeml_times
from slslab_lab.studies.lambdaml import figure7, figure8, losses, table1
from slslab_lab.studies.lambdaml import recordings as channel_recordings
from slslab_lab.studies.measured_rounds import read_exchanges
from slslab_lab.studies.pages.markdown import paragraph, render
from slslab_lab.studies.patterns import compare_rounds, free_costs

TITLE = "# Results"
INTRODUCTION = """
What this project's own recordings say of the papers. The page is built by `python docs/build.py` from the recordings
and curves in `results/` and the published numbers in `papers/`, as the commands beside each part print it.
 **Published** stands as printed, **recomputed** is arithmetic on the paper's own figures, **measured**
was measured on the host that is named, **modelled** (≈) is what a recording's replay says of AWS.
"""
PAPER, CURVES_OF, DATASET = "barrak-2025", "mobilenet", "cifar10"
LAMBDAML = "lambdaml-2021"
PLATFORM = "aws-us-east-1"


def build() -> str:
    """Return the whole page, with what the committed recordings and curves give of each reproduction."""
    paper, platform, book = load_paper(PAPER), load_profile(PLATFORM), load_book(PLATFORM)
    runs = _recorded_runs()
    measured = measurements.read(measurements.committed())
    parts = [TITLE, paragraph(INTRODUCTION.strip())]
    parts += _section("table2 --fidelity replayed", table2_document())
    curves = select(read_curves(committed_curves()), CURVES_OF, DATASET)
    recordings, progressions = play_epochs(paper, CURVES_OF, curves, runs.done, platform, book, _ignore_progress)
    parts += _section("table3", table3.build(paper, progressions, recordings, None))
    parts += _section(
        "mlless-filter", filtering.build(paper, curves, recordings, CURVES_OF, None), ": the filter of MLLess"
    )
    in_database = build_in_database(paper, measured, tuple(measured.models), platform, "replayed")
    parts += _section("in-database --fidelity replayed", in_database, ": the databases of SPIRT")
    for name in communication.SOURCES:
        parts += _section(name, patterns_document(name))
    lambdaml = load_paper(LAMBDAML)
    of_rounds, of_epochs = (losses.read(losses.committed(figure.NAME)) for figure in (figure7, figure8))
    parts += _section(
        f"{figure7.NAME} --fidelity replayed",
        figure7.build(lambdaml, of_rounds, read_curves(committed_curves()), "replayed"),
    )
    parts += _section(f"{figure8.NAME} --fidelity replayed", figure8.build(lambdaml, of_epochs, "replayed"))
    parts += _section(
        f"{table1.NAME} --fidelity replayed",
        table1.build(
            lambdaml,
            channel_recordings.read_all(channel_recordings.committed()),
            channel_recordings.refusals(),
            load_profile(table1.PROFILE),
            book,
            "replayed",
        ),
    )
    kubeml, accuracies = load_paper(kubeml_times.PAPER), kubeml_accuracy.read(kubeml_accuracy.committed())
    parts += _section(kubeml_times.NAME, kubeml_document())
    parts += _section(
        f"{kubeml_accuracy.NAME} --fidelity replayed", kubeml_accuracy.build(kubeml, accuracies, "replayed")
    )
    return "\n\n".join(parts) + "\n"


def _section(command: str, document: Document, part: str = "") -> Iterator[str]:
    """Yield a reproduction, and the command that prints it; `part` is which of the paper's table it is."""
    title, paper = document["table"]["title"], document["paper"]
    yield f"## {title}{part}"
    yield paragraph(f"{document['table']['source']} of {paper['title']} ({paper['published']}).")
    yield f"```\n$ slslab reproduce {command}\n```"
    yield from reproduction(document)


@cache
def _recorded_runs() -> Runs:
    return read_all(recorded(), experiments(MODELS))


@cache
def table2_document() -> Document:
    """Return Table 2 from the committed recordings."""
    paper, platform, book = load_paper(PAPER), load_profile(PLATFORM), load_book(PLATFORM)
    return table2.build(paper, _recorded_runs(), platform, book, "replayed", _ignore_progress)


@cache
def patterns_document(name: str) -> Document:
    """Return a table of AllReduce and ScatterReduce."""
    source = communication.SOURCES[name]
    paper, platform = load_paper(source.paper), load_profile(source.profile)
    here = paper.table(source.table)
    compare = compare_rounds(here, platform, free_costs(), exchanges=read_exchanges())
    return communication.build(name, paper, source.table, [compare(row) for row in here.rows], platform)


@cache
def kubeml_document() -> Document:
    """Return KubeML's times by merges."""
    return kubeml_times.build(load_paper(kubeml_times.PAPER), load_profile(kubeml_times.PROFILE))


def _ignore_progress(stage: str, done: int, total: int) -> None:
    """Ignore progress."""


def reproduction(document: Document) -> Iterator[str]:
    """Yield a reproduction's document as Markdown: what it found first."""
    if found := document.get("findings"):
        yield _list(found)
    yield _list([*model_errors(document), *notes(document)])
    for table in grids(document):
        yield f"### {table.caption}"
        yield render(table)
        if table.note:
            yield paragraph(f"{table.note}.")
    if why := reasons(document):
        yield "### Why figures differ"
        yield _list(why)


def _list(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)
