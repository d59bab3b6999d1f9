"""What-ifs of a small run, calculated by hand on a platform with round figures (times in ms).

As recorded: both cold starts end at 150 (100, and 50 of init). Worker 0 takes 100 + 20 in each epoch and ends at 390,
worker 1 takes 200 + 15 and ends at 580; what it gets was always put before.
"""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from tests.lab.replay.platform import operation, platform
from tests.lab.replay.recordings import MS, PEAK_MB, make_plan, write_run

from slslab.errors import RequestError, RunError
from slslab.predict.profiles.profile import Figure, Profile
from slslab.run.bill import load_book
from slslab_lab.replay import whatif
from slslab_lab.replay.kernel.kernel import ReplayError
from slslab_lab.replay.kernel.program import Program, Step, Track
from slslab_lab.replay.measured import Measured, read_measured
from slslab_lab.replay.memory import Shortage
from slslab_lab.replay.programs.recorded import make_program
from slslab_lab.replay.programs.stragglers import straggler_note, with_straggler
from slslab_lab.replay.whatif import (
    Platform,
    Variant,
    as_document,
    evaluate,
    measured_row,
    vary_profile,
    vary_program,
    with_arch,
    with_concurrency,
    with_memory,
    with_network,
)
from slslab_lab.runs.planning import architectures
from slslab_workers.patterns import Kept

BOOK = load_book("aws-us-east-1")
ARCHITECTURES = architectures()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return read_measured(write_run(tmp_path_factory.mktemp("runs") / "small"))


def rounded(profile: Profile | None = None, timeout_s: float = 900) -> Platform:
    return Platform(profile or platform(), BOOK, timeout_s)


def with_arm(profile: Profile, speed: float) -> Profile:
    figure = Figure(value=speed, status="assumed", source="made up for a test")
    return profile.model_copy(update={"compute": profile.compute.model_copy(update={"arm_speed": figure})})


def test_the_run_as_measured(run: Measured) -> None:
    row = measured_row(run, rounded(timeout_s=0.3))
    # From 1000 to 1470, the end of worker 1; billed are 270 and 470.
    assert row.number("seconds") == pytest.approx(0.47)
    assert row.number("billed_seconds") == pytest.approx(0.74)
    assert row.figures["gb_seconds"].value == Decimal(740 * 1769) / 1024 / 1000
    assert row.figures["cost"].value == (
        Decimal(740 * 1769) / 1024 / 1000 * Decimal("0.0000166667") + 2 * Decimal("0.0000002")
        + 2 * Decimal("0.000005") + 2 * Decimal("0.0000004")
    )  # fmt: skip
    assert {name: one.basis for name, one in row.figures.items()} == {
        "seconds": "measured", "billed_seconds": "measured", "gb_seconds": "measured", "cost": "exact",
        "waiting_share": "measured", "invocations": "measured", "cold_starts": "measured", "over_timeout": "measured",
    }  # fmt: skip
    assert row.late == (("train", 1, 0.41),)
    assert run.peak_memory_mb == PEAK_MB


def test_the_run_as_recorded_on_another_platform(run: Measured) -> None:
    row = evaluate(run, Variant(), rounded())
    assert row.number("seconds") == pytest.approx(0.58)
    # 240 and 430, each with 50 of init.
    assert row.number("billed_seconds") == pytest.approx(0.77)
    assert row.figures["gb_seconds"].value == Decimal(770 * 1769) / 1024 / 1000
    assert (row.number("invocations"), row.number("cold_starts"), row.number("waiting_share")) == (2, 2, 0)
    assert row.figures["cost"].value == (
        Decimal(770 * 1769) / 1024 / 1000 * Decimal("0.0000166667") + 2 * Decimal("0.0000002")
        + 2 * Decimal("0.000005") + 2 * Decimal("0.0000004")
    )  # fmt: skip
    assert [name for name, one in row.figures.items() if one.basis == "exact"] == ["invocations"]
    document = as_document(row)
    low, high = row.uncertainties["seconds"].around(0.58)
    assert document["seconds"] == {"value": pytest.approx(0.58), "basis": "modelled", "low": low, "high": high}
    assert low < 0.58 < high
    assert document["uncertainty"]["cost"] == row.uncertainties["cost"].as_document()
    assert {line["item"]: line["basis"] for line in document["bill"]["lines"]} == {
        "Lambda duration, x86_64": "modelled",
        "Lambda requests": "exact",
        "S3 PUT requests": "exact",
        "S3 GET requests": "modelled",
    }, "workers poll with gets"


def test_more_memory_is_more_processors_and_threads(run: Measured) -> None:
    row = evaluate(run, Variant(memory_mb=3538), rounded())
    # Steps take half as long, init and requests as long as before: 150 + 2 × (100 + 15).
    assert row.number("seconds") == pytest.approx(0.38)
    assert row.number("billed_seconds") == pytest.approx(0.19 + 0.28)
    assert row.figures["gb_seconds"].value == Decimal(470 * 3538) / 1024 / 1000
    assert as_document(row)["variant"] == {"memory_mb": 3538, "threads": 2}


def test_less_memory_than_was_used_is_refused(run: Measured) -> None:
    row = evaluate(run, Variant(memory_mb=PEAK_MB - 1), rounded())
    assert not row.figures
    assert row.trouble == "Refused: the run's functions used 300 MB at their peak."
    assert evaluate(run, Variant(memory_mb=PEAK_MB), rounded()).figures
    assert as_document(row) == {
        "label": "299 MB",
        "variant": {"memory_mb": 299, "threads": 1},
        "trouble": "Refused: the run's functions used 300 MB at their peak.",
    }


def test_memory_changes_for_training_functions_alone() -> None:
    def track(kind: str, worker: int, memory_mb: int) -> Track:
        return Track("f", kind, worker, (), memory_mb)  # type: ignore[arg-type]

    tracks = (
        track("invocation", 0, 1024),
        track("invocation", 1, 512),
        track("invocation", 2, 1024),
        track("invocation", -1, 1024),
        track("instance", 0, 1024),
    )
    changed = with_memory(Program("mlless", 2, tracks, ()), 1024, 2048)
    # Not a light function, not a supervisor (its number is the first beyond those of the workers), no driver, no host.
    assert [one.memory_mb for one in changed.tracks] == [2048, 512, 1024, 1024, 1024]


def test_other_processors(run: Measured) -> None:
    half = with_arm(platform(), 0.5)
    row = evaluate(run, Variant(arch="arm64"), rounded(half))
    # Init takes 100, a step of worker 1 400.
    assert row.number("seconds") == pytest.approx(0.1 + 0.1 + 2 * 0.415)
    assert row.bill is not None
    assert row.bill.lines[0].item == "Lambda duration, arm64"
    assert with_arch(half, "arm64", "x86_64").compute.speed.value == 2
    assert with_arch(half, "arm64", "arm64") is half
    with pytest.raises(RequestError, match="doesn't say how fast arm64 is"):
        with_arch(platform(), "x86_64", "arm64")


def test_another_network(run: Measured) -> None:
    network = Profile.model_validate(
        platform().model_dump(by_alias=True)
        | {"name": "slow", "channels": {"object": {"description": "", "operations": {
            "put": operation(110, 100), "get": operation(105, 100), "list": operation(0)}}}}
    )  # fmt: skip
    row = evaluate(run, Variant(network=network), rounded())
    # Each get takes 100 more, and what it gets is there before.
    assert row.number("seconds") == pytest.approx(0.78)
    changed = with_network(platform(), network)
    assert changed.compute == platform().compute
    assert changed.name == "round with the network of slow"


def test_a_slow_worker(run: Measured) -> None:
    cpu = [{step.event: step.cpu_ns for step in track.flat_steps()} for track in run.program.tracks]
    slow = with_straggler(run.program, 1, 3)
    for track, before, old in zip(slow.tracks, run.program.tracks, cpu, strict=True):
        factor = 3 if track.worker == 1 else 1
        assert {step.event: step.cpu_ns for step in track.flat_steps()} == {e: factor * ns for e, ns in old.items()}
        assert track.init_cpu_ns == factor * before.init_cpu_ns
    assert with_straggler(run.program, 0, 1) == run.program
    recorded, row = (evaluate(run, Variant(straggler=one), rounded()) for one in (None, (1, 2.0)))
    # Worker 1 ends last. All that it computes, its init of 50 included, takes as long once more.
    computed = sum(cpu[1].values()) / 1e9 + 0.05
    assert row.number("seconds") == pytest.approx(recorded.number("seconds") + computed)
    assert row.label == "CPU time of worker 1 × 2"
    assert as_document(row)["variant"] == {"straggler": {"worker": 1, "factor": 2.0}}
    with pytest.raises(RequestError, match="no worker 2: the run has 2 workers"):
        evaluate(run, Variant(straggler=(2, 2.0)), rounded())


def test_a_run_with_a_slow_worker_is_replayed_with_it(run: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [{"kind": "straggler", "factor": 3, "worker": 1, "phase": "compute"}, {"kind": "straggler", "factor": 2.0}]
    slow = run.replace(plan=replace(run.plan, faults={"fault": faults}))
    slow = slow.replace(program=make_program(slow))
    for track, slowed in zip(run.program.tracks, slow.program.tracks, strict=True):
        assert track.init_cpu_ns == slowed.init_cpu_ns
        for step, later in zip(track.flat_steps(), slowed.flat_steps(), strict=True):
            factor = 1 if step.op == "return" else 4 if track.worker == 1 and step.phase == "compute" else 2
            assert later == replace(step, cpu_ns=factor * step.cpu_ns)
    row = evaluate(slow, Variant(), rounded())
    assert row.label == "as recorded, 2 workers, with its stragglers"
    assert row.number("seconds") > evaluate(run, Variant(), rounded()).number("seconds")
    assert evaluate(slow, Variant(memory_mb=3538), rounded()).label == "3538 MB, with its stragglers"
    # Other numbers of workers take the costs without the slow worker, and then that worker is as slow again.
    assert slow.costs == run.costs
    monkeypatch.setattr(whatif, "generate", lambda *_: run.program)
    assert vary_program(slow, Variant(workers=4)) == slow.program


@pytest.mark.parametrize(
    ("ranks", "note"),
    [
        ((), ""),
        ((None,), ", with its stragglers"),
        ((1, 2), ", with its stragglers, without the slow worker 2"),
        ((3, 2), ", without the slow workers 2 and 3"),
    ],
)
def test_a_label_says_which_slow_workers_there_are(ranks: Sequence[int | None], note: str) -> None:
    faults = [{"kind": "straggler", "factor": 3, **({} if rank is None else {"worker": rank})} for rank in ranks]
    plan = replace(make_plan(), workers=4, faults={"fault": faults} if faults else None)
    assert straggler_note(plan, 2) == note


def test_one_environment_at_once(run: Measured) -> None:
    row = evaluate(run, Variant(concurrency=1), rounded())
    # Worker 1 gets the environment of worker 0 when that ends at 390.
    assert row.number("seconds") == pytest.approx(0.39 + 0.43)
    assert row.number("cold_starts") == 1
    assert with_concurrency(platform(), 7).functions.concurrency.value == 7


def test_a_new_account_allows_ten_environments_at_once(run: Measured) -> None:
    new = run.replace(plan=replace(run.plan, account="new"))
    assert vary_profile(new, Variant(), platform()).functions.concurrency.value == 10
    assert vary_profile(new, Variant(concurrency=20), platform()).functions.concurrency.value == 20
    assert vary_profile(run, Variant(), platform()) == platform()


@pytest.mark.parametrize("certain", [True, False])
def test_a_host_with_too_little_memory(run: Measured, monkeypatch: pytest.MonkeyPatch, certain: bool) -> None:
    short = Shortage(
        "allreduce",
        2,
        "cache.t3.medium",
        "--channel-host",
        Kept(certain * 4 * 10**9, 4 * 10**9),
        {"cache.t3.medium": 3.09 * 2**30, "cache.m5.large": 6.38 * 2**30},
    )
    monkeypatch.setattr(Measured, "shortages", lambda _self, workers: [short] * (workers == 2))
    row = evaluate(run, Variant(), rounded())
    said = f"{short.message} To change that, {short.hint}"
    assert (row.trouble, row.warnings) == ((said, ()) if certain else ("", (said,)))
    assert as_document(row).get("warnings") == (None if certain else [said])
    assert bool(row.figures) is not certain


def test_workers_that_wait_for_one_that_may_not_start(run: Measured) -> None:
    meet = (Step("put", "other", 10 * MS, opens=(0,)), Step("meet", "wait", awaits=(0,)))
    tracks = tuple(Track("train", "invocation", worker, meet, 1769) for worker in range(2))
    stuck = run.replace(program=Program("allreduce", 2, tracks, (2,)))
    row = evaluate(stuck, Variant(concurrency=1), rounded())
    assert row.trouble.startswith("It never ends: with a concurrency of 1,")
    assert evaluate(stuck, Variant(concurrency=2), rounded()).figures
    never = run.replace(program=Program("allreduce", 2, tracks, (3,)))
    with pytest.raises(ReplayError):
        evaluate(never, Variant(), rounded())


def test_who_would_be_over_a_time_out(run: Measured) -> None:
    row = evaluate(run, Variant(), rounded(timeout_s=0.43))
    assert row.late == (), "430 ms are not more than 430"
    row = evaluate(run, Variant(), rounded(timeout_s=0.429))
    assert row.late == (("train", 1, 0.43),)
    assert row.number("over_timeout") == 1
    assert row.figures["invocations"].basis == "modelled", "it would invoke itself again"


def test_other_prices(run: Measured) -> None:
    book = load_book("paper-2025")
    priced = replace(rounded(), book=book)
    assert measured_row(run, priced).figures["cost"].value == Decimal(740 * 1769) / 10**6 * Decimal("0.0000166667")
    row = evaluate(run, Variant(), priced)
    assert row.figures["cost"].value == Decimal(770 * 1769) / 10**6 * Decimal("0.0000166667")


def test_every_peer_has_a_database(run: Measured) -> None:
    kinds = ("m5.large", "m5.large", "mq.t3.micro")
    hosts = [{"op": "host.run", "resource": kind, "start_ns": 0, "end_ns": MS, "worker": -1} for kind in kinds]
    peers = run.replace(events=hosts, plan=make_plan("spirt"), architecture=ARCHITECTURES["spirt"])
    assert peers.hosts(2) == kinds
    assert peers.hosts(5) == ("m5.large",) * 5 + ("mq.t3.micro",)
    shared = run.replace(events=hosts[1:], plan=make_plan("mlless"), architecture=ARCHITECTURES["mlless"])
    assert shared.hosts(5) == kinds[1:]
    assert run.hosts(5) == ()


def test_the_drivers_requests_grow_with_workers_and_epochs(run: Measured) -> None:
    puts = [{"op": "object.put", "worker": worker, "requests": 3, "bytes": 0} for worker in (-1, -1, 0)]
    driven = run.replace(events=puts)
    assert driven.driver_requests(2, 2) == {"object.put": 6}
    assert driven.driver_requests(4, 3) == {"object.put": 18}


def test_labels() -> None:
    assert Variant().label == ""
    assert Variant(memory_mb=512, workers=4, network=platform()).label == "512 MB, 4 workers, network of round"


def test_a_run_that_is_not_done_cannot_be_replayed(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run")
    (directory / "run.json").unlink()
    with pytest.raises(RunError, match="is incomplete"):
        read_measured(directory)


def test_this_host_is_fitted_to_the_run(run: Measured) -> None:
    profile = run.host_profile()
    assert profile.name == "this-host"
    assert profile.date.isoformat() == "2026-11-21"
    row = evaluate(run, Variant(), rounded(profile))
    assert row.number("billed_seconds") == pytest.approx(run.document["billed_seconds"], rel=0.03)
