"""An execution environment as the function sees it, and what is left of it after a failure."""

import asyncio
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.emulator.lambda_.registry import make_functions

from slslab.aws.limits import lambda_limits
from slslab.host.cgroup_accounts import GroupAccounts
from slslab.host.procfs import Pressure, Sample
from slslab.lambda_.configuration import Function
from slslab.lambda_.emulator import Emulator
from slslab.lambda_.environment import Environment, LocalHost
from slslab.lambda_.hosts import PhaseEnd
from slslab.lambda_.log_events import LogEvents
from slslab.lambda_.runtime_api import RuntimeApi
from slslab.lambda_.runtimes import OWN
from slslab.run.records import InvocationRecord

pytestmark = pytest.mark.server

Deploy = Callable[..., str]
Invoke = Callable[..., Any]
SEEN = """
import os, resource

def handler(event, context):
    limits = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in event or ()}
    return {"environment": dict(os.environ), "limits": limits, "stream": context.log_stream_name}
"""


@pytest.fixture
def isolated(emulator: Emulator) -> Emulator:
    if not emulator.isolation.mode or emulator.containers is not None:
        pytest.skip(f"this process isn't in namespaces: {emulator.isolation.description}")
    return emulator


def test_an_empty_control_group_stays_frozen_where_the_kernel_then_freezes_others_faster(isolated: Emulator) -> None:
    if "freezer" not in isolated.hierarchy.parents:
        pytest.skip("version 1 of control groups has a freezer")
    state = isolated.hierarchy.parents["freezer"] / "frozen" / "freezer.state"
    assert state.read_text() == "FROZEN\n"


def test_l17_the_variables_of_a_function(
    isolated: Emulator, deploy: Deploy, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"/leaked:{os.environ['PATH']}")
    name = deploy(SEEN, MemorySize=256, Environment={"Variables": {"KEY": "value", "AWS_XRAY_CONTEXT_MISSING": "own"}})
    answer = invoke(name).payload
    seen = answer["environment"]
    patterns = {
        "AWS_ACCESS_KEY_ID": r"ASIA\w+",
        "AWS_SECRET_ACCESS_KEY": r"\S+",
        "AWS_SESSION_TOKEN": r"\S+",
        "AWS_LAMBDA_RUNTIME_API": r"127\.0\.0\.1:\d+",
        "AWS_LAMBDA_LOG_STREAM_NAME": r"\d{4}/\d\d/\d\d/\[\$LATEST\][0-9a-f]{32}",
        "_X_AMZN_TRACE_ID": r"Root=1-[0-9a-f]{8}-[0-9a-f]{24};Parent=[0-9a-f]{16};Sampled=0",
    }
    for variable, pattern in patterns.items():
        assert re.fullmatch(pattern, seen.pop(variable)), variable
    assert re.fullmatch(patterns["AWS_LAMBDA_LOG_STREAM_NAME"], answer["stream"])
    # The stack's own.
    own = {key: seen.pop(key) for key in list(seen) if re.match("SLSLAB_|AWS_ENDPOINT_URL", key)}
    assert "SLSLAB_CLOCK_FILE" in own
    assert seen == {
        "_HANDLER": "app.handler",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_REGION": "us-east-1",
        "AWS_EXECUTION_ENV": f"AWS_Lambda_{OWN}",
        "AWS_LAMBDA_FUNCTION_NAME": name,
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{name}",
        "AWS_XRAY_CONTEXT_MISSING": "own",
        "AWS_XRAY_DAEMON_ADDRESS": "169.254.79.129:2000",
        "_AWS_XRAY_DAEMON_ADDRESS": "169.254.79.129",
        "_AWS_XRAY_DAEMON_PORT": "2000",
        "KEY": "value",
        "LAMBDA_RUNTIME_DIR": "/var/runtime",
        "LAMBDA_TASK_ROOT": "/var/task",
        "LANG": "en_US.UTF-8",
        "LD_LIBRARY_PATH": ":".join(
            (
                *("/var/lang/lib", "/lib64", "/usr/lib64", "/var/runtime", "/var/runtime/lib"),
                *("/var/task", "/var/task/lib", "/opt/lib"),
            )
        ),
        "PATH": "/var/lang/bin:/usr/local/bin:/usr/bin/:/bin:/opt/bin",
        "PWD": "/var/task",
        "PYTHONPATH": "/var/runtime",
        "TZ": ":UTC",
    }
    log = next(isolated.logs.glob(f"{name}-*.log")).read_text()
    assert f"\tLog Stream: {answer['stream']}\n" in log, "the environment's log names the stream"


@pytest.mark.usefixtures("isolated")
def test_l17_the_variables_that_a_function_sets_come_before_lambdas(deploy: Deploy, invoke: Invoke) -> None:
    own = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": "/var/task/libs", "TZ": "Europe/Riga", "LANG": "C.UTF-8"}
    seen = invoke(deploy(SEEN, Environment={"Variables": own})).payload["environment"]
    assert {key: seen[key] for key in own} == own


def test_l17_every_environment_has_a_log_stream_of_its_own(isolated: Emulator, deploy: Deploy, invoke: Invoke) -> None:
    name = deploy(SEEN)
    streams = [invoke(name).payload["stream"], invoke(name).payload["stream"]]
    isolated.evict(name)
    streams.append(invoke(name).payload["stream"])
    assert streams[0] == streams[1] != streams[2]


@pytest.mark.parametrize(("memory_mb", "processes"), [(128, 742), (256, 1024)])
def test_l17_resource_limits_are_the_recorded_ones(
    isolated: Emulator, deploy: Deploy, invoke: Invoke, memory_mb: int, processes: int
) -> None:
    name = deploy(SEEN, MemorySize=memory_mb)
    limits = invoke(name, ["NOFILE", "MEMLOCK", "CORE", "NPROC"]).payload["limits"]
    if not isolated.isolation.own_uid:
        limits.pop("NPROC")  # there the control group counts processes
    expected = {"NOFILE": [1024] * 2, "MEMLOCK": [65_536] * 2, "CORE": [10_737_418_240] * 2, "NPROC": [processes] * 2}
    assert limits == {name: expected[name] for name in limits}


WRAPPED = """
import os, sys

def handler(event, context):
    return [os.environ.get("WRAPPED"), sys.flags.optimize, sys.argv]
"""


@pytest.mark.usefixtures("isolated")
def test_l5_a_wrapper_script_starts_the_runtime(deploy: Deploy, invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(WRAPPED)
    wrapper = tmp_path / "wrapper"
    # As in AWS's example: an option of the interpreter goes before the last argument, which is the runtime.
    wrapper.write_text('#!/bin/bash\nargs=("$@")\nexport WRAPPED="$*"\nexec "${args[0]}" -O "${args[@]:1}"\n')
    wrapper.chmod(0o755)
    name = deploy(tmp_path, Environment={"Variables": {"AWS_LAMBDA_EXEC_WRAPPER": "/var/task/wrapper"}})
    command = [f"/var/lang/bin/{OWN}", "/var/runtime/bootstrap.py"]
    assert invoke(name).payload == [" ".join(command), 1, command[1:]]


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize(("wrapper", "status"), [("/opt/missing", 127), ("/var/task/app.py", 126), ("/tmp", 126)])
def test_l5_a_wrapper_that_cannot_run_ends_the_runtime(
    wrapper: str, status: int, deploy: Deploy, invoke: Invoke
) -> None:
    name = deploy(WRAPPED, Environment={"Variables": {"AWS_LAMBDA_EXEC_WRAPPER": wrapper}})
    answer = invoke(name, check=False)
    assert (answer.status, answer.error) == (200, "Unhandled")
    assert answer.payload == {
        "errorType": "Runtime.ExitError",
        "errorMessage": f"RequestId: {answer.request_id} Error: Runtime exited with error: exit status {status}",
    }


FAILING = """
import os, tempfile, time

started = time.monotonic()
time.sleep(0.2)

def handler(event, context):
    file = os.path.join(tempfile.gettempdir(), "kept")
    if event == "write":
        open(file, "w").write("x")
    elif event == "time out":
        time.sleep(9)
    elif event == "exit":
        os._exit(7)
    elif event == "too much":
        held = bytes(range(256)) * (4096 * 400)
    return [os.path.exists(file), context.log_stream_name, started]
"""


@pytest.mark.parametrize(
    ("failure", "error_type"),
    [("time out", "Sandbox.Timedout"), ("exit", "Runtime.ExitError"), ("too much", "Runtime.OutOfMemory")],
)
def test_after_a_failure_the_same_environment_is_initialised_in_the_next_invocation(
    failure: str,
    error_type: str,
    emulator: Emulator,
    deploy: Deploy,
    invoke: Invoke,
    invocations: Sequence[InvocationRecord],
) -> None:
    if emulator.containers is not None:
        pytest.skip("a container's /tmp ends with it")
    # To exhaust the memory takes seconds of a busy host; only the time-out is waited for.
    name = deploy(FAILING, MemorySize=256, Timeout=2 if failure == "time out" else 30)
    kept, stream, started = invoke(name, "write").payload
    failed = invoke(name, failure, check=False)
    assert failed.payload["errorType"] == error_type
    after = invoke(name)
    warm = invoke(name)
    assert kept
    assert after.payload[:2] == [True, stream], "/tmp and the log stream are the environment's"
    assert after.payload[2] > started
    assert warm.payload == after.payload
    deadline = time.monotonic() + 20
    while len(invocations) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    first, second, third, fourth = invocations
    assert [record.cold_start for record in invocations] == [True, False, False, False]
    assert {record.environment for record in invocations} == {first.environment}
    assert first.init_ms is not None
    assert [second.init_ms, third.init_ms, fourth.init_ms] == [None] * 3
    assert third.duration_ms > 200, "the suppressed init is a part of the duration"
    assert third.billed_ms == -(-third.duration_ms // 1)
    assert fourth.duration_ms < 200
    assert third.cpu_ms <= third.duration_ms + third.host_delay_ms, "and has its own CPU time alone"
    assert third.cpu_ms > fourth.cpu_ms
    assert third.max_memory_mb < 100
    assert "Init Duration" not in after.log
    assert "INIT_REPORT" not in after.log
    log = next(emulator.logs.glob(f"{name}-*.log")).read_text()
    assert log.count("INIT_START") == 1


@pytest.mark.usefixtures("isolated")
def test_a_reset_leaves_no_descriptor_of_the_processes_that_it_ended(deploy: Deploy, invoke: Invoke) -> None:
    name = deploy(FAILING, Timeout=3)
    opened = []
    for _ in range(2):
        invoke(name, "time out", check=False)
        invoke(name)
        opened.append(pidfds())
    assert len(set(opened)) == 1, opened


def pidfds() -> int:
    """How many descriptors of processes this process has open."""
    folder, count = Path("/proc/self/fd"), 0
    for descriptor in os.listdir(folder):
        with suppress(OSError):  # that of the list itself
            count += os.readlink(folder / descriptor) in ("anon_inode:[pidfd]", "pidfd:")
    return count


def test_a_failing_initialisation_is_repeated_in_the_same_environment(
    deploy: Deploy, invoke: Invoke, invocations: Sequence[InvocationRecord]
) -> None:
    name = deploy("raise ValueError('never')\n", MemorySize=512)
    answers = [invoke(name, check=False) for _ in range(2)]
    assert [answer.payload["errorMessage"] for answer in answers] == ["never"] * 2
    deadline = time.monotonic() + 20
    while len(invocations) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert invocations[0].environment == invocations[1].environment
    assert [record.cold_start for record in invocations] == [True, False]
    assert invocations[1].init_ms is None
    assert invocations[1].duration_ms > 1


def test_an_environment_that_was_reset_ends_like_any_other(isolated: Emulator, deploy: Deploy, invoke: Invoke) -> None:
    name = deploy(FAILING, Timeout=2)
    invoke(name, "write")
    invoke(name, "exit", check=False)
    assert list((isolated.home / "environments").glob(f"{name}-*"))
    assert isolated.evict(name) == 1
    assert not list((isolated.home / "environments").glob(f"{name}-*"))
    groups = {group for parent in isolated.hierarchy.parents.values() for group in parent.glob(f"{name}-*")}
    assert not groups
    assert invoke(name).payload[0] is False, "a new environment has an empty /tmp"


class Accounts(GroupAccounts):
    """Accounts of a control group that has used some CPU time."""

    def __init__(self) -> None:
        super().__init__(2, {})
        self.used_ns = 0

    def cpu_ns(self) -> int:
        return self.used_ns

    def throttled_ns(self) -> int:
        return self.used_ns


class Exiting:
    """A sandbox with a runtime that uses 20 ms of CPU time and exits."""

    failure, freezes, ended_ns = "", False, None

    def __init__(self, accounts: Accounts) -> None:
        self.accounts = accounts
        self.began: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()
        self.began.set_result(Sample(time.monotonic_ns(), 0, 0, {}))
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.exited.set_result(0)
        self.closed = False
        self.streams = ()
        accounts.used_ns += 20_000_000

    def pids(self) -> list[int]:
        return []

    def files_bytes(self) -> int:
        return 0

    async def end(self) -> None:
        pass

    async def close(self) -> None:
        self.closed = True


class ExitingSandboxes(LocalHost):
    """Makes them, each with a new control group, as containers have, or with its predecessor's."""

    address = "127.0.0.1"

    def __init__(self, *, inherit: bool) -> None:
        super().__init__(lambda_limits(), 1024)
        self.made: list[Exiting] = []
        self._inherit = inherit

    async def runtime(self, function: Function) -> str:
        raise AssertionError(function.name)

    async def start(self, _environment: Environment, former: Any = None) -> Any:
        self.made.append(Exiting(former.accounts if former is not None and self._inherit else Accounts()))
        return self.made[-1]


async def start_twice(home: Path, sandboxes: ExitingSandboxes, before: Callable[[], object] = lambda: None) -> PhaseEnd:
    """Start an environment, and once more after a reset; `before` is called in between."""
    events = LogEvents(home, home, 4096)
    sandboxes.pressure = Pressure()
    sandboxes.share(
        emulator_id="e", home=home, variables={}, credentials=lambda _: {}, open_log=events.open, record=lambda _: None
    )
    environment = sandboxes.make(make_functions("f").entry("f").latest, 1)
    try:
        await environment.start(5)
        await environment.reset()
        before()
        return await environment.start(5)
    finally:
        await environment.stop()
        events.close()
        sandboxes.pressure.close()


@pytest.mark.parametrize("inherit", [True, False])
def test_an_initialisation_after_a_reset_is_charged_its_own_cpu_time_alone(tmp_path: Path, inherit: bool) -> None:
    assert asyncio.run(start_twice(tmp_path, ExitingSandboxes(inherit=inherit))).cpu_ns == 20_000_000


def test_a_runtime_that_is_being_ended_still_reaches_its_api(tmp_path: Path) -> None:
    """Otherwise it would write an error into the function's log."""
    reached: list[str] = []

    class Connecting(ExitingSandboxes):
        async def start(self, environment: Environment, former: Any = None) -> Any:
            sandbox = await super().start(environment, former)

            async def end() -> None:
                host, _, port = environment.variables()["AWS_LAMBDA_RUNTIME_API"].partition(":")
                _reader, writer = await asyncio.open_connection(host, int(port))
                writer.close()
                reached.append(port)

            sandbox.end = end
            return sandbox

    asyncio.run(start_twice(tmp_path, Connecting(inherit=True)))
    assert len(reached) == 2


def test_a_restart_that_the_host_refuses_leaves_no_former_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_api: RuntimeApi) -> str:
        raise OSError("Too many open files")

    sandboxes = ExitingSandboxes(inherit=True)
    with pytest.raises(OSError, match="Too many open files"):
        asyncio.run(start_twice(tmp_path, sandboxes, lambda: monkeypatch.setattr(RuntimeApi, "start", refuse)))
    assert [sandbox.closed for sandbox in sandboxes.made] == [True]


def test_an_environment_can_be_ended_after_a_listener_failed(tmp_path: Path) -> None:
    def fail(_record: object) -> None:
        raise RuntimeError("the listener failed")

    sandboxes = ExitingSandboxes(inherit=True)
    started = start_twice(tmp_path, sandboxes, lambda: setattr(sandboxes, "record", fail))
    with pytest.raises(RuntimeError, match="the listener failed"):
        asyncio.run(asyncio.wait_for(started, 20))
    assert sandboxes.made[-1].closed
