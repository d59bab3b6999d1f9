"""The kernel against timelines calculated by hand, and what holds for any program."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lab.replay.platform import figure, operation, platform
from tests.lab.replay.small_programs import MS, handing_over, programs

from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import Channel, Figure, Server, load_profile, with_speed
from slslab_lab.replay.kernel.kernel import ReplayError, play
from slslab_lab.replay.kernel.program import Gathering, Program, Step, Track
from slslab_lab.replay.kernel.timeline import Timeline

# A cold start of the round platform: 100 ms before init, which takes none in these programs.
COLD = 100
MEMORY_MB = 1769


def worker(rank: int, *steps: Step | Gathering, awaits: tuple[int, ...] = (), opens: tuple[int, ...] = ()) -> Track:
    return Track("train", "invocation", rank, steps, MEMORY_MB, awaits=awaits, opens=opens)


def program(tracks: Sequence[Track], *gates: int) -> Program:
    return Program("any", len(tracks), tuple(tracks), gates)


def compute(ms: int) -> Step:
    return Step("compute", "compute", ms * MS)


def put(gate: int, size: int = 0, requests: int = 1) -> Step:
    return Step("object.put", "synchronise", requests=requests, bytes=size, opens=(gate,))


def spans(timeline: Timeline, rank: int) -> list[tuple[str, float, float, float]]:
    """Operation, begin, start and end (ms) of a worker's steps."""
    return [
        (timeline.steps[i].op, timeline.begin[i] / MS, timeline.start[i] / MS, timeline.end[i] / MS)
        for i in range(len(timeline.steps))
        if timeline.program.tracks[timeline.track[i]].worker == rank
    ]


def test_a_get_is_polled_until_the_put_has_taken_effect() -> None:
    timeline = play(handing_over(), platform())
    # 100 ms and an init of 50 ms, then 100 ms of computing; 1 MB takes 10 ms beside the latency of 10 ms.
    assert spans(timeline, 0) == [("compute", 150, 150, 250), ("object.put", 250, 250, 270)]
    # The put takes effect at 265 ms. Polls of 5 ms begin at 180, 195, 215, 242.5 and 281.25 ms.
    assert spans(timeline, 1) == [("compute", 150, 150, 180), ("object.get", 180, 281.25, 296.25)]
    assert list(timeline.polls) == [0, 0, 0, 4]
    assert timeline.after[3] == 1
    assert timeline.end_ns == 296_250_000


def test_polls_cost_the_client_cpu_time() -> None:
    costly = handing_over()
    costly = Program(
        "any", 2, costly.tracks, costly.gates, costly.polls, {"get": 10 * MS}
    )  # fmt: skip
    # Polls of 15 ms begin at 180, 205, 235 ms; the one at 272.5 ms finds it.
    assert spans(play(costly, platform()), 1)[1] == ("object.get", 180, 272.5, 287.5)


def test_what_is_gathered_comes_in_any_order() -> None:
    def get(gate: int) -> tuple[Step, ...]:
        return (
            Step("object.get", "synchronise", requests=1, awaits=(gate,), polling="list"),
            Step("object.delete", "synchronise", requests=1),
        )

    late, early = worker(1, compute(200), put(0)), worker(2, compute(50), put(1))
    timeline = play(program([worker(0, Gathering((get(0), get(1)))), late, early], 1, 1), platform())
    # The puts take effect at 305 and 155 ms. Lists of 20 ms, seen half-way, begin at 100, 130 (after 10 ms) and 165 ms.
    first, deleted, second, _ = spans(timeline, 0)
    assert first == ("object.get", 100, 185, 190)
    assert deleted[0] == "object.delete"
    # Pauses go on growing: then at 195, 237.5 (after 22.5 ms), 291.25 ms, where half-way is too early, and 361.875 ms.
    assert second == ("object.get", 195, 381.875, 386.875)
    got = [timeline.steps[i].awaits for i in range(len(timeline.steps)) if timeline.steps[i].op == "object.get"]
    assert got == [(1,), (0,)]


def test_messages_are_taken_as_they_come_without_polls() -> None:
    def deliver(gate: int) -> tuple[Step, ...]:
        return (Step("queue.deliver", "synchronise", awaits=(gate,)),)

    def publish(rank: int, ms: int) -> Track:
        return worker(rank, compute(ms), Step("queue.publish", "synchronise", requests=1, opens=(rank - 1,)))

    tracks = [worker(0, Gathering((deliver(0), deliver(1)))), publish(1, 90), publish(2, 30)]
    timeline = play(program(tracks, 1, 1), platform())
    # Published in 1 ms, there after half of it.
    assert spans(timeline, 0) == [("queue.deliver", 100, 130.5, 131.5), ("queue.deliver", 131.5, 190.5, 191.5)]


def test_of_many_requests_only_the_last_waits_for_all() -> None:
    many = Step("object.get", "synchronise", requests=4, bytes=4_000_000, awaits=(0,))
    tracks = [worker(0, many), worker(1, compute(20), put(0)), worker(2, compute(40), put(0))]
    # 15 ms each: all four are done at 160 ms if the last one (there at 145 ms) needs no waiting.
    assert spans(play(program(tracks, 2), platform()), 0) == [("object.get", 100, 145, 160)]
    tracks[2] = worker(2, compute(200), put(0))
    assert spans(play(program(tracks, 2), platform()), 0) == [("object.get", 100, 305, 320)]


def test_a_shared_server_serves_in_the_order_of_arrival() -> None:
    profile = platform()
    server = Server(servers=figure(1), service_ms=figure(6), bandwidth_mb_s=figure(1_000))  # type: ignore[arg-type]
    shared = Channel(description="one", operations={"set": operation(10)}, server=server)  # type: ignore[dict-item]
    profile = profile.model_copy(update={"channels": {**profile.channels, "tensor": shared}})
    setting = Step("tensor.set", "synchronise", requests=1, bytes=4_000_000, at=0)
    timeline = play(program([worker(0, setting), worker(1, compute(3), setting), worker(2, setting)]), profile)
    # Each occupies the server for 6 + 4 ms: from 100, 120 (behind worker 2) and 110 ms.
    assert [spans(timeline, rank)[-1][3] for rank in range(3)] == [110, 130, 120]
    own = shared.model_copy(update={"per_worker": True})
    profile = profile.model_copy(update={"channels": {**profile.channels, "tensor": own}})
    timeline = play(program([worker(rank, Step("tensor.set", "synchronise", requests=1)) for rank in (0, 1)]), profile)
    assert [spans(timeline, rank)[-1][3] for rank in (0, 1)] == [110, 110]


def test_invocations_wait_for_concurrency_and_take_warm_environments() -> None:
    timeline = play(program([worker(0, compute(50)), worker(1, compute(70))]), platform(concurrency=1, warm_ms=2))
    assert [(call.began / MS, call.ended / MS, call.cold) for call in timeline.calls] == [
        (102, 152, True),
        (154, 224, False),
    ]


def test_tracks_begin_when_what_they_wait_for_has_ended() -> None:
    timeline = play(program([worker(0, compute(50), opens=(0,)), worker(1, compute(10), awaits=(0,))], 1), platform())
    assert (timeline.calls[1].accepted / MS, timeline.calls[1].began / MS) == (150, 150)
    assert not timeline.calls[1].cold


def test_a_state_machine_s_transitions_begin_its_invocations() -> None:
    steps = (
        Step("transition", "other", requests=1),
        Step("transition", "other", requests=2, opens=(0, 1)),
        Step("join", "wait", awaits=(2, 3)),
    )
    execution = Track("peer", "execution", 0, steps)
    branches = [worker(0, compute(ms), awaits=(gate,), opens=(gate + 2,)) for gate, ms in enumerate((20, 80))]
    timeline = play(program([execution, *branches], 1, 1, 1, 1), platform())
    # Two transitions of 30 ms each, however many branches; the longer one ends at 60 + 100 + 80 ms.
    assert timeline.calls[0].ended / MS == 240


def test_a_task_takes_more_than_another_state_and_more_with_a_larger_input() -> None:
    task = {"task_ms": Figure(value=70, status="assumed", source="made up for a test")}
    task["task_ms_per_kb"] = task["task_ms"].model_copy(update={"value": 2})
    steps = (
        Step("transition", "other", requests=1, bytes=9_000),
        # Two branches of 5,000 bytes each.
        Step("transition", "other", requests=2, bytes=10_000, opens=(0,)),
        Step("join", "wait", awaits=(1,)),
        Step("transition", "other", requests=1, bytes=0, opens=(2,)),
        Step("join", "wait", awaits=(3,)),
    )
    functions = [worker(0, compute(20), awaits=(gate,), opens=(gate + 1,)) for gate in (0, 2)]
    timeline = play(
        program([Track("peer", "execution", 0, steps), *functions], 1, 1, 1, 1),
        platform(warm_ms=5).model_copy(update=task),
    )
    took = [end - start for op, _, start, end in spans(timeline, 0) if op == "transition"]
    assert took == [30, 110, 100]


def test_an_image_s_init_waits_as_long_as_its_profile_says() -> None:
    functions = platform().functions
    waits = {"init_wait_ms": functions.warm_ms.model_copy(update={"value": 3})}
    track = replace(worker(0, compute(1)), init_cpu_ns=10 * MS)

    def init_ms(package: Literal["zip", "image"]) -> float:
        profile = platform().model_copy(update={"functions": functions.model_copy(update=waits)})
        return play(program([replace(track, package=package)]), profile).calls[0].init_ns / MS

    assert (init_ms("zip"), init_ms("image")) == (13, 13)
    waits["init_wait_image_ms"] = functions.warm_ms.model_copy(update={"value": 8})
    assert (init_ms("zip"), init_ms("image")) == (13, 18)


def test_a_hop_of_a_warm_chain_takes_what_was_measured() -> None:
    """SeBS-Flow, May 2024: medians of 160 ms with 32 bytes and of 194 ms with 16 KiB."""

    def hop_ms(size: int) -> float:
        steps = [
            Step("transition", "other", requests=1, bytes=size, opens=(0,)),
            Step("join", "wait", awaits=(1,)),
            Step("transition", "other", requests=1, bytes=size, opens=(2,)),
            Step("join", "wait", awaits=(3,)),
        ]
        chain = [worker(0, compute(20), awaits=(gate,), opens=(gate + 1,)) for gate in (0, 2)]
        execution = Track("chain", "execution", 0, tuple(steps))
        calls = play(program([execution, *chain], 1, 1, 1, 1), load_profile(DEFAULT_PROFILE)).calls
        return (calls[2].began - calls[1].ended) / MS

    assert [hop_ms(32), hop_ms(16_384)] == pytest.approx([160, 194], abs=0.2)


@pytest.mark.parametrize(("functions", "measured_ms"), [(2, 180), (8, 190)])
def test_a_warm_fan_out_is_predicted(functions: int, measured_ms: int) -> None:
    """SeBS-Flow: N functions of a Map state that only sleep, from the end of the function before to the last end."""
    gates = tuple(range(1, functions + 1))
    ends = tuple(range(functions + 1, 2 * functions + 1))
    steps = [
        Step("transition", "other", requests=1, bytes=32, opens=(0,)),
        Step("join", "wait", awaits=ends),
        Step("transition", "other", requests=1, bytes=32),
        Step("transition", "other", requests=functions, bytes=32 * functions, opens=gates),
        Step("join", "wait", awaits=tuple(gate + 2 * functions for gate in gates)),
    ]
    tracks = [Track("map", "execution", 0, tuple(steps))]
    # The first round leaves as many warm environments.
    tracks += [worker(0, compute(20), awaits=(0,), opens=(gate,)) for gate in ends]
    tracks += [worker(0, compute(20), awaits=(gate,), opens=(gate + 2 * functions,)) for gate in gates]
    calls = play(program(tracks, *([1] * (3 * functions + 1))), load_profile(DEFAULT_PROFILE)).calls
    before, after = calls[1 : functions + 1], calls[functions + 1 :]
    assert not any(call.cold for call in after)
    took_ms = (max(call.ended for call in after) - max(call.ended for call in before)) / MS - 20
    assert took_ms == pytest.approx(measured_ms, rel=0.15)


def test_an_instance_boots_and_computes_at_its_own_speed() -> None:
    steps = (Step("compute", "compute", 1_000 * MS, parallel=True), Step("update", "update", 10 * MS))
    timeline = play(program([Track("g4dn.xlarge", "instance", 0, steps, MEMORY_MB)]), platform())
    assert (timeline.calls[0].began / MS, timeline.calls[0].ended / MS) == (30_000, 30_110)


def test_a_program_that_waits_for_what_never_comes_is_refused() -> None:
    with pytest.raises(ReplayError, match="1 of 2 tracks never end, the first being train of worker 0"):
        play(program([worker(0, Step("join", "wait", awaits=(0,))), worker(1, compute(1))], 1), platform())


@given(programs())
def test_nothing_happens_before_its_cause_and_the_same_again(made: Program) -> None:
    timeline, again = play(made, platform()), play(made, platform())
    assert (timeline.end, timeline.polls, timeline.calls) == (again.end, again.polls, again.calls)
    last: dict[int, int] = {}
    for i, step in enumerate(timeline.steps):
        track = timeline.track[i]
        assert timeline.begin[i] <= timeline.start[i] <= timeline.end[i]
        assert timeline.begin[i] >= last.get(track, timeline.calls[track].began)
        last[track] = timeline.end[i]
        for gate in step.awaits:
            openers = [n for n, other in enumerate(timeline.steps) if gate in other.opens]
            assert timeline.end[i] >= max(timeline.start[n] for n in openers)
    assert all(call.ended == last.get(track, call.began) for track, call in enumerate(timeline.calls))


@given(programs(), st.sampled_from([512, 1769, 3538]))
def test_more_memory_never_takes_longer_without_waits(made: Program, memory_mb: int) -> None:
    alone = [
        Track(
            "train", "invocation", track.worker, tuple(s for s in track.steps if isinstance(s, Step) and not s.awaits)
        )
        for track in made.tracks
    ]

    def ends(size: int) -> list[int]:
        tracks = [Track(one.name, one.kind, one.worker, one.steps, size) for one in alone]
        return [call.ended for call in play(Program("any", len(tracks), tuple(tracks), made.gates), platform()).calls]

    assert all(more <= less for more, less in zip(ends(2 * memory_mb), ends(memory_mb), strict=True))


def test_the_same_bits_on_every_machine() -> None:
    """The digest of a timeline with shares, threads, polls, gathering and bytes that do not divide evenly."""
    tracks = []
    for rank in range(5):
        get = tuple(
            (Step("object.get", "synchronise", 1_234_567, requests=1, bytes=98_765, awaits=(gate,), polling="list"),)
            for gate in range(5)
        )
        steps = (
            Step("compute", "compute", 77_777_777 * (rank + 1), parallel=True),
            Step("object.put", "synchronise", 2_222_221, requests=1, bytes=333_333, opens=(rank,)),
            Gathering(get),
        )
        tracks.append(Track("train", "invocation", rank, steps, 700 + 611 * rank, init_cpu_ns=123_456_789))
    timeline = play(Program("any", 5, tuple(tracks), (1,) * 5, poll_cpu_ns={"list": 1_111_111}), platform())
    text = repr([list(column) for column in (timeline.track, timeline.begin, timeline.start, timeline.end)])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "7592797dd57c61d1"


@pytest.mark.parametrize(
    ("memory_mb", "recorded_ms", "speed", "took_ms"),
    [
        # The connection's second is longer than 400 ms of a whole processor.
        (1769, 10, 1, 1_005),
        # A little less than a quarter of a processor: 24.99 ms of each of 16 periods, and 0.2 ms of another.
        (442, 10, 1, 1_605),
        # They are the platform's own milliseconds, whatever its speed is beside the recording host's …
        (442, 10, 2, 1_605),
        # … and what was recorded counts where it is more.
        (442, 800, 1, 3_205),
        (442, 800, 2, 1_605),
    ],
)
def test_bytes_cost_the_platform_s_cpu_time(memory_mb: int, recorded_ms: int, speed: float, took_ms: int) -> None:
    profile = with_speed(platform(), Figure.model_validate(figure(speed)))
    operations = profile.channels["object"].operations
    dear = operations["get"].model_copy(update={"cpu_ms_per_mb": Figure.model_validate(figure(4))})
    channel = profile.channels["object"].model_copy(update={"operations": {**operations, "get": dear}})
    profile = profile.model_copy(update={"channels": {**profile.channels, "object": channel}})
    get = Step("object.get", "fetch", recorded_ms * MS, requests=1, bytes=100_000_000)
    (call,) = play(program([Track("train", "invocation", 0, (get,), memory_mb)]), profile).calls
    assert (call.ended - call.began) / MS == pytest.approx(took_ms, abs=1)
