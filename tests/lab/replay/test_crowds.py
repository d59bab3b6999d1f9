"""What many workers wait for is played in one go, as if it were played piece by piece."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lab.replay.platform import figure, platform
from tests.lab.replay.small_programs import MS

from slslab.predict.environment import Environment
from slslab.predict.profiles.profile import Figure, Profile
from slslab_lab.replay.kernel.environment import Pool
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.program import Program, Step, Track
from slslab_lab.replay.kernel.timeline import Call
from slslab_workers.trace.kinds import KINDS, REQUESTS


def environment(share: float) -> Environment:
    return Environment(share, round(share * 1769), platform(), dict.fromkeys(KINDS, 1.0))


def scaling(burst: float, ramp_per_s: float) -> Profile:
    profile = platform()
    changed = {"burst": Figure(**figure(burst)), "ramp_per_s": Figure(**figure(ramp_per_s))}
    return profile.model_copy(update={"functions": profile.functions.model_copy(update=changed)})


@given(
    share=st.sampled_from([0.02, 0.07, 0.58, 1.0, 3.0]),
    used_ms=st.integers(0, 200),
    begin_ms=st.integers(0, 250),
    cpu_ns=st.integers(0, 20 * MS),
    pause_ns=st.integers(1 * MS, 150 * MS),
    waited_ms=st.integers(0, 20_000),
    after_ms=st.integers(0, 300),
)
def test_work_that_is_repeated_ends_as_if_it_were_done_one_by_one(
    share: float, used_ms: int, begin_ms: int, cpu_ns: int, pause_ns: int, waited_ms: int, after_ms: int
) -> None:
    at_once, one_by_one = environment(share), environment(share)
    began = {each.compute(begin_ms * MS, used_ms * MS, REQUESTS) for each in (at_once, one_by_one)}
    assert len(began) == 1
    (now,) = began
    until = now + waited_ms * MS
    found = at_once.repeat(now, cpu_ns, pause_ns, until)
    times = 0
    while now < until:
        now = one_by_one.compute(now, cpu_ns, REQUESTS) + pause_ns
        times += 1
    assert found == (now, times)
    # And what it used up of its share is known.
    later = now + after_ms * MS
    assert at_once.compute(later, 30 * MS, REQUESTS) == one_by_one.compute(later, 30 * MS, REQUESTS)


def test_the_environment_that_was_given_back_last_is_taken_first() -> None:
    pool, track = Pool(platform()), Track("train", "invocation", 0, (), 1769)

    def taken() -> Environment:
        call = Call()
        assert pool.take(track, call, 40) is None
        assert call.environment is not None
        return call.environment

    first, second, third = (taken() for _ in range(3))
    for one, when in ((first, 10), (second, 30), (third, 20)):
        pool.give_back("train", when, one)
    pool.release()
    pool.release()
    # The second one is still busy.
    assert [taken(), taken()] == [third, first]
    pool.release()
    assert taken() is second


@pytest.mark.parametrize("seconds", [0, 5])
def test_environments_beyond_the_burst_start_one_after_another(seconds: int) -> None:
    steps = (Step("compute", "compute", seconds * 1000 * MS),)
    program = Program("any", 5, tuple(Track("train", "invocation", rank, steps, 1769) for rank in range(5)), ())
    timeline = play(program, scaling(burst=2, ramp_per_s=1))
    began = [call.began // MS for call in timeline.calls]
    if seconds:
        # Two at once, then one a second; each cold start takes 100 ms.
        assert began == [100, 100, 1_100, 2_100, 3_100]
    else:
        # Whoever waits when the next one may start finds those idle that have ended meanwhile.
        assert began == [100, 100, 1_000, 1_000, 1_000]


def test_whoever_comes_later_waits_behind_lower_ranks() -> None:
    late = Track("gate", "execution", 0, (Step("transition", "other", requests=1, opens=(0,)),))
    steps = (Step("compute", "compute", 9_000 * MS),)
    tracks = [Track("train", "invocation", rank, steps, 1769, awaits=(0,) if rank == 1 else ()) for rank in range(4)]
    timeline = play(Program("any", 4, (late, *tracks), (1,)), scaling(burst=1, ramp_per_s=1))
    assert [call.began // MS for call in timeline.calls[1:]] == [100, 1_100, 2_100, 3_100]
