"""Runs on a compose stack: its emulator as a process of this host, with the embedded stack's parts as its services."""

import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
import redis
from tests import commands
from tests.choices import chosen
from tests.commands import Done

from slslab.aws.clients import aws_client
from slslab.aws.keys import Keyring, Pair
from slslab.compose.__main__ import main as serve_compose
from slslab.compose.client import DEFAULT_PAIR, RemoteEmulator
from slslab.compose.network import CHANNELS, Network
from slslab.compose.services import examine
from slslab.errors import HostError, RequestError
from slslab.host.reaper import marked_processes
from slslab.host.session import Session
from slslab.lambda_.emulator import Emulator
from slslab.stack import without_passwords
from slslab.stack.channels import EmbeddedParameterServer, find_server
from slslab.stack.object_store import EmbeddedObjectStore
from slslab.stack.state_machines import EmbeddedStateMachines
from slslab.stack.tensors import EmbeddedTensorDatabases
from slslab.statemachines.history import read_transitions
from slslab.testing import create_function
from slslab_aws.servers import installed
from slslab_workers.plan import Plan

pytestmark = pytest.mark.server
# docker-compose.yml's default, which functions have, too.
KEYS = Keyring(Pair(*DEFAULT_PAIR.values()), temporary=False)


COMPOSE = ("--stack", "compose", "--environment", "process")
# A whole vCPU for each function: with less, every cold start takes seconds.
SMALL = ("--workers", "2", "--batches", "2", "--batch-size", "32", "--memory", "1769", "--json")
# What makes messages depend on what is learnt, or on which is faster.
OPTIONS = {"allreduce": (), "mlless": ("--filter", "none"), "spirt": ("--batches", "1", "--light-memory", "1769")}


# The service, whose environments are forked from a process that has made these imports.
SERVICE = """
import sys
from functools import partial
from slslab.compose import __main__ as service
service.Emulator = partial(service.Emulator, template=sys.argv[1:])
service.main([])
"""


def ignore(_record: object) -> None:
    """Take a record of a recording that is not looked at."""


@dataclass
class Composed:
    """The stack: its emulator's address, process, log, and the variables that it was started with."""

    url: str
    process: "subprocess.Popen[str]"
    log: Path
    variables: dict[str, str]
    home: Path

    @property
    def emulator(self) -> RemoteEmulator:
        return RemoteEmulator(self.url)

    def client(self, service: str) -> Any:
        found = {one["part"]: one["host"] for one in self.emulator.about()["services"]}
        return aws_client(service, found[service], KEYS.owner)

    def left(self) -> list[str]:
        """Functions, buckets and tables that are there."""
        with_names = (
            ("lambda", "list_functions", "Functions", "FunctionName"),
            ("s3", "list_buckets", "Buckets", "Name"),
        )
        found: list[str] = []
        for service, operation, key, name in with_names:
            client = self.client(service)
            found += [entry[name] for entry in getattr(client, operation)()[key]]
            client.close()
        if "dynamodb" in runnable():
            client = self.client("dynamodb")
            found += client.list_tables()["TableNames"]
            client.close()
        return found


def free_port() -> int:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return int(holder.getsockname()[1])


def start(variables: dict[str, str], log: Path, template: Sequence[str] = ()) -> "subprocess.Popen[str]":
    """The service as a process of its own, once it answers."""
    with log.open("w") as errors:
        command = [sys.executable, "-c", SERVICE, *template]
        process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    with process.stdout:
        assert json.loads(process.stdout.readline())["endpoint"].startswith("http://127.0.0.1:")
    return process


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    """A stack with two tensor databases, which its host ports have the other way round, and a queue of lists."""
    port = free_port()
    directory = tmp_path_factory.mktemp("composed")
    with Session() as session, ExitStack() as parts:
        store = parts.enter_context(EmbeddedObjectStore(session.home / "s3", KEYS, session.mark))
        tensors = parts.enter_context(EmbeddedTensorDatabases(4, password="p@ss", environment=session.mark))
        memcached = parts.enter_context(plain_memcached())
        dynamodb = parts.enter_context(moto_server())
        adding = parts.enter_context(EmbeddedParameterServer(session.mark))
        states = parts.enter_context(EmbeddedStateMachines(f"http://127.0.0.1:{port}", KEYS, session.mark))
        states.ready()
        variables = {
            **os.environ,
            **KEYS.owner.variables(),
            "SLSLAB_LISTEN": f"127.0.0.1:{port}",
            "SLSLAB_ENVIRONMENT": "process",
            "SLSLAB_HOME": str(directory / "home"),
            "AWS_ENDPOINT_URL_S3": store.endpoint,
            "AWS_ENDPOINT_URL_SFN": states.endpoint,
            "SLSLAB_QUEUE_URL": tensors.endpoints[2],
            "SLSLAB_TENSORS": " ".join(tensors.endpoints[:2]),
            "SLSLAB_S3_PORT": port_of(store.endpoint),
            "SLSLAB_LOCALSTACK_PORT": port_of(states.endpoint),
            "SLSLAB_QUEUE_PORT": port_of(tensors.endpoints[2]),
            "SLSLAB_MEMCACHED_URL": memcached,
            "SLSLAB_REDIS_URL": tensors.endpoints[3],
            "AWS_ENDPOINT_URL_DYNAMODB": dynamodb,
            "SLSLAB_DYNAMODB_PORT": port_of(dynamodb),
            "SLSLAB_PARAMETER_SERVER_URL": adding.endpoint,
            # One more than there are databases.
            "SLSLAB_TENSORS_PORTS": ",".join(
                [*(port_of(url) for url in reversed(tensors.endpoints[:2])), str(free_port())]
            ),
        }
        process = start(variables, directory / "log", commands.IMPORTS)
        stack = Composed(f"http://127.0.0.1:{port}", process, directory / "log", variables, directory / "home")
        mark = stack.emulator.about()["emulator"]
        yield stack
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, stack.log.read_text()[-2000:]
        assert marked_processes(mark) == []
        assert list(stack.home.iterdir()) == []


@contextmanager
def plain_memcached() -> Iterator[str]:
    """The address of a Memcached without a password, as in docker-compose.yml; of nothing if none is installed."""
    program, port = find_server("memcached"), free_port()
    if program is None:
        yield f"memcached://127.0.0.1:{port}"
        return
    command = [str(program), "-l", "127.0.0.1", "-p", str(port), "-I", "128m", "-m", "1024", "-u", "root"]
    with subprocess.Popen(command) as process:
        try:
            yield f"memcached://127.0.0.1:{port}"
        finally:
            process.terminate()


@contextmanager
def moto_server() -> Iterator[str]:
    """The address of a DynamoDB as in docker-compose.yml; of nothing where moto's server is not installed."""
    port = free_port()
    if not installed():
        yield f"http://127.0.0.1:{port}"
        return
    command = [sys.executable, "-m", "moto.server", "-p", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def runnable() -> set[str]:
    """The channels with servers that can run here."""
    missing = set() if find_server("memcached") else {"memcached"}
    return set(CHANNELS) - missing - (set() if installed() else {"dynamodb"})


def port_of(url: str) -> str:
    return str(urlsplit(url).port)


Command = Callable[..., Done]


@pytest.fixture
def slslab(tmp_path: Path) -> Command:
    """The command line with the address of an emulator, and further variables."""
    own = {"SLSLAB_RUNS": str(tmp_path / "runs"), "SLSLAB_STATE": str(tmp_path / "state")}

    def call(url: str, *arguments: str, **more: str) -> Done:
        with commands.forked_environments():
            return commands.slslab(*arguments, variables=own | {"SLSLAB_EMULATOR_URL": url} | more)

    return call


def run(slslab: Command, url: str, runs: Path, name: str, *options: str) -> tuple[dict[str, Any], Path]:
    """The document of a run, and its directory."""
    code, out, errors = slslab(url, "run", name, *SMALL, *OPTIONS[name], *options)
    assert code == 0, errors[-2000:]
    document = json.loads(out)
    return document, runs / "runs" / document["run"]


def test_a_solo_profile_is_no_part_of_the_run(composed: Composed, slslab: Command, tmp_path: Path) -> None:
    """Both use the stack, one after the other; its containers keep their priority."""
    document, directory = run(slslab, composed.url, tmp_path, "allreduce", *COMPOSE, "--record", "alone")
    assert (document["alone"]["status"], document["alone"]["priority"]) == ("measured", "normal")
    names = [
        {json.loads(line)["function"] for line in (folder / "invocations.jsonl").read_text().splitlines()}
        for folder in (directory, directory / "alone")
    ]
    assert [len(found) for found in names] == [1, 3]
    assert not names[0] & names[1]
    assert document["invocations"] == 2
    assert composed.left() == []


@pytest.mark.parametrize("name", chosen(OPTIONS, "spirt"))
def test_a_run_is_the_embedded_ones_equal(name: str, composed: Composed, slslab: Command, tmp_path: Path) -> None:
    """Counts, bytes and bits are; nothing of it is missing, and nothing is left."""
    document, directory = run(slslab, composed.url, tmp_path, name, *COMPOSE)
    embedded, other = run(slslab, composed.url, tmp_path, name)
    for key in ("parameters_sha256", "counts", "bytes", "invocations", "loss", "accuracy", "replicas_equal"):
        assert document[key] == embedded[key], key
    assert document["parameters_sha256"] is not None
    # The service metered what the run has, no more and no less.
    function = f"slslab-{document['run']}"[:44]
    reports = [line for line in composed.log.read_text().splitlines() if line.startswith(function)]
    billed = [int(found[1]) for line in reports if (found := re.search(r"Billed Duration: (\d+) ms", line))]
    assert sum(billed) == round(document["billed_seconds"] * 1000) > 0
    assert len(billed) == document["invocations"]
    # Every record of the emulator's arrived, and every environment of the run has ended, with its log.
    events = pq.read_table(directory / "trace.parquet").to_pylist()
    records = [json.loads(line) for line in (directory / "invocations.jsonl").read_text().splitlines()]
    by_operation = {op: [event for event in events if event["op"] == op] for op in {event["op"] for event in events}}
    assert {event["invocation"] for event in by_operation["invoke"]} >= {record["request_id"] for record in records}
    assert len(by_operation["environment.start"]) == document["cold_starts"]
    started = {event["environment"] for event in by_operation["environment.start"]}
    assert {event["environment"] for event in by_operation["environment.kill"]} == started
    logs = {path.stem: path.read_text() for path in (directory / "logs").iterdir()}
    assert set(logs) == started
    assert all(record["report"] in logs[record["environment"]] for record in records)
    assert {event["host_delay_ns"] > 0 for event in by_operation["compute"]} <= {True, False}
    # What it was is said, and its plan can be run again.
    assert set(document["stack"]) == set(embedded["stack"])
    assert embedded["stack"]["s3"].startswith(document["stack"]["s3"])  # a server tells no version
    assert document["host"]["own_cpu_seconds"].keys() == {"emulator", "driver"}
    assert document["package"] == embedded["package"]
    plan = Plan.from_document(tomllib.loads((directory / "plan.toml").read_text()))
    assert (plan.stack, plan.environment) == ("compose", "process")
    hosts = {line["item"] for line in document["cost"]["lines"] if line["item"].startswith("Host")}
    assert hosts == {line["item"] for line in embedded["cost"]["lines"] if line["item"].startswith("Host")}
    assert composed.left() == []
    if name == "spirt":
        both = [directory, other]
        told, own = (
            [e for e in pq.read_table(one / "trace.parquet").to_pylist() if e["op"] == "transition"] for one in both
        )
        assert sorted(map(labelled, told)) == sorted(map(labelled, own))
        invoked = [event["invocation"] for event in told if event["invocation"]]
        # All but the Parallel states are Tasks, and each has an invocation of its own.
        assert len(set(invoked)) == len(invoked) == len([event for event in own if event["invocation"]])
        assert document["orchestration_seconds"] < document["seconds"]["measured"]
        _, shown, _ = slslab(composed.url, "show", str(directory))
        assert "The CPU time of scripts isn't measured on a compose stack" in " ".join(shown.split())


@pytest.mark.parametrize("channel", chosen(CHANNELS, "memcached"))
def test_a_channels_server_is_used_empty_and_the_bits_are_those_of_s3(
    channel: str, composed: Composed, slslab: Command, tmp_path: Path
) -> None:
    """And the embedded stack's."""
    if channel not in runnable():
        pytest.skip(f"The server of {channel} is not installed")
    options = (*COMPOSE, "--channel", channel)
    document, directory = run(slslab, composed.url, tmp_path, "allreduce", *options)
    again, _ = run(slslab, composed.url, tmp_path, "allreduce", *options)
    over_s3, _ = run(slslab, composed.url, tmp_path, "allreduce", *COMPOSE)
    embedded, _ = run(slslab, composed.url, tmp_path, "allreduce", "--channel", channel)
    runs = (document, again, over_s3, embedded)
    assert len({found["parameters_sha256"] for found in runs}) == 1
    assert document["parameters_sha256"] is not None
    assert document["counts"] == again["counts"] == embedded["counts"]
    assert document["bytes"] == embedded["bytes"]
    assert [line["item"] for line in document["cost"]["lines"]] == [line["item"] for line in embedded["cost"]["lines"]]
    if channel == "parameter-server":
        assert document["counts"]["parameter.push"] > 0
        events = pq.read_table(directory / "trace.parquet").to_pylist()
        computed = [event for event in events if event["environment"] == "parameter-server"]
        assert {event["op"] for event in computed} == {f"parameter.{n}" for n in ("deserialise", "merge", "serialise")}
        assert sum(event["cpu_ns"] for event in computed) > 0
    else:
        assert document["counts"][f"{channel}.put"] > 0
        assert document["bytes"] == over_s3["bytes"]
    assert composed.left() == []
    assert document["stack"]["channel"] == next(
        one["name"] for one in composed.emulator.about()["services"] if one["part"] == channel
    )
    plan = Plan.from_document(tomllib.loads((directory / "plan.toml").read_text()))
    assert plan.options["channel-host"] != "auto" or channel == "dynamodb"


def labelled(transition: dict[str, Any]) -> tuple[Any, ...]:
    state = transition["resource"].partition("/")[2]
    return state, transition["worker"], transition["epoch"], transition["failed"], transition["function"]


def test_one_run_at_a_time_has_the_stack_and_its_databases_empty(composed: Composed) -> None:
    databases = composed.variables["SLSLAB_TENSORS"].split()
    clients = [redis.Redis.from_url(url) for url in databases]
    for client in clients:
        client.set("left", "over")
    with composed.emulator.record("first", ignore, 1) as recording:
        # The second is not for a run of one peer.
        assert [client.exists("left") for client in clients] == [0, 1]
        assert list(recording.tensors) == databases
        with pytest.raises(HostError, match=r"The run first of .*process .* uses this stack") as error:
            composed.emulator.record("second", ignore).__enter__()
        assert error.value.hint.startswith("wait until it ends")
        assert recording.finish()["package"]["unzipped_bytes"] == 0
        # It is over although its client is still there.
        with composed.emulator.record("second", ignore, 2):
            assert [client.exists("left") for client in clients] == [0, 0]
    for client in clients:
        client.close()


def test_a_recording_tells_of_its_own_functions_alone_and_ends_what_they_do(composed: Composed) -> None:
    client = composed.client("lambda")
    sleeper = "import time\n\ndef handler(event, context):\n    print('begun', flush=True)\n    time.sleep(event)\n"
    create_function(client, "foreign", sleeper)
    heard: list[dict[str, Any]] = []
    with composed.emulator.record("mine", heard.append) as recording:
        recording.name("function", "own")
        create_function(client, "own", sleeper, Timeout=300)
        client.invoke(FunctionName="foreign", Payload=b"0")
        client.invoke(FunctionName="own", Payload=b"0")
        client.invoke(FunctionName="own", InvocationType="Event", Payload=b"250")
        began = time.monotonic()
        end = recording.finish()
        assert time.monotonic() - began < 60
    metered = [record for record in heard if record["record"] == "invocation"]
    assert [record["function"] for record in metered] == ["own"] * len(metered)
    # The one that slept is metered as one whose environment died; if it had not begun yet, not at all.
    assert metered[0]["status"] == "success"
    assert [record["error_type"] for record in metered[1:]] in (["Runtime.ExitError"], [])
    environments = {record["environment"] for record in heard if record["record"] == "clock"}
    assert environments
    assert all(environment.startswith("own-") for environment in environments)
    assert end["cpu_seconds"] >= 0
    assert end["package"]["unzipped_bytes"] == len(sleeper)
    assert composed.left() == ["foreign"]
    client.delete_function(FunctionName="foreign")
    client.close()


def test_a_killed_run_leaves_nothing_and_the_next_one_works(composed: Composed, tmp_path: Path) -> None:
    """Neither functions nor buckets nor, where DynamoDB is installed, tables."""
    channel = "dynamodb" if "dynamodb" in runnable() else "s3"
    settings = {"SLSLAB_EMULATOR_URL": composed.url, "SLSLAB_RUNS": str(tmp_path)}
    command = [sys.executable, "-m", "slslab", "run", "allreduce", *SMALL, *COMPOSE, "--epochs", "50"]
    command += ["--channel", channel]
    with subprocess.Popen(
        command,
        env=os.environ | settings,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        # Its functions are invoked when it has uploaded what they are to learn from.
        assert any(line.startswith("uploading") for line in process.stderr)
        assert composed.left()
        process.kill()
    # The emulator waits with the next recording until all of the last is gone.
    with composed.emulator.record("next", ignore) as recording:
        assert composed.left() == []
        recording.finish()


def test_an_emulator_that_ends_is_told(composed: Composed, tmp_path: Path) -> None:
    port = free_port()
    own = {"SLSLAB_LISTEN": f"127.0.0.1:{port}", "SLSLAB_HOME": str(tmp_path / "home")}
    process = start(composed.variables | own, tmp_path / "log")
    records: list[dict[str, Any]] = []
    with RemoteEmulator(f"http://127.0.0.1:{port}").record("run", records.append) as recording:
        process.kill()
        process.wait()
        with pytest.raises(HostError, match="No emulator answers"):
            recording.finish()
    assert [(record["record"], record["message"]) for record in records] == [("failed", "the stack's emulator ended")]
    # What it left goes with the next one's start.
    again = start(composed.variables | own, tmp_path / "log")
    about = RemoteEmulator(f"http://127.0.0.1:{port}").about()
    assert [path.name for path in (tmp_path / "home").glob("slslab-*")] == [f"slslab-{about['emulator']}"]
    again.terminate()
    assert again.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message", "hint"),
    [
        (("spirt", "--workers", "3", *COMPOSE), 3, "needs 3 tensor databases, but the stack has 2.",
         "docker compose up -d --scale tensors=3"),
        (("gpu", *COMPOSE), 3, "can't launch instances, because it doesn't run containers", "--stack embedded"),
        (("allreduce", "--stack", "compose"), 2, "runs functions as process, but the plan wants docker",
         "--environment process"),
        (("mlless", "--queue", "rabbitmq", *COMPOSE), 2, "the plan wants rabbitmq", "--queue auto"),
        (("allreduce", "--memory", "10240", "--workers", "50", *COMPOSE), 3, "50 × 10,240 MB", "smaller --memory"),
    ],
)  # fmt: skip
def test_what_the_stack_cannot_do_is_refused(
    arguments: tuple[str, ...], code: int, message: str, hint: str, composed: Composed, slslab: Command, tmp_path: Path
) -> None:
    ended, _, errors = slslab(composed.url, "run", *arguments)
    assert ended == code, errors
    error, told = errors.strip().splitlines()
    assert error.startswith("Error: ")
    assert message in error
    assert told.startswith("Hint: ")
    assert hint in told
    assert not (tmp_path / "runs").exists()


def test_without_a_stack_there_is_one_sentence_and_a_hint(composed: Composed, slslab: Command) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    for url, code, message in (
        (nobody, 3, f"No emulator answers at {nobody}"),
        (composed.variables["AWS_ENDPOINT_URL_S3"], 3, "is not an emulator of a compose stack"),
        ("localhost:9001", 2, "is not an emulator's address"),
    ):
        ended, _, errors = slslab(url, "run", "allreduce", *COMPOSE)
        assert ended == code, errors
        assert message in errors
        assert len(errors.strip().splitlines()) == 2
        assert "\nHint: " in errors


@pytest.mark.parametrize(
    ("changed", "code", "message"),
    [
        ({"SLSLAB_TENSORS": ""}, 2, "SLSLAB_TENSORS is not set"),
        ({"SLSLAB_ENVIRONMENT": ""}, 2, "SLSLAB_WORKER_IMAGE is not set"),
        ({"SLSLAB_ENVIRONMENT": "jail"}, 2, "SLSLAB_ENVIRONMENT is 'jail'"),
        ({"SLSLAB_LISTEN": "everywhere"}, 2, "SLSLAB_LISTEN is 'everywhere'"),
        ({"SLSLAB_QUEUE_URL": "kafka://rabbitmq:5672"}, 2, "SLSLAB_QUEUE_URL is 'kafka://rabbitmq:5672'"),
        ({"AWS_ENDPOINT_URL_S3": "http://s3:port"}, 2, "AWS_ENDPOINT_URL_S3 is 'http://s3:port'"),
        ({"SLSLAB_TENSORS_PORTS": "6380-6379"}, 2, "SLSLAB_TENSORS_PORTS is '6380-6379'"),
        ({"SLSLAB_HOME": "/proc/nowhere"}, 2, "SLSLAB_HOME is '/proc/nowhere'"),
        ({"SLSLAB_HOME": "/proc/1/task"}, 2, "SLSLAB_HOME is '/proc/1/task'"),
        ({}, 3, "is taken by"),
    ],
)
def test_the_service_says_what_is_wrong_with_its_variables(
    changed: dict[str, str],
    code: int,
    message: str,
    composed: Composed,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in (composed.variables | changed).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(signal, "signal", lambda _number, _handler: None)
    with pytest.raises(SystemExit) as ended:
        serve_compose([])
    error, hint = capsys.readouterr().err.splitlines()[:2]
    assert ended.value.code == code, error
    assert message in error
    assert hint.startswith("Hint: ")


def test_a_services_name_stands_for_all_its_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        **KEYS.owner.variables(),
        "SLSLAB_LISTEN": "0.0.0.0:9001",
        "SLSLAB_WORKER_IMAGE": "slslab/worker:local",
        "AWS_ENDPOINT_URL_S3": "http://s3:9000",
        "AWS_ENDPOINT_URL_SFN": "http://localstack:4566",
        "SLSLAB_QUEUE_URL": "amqp://user:password@rabbitmq:5672/%2F",
        "SLSLAB_TENSORS": "redis://:p%40ss@tensors:6379",
        "SLSLAB_TENSORS_PORTS": "7000-7001,7005",
    }
    network = Network.from_variables(variables)
    there = ["172.20.0.10", "172.20.0.9"]

    def resolve(host: str, port: int, *_: Any) -> list[Any]:
        if host != "tensors" or not there:
            raise socket.gaierror
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in there]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert network.advertise == "http://emulator:9001"
    assert network.environment == "docker"
    assert network.tensor_urls() == ("redis://:p%40ss@172.20.0.9:6379", "redis://:p%40ss@172.20.0.10:6379")
    assert network.client_environment()["SLSLAB_TENSOR_URLS"].split() == list(network.tensor_urls())
    outside = network.outside()
    assert outside["s3"] == ("http://127.0.0.1:9000",)
    assert outside["queue"] == ("amqp://user:password@127.0.0.1:5672/%2F",)
    assert outside["tensors"] == tuple(f"redis://:p%40ss@127.0.0.1:{port}" for port in (7000, 7001, 7005))
    assert Network.from_variables({**variables, "AWS_ENDPOINT_URL_S3": "http://localstack:4566"}).outside()["s3"] == (
        "http://127.0.0.1:4566",
    )
    there.append("172.20.0.1")
    assert len(network.tensor_urls()) == 3
    there.clear()
    assert network.tensor_urls() == ()
    assert "SLSLAB_TENSOR_URLS" not in network.client_environment()
    url = "memcached://tensors:11211"
    with_channel = Network.from_variables({**variables, "SLSLAB_MEMCACHED_URL": url})
    assert "memcached" not in with_channel.inside(), "it was not started"
    there.append("172.20.0.2")
    assert with_channel.inside()["memcached"] == (url,)
    assert "memcached" not in with_channel.outside()
    tables = {"AWS_ENDPOINT_URL_DYNAMODB": "http://tensors:5000", "SLSLAB_DYNAMODB_PORT": "8001"}
    with_tables = Network.from_variables({**variables, **tables})
    assert with_tables.outside()["dynamodb"] == ("http://127.0.0.1:8001",)
    assert with_tables.client_environment()["AWS_ENDPOINT_URL_DYNAMODB"] == "http://tensors:5000"


def test_transitions_told_by_a_history_are_those_that_our_own_front_records() -> None:
    """With branches, iterations, a retry that is caught, and a state at work when the execution ends."""
    function = "arn:aws:lambda:us-east-1:000000000000:function:fails"
    task = {
        "Type": "Task",
        "Resource": function,
        "Retry": [{"ErrorEquals": ["ValueError"], "IntervalSeconds": 1, "MaxAttempts": 1}],
        "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": None, "Next": "Each"}],
        "Next": "Each",
    }
    once = {"StartAt": "One", "States": {"One": {"Type": "Pass", "End": True}}}
    each = {"StartAt": "Item", "States": {"Item": {"Type": "Pass", "End": True}}}
    both = {
        "StartAt": "First",
        "States": {"First": {"Type": "Pass", "Next": "Other"}, "Other": {"Type": "Pass", "End": True}},
    }
    machine = {
        "StartAt": "Both",
        "States": {
            "Both": {"Type": "Parallel", "Branches": [once, both], "ResultPath": None, "Next": "Task"},
            "Task": task,
            "Each": {"Type": "Map", "ItemsPath": "$.items", "Iterator": each, "ResultPath": None, "Next": "Last"},
            "Last": {"Type": "Fail", "Error": "Enough"},
        },
    }
    recorded: list[dict[str, Any]] = []
    with (
        Emulator() as emulator,
        EmbeddedStateMachines(emulator.endpoint, emulator.keys, emulator.mark, on_event=recorded.append) as states,
    ):
        emulator.add_variables(states.client_environment())
        lambda_client, client = emulator.client("lambda"), emulator.client("stepfunctions")
        create_function(lambda_client, "fails", "def handler(event, context):\n    raise ValueError('no')\n")
        role = "arn:aws:iam::000000000000:role/states"
        arn = client.create_state_machine(name="machine", definition=json.dumps(machine), roleArn=role)[
            "stateMachineArn"
        ]
        started = client.start_execution(stateMachineArn=arn, name="run", input=json.dumps({"items": [1, 2]}))
        execution = started["executionArn"]
        while client.describe_execution(executionArn=execution)["status"] == "RUNNING":
            time.sleep(0.05)
        history = client.get_execution_history(executionArn=execution)["events"]
        lambda_client.close()
        client.close()
    offset = time.time_ns() - time.monotonic_ns()

    def clock(stamp: datetime) -> int:
        return round(stamp.timestamp() * 1e9) - offset

    told = read_transitions(history, clock)
    assert len(told) == len(recorded) == 10
    own = sorted((event["resource"].partition("/")[2], event["failed"], event["bytes"]) for event in recorded)
    assert sorted((one.resource, one.failed, one.bytes) for one in told) == own
    assert [one.function for one in told if one.resource == "Task"] == ["fails", "fails"]
    spans = sorted((event["start_ns"], event["end_ns"]) for event in recorded)
    for (start_ns, end_ns), one in zip(spans, sorted(told, key=lambda one: one.start_ns), strict=True):
        assert abs(one.start_ns - start_ns) < 500e6
        assert one.end_ns >= one.start_ns
        assert end_ns >= start_ns


DOCKER = """#!/bin/sh
echo "$@" >> {calls}
case "$*" in *" up "*) echo starting; exit {code};; esac
"""


def engine(directory: Path, name: str, code: int = 0) -> Path:
    """A directory with a program of this name that notes how it is called, and starts nothing."""
    directory.mkdir()
    program = directory / name
    program.write_text(DOCKER.format(calls=directory / "calls", code=code))
    program.chmod(0o755)
    return directory


def test_up_status_and_down_of_a_compose_stack(composed: Composed, slslab: Command, tmp_path: Path) -> None:
    """Compose is called as it is to be; the stack that answers is there already."""
    programs = engine(tmp_path / "bin", "docker")
    (tmp_path / "docker-compose.yml").touch()
    (tmp_path / "compose").mkdir()
    (tmp_path / "compose" / "offline.yml").touch()
    path = f"{programs}:/usr/bin:/bin"
    options = ("--stack", "compose", "--detach", "--offline", "--workers", "2")
    file = str(tmp_path / "docker-compose.yml")
    code, out, errors = slslab(composed.url, "up", *options, "--json", COMPOSE_FILE=file, PATH=path)
    assert code == 0, errors
    assert "starting\n" in errors
    assert "tensors: tensordb" in errors
    described = json.loads(out)
    assert described["endpoints"]["lambda"] == composed.url
    shown = without_passwords(composed.variables["SLSLAB_TENSORS"]).split()
    assert sorted(described["endpoints"]["tensors"]) == sorted(shown)
    status = json.loads(slslab(composed.url, "status", "--json")[1])
    assert status == {"up": True, **described}
    healthy = {one["part"] for one in status["services"] if one["healthy"]}
    assert healthy == {"lambda", "s3", "states", "tensors", "queue"} | runnable()
    _, table, _ = slslab(composed.url, "status", "--stack", "compose")
    assert table.count("healthy") == len(healthy)
    assert "slslab S3" in table
    assert slslab(composed.url, "status", "--stack", "embedded")[0] == 1
    assert slslab(composed.url, "down", PATH=path)[2].endswith("slslab is down.\n")
    assert slslab(composed.url, "down", PATH=path)[2] == "slslab wasn't up.\n"
    files = f"-f {file} -f {tmp_path}/compose/offline.yml"
    calls = [
        "compose version",
        f"compose {files} up -d --scale tensors=2",
        f"compose {files} down --volumes --remove-orphans",
    ]
    assert (programs / "calls").read_text().splitlines() == calls
    # The offline images may be among the files already.
    named = f"{file}:{tmp_path}/compose/offline.yml"
    assert slslab(composed.url, "up", *options, COMPOSE_FILE=named, PATH=path)[0] == 0
    assert slslab(composed.url, "down", PATH=path)[0] == 0
    assert (programs / "calls").read_text().splitlines() == [*calls, *calls]


def test_up_without_compose_or_with_one_that_fails(composed: Composed, slslab: Command, tmp_path: Path) -> None:
    (tmp_path / "docker-compose.yml").touch()
    options = ("up", "--stack", "compose")
    file = str(tmp_path / "docker-compose.yml")
    (tmp_path / "empty").mkdir()
    code, _, errors = slslab(composed.url, *options, COMPOSE_FILE=file, PATH=str(tmp_path / "empty"))
    assert (code, "Neither `docker compose` nor `docker-compose` is installed" in errors) == (3, True)
    path = f"{engine(tmp_path / 'bin', 'docker-compose', code=14)}:{tmp_path / 'empty'}"
    code, _, errors = slslab(composed.url, *options, COMPOSE_FILE=file, PATH=path)
    assert (code, "ended with exit code 14" in errors) == (3, True)
    code, _, errors = slslab(composed.url, *options, COMPOSE_FILE=f"{tmp_path}/none.yml")
    assert (code, f"There is no file {tmp_path}/none.yml" in errors) == (2, True)
    of_embedded = [(("--stack", "compose", *option), option[0]) for option in (("--port", "1"), ("--code", "."))]
    for wrong, named in (*of_embedded, (("--offline",), "--offline")):
        code, _, errors = slslab(composed.url, "up", *wrong)
        assert (code, f"{named} does not apply to --stack" in errors) == (2, True)


def test_addresses_that_are_none_are_refused() -> None:
    with pytest.raises(RequestError, match="is not an emulator's address"):
        RemoteEmulator("http://127.0.0.1:port")


def test_a_server_that_is_something_else_is_in_trouble_and_no_error() -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"services": {}}')

        def log_message(self, *_: Any) -> None:
            return

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        (found,) = examine({"s3": [f"http://127.0.0.1:{server.server_port}"]}, {})
    assert not found.as_document()["healthy"]
