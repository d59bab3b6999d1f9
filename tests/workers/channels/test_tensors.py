"""The tensor client and the scripts, against tensordb and, where REDISAI_URL names one, against a real RedisAI."""

import json
import os
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from slslab.stack.tensors import EmbeddedTensorDatabases
from slslab_workers.channels import scripts
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.stream import Refused, Unreachable
from slslab_workers.channels.tensors import PART, NoTensor, TensorDatabase, Vector
from slslab_workers.training import robust

pytestmark = pytest.mark.server

URLS = ["tensordb", *([os.environ["REDISAI_URL"]] if "REDISAI_URL" in os.environ else [])]
P = 10_007


@pytest.fixture(scope="module", params=URLS)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param != "tensordb":
        yield request.param
        return
    with EmbeddedTensorDatabases(1, password="p@ss:word/") as databases:
        yield databases.endpoints[0]


@pytest.fixture
def events() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def database(url: str, events: list[dict[str, Any]]) -> Iterator[TensorDatabase]:
    with TensorDatabase(url, Tracer(events.append, "run", 1, "invocation")) as opened:
        opened.command("FLUSHALL")
        events.clear()
        yield opened


def vectors(count: int, size: int = P) -> list[Vector]:
    return list(np.random.default_rng(count).standard_normal((count, size), np.float32))


def run(database: TensorDatabase, function: str, inputs: list[Vector], *arguments: float, outputs: int = 1) -> Any:
    keys = [f"in{number}" for number in range(len(inputs))]
    for key, vector in zip(keys, inputs, strict=True):
        database.set(key, vector, "other")
    names = [f"out{number}" for number in range(outputs)]
    database.execute(function, keys, names, "other", arguments=arguments)
    return [database.get(name, "other") for name in names]


@pytest.mark.parametrize("size", [1, 1023, 3_000_001])
def test_vectors_come_back_bit_for_bit(database: TensorDatabase, size: int) -> None:
    [vector] = vectors(1, size)
    database.set("t", vector, "other")
    np.testing.assert_array_equal(database.get("t", "other"), vector)
    assert database.get("t", "other").flags.writeable


def test_all_keys_with_a_prefix_are_deleted_and_named(database: TensorDatabase, events: list[dict[str, Any]]) -> None:
    for key in ("run:one", "run:två", "other"):
        database.set(key, np.ones(2, np.float32), "other")
    events.clear()
    database.delete_all("run:")
    assert bytes(database.command("KEYS", "*")[0]) == b"other"
    scanned, deleted = (event["resource"].partition("/")[2] for event in events[:2])
    assert (scanned, deleted) in [("0", "run:one"), ("0", "run:två")]


def test_events_tell_bytes_and_what_a_script_reads(database: TensorDatabase, events: list[dict[str, Any]]) -> None:
    one, two = vectors(2)
    database.set("a", one, "synchronise", overhead=False)
    database.set("b", two, "synchronise", overhead=False)
    database.execute("average", ["a", "b"], ["c"], "synchronise", overhead=False)
    database.get("c", "synchronise", overhead=False)
    database.delete(["a", "b"], "other", overhead=False)
    told = [(event["op"], event["requests"], event["bytes"]) for event in events if not event["overhead"]]
    size = 4 * P
    assert told == [
        ("tensor.set", 1, size),
        ("tensor.set", 1, size),
        ("tensor.script", 1, 0),
        ("tensor.get", 1, size),
        ("tensor.delete", 1, 0),
    ]
    [script] = [event for event in events if event["op"] == "tensor.script" and not event["overhead"]]
    assert script["resource"].endswith("/c")
    assert [resource.rpartition("/")[2] for resource in script["reads"]] == ["a", "b"]
    assert "p@ss" not in str(events), "the trace holds no password"


def test_an_absent_tensor_is_told_apart_and_no_part_of_the_protocol(
    database: TensorDatabase, events: list[dict[str, Any]]
) -> None:
    with pytest.raises(NoTensor):
        database.get("absent", "synchronise", overhead=False)
    assert (events[-1]["failed"], events[-1]["overhead"]) == (True, True)
    with pytest.raises(Refused, match="unknown command"):
        database.command("NOSUCH")
    assert database.command("PING") == "PONG", "an error does not end the connection"


def test_scripts_are_stored_once_whoever_comes_first(url: str, events: list[dict[str, Any]]) -> None:
    tracer = Tracer(events.append)
    for _ in range(2):
        with TensorDatabase(url, tracer) as one:
            run(one, "average", vectors(2))
            assert one.command("EXISTS", scripts.KEY) == 1
    stored = [event["requests"] for event in events if event["resource"].endswith(scripts.KEY)]
    assert stored.count(2) <= 1


def test_average_has_the_bits_of_the_sum_in_order(database: TensorDatabase) -> None:
    inputs = vectors(5)
    total = torch.from_numpy(inputs[0].copy())
    for vector in inputs[1:]:
        total.add_(torch.from_numpy(vector))
    [mean] = run(database, "average", inputs)
    np.testing.assert_array_equal(mean, total.div_(5).numpy())


@pytest.mark.parametrize("name", [name for name in robust.RULES if name != robust.ZENO])
def test_robust_rules_have_the_bits_of_a_worker(database: TensorDatabase, name: str) -> None:
    inputs = vectors(7)
    inputs[6][:] = np.nan
    expected = robust.aggregate(name, [torch.from_numpy(vector) for vector in inputs], 2)
    function, arguments = robust.script(name, 7, 2)
    [made] = run(database, function, inputs, *arguments)
    np.testing.assert_array_equal(made, expected.numpy())
    assert np.isfinite(made).all()


def test_weighted_average(database: TensorDatabase) -> None:
    inputs = vectors(3)
    [mean] = run(database, "weighted_average", inputs, 1.0, 2.5, 0.5)
    expected = np.average(np.array(inputs, np.float64), axis=0, weights=[1.0, 2.5, 0.5])
    np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-6)


def test_sgd_has_the_bits_of_torchs(database: TensorDatabase) -> None:
    """Without momentum and with it, over several steps."""
    start, *gradients = vectors(4)
    for momentum, decay in ((0.0, 0.0), (0.9, 5e-4)):
        parameter = torch.nn.Parameter(torch.from_numpy(start.copy()))
        optimiser = torch.optim.SGD([parameter], lr=0.01, momentum=momentum, weight_decay=decay)
        state = [start] if not momentum else [start, np.zeros(P, np.float32)]
        for gradient in gradients:
            parameter.grad = torch.from_numpy(gradient)
            optimiser.step()
            if momentum:
                state = run(database, "sgd_momentum", [state[0], gradient, state[1]], 0.01, 0.9, 5e-4, outputs=2)
            else:
                state = run(database, "sgd", [state[0], gradient], 0.01)
            np.testing.assert_array_equal(state[0], parameter.detach().numpy())


@pytest.mark.parametrize("count", [3, 4])
def test_median_and_trimmed_mean_are_by_coordinate(database: TensorDatabase, count: int) -> None:
    inputs = vectors(count)
    [median] = run(database, "median", inputs)
    np.testing.assert_allclose(median, np.median(inputs, axis=0), rtol=1e-6, atol=1e-7)
    [trimmed] = run(database, "trimmed_mean", inputs, 1)
    np.testing.assert_allclose(trimmed, np.sort(inputs, axis=0)[1:-1].mean(0), rtol=1e-5, atol=1e-6)


def test_average_of_json_as_released(database: TensorDatabase, events: list[dict[str, Any]]) -> None:
    inputs = vectors(3, 100)
    for vector in inputs:
        database.push_json("list", vector, "synchronise", overhead=False)
    events.clear()
    mean = database.average_json("list", 2, "synchronise", overhead=False)
    np.testing.assert_allclose(mean, np.mean(inputs[:2], axis=0, dtype=np.float64), rtol=1e-6)
    [script] = events
    assert script["op"] == "tensor.script"
    assert script["bytes"] > 100
    with pytest.raises(Refused, match=r"Error running script|on @user_script"):  # Redis 6; Redis 7
        database.average_json("absent", 2, "synchronise")


@pytest.mark.parametrize("parameters", [0, 1, PART, PART + 1, 2 * PART + 3])
def test_json_is_what_python_writes(database: TensorDatabase, events: list[dict[str, Any]], parameters: int) -> None:
    (vector,) = vectors(1, parameters)
    database.push_json("list", vector, "synchronise", overhead=False)
    expected = json.dumps(vector.tolist()).encode()
    assert bytes(database.command("LINDEX", "list", -1)) == expected
    assert events[0]["bytes"] == len(expected)


def test_a_database_that_dies_or_hangs_is_unreachable(events: list[dict[str, Any]]) -> None:
    tracer = Tracer(events.append)
    with EmbeddedTensorDatabases(2) as databases, TensorDatabase(databases.endpoints[0], tracer) as database:
        assert database.ping()
        with TensorDatabase(databases.endpoints[0], tracer) as killer, pytest.raises(Unreachable):
            killer.command("SHUTDOWN", "NOSAVE")
        assert not database.ping()
        assert events[-1]["failed"]
        with pytest.raises(Unreachable, match="cannot be reached"):
            database.get("t", "other")
        with TensorDatabase(databases.endpoints[1], tracer) as other:
            assert other.ping(), "the other peer's lives"
    # Connections wait in the backlog of a server that never accepts.
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        TensorDatabase(f"redis://127.0.0.1:{silent.getsockname()[1]}", tracer) as database,
    ):
        assert not database.ping(answer_s=0.2)


def test_a_wrong_address_or_password_is_one_clear_sentence(url: str) -> None:
    with pytest.raises(ValueError, match="is not a tensor database's address"):
        TensorDatabase("http://somewhere", Tracer(print))
    if "p%40ss" in url:
        wrong = TensorDatabase(url.replace("p%40ss", "wrong"), Tracer(lambda _event: None))
        with pytest.raises(Refused, match="WRONGPASS"):
            wrong.command("PING")
        wrong.close()
