"""The modelled part of a run's document, of a recording by hand on the profile of AWS."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest

from slslab.errors import RequestError
from slslab.predict.anchors import Z80
from slslab.predict.processor import UNANCHORED
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import load_profile
from slslab.predict.uncertainty import HOST, NONE, REPLAY, Uncertainty, ratio_range, read_uncertainty
from slslab.run.bill import load_book
from slslab.run.document import not_modelled
from slslab.run.run import Run
from slslab_lab.replay import modelled
from slslab_lab.replay.modelled import model
from slslab_lab.replay.whatif import SIZES
from slslab_workers.plan import Plan

MS = 1_000_000
BOOK = load_book("aws-us-east-1")
PLAN = Plan("20261121-one", "allreduce", "lenet", "digits", batch_size=64, batches=5, memory_mb=1769)


def event(number: int, op: str, worker: int, start_ms: int, end_ms: int, **more: Any) -> dict[str, Any]:
    base = {
        "event": number, "op": op, "worker": worker, "phase": "other", "function": "train", "environment": "",
        "start_ns": start_ms * MS, "end_ns": end_ms * MS, "cpu_ns": 0, "cpu_before_ns": 0, "bytes": 0, "requests": 0,
        "invocation": f"request-{worker}" if worker >= 0 else "", "resource": "", "epoch": 0, "step": 0,
        "failed": False, "causes": [],
    }  # fmt: skip
    return base | more


def recording(events: Sequence[dict[str, Any]]) -> Run:
    record = {
        "request_id": "request-0", "function": "train", "memory_mb": 1769, "ephemeral_mb": 512, "environment": "one",
        "cold_start": True, "cpu_ms": 500.0, "max_memory_mb": 700, "architecture": "arm64",
        "invocation_type": "RequestResponse", "init_ms": 250.0, "duration_ms": 400.0, "error_type": None,
    }  # fmt: skip
    return Run(plan=PLAN, events=events, invocations=[record])


COMPUTED = (
    event(0, "invoke", -1, 0, 2_000, invocation="request-0"),
    event(1, "environment.start", -1, 0, 900, environment="one", cpu_ns=200 * MS),
    event(2, "compute", 0, 1_000, 1_300, cpu_ns=290 * MS, phase="compute"),
    event(3, "object.put", 0, 1_300, 1_400, cpu_ns=10 * MS, bytes=0, requests=1, resource="b/k"),
    event(4, "object.put", -1, 0, 1, requests=7, resource="b/k", function="driver"),
    event(5, "host.run", -1, 0, 2_000, resource="t4g.medium"),
)


def test_seconds_bill_and_critical_path_of_a_run_on_lambda() -> None:
    found = model(recording(COMPUTED), BOOK)
    profile = load_profile(DEFAULT_PROFILE)
    functions = profile.functions
    latency_ms = profile.operation("object.put").latency_ms.value
    init_ms = 200 + (functions.init_wait_ms.value if functions.init_wait_ms else 0)
    # One vCPU, nothing parallel at 1,769 MB: CPU time is time. The latency is followed by the put's own CPU time.
    duration_ms = 290 + latency_ms + 10
    assert found["status"] == "modelled"
    assert found["profile"] == {"name": DEFAULT_PROFILE, "date": profile.date.isoformat()}
    (worker,) = found["per_worker"]
    assert worker["seconds"] == pytest.approx(duration_ms / 1000)
    assert worker["parts"]["init"] == pytest.approx(init_ms / 1000)
    assert worker["parts"]["waiting"] == 0
    before_ms = functions.cold_zip_ms.value + init_ms + functions.warm_ms.value
    assert found["seconds"] == pytest.approx((before_ms + duration_ms) / 1000)
    assert found["billed_seconds"] == worker["billed_seconds"]
    assert found["waiting_share"] == 0
    assert "compute of worker 0" in found["critical_path"]
    quantities = {line["item"]: line["quantity"] for line in found["cost"]["lines"]}
    assert quantities["S3 PUT requests"] == "8", "the driver's are in the bill"
    assert quantities["Lambda duration, arm64"] == found["gb_seconds"]
    assert float(quantities["Host t4g.medium"]) == 60, "a host runs as long as the modelled run, and a minute at least"


def test_other_memory_sizes_are_those_that_the_functions_fit_into(monkeypatch: pytest.MonkeyPatch) -> None:
    found = model(recording(COMPUTED), BOOK)
    sizes = found["memory_sizes"]
    assert [size["memory_mb"] for size in sizes] == [size for size in SIZES if size >= 700]
    own = next(size for size in sizes if size["memory_mb"] == PLAN.memory_mb)
    assert (own["seconds"], own["cost"]) == (found["seconds"], found["cost"]["total"])
    # Half a vCPU takes twice as long to compute; what is waited for stays.
    smaller = next(size for size in sizes if size["memory_mb"] == 1024)
    assert smaller["seconds"] > own["seconds"]
    # 600 ms of a vCPU take 0.6 × 1769 ÷ 1024 = 1.04 s at 1,024 MB.
    longer = [*COMPUTED[:2], event(2, "compute", 0, 1_000, 1_700, cpu_ns=600 * MS, phase="compute")]
    hurried = recording(longer).replace(plan=dataclasses.replace(PLAN, timeout=1))
    assert min(size["memory_mb"] for size in model(hurried, BOOK)["memory_sizes"]) == 1536
    monkeypatch.setattr(modelled, "STEPS", 2 * 2)
    nearest = [size["memory_mb"] for size in model(recording(COMPUTED), BOOK)["memory_sizes"]]
    assert nearest == [1536, PLAN.memory_mb, 2048], "a large run is played with few"


def test_an_init_that_may_be_too_long_on_lambda_is_named() -> None:
    assert model(recording(COMPUTED), BOOK)["limits"] == []
    slow = [COMPUTED[0], event(1, "environment.start", -1, 0, 900, environment="one", cpu_ns=9_000 * MS), *COMPUTED[2:]]
    found = model(recording(slow), BOOK)
    (crossing,) = found["limits"]
    assert (crossing["function"], crossing["limit"], crossing["kept_here"]) == ("train", "init", True)
    assert crossing["low"] < 9 < 10 < crossing["high"]
    assert found["ranges"].keys() == found["uncertainty"].keys() == {"seconds", "billed_seconds", "cost"}


def test_what_cannot_be_replayed_says_why() -> None:
    lost = [*COMPUTED[:2], event(2, "compute", 0, 1_000, 1_300, invocation="lost")]
    assert model(recording(lost), BOOK) == {
        "status": "not modelled",
        "reason": "Event 2 (compute) of 20261121-one belongs to invocation 'lost', which was never metered.",
    }
    unknown = [*COMPUTED[:2], event(2, "object.teleport", 0, 1_000, 1_300, requests=1)]
    assert "has no entry for object.teleport" in model(recording(unknown), BOOK)["reason"]
    assert not_modelled("Why.")["reason"] == "Why."


def test_a_defect_of_the_replay_costs_no_run_its_results(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(recording: Run) -> None:
        raise KeyError(recording.plan.run)

    monkeypatch.setattr(modelled, "make_program", stumble)
    found = model(recording(COMPUTED), BOOK)
    assert found == not_modelled("Its trace could not be replayed (KeyError: '20261121-one').")


def test_every_figure_has_its_80_percent_range_and_what_that_is_made_of() -> None:
    found = model(recording(COMPUTED), BOOK)
    values = {**{name: found[name] for name in ("seconds", "billed_seconds")}, "cost": float(found["cost"]["total"])}
    assert found["ranges"].keys() == found["uncertainty"].keys() == values.keys()
    for name, ends in found["ranges"].items():
        uncertainty = read_uncertainty(found["uncertainty"][name])
        assert (ends["low"], ends["high"]) == pytest.approx(uncertainty.around(values[name]), rel=1e-3)
        assert {HOST, REPLAY} <= uncertainty.own.keys()
        # The host was not measured, and not all of the time is its processor's.
        assert 0 < uncertainty.own[HOST] < UNANCHORED.unknown.deviation
    assert "error" not in found


def test_a_ratio_draws_shared_errors_once() -> None:
    one, other = Uncertainty({"a": 0.3}, {HOST: 0.03}), Uncertainty({"a": 0.3, "b": 0.0}, {HOST: 0.04})
    assert one.of_ratio(other) == pytest.approx(0.05)
    low, high = ratio_range((3.0, 1.5), (one, other))
    assert (low * high, high / low) == pytest.approx((4, math.exp(2 * Z80 * 0.05)))
    assert one.of_one_recording().of_ratio(other.of_one_recording()) == pytest.approx(0.01)
    assert one.of_product(one).deviation == pytest.approx(2 * one.deviation)
    assert one.likelihood(2.0, 2.0) == pytest.approx(0.5)
    assert one.likelihood(2.0, one.around(2.0)[1]) == pytest.approx(0.9, abs=1e-4)
    assert NONE.likelihood(2.0, 2.0) == 1
    assert NONE.likelihood(2.0, 1.9) == 0
    assert one.half_widths() == {"a": pytest.approx(math.expm1(Z80 * 0.3)), HOST: pytest.approx(math.expm1(Z80 * 0.03))}
    assert read_uncertainty(one.as_document()) == one


@pytest.mark.parametrize(
    ("model_name", "device", "kind"),
    [("lenet", "cuda:0 Tesla T4", "T4"), ("resnet18", "cuda:0 NVIDIA H200", "NVIDIA H200")],
)
def test_a_run_on_a_gpu_is_modelled_by_an_anchor_of_its_own_kind_alone(model_name: str, device: str, kind: str) -> None:
    plan = dataclasses.replace(PLAN, model=model_name, batch_size=512)
    on_gpu = {"id": "request-0", "type": "g4dn.xlarge", "function": "train", "device": device, "worker": 0}
    on_gpu |= {"cpu_seconds": 1.0, "memory_mb": 1769}
    with pytest.raises(
        RequestError, match=f"How long {model_name} takes for minibatches of 512 on {kind} GPUs can't be"
    ):
        modelled.play_on_platform(recording(COMPUTED).replace(plan=plan, instances=[on_gpu]))


def test_a_run_for_a_platform_with_gpus_is_modelled_there_and_nowhere_else() -> None:
    plan = dataclasses.replace(PLAN, model="resnet18", batch_size=512, platform="modal-t4", memory_mb=8192)
    run = recording(COMPUTED).replace(plan=plan)
    book, profile = load_book("modal"), load_profile("modal-t4")
    found = model(run, book)
    assert found["profile"]["name"] == "modal-t4"
    (worker,) = found["per_worker"]
    # A minibatch takes the anchor's 0.354 s; then come a request from outside AWS, and its own 10 ms.
    latency_ms = profile.operation("object.put").latency_ms.value
    assert worker["seconds"] == pytest.approx(0.354 + (latency_ms + 10) / 1000)
    quantities = {line["item"]: line["quantity"] for line in found["cost"]["lines"]}
    assert quantities["GPU T4"] == str(round(found["billed_seconds"]))
    assert quantities["Memory of containers"] == str(8 * round(found["billed_seconds"]))
    assert "Lambda requests" not in quantities
    assert (found["memory_sizes"], found["limits"]) == ([], [])
    slow = event(1, "environment.start", -1, 0, 900, environment="one", cpu_ns=9_000 * MS)
    assert model(run.replace(events=[COMPUTED[0], slow, *COMPUTED[2:]]), book)["limits"] == [], (
        "only Lambda limits init"
    )
    lenet = model(run.replace(plan=dataclasses.replace(plan, model="lenet")), book)
    assert lenet["reason"].startswith("How long lenet takes for minibatches of 512 on T4 GPUs can't be said")


def test_functions_that_computed_on_a_gpu_are_not_modelled_on_lambda() -> None:
    run = recording(COMPUTED)
    used = [{**record, "gpu": "cuda:0 Tesla T4", "max_gpu_memory_mb": 700} for record in run.invocations]
    assert model(run.replace(invocations=used), BOOK)["reason"] == (
        f"The functions of 20261121-one computed on cuda:0 Tesla T4, and {DEFAULT_PROFILE} has no functions with GPUs."
    )
