"""All-reduces in replay: who comes last decides when they begin, and the profile how long they take."""

from dataclasses import replace
from typing import Any

import pytest
from tests.lab.replay.measured import MS, PARAMETERS, make_costs
from tests.lab.replay.platform import operation, platform

from slslab.errors import RequestError
from slslab.predict.profiles.profile import Instances, Profile, load_profile
from slslab.run.table import find_causes
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.program import Step
from slslab_lab.replay.kernel.timeline import Timeline
from slslab_lab.replay.programs.scaling import generate
from slslab_lab.replay.programs.step_costs import measure
from slslab_lab.runs.planning import architectures
from slslab_workers.gloo import ring
from slslab_workers.patterns import Workload
from slslab_workers.trace.operations import ALL_REDUCE

TYPE = "g4dn.xlarge"


def with_peers(profile: Profile, latency_ms: float, bandwidth_mb_s: float) -> Profile:
    """The profile with messages between instances that take so long."""
    known = profile.instances[TYPE].model_dump()
    machine = Instances.model_validate({**known, "peers": operation(latency_ms, bandwidth_mb_s)})
    return profile.model_copy(update={"instances": {TYPE: machine}})


def steps(timeline: Timeline, op: str) -> list[tuple[int, int, int, int]]:
    """Worker, step, begin and end (ns) of all steps of an operation."""
    tracks = timeline.program.tracks
    return [
        (tracks[timeline.track[n]].worker, step.step, timeline.start[n], timeline.end[n])
        for n, step in enumerate(timeline.steps)
        if step.op == op
    ]


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_all_begin_with_the_last_one_and_take_what_their_messages_take(workers: int) -> None:
    costs = make_costs("gloo", per_request=0, per_byte=0)
    program = generate(costs, workers, 3, 1)
    # The second worker computes for a second in its second step.
    slow = program.tracks[1]
    changed = tuple(
        replace(item, cpu_ns=10_000 * MS) if isinstance(item, Step) and (item.op, item.step) == ("compute", 1) else item
        for item in slow.steps
    )
    tracks = (program.tracks[0], replace(slow, steps=changed), *program.tracks[2:])
    timeline = play(replace(program, tracks=tracks), with_peers(platform(), 2, 100))
    computed, reduced = steps(timeline, "compute"), steps(timeline, ALL_REDUCE)
    assert len(reduced) == 3 * workers
    for step in range(3):
        came = max(end for _, of, _, end in computed if of == step)
        for worker, of, begin, end in reduced:
            if of == step:
                size = ring.sent_bytes(PARAMETERS, workers, worker)
                assert begin == came
                assert end - begin == 2 * (workers - 1) * 2 * MS + 10 * size
    waits = [end - begin for worker, step, begin, end in steps(timeline, "join") if worker == 1]
    assert waits[1] == 0, "no worker is later than the slow one"


def test_a_profile_without_messages_between_instances_is_refused_by_the_entry() -> None:
    with pytest.raises(RequestError, match=r"messages? between instances of type g4dn\.xlarge") as refused:
        play(generate(make_costs("gloo"), 2, 1, 1), platform())
    assert refused.value.hint == 'add [instances."g4dn.xlarge".peers] to it.'


def test_the_default_type_has_messages() -> None:
    """As measured by Jiang et al. 2021, Section 5.3: 0.15 ms and 225 MB/s between two c5.large."""
    default = {option.name: option.default for option in architectures()["gloo"].options}["instance-type"]
    message = load_profile("aws-us-east-1").between(str(default))
    assert message.bandwidth_mb_s is not None
    assert (default, message.latency_ms.value, message.bandwidth_mb_s.value) == ("c5.large", 0.15, 225)


def test_cpu_time_of_an_all_reduce_grows_with_its_bytes_and_not_with_its_messages() -> None:
    """One recording, of two workers, has messages of one size only."""
    costs = make_costs("gloo", per_request=0, per_byte=4.0)
    recorded = generate(costs, 2, 3, 1)
    found = measure([recorded], architectures()["gloo"], Workload(2, 3, 1, PARAMETERS, {}))
    for workers in (2, 8, 64):
        cpu = {
            step.cpu_ns
            for t in generate(found, workers, 3, 1).tracks
            for step in t.flat_steps()
            if step.op == ALL_REDUCE
        }
        sent = {4 * ring.sent_bytes(PARAMETERS, workers, rank) for rank in range(workers)}
        assert max(cpu) == pytest.approx(max(sent), rel=1e-6)


def event(number: int, worker: int, op: str, start: int, end: int, resource: str = "") -> dict[str, Any]:
    base = {"invocation": f"i-{worker}", "etag": None, "failed": False}
    return {"event": number, "worker": worker, "op": op, "start_ns": start, "end_ns": end, "resource": resource, **base}


def test_causes_of_an_all_reduce_are_what_all_peers_did_before() -> None:
    events = [
        event(0, 0, "compute", 0, 10),
        event(1, 1, "compute", 0, 30),
        event(2, 0, ALL_REDUCE, 11, 40, "run/gloo/e0_s0"),
        event(3, 1, ALL_REDUCE, 31, 41, "run/gloo/e0_s0"),
        event(4, 0, "compute", 41, 50),
        # It broke off before the other one came.
        event(5, 0, ALL_REDUCE, 51, 55, "run/gloo/e0_s1"),
        event(6, 1, "compute", 52, 60),
        event(7, 1, ALL_REDUCE, 61, 65, "run/gloo/e0_s1"),
    ]
    assert find_causes(events) == [[], [], [0, 1], [0, 1], [2], [4], [3], [4, 6]]
