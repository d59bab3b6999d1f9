"""What breaks off a driver: the end of a server that the run needs, and a trace that cannot be written."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slslab.errors import HostError
from slslab.host.server_process import ServerProcess
from slslab.run.log import TraceWriter, read_log
from slslab_lab.runs.planning import architectures, make_plan
from slslab_lab.runs.recorder import Recorder
from slslab_lab.runs.watch import Watch
from slslab_workers.architecture import RunFailed

pytestmark = pytest.mark.server

Start = Callable[[str], ServerProcess]


class Shell(ServerProcess):
    """A server that is a shell's program."""

    title, hint = "The shell", ""

    def __init__(self, program: str) -> None:
        super().__init__({})
        self._program = program

    def _start(self) -> None:
        self._popen(["/bin/sh", "-c", self._program], dict(os.environ), stdin=subprocess.DEVNULL)


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[ServerProcess] = []

    def call(program: str) -> ServerProcess:
        started.append(Shell(program).__enter__())
        return started[-1]

    yield call
    for server in started:
        server.__exit__(None, None, None)


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    with Watch(tmp_path) as watch:
        yield watch


def break_off(watch: Watch, **servers: ServerProcess) -> str:
    """Wait for ever; return why that ended."""
    before = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(RunFailed) as failed, watch.watched(servers):
        threading.Event().wait()
    assert signal.getsignal(signal.SIGUSR1) is before
    assert "watch" not in {thread.name for thread in threading.enumerate()}
    return f"{failed.value.type}: {failed.value.message}"


def test_a_server_that_exits(start: Start, watch: Watch, tmp_path: Path) -> None:
    store = start("echo no room; exit 3")
    assert break_off(watch, queue=start("exec sleep 600"), object_store=store) == (
        "StackFailed: the object store ended (exit status 3)"
    )
    assert (tmp_path / "object_store.log").read_text() == "no room\n"
    with pytest.raises(RunFailed, match="the object store ended"):
        watch.check()


def test_a_server_that_is_killed_also_before_the_block(start: Start, watch: Watch) -> None:
    server = start("exec sleep 600")
    os.kill(server.pid, signal.SIGKILL)
    assert break_off(watch, queue=server) == "StackFailed: the queue ended (killed by SIGKILL)"


def test_a_signal_that_comes_just_before_the_driver_waits_is_sent_again(
    start: Start, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []

    def lost_at_first(_thread: int, number: int) -> None:
        sent.append(number)
        if len(sent) > 1:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(signal, "pthread_kill", lost_at_first)
    assert break_off(watch, queue=start("exit 0")) == "StackFailed: the queue ended (exit status 0)"
    assert len(sent) == 3, "at the second the handler leaves alone what may hold a lock"


def test_the_end_of_a_server_is_the_cause_of_whatever_else_fails(start: Start, watch: Watch) -> None:
    def drive() -> None:
        with watch.watched({"queue": start("exit 0")}):
            try:
                threading.Event().wait()
            finally:
                raise ValueError("nobody answers")

    with pytest.raises(RunFailed, match="the queue ended"):
        drive()


def test_a_driver_that_ends_by_itself_is_left_alone(start: Start, watch: Watch) -> None:
    with watch.watched({"queue": start("exec sleep 600")}):
        pass
    watch.check()


def test_a_trace_that_cannot_be_written_ends_the_run_and_itself(
    watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(architectures()["allreduce"], {"dataset": "digits", "workers": 2}, {})
    path = tmp_path / "trace.jsonl"
    with TraceWriter(path, plan.run) as writer:
        recorder = Recorder(writer, plan, progress=None)  # type: ignore[arg-type]
        recorder.broken = watch.fail

        def write(_record: object) -> None:
            raise HostError("The trace cannot be written: No space left on device.", "")

        with monkeypatch.context() as full:
            full.setattr(writer, "write", write)
            thread = threading.Thread(target=recorder.driver_event, args=[{}])
            thread.start()
            assert break_off(watch) == "TraceBroken: The trace cannot be written: No space left on device."
            thread.join()
        recorder.driver_event({"op": "later"})
    records, torn = read_log(path)
    assert [record["record"] for record in records] == ["header"], "a trace has no holes"
    assert not torn
