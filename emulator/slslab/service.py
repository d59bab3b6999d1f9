"""`slslab up`, `down`, `status`: the emulator and its stack as local endpoints, one per user.

A running service holds a lock on its state file, so that a crashed one is never taken for a living one.
"""

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from slslab import __version__
from slslab.errors import HostError, RequestError

STOP_LIMIT_S = 60.0
READY_VARIABLE = "SLSLAB_READY_FD"


@dataclass(frozen=True)
class Settings:
    """What `up` was asked for; `limits` are names and values that replace Lambda's."""

    port: int
    s3_port: int
    limits: Mapping[str, int | float]
    template: Sequence[str]
    budget_mb: int | None
    tensor_databases: int = 1
    queue: str = "embedded"


def state_directory() -> Path:
    """Where the service of this user keeps its state: $SLSLAB_STATE, or a directory of the runtime directory."""
    if named := os.environ.get("SLSLAB_STATE"):
        return Path(named)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime, "slslab") if runtime else Path(tempfile.gettempdir(), f"slslab-{os.getuid()}")


def status() -> dict[str, Any] | None:
    """What the running service wrote of itself; None when there is none."""
    try:
        with (state_directory() / "up.json").open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return json.loads(file.read() or "null")  # type: ignore[no-any-return]
    except FileNotFoundError:
        return None
    return None  # a service that was killed has left its file


def examine_services(running: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The services of the running stack: which still answer."""
    from slslab.stack import services

    endpoints = {
        part: found.split() if isinstance(found, str) else found for part, found in running["endpoints"].items()
    }
    # Step Functions would start by being asked.
    asked = {part: urls for part, urls in endpoints.items() if urls and part != "states"}
    found = [services.Service("states", "", endpoints["states"][0], endpoints["states"][0])]
    found += services.examine(asked, asked)
    return [one.as_document() | {"name": running["stack"][one.part]} for one in found]


def serve(settings: Settings, ready: Callable[[dict[str, Any]], None], log: Callable[[str], None]) -> None:
    """Run the service until SIGINT or SIGTERM.

    `ready` gets its description as soon as everything answers, `log` the REPORT line of every invocation.

    Raises RequestError if one runs already, HostError if this host cannot run it.
    """
    from slslab.emulator import CREDENTIALS, Emulator
    from slslab.limits import lambda_limits
    from slslab.session import Session
    from slslab.stack.assembly import start_stack
    from slslab.stack.states import EmbeddedStateMachines
    from slslab_workers.architecture import Requirements

    with _state() as (file, locked):
        if not locked:
            _refuse(json.loads(file.read() or "null"))
        try:
            with Session() as session, ExitStack() as running:
                requirements = Requirements(settings.tensor_databases, settings.queue)
                stack, _ = start_stack(running, session, requirements, s3_port=settings.s3_port)
                emulator = Emulator(
                    session=session,
                    variables=stack.client_environment(),
                    limits=lambda_limits().changed(**settings.limits),
                    template=settings.template,
                    budget_mb=settings.budget_mb,
                    port=settings.port,
                    on_record=lambda record: log(f"{record.function} {record.report.strip()}"),
                )
                running.enter_context(emulator)
                states = EmbeddedStateMachines(emulator.endpoint, session.mark, limits=emulator.limits, on_demand=True)
                running.enter_context(states)
                emulator.add_variables(states.client_environment())
                described = {
                    "kind": "embedded",
                    "pid": os.getpid(),
                    "version": __version__,
                    "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
                    "endpoints": {
                        **emulator.endpoints,
                        "tensors": list(stack.tensor_urls),
                        "queue": stack.queue_url,
                    },
                    "credentials": CREDENTIALS,
                    "stack": {"lambda": f"slslab {__version__}", "states": states.name, **stack.versions},
                    "confinement": emulator.hierarchy.description,
                    "isolation": emulator.isolation.description,
                    "limits": dict(settings.limits),
                    "logs": str(emulator.logs),
                }
                ready(described)
                file.write(json.dumps(described))
                file.flush()
                _tell_ready()
                threading.Event().wait()
        except KeyboardInterrupt:
            return


def start(settings: Sequence[str]) -> dict[str, Any]:
    """Start the service in the background, with these options of `up`; returns when everything answers.

    Raises HostError with what it said if it ended instead.
    """
    running = status()
    if running is not None:
        _refuse(running)
    directory = state_directory()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    ready, told = os.pipe()
    with open(ready, "rb") as channel, (directory / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "slslab", "up", *settings],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(told,),
            env=os.environ | {READY_VARIABLE: str(told)},
            start_new_session=True,
        )
        os.close(told)
        if channel.read() != b"ready":
            code = process.wait()
            said = dict(line.partition(": ")[::2] for line in (directory / "up.log").read_text().splitlines())
            error = RequestError if code == RequestError.exit_code else HostError
            message = said.get("Error", f"The service ended with exit code {code}.")
            raise error(message, said.get("Hint", f"see {directory}/up.log."))
    process.returncode = 0  # it lives on by itself; nobody is to wait for it
    found = status()
    assert found is not None
    return found


def stop() -> bool:
    """End the running service and wait until it is gone; False when there was none. Raises HostError if it stays."""
    running = status()
    if running is None:
        return False
    try:
        process = os.pidfd_open(running["pid"])
    except ProcessLookupError:
        return False
    try:
        signal.pidfd_send_signal(process, signal.SIGTERM)
        if not select.select([process], [], [], STOP_LIMIT_S)[0]:
            message = f"The service (process {running['pid']}) has not ended within {STOP_LIMIT_S:.0f} s."
            raise HostError(message, "end it with kill -9; its reaper cleans up.")
    finally:
        os.close(process)
    (state_directory() / "up.log").unlink(missing_ok=True)
    with suppress(OSError):
        state_directory().rmdir()
    return True


def _refuse(running: Mapping[str, Any] | None) -> None:
    where = f" at {running['endpoints']['lambda']} (process {running['pid']})" if running else ", still starting"
    raise RequestError(f"slslab is up already{where}.", "`slslab status` shows it, `slslab down` ends it.")


def _tell_ready() -> None:
    if READY_VARIABLE in os.environ:
        with open(int(os.environ.pop(READY_VARIABLE)), "wb") as channel:
            channel.write(b"ready")


@contextmanager
def _state() -> Iterator[tuple[IO[str], bool]]:
    """The state file, and whether its lock was free and is now ours; then the file is gone at the end."""
    directory = state_directory()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.stat().st_uid != os.getuid():
        raise HostError(f"The state directory {directory} is another user's.", "name one in SLSLAB_STATE.")
    path = directory / "up.json"
    with ExitStack() as stack:
        while True:
            file = stack.enter_context(path.open("a+"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                yield file, False
                return
            # A service that ended meanwhile has removed the file that was opened.
            if path.exists() and os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                break
        try:
            file.truncate(0)
            yield file, True
        finally:
            path.unlink(missing_ok=True)
            with suppress(OSError):  # the log of a service in the background stays for as long as that
                directory.rmdir()
