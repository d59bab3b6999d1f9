"""Figure 4 of Barrak et al.: accuracy by time, the points of all curves."""

from collections.abc import Iterator, Sequence
from typing import Any

from slslab_lab.studies import NAMES
from slslab_lab.studies.accuracy_by_time import TABLE, Learnt, Progression, by_time, describe, shared_curves
from slslab_lab.studies.documents import ReproducedRow, make_document
from slslab_lab.studies.study import Setup
from slslab_lab.studies.table3 import platform, time_notes


def build(setup: Setup, learnt: Learnt) -> dict[str, Any]:
    """Return the document of the figure."""
    progressions, recordings = learnt.progressions, learnt.recordings
    rows = (
        ReproducedRow(each.row.name, NAMES[each.experiment.model], each.experiment.variant, {}, "", each.as_document())
        for each in progressions
    )
    return make_document(
        setup,
        setup.paper.table(TABLE),
        (),
        rows,
        [*describe(progressions), *_lacking(progressions), *time_notes(progressions, recordings)],
        curves=by_time(progressions),
        table={
            "title": "Accuracy by time",
            "source": "Figure 4",
            "notes": ["The paper doesn't print the data of Figure 4, so these points can't be compared with it."],
        },
        **platform(recordings),
        shared_curves=shared_curves(progressions),
    )


def _lacking(progressions: Sequence[Progression]) -> Iterator[str]:
    for progression in progressions:
        if progression.curve is None:
            yield f"{progression.label} isn't drawn: {progression.unknown}."
        elif progression.epoch.seconds is None:
            yield f"{progression.label} isn't drawn: {progression.epoch.reason}."
