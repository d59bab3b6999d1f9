"""IaaS peers beyond what all architectures share: the ring's sums and bytes, equal parameters, what is refused."""

import os
import socket
import stat
import struct
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from threading import Barrier
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slslab_lab.runs.planning import architectures
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import Objects
from slslab_workers.gloo import peers, ring
from slslab_workers.gloo.instance import GlooWorker
from slslab_workers.gloo.peers import PeerLost, Peers, check_gpus
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training.aggregation import sum_in_rank_order

Train = Callable[..., Any]
MakePlan = Callable[..., Plan]
Together = Callable[[Plan, Callable[[Peers, int], Any]], list[Any]]
CPU = torch.device("cpu")
# Of float32: half the distance of 1 and the next number.
UNIT = 2.0**-24
# gloo's headers: of a segment, and of the two notes that both sides are ready for it.
HEADERS, HEADER_BYTES = 3, 48
# The bytes of tcp_info before tcpi_bytes_sent.
SENT_AT = 200


@pytest.fixture
def together(store: Any, upload: Callable[[Plan], str]) -> Together:
    """Have all peers of a plan do something at once, in threads; their answers by rank."""

    def run(plan: Plan, do: Callable[[Peers, int], Any]) -> list[Any]:
        bucket = upload(plan)

        def peer(rank: int) -> Any:
            with Peers(plan, rank, Objects(store, bucket, Tracer(lambda _: None, plan.run, rank)), CPU) as group:
                return do(group, rank)

        with ThreadPoolExecutor(plan.workers) as pool:
            return list(pool.map(peer, range(plan.workers)))

    return run


def vectors(workers: int, elements: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(elements)
    return [torch.randn(elements, generator=generator) for _ in range(workers)]


def within_rounding(one: torch.Tensor, other: torch.Tensor, parts: Sequence[torch.Tensor]) -> bool:
    """Whether two sums of these differ by no more than n - 1 roundings of each explain."""
    roundings = (len(parts) - 1) * UNIT
    bound = 2 * roundings / (1 - roundings) * sum(part.double().abs() for part in parts)
    return bool(((one.double() - other.double()).abs() <= bound).all())


@pytest.mark.parametrize("workers", [2, 3, 5, 8])
@pytest.mark.parametrize("elements", [1, 3, 10, 61_706, 1_200_000])
def test_the_ring_adds_as_gloo_does_to_the_bit(
    workers: int, elements: int, together: Together, make_plan: MakePlan
) -> None:
    parts = vectors(workers, elements)

    def add_up(group: Peers, rank: int) -> torch.Tensor:
        own = parts[rank].clone()
        group.all_reduce(own, "this one")
        return own

    expected = ring.add_up(parts)
    for found in together(make_plan("gloo", workers=workers), add_up):
        assert torch.equal(found, expected)
    in_rank_order = sum_in_rank_order(parts)
    assert within_rounding(expected, in_rank_order, parts)
    if workers == 2:
        assert torch.equal(expected, in_rank_order), "a + b is b + a, rounded, too"
    elif elements > 100:
        assert not torch.equal(expected, in_rank_order), "another order rounds otherwise"


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 12), st.integers(1, 40), st.integers(0, 10**6))
def test_another_order_differs_by_the_stated_rounding(workers: int, elements: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    # Of very different sizes, and of both signs, so that much is rounded and cancelled.
    parts = [torch.randn(elements, generator=generator) * 10.0 ** (rank % 5) for rank in range(workers)]
    assert within_rounding(ring.add_up(parts), sum_in_rank_order(parts), parts)


@pytest.mark.parametrize(("workers", "elements"), [(2, 61_706), (3, 61_706), (4, 1_200_000)])
def test_the_kernel_counts_the_same_bytes(workers: int, elements: int, together: Together, make_plan: MakePlan) -> None:
    """Over all sockets of this process, which runs all peers; in addition to the vectors, only gloo's headers were
    sent.

    Sockets of earlier tests may close meanwhile, so each is compared with itself.
    """
    parts, expected = vectors(workers, elements), 2 * (workers - 1) * 4 * elements
    segments = 2 * (workers - 1) * workers * max(2, -(-4 * elements // (workers * ring.SEGMENT_BYTES)))
    all_here = Barrier(workers, timeout=60)

    def count_sent(rank: int) -> dict[int, int]:
        """While no other peer sends anything, or leaves."""
        all_here.wait()
        sent = settled() if rank == 0 else {}
        all_here.wait()
        return sent

    def add_up(group: Peers, rank: int) -> int:
        before = count_sent(rank)
        group.all_reduce(parts[rank], "this one")
        return sum(sent - before.get(inode, 0) for inode, sent in count_sent(rank).items())

    found = together(make_plan("gloo", workers=workers), add_up)[0]
    headers = found - expected
    assert headers % HEADER_BYTES == 0
    assert 0 <= headers <= HEADERS * HEADER_BYTES * segments


def settled() -> dict[int, int]:
    """The bytes that each TCP socket of this process has sent, by inode, once they send no more."""
    before, sent = {-1: -1}, sent_bytes()
    while sent != before:
        time.sleep(0.3)
        before, sent = sent, sent_bytes()
    return sent


def sent_bytes() -> dict[int, int]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError), ExitStack() as stack:
            about = os.fstat(int(name))
            if not stat.S_ISSOCK(about.st_mode):
                continue
            own = stack.enter_context(socket.socket(fileno=os.dup(int(name))))
            if own.type == socket.SOCK_STREAM and own.family in (socket.AF_INET, socket.AF_INET6):
                information = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                sent, sent_again = struct.unpack_from("QQ", information, SENT_AT)
                found[about.st_ino] = sent - sent_again
    return found


@pytest.mark.parametrize("workers", [1, 2])
def test_up_to_two_peers_learn_the_bits_of_allreduce_and_of_the_baseline(
    workers: int, train: Train, make_plan: MakePlan
) -> None:
    found = {
        name: train(make_plan(name, workers=workers, epochs=2)).fingerprints for name in ("gloo", "allreduce", "gpu")
    }
    assert found["gloo"] == found["allreduce"] == found["gpu"]
    assert len(set(found["gloo"][0])) == 4


@pytest.mark.parametrize("workers", [3, 4])
def test_more_peers_learn_the_same_up_to_rounding(workers: int, train: Train, make_plan: MakePlan) -> None:
    own, merged = (train(make_plan(name, workers=workers, epochs=2)) for name in ("gloo", "allreduce"))
    assert own.fingerprints[0] != merged.fingerprints[0], "the ring adds in another order"
    assert all(own.fingerprints[rank] == own.fingerprints[0] for rank in range(workers)), "all peers the same"
    one, other = own.parameters[0].double(), merged.parameters[0].double()
    # Four updates of a learning rate below 1, each with a mean that is off by less than 2 (n - 1) units of rounding.
    assert float((one - other).norm() / other.norm()) <= 4 * 2 * (workers - 1) * UNIT


def test_counts_by_hand() -> None:
    """Literal numbers: n = 4, b = 24, MobileNet; and one worker's."""
    counts = architectures()["gloo"].counts
    found = counts(4, 24, 1, 3_217_226)
    assert found.operations == {"peer.allreduce": 24 * 4 * 6}
    assert found.bytes_in == found.bytes_out == 24 * 6 * 12_868_904
    alone = counts(1, 24, 1, 3_217_226)
    assert (alone.operations, alone.bytes_in, alone.bytes_out) == ({}, 0, 0)
    two = counts(2, 1, 1, 10)
    assert (two.operations, two.bytes_in) == ({"peer.allreduce": 4}, 80)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"mode": "per-batch"}, "launched, not invoked"),
        ({"invoke": "event"}, "launched, not invoked"),
        ({"as_released": True}, "there isn't any code of the authors"),
        ({"options": {"device": "cuda"}}, "type c5.large doesn't have a GPU"),
    ],
)
def test_what_peers_cannot_do_is_refused(changes: dict[str, Any], says: str, make_plan: MakePlan) -> None:
    with pytest.raises(PlanError, match=says):
        architectures()["gloo"].requirements(make_plan("gloo", **changes))


@pytest.mark.parametrize(
    ("instance_type", "device", "expected"),
    [
        ("c5.large", "auto", "cpu"), ("g4dn.xlarge", "auto", "auto"), ("p3.2xlarge", "cuda", "cuda"),
        ("g4dn.xlarge", "cpu", "cpu"),
    ],
)  # fmt: skip
def test_what_peers_compute_on_follows_from_their_type(
    instance_type: str, device: str, expected: str, make_plan: MakePlan
) -> None:
    plan = make_plan("gloo", options={"device": device, "instance-type": instance_type})
    fleet = architectures()["gloo"].requirements(plan).instances
    assert fleet is not None
    assert (fleet.instance_type, fleet.device) == (instance_type, expected)


def test_two_peers_on_a_gpu_are_named() -> None:
    check_gpus(["a", "b", "c"])
    with pytest.raises(ValueError, match=r"Workers 1 and 2 share a GPU.*--workers 2, or with --device cpu"):
        check_gpus(["a", "b", "b"])


def test_peers_listen_where_the_store_is_reached(store: Any) -> None:
    """Which is loopback here; the address of a store elsewhere is reached from another."""
    assert Objects(store, "bucket", Tracer(lambda _: None)).local_address() == "127.0.0.1"


def test_a_peer_that_does_not_come_is_named_after_the_time_out(
    store: Any, make_plan: MakePlan, upload: Callable[[Plan], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "SIGN_S", 0.5)
    plan = make_plan("gloo", workers=2, timeout=1)
    objects = Objects(store, upload(plan), Tracer(lambda _: None, plan.run, 0))
    began = time.monotonic()
    with pytest.raises(PeerLost, match="Worker 0 did not come together: worker 1 gave no sign of life"):
        Peers(plan, 0, objects, CPU)
    assert time.monotonic() - began < 30


def test_a_peer_that_leaves_is_named(together: Together, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 2 leaves after an all-reduce; both others say so, and which it is."""
    monkeypatch.setattr(peers, "SIGN_S", 2.0)

    def one_leaves(group: Peers, rank: int) -> str:
        group.all_reduce(torch.ones(1000), "the first one")
        if rank == 2:
            return ""
        with pytest.raises(PeerLost) as lost:
            group.all_reduce(torch.ones(1000), "the second one")
        return str(lost.value)

    found = together(make_plan("gloo", workers=3), one_leaves)
    for rank in range(2):
        assert found[rank].startswith(f"Worker {rank} lost a peer in the second one: worker 2 gave no sign of life")


def test_an_all_reduce_is_one_event_of_each_peer_with_what_it_sends(train: Train, make_plan: MakePlan) -> None:
    plan = make_plan("gloo", workers=3)
    trained = train(plan)
    found = [event for event in trained.events if event["op"] == "peer.allreduce"]
    for step in range(2):
        of_step = sorted((e["worker"], e["requests"], e["bytes"]) for e in found if e["step"] == step)
        assert of_step == [(rank, 4, ring.sent_bytes(61_706, 3, rank)) for rank in range(3)]
        assert {e["resource"] for e in found if e["step"] == step} == {f"{plan.run}/gloo/e0_s{step}"}
    assert not [event for event in train(make_plan("gloo", workers=1)).events if event["op"] == "peer.allreduce"]


def test_on_a_gpu_gradients_stay_where_they_are(store: Any, make_plan: MakePlan) -> None:
    worker = GlooWorker(make_plan("gloo"), 0, Objects(store, "bucket", Tracer(lambda _: None)))
    gradient = torch.ones(3)
    assert worker.to_exchange(gradient) is gradient
