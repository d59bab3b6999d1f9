"""`slslab up`, `status`, `down`: local endpoints for anyone's client, here the aws command and boto3."""

import http.client
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import botocore.config
import psutil
import pytest
from botocore.exceptions import ClientError
from tests import commands

from slslab.aws.clients import signed_headers
from slslab.aws.keys import Pair
from slslab.errors import HostError
from slslab.host.reaper import marked_processes
from slslab.testing import ROLE, create_function, packaged
from slslab.up import embedded
from slslab_workers.channels.endpoints import queue_url, tensor_urls
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.queues import open_queues
from slslab_workers.channels.tensors import TensorDatabase

pytestmark = pytest.mark.server

PAYLOAD = b'{"name": "you"}'
HANDLER = "def handler(event, context):\n    return {'hello': event['name']}\n"


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    """The environment of commands that keep their service's state in the test's own directory."""
    return commands.state_in(tmp_path)


def slslab(state: dict[str, str], *arguments: str) -> commands.Done:
    return commands.slslab(*arguments, variables=state)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the shared service: its state, and a function's code in two directories."""
    directory = tmp_path_factory.mktemp("up")
    (directory / "state").mkdir(mode=0o755)
    for name in ("named", "other"):
        (directory / name / "code").mkdir(parents=True)
        (directory / name / "code" / "app.py").write_text(HANDLER)
    return directory


@pytest.fixture(scope="module")
def shared(home: Path) -> dict[str, str]:
    """The environment of commands that find the shared service."""
    return commands.state_in(home)


@pytest.fixture(scope="module")
def service(home: Path, shared: dict[str, str]) -> Iterator[dict[str, Any]]:
    """A service in the background, started in `home` for the code in one of its directories."""
    options = ("--port", "0", "--s3-port", "0", "--edge-port", "0", "--credentials", "test:te/st", "--code", "named")
    started = commands.slslab("up", "--detach", *options, "--json", variables=shared, directory=home)
    described: dict[str, Any] = started.document
    yield {**described, **slslab(shared, "env", "--json").document["variables"]}
    assert slslab(shared, "down").code == 0
    os.waitpid(described["pid"], 0)


def client(service: dict[str, Any], name: str) -> Any:
    config = botocore.config.Config(retries={"total_max_attempts": 1}, max_pool_connections=16)
    session: Any = boto3.session.Session()
    return session.client(
        name,
        endpoint_url=service["endpoints"]["states" if name == "stepfunctions" else name],
        region_name="us-east-1",
        aws_access_key_id=service["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=service["AWS_SECRET_ACCESS_KEY"],
        config=config,
    )


def test_env_is_for_a_shell(service: dict[str, Any], shared: dict[str, str]) -> None:
    printed = slslab(shared, "env").out
    asked = 'eval "$PRINTED"; env -0'
    hostile = {"AWS_PROFILE": "nobody", "AWS_SESSION_TOKEN": "foreign", "PRINTED": printed}
    done = subprocess.run(["bash", "-c", asked], env=shared | hostile, capture_output=True, text=True, check=True)
    variables = dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)
    assert variables.items() >= slslab(shared, "env", "--json").document["variables"].items()
    assert not {"AWS_PROFILE", "AWS_SESSION_TOKEN"} & variables.keys()
    assert variables["AWS_ENDPOINT_URL_LAMBDA"] == service["endpoints"]["lambda"]


def test_only_their_user_reads_the_file_of_the_keys(service: dict[str, Any], home: Path) -> None:
    """The directory was there before, with another mode."""
    file = home / "state" / "up.json"
    assert service["AWS_SECRET_ACCESS_KEY"] in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_service_of_killed_tests_ends(state: dict[str, str]) -> None:
    killed = (
        "import os; from tests import commands; "
        "up = commands.slslab('up', '--detach', '--port', 0, '--s3-port', 0, '--edge-port', 0, '--json'); "
        "print(up.document['pid'], flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", killed], env=state, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, check=False
    )
    assert done.returncode == -signal.SIGKILL
    try:
        service = os.pidfd_open(int(done.stdout))
    except ProcessLookupError:
        return
    try:
        assert select.select([service], [], [], 60)[0], "it still runs"
    finally:
        os.close(service)


@pytest.mark.parametrize("objects", [0, 3])
def test_down_waits_as_long_as_files_become_fewer(
    objects: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service removes an object in each period, and then ends or hangs."""
    files = [tmp_path / "home" / "s3" / str(number) for number in range(objects)]
    (tmp_path / "home" / "s3").mkdir(parents=True)
    for file in files:
        file.write_bytes(b"")
    service = subprocess.Popen(["sleep", "600"])
    real, periods = select.select, list[float]()

    def wait(descriptors: list[int], _writing: Any, _errors: Any, limit_s: float) -> Any:
        periods.append(limit_s)
        if limit_s == embedded.SILENT_S:
            return [], [], []
        if not files:
            return real(descriptors, [], [], 60) if objects else ([], [], [])
        files.pop().unlink()
        return [], [], []

    monkeypatch.setenv("SLSLAB_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(embedded, "status", lambda: {"pid": service.pid, "logs": str(tmp_path / "home" / "logs")})
    monkeypatch.setattr(select, "select", wait)
    try:
        if objects:
            assert embedded.stop(lambda _: None)
        else:
            with pytest.raises(HostError, match="didn't stop, and has removed no file for 60 s"):
                embedded.stop(lambda _: None)
    finally:
        service.kill()
        service.wait()
    assert periods == [embedded.SILENT_S, *[embedded.STOP_LIMIT_S] * (objects + 1)]


def test_without_a_service_there_is_no_env(state: dict[str, str]) -> None:
    done = slslab(state, "env")
    assert (done.code, done.out) == (1, "")
    assert "slslab is not up" in done.err


def test_credentials_that_are_none_are_refused(state: dict[str, str]) -> None:
    for options in (["--credentials", "test"], ["--detach", "--credentials", "a b:c"]):
        done = slslab(state, "up", "--port", "0", "--s3-port", "0", "--edge-port", "0", *options)
        assert done.code == 2
        assert "and its secret can't be used as keys" in done.err
        assert "Hint: use KEY:SECRET" in done.err


def test_up_status_down(state: dict[str, str]) -> None:
    assert slslab(state, "status").code == 1
    assert json.loads(slslab(state, "status", "--json").out) == {"schema": 1, "up": False, "endpoints": {}}
    started = slslab(
        state, "up", "--detach", "--port", "0", "--s3-port", "0", "--edge-port", "0",
        "--limit", "account_concurrency=7", "--tensor-databases", "2", "--json",
    )  # fmt: skip
    assert started.code == 0, started.err
    try:
        described = json.loads(slslab(state, "status", "--json").out)
        services = {one["part"]: one for one in described.pop("services")}
        assert described == {"up": True} | json.loads(started.out)
        variables = slslab(state, "env", "--json").document["variables"]
        secrets = {variables["AWS_SECRET_ACCESS_KEY"], urlsplit(variables["SLSLAB_QUEUE_URL"]).password}
        assert not any(secret in started.out for secret in secrets)
        assert {part: one["name"] for part, one in services.items()} == described["stack"]
        assert all(one["healthy"] for one in services.values())
        assert services["s3"]["host"] == described["endpoints"]["s3"]
        table = slslab(state, "status").out
        assert table.count("healthy") == len(services) == 6
        assert described["limits"] == {"account_concurrency": 7}
        lambda_client = client(described | variables, "lambda")
        assert lambda_client.get_account_settings()["AccountLimit"]["ConcurrentExecutions"] == 7
        s3_client = client(described | variables, "s3")
        s3_client.create_bucket(Bucket="bucket")
        assert [bucket["Name"] for bucket in s3_client.list_buckets()["Buckets"]] == ["bucket"]
        states_client = client(described | variables, "stepfunctions")
        assert states_client.list_state_machines()["stateMachines"] == []
        endpoints = described["endpoints"]
        assert len({*endpoints["tensors"], endpoints["queue"]}) == 3
        for url in tensor_urls(variables):
            with TensorDatabase(url, Tracer(lambda _event: None)) as database:
                assert database.ping()
        with open_queues(queue_url(variables), Tracer(lambda _event: None)) as queues:
            queues.declare("queue")
            queues.publish("queue", b"hello", "other")
            message = queues.consume("queue", 5, "other")
            assert message is not None
            assert message.body == b"hello"
        lambda_client.close()
        s3_client.close()
        states_client.close()
        again = slslab(state, "up", "--detach")
        assert again.code == 2
        assert f"slslab is already running at {described['endpoints']['lambda']}" in again.err
        assert "Hint: " in again.err
    finally:
        removed = "Functions, objects and logs are removed. The record stays until the next `slslab up`.\n"
        assert slslab(state, "down").err.endswith(f"{removed}slslab is down.\n")
    os.waitpid(described["pid"], 0)
    assert not psutil.pid_exists(described["pid"])
    assert not Path(described["logs"]).exists()
    assert not Path(state["SLSLAB_STATE"]).exists()
    assert slslab(state, "down").err == "slslab wasn't up.\n"


def test_a_service_that_dies_is_said_and_no_longer_healthy(state: dict[str, str]) -> None:
    started = slslab(state, "up", "--detach", "--port", "0", "--s3-port", "0", "--edge-port", "0", "--json")
    assert started.code == 0, started.err
    try:
        described = started.document
        variables = slslab(state, "env", "--json").document["variables"]
        states_client = client(described | variables, "stepfunctions")
        states_client.list_state_machines()
        states_client.close()
        for process in psutil.Process(described["pid"]).children():
            if {"slslab.statemachines", "slslab.tensordb"} & set(process.cmdline()):
                process.kill()
        deadline = time.monotonic() + 60
        while len((now := slslab(state, "status", "--json").document)["ended"]) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert {one["part"] for one in now["services"] if not one["healthy"]} == {"states", "tensors", "queue"}
        sentence = "The embedded Step Functions ended (killed by SIGKILL; it may take 4,096 MB of memory). To restart"
        assert now["ended"]["states"].startswith(sentence)
        log = Path(state["SLSLAB_STATE"]) / "up.log"
        assert sentence in log.read_text()
        os.kill(described["pid"], signal.SIGTERM)
        os.waitpid(described["pid"], 0)
        gone = slslab(state, "status")
        assert (gone.code, f"Its output is in {log}." in gone.err) == (1, True)
        assert log.read_text().endswith("SIGTERM stopped slslab up.\n")
    finally:
        slslab(state, "down")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--limit", "no_such=3"], 2, "There is no limit 'no_such'"),
        (["--limit", "memory_mb=3"], 2, "The limit memory_mb cannot be 3."),
        (["--limit", "processors=3"], 2, "There is no limit 'processors' that can be changed"),
        (["--account", "old"], 2, "There is no account 'old'"),
        (["--limit", "idle_s=soon"], 2, "needs a number, not 'soon'"),
        (["--template", "no_such_module"], 3, "The process that forks environments couldn't start"),
        (["--template", "awslambdaric"], 2, "awslambdaric cannot be in a template"),
        (["--template", "json", "--strict-packages"], 2, "A template has the host's packages"),
        (["--port", "taken"], 3, "is taken by "),
        (["--s3-port", "taken"], 3, "choose another with --s3-port"),
    ],
)
@pytest.mark.parametrize("detach", [[], ["--detach"]])
def test_what_cannot_start_says_why(
    state: dict[str, str], detach: list[str], options: list[str], code: int, message: str
) -> None:
    with listener() as taken:
        options = [option.replace("taken", str(taken.getsockname()[1])) for option in options]
        ended = slslab(state, "up", *detach, *options)
    assert ended.code == code, ended.err
    assert message in ended.err
    assert "Hint: " in ended.err
    assert "Traceback" not in ended.err
    assert slslab(state, "status").code == 1


def test_a_wrong_option_leaves_the_log_of_the_service_before(state: dict[str, str]) -> None:
    log = Path(state["SLSLAB_STATE"]) / "up.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("why the last one ended")
    assert slslab(state, "up", "--detach", "--limit", "no_such=3").code == 2
    assert log.read_text() == "why the last one ended"


@pytest.mark.parametrize("detach", [[], ["--detach"]])
def test_a_state_directory_that_cannot_be_made_is_refused(
    state: dict[str, str], tmp_path: Path, detach: list[str]
) -> None:
    (tmp_path / "file").touch()
    for directory, why in ((tmp_path / "file", "File exists"), (tmp_path / "file" / "below", "Not a directory")):
        wrong = state | {"SLSLAB_STATE": str(directory)}
        ended = slslab(wrong, "up", *detach, "--port", "0", "--s3-port", "0", "--edge-port", "0")
        assert (ended.code, ended.out) == (3, "")
        assert f"The state directory {directory} cannot be used: {why}.\nHint: " in ended.err
        assert slslab(wrong, "status").code == 1


def listener() -> Any:
    import socket

    return socket.create_server(("127.0.0.1", 0))


def test_an_end_that_takes_long_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLSLAB_STATE", str(tmp_path))
    slow = (
        "import signal, time\nsignal.signal(15, lambda *_: (time.sleep(1), exit()))\nprint(flush=True)\nsignal.pause()"
    )
    for silent_s, lines in ((30.0, 0), (0.1, 1)):
        monkeypatch.setattr(embedded, "SILENT_S", silent_s)
        said: list[str] = []
        with subprocess.Popen([sys.executable, "-c", slow], stdout=subprocess.PIPE) as service:
            assert service.stdout is not None
            service.stdout.readline()
            monkeypatch.setattr(embedded, "status", lambda pid=service.pid: {"pid": pid, "logs": str(tmp_path)})
            assert embedded.stop(said.append)
        assert len(said) == lines
    assert said[0].startswith("slslab is stopping: ")


def test_asking_for_the_service_does_not_keep_one_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLSLAB_STATE", str(tmp_path / "state"))
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            assert embedded.status() is None

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            for _ in range(200):
                with embedded._state() as (_, locked):
                    assert locked
        finally:
            over.set()
        asking.result()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_in_the_foreground_it_ends_with_its_signal_and_leaves_its_record_alone(
    state: dict[str, str], number: signal.Signals
) -> None:
    command = [sys.executable, "-m", "slslab", "up", "--port", "0", "--s3-port", "0", "--edge-port", "0", "--json"]
    process = subprocess.Popen(command, env=state, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while slslab(state, "status").code:
        assert process.poll() is None, process.communicate()
    described = json.loads(slslab(state, "status", "--json").out)
    lambda_client = client(described | slslab(state, "env", "--json").document["variables"], "lambda")
    create_function(lambda_client, "f", HANDLER)
    lambda_client.invoke(FunctionName="f", Payload=b'{"name": "you"}')["Payload"].read()
    lambda_client.close()
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert json.loads(output)["endpoints"] == described["endpoints"]
    assert "f REPORT RequestId: " in errors
    assert process.returncode == (0 if number is signal.SIGINT else -number)
    assert slslab(state, "status").code == 1
    mark = Path(described["logs"]).parent.name.removeprefix("slslab-")
    deadline = time.monotonic() + 15
    while (marked_processes(mark) or Path(described["logs"]).parent.exists()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert marked_processes(mark) == []
    assert not Path(described["logs"]).parent.exists()
    shown = slslab(state, "show", "up", "--json").document
    assert (shown["status"], shown["invocations"]) == ("done" if number is signal.SIGINT else "interrupted", 1)
    if number is signal.SIGKILL:
        assert shown["error"]["type"] == "Killed"
        assert "`slslab up` was killed" in slslab(state, "show", "up").out


def test_functions_code_is_below_the_working_directory_or_those_named(
    state: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots: list[list[Path]] = []
    monkeypatch.setattr(embedded, "serve", lambda options, *_: roots.append([*options.roots()]))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    for options in ([], ["--code", "one", "--code", str(tmp_path / "two")]):
        assert commands.slslab("up", *options, variables=state, directory=tmp_path).code == 0
    assert roots == [[tmp_path], [tmp_path / "one", tmp_path / "two"]]
    missing = commands.slslab("up", "--code", "missing", variables=state, directory=tmp_path)
    assert (missing.code, "Directory 'missing' does not exist" in missing.err) == (2, True)
    remove = "import os; from slslab.cli.main import main; os.rmdir(os.getcwd()); main(['up'])"
    gone = subprocess.run(
        [sys.executable, "-c", remove], cwd=tmp_path / "one", env=state, capture_output=True, text=True, check=False
    )
    assert (gone.returncode, gone.stderr) == (
        2,
        "Error: The working directory no longer exists.\nHint: cd to another one.\n",
    )


def test_a_service_in_the_background_has_the_code_directories_of_its_start(service: dict[str, Any], home: Path) -> None:
    with closing(client(service, "lambda")) as lambda_client:
        create_function(lambda_client, "f", home / "named" / "code")
        answer = lambda_client.invoke(FunctionName="f", Payload=b'{"name": "you"}')
        assert json.loads(answer["Payload"].read()) == {"hello": "you"}
        with pytest.raises(ClientError, match=rf"that hot reload may use \({home}/named\)\. Start slslab up with"):
            create_function(lambda_client, "g", home / "other" / "code")
        lambda_client.delete_function(FunctionName="f")


def test_the_aws_command_creates_invokes_and_deletes(
    service: dict[str, Any], shared: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "f.zip").write_bytes(packaged(HANDLER))
    environment = shared | {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        **{name: value for name, value in service.items() if name.startswith("AWS_")},
        # As of clients that were written for LocalStack; the owner's do as well.
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "te/st",
    }

    def aws(*arguments: str) -> Any:
        command = [str(Path(sys.executable).with_name("aws")), "lambda", *arguments, "--output", "json"]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        if done.returncode:
            return done.stderr
        return json.loads(done.stdout or "null")

    created = aws(
        *("create-function", "--function-name", "hello", "--runtime", "python3.12", "--role", ROLE),
        *("--handler", "app.handler", "--zip-file", "fileb://f.zip", "--memory-size", "256", "--timeout", "5"),
    )
    assert (created["MemorySize"], created["State"]) == (256, "Pending")
    assert aws("wait", "function-active-v2", "--function-name", "hello") is None
    answer = aws(
        *("invoke", "--function-name", "hello", "--payload", '{"name": "world"}', "--log-type", "Tail"), "answer.json"
    )
    assert answer["StatusCode"] == 200, answer
    assert json.loads((tmp_path / "answer.json").read_text()) == {"hello": "world"}
    assert [f["FunctionName"] for f in aws("list-functions")["Functions"]] == ["hello"]
    assert aws("publish-version", "--function-name", "hello")["Version"] == "1"
    assert aws("delete-function", "--function-name", "hello") == {"StatusCode": 204}
    assert "ResourceNotFoundException" in aws("get-function", "--function-name", "hello")


@pytest.mark.exhaustive
def test_twenty_thousand_invocations_leave_the_emulator_as_it_was(service: dict[str, Any]) -> None:
    lambda_client = client(service, "lambda")
    names = [f"f{number}" for number in range(10)]
    for name in names:
        create_function(lambda_client, name, HANDLER)
    process = psutil.Process(service["pid"])

    # Without boto3, which took a quarter of this test's processor time.
    address = service["endpoints"]["lambda"].removeprefix("http://")

    owner = Pair(service["AWS_ACCESS_KEY_ID"], service["AWS_SECRET_ACCESS_KEY"])
    paths = [f"/2015-03-31/functions/{name}/invocations" for name in names]
    # Signatures hold for five minutes.
    headers = [signed_headers(owner, "POST", service["endpoints"]["lambda"] + path, PAYLOAD) for path in paths]

    def invoke(number: int) -> int:
        connection = idle.pop()
        connection.request("POST", paths[number % 10], PAYLOAD, headers[number % 10])
        answer = json.loads(connection.getresponse().read())
        idle.append(connection)
        return int(answer == {"hello": "you"})

    def figures() -> tuple[float, int, int, int]:
        with process.oneshot():
            return process.memory_info().rss / 2**20, process.num_fds(), process.num_threads(), len(process.children())

    with ThreadPoolExecutor(4) as pool, ExitStack() as stack:
        idle = [stack.enter_context(closing(http.client.HTTPConnection(address))) for _ in range(4)]
        assert sum(pool.map(invoke, range(4_000))) == 4_000
        early = figures()
        assert sum(pool.map(invoke, range(16_000))) == 16_000
        late = figures()
    lambda_client.close()
    # Four connections may find up to four environments of a function busy, in one half and not in the other: each has
    # a few descriptors.
    assert late[0] - early[0] < 10, f"memory grew from {early[0]:.0f} to {late[0]:.0f} MB"
    assert late[1] - early[1] <= 20 * 10, f"descriptors grew from {early[1]} to {late[1]}"
    assert late[2] - early[2] <= 2, f"threads grew from {early[2]} to {late[2]}"
    assert late[3] == early[3]
