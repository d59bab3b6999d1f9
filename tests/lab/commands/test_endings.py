"""How commands end that a signal, a lost server or a lost peer breaks off: exit codes, documents, and no leftovers.

Each command is a process of its own, forked from one that has made the imports.
"""

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests import commands
from tests.lab.commands.test_accuracy import learnt
from tests.leftovers import leftovers

from slslab.cli.main import ENDINGS, main
from slslab.host import namespaces, spawner
from slslab.lambda_.emulator import Emulator
from slslab.stack.channels import find_server
from slslab_lab.runs import embedded
from slslab_workers.trace.operations import ALL_REDUCE

pytestmark = pytest.mark.server

WITHOUT_GPUS = {"CUDA_VISIBLE_DEVICES": ""}


class Command:
    """A command that runs as a process; `own_template` has it start the process from which its environments fork."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        own_template: bool = False,
        late_spawner: Path | None = None,
        variables: Mapping[str, str] = WITHOUT_GPUS,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self._out, self._err = folder / "out", folder / "err"
        given = (arguments, {**os.environ, **variables}, (self._out, self._err), own_template, late_spawner)
        self._process = commands.FORKS.Process(target=_execute, args=given)
        self._began = time.monotonic()
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def ended(self, timeout_s: float = 60) -> commands.Done:
        """Wait until it has ended; return its exit code, negative for a signal that killed it, and what it printed."""
        self._process.join(timeout_s)
        assert self._process.exitcode is not None, "it goes on"
        return commands.Done(self._process.exitcode, self._out.read_text(), self._err.read_text())

    @property
    def seconds(self) -> float:
        """Seconds since it began, by which a busy host is known."""
        return time.monotonic() - self._began

    def kill(self) -> None:
        """Kill it if it runs."""
        self._process.kill()
        self._process.join()

    def wait_for(self, text: str, file: Path | None = None) -> None:
        """Wait until a file has this text, or what it printed to standard error."""
        file, deadline = file or self._err, time.monotonic() + 120
        while not (file.exists() and text in file.read_text()):
            assert self._process.is_alive(), self.ended()
            assert time.monotonic() < deadline
            time.sleep(0.02)


def _execute(
    arguments: Sequence[str],
    variables: Mapping[str, str],
    outputs: tuple[Path, Path],
    own_template: bool,
    late_spawner: Path | None,
) -> None:
    os.setsid()
    # A suite in the background ignores it, or below `nohup`.
    for number in ENDINGS:
        signal.signal(number, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(variables)
    for descriptor, path in zip((1, 2), outputs, strict=True):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    with pytest.MonkeyPatch.context() as patch:
        if late_spawner is not None:
            patch.setattr(namespaces, "SPAWNER", late_spawner)
        if own_template:
            patch.setattr(embedded, "Emulator", partial(Emulator, template=commands.IMPORTS))
        with nullcontext() if own_template or late_spawner else commands.forked_environments():
            main(arguments)


@contextmanager
def begun(folder: Path, run: Path, *arguments: str, until: str = "update", own_template: bool = False) -> Iterator[Any]:
    """Start a long command, wait until the trace of a run has such an operation, and end it afterwards."""
    command = Command(folder, *arguments, own_template=own_template)
    try:
        command.wait_for(f'"op":"{until}"', run / "trace.jsonl")
        yield command
    finally:
        command.kill()


@pytest.mark.parametrize(
    ("architecture", "number", "code"),
    [
        ("allreduce", signal.SIGINT, 130),
        pytest.param("allreduce", signal.SIGHUP, 129, marks=pytest.mark.exhaustive),
        ("allreduce", signal.SIGKILL, -signal.SIGKILL),
        pytest.param("gloo", signal.SIGINT, 130, marks=pytest.mark.exhaustive),
        pytest.param("gpu", signal.SIGTERM, 143, marks=pytest.mark.exhaustive),
    ],
)
def test_no_ending_leaves_anything_but_the_trace(
    tmp_path: Path, architecture: str, number: signal.Signals, code: int
) -> None:
    """Instances end so in tests/emulator/stack/instances/test_processes.py, too."""
    out = tmp_path / "run"
    plan = (
        "run",
        architecture,
        "--workers",
        "2",
        "--epochs",
        "60",
        "--record",
        "together",
        "--batches",
        "1",
        "--out",
        str(out),
        "--json",
    )
    with begun(tmp_path, out, *plan, own_template=True) as command:
        assert len(leftovers(command.pid)) >= 4, "two workers, an S3 server, control groups"
        os.kill(command.pid, number)
        done = command.ended()
        assert done.code == code
    deadline = time.monotonic() + 20
    while leftovers(command.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert leftovers(command.pid) == []
    document = commands.slslab("show", out, "--json").document
    assert document["status"] == "interrupted"
    assert document["error"]["type"] == ("Killed" if number == signal.SIGKILL else "Interrupted")
    assert max(document["counts"].values()) > 0
    assert (out / "trace.parquet").exists()
    assert not (out / "trace.jsonl").exists()
    if number != signal.SIGKILL:
        assert done.printed["run"] == document["run"]
        metered = document["invocations"] + len(document["instances"])
        assert metered == 2, "what was ended is metered and billed"


def test_an_interrupted_table_leaves_no_process_and_no_run_that_had_not_begun(tmp_path: Path) -> None:
    """In what is measured before the first of its nine runs, SPIRT's at full size."""
    table, run = tmp_path / "table", tmp_path / "table" / "mobilenet-spirt"
    arguments = ("reproduce", "table2", "--model", "mobilenet", "--dataset", "synthetic", "--out", str(table))
    with begun(tmp_path, run / "alone", *arguments, until="invoke") as command:
        os.kill(command.pid, signal.SIGINT)
        done = command.ended()
    assert (done.code, done.out) == (130, ""), done.err
    assert "\nInterrupted: 0 of 9 runs exist; the same command makes the others.\n" in done.err
    assert leftovers(command.pid) == []
    assert list(table.iterdir()) == []


SPIRT = ("spirt", "--batches", "1", "--light-memory", "1024")
ROWS = ("allreduce", "--dataset", "breast-cancer", "--channel")


@pytest.mark.parametrize(
    ("named", "part", "which"),
    [
        ("slslab.object_store", "object store", SPIRT),
        pytest.param("slslab.tensordb", "tensor databases", SPIRT, marks=pytest.mark.exhaustive),
        ("memcached", "memcached server", (*ROWS, "memcached")),
        pytest.param("redis-server", "redis server", (*ROWS, "redis"), marks=pytest.mark.exhaustive),
        pytest.param("slslab_aws.services", "dynamodb server", (*ROWS, "dynamodb"), marks=pytest.mark.exhaustive),
        pytest.param(
            "slslab_workers.parameter_server",
            "parameter server",
            (*ROWS, "parameter-server"),
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_a_server_that_dies_ends_the_run_at_once(tmp_path: Path, named: str, part: str, which: tuple[str, ...]) -> None:
    """The run doesn't wait for functions that retry their requests, and keeps everything measured so far."""
    if named in ("memcached", "redis-server") and find_server(named) is None:
        pytest.skip(f"{named} is not installed (apt-get install {named})")
    out = tmp_path / "run"
    plan = ("run", *which, "--workers", "2", "--epochs", "60", "--record", "together", "--out", str(out), "--json")
    with begun(tmp_path, out, *plan, until="compute") as command:
        (server,) = (c for c in psutil.Process(command.pid).children() if any(named in a for a in c.cmdline()[:4]))
        server.kill()
        # Retries of requests would take longer.
        done = command.ended(max(15, command.seconds))
    assert done.code == 1, done.err
    assert "Traceback" not in done.err
    document = done.printed
    assert document["error"]["type"] == "StackFailed"
    assert document["error"]["message"] == f"the {part} ended (killed by SIGKILL)"
    assert (out / "logs" / f"{part.replace(' ', '_')}.log").exists()
    assert leftovers(command.pid) == []
    assert commands.slslab("show", out, "--json").document["invocations"] > 0


def test_a_server_that_dies_in_the_solo_profile_ends_the_run_too(tmp_path: Path) -> None:
    """The run has no other stack; it says so, as does the profile."""
    out = tmp_path / "run"
    plan = ("run", "allreduce", "--workers", "2", "--epochs", "60", "--record", "alone", "--out", str(out), "--json")
    with begun(tmp_path, out / "alone", *plan, until="environment.start") as command:
        (server,) = (c for c in psutil.Process(command.pid).children() if "slslab.object_store" in c.cmdline())
        server.kill()
        done = command.ended(max(15, command.seconds))
    assert done.code == 1, done.err
    why = "the object store ended (killed by SIGKILL)"
    assert done.printed["alone"] == {"status": "not measured", "reason": f"StackFailed: {why}"}
    assert done.printed["error"]["message"] == why
    assert done.printed["invocations"] == 0
    assert leftovers(command.pid) == []


def gloo_instances(pid: int) -> list[psutil.Process]:
    """Return the instances that a command runs, by rank, which is the order of their launch."""
    found = [
        process
        for process in psutil.Process(pid).children(recursive=True)
        if process.cmdline()[-1:] == ["slslab_workers.gloo.instance"]
    ]
    return sorted(found, key=lambda process: process.pid)


@pytest.mark.parametrize(
    ("number", "rank", "type_", "says"),
    [
        pytest.param(signal.SIGKILL, 1, "Instance.Killed", "was killed by SIGKILL.", marks=pytest.mark.exhaustive),
        (signal.SIGSTOP, 0, "PeerLost", "worker 0 gave no sign of life within 5 s (Timed out waiting 3000ms"),
    ],
)
def test_a_peer_that_dies_or_hangs_ends_the_run_and_is_named(
    tmp_path: Path, number: signal.Signals, rank: int, type_: str, says: str
) -> None:
    """An instance that is killed ends the others in tests/emulator/stack/instances/test_processes.py, too."""
    out = tmp_path / "run"
    plan = (
        "run",
        "gloo",
        "--workers",
        "3",
        "--epochs",
        "60",
        "--record",
        "together",
        "--batches",
        "2",
        "--timeout",
        "3",
    )
    with begun(tmp_path, out, *plan, "--out", str(out), "--json", until=ALL_REDUCE) as command:
        peers = gloo_instances(command.pid)
        assert len(peers) == 3
        os.kill(peers[rank].pid, number)
        done = command.ended()
    assert done.code == 1, done.err
    assert "Traceback" not in done.err
    document = json.loads(done.out)
    assert document["error"]["type"] == type_
    assert says in document["error"]["message"]
    if number == signal.SIGKILL:
        assert document["error"]["worker"] == rank
    assert len(document["instances"]) == 3, "instances that were ended are metered, too"
    assert leftovers(command.pid) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_while_the_spawner_starts(number: signal.Signals, tmp_path: Path) -> None:
    """The command prints nothing, and neither does the spawner, which is ready too late."""
    late, temporary = tmp_path / "spawner.py", tmp_path / "temporary"
    late.write_text(
        f"import os, runpy, select, sys\n"
        f"os.kill(os.getppid(), {number})\n"
        f"poll = select.poll()\n"
        f"poll.register(int(sys.argv[1]), select.POLLHUP)\n"
        f"poll.poll()\n"
        f"runpy.run_path({spawner.__file__!r}, run_name='__main__')\n"
    )
    temporary.mkdir()
    variables = {"TMPDIR": str(temporary), "SLSLAB_RUNS": str(tmp_path / "runs")}
    command = Command(
        tmp_path, "run", "allreduce", "--workers", "2", "--record", "together", late_spawner=late, variables=variables
    )
    done = command.ended()
    assert (done.code, done.out, done.err.strip()) == (128 + number, "", "")
    assert list(temporary.iterdir()) == []


def test_a_killed_curve_goes_on(tmp_path: Path) -> None:
    """After it has printed an epoch, whatever it was doing."""
    small = ("--dataset", "digits", "--workers", "2", "--batches", "8", "--batch-size", "8")

    def accuracy(name: str, epochs: int, *more: str) -> Command:
        return Command(tmp_path / name, "accuracy", "allreduce", *small, "--epochs", str(epochs), *more)

    out = tmp_path / "curve"
    killed = accuracy("killed", 1000, "--out", str(out))
    try:
        killed.wait_for("epoch 1 of")
    finally:
        killed.kill()
    kept = len(json.loads((out / "curve.json").read_text())["epochs"])
    resumed = accuracy("resumed", kept + 2, "--json", "--out", str(out), "--resume").ended().document
    through = accuracy("through", kept + 2, "--json", "--out", str(tmp_path / "whole")).ended().document
    assert learnt(resumed) == learnt(through)
    assert resumed["parameters_sha256"] == through["parameters_sha256"]
