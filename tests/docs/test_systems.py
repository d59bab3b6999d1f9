"""The table of systems: every architecture of the papers stands there, with what its recording cost and took."""

import json

import pytest
from docs.pages.systems import build, systems
from tests.fault_table import DATA

from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import load_profile
from slslab.report.formats import span
from slslab.run.bill import DEFAULT_BOOK, load_book
from slslab_lab.replay.measured import read_measured
from slslab_lab.replay.ranges import with_processor
from slslab_lab.replay.whatif import Platform, Variant, evaluate
from slslab_lab.runs.planning import architectures
from slslab_lab.studies import committed
from slslab_lab.studies.atlas.systems import SYSTEMS
from slslab_workers.architecture import title

ATLAS = committed("atlas")


@pytest.fixture(scope="module")
def rows() -> dict[str, list[str]]:
    """The cells of the table by its first column."""
    return {str(name): [str(cell) for cell in cells] for name, *cells in build().rows}


def test_every_registered_architecture_stands_there(rows: dict[str, list[str]]) -> None:
    listed = {read_measured(system.recording).plan.architecture for system in systems(ATLAS)}
    assert listed == architectures().keys()
    assert {title(system.architecture) for system in SYSTEMS} <= rows.keys()
    assert all(paper for paper, *_ in rows.values())
    assert {"AllReduce by memcached", "GradsSharding", "λ-FL", "LIFL"} <= rows.keys()


def test_its_figures_are_those_of_the_replay(rows: dict[str, list[str]]) -> None:
    run = read_measured(next(system.recording for system in systems(ATLAS) if system.name == "SPIRT"))
    profile = with_processor(load_profile(DEFAULT_PROFILE), run.processor)
    platform = Platform(profile, load_book(DEFAULT_BOOK), run.plan.timeout)
    own, many = (evaluate(run, variant, platform) for variant in (Variant(), Variant(workers=64)))
    assert rows["SPIRT"][2:6] == [
        span(row.figures[name].low or 0, row.figures[name].high or 0)
        for row in (own, many)
        for name in ("cost", "seconds")
    ]


def test_every_system_survives_as_many_faults_as_its_cells_say(rows: dict[str, list[str]]) -> None:
    """In every phase that they can be in; no system survives none."""
    cells = [cell for cell in json.loads(DATA.read_text())["cells"] if cell["status"] != "not applicable"]
    for system in systems(ATLAS):
        faults = {cell["fault"] for cell in cells if cell["system"] == system.tried_as}
        ended = {cell["fault"] for cell in cells if cell["system"] == system.tried_as and cell["status"] != "survived"}
        assert rows[system.name][-1] == f"{len(faults - ended)} of {len(faults)}"
        assert faults - ended
