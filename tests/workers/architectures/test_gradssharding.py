"""GradsSharding, λ-FL and LIFL: the order of sums, messages, memory, calls, and whole runs through the emulator."""

import hashlib
import json
import math
import subprocess
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.commands import slslab
from tests.lab.replay.measured import make_costs
from tests.lab.replay.platform import platform
from tests.memory.stores import S3
from tests.workers.architectures.conftest import InMemory, Run, Stages, one_process

from slslab.errors import HostError
from slslab.lambda_.emulator import Emulator
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.measured import read_measured
from slslab_lab.replay.programs.scaling import generate
from slslab_lab.runs.admission import admit
from slslab_lab.runs.planning import architectures
from slslab_workers.architecture import Cloud, RunFailed
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import Object, Objects
from slslab_workers.gradssharding import architecture
from slslab_workers.gradssharding.aggregator import Task, aggregate
from slslab_workers.gradssharding.driver import GradsShardingDeployment, random_gradient
from slslab_workers.gradssharding.settings import gradient_key, mean_keys, shards_of, tree_of
from slslab_workers.gradssharding.topology import levels, slices
from slslab_workers.patterns import Workload
from slslab_workers.plan import Plan, PlanError
from slslab_workers.training import images, robust

Vector = NDArray[np.float32]
MakePlan = Callable[..., Plan]
LENET = 61_706
TOPOLOGIES = ("shards", "lambda-fl", "lifl")
CLIENTS = (1, 2, 3, 5, 8, 20, 27)


def added(parts: Sequence[Vector]) -> Vector:
    """((a + b) + c) + …, each addition rounded to float32."""
    return reduce(np.add, parts)


def grouped(parts: Sequence[Vector], size: int) -> list[Sequence[Vector]]:
    return [parts[first : first + size] for first in range(0, len(parts), size)]


def by_hand(topology: str, vectors: Sequence[Vector], *, unweighted: bool = False) -> Vector:
    """What docs/protocols.md says that each topology calculates, in that order."""
    clients = len(vectors)
    if topology == "shards":
        return added(vectors) / np.float32(clients)
    if topology == "lambda-fl":
        leaves = [added(group) for group in grouped(vectors, math.isqrt(clients - 1) + 1)]
        return added(leaves) / np.float32(clients)
    branch = max(2, next(root for root in count(1) if root**3 >= clients))

    def level(parts: Sequence[Vector]) -> list[Vector]:
        groups = grouped(parts, branch)
        return [added(group) / np.float32(len(group) if unweighted else 1) for group in groups]

    below = level(level(vectors))
    return added(below) / np.float32(len(below) if unweighted else clients)


@pytest.fixture
def average(make_plan: MakePlan) -> Callable[..., tuple[Vector, list[dict[str, Any]]]]:
    """Store gradients and run all aggregators, the last of each level first; returns what they make, and all events."""

    def run(vectors: Sequence[Vector], **options: Any) -> tuple[Vector, list[dict[str, Any]]]:
        size = {"gradients": "uploaded", "parameters": len(vectors[0])}
        plan = make_plan("gradssharding", workers=len(vectors), batches=1, options={**size, **options})
        store, bucket, events = S3(lambda: None), "gradssharding", list[dict[str, Any]]()
        store.create_bucket(Bucket=bucket)
        for client, vector in enumerate(vectors):
            for shard, part in enumerate(slices(len(vector), shards_of(plan))):
                key = gradient_key(plan, 0, client, shard)
                store.store(bucket, key, vector[part].tobytes())
        for level in tree_of(plan):
            for one in reversed(level):
                task = Task(plan, bucket, 0, one.level, one.number)
                aggregate(task, Objects(store, bucket, Tracer(events.append, plan.run, task.worker)))
        made = [store.get_object(Bucket=bucket, Key=key)["Body"].read() for key in mean_keys(plan, 0)]
        return np.frombuffer(b"".join(made), dtype="<f4"), events

    return run


def some_gradients(clients: int, *, whole: bool = False) -> list[Vector]:
    generator = np.random.default_rng(clients)
    made = [generator.standard_normal(1003, dtype=np.float32) for _ in range(clients)]
    return [np.round(1000 * vector) for vector in made] if whole else made


@pytest.mark.parametrize("clients", CLIENTS)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_sums_are_those_of_the_documented_order_to_the_last_bit(
    topology: str, clients: int, average: Callable[..., Any]
) -> None:
    vectors = some_gradients(clients)
    mean, _ = average(vectors, topology=topology, shards=7)
    assert mean.tobytes() == by_hand(topology, vectors).tobytes()
    assert mean == pytest.approx(np.mean(np.stack(vectors), axis=0, dtype=np.float64), abs=1e-6)


def test_the_order_of_sums_is_seen_in_the_bits() -> None:
    """So that the test before can fail."""
    made = {by_hand(topology, some_gradients(20)).tobytes() for topology in TOPOLOGIES}
    assert len(made) == 3


@pytest.mark.parametrize("clients", CLIENTS)
def test_of_whole_numbers_all_topologies_make_the_same_bits(clients: int, average: Callable[..., Any]) -> None:
    vectors = some_gradients(clients, whole=True)
    made = {average(vectors, topology=topology, shards=3)[0].tobytes() for topology in TOPOLOGIES}
    assert len(made) == 1


@pytest.mark.parametrize(("clients", "mean"), [(20, False), (5, False), (8, True), (27, True)])
def test_lifl_as_released_averages_averages(clients: int, mean: bool, average: Callable[..., Any]) -> None:
    vectors = some_gradients(clients)
    made, _ = average(vectors, topology="lifl", averaging="unweighted")
    assert made.tobytes() == by_hand("lifl", vectors, unweighted=True).tobytes()
    expected = np.mean(np.stack(vectors), axis=0, dtype=np.float64)
    assert bool(np.allclose(made, expected, atol=1e-6)) is mean


def test_of_20_clients_the_last_two_weigh_a_sixth_each_as_released(average: Callable[..., Any]) -> None:
    ones = [np.eye(20, dtype=np.float32)[client] for client in range(20)]
    made, _ = average(ones, topology="lifl", averaging="unweighted")
    assert made == pytest.approx([1 / 27] * 18 + [1 / 6] * 2)


@pytest.mark.parametrize("rule", ["median", "trimmed-mean", "meamed"])
def test_slices_of_a_robust_rule_are_those_of_its_aggregate(rule: str, average: Callable[..., Any]) -> None:
    """More than four rows that are added up: of those `mean` adds a vector's last numbers in another order."""
    vectors = some_gradients(9)
    told = {"byzantine": 1} if robust.KNOWN[rule].informed else {}
    made, events = average(vectors, combine=rule, shards=7, **told)
    expected = robust.aggregate(rule, [torch.from_numpy(vector) for vector in vectors], told.get("byzantine", 0))
    assert made.tobytes() == expected.numpy().tobytes()
    assert [event["resource"] for event in events if event["op"] == "reduce"] == [rule] * 7


def test_an_aggregator_by_a_robust_rule_has_memory_for_all_its_inputs(make_plan: MakePlan) -> None:
    """Six times the slices of 5 clients, 4 MiB each, and 512 MB; more slices need less."""
    for shards, expected in ((1, 512 + 6 * 5 * 4), (4, 512 + 6 * 5)):
        size = {"gradients": "uploaded", "parameters": 1 << 20, "shards": shards}
        plan = make_plan("gradssharding", workers=5, options={**size, "combine": "median"})
        assert architecture.resident_set(plan)[-1].beside_mb == expected


@pytest.mark.parametrize("topology", ["shards", "lambda-fl"])
def test_only_lifl_has_averages_to_weigh(topology: str, average: Callable[..., Any]) -> None:
    vectors = some_gradients(5)
    made = {average(vectors, topology=topology, averaging=how)[0].tobytes() for how in ("weighted", "unweighted")}
    assert len(made) == 1


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("clients", [1, 4, 20])
def test_reads_follow_each_other_in_order_and_are_the_closed_form(
    topology: str, clients: int, average: Callable[..., Any]
) -> None:
    _, events = average(some_gradients(clients), topology=topology, shards=5)
    options: dict[str, Any] = {"topology": topology, "shards": 5, "gradients": "uploaded"}
    expected = architecture.counts(clients, 1, 1, 1003, options)
    protocol = [event for event in events if not event["overhead"] and event["requests"]]
    assert Counter(event["op"] for event in protocol) == Counter(expected.operations)
    for op, moved in (("object.put", expected.bytes_in), ("object.get", expected.bytes_out)):
        assert sum(event["bytes"] for event in protocol if event["op"] == op) == moved
    by_worker: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        by_worker.setdefault(event["worker"], []).append(event)
    tree = [one for level in levels(topology, clients, 5) for one in level]
    assert sorted(by_worker) == list(range(clients, clients + len(tree)))
    for number, one in enumerate(tree, clients):
        own = by_worker[number]
        read = [event["resource"].split("/") for event in own if event["op"] == "object.get"]
        assert [int(parts[-2] if one.level == 1 else parts[-1]) for parts in read] == list(one.inputs)
        assert all(before["end_ns"] <= after["start_ns"] for before, after in pairwise(own))


@pytest.mark.parametrize(
    ("topology", "expected"), [("shards", (16, 320, 16)), ("lambda-fl", (5, 24, 5)), ("lifl", (11, 30, 11))]
)
def test_20_clients_take_what_the_released_code_takes(topology: str, expected: tuple[int, int, int]) -> None:
    options: dict[str, Any] = {"topology": topology, "shards": 16, "gradients": "uploaded"}
    pattern = architecture.pattern(Workload(20, 1, 1, 100, options))
    assert pattern is not None
    functions = sum([len(role.ranks) for role in pattern.roles])
    counted = architecture.counts(20, 1, 1, 100, options).operations
    assert (functions, counted["object.get"], counted["object.put"]) == expected


def test_a_pattern_has_one_signal_for_a_shard_of_all_clients() -> None:
    options: dict[str, Any] = {"topology": "shards", "shards": 256}
    pattern = architecture.pattern(Workload(1000, 1, 1, 10_000, options))
    assert pattern is not None
    made = [signal for role in pattern.roles for each in role.activities() for signal in each.makes]
    assert [signal.name for signal in set(made)].count("gradient") == 256


class Inputs:
    """Answers every get with fresh bytes, and takes every put."""

    def __init__(self, size: int) -> None:
        self.tracer = Tracer(lambda _event: None)
        self.size = size

    def get(self, *_: Any, **__: Any) -> Object:
        return Object(bytearray(self.size), "", {})

    def put(self, *_: Any, **__: Any) -> str:
        return ""


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_an_aggregator_holds_one_sum_and_one_input(topology: str, make_plan: MakePlan) -> None:
    size = 4_000_000
    plan = make_plan("gradssharding", workers=9, options={"topology": topology, "shards": 1})
    inputs: Any = Inputs(size)
    tracemalloc.start()
    try:
        aggregate(Task(plan, "", 0, 1, 0), inputs)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 2 * size <= peak < 2.2 * size


def test_the_aggregators_handler_imports_no_torch() -> None:
    code = "import sys, slslab_workers.gradssharding.aggregator; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("model", "parameters", "shards", "expected"),
    [
        ("resnet18", 11_181_642, 4, (472, 536)),
        ("lenet", 134_301_514, 4, (835, 1987)),
        ("lenet", 134_301_514, 1, (1987, 1987)),
        ("lenet", 774_030_080, 4, (2665, 3008)),
        ("lenet", 1_342_177_280, 8, (2370, 3008)),
    ],
)
def test_memory_sizes_are_the_released_ones(
    model: str, parameters: int, shards: int, expected: tuple[int, int], make_plan: MakePlan
) -> None:
    for topology, memory_mb in zip(TOPOLOGIES, (expected[0], expected[1], expected[1]), strict=True):
        options = {"topology": topology, "shards": shards, "gradients": "uploaded", "parameters": parameters}
        plan = make_plan("gradssharding", model=model, workers=20, options=options)
        (phase,) = architecture.resident_set(plan)
        assert (phase.environments, phase.beside_mb) == (0, memory_mb)
        chosen = make_plan("gradssharding", workers=20, options={**options, "aggregator-memory": 5000})
        assert architecture.resident_set(chosen)[-1].beside_mb == 5000


def test_clients_and_aggregators_need_not_be_resident_together(make_plan: MakePlan) -> None:
    phases = architecture.resident_set(make_plan("gradssharding", workers=20))
    assert [(phase.environments, phase.beside_mb) for phase in phases] == [(1, 0), (0, 451)]


@pytest.mark.parametrize(
    ("changes", "options", "says"),
    [
        ({"mode": "per-batch"}, {}, "invokes all functions anew in each step"),
        ({"invoke": "event"}, {}, "invokes all functions anew in each step"),
        ({}, {"shards": 0}, "shards is 0."),
        ({}, {"shards": 4097}, "shards is 4097."),
        ({}, {"gradients": "uploaded", "parameters": 3}, "shards is 4."),
        ({}, {"parameters": 10}, "as long as the model"),
        ({}, {"gradients": "uploaded", "parameters": -1}, "parameters is -1."),
        ({"until_accuracy": 0.5}, {"gradients": "uploaded"}, "don't train a model"),
    ],
)
def test_plans_that_cannot_be(changes: dict[str, Any], options: dict[str, Any], says: str, make_plan: MakePlan) -> None:
    with pytest.raises(PlanError, match=says) as refused:
        architecture.requirements(make_plan("gradssharding", options=options, **changes))
    assert refused.value.hint.endswith(".")


@pytest.mark.parametrize(
    ("changes", "options"),
    [({}, {"gradients": "uploaded", "parameters": 3, "topology": "lifl"}), ({"until_accuracy": 0.5}, {})],
)
def test_plans_that_can_be(changes: dict[str, Any], options: dict[str, Any], make_plan: MakePlan) -> None:
    architecture.requirements(make_plan("gradssharding", options=options, **changes))


def test_a_random_gradient_is_the_same_in_however_many_slices(make_plan: MakePlan) -> None:
    def vector(seed: int, client: int, **options: Any) -> bytes:
        options = {"gradients": "uploaded", "parameters": 1003, **options}
        parts = random_gradient(make_plan("gradssharding", seed=seed, options=options), client)
        return np.concatenate(list(parts)).tobytes()

    whole = vector(0, 0, topology="lambda-fl")
    assert len(whole) == 4 * 1003
    assert vector(0, 0, shards=7) == vector(0, 0, shards=16) == whole
    assert len({whole, vector(0, 1, shards=7), vector(1, 0, shards=7)}) == 3


@pytest.mark.parametrize("gradients", ["trained", "uploaded"])
@pytest.mark.parametrize("topology", TOPOLOGIES)
@settings(max_examples=20, deadline=None)
@given(clients=st.integers(1, 30), batches=st.integers(1, 4), epochs=st.integers(1, 3), shards=st.integers(1, 9))
def test_generated_rounds_follow_each_other(
    gradients: str, topology: str, clients: int, batches: int, epochs: int, shards: int
) -> None:
    """Every gate is opened, and no function begins before all have ended that it reads from; none waits."""
    costs = make_costs("gradssharding", topology=topology, gradients=gradients, shards=shards)
    program = generate(costs, clients, batches, epochs)
    timeline = play(program, platform())
    rounds = batches * epochs
    tree = levels(topology, clients, shards)
    trained = gradients == "trained"
    invocations = rounds * sum(map(len, tree)) + trained * epochs * clients * (batches + 1)
    assert len(program.tracks) == invocations
    assert not any(step.polling or step.awaits for step in timeline.steps)
    # By what they are in, the earliest beginning and the latest end of functions.
    spans: dict[tuple[int, int, int], tuple[int, int]] = {}
    seen = Counter[tuple[int, int]]()
    bounds = [clients]
    for level in tree:
        bounds.append(bounds[-1] + len(level))
    for track, call in zip(program.tracks, timeline.calls, strict=True):
        depth = sum(track.worker >= bound for bound in bounds)
        ends_epoch = depth == 0 and any(step.step < 0 and step.op == "update" for step in track.steps)  # type: ignore[union-attr]
        number = seen[track.worker, ends_epoch]
        seen[track.worker, ends_epoch] += 1
        position = (number + 1) * batches - 1 if ends_epoch else number
        place = (position, len(tree) + 1 if ends_epoch else depth, 0)
        begin, end = spans.get(place, (call.began, call.ended))
        spans[place] = (min(begin, call.began), max(end, call.ended))
    ordered = [spans[place] for place in sorted(spans)]
    assert all(before[1] <= after[0] for before, after in pairwise(ordered))
    counted = Counter[str]()
    for step in timeline.steps:
        counted[step.op] += step.requests if step.phase == "synchronise" else 0
    expected = architecture.counts(clients, batches, epochs, 1_000, costs.workload.options).operations
    assert counted["object.get"] == expected["object.get"]
    assert counted["object.put"] == expected["object.put"]


class Pauses(threading.Event):
    """Keeps for how long was to be waited, and waits for a twentieth of it."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.pauses.append(timeout)
        return super().wait(timeout / 20)


def test_too_many_requests_are_made_again_as_long_as_a_function_may_last(
    make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    session: Any = boto3.session.Session("key", "secret", region_name="us-east-1")
    client = session.client("lambda")

    def throttled(**_: Any) -> Any:
        raise client.exceptions.TooManyRequestsException({"Error": {"Code": "TooManyRequestsException"}}, "Invoke")

    monkeypatch.setattr(client, "invoke", throttled)
    plan = make_plan("gradssharding", timeout=5, options={"gradients": "uploaded"})
    cloud = Cloud(lambda _service: client, lambda _event: None)
    deployment = GradsShardingDeployment(plan, architecture.handler, cloud, Stages())
    deployment._stopping = pauses = Pauses()
    with pytest.raises(RunFailed, match="TooManyRequestsException") as raised:
        deployment.call("function", {}, "RequestResponse", 0)
    assert raised.value.worker == 0
    assert pauses.pauses == [1, 2, 4]
    pauses.set()
    with pytest.raises(RunFailed, match="failed first"):
        deployment.call("function", {}, "RequestResponse", 0)


def test_a_throttled_level_is_run_in_waves(aws: Emulator, make_plan: MakePlan) -> None:
    """One environment for five functions, as a new account may have too few; the mean is the same."""

    class Throttled(GradsShardingDeployment):
        def create(self) -> None:
            super().create()
            self._lambda.put_function_concurrency(FunctionName=self._aggregator, ReservedConcurrentExecutions=1)

    options = {"gradients": "uploaded", "parameters": 1003, "shards": 5, "aggregator-memory": 1024}
    plan = make_plan("gradssharding", batches=1, options=options)
    aws.records.clear()
    deployment = Throttled(plan, architecture.handler, Cloud(aws.client, lambda _event: None), Stages())
    deployment._stopping = pauses = Pauses()
    outcome = deployment.run()
    vectors = [np.concatenate(list(random_gradient(plan, client))) for client in range(4)]
    assert outcome.parameters_sha256 == hashlib.sha256(by_hand("shards", vectors).tobytes()).hexdigest()
    assert pauses.pauses[0] == 1, "some were throttled"
    assert {math.log2(pause) % 1 for pause in pauses.pauses} == {0}
    assert [record.cold_start for record in aws.records] == [True, False, False, False, False]


# Which architecture `run` runs.
ARCHITECTURE = "gradssharding"
SIXTEEN = ("--gradients", "uploaded", "--parameters", "1000003", "--clients", "20", "--shards", "16", "--batches", "1")
# Forks hold what every environment has imported.
ENOUGH = ("--aggregator-memory", "1024")
SMALL = ("--clients", "3", "--batches", "2", "--epochs", "2", *ENOUGH)


# Values of the plan, and options.
WAYS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *(({}, {"topology": topology}) for topology in TOPOLOGIES),
    ({"as_released": True}, {"topology": "lifl"}),
    ({}, {"combine": "trimmed-mean", "byzantine": 1, "attack": "sign-flip:2"}),
]


@pytest.fixture
def small(in_memory: InMemory) -> Callable[..., Any]:
    """Run SMALL in memory, with these options and other values."""

    def run(options: dict[str, Any], **values: Any) -> Any:
        shape = {"workers": 3, "batches": 2, "epochs": 2}
        return in_memory(ARCHITECTURE, {"aggregator-memory": 1024, **options}, **shape, **values).recorded.document

    return run


@pytest.mark.parametrize(("values", "options"), WAYS)
def test_clients_learn_what_one_process_learns_and_count_what_the_closed_form_says(
    values: dict[str, Any], options: dict[str, Any], small: Callable[..., Any]
) -> None:
    document = small(options, **values)
    plan = Plan.from_document(document["plan"])
    assert (plan.workers, document["workers"]) == (3, 3)
    replicas = one_process(plan)
    epochs = [(replicas.train_epoch().loss, replicas.judge().accuracy) for _ in range(plan.epochs)]
    assert document["loss"] == [loss for loss, _ in epochs]
    assert document["accuracy"] == [accuracy for _, accuracy in epochs]
    parameters = replicas.parameters().numpy()
    assert document["parameters_sha256"] == hashlib.sha256(parameters.tobytes()).hexdigest()
    assert (document["replicas_equal"], document["updates"], document["epochs_trained"]) == (True, 4, 2)
    expected = architecture.counts(3, 2, 2, LENET, plan.options)
    assert document["counts"] == dict(expected.operations)
    assert document["bytes"] == {"in": expected.bytes_in, "out": expected.bytes_out}
    topology = str(plan.options["topology"])
    aggregators = sum(map(len, levels(topology, 3, 4)))
    assert document["invocations"] == 2 * 3 * (2 + 1) + 4 * aggregators
    assert document["phases"]["wait"] == 0, "waiting isn't billed"
    assert document["lambda"]["status"] == "modelled"
    assert document["lambda"]["waiting_share"] == 0
    # All but the last round's: gradients, and what aggregators stored.
    pieces = 4 if topology == "shards" else 1
    assert document["overheads"]["counts"]["object.delete"] == 3 * (3 * pieces + aggregators)


def test_slices_have_the_bits_of_allreduce(small: Callable[..., Any]) -> None:
    document = small({"topology": "shards"})
    plan = Plan.from_document(document["plan"])
    other = architectures()["allreduce"]
    values = plan.to_document() | {"architecture": "allreduce", "options": other.complete({})}
    replicas = one_process(Plan.from_document(values))
    for _ in range(plan.epochs):
        replicas.train_epoch()
    assert document["parameters_sha256"] == hashlib.sha256(replicas.parameters().numpy().tobytes()).hexdigest()


def test_an_epoch_ends_before_the_next_one_is_decided(small: Callable[..., Any]) -> None:
    """An epoch at a time, as accuracy decides, is the same as all at once."""
    whole, gradual = small({}), small({}, until_accuracy=1.0)
    for same in ("parameters_sha256", "loss", "accuracy", "counts", "bytes", "invocations"):
        assert gradual[same] == whole[same]


@pytest.mark.exhaustive
def test_a_new_account_runs_16_shards_in_two_waves(run: Run, runs: Path) -> None:
    """Released times of M = 16 show it: a new account has ten functions at once, so six wait for a second wave."""
    document = run(*SIXTEEN, *ENOUGH, "--account", "new")
    assert document["plan"]["account"] == "new"
    lines = (runs / document["run"] / "invocations.jsonl").read_text().splitlines()
    records = sorted(map(json.loads, lines), key=lambda record: record["start_ns"])
    assert len(records) == 16
    running = [sum(r["start_ns"] <= one["start_ns"] < r["end_ns"] for r in records) for one in records]
    assert max(running) <= 10
    first, second = records[:10], records[10:]
    assert [record["cold_start"] for record in first] == [True] * 10
    assert [record["cold_start"] for record in second] == [False] * 6, "in environments of the first wave"
    assert min(record["start_ns"] for record in second) > min(record["end_ns"] for record in first)
    at_once = run(*SIXTEEN, *ENOUGH)
    assert at_once["parameters_sha256"] == document["parameters_sha256"]


def test_an_account_that_is_too_small_for_the_plan_says_so(runs: Path) -> None:
    done = slslab("run", "gradssharding", "--account", "new", "--memory", "4096", variables={"SLSLAB_RUNS": str(runs)})
    assert done.code == 2
    assert "The account new has functions of 128 to 3,008 MB, and --memory is 4,096 MB." in done.err


UPLOADED = ("--gradients", "uploaded", "--parameters", "100003", "--clients", "5", "--batches", "2", "--epochs", "1")


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_uploaded_gradients_need_no_data_and_leave_their_mean(
    topology: str, in_memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "_synthetic", lambda *_: pytest.fail("images are made"))
    options = {"gradients": "uploaded", "parameters": 100_003, "aggregator-memory": 1024, "topology": topology}
    shape = {"workers": 5, "batches": 2, "epochs": 1, "seed": 7, "dataset": "synthetic"}
    document: Any = in_memory(ARCHITECTURE, options, **shape).recorded.document
    check_uploaded(topology, document)


def test_a_real_run_of_uploaded_gradients_is_shown(run: Run, runs: Path) -> None:
    document = run(*UPLOADED, *ENOUGH, "--seed", "7")
    check_uploaded("shards", document)
    assert document["report"]["error"] is None
    shown = slslab("show", document["run"], "--full", variables={"SLSLAB_RUNS": str(runs)}).out
    size = "gradssharding, 100,003 parameters, 5 workers × 2 rounds × 1 epoch at 1,024 MB — done"
    assert size in " ".join(shown.split())
    figures = {line.strip().partition("  ")[0]: line.split()[-2:] for line in shown.splitlines() if line.strip()}
    assert figures["peak memory"] == ["1,024", "MB)"]
    assert not figures.keys() & {"replicas equal", "training loss", "test accuracy"}, shown


def check_uploaded(topology: str, document: dict[str, Any]) -> None:
    assert (document["status"], document["error"]) == ("done", None)
    plan = Plan.from_document(document["plan"])
    vectors = [np.concatenate(list(random_gradient(plan, client))) for client in range(5)]
    assert document["parameters_sha256"] == hashlib.sha256(by_hand(topology, vectors).tobytes()).hexdigest()
    assert (document["parameters"], document["gradient_bytes"]) == (100_003, 400_012)
    assert (document["loss"], document["accuracy"], document["replicas_equal"]) == ([], [], None)
    assert (document["updates"], document["epochs_trained"]) == (0, 0)
    assert document["lambda"]["status"] == "modelled"
    options = document["plan"]["options"]
    expected = architecture.counts(5, 2, 1, 100_003, options)
    assert document["counts"] == dict(expected.operations)
    assert document["bytes"] == {"in": expected.bytes_in, "out": expected.bytes_out}
    assert document["invocations"] == 2 * sum(map(len, levels(topology, 5, 4)))


def test_a_recorded_run_is_generated_again_and_larger(run: Run, runs: Path) -> None:
    document = run(*SMALL, "--topology", "lifl")
    assert document["report"]["error"] is None
    recorded = read_measured(runs / document["run"])

    def requests(program: Any) -> Counter[tuple[str, str]]:
        found = Counter[tuple[str, str]]()
        for track in program.tracks:
            for step in track.flat_steps():
                if step.op in ("object.get", "object.put") and step.phase == "synchronise":
                    found[track.name, step.op] += step.requests
        return found

    assert requests(generate(recorded.costs, 3, 2, 2)) == requests(recorded.program)
    variables = {"SLSLAB_RUNS": str(runs)}
    done = slslab("replay", document["run"], "--workers", "20", "--json", variables=variables)
    assert "20 workers" in json.dumps(done.document)


def test_an_aggregator_that_does_not_fit_ends_the_run(runs: Path) -> None:
    """A sum and an input of 64 MB each, and NumPy and boto3; its environment isn't a fork."""
    size = ("--gradients", "uploaded", "--parameters", "16000000", "--clients", "2", "--shards", "1", "--batches", "1")
    variables = {"SLSLAB_RUNS": str(runs)}
    killed = slslab("run", "gradssharding", *size, "--aggregator-memory", "160", "--json", variables=variables)
    assert killed.code == 1
    error = killed.printed["error"]
    assert (error["type"], error["worker"]) == ("Runtime.OutOfMemory", 2)
    assert error["hint"].startswith("killed at its limit of 160 MB, which --memory does not set: see `slslab run grads")
    done = slslab("run", "gradssharding", *size, "--json", variables=variables).document
    assert 160 < done["peak_memory_mb"] <= 450 + 184


def test_clients_is_another_spelling_for_this_architecture_alone() -> None:
    assert "--workers, --clients INTEGER" in slslab("run", "gradssharding", "--help").out
    assert "--clients" not in slslab("run", "allreduce", "--help").out
    refused = slslab("run", "allreduce", "--clients", "3")
    assert refused.code == 2


def test_an_aggregator_that_does_not_fit_into_the_host_is_refused(make_plan: MakePlan) -> None:
    plan = make_plan("gradssharding", options={"gradients": "uploaded", "aggregator-memory": 3008})
    admit(plan, architecture, [3008])
    with pytest.raises(HostError, match="an aggregator needs 3,008 MB, but there are 3,007 MB") as refused:
        admit(plan, architecture, [3007])
    assert refused.value.hint == "an option may lower that: slslab run gradssharding --help"
