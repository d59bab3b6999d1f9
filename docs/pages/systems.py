"""The table of all systems of the papers: each one's recorded run with its bill and time, its replay, and the faults
that it survives."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from docs.pages.faults import survived

from slslab.errors import counted
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import load_profile
from slslab.report.formats import span
from slslab.report.page import Table
from slslab.run.bill import DEFAULT_BOOK, load_book
from slslab_lab.replay.measured import read_measured
from slslab_lab.replay.ranges import with_processor
from slslab_lab.replay.whatif import Platform, Row, Variant, evaluate
from slslab_lab.runs.planning import architectures
from slslab_lab.studies import committed
from slslab_lab.studies.atlas.recordings import AVERAGING, CHANNELS_OF, TOPOLOGIES, lenet
from slslab_lab.studies.lambdaml import table1
from slslab_workers.architecture import title
from slslab_workers.channels.choice import OPENERS, PARAMETER_SERVER

# Recordings with a few workers are replayed with this many.
MANY = 64
LAMBDAML = "LambdaML, SIGMOD 2021"
TREES = {"shards": "GradsSharding", "lambda-fl": "λ-FL", "lifl": "LIFL"}


class System(NamedTuple):
    """A system with its paper, its recorded run, and its name in the fault table."""

    name: str
    paper: str
    recording: Path
    tried_as: str


def systems(recordings: Path) -> Iterator[System]:
    """Yield every registered architecture with a recording in this folder, then variants with another channel,
    algorithm or topology."""
    known = architectures()
    for name, each in known.items():
        recording = recordings / lenet(name).name
        if recording.is_dir():
            yield System(title(name), each.paper, recording, name)
    for channel in OPENERS:
        if channel != table1.BASE:
            shown = (
                "hybrid: AllReduce by a parameter server" if channel == PARAMETER_SERVER else f"AllReduce by {channel}"
            )
            recording = recordings / lenet(CHANNELS_OF, channel).name
            yield System(shown, LAMBDAML, recording, f"{CHANNELS_OF}/{channel}")
    kmeans = committed("lambdaml-table1") / "kmeans-10-s3"
    yield System("k-means by AllReduce", LAMBDAML, kmeans, f"{CHANNELS_OF}/kmeans")
    for number, topology in enumerate(TOPOLOGIES):
        # The first is its architecture's default.
        system = f"{AVERAGING}/{topology}" if number else AVERAGING
        recording = recordings / lenet(AVERAGING, topology).name
        yield System(TREES[topology], known[AVERAGING].paper, recording, system)


def build(recordings: Path | None = None) -> Table:
    """Return the table: runs, bills and replays of each system's recorded run, and the faults that it survives, where
    the fault table has them."""
    many = f"with {MANY} workers"
    headings = (
        "system", "paper", "recorded run", "bill, USD", "replay, s", f"{many}, USD", f"{many}, s", "faults survived"
    )  # fmt: skip
    lived = survived()
    rows = [
        (system.name, system.paper, *_figures_of(system.recording), lived.get(system.tried_as, "not tried"))
        for system in systems(recordings or committed("atlas"))
    ]
    return Table(headings, rows, words=(0, 1, 2, 7))


def _figures_of(recording: Path) -> Sequence[str]:
    run = read_measured(recording)
    profile = with_processor(load_profile(DEFAULT_PROFILE), run.processor)
    platform = Platform(profile, load_book(DEFAULT_BOOK), run.plan.timeout)
    own, many = (evaluate(run, variant, platform) for variant in (Variant(), Variant(workers=MANY)))
    invocations = run.document["invocations"]
    started = counted(invocations, "invocation") if invocations else counted(run.plan.workers, "instance")
    runs = f"{run.plan.workers} workers, {run.plan.model}, {started}"
    return (runs, *_figures(own), *_figures(many))


def _figures(row: Row) -> tuple[str, str]:
    cost, seconds = (row.uncertainties[name].around(row.number(name)) for name in ("cost", "seconds"))
    return span(*cost), span(*seconds)
