"""AllReduce and ScatterReduce over every channel: the bits of one process, and the requests and bytes of S3."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from tests.channels import PROGRAMS, running
from tests.choices import chosen
from tests.workers.architectures.conftest import InMemory, Run

from slslab.stack.channels import find_server
from slslab_lab.runs.planning import architectures
from slslab_workers.channels import choice
from slslab_workers.channels.choice import PARAMETER_SERVER
from slslab_workers.channels.keyed import KeyedChannel
from slslab_workers.channels.parameter_server import ParameterServer
from slslab_workers.patterns import Counts
from slslab_workers.plan import Plan, PlanError
from slslab_workers.trace import operations
from slslab_workers.trace.operations import Operation, Server

Train = Callable[..., Any]
MakePlan = Callable[..., Plan]
PATTERNS = ("allreduce", "scatterreduce")
ROWS: dict[str, Any] = {"model": "lr-30", "dataset": "breast-cancer", "batch_size": 8, "batches": 3, "lr": 0.1}


# All but the parameter server are in memory.
CHANNELS = ("memcached", "redis", "dynamodb", "parameter-server")


@pytest.fixture(scope="module", params=CHANNELS)
def channel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a channel; workers find its server in their environment."""
    with (
        nullcontext()
        if request.param != PARAMETER_SERVER
        else running(request.param, tmp_path_factory.mktemp("channel"))
    ):
        yield request.param


@pytest.fixture
def train_by(train: Train, monkeypatch: pytest.MonkeyPatch) -> Train:
    """`train`, for which the parameter server is asked only when it can answer."""
    push, pull, pushed = ParameterServer.push, ParameterServer.pull, Counter[str]()

    def push_one(self: ParameterServer, key: str, *arguments: Any, **named: Any) -> None:
        push(self, key, *arguments, **named)
        pushed[key] += 1

    def pull_sum(self: ParameterServer, key: str, workers: int, phase: str) -> Any:
        # The server would keep the only thread waiting for the other workers.
        while pushed[key] < workers:
            time.sleep(0.001)
        return pull(self, key, workers, phase)

    monkeypatch.setattr(ParameterServer, "push", push_one)
    monkeypatch.setattr(ParameterServer, "pull", pull_sum)
    return train


def counts(plan: Plan, parameters: int) -> Counts:
    shape = plan.workers, plan.batches, plan.epochs, parameters
    return architectures()[plan.architecture].counts(*shape, plan.options)


# Which architecture `run` runs.
ARCHITECTURE = "allreduce"


@pytest.mark.server
@pytest.mark.parametrize("name", CHANNELS)
def test_a_real_run_learns_what_one_in_memory_learns_by_s3(name: str, run: Run, in_memory: InMemory) -> None:
    if name in PROGRAMS and find_server(PROGRAMS[name]) is None:
        pytest.skip(f"{PROGRAMS[name]} is not installed (apt-get install {PROGRAMS[name]})")
    shape = ("--dataset", "breast-cancer", "--workers", "2", "--batches", "2", "--epochs", "2")
    document = run(*shape, "--channel", name)
    values: dict[str, Any] = {"dataset": "breast-cancer", "workers": 2, "batches": 2, "epochs": 2}
    by_s3: Any = in_memory("allreduce", **values).recorded.document
    for same in ("parameters_sha256", "loss", "accuracy", "invocations"):
        assert document[same] == by_s3[same]
    expected = counts(Plan.from_document(document["plan"]), 62)
    assert document["counts"] == dict(expected.operations)
    assert document["bytes"] == {"in": expected.bytes_in, "out": expected.bytes_out}


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("workers", chosen([1, 2, 4, 8], 2, 8))
@pytest.mark.parametrize("algorithm", ["ga", "ma", "admm"])
def test_bits_are_those_of_one_process_and_counts_those_of_s3(
    name: str, workers: int, algorithm: str, channel: str, train_by: Train, make_plan: MakePlan, reference: Any
) -> None:
    options = {"algorithm": algorithm, "channel": channel}
    plan = make_plan(name, workers=workers, epochs=2, options=options, **ROWS)
    if channel == "parameter-server":
        pytest.skip("it adds up itself: see below")
    trained = train_by(plan)
    assert trained.fingerprints[0] == reference(plan)[0]
    assert len({result["parameters_sha256"] for result in trained.results}) == 1
    expected = counts(plan, 62)
    assert trained.protocol() == (dict(expected.operations), expected.bytes_in, expected.bytes_out)
    by_s3 = counts(make_plan(name, workers=workers, epochs=2, options={"algorithm": algorithm}, **ROWS), 62)
    assert {op.replace(channel, "object"): number for op, number in expected.operations.items()} == by_s3.operations
    assert (expected.bytes_in, expected.bytes_out) == (by_s3.bytes_in, by_s3.bytes_out)
    assert not any(event["op"] == f"{channel}.list" for event in trained.events)
    assert trained.keys == [], "nothing of the exchange is in S3"


@pytest.mark.parametrize("channel", ["parameter-server"], indirect=True)
@pytest.mark.parametrize("workers", chosen([1, 2, 4, 8], 2, 8))
@pytest.mark.parametrize(("algorithm", "rounds", "length"), [("ga", 6, 62), ("ma", 2, 62), ("admm", 2, 122)])
@pytest.mark.parametrize(("serialisation", "number_bytes"), [("raw", 4), ("doubles", 8)])
def test_a_parameter_server_takes_a_push_and_a_pull_of_each_worker_in_a_round(
    workers: int, algorithm: str, rounds: int, length: int, serialisation: str, number_bytes: int, channel: str,
    train_by: Train, make_plan: MakePlan, reference: Any,
) -> None:  # fmt: skip
    """The mean equals other architectures' to the last bit, however vectors are serialised."""
    options = {"algorithm": algorithm, "channel": channel, "serialisation": serialisation}
    plan = make_plan("allreduce", workers=workers, epochs=2, options=options, **ROWS)
    trained = train_by(plan)
    assert trained.fingerprints[0] == reference(plan)[0]
    assert len({result["parameters_sha256"] for result in trained.results}) == 1
    moved = rounds * workers * length * number_bytes
    assert trained.protocol() == (
        {"parameter.push": rounds * workers, "parameter.pull": rounds * workers},
        moved,
        moved,
    )
    assert trained.protocol() == (dict(counts(plan, 62).operations), moved, moved)
    written = [
        event["bytes"] for event in trained.events if event["op"] == "serialise" and event["phase"] == "synchronise"
    ]
    assert {length * number_bytes} <= set(written)


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("workers", [2, 4])
def test_em_and_a_network(
    name: str, workers: int, channel: str, train_by: Train, make_plan: MakePlan, reference: Any
) -> None:
    em = {"algorithm": "em", "clusters": 3, "threshold": 0.0, "channel": channel}
    clustered = {"model": "kmeans-3x30", "dataset": "breast-cancer", "batch_size": 16}
    if (name, channel) == ("scatterreduce", "parameter-server"):
        pytest.skip("it is refused")
    for values, options, parameters in ((clustered, em, 90), ({}, {"channel": channel}, 61_706)):
        plan = make_plan(name, workers=workers, options=options, **values)
        trained = train_by(plan)
        assert trained.fingerprints[0] == reference(plan)[0]
        expected = counts(plan, parameters)
        assert trained.protocol() == (dict(expected.operations), expected.bytes_in, expected.bytes_out)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_s_asp_has_one_global_model_in_the_channel(
    workers: int, channel: str, train_by: Train, make_plan: MakePlan
) -> None:
    plan = make_plan("allreduce", workers=workers, options={"synchronisation": "s-asp", "channel": channel}, **ROWS)
    trained = train_by(plan)
    expected = counts(plan, 62)
    assert trained.protocol() == (dict(expected.operations), expected.bytes_in, expected.bytes_out)
    traced = choice.traced(plan.options)
    assert dict(expected.operations) == {f"{traced}.put": 3 * workers, f"{traced}.get": 3 * workers}


def test_invocations_of_a_step_connect_anew(channel: str, train_by: Train, make_plan: MakePlan, reference: Any) -> None:
    name = "allreduce" if channel == "parameter-server" else "scatterreduce"
    plan = make_plan(name, workers=2, mode="per-batch", options={"channel": channel}, **ROWS)
    assert train_by(plan).fingerprints[0] == reference(plan)[0]


@pytest.mark.parametrize(
    ("name", "values", "options", "said"),
    [
        ("allreduce", {"model": "mobilenet"}, {"channel": "dynamodb"}, "mobilenet needs objects of 12,567 KB"),
        ("scatterreduce", {"model": "mobilenet"}, {"channel": "dynamodb"}, "needs objects of 3,142 KB"),
        ("allreduce", {}, {"channel": "dynamodb", "channel-host": "cache.t3.micro"}, "bills by requests"),
        ("allreduce", {}, {"channel-host": "cache.t3.micro"}, "--channel-host does not apply to --channel s3"),
        ("allreduce", {}, {"serialisation": "doubles"}, "--serialisation doubles does not apply to --channel s3"),
        ("scatterreduce", {}, {"channel": "parameter-server"}, "a worker for each part"),
        ("allreduce", {}, {"channel": "parameter-server", "log-traffic": True}, "the authors' code for S3"),
    ],
)
def test_what_a_channel_cannot_do_is_refused(
    name: str, values: dict[str, Any], options: dict[str, Any], said: str, make_plan: MakePlan
) -> None:
    with pytest.raises(PlanError) as caught:
        architectures()[name].requirements(make_plan(name, options=options, **values))
    assert said in caught.value.message
    assert caught.value.hint


def test_requirements_name_the_server_and_what_it_is_billed_as(make_plan: MakePlan) -> None:
    needed = {
        name: architectures()["allreduce"].requirements(make_plan("allreduce", options={"channel": name}))
        for name in choice.OPENERS
    }
    assert {name: (one.channel, one.hosts) for name, one in needed.items()} == {
        "s3": ("", ()),
        "memcached": ("memcached", ("cache.t3.medium",)),
        "redis": ("redis", ("cache.t3.medium",)),
        "dynamodb": ("dynamodb", ()),
        "parameter-server": ("parameter-server", ("c5.4xlarge",)),
    }
    # 64 workers have chunks that fit.
    small = make_plan("scatterreduce", model="mobilenet", workers=64, options={"channel": "dynamodb"})
    assert architectures()["scatterreduce"].requirements(small).channel == "dynamodb"


class Shelf(KeyedChannel):
    """A channel of this test's own: a dictionary that all workers of this process share."""

    name, server = "shelf", Server("this process")
    shelf: dict[str, tuple[bytes, bytearray]] = {}  # noqa: RUF012 - it is shared

    def store(self, key: str, metadata: bytes, body: memoryview) -> None:
        self.shelf[key] = metadata, bytearray(body)

    def fetch(self, key: str) -> tuple[bytes, bytearray] | None:
        return self.shelf.get(key)

    def remove(self, key: str) -> int:
        self.shelf.pop(key, None)
        return 0


@pytest.mark.parametrize("name", PATTERNS)
def test_another_channel_is_three_requests_and_its_operations(
    name: str, train: Train, make_plan: MakePlan, reference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(choice.OPENERS, "shelf", lambda _bucket, objects, _plan: Shelf(objects.tracer))
    monkeypatch.setattr("slslab_workers.channels.choice.SERVERS", {**operations.SERVERS, "shelf": Shelf.server})
    for request, moves in operations.WAYS.items():
        monkeypatch.setitem(operations.MOVES, f"shelf.{request}", moves)
        monkeypatch.setitem(operations.OPERATIONS, f"shelf.{request}", Operation("shelf", moves, protocol=True))
    plan = make_plan(name, workers=3, options={"channel": "shelf"}, **ROWS)
    trained = train(plan)
    assert trained.fingerprints[0] == reference(plan)[0]
    expected = counts(plan, 62)
    assert trained.protocol() == (dict(expected.operations), expected.bytes_in, expected.bytes_out)
