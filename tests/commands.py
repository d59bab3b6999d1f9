"""The command line within the tests' process, which spares every command the start of an interpreter and imports."""

import atexit
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from functools import cache, partial
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple, Self

import pytest

from slslab.aws.keys import Keyring
from slslab.cli.main import main
from slslab.cli.root import execute
from slslab.host.namespaces import Isolation, Spawner
from slslab.host.session import Session
from slslab.lambda_ import process_sandbox
from slslab.lambda_.emulator import Emulator
from slslab.run.directory import DOCUMENT, RunDirectory
from slslab.run.log import TABLE
from slslab.run.run import Run, read_run
from slslab.stack import assembly
from slslab.stack.object_store import EmbeddedObjectStore
from slslab.stack.queues import queue_kind
from slslab.up import embedded as service
from slslab_lab.checks.run import check
from slslab_lab.runs import embedded

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


class Done(NamedTuple):
    """What a command left: its exit code, and what it wrote to standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The document of a command that succeeded."""
        assert self.code == 0, f"{self.err}{self.out[:1000]}"
        return self.printed

    @property
    def printed(self) -> Any:
        """The document that the command printed, however it ended."""
        return json.loads(self.out)


def slslab(*arguments: object, variables: Mapping[str, str] = NO_VARIABLES, directory: Path | None = None) -> Done:
    """Run a command with environment variables of its own, in a directory.

    A run makes no solo profile, which takes longer than the run, unless it asks for one.
    """
    if (
        arguments[0] == "run"
        and "--record" not in arguments
        and re.fullmatch(r"[a-z]+", " ".join(map(str, arguments[1:2])))
    ):
        arguments = (*arguments, "--record", "together")
    with (
        # Files, so that programs that the command runs may write to them, too.
        TemporaryFile("w+") as out,
        TemporaryFile("w+") as err,
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(out),
        redirect_stderr(err),
        one_object_store(),
    ):
        patch.setattr(service, "subprocess", SimpleNamespace(Popen=start_service, DEVNULL=subprocess.DEVNULL))
        for name, value in variables.items():
            patch.setenv(name, value)
        if directory is not None:
            patch.chdir(directory)
        try:
            code = execute([str(argument) for argument in arguments])
        except KeyboardInterrupt:
            code = 128 + signal.SIGINT
        out.seek(0)
        err.seek(0)
        return Done(code, out.read(), err.read())


def start_service(command: Sequence[str], **settings: Any) -> subprocess.Popen[bytes]:
    """Start what `slslab up --detach` leaves in the background; it is stopped when this process ends, also if that is
    killed."""
    return subprocess.Popen(["setpriv", "--pdeathsig", "TERM", *command], **settings)


# What every handler and a worker's first optimiser import, which takes a cold start 2 s of a processor.
IMPORTS = ("torch", "numpy", "boto3", "redis")


@cache
def template(isolation: Isolation, modules: tuple[str, ...]) -> Spawner:
    """Start the template of this kind; it ends with this process."""
    started = Spawner(isolation, modules)
    atexit.register(started.close)
    return started


class SharedTemplate(Spawner):
    """A template that outlives its emulator, for the next one."""

    def __init__(self, isolation: Isolation, modules: tuple[str, ...] = ()) -> None:
        self.isolation = isolation
        self._shared = template(isolation, modules)

    def spawn(self, request: Mapping[str, Any], log: int, trace: int, status: int) -> None:
        """Start an environment's processes."""
        self._shared.spawn(request, log, trace, status)

    @property
    def pid(self) -> int:
        """The template's process."""
        return self._shared.pid

    def close(self) -> None:
        """Leave the template as it is; the emulator has ended its environments before."""


class SharedObjectStore(EmbeddedObjectStore):
    """An S3 server that outlives its run, for the next one. Its start takes as long as a small run."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the server running."""


@cache
def shared_keys() -> Keyring:
    """Return the keys of the shared S3 server and of all runs that use it."""
    return Keyring()


@cache
def shared_object_store() -> SharedObjectStore:
    """Start the shared S3 server; it ends with this process, also if that is killed."""
    parts = ExitStack()
    atexit.register(parts.close)
    session = parts.enter_context(Session())
    store = SharedObjectStore(session.home / "s3", shared_keys(), session.mark)
    parts.push(partial(EmbeddedObjectStore.__exit__, EmbeddedObjectStore.__enter__(store)))
    return store


def store_for_keys(data: Path, keys: Keyring, *others: Any) -> EmbeddedObjectStore:
    """Return the shared S3 server for its keys, and a new one for other keys, as `slslab up` has."""
    return shared_object_store() if keys is shared_keys() else EmbeddedObjectStore(data, keys, *others)


@contextmanager
def one_object_store() -> Iterator[None]:
    """Make all runs of this process use one S3 server, each with buckets of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "EmbeddedObjectStore", store_for_keys)
        patch.setattr(assembly, "Keyring", shared_keys)
        yield


@contextmanager
def forked_environments() -> Iterator[None]:
    """Make the emulators of runs fork their environments from one process that has made the imports.

    Don't use it in tests of memory: a fork's memory isn't Lambda's, and functions without torch need more
    (--light-memory). The queue is the embedded one unless a plan names another: RabbitMQ starts more slowly than a
    small run ends.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "Emulator", partial(Emulator, template=IMPORTS))
        patch.setattr(process_sandbox, "Spawner", SharedTemplate)
        for module in (assembly, embedded):
            patch.setattr(module, "queue_kind", lambda kind: queue_kind("embedded" if kind == "auto" else kind))
        yield


def assert_holds(run: Run) -> None:
    """Assert what `slslab check` checks of every run."""
    checked = check(run)
    assert not checked.violations, "\n".join(map(str, checked.violations))


@contextmanager
def checked_runs() -> Iterator[None]:
    """Check every run that ends in this process."""
    unlock = RunDirectory.unlock

    def unlock_checked(directory: RunDirectory, descriptor: int) -> None:
        unlock(directory, descriptor)
        # Runs that a test makes up have a log and no table.
        if (directory.path / DOCUMENT).exists() and (directory.path / TABLE).exists():
            assert_holds(read_run(directory))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunDirectory, "unlock", unlock_checked)
        yield


# Its server forks a process with the imports of `tests.preload`, for which no other thread of the tests' runs.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.preload"])


def state_in(folder: Path) -> dict[str, str]:
    """Return the environment of commands that keep their service's state and runs in this folder.

    They don't find a stack in containers, which another test may have at its usual port.
    """
    own = {"SLSLAB_STATE": str(folder / "state"), "SLSLAB_RUNS": str(folder / "runs")}
    return {**os.environ, **own, "SLSLAB_EMULATOR_URL": "http://127.0.0.1:9"}


def in_a_shell(**variables: str) -> dict[str, str]:
    """Return this process's environment variables and these, with which a shell finds the commands of this
    installation first."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **variables}


def forked(command: Sequence[str], directory: Path, variables: Mapping[str, str]) -> Done:
    """Run `slslab` or `pytest` in a directory, in a fork with its imports done, with only these variables.

    It reads the variables like a command, except for the interpreter's own, which count at its start and for imports.
    """
    with NamedTemporaryFile("r") as out, NamedTemporaryFile("r") as err:
        process = FORKS.Process(target=_run_forked, args=(command, directory, variables, out.name, err.name))
        process.start()
        process.join()
        assert process.exitcode is not None
        return Done(process.exitcode, out.read(), err.read())


def _run_forked(command: Sequence[str], directory: Path, variables: Mapping[str, str], out: str, err: str) -> None:
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(directory)
    tempfile.tempdir = None  # chosen by TMPDIR when it is first asked for, which the imports did
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
    program, *arguments = command
    if program == "pytest":
        sys.exit(pytest.main(arguments))
    with forked_environments(), checked_runs():
        main(arguments)


@contextmanager
def own_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Have these environment variables and no others, so that a command finds no server of other tests."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
