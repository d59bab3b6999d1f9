"""CPU seconds that were measured alone, in place of a run's own: by kind, in proportion, and nowhere else."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.lab.replay.recordings import TRACES
from tests.lab.replay.test_modelled import PLAN, event

from slslab.run.document import AloneKind
from slslab.run.run import Run
from slslab_lab.replay.kernel.program import Program, Step
from slslab_lab.replay.programs.alone import ANY, Kind, Sample, samples, suffix, summarise
from slslab_lab.replay.programs.recorded import make_program
from slslab_lab.replay.programs.recording import read_recording

MS = 1_000_000
FUNCTION = "train"


def kind(
    op: str, phase: str, ms: float, *, first: bool = False, size: int = 0, function: str = FUNCTION, resource: str = ""
) -> AloneKind:
    seconds = ms / 1000
    return {
        "function": function, "op": op, "phase": phase, "resource": resource, "first": first, "bytes": size, "count": 3,
        "cpu_seconds": {"lower": 0.9 * seconds, "median": seconds, "upper": 2 * seconds},
    }  # fmt: skip


def recording(alone: Sequence[AloneKind] | None, *more: dict[str, Any]) -> Run:
    """A worker with an init of 200 ms of CPU time, a first step of 300, a second of 290, a put of 10, and an end of 100
    ms."""
    inside = {"environment": "one", "phase": "compute"}
    events = [
        event(0, "invoke", -1, 0, 3_000, invocation="request-0"),
        event(1, "environment.start", -1, 0, 900, environment="one", cpu_ns=200 * MS, phase="init"),
        event(2, "compute", 0, 1_000, 1_300, cpu_ns=300 * MS, cpu_before_ns=7 * MS, **inside),
        event(3, "object.put", 0, 1_300, 1_400, cpu_ns=10 * MS, requests=1, resource="b/k", environment="one"),
        event(4, "compute", 0, 1_400, 1_700, cpu_ns=290 * MS, **inside),
        *more,
    ]
    spent_ms = sum(one["cpu_ns"] + one["cpu_before_ns"] for one in events) / MS
    record = {
        "request_id": "request-0", "function": FUNCTION, "memory_mb": 1769, "ephemeral_mb": 512, "environment": "one",
        "cold_start": True, "cpu_ms": spent_ms + 100, "architecture": "x86_64", "invocation_type": "RequestResponse",
    }  # fmt: skip
    return Run(plan=PLAN, events=events, invocations=[record], document={"alone": {"kinds": alone}})


def with_kinds(run: Run, alone: Sequence[AloneKind] | None) -> Run:
    """The run as if these kinds had been measured alone."""
    return run.replace(document={**run.summary(), "alone": {"kinds": alone}})


def steps(program: Program) -> dict[int, Step]:
    return {step.event: step for track in program.tracks for step in track.flat_steps()}


def test_a_run_without_measured_kinds_is_replayed_as_it_was_recorded() -> None:
    track = make_program(recording(None)).tracks[0]
    assert track.init_cpu_ns == 200 * MS
    assert [step.cpu_ns for step in track.flat_steps()] == [307 * MS, 10 * MS, 290 * MS, 100 * MS]


def test_each_kind_takes_its_median_and_all_else_stays() -> None:
    """What lies before a step, requests, and what the invocation did after its last event are the run's own."""
    alone = [
        kind("environment.start", "init", 150, first=True),
        kind("compute", "compute", 170, first=True),
        kind("compute", "compute", 160),
        kind("compute", "compute", 1, function="other"),
        kind("update", "update", 5),
    ]
    track = make_program(recording(alone)).tracks[0]
    assert track.init_cpu_ns == 150 * MS
    found = [(step.op, step.cpu_ns) for step in track.flat_steps()]
    assert found == [
        ("compute", 177 * MS), ("object.put", 10 * MS), ("compute", 160 * MS), ("return", 100 * MS),
    ]  # fmt: skip


def test_a_kind_that_was_not_measured_keeps_the_run_s_own_and_a_first_step_alone_stands_for_all() -> None:
    program = make_program(recording([kind("compute", "compute", 170, first=True)]))
    assert steps(program)[2].cpu_ns == 177 * MS
    assert steps(program)[4].cpu_ns == 170 * MS
    assert program.tracks[0].init_cpu_ns == 200 * MS


def test_steps_over_more_data_take_longer_in_proportion_to_the_measured_size_that_is_nearest() -> None:
    def reduce(number: int, size: int, how: str = "add") -> dict[str, Any]:
        more = {"cpu_ns": 50 * MS, "bytes": size, "phase": "synchronise", "environment": "one", "resource": how}
        return event(number, "reduce", 0, 2_000 + number, 2_000 + number, **more)

    alone = [
        kind("reduce", "synchronise", 8, size=4_000, function=ANY, resource="add"),
        kind("reduce", "synchronise", 1, size=100, function=ANY, resource="add"),
    ]
    program = make_program(
        recording(alone, reduce(5, 2_000), reduce(6, 12_000), reduce(7, 50), reduce(8, 0), reduce(9, 4_000, "sum"))
    )
    found = steps(program)
    assert [found[number].cpu_ns for number in range(5, 10)] == [4 * MS, 24 * MS, MS // 2, 50 * MS, 50 * MS]


def test_scripts_take_what_the_database_alone_took_for_the_same_script() -> None:
    address = "127.0.0.1:6001"
    called = {"phase": "synchronise", "environment": "one", "overhead": False, "host_delay_ns": 0}
    told = {"environment": "tensordb-0", "function": "tensordb", "bytes": 8_000}
    events = [
        event(5, "tensor.script", 0, 2_000, 2_100, resource=f"{address}/run:mean", requests=1, **called),
        event(6, "tensor.script.run", 0, 2_010, 2_090, resource="scripts/average run:mean", cpu_ns=80 * MS, **told),
        event(7, "tensor.script", 0, 2_200, 2_300, resource=f"{address}/run:params", requests=1, **called),
        event(8, "tensor.script.run", 0, 2_210, 2_290, resource="scripts/sgd run:params", cpu_ns=70 * MS, **told),
    ]
    alone = [
        kind("tensor.script.run", "other", 10, size=2_000, first=True, function="scripts/average"),
        kind("tensor.script.run", "other", 30, size=8_000, function="scripts/average"),
    ]
    found = steps(make_program(recording(alone, *events)))
    assert found[5].server_cpu_ns == 30 * MS
    assert found[7].server_cpu_ns == 70 * MS, "it was not measured"


def test_an_instance_starts_and_computes_as_one_did_alone() -> None:
    recorded = read_recording(TRACES / "gpu")
    mine = [one for one in summarise(samples(recorded)) if one["op"] in ("compute", "environment.start")]
    for one in mine:
        one["cpu_seconds"]["median"] = 2.0
    before, after = (make_program(with_kinds(recorded, alone)) for alone in (None, mine))
    for track, changed in zip(before.tracks, after.tracks, strict=True):
        for step, other in zip(track.flat_steps(), changed.flat_steps(), strict=True):
            if step.op == "compute":
                assert abs(other.cpu_ns - 2_000 * MS) < 1_000 * MS, "and what came before it"
            elif step.op == "start":
                assert other.cpu_ns == pytest.approx(2_000 * MS, abs=2)
            else:
                assert other == step


@pytest.mark.parametrize("name", ["allreduce", "mlless", "scatterreduce", "spirt", "gpu"])
def test_what_a_run_says_of_itself_changes_only_the_kinds_that_it_has(name: str) -> None:
    """Taken for a measurement, a run gives each of its steps its kind's median; the sum is nearly the same."""
    recorded = read_recording(TRACES / name)
    alone = summarise(samples(recorded))
    own, again = (make_program(with_kinds(recorded, kinds)) for kinds in (None, alone))
    spent = {True: 0, False: 0}
    changed = set()
    for program in (own, again):
        for track in program.tracks:
            spent[program is own] += track.init_cpu_ns + sum(step.cpu_ns for step in track.flat_steps())
    for track, other in zip(own.tracks, again.tracks, strict=True):
        pairs = zip(track.flat_steps(), other.flat_steps(), strict=True)
        changed |= {step.op for step, taken in pairs if step.cpu_ns != taken.cpu_ns}
    assert spent[False] == pytest.approx(spent[True], rel=0.1)
    assert "compute" in changed
    assert not any("." in op or op in ("return", "join") for op in changed)


def test_kinds_have_quartiles_and_sizes_apart() -> None:
    compute, write = Kind(FUNCTION, "compute", "compute", "", False), Kind(FUNCTION, "serialise", "other", "", True)
    found = [Sample(compute, 0, ms * MS) for ms in (10, 20, 30, 40, 1_000)]
    found += [Sample(write, size, MS) for size in (1_000, 1_010, 3_000)]
    same = dict.fromkeys(("lower", "median", "upper"), 0.001)
    assert summarise(found) == [
        {
            **compute._asdict(), "bytes": 0, "count": 5,
            "cpu_seconds": {"lower": 0.02, "median": 0.03, "upper": 0.04},
        },
        {**write._asdict(), "bytes": 1_005, "count": 2, "cpu_seconds": same},
        {**write._asdict(), "bytes": 3_000, "count": 1, "cpu_seconds": same},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "found"),
    [
        ("slslab-20261121-one", ""),
        ("slslab-20261121-one-2", ""),
        ("slslab-20261121-one-supervisor", "supervisor"),
        ("slslab-20261121-one-2-supervisor", "supervisor"),
        ("slslab-20261121-compute_gradients", "compute_gradients"),
        ("slslab_workers.gpu.instance", "_workers.gpu.instance"),
    ],
)
def test_a_function_is_the_same_alone_and_in_the_run_however_its_name_was_shortened(function: str, found: str) -> None:
    assert suffix(function, "20261121-one") == found
