"""What one speed of processors for all rows, and an interval within a run, cannot have."""

import re

from tests.lab.replay.recordings import TRACES
from tests.lab.studies.papers import paper

from slslab.predict.profiles.profile import load_profile
from slslab_lab.replay.measured import read_measured
from slslab_lab.runs.planning import architectures
from slslab_lab.studies.experiments import Experiment
from slslab_lab.studies.replayed_rows import TIME, Played, differences, fit_speed
from slslab_lab.studies.table2 import row_of

PROFILE = load_profile("aws-us-east-1")


def once(model: str, times: int) -> Played:
    """One recording as the row of a model with its seconds, multiplied by `times`, as published ones."""
    experiment = Experiment("allreduce", "lenet", released=False)
    row = row_of(paper(), experiment)
    published = dict(row.published) | {TIME: row.published[TIME] * times}
    measured = read_measured(TRACES / "allreduce", architectures())
    return Played(experiment, measured, row.model_copy(update={"group": model, "published": published}))


def test_models_that_are_published_further_apart_than_modelled_have_speeds_of_their_own() -> None:
    played = [once("A", 1), once("B", 3)]
    calibration = fit_speed(played, PROFILE)
    runs, models = differences(played, calibration, PROFILE)
    first, second = re.findall(r"[AB] (\S+) to \1 s", runs)
    assert first == second, "one recording"
    assert "allreduce, canonical 3.00 and 1.00" in models
    alone = [float(found) for found in re.findall(r"alone (?:it would be )?([\d.]+)", models)]
    assert alone[0] > calibration.speed > alone[1], "what is published as slower has the slower processors"


def test_one_model_has_nothing_to_be_compared_with() -> None:
    played = [once("A", 1), once("A", 3)]
    (runs,) = differences(played, fit_speed(played, PROFILE), PROFILE)
    assert "differs between runs: A " in runs
