"""Generated programs: their counts are the closed form, they end, and small ones take what they take by hand."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lab.replay.measured import ARCHITECTURES, MS, PARAMETERS, PatternOnly, make_costs
from tests.lab.replay.platform import operation, platform
from tests.lab.replay.recordings import TRACES

from slslab.errors import RequestError
from slslab.predict.profiles.profile import Channel, Profile
from slslab_lab.replay.fitting import fit
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.program import Program, Step
from slslab_lab.replay.programs.recorded import make_program
from slslab_lab.replay.programs.recording import read_recording
from slslab_lab.replay.programs.scaling import generate
from slslab_lab.replay.programs.step_costs import measure
from slslab_lab.runs.planning import architectures
from slslab_lab.studies.atlas.costs import with_samples
from slslab_workers.architecture import workload_of
from slslab_workers.patterns import OWN, Activity, Pattern, Role, Signal, Workload
from slslab_workers.training import released_log

LENET = 61_706
# Runs with the authors' log traffic (slslab run ARCH --model lenet --dataset digits --workers 2 --memory 640 --epochs 2
# --batches 11 --batch-size 32 --log-traffic; mlless with --filter none --store s3), 21 November 2026, two cores.
LOGGED = ("allreduce-logged", "scatterreduce-logged", "mlless-logged")
# SPIRT in other ways than the paper's (slslab run spirt --model lenet --dataset digits --workers 2 --memory 640
# --epochs 2 --batches 3 --batch-size 32 --as-released; and with --averaging naive --update naive --update-rule
# sgd-momentum), 22 November 2026, two cores.
SPIRTS = ("spirt-as-released", "spirt-naive")


def overhead(name: str, n: int, b: int, e: int) -> dict[str, int]:
    """What a program holds in addition to the protocol, under the protocol's names."""
    if name == "spirt":
        # A peer is born with a model, asks the others, is answered, and leaves its model.
        letters = 2 * n * (n - 1)
        return {"tensor.set": n, "tensor.get": n, "queue.publish": letters, "queue.deliver": letters}
    if name == "mlless":
        # F and T; the client's delivery of TD is no worker's.
        return {"queue.publish": 2, "queue.deliver": -b * e}
    return {"object.get": n * b * e, "object.put": e + n}


def everything() -> Profile:
    """The round platform with databases, state machines and Lambda's own API."""
    profile = platform()
    whole = {"description": "any"}
    more = {
        "tensor": {op: operation(1) for op in ("set", "get", "script", "compile", "command", "delete")},
        "queue": {op: operation(1) for op in ("publish", "deliver", "declare", "bind", "delete")},
        "states": {"execute": operation(1)},
        "lambda": {"invoke": operation(1)},
    }
    channels = {name: Channel.model_validate({**whole, "operations": operations}) for name, operations in more.items()}
    return profile.model_copy(update={"channels": {**profile.channels, **channels}})


def steps_of(program: Program) -> Iterator[Step]:
    for track in program.tracks:
        for item in track.steps:
            yield from (item,) if isinstance(item, Step) else (step for group in item.groups for step in group)


@pytest.mark.parametrize("name", ARCHITECTURES)
@settings(max_examples=25)
@given(workers=st.integers(1, 16), batches=st.integers(1, 4), epochs=st.integers(1, 2))
def test_requests_are_the_closed_form_and_the_overhead(name: str, workers: int, batches: int, epochs: int) -> None:
    costs = replace(make_costs(name), left_out=frozenset())
    program = generate(without_buffers(costs), workers, batches, epochs)
    counted = Counter[str]()
    for step in steps_of(program):
        counted[step.op] += step.requests
    expected = Counter(architectures()[name].counts(workers, batches, epochs, PARAMETERS).operations)
    expected.update(overhead(name, workers, batches, epochs))
    assert {op: counted[op] for op in expected} == dict(expected)


def without_buffers(costs: Any) -> Any:
    """A model without BatchNorm."""
    functions = ("init_model", "compute_gradients", "average_gradients", "check_convergence")
    ops = ("tensor.set", "tensor.get", "tensor.compile")
    phases = ("fetch", "synchronise", "other")
    left_out = frozenset((function, op, phase) for function in functions for op in ops for phase in phases)
    return replace(costs, left_out=left_out)


@pytest.mark.parametrize("name", [*ARCHITECTURES, *LOGGED, *SPIRTS])
def test_a_recorded_run_is_generated_again(name: str) -> None:
    """Request by request, whatever they are for; CPU seconds as measured, and durations nearly so."""
    recording = read_recording(TRACES / name)
    recorded = make_program(recording)
    costs = measure([recorded], architectures()[recording.plan.architecture], workload_of(recording.plan, LENET))
    generated = generate(costs, recorded.workers, recorded.batches, recorded.epochs)
    assert requests_of(generated) == requests_of(recorded)
    cpu_ns = [sum(step.cpu_ns for step in steps_of(program)) for program in (generated, recorded)]
    assert cpu_ns[0] == pytest.approx(cpu_ns[1], rel=0.02)
    profile = fit([recording], recorded.epochs, date(2026, 11, 21))
    durations = [
        sum(call.ended - call.began for call in play(program, profile).calls) for program in (generated, recorded)
    ]
    assert durations[0] == pytest.approx(durations[1], rel=0.07)


@pytest.mark.parametrize("name", ["spirt", *SPIRTS])
def test_spirts_tensors_and_texts_have_the_bytes_of_the_trace(name: str) -> None:
    """To a byte a request, where they are a mean."""
    recording = read_recording(TRACES / name)
    recorded = make_program(recording)
    costs = measure([recorded], architectures()["spirt"], workload_of(recording.plan, LENET))
    generated = generate(costs, recorded.workers, recorded.batches, recorded.epochs)
    found, expected = bytes_of(generated), bytes_of(recorded)
    assert found.keys() == expected.keys()
    for key, (size, requests) in expected.items():
        assert found[key][0] == pytest.approx(size, abs=requests), key


def bytes_of(program: Program) -> dict[tuple[str, str, str], tuple[int, int]]:
    """Bytes of tensors and texts, and their requests, by function, operation and phase."""
    found: dict[tuple[str, str, str], tuple[int, int]] = {}
    for track in program.tracks:
        for step in steps_of(replace(program, tracks=(track,))):
            if step.op.startswith("tensor.") and step.bytes:
                key = (track.name, step.op, step.phase)
                size, requests = found.get(key, (0, 0))
                found[key] = (size + step.bytes, requests + step.requests)
    return found


def test_spirts_texts_are_as_long_as_recorded_and_more_of_them_take_the_database_longer() -> None:
    """LeNet's gradients were kept as 18 to 20 bytes a number, and their mean sent as 16 to 17, whatever the run's size.
    Of twice the minibatches Lua reads twice the numbers, and makes one mean."""
    recording = read_recording(TRACES / "spirt-as-released")
    costs = measure([make_program(recording)], architectures()["spirt"], workload_of(recording.plan, LENET))
    programs = [generate(costs, 4, batches, 1) for batches in (3, 6)]
    spent = []
    for program, batches in zip(programs, (3, 6), strict=True):
        stored = [step.bytes for step in steps_of(program) if step.op == "tensor.set" and step.step >= 0]
        averaged = [step for step in steps_of(program) if step.op == "tensor.script" and step.bytes]
        assert (len(stored), len(averaged)) == (4 * batches, 4)
        assert all(18 < size / LENET < 20 for size in stored)
        assert all(16 < step.bytes / LENET < 17 for step in averaged)
        spent.append(sum(step.server_cpu_ns for step in averaged))
    assert spent[1] == pytest.approx(2 * spent[0])
    assert spent[0] > 0


def log_of(program: Program, worker: int) -> list[tuple[str, int, int, int]]:
    """A worker's requests for its log, in order: op, bytes, and where in the run."""
    own = replace(program, tracks=tuple(track for track in program.tracks if track.worker == worker))
    return [(step.op, step.bytes, step.epoch, step.step) for step in steps_of(own) if step.phase == released_log.PHASE]


@pytest.mark.parametrize("name", LOGGED)
def test_the_log_s_requests_are_those_of_the_trace_and_grow_alike(name: str) -> None:
    """Byte by byte, in the steps where they were made; the get that found nothing is among them, and no poll."""
    recording = read_recording(TRACES / name)
    program = make_program(recording)
    costs = measure([program], architectures()[recording.plan.architecture], workload_of(recording.plan, LENET))
    generated = generate(costs, 2, 11, 2)
    for worker in range(2):
        made = [
            (event["op"], event["bytes"], event["epoch"], event["step"])
            for event in recording.events
            if event["phase"] == released_log.PHASE and event["worker"] == worker
        ]
        assert made[:3] == [("object.get", 0, 0, 0), ("object.put", 100, 0, 0), ("object.get", 100, 0, 0)]
        assert log_of(program, worker) == made
        assert log_of(generated, worker) == made


@pytest.mark.parametrize("name", LOGGED)
def test_a_log_is_written_after_the_same_as_in_the_trace(name: str) -> None:
    """What comes before each line of the second step: the pattern and the workers' code tell it each by itself."""

    def befores(program: Program, worker: int) -> list[str]:
        own = replace(program, tracks=tuple(track for track in program.tracks if track.worker == worker))
        steps = [step for step in steps_of(own) if step.op != "object.list"]
        after_a_get = pairwise(step for step in steps if step.phase != released_log.PHASE or step.op == "object.get")
        return [one.op for one, line in after_a_get if line.phase == released_log.PHASE and line.step == 1]

    recording = read_recording(TRACES / name)
    program = make_program(recording)
    costs = measure([program], architectures()[recording.plan.architecture], workload_of(recording.plan, LENET))
    for worker in range(2):
        assert befores(generate(costs, 2, 11, 2), worker) == befores(program, worker)


def requests_of(program: Program) -> Counter[tuple[str, str, str]]:
    """Requests by function, operation and phase. Lists come and go with the polls, and scripts are stored once."""
    found = Counter[tuple[str, str, str]]()
    for track in program.tracks:
        function = "" if track.kind == "execution" else track.name
        for step in steps_of(replace(program, tracks=(track,))):
            if step.requests and step.op not in ("object.list", "tensor.compile"):
                found[function, step.op, step.phase] += step.requests
    return found


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_generated_programs_end(name: str, workers: int) -> None:
    program = generate(make_costs(name), workers, 3, 2)
    timeline = play(program, everything())
    assert not program.recorded
    assert len(timeline.steps) == len(list(steps_of(program)))
    assert {track.worker for track in program.tracks} == set(range(workers + (name == "mlless")))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_gate_has_somebody_who_opens_it(name: str) -> None:
    program = generate(make_costs(name), 5, 3, 2)
    arrivals = Counter(gate for step in steps_of(program) for gate in step.opens)
    arrivals.update(gate for track in program.tracks for gate in track.opens)
    assert list(program.gates) == [arrivals[gate] for gate in range(len(program.gates))]
    assert min(program.gates) >= 1


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_steps_and_gates_grow_with_the_workers_and_not_with_their_square(name: str) -> None:
    def objects(workers: int) -> int:
        program = generate(make_costs(name), workers, 2, 1)
        return len(list(steps_of(program))) + len(program.gates)

    assert objects(800) < 2.1 * objects(400)


def test_two_workers_of_allreduce_take_what_they_take_by_hand() -> None:
    costs = make_costs("allreduce", per_request=0, per_byte=0)
    timeline = play(replace(generate(costs, 2, 1, 1), poll_cpu_ns={}), platform())
    found = {
        rank: [
            (step.op, round((timeline.end[n] - timeline.begin[n]) / MS, 3))
            for n, step in enumerate(timeline.steps)
            if timeline.track[n] == rank
        ]
        for rank in (0, 1)
    }
    # A put of 4,000 bytes takes 10 ms and 0.04 at 100 MB/s, a get 5.04, one of the minibatch's 500 bytes 5.005.
    start = [("connect", 1.0), ("build", 1.0), ("object.get", 5.005), ("prepare", 1.0), ("compute", 1.0)]
    own = [("object.put", 10.04)]
    # Of two gradients each is found by a first list, since both were there 5 ms before; adding them takes 2,000 times
    # 5 ns each.
    merge = [("object.get", 25.04), ("object.delete", 5.0), ("reduce", 0.01)]
    again = [("object.get", 5.04), ("object.delete", 5.0), ("reduce", 0.01)]
    root = [*start, *own, *merge, *again, ("object.put", 10.04), ("object.list", 20.0), ("update", 1.0)]
    assert found[0] == [*root, ("serialise", 1.0), ("object.put", 10.04), ("object.put", 10.005)]
    # The sum is put 45.1 ms after this worker began to ask for it. Its polls take 5 ms, and pauses of 10 and 15 ms.
    waited = found[1][len([*start, *own])]
    assert waited[0] == "object.get"
    assert waited[1] > 45.1
    assert found[1] == [*start, *own, waited, ("update", 1.0), ("object.put", 10.005)]


def test_minibatches_of_twice_the_samples_take_twice_as_long_to_compute() -> None:
    costs = make_costs("gpu")
    once, twice = (list(steps_of(generate(each, 1, 1, 1))) for each in (costs, with_samples(costs, 2.0)))
    changed = {one.op: (one.cpu_ns, other.cpu_ns) for one, other in zip(once, twice, strict=True) if one != other}
    assert set(changed) == {"object.get", "prepare", "compute"}
    assert changed["prepare"] == changed["compute"] == (MS, 2 * MS)
    assert [step.bytes for step in twice if step.op == "object.get"] == [1_000]


def test_a_computation_over_more_data_takes_longer() -> None:
    costs = make_costs("gpu", per_work=5.0)
    for workers in (2, 6):
        (reduce,) = {step for step in steps_of(generate(costs, workers, 1, 1)) if step.op == "reduce"}
        assert reduce.cpu_ns == 5 * workers * 4 * PARAMETERS


def test_epochs_of_spirt_begin_when_the_one_before_has_started_them() -> None:
    timeline = play(generate(make_costs("spirt"), 2, 2, 3), everything())
    tracks = timeline.program.tracks
    began = {
        (track.worker, track.epoch): call.began
        for track, call in zip(tracks, timeline.calls, strict=True)
        if track.kind == "execution"
    }
    triggered = {
        (track.worker, track.epoch): call
        for track, call in zip(tracks, timeline.calls, strict=True)
        if track.name == "run-trigger_next_epoch"
    }
    assert len(began) == 6
    for (worker, epoch), when in began.items():
        if epoch:
            before = triggered[worker, epoch - 1]
            assert before.began < when < before.ended


def test_a_signal_that_nobody_makes_is_named() -> None:
    class Waiting(PatternOnly):
        name = "waiting"

        def pattern(self, workload: Workload) -> Pattern:
            get = Activity("object.get", "synchronise", needs=(Signal("gradient", of=OWN),))
            return Pattern(workload, (Role(range(workload.workers), steps=((get,),)),))

    costs = replace(make_costs("allreduce"), architecture=Waiting())
    with pytest.raises(RequestError, match="an activity needs 'step gradient', but none makes it"):
        generate(costs, 2, 1, 1)


def test_a_function_that_was_not_recorded_is_named() -> None:
    costs = make_costs("mlless")
    functions = {name: track for name, track in costs.functions.items() if name != "supervisor"}
    with pytest.raises(RequestError, match="no invocation of supervisor"):
        generate(replace(costs, functions=functions), 2, 1, 1)
