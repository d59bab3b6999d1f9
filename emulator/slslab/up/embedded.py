"""`slslab up`, `down`, `status`: the emulator and its stack as local endpoints, one per user.

A running service holds a lock on its state file, so that a crashed one is never taken for a running one.
"""

import fcntl
import json
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from slslab.errors import HostError, RequestError
from slslab.version import __version__

STOP_LIMIT_S = 60.0
READY_VARIABLE = "SLSLAB_READY_FD"
# A `struct flock` of Linux (fcntl(2)): type, whence, start, length (0: whole file), process.
FLOCK = struct.Struct("hhqqi0q")


def state_directory() -> Path:
    """Return where this user's service keeps its state: $SLSLAB_STATE, or a directory of the runtime directory."""
    if directory := os.environ.get("SLSLAB_STATE"):
        return Path(directory)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime, "slslab") if runtime else Path(tempfile.gettempdir(), f"slslab-{os.getuid()}")


def status() -> dict[str, Any] | None:
    """Return the running service's description of itself; None if there is none."""
    try:
        with (state_directory() / "up.json").open() as file:
            # Only asked about: a lock that is held even for a moment would make a starting service refuse.
            found = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _lock(fcntl.F_RDLCK))
            locked = FLOCK.unpack(found)[0] != fcntl.F_UNLCK
            # A service that was killed has left its file.
            return json.loads(file.read() or "null") if locked else None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise _unusable(state_directory(), error) from error


def examine_services(running: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Ask the services of the running stack; returns them with whether they still answer."""
    from slslab.compose import services

    endpoints = {part: urls.split() if isinstance(urls, str) else urls for part, urls in running["endpoints"].items()}
    # A request would start Step Functions.
    asked = {part: urls for part, urls in endpoints.items() if urls and part != "states"}
    states = services.Service("states", "", endpoints["states"][0], endpoints["states"][0])
    return [
        service.as_document() | {"name": running["stack"][service.part]}
        for service in [states, *services.examine(asked, asked)]
    ]


def serve(
    *,
    port: int,
    s3_port: int,
    limits: Mapping[str, int | float],
    template: Sequence[str],
    budget_mb: int | None,
    code_roots: Sequence[Path],
    tensor_databases: int,
    queue: str,
    ready: Callable[[dict[str, Any]], None],
    log: Callable[[str], None],
) -> None:
    """Run the service until SIGINT or SIGTERM, with these options of `up`; `limits` replace Lambda's.

    `ready` receives its description as soon as everything answers, `log` the REPORT line of every invocation.
    Raises RequestError if a service runs already, HostError if this host cannot run it.
    """
    from slslab.aws.credentials import CREDENTIALS
    from slslab.aws.limits import lambda_limits
    from slslab.host.session import Session
    from slslab.lambda_.emulator import Emulator
    from slslab.stack.assembly import start_stack
    from slslab.stack.state_machines import EmbeddedStateMachines
    from slslab_workers.architecture import Requirements

    with _state() as (file, locked):
        if not locked:
            _refuse(json.loads(file.read() or "null"))
        try:
            with Session() as session, ExitStack() as running:
                stack, _ = start_stack(running, session, Requirements(tensor_databases, queue), s3_port=s3_port)
                emulator = Emulator(
                    session=session,
                    variables=stack.client_environment(),
                    limits=lambda_limits().changed(**limits),
                    template=template,
                    budget_mb=budget_mb,
                    code_roots=code_roots,
                    port=port,
                    on_record=lambda record: log(f"{record.function} {record.report.strip()}"),
                )
                running.enter_context(emulator)
                states = EmbeddedStateMachines(emulator.endpoint, session.mark, limits=emulator.limits, on_demand=True)
                running.enter_context(states)
                emulator.add_variables(states.client_environment())
                description = {
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
                    "limits": dict(limits),
                    "logs": str(emulator.logs),
                }
                ready(description)
                file.write(json.dumps(description))
                file.flush()
                _report_ready()
                threading.Event().wait()
        except KeyboardInterrupt:
            return


def start(settings: Sequence[str]) -> dict[str, Any]:
    """Start the service in the background, with these options of `up`; returns its description when everything answers.

    Raises its error if it exited instead.
    """
    running = status()
    if running is not None:
        _refuse(running)
    directory = _make_state_directory()
    reading, writing = os.pipe()
    with open(reading, "rb") as channel, (directory / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "slslab", "up", *settings],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(writing,),
            env=os.environ | {READY_VARIABLE: str(writing)},
            start_new_session=True,
        )
        os.close(writing)
        if channel.read() != b"ready":
            code = process.wait()
            output = dict(line.partition(": ")[::2] for line in (directory / "up.log").read_text().splitlines())
            error = RequestError if code == RequestError.exit_code else HostError
            raise error(
                output.get("Error", f"The service ended with exit code {code}."),
                output.get("Hint", f"see {directory}/up.log."),
            )
    process.returncode = 0  # it goes on by itself, and Popen must not wait for it
    description = status()
    assert description is not None
    return description


def stop() -> bool:
    """End the running service and wait for its exit; False if there was none. Raises HostError if it does not exit."""
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
            raise HostError(
                f"The service (process {running['pid']}) has not ended within {STOP_LIMIT_S:.0f} s.",
                "end it with kill -9; its reaper cleans up.",
            )
    finally:
        os.close(process)
    (state_directory() / "up.log").unlink(missing_ok=True)
    with suppress(OSError):
        state_directory().rmdir()
    return True


def _refuse(running: Mapping[str, Any] | None) -> None:
    where = f" at {running['endpoints']['lambda']} (process {running['pid']})" if running else ", still starting"
    raise RequestError(f"slslab is up already{where}.", "see it with `slslab status`, end it with `slslab down`.")


def _report_ready() -> None:
    if READY_VARIABLE in os.environ:
        with open(int(os.environ.pop(READY_VARIABLE)), "wb") as channel:
            channel.write(b"ready")


def _make_state_directory() -> Path:
    directory = state_directory()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(directory, error) from error
    return directory


def _unusable(directory: Path, error: OSError) -> HostError:
    return HostError(
        f"The state directory {directory} cannot be used: {error.strerror}.", "name another one in SLSLAB_STATE."
    )


def _lock(kind: int) -> bytes:
    return FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)


@contextmanager
def _state() -> Iterator[tuple[IO[str], bool]]:
    """Yield the state file, and whether its lock was free and is now ours; if so, the file is removed at the end."""
    directory = _make_state_directory()
    if directory.stat().st_uid != os.getuid():
        raise HostError(f"The state directory {directory} belongs to another user.", "name one in SLSLAB_STATE.")
    path = directory / "up.json"
    with ExitStack() as stack:
        while True:
            file = stack.enter_context(path.open("a+"))
            try:
                fcntl.fcntl(file, fcntl.F_OFD_SETLK, _lock(fcntl.F_WRLCK))
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
            with suppress(OSError):  # the log of a service in the background stays until `down`
                directory.rmdir()
