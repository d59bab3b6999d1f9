"""What is measured of recorded steps, against hand calculation."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.lab.replay.measured import ARCHITECTURES, MS, PARAMETERS, PatternOnly, make_costs

from slslab.errors import RequestError
from slslab_lab.replay.kernel.program import Program, Step, Track
from slslab_lab.replay.programs.scaling import generate
from slslab_lab.replay.programs.step_costs import StepCosts, measure
from slslab_lab.runs.planning import architectures
from slslab_workers.patterns import Activity, Pattern, Role, Workload

UNIT = "invocation"


class Recorded(PatternOnly):
    """One worker that does what it is given."""

    name = "recorded"

    def __init__(self, *activities: Activity) -> None:
        self.activities = activities

    def pattern(self, workload: Workload) -> Pattern:
        return Pattern(workload, (Role(range(workload.workers), steps=(self.activities,)),))


def recorded(steps: Sequence[Step], workers: int = 1, batches: int = 1) -> Program:
    tracks = tuple(Track("run", "invocation", rank, tuple(steps), 1769) for rank in range(workers))
    return Program("recorded", workers, tracks, (), batches=batches)


def step(op: str, cpu_ms: float, size: int = 0, phase: str = "synchronise", number: int = 1, epoch: int = 0) -> Step:
    requests = 1 if "." in op else 0
    return Step(op, phase, round(cpu_ms * MS), requests=requests, bytes=size, epoch=epoch, step=number)


def measured(architecture: Recorded, program: Program) -> StepCosts:
    return measure([program], architecture, Workload(1, 1, 1, PARAMETERS))


def put(size: int | None, phase: str = "synchronise") -> Activity:
    return Activity("object.put", phase, bytes=size)


def test_costs_are_means_by_phase_and_the_first_step_stands_apart() -> None:
    architecture = Recorded(Activity("update", "update"))
    steps = [step("update", cpu, phase="update", number=n) for n, cpu in enumerate((9, 2, 4))]
    costs = measured(architecture, recorded(steps, batches=3)).costs
    assert costs[UNIT, "update", "update", True].fixed == 9 * MS
    assert costs[UNIT, "update", "update", False].fixed == 3 * MS


def test_requests_of_different_sizes_cost_a_time_and_so_much_a_byte() -> None:
    architecture = Recorded(put(1_000), put(3_000))
    costs = measured(architecture, recorded([step("object.put", 3, 1_000), step("object.put", 7, 3_000)])).costs
    cost = costs[UNIT, "object.put", "synchronise", False]
    assert cost.fixed == pytest.approx(1 * MS)
    assert cost.per_byte == pytest.approx(2_000)


def test_sizes_of_another_phase_tell_what_a_byte_costs_and_each_phase_keeps_its_mean() -> None:
    architecture = Recorded(put(1_000), put(3_000, "other"))
    steps = [step("object.put", 3, 1_000), step("object.put", 7, 3_000, "other")]
    costs = measured(architecture, recorded(steps)).costs
    for phase, size, cpu_ms in (("synchronise", 1_000, 3), ("other", 3_000, 7)):
        cost = costs[UNIT, "object.put", phase, False]
        assert cost.per_byte == pytest.approx(2_000)
        assert cost.fixed + cost.per_byte * size == pytest.approx(cpu_ms * MS)


def test_what_a_byte_costs_is_told_by_requests_that_are_large() -> None:
    """Of two lines of a log the longer one took twice as long by chance; a gradient of 1 MB took 1 ms more than both
    on average, which is 1 ns a byte."""
    architecture = Recorded(put(100, "log"), put(300, "log"), put(1_000_000))
    steps = [step("object.put", 2, 100, "log"), step("object.put", 4, 300, "log"), step("object.put", 4, 1_000_000)]
    cost = measured(architecture, recorded(steps)).costs[UNIT, "object.put", "log", False]
    assert cost.per_byte == pytest.approx(1.0, rel=1e-3)
    assert cost.fixed == pytest.approx(3 * MS, rel=1e-3)


def test_larger_requests_that_cost_less_cost_nothing_a_byte() -> None:
    architecture = Recorded(put(1_000), put(3_000))
    costs = measured(architecture, recorded([step("object.put", 7, 1_000), step("object.put", 3, 3_000)])).costs
    assert costs[UNIT, "object.put", "synchronise", False].per_byte == 0
    assert costs[UNIT, "object.put", "synchronise", False].fixed == 5 * MS


def test_requests_of_one_size_cost_as_much_each() -> None:
    costs = measured(Recorded(put(1_000)), recorded([step("object.put", 3, 1_000)])).costs
    assert costs[UNIT, "object.put", "synchronise", False].per_byte == 0


def test_a_computation_costs_so_much_a_byte_of_its_data() -> None:
    architecture = Recorded(Activity("reduce", "synchronise", work=4_000))
    costs = measured(architecture, recorded([step("reduce", 8, number=0)])).costs
    cost = costs[UNIT, "reduce", "synchronise", True]
    assert (cost.fixed, cost.per_work) == (0.0, 8 * MS / 4_000)


def test_sizes_that_the_pattern_leaves_open_are_those_of_the_other_requests() -> None:
    architecture = Recorded(put(4_000), put(None))
    steps = [step("object.put", 1, 4_020), step("object.put", 1, 500), step("object.put", 1, 700)]
    assert measured(architecture, recorded(steps)).costs[UNIT, "object.put", "synchronise", False].bytes == 600


@pytest.mark.parametrize(("times", "left_out"), [(1, True), (2, False)])
def test_what_is_optional_is_left_out_if_no_more_than_the_rest_was_recorded(times: int, left_out: bool) -> None:
    architecture = Recorded(put(4_000), Activity("object.put", "synchronise", bytes=None, optional=True))
    found = measured(architecture, recorded([step("object.put", 1, 4_000)] * times)).left_out
    assert found == ({(UNIT, "object.put", "synchronise")} if left_out else set())


def test_the_share_that_a_filter_lets_pass_is_measured() -> None:
    costs = make_costs("mlless")
    half = generate(replace(costs, workload=replace(costs.workload, share=0.5)), 2, 4, 1)
    assert measure([half], costs.architecture, Workload(1, 1, 1, PARAMETERS)).workload.share == 0.5


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_what_is_measured_of_a_generated_program_generates_it_again(name: str) -> None:
    made = generate(make_costs(name, per_byte=0.0), 3, 3, 2)
    again = generate(measure([made], architectures()[name], Workload(1, 1, 1, PARAMETERS)), 3, 3, 2)
    assert len(again.tracks) == len(made.tracks)
    assert again.gates == made.gates
    for one, other in zip(made.tracks, again.tracks, strict=True):
        assert replace(one, steps=()) == replace(other, steps=())
        for mine, yours in zip(one.steps, other.steps, strict=True):
            # Recorded are computations one by one, of which a generated step is several.
            assert mine == yours or (isinstance(mine, Step) and mine.op in ("connect", "reduce"))


def test_an_operation_that_was_never_recorded_is_refused() -> None:
    costs = measured(Recorded(put(1_000)), recorded([step("object.put", 3, 1_000)]))
    with pytest.raises(RequestError, match=r"The recording has no tensor\.get \(phase fetch\)"):
        costs.of(UNIT, "tensor.get", "fetch", first=False)


def test_an_operation_of_another_phase_stands_for_one_that_was_not_recorded() -> None:
    architecture = Recorded(put(1_000), put(1_000, "other"))
    costs = measured(architecture, recorded([step("object.put", 3, 1_000), step("object.put", 5, 1_000, "other")]))
    assert costs.of("another", "object.put", "other", first=True).fixed == 5 * MS
    assert costs.of(UNIT, "object.put", "fetch", first=False).fixed == 3 * MS


def test_workers_that_handed_over_are_refused() -> None:
    track = Track("run", "invocation", 0, (step("update", 1),), 1769)
    program = Program("recorded", 1, (track, track), ())
    with pytest.raises(RequestError, match="Worker 0 trained in several invocations"):
        measured(Recorded(Activity("update", "update")), program)


def test_an_architecture_without_a_pattern_is_refused() -> None:
    architecture = PatternOnly()
    with pytest.raises(RequestError, match="architecture does not say who sends what to whom"):
        measure([recorded([])], architecture, Workload(1, 1, 1, PARAMETERS))


def test_tracks_that_the_pattern_does_not_know_are_refused() -> None:
    program = Program("recorded", 1, (Track("g4dn.xlarge", "instance", 0, ()),), ())
    with pytest.raises(RequestError, match="g4dn"):
        measured(Recorded(Activity("update", "update")), program)
