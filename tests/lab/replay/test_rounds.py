"""Rounds of both patterns, calculated by hand and by formula, and where the winner of a sweep changes."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lab.replay.platform import operation, platform

from slslab.predict.profiles.profile import Operation, Profile
from slslab_lab.replay.crossings import NARROW, Interval, pipe_share, sweep, winner
from slslab_lab.replay.kernel.program import Step
from slslab_lab.replay.programs.step_costs import Cost, StepCosts
from slslab_lab.replay.rounds import Round, size_at, without_compute
from slslab_lab.runs.planning import architectures
from slslab_workers.channels.polling import POLICIES, Poll
from slslab_workers.patterns import Workload

# Puts of 10 ms and gets of 5 ms, both at 100 MB/s; lists of 20 ms, deletes of 5 ms.
PLATFORM = platform()
MB = 1_000_000


def costs(pattern: str) -> StepCosts:
    return without_compute(architectures()[pattern])


def seconds(pattern: str, workers: int, size: int, polling: str, deletes_at_once: bool = False) -> float:
    return Round(costs(pattern), workers, size, polling, deletes_at_once).seconds(PLATFORM)


def test_allreduce_of_two_workers_who_are_told() -> None:
    # Puts to 20 ms, twice get 15 and delete 5 to 60, put to 80. It takes effect at 75, and the other's get takes 15.
    assert seconds("allreduce", 2, MB, "none") == pytest.approx(0.090)
    # Twice get to 50, one delete to 55, put to 75, of which the other knows at 70.
    assert seconds("allreduce", 2, MB, "none", True) == pytest.approx(0.085)


def test_allreduce_of_two_workers_who_poll() -> None:
    # A list of 20 ms: the sum's put takes effect at 95. The other asks at 20 and, 5 + 100 ms later, at 125.
    assert seconds("allreduce", 2, MB, "released") == pytest.approx(0.140)
    # It asks at 20, 35, 55, 82.5 and, 5 + 33.75 ms later, at 121.25.
    assert seconds("allreduce", 2, MB, "adaptive") == pytest.approx(0.13625)


def test_scatterreduce_of_two_and_four_workers() -> None:
    # Put half to 15 ms, get half to 25, delete to 30, put to 45, get to 55.
    assert seconds("scatterreduce", 2, MB, "none") == pytest.approx(0.055)
    # A list of 20 ms before each get, whatever the pauses.
    assert seconds("scatterreduce", 2, MB, "released") == pytest.approx(0.095)
    assert seconds("scatterreduce", 2, MB, "adaptive") == pytest.approx(0.095)
    # Three puts of 12.5 ms, gets of 7.5, deletes of 5; a put; three gets.
    assert seconds("scatterreduce", 4, MB, "none") == pytest.approx(0.110)


def by_formula(pattern: str, workers: int, size: int, profile: Profile = PLATFORM) -> float:
    """Seconds of the puts and gets of the longest chain, one after another."""
    longest = architectures()[pattern].longest_chain
    assert longest is not None
    chain, found = longest(workers), 0.0
    for number, op in ((chain.puts, "object.put"), (chain.gets, "object.get")):
        operation = profile.operation(op)
        assert operation.bandwidth_mb_s is not None
        moving = size / chain.parts / 1e6 / operation.bandwidth_mb_s.value
        found += number * (operation.latency_ms.value / 1e3 + moving)
    return found


def test_formulas_by_hand() -> None:
    # 2 puts of 20 ms, 5 gets of 15 ms. 4 puts of 12.5 ms, 6 gets of 7.5 ms.
    assert by_formula("allreduce", 4, MB) == pytest.approx(0.115)
    assert by_formula("scatterreduce", 4, MB) == pytest.approx(0.095)


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 9), st.integers(1, 100_000))
def test_who_is_told_takes_what_the_formula_and_the_deletes_say(workers: int, elements: int) -> None:
    """All chunks are equal. In AllReduce others know of the sum when its put takes effect, 5 ms before its end."""
    size = 4 * workers * elements
    expected = by_formula("allreduce", workers, size) + workers * 0.005 - 0.005
    assert seconds("allreduce", workers, size, "none") == pytest.approx(expected, abs=1e-6)
    expected = by_formula("scatterreduce", workers, size) + (workers - 1) * 0.005
    assert seconds("scatterreduce", workers, size, "none") == pytest.approx(expected, abs=1e-6)


def test_lambdaml_s_own_formula() -> None:
    """(3w - 2) (m/w/B + L), where puts and gets take the same."""
    objects = {name: Operation.model_validate(operation(80, 65)) for name in ("put", "get", "list", "delete")}
    store = PLATFORM.channels["object"].model_copy(update={"operations": objects})
    profile: Profile = PLATFORM.model_copy(update={"channels": {"object": store}})
    size = 12_868_904
    assert by_formula("scatterreduce", 10, size, profile) == pytest.approx(28 * (size / 10 / 65e6 + 0.08))
    assert by_formula("allreduce", 10, size, profile) == pytest.approx(13 * (size / 65e6 + 0.08))


@pytest.mark.parametrize(("pattern", "lines"), [("allreduce", 3), ("scatterreduce", 4)])
@pytest.mark.parametrize("log_bytes", [0, 50 * MB])
def test_lines_of_the_log_before_the_sum_is_there_take_their_requests(pattern: str, lines: int, log_bytes: int) -> None:
    """Each line gets the log in 5 ms and puts it back, 100 bytes longer, in 10 ms, at 100 MB/s."""
    without = seconds(pattern, 2, MB, "none")
    logged = Round(costs(pattern), 2, MB, "none", log_bytes=log_bytes).seconds(PLATFORM)
    gotten = sum(log_bytes + 100 * line for line in range(lines))
    put = sum(log_bytes + 100 * line for line in range(1, lines + 1))
    assert logged - without == pytest.approx(lines * 0.015 + (gotten + put) / 100e6, abs=1e-6)


def test_a_log_is_as_long_as_it_is_said_to_be_at_the_begin_of_the_round() -> None:
    made = Round(costs("allreduce"), 3, MB, log_bytes=7000).program()
    for track in made.tracks:
        steps = [step for step in track.steps if isinstance(step, Step)]
        logs = [(step.op, step.bytes) for step in steps if step.phase == "log"]
        lines = 5 if track.worker == 0 else 6
        assert logs == [
            one
            for line in range(lines)
            for one in (("object.get", 7000 + 100 * line), ("object.put", 7100 + 100 * line))
        ]
    assert not any(
        isinstance(step, Step) and step.phase == "log"
        for track in Round(costs("allreduce"), 3, MB).program().tracks
        for step in track.steps
    )


def test_a_round_is_one_step_without_what_rank_0_deletes_after_it() -> None:
    made = Round(costs("scatterreduce"), 3, MB).program()
    assert made.batches == 1
    assert made.polls == POLICIES["released"].gets
    assert len(made.tracks) == 3
    slow = {"delete": Operation.model_validate(operation(60_000)), "list": Operation.model_validate(operation(0))}
    store = PLATFORM.channels["object"]
    store = store.model_copy(update={"operations": {**store.operations, **slow}})
    profile = PLATFORM.model_copy(update={"channels": {"object": store}})
    # The others' two chunks are deleted before the sum is there; what rank 0 deletes after it does not count.
    assert 120 < Round(costs("scatterreduce"), 3, MB, "none").seconds(profile) < 121


def test_cpu_seconds_of_a_recorded_run_come_on_top() -> None:
    """Sums of 50 ns a byte: of AllReduce's two gradients of 1 MB, half a gradient each is charged."""
    known = {
        ("invocation", op, phase, False): Cost(0.0, 0.0, 50.0 * (op == "reduce"), 0.0, 0.0, False, 0.0)
        for op, phase in (
            ("connect", "other"), ("build", "other"), ("serialise", "other"), ("update", "update"),
            ("prepare", "fetch"), ("compute", "compute"), ("object.put", "synchronise"), ("object.get", "synchronise"),
            ("object.delete", "synchronise"), ("object.list", "synchronise"), ("reduce", "synchronise"),
        )
    }  # fmt: skip
    free = costs("allreduce")
    measured = StepCosts(
        free.architecture, Workload(2, 1, 1, 1), known, free.functions, frozenset(), Poll(0.01, 1.5, 0.1), {}
    )
    assert Round(measured, 2, MB, "none").seconds(PLATFORM) == pytest.approx(0.090 + 2 * 0.025)
    assert Round(measured, 2, MB, "none", True).seconds(PLATFORM) == pytest.approx(0.085 + 2 * 0.025)


def test_less_than_15_percent_is_a_tie() -> None:
    assert winner({"a": 1.0, "b": 1.15}) == "a"
    assert winner({"a": 1.0, "b": 1.149}) == ""
    assert winner({"a": 11.5, "b": 10.0}) == "b"
    assert winner({"a": 3.3, "b": 3.1}) == ""


@given(st.floats(1e-3, 1e3))
def test_a_share_and_its_size_belong_together(share: float) -> None:
    assert pipe_share(PLATFORM, size_at(PLATFORM, share)) == pytest.approx(share, rel=2e-3)


def test_where_the_winner_changes_is_found() -> None:
    def winner_at(share: float) -> str:
        return "a" if share < 3 else "" if share < 3.5 else "b"

    first, tie, last = sweep(winner_at, 0.01, 100, 5)
    assert (first.winner, tie.winner, last.winner) == ("a", "", "b")
    assert first.begin == 0.01
    assert last.end == 100
    assert 3 <= first.end == tie.begin < 3 * NARROW
    assert 3.5 <= tie.end == last.begin < 3.5 * NARROW
    assert sweep(lambda _: "a", 1, 10, 3) == (Interval(1, 10, "a"),)


@given(st.floats(0.02, 50), st.floats(0.02, 50))
def test_intervals_lie_side_by_side(one: float, other: float) -> None:
    low, high = sorted((one, other))
    found = sweep(lambda share: "a" if share < low else "" if share < high else "b", 0.01, 100, 9)
    assert found[0].begin == 0.01
    assert found[-1].end == 100
    assert all(left.end == right.begin for left, right in pairwise(found))
    assert [interval.winner for interval in found] in (["a", "", "b"], ["a", "b"])
