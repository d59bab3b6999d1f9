"""Wall seconds of a steady epoch: by hand for made-up patterns, and of committed recordings (LeNet)."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from tests.lab.replay.measured import MS, PatternOnly
from tests.lab.replay.platform import platform
from tests.lab.replay.recordings import TRACES
from tests.lab.studies.papers import paper

from slslab.errors import RunError
from slslab.predict.profiles.profile import load_profile
from slslab.run.bill import load_book
from slslab_lab.replay.kernel.program import Track
from slslab_lab.replay.measured import read_measured
from slslab_lab.replay.programs.step_costs import Cost, StepCosts
from slslab_lab.studies.experiments import Experiment
from slslab_lab.studies.replayed_rows import Recordings, prepare, steady_epoch
from slslab_workers.channels.polling import Poll
from slslab_workers.patterns import Activity, Pattern, Role, Signal, Workload

NAMES = ("spirt", "scatterreduce", "allreduce", "mlless", "gpu")
BOOK = load_book("aws-us-east-1")


class OneAfterAnother(PatternOnly):
    """A worker who computes a minibatch in every step."""

    name = "one-after-another"

    def pattern(self, workload: Workload) -> Pattern:
        return Pattern(workload, (Role(range(1), "work", steps=((Activity("compute", "compute"),),)),))


class AllAtOnce(PatternOnly):
    """A function for every minibatch, all of an epoch's at once; then they are awaited, and the next epoch begins."""

    name = "all-at-once"

    def pattern(self, workload: Workload) -> Pattern:
        begun, done = Signal("begun", each="epoch"), Signal("done", each="epoch")
        work = Role(
            range(1), "work", each="step", needs=(begun,), makes=(done,), start=(Activity("compute", "compute"),)
        )
        epochs = Role(
            range(1),
            kind="execution",
            each="epoch",
            needs=(Signal("next", each="epoch"),),
            start=(
                Activity("join", "wait", makes=(begun,)),
                Activity("join", "wait", needs=(done,), makes=(Signal("next", each="epoch", ahead=1),)),
            ),
        )
        first = Role(range(1), "first", start=(Activity("join", "wait", makes=(Signal("next", each="epoch"),)),))
        return Pattern(workload, (first, epochs, work))


def played(architecture: PatternOnly) -> Any:
    """A run of an architecture with minibatches of 100 ms of a vCPU, and nothing else."""
    units = ("work", "first", "execution")
    costs = {
        (unit, op, phase, first): Cost(100.0 * MS if op == "compute" else 0.0, 0.0, 0.0, 0.0, 0.0, False, 0.0)
        for unit in units
        for op, phase in (("compute", "compute"), ("join", "wait"))
        for first in (True, False)
    }
    functions = {
        unit: Track(unit, "execution" if unit == "execution" else "invocation", -1, (), 1769) for unit in units
    }
    found = StepCosts(architecture, Workload(1, 3, 1, 10), costs, functions, frozenset(), Poll(0.01, 1.5, 0.1), {})
    measured = SimpleNamespace(
        costs=found,
        arch="x86_64",
        plan=SimpleNamespace(workers=1, memory_mb=1769),
        hosts=lambda _workers: (),
        driver_requests=lambda _workers, _epochs: {},
    )
    return SimpleNamespace(measured=measured, memory_mb=1769)


def test_24_minibatches_one_after_another() -> None:
    """2.4 s of a function of 1,769 MB, without its init, at 0.0000166667 USD a GB-second."""
    found = steady_epoch(played(OneAfterAnother()), platform(), BOOK)
    assert found.seconds == pytest.approx(2.4)
    assert found.cost == pytest.approx(2.4 * 1769 / 1024 * 0.0000166667)


def test_24_functions_at_once_last_as_long_as_one() -> None:
    found = steady_epoch(played(AllAtOnce()), platform(), BOOK)
    assert found.seconds == pytest.approx(0.1)


@cache
def recordings() -> Recordings:
    runs = {Experiment(name, "lenet", False): read_measured(TRACES / name) for name in NAMES}
    runs[Experiment("spirt", "lenet", True)] = read_measured(TRACES / "spirt-as-released")
    return prepare(paper(), runs, load_profile("aws-us-east-1"), BOOK)


def test_all_architectures() -> None:
    wanted = tuple(Experiment(name, "lenet", released) for name in NAMES for released in (False, True))
    for one in wanted:
        time = recordings().epoch(one)
        if one not in recordings().played:
            assert (time.seconds, time.reason) == (None, f"the recording {one.name} is missing")
        else:
            assert time.seconds is not None
            assert time.cost is not None
            assert min(time.seconds, time.cost) > 0


def test_spirts_epoch_is_shorter_than_24_of_its_functions() -> None:
    own = Experiment("spirt", "lenet", False)
    played_ = recordings().played[own]
    seconds = played_.seconds(recordings().platform).value
    found = recordings().epoch(own).seconds
    assert found is not None
    assert seconds < found < 12 * seconds


def test_a_larger_share_takes_longer() -> None:
    """MLLess's workers send and fetch more."""
    own = Experiment("mlless", "lenet", False)
    shares = [recordings().epoch(own, share) for share in (0.25, 1.0)]
    assert [one.share for one in shares] == [0.25, 1.0]
    assert shares[0].seconds is not None
    assert shares[1].seconds is not None
    assert shares[0].seconds < shares[1].seconds
    assert recordings().epoch(own).share == recordings().played[own].measured.costs.workload.share


def test_what_no_pattern_covers_has_a_reason() -> None:
    own = Experiment("spirt", "lenet", False)
    one = recordings().played[own]
    options: Mapping[str, Any] = {"join": "1:1"}
    costs = replace(one.measured.costs, workload=replace(one.measured.costs.workload, options=options))
    other = SimpleNamespace(costs=costs, plan=one.measured.plan, arch=one.measured.arch)
    odd: Any = SimpleNamespace(measured=other, memory_mb=None)
    found = replace(recordings(), played={own: odd}).epoch(own)
    assert found.seconds is None
    assert "join 1:1" in found.reason


def test_a_speed_needs_functions() -> None:
    gpu = Experiment("gpu", "lenet", False)
    runs = {gpu: read_measured(TRACES / "gpu")}
    with pytest.raises(RunError, match="No run of functions was recorded"):
        prepare(paper(), runs, load_profile("aws-us-east-1"), BOOK)
