"""Patterns: what is said activity by activity adds up; `test_protocols_page.py` has every architecture's formulas."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.workers.mlless.closed_form import counts as mlless_counts

from slslab_workers import patterns
from slslab_workers.allreduce import architecture as allreduce
from slslab_workers.architecture import Architecture
from slslab_workers.gloo import architecture as gloo
from slslab_workers.gpu import architecture as gpu
from slslab_workers.mlless import architecture as mlless
from slslab_workers.patterns import (
    DRIVER,
    OWN,
    Activity,
    Counts,
    Gathering,
    Pattern,
    Role,
    Signal,
    Slot,
    Workload,
    activities,
    count,
    slots,
)
from slslab_workers.plan import PlanError
from slslab_workers.scatterreduce import architecture as scatterreduce
from slslab_workers.spirt import architecture as spirt

ARCHITECTURES: dict[str, Any] = {
    architecture.name: architecture for architecture in (allreduce, gloo, gpu, mlless, scatterreduce, spirt)
}
LENET = 61_706


def pattern_of(
    name: str, workers: int, batches: int, epochs: int, parameters: int, *, share: float = 1.0, **options: Any
) -> Pattern:
    found = ARCHITECTURES[name].pattern(Workload(workers, batches, epochs, parameters, options, share))
    assert isinstance(found, Pattern)
    return found


def without_zeros(counts: Counts) -> Counts:
    return Counts({op: n for op, n in counts.operations.items() if n}, counts.bytes_in, counts.bytes_out)


@pytest.mark.parametrize("store", ["tensordb", "s3"])
@given(
    workers=st.integers(1, 16),
    batches=st.integers(1, 25),
    epochs=st.integers(1, 3),
    parameters=st.integers(1, 100_000),
)
def test_mlless_messages_and_bytes_are_the_closed_form(
    store: str, workers: int, batches: int, epochs: int, parameters: int
) -> None:
    counted = count(pattern_of("mlless", workers, batches, epochs, parameters, store=store))
    assert counted == without_zeros(mlless_counts(workers, batches, epochs, parameters, {"store": store}))


def test_mlless_closed_form_holds_for_thousands_of_workers() -> None:
    counted = count(pattern_of("mlless", 4096, 2, 1, 3_217_226))
    assert counted == without_zeros(mlless_counts(4096, 2, 1, 3_217_226))


def test_spirt_as_released_by_hand() -> None:
    """2 peers, 3 minibatches, one epoch: each stores 3 texts, the mean and the aggregate; reads parameters 4 times and
    2 averages; runs Lua and the update's script. Of 10 numbers a tensor has 40 bytes."""
    options: dict[str, Any] = {"gradients": "json", "averaging": "round-trip"}
    found = ARCHITECTURES["spirt"].counts(2, 3, 1, 10, options)
    assert {op: found.operations[op] for op in ("tensor.set", "tensor.get", "tensor.script")} == {
        "tensor.set": 2 * (3 + 2), "tensor.get": 2 * (4 + 2), "tensor.script": 2 * 2,
    }  # fmt: skip
    assert (found.bytes_in, found.bytes_out) == (2 * 2 * 40, 2 * 6 * 40)
    parts = [part for role in pattern_of("spirt", 2, 3, 1, 10, **options).roles for part in role.start]
    # The inputs of states are measured, too.
    unknown = [part for part in parts if isinstance(part, Activity) and part.protocol and part.bytes is None]
    texts = [part for part in unknown if part.op != "transition"]
    assert [(part.op, part.work) for part in texts] == [("tensor.set", 0), ("tensor.script", 3 * 40)]


@pytest.mark.parametrize("name", ["allreduce", "scatterreduce", "mlless"])
@settings(max_examples=25)
@given(
    workers=st.integers(1, 16), batches=st.integers(1, 25), epochs=st.integers(1, 3), share=st.sampled_from([0.4, 1])
)
def test_logs_grow_by_a_line_of_100_bytes_and_are_no_part_of_the_protocol(
    name: str, workers: int, batches: int, epochs: int, share: float
) -> None:
    found = pattern_of(name, workers, batches, epochs, LENET, share=share, **{"log-traffic": True})
    assert count(found) == count(pattern_of(name, workers, batches, epochs, LENET, share=share))
    for role in found.roles:
        logged = [
            (activity.op, activity.bytes)
            for slot, parts in slots(role, found.workload)
            for activity in activities(parts, slot)
            if activity.phase == "log"
        ]
        each = {"allreduce": 5 if 0 in role.ranks else 6, "scatterreduce": 6, "mlless": 7}[name] * batches
        each += {"scatterreduce": (batches + 9) // 10}.get(name, 0)
        lines = 0 if role.function == "supervisor" else epochs * each
        pairs = [[("object.get", 100 * line), ("object.put", 100 * line + 100)] for line in range(lines)]
        assert logged == [request for pair in pairs for request in pair]


@given(workers=st.integers(1, 16), steps=st.integers(1, 40), share=st.floats(0, 1))
def test_mlless_with_a_filter_is_the_closed_form_given_who_sends(workers: int, steps: int, share: float) -> None:
    found = pattern_of("mlless", workers, steps, 1, LENET, share=share)
    updates = [0] * steps
    for role in found.roles:
        for slot, parts in slots(role, found.workload):
            updates_of_one = sum(activity.op == "tensor.set" for activity in activities(parts, slot))
            if slot.step >= 0:
                updates[slot.step] += updates_of_one * len(role.ranks)
    assert count(found) == without_zeros(mlless_counts(workers, steps, 1, LENET, updates=updates))


def test_a_third_of_the_updates_is_spread_over_workers_and_steps() -> None:
    found = pattern_of("mlless", 6, 3, 1, LENET, share=1 / 3)
    sent: dict[int, list[int]] = {}
    for role in found.roles[:-1]:
        in_steps = [parts for slot, parts in slots(role, found.workload) if slot.step >= 0]
        slot = Slot(0, 0, 0, 1)
        sends = [sum(one.op == "tensor.set" for one in activities(parts, slot)) for parts in in_steps]
        sent |= dict.fromkeys(role.ranks, sends)
    assert sorted(sent) == list(range(6))
    assert all(sum(steps) == 1 for steps in sent.values())
    assert [sum(steps[step] for steps in sent.values()) for step in range(3)] == [2, 2, 2]


def test_an_infinite_threshold_leaves_reports_and_decisions() -> None:
    counted = count(pattern_of("mlless", 4, 5, 2, LENET, share=0.0))
    assert counted == Counts({"queue.publish": 10 * (4 + 2), "queue.deliver": 10 * (4 + 4 + 1)}, 0, 0)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_rank_has_one_role_in_each_function(name: str) -> None:
    for workers in (1, 2, 3, 7, 16):
        found = pattern_of(name, workers, 2, 2, LENET)
        by_function: dict[tuple[str, str], list[int]] = {}
        for role in found.roles:
            by_function.setdefault((role.kind, role.function), []).extend(role.ranks)
        for (_, function), ranks in by_function.items():
            assert sorted(ranks) == ([workers] if function == "supervisor" else list(range(workers)))


@pytest.mark.parametrize("name", ["scatterreduce", "gloo", "gpu", "spirt"])
def test_bundles_do_not_grow_with_the_workers(name: str) -> None:
    def size(workers: int) -> int:
        found = pattern_of(name, workers, 4, 1, 1 << 20)
        return sum(
            1
            for role in found.roles
            if role.ranks
            for slot, parts in slots(role, found.workload)
            for _ in activities(parts, slot)
        )

    assert size(4096) == size(1024)


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [(0, None, [0, 1, 2, 3]), (1, None, [1, 2, 3]), (0, -1, [0, 1, 2]), (-1, None, [3]), (0, 1, [0]), (5, None, [])],
)
def test_an_activity_runs_where_its_slice_says(since: int, until: int | None, expected: list[int]) -> None:
    activity = Activity("update", "update", since=since, until=until)
    assert [number for number in range(4) if activity.runs_in(Slot(0, number, number, 4))] == expected


def test_what_is_done_no_times_does_not_take_place() -> None:
    assert not Activity("object.get", "synchronise", times=0).runs_in(Slot(0, 0, 0, 1))


def test_places_are_in_the_order_of_a_run() -> None:
    one, two, after = Activity("one", "other"), Activity("two", "other"), Activity("after", "other")
    role = Role(range(1), start=(one,), steps=((one,), (two,)), epoch=(after,), end=(two,))
    found = [
        (slot.epoch, slot.step, activity.op)
        for slot, parts in slots(role, Workload(1, 3, 2, 1))
        for activity in activities(parts, slot)
    ]
    steps = [(0, 0, "one"), (0, 1, "two"), (0, 2, "one"), (0, -1, "after")]
    steps += [(1, 0, "two"), (1, 1, "one"), (1, 2, "two"), (1, -1, "after")]
    assert found == [(-1, -1, "one"), *steps, (-1, -1, "two")]


def test_a_role_may_be_there_in_some_epochs_only() -> None:
    one, after = Activity("one", "other"), Activity("after", "other")
    found = {}
    for each in ("run", "epoch"):
        whole = Role(range(1), each=each, start=(one,), epoch=(after,), end=(one,))
        for since, until in ((0, 1), (1, 2), (2, None)):
            role = replace(whole, since=since, until=until)
            found[each, since] = [slot.epoch for slot, parts in slots(role, Workload(1, 2, 3, 1)) if parts]
    assert found == {
        **{("run", 0): [-1, 0], ("run", 1): [1], ("run", 2): [2, -1]},
        **{("epoch", since): [since] for since in range(3)},
    }


def test_steps_take_turns_in_functions_of_a_step_too() -> None:
    start, one, two = Activity("start", "other"), Activity("one", "other"), Activity("two", "other")
    role = Role(range(1), each="step", start=(start,), steps=((one,), (two,), (two,)))
    found = [
        (slot.epoch, slot.step, [activity.op for activity in activities(parts, slot)])
        for slot, parts in slots(role, Workload(1, 3, 2, 1))
    ]
    turns = [(0, "one"), (1, "two"), (2, "two")]
    assert found == [(epoch, step, ["start", turn]) for epoch in range(2) for step, turn in turns]


def test_gathered_activities_are_counted() -> None:
    get = Activity("object.get", "synchronise", bytes=8, needs=(Signal("gradient", of=OWN),), protocol=True)
    role = Role(range(3), steps=((Gathering(((get,), (get,))),),))
    driver = Role(range(DRIVER, 0), steps=((Activity("queue.deliver", "synchronise", times=2, protocol=True),),))
    assert count(Pattern(Workload(3, 2, 1, 2), (role,), driver=(driver,))) == Counts(
        {"queue.deliver": 4, "object.get": 12}, 0, 96
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mlless", {"remove-threshold": 15.0, "remove-interval": 20.0}),
        ("spirt", {"join": "1:1"}),
        ("spirt", {"accumulate": 2}),
    ],
)
def test_what_cannot_be_said_of_other_sizes_is_refused(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(PlanError) as caught:
        pattern_of(name, 2, 2, 2, LENET, **options)
    assert re.match("(scale|replay) a run with", caught.value.hint)


def test_an_architecture_needs_no_pattern() -> None:
    architecture: Any = type(
        "Another", (Architecture,), {"name": "another", "summary": "", "counts": None, "drive": None}
    )()
    assert architecture.pattern(Workload(2, 2, 2, 10)) is None


@pytest.mark.parametrize(("workers", "steps", "averages"), [(1, 6, 2), (2, 7, 2), (5, 9, 3)])
def test_the_documented_pattern_is_the_examples_closed_form(workers: int, steps: int, averages: int) -> None:
    page = (Path(__file__).parents[2] / "docs" / "own.md").read_text(encoding="utf-8")
    code = page.split("## Its pattern")[1].split("```python\n")[1].split("```")[0]
    names = dict(vars(patterns))
    exec(compile(code, "docs/own.md", "exec"), names)
    counted = count(names["pattern"](Workload(workers, steps, 1, 100, {"every": 3})))
    puts, gets = averages * workers, averages * workers * (workers - 1)
    assert counted == without_zeros(Counts({"object.put": puts, "object.get": gets}, puts * 400, gets * 400))


@pytest.mark.parametrize("key", ["{worker}", "{run}/{}", "{run}/{0}"])
def test_a_key_names_what_is_known(key: str) -> None:
    known = r"\}, but can only have run, architecture, epoch, step, maker, taker$"
    with pytest.raises(ValueError, match=known):
        patterns.Signal("model", key=key)
