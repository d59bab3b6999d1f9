"""Functions with GPUs: their steps take the anchor's time, and their containers are billed from start to stop."""

import math
from decimal import Decimal
from pathlib import Path

import pytest
from tests.lab.replay.platform import platform
from tests.lab.replay.recordings import MS

from slslab.errors import RequestError
from slslab.predict.anchors import Z80
from slslab.predict.gpus import load_gpus
from slslab.predict.profiles.profile import Containers, Figure, Profile, load_profile
from slslab.predict.uncertainty import GPU, IDLE, PROFILE, STARTS, STORES
from slslab.run.bill import compute_bill, load_book
from slslab_lab.questions.played import waiting
from slslab_lab.questions.setup import Asked, ReplaySetup, read_memory, read_setup
from slslab_lab.replay import whatif
from slslab_lab.replay.crossings import course
from slslab_lab.replay.gpus import step_seconds, with_step
from slslab_lab.replay.kernel.kernel import ReplayError, play
from slslab_lab.replay.kernel.program import Program, Step, Track
from slslab_lab.replay.outcome import outcome
from slslab_lab.replay.ranges import find_uncertainties
from slslab_lab.replay.whatif import with_concurrency

RESULTS = Path(__file__).parents[3] / "results" / "table2"
SOURCE = {"status": "assumed", "source": "made up for a test"}
ANCHOR = Figure(value=0.2, low=0.1, high=0.4, **SOURCE)  # type: ignore[arg-type]


def figure(value: float) -> Figure:
    return Figure(value=value, **SOURCE)  # type: ignore[arg-type]


def on_gpus(**changes: float) -> Profile:
    """A platform with round figures: a cold start takes 100 ms, a container waits 60 s and is billed by the second."""
    figures = {"memory_mb": 4096, "vcpus": 2, "idle_s": 60, "start_billed": 1, "unit_s": 1}
    figures |= {"least_s": 0, "timeout_s": 86_400}
    values = {name: figure(value) for name, value in (figures | changes).items()}
    return platform().model_copy(update={"containers": Containers(gpu="T4", prices="modal", **values)})


def program(*op_lists: tuple[str, ...]) -> Program:
    """A function of one invocation for each list of operations, which take 2 s on the recording host."""
    tracks = []
    for number, ops in enumerate(op_lists):
        steps = tuple(Step(op, op, 2000 * MS, op == "compute", epoch=0, step=0) for op in ops)
        tracks.append(Track(f"function-{number}", "invocation", number, steps, 1769))
    return Program("allreduce", len(tracks), tuple(tracks), ())


def test_a_step_takes_the_anchors_time_whatever_the_cpus() -> None:
    steps = program(("compute", "update"))
    assert step_seconds(steps) == 2
    profile = with_step(on_gpus(), "T4", ANCHOR, step_seconds(steps))
    timeline = play(steps, profile)
    took = [(end - start) / 1e9 for start, end in zip(timeline.start, timeline.end, strict=True)]
    # An update isn't the GPU's.
    assert took == pytest.approx([0.2, 2.0])
    instance = profile.instances["g4dn.xlarge"].compute_speed
    assert (instance.value, instance.low, instance.high) == (10, 5, 20)
    with pytest.raises(RequestError, match="no training step that a GPU could compute"):
        step_seconds(program(("update",)))


def test_a_container_is_billed_from_its_start_to_its_stop() -> None:
    steps = program(("compute",), ("update",))
    played = outcome(play(steps, with_step(on_gpus(), "T4", ANCHOR, 2.0)))
    # 100 ms of a cold start and what follows, 0.2 or 2 s of work, rounded up with 60 s of idle time.
    usage = played.as_usage()
    assert dict(usage.idle) == {"gpu.T4": 60, "container.vcpu": 240, "container.memory": 480}
    assert dict(usage.containers) == {"gpu.T4": 1, "container.vcpu": 2 * (1 + 3), "container.memory": 4 * (1 + 3)}
    assert played.billed_seconds == 61 + 63
    assert usage.invocations == ()
    # The start isn't billed everywhere, and some bill a minimum.
    late = with_step(on_gpus(start_billed=0, unit_s=0.001, idle_s=0), "T4", ANCHOR, 2.0)
    assert dict(outcome(play(program(("compute",)), late)).usage.containers)["gpu.T4"] == Decimal("0.2")
    least = with_step(on_gpus(least_s=600), "T4", ANCHOR, 2.0)
    assert outcome(play(steps, least)).billed_seconds == 1200


def test_a_longer_job_waits_to_be_stopped_once() -> None:
    twice = program(("compute",)).tracks[0]
    second = Step("compute", "compute", 2000 * MS, True, epoch=1, step=0)
    epochs = Program("allreduce", 1, (Track(twice.name, "invocation", 0, (*twice.steps, second), 1769),), (), epochs=2)
    timeline = play(epochs, with_step(on_gpus(unit_s=0.001), "T4", ANCHOR, 2.0))
    played = outcome(timeline)
    usage = course(timeline, played, played.as_usage())
    book = load_book("modal")
    second_usd = Decimal("0.000164") + 2 * Decimal("0.0000131") + 4 * Decimal("0.00000222")
    grown = usage.bill(1002, book).total - usage.bill(2, book).total
    # A thousand epochs of 0.2 s.
    assert float(grown) == pytest.approx(float(second_usd) * 200, rel=0.01)
    assert float(usage.bill(2, book).total) == pytest.approx(float(second_usd) * 60.6, rel=0.01)


def test_workers_that_wait_for_others_without_a_gpu_are_fewer_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise ReplayError("stuck", "")

    monkeypatch.setattr(whatif, "play", never)
    with pytest.raises(RequestError) as refused:
        whatif.play_within(program(("compute",), ("compute",)), with_concurrency(on_gpus(), 1))
    assert refused.value.hint == "choose fewer workers."


def test_each_rough_figure_is_a_source_of_error() -> None:
    steps = program(("compute",))
    rough = load_profile("modal-t4")
    profile = with_step(rough, "T4", ANCHOR, 2.0)

    def seconds(moved: Profile) -> dict[str, float]:
        return {"seconds": outcome(play(steps, moved)).seconds}

    found = find_uncertainties(seconds(profile), seconds, profile, None, False)["seconds"].shared
    assert found[GPU] > 0
    assert found[STARTS] > 0
    assert found[STORES] == 0
    assert "dense work on Lambda" not in found

    def usd(moved: Profile) -> dict[str, float]:
        return {"cost": float(compute_bill(outcome(play(steps, moved)).as_usage(), load_book("cloud-run")).total)}

    # Cloud Run keeps a container for 600 to 900 s, which is nearly all of this bill; Modal says how long.
    cloud_run = load_profile("cloud-run-l4")
    kept = find_uncertainties(usd(cloud_run), usd, cloud_run, None, False)["cost"].shared
    assert kept[IDLE] == pytest.approx(math.log(1.5) / 2 / Z80, rel=0.05)
    assert found[IDLE] == 0
    # Lambda has none of them.
    plain = load_profile("aws-us-east-1-2026-11")
    assert (
        not {GPU, STARTS, STORES, IDLE}
        & find_uncertainties(seconds(plain), seconds, plain, None, False)["seconds"].shared.keys()
    )


def test_managed_instances_are_as_uncertain_as_the_profile_they_are_based_on() -> None:
    own, base = (
        find_uncertainties({"seconds": 10.0}, lambda moved: {"seconds": moved.transition_ms.value}, profile, None, True)
        for profile in map(load_profile, ("lambda-managed", "aws-us-east-1-2026-11"))
    )
    assert own["seconds"].shared[PROFILE] == base["seconds"].shared[PROFILE] != 0


def setup(name: str, platform: str | None, **options: str) -> ReplaySetup:
    given = {"profile": None, "network": None, "prices": None, "arch": None, **options}
    return read_setup(str(RESULTS / name), **given, platform=platform)  # type: ignore[arg-type]


def test_a_run_is_replayed_on_a_platform_with_its_prices_and_its_size() -> None:
    replayed = setup("resnet18-allreduce", "modal-t4")
    assert replayed.prices.name == replayed.platform.book.name == "modal"
    assert replayed.platform.timeout_s == 86_400
    step = load_gpus().step("T4", "resnet18", 512)
    speed = replayed.platform.profile.compute.kinds["dense"].value
    assert step_seconds(replayed.run.program) / speed == pytest.approx(step.value)
    row = replayed.row((None, None))
    assert row.bill is not None
    assert "GPU T4" in {line.item for line in row.bill.lines}
    assert setup("resnet18-allreduce", "modal-t4", prices="modal").prices.name == "modal"
    assert not row.bill.not_billed
    with pytest.raises(RequestError, match="On modal-t4 all functions have 8192 MB"):
        read_memory(replayed, "3008")
    with pytest.raises(RequestError) as refused:
        read_memory(replayed, None, (512, 1024))
    assert refused.value.hint == "leave out --platform."
    asked = Asked((replayed,), None, lambda *_: [])
    found = waiting(asked, None, None)
    # A container's second costs 0.000208 USD with its two cores and 8 GiB.
    assert sum(row["cost"] for row in found["rows"]) / found["waiting_seconds"]["value"] == pytest.approx(
        0.000208, 0.01
    )


@pytest.mark.parametrize(
    ("name", "platform", "options", "reason"),
    [
        ("resnet18-gpu", None, {"profile": "modal-t4"}, "ran on instances, so --profile doesn't apply"),
        (
            "resnet18-allreduce",
            "runpod-l4",
            {},
            "How long resnet18 takes for minibatches of 512 on L4 GPUs can't be said",
        ),
        ("resnet18-gpu", "modal-t4", {}, "ran on instances, so --platform doesn't apply"),
        ("resnet18-allreduce", "modal-t4", {"arch": "arm64"}, "modal-t4 has only x86_64 processors"),
        (
            "resnet18-allreduce",
            "modal-t4",
            {"profile": "lambdaml-2021"},
            "--platform and --profile both name a platform",
        ),
        ("resnet18-allreduce", "lambda-managed", {}, "lambda-managed has no functions with GPUs"),
        ("resnet18-allreduce", "nowhere", {}, "'nowhere' isn't a platform"),
        ("resnet18-allreduce", "aws-us-east-1", {}, "aws-us-east-1 has no functions with GPUs"),
        (
            "resnet18-allreduce",
            "modal-t4",
            {"prices": "aws-us-east-1"},
            "aws-us-east-1 has no price for GPU T4, vCPUs of containers and Memory of containers",
        ),
    ],
)
def test_what_a_platform_cannot_have_is_refused(
    name: str, platform: str | None, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(RequestError, match=reason):
        setup(name, platform, **options)
