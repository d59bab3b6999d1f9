"""`slslab up`, `down`, `status`: the emulator and its stack as local endpoints, one service per user.

A running service locks its state file, so that a crashed service doesn't look like a running one.
"""

import fcntl
import json
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from slslab.aws.limits import Limits
from slslab.errors import HostError, RequestError
from slslab.host.state import make_state_directory, only_owner, state_directory, unusable
from slslab.installation import ENDPOINTS, __version__, cluster, installed, plugin
from slslab.stack import without_passwords
from slslab.up.options import Options
from slslab_workers.channels.endpoints import QUEUE_URL, TENSOR_URLS

if TYPE_CHECKING:
    from slslab.host.session import Session
    from slslab.lambda_.hosts import Hosts
    from slslab.stack.assembly import EmbeddedStack

STOP_LIMIT_S = 60.0
# Stopping usually takes less; with a large record it takes longer, and we say so.
SILENT_S = 2.0
LOOK_S = 1.0
READY_VARIABLE = "SLSLAB_READY_FD"
CREDENTIALS_VARIABLE = "SLSLAB_CREDENTIALS"
RECORD_LIMIT_S = 60.0
SEE = "see `slslab status`."
# A `struct flock` of Linux (fcntl(2)): type, whence, start, length (0: whole file), process.
FLOCK = struct.Struct("hhqqi0q")


def status() -> dict[str, Any] | None:
    """Return the running service's description; None if none runs."""
    return (_stored() or {}).get("description")


def environment() -> dict[str, str] | None:
    """Return the variables with the running service's endpoints and keys; None if none runs."""
    return (_stored() or {}).get("environment")


def recorded() -> Path | None:
    """Tell the running service to bring its record up to date; return the record's directory.

    None if no service runs; HostError if it can't.
    """
    from slslab.aws.keys import Pair
    from slslab.compose.client import RemoteEmulator, granted
    from slslab.up.record import PATH

    running, variables = status(), environment()
    if running is None or variables is None:
        return None
    pair = Pair.of(variables)
    assert pair is not None
    emulator = RemoteEmulator(running["endpoints"]["lambda"], pair, SEE)
    granted(*emulator.ask("POST", PATH, limit_s=RECORD_LIMIT_S), SEE)
    return Path(running["record"])


def _stored() -> dict[str, Any] | None:
    try:
        with (state_directory() / "up.json").open() as file:
            # Query the lock without taking it: even a moment's lock would make a starting service fail.
            found = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _lock(fcntl.F_RDLCK))
            locked = FLOCK.unpack(found)[0] != fcntl.F_UNLCK
            # A killed service leaves its file. A running one appends lines; the last one may be incomplete.
            return json.loads(_last_line(file.read()) or "null") if locked else None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise unusable(error) from error


def _last_line(text: str) -> str:
    return text.rpartition("\n")[0].rpartition("\n")[2]


def last_log() -> Path | None:
    """Return the log of the last background service if it ended without `stop`, else None."""
    path = state_directory() / "up.log"
    return path if path.exists() and _stored() is None else None


def examine_services(running: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the running stack's services, each with its health."""
    from slslab.compose import services

    variables = environment() or {}
    named = {
        "lambda": "AWS_ENDPOINT_URL_LAMBDA",
        "s3": "AWS_ENDPOINT_URL_S3",
        "tensors": TENSOR_URLS,
        "queue": QUEUE_URL,
    }
    asked = {part: variables[name].split() for part, name in named.items() if name in variables}
    # A request would start these; `serve` notices when they end.
    watched = {part: url for part, url in running["endpoints"].items() if part in ("states", "aws")}
    ended = running["ended"]
    found = [services.Service(part, "", url, url, ended.get(part, "")) for part, url in watched.items()]
    if "aws_services" in ended:
        found.append(services.Service("aws_services", "", "", "", ended["aws_services"]))
    found += services.examine(asked, asked)
    return [
        service.as_document() | {"name": running["stack"].get(service.part, ""), "inside": address, "host": address}
        for service, address in ((service, without_passwords(service.host)) for service in found)
    ]


def serve(options: Options, ready: Callable[[dict[str, Any]], None], log: Callable[[str], None]) -> None:
    """Run the service until SIGINT or SIGTERM.

    `ready` receives its description as soon as everything answers, `log` the REPORT line of every invocation.
    Raises RequestError if a service is already running, HostError if this host can't run it.
    """
    from slslab.aws.arns import REGION
    from slslab.aws.keys import Keyring, Pair
    from slslab.lambda_.emulator import Emulator
    from slslab.stack.assembly import EmbeddedStack
    from slslab.up.record import Record
    from slslab_workers.architecture import Requirements

    limits, faults, roots = options.account_limits(), options.fault_plan(), options.roots()
    policy = "" if options.function_policy is None else options.function_policy.read_text()
    with _state() as (file, locked):
        if not locked:
            _refuse(json.loads(_last_line(file.read()) or "{}").get("description"))
        try:
            keys = Keyring(others=map(Pair.parse, options.credentials), function_policy=policy)
            needs = Requirements(options.tensor_databases, options.queue)
            with (
                Record(log) as record,
                EmbeddedStack(
                    needs, keys=keys, on_event=record.event, on_request=record.request, s3_port=options.s3_port
                ) as stack,
                ExitStack() as running,
            ):
                emulator = Emulator(
                    session=stack.session,
                    hosts=_hosts(options, limits, stack.session),
                    keys=keys,
                    variables=stack.client_environment(),
                    limits=limits,
                    template=options.modules,
                    strict_packages=options.strict_packages,
                    budget_mb=options.budget_mb,
                    code_roots=roots,
                    port=options.port,
                    on_event=record.event,
                    on_record=record.invocation,
                )
                emulator.add_routes([record.route()])
                stack.start_emulator(emulator)
                if faults is not None:
                    running.enter_context(emulator.faults(faults))
                _start_others(options, stack)
                about = {"stack": stack.versions, "environment": options.environment, **emulator.host()}
                about |= {} if faults is None else {"faults": faults}
                directory = record.begin(about, stack)
                running.callback(record.update_at_end)
                description = _describe(stack) | {"record": str(directory)}
                variables = {**emulator.variables, "AWS_DEFAULT_REGION": REGION, **keys.owner.variables()}
                _store(file, description, variables)
                ready(description)
                _report_ready()
                for part, sentence in _ends(stack.servers):
                    log(sentence)
                    description["ended"][part] = sentence
                    _store(file, description, variables)
        except KeyboardInterrupt as signalled:
            log(f"{str(signalled) or 'A signal'} stopped slslab up.")


def _start_others(options: Options, stack: "EmbeddedStack") -> None:
    if installed("moto"):
        stack.servers["states"] = stack.start_state_machines(lazy=True)
    aws = plugin(ENDPOINTS, "aws")
    port = aws.PORT if options.edge_port is None and aws.installed() else options.edge_port
    if port is not None:
        edge = stack.start_edge(port)
        stack.emulator.add_variables(edge.client_environment())
        stack.versions["aws"] = edge.name
        stack.servers |= {"aws": edge, "aws_services": edge.services}


def _describe(stack: "EmbeddedStack") -> dict[str, Any]:
    from slslab.aws.limits import lambda_limits

    emulator = stack.emulator
    return {
        "kind": "embedded",
        "pid": os.getpid(),
        "version": __version__,
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "endpoints": {
            **emulator.endpoints,
            "tensors": [without_passwords(url) for url in stack.tensor_urls],
            "queue": without_passwords(stack.queue_url or ""),
        },
        "stack": stack.versions,
        "ended": {},
        "confinement": emulator.hierarchy.description,
        "isolation": emulator.isolation.description,
        "limits": emulator.limits.differences(lambda_limits()),
        "logs": str(emulator.logs),
    }


def _store(file: IO[str], description: Mapping[str, Any], variables: Mapping[str, str]) -> None:
    """Append the current state as a line, so that readers always find a complete one."""
    file.write(json.dumps({"description": description, "environment": variables}) + "\n")
    file.flush()


def _ends(servers: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each server that ends by itself, with a sentence about it; never return."""
    left = dict(servers)
    while True:
        for part, server in list(left.items()):
            if (how := server.end()) is not None:
                del left[part]
                yield part, server.obituary(how)
        time.sleep(LOOK_S)


def _hosts(options: Options, limits: Limits, session: "Session") -> "Hosts | None":
    if options.environment != "ray":
        return None
    packages = {"modules": options.modules, "strict_packages": options.strict_packages}
    return cast("Hosts", cluster().Cluster(session, limits, **packages))


def start(options: Options) -> dict[str, Any]:
    """Start the service in the background; return its description when everything answers.

    If it exits instead, raise its error.
    """
    # Before the log of an earlier service is overwritten.
    options.account_limits()
    options.fault_plan()
    options.roots()
    running = status()
    if running is not None:
        _refuse(running)
    directory = make_state_directory()
    reading, writing = os.pipe()
    with open(reading, "rb") as channel, (directory / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "slslab", "up", *options.arguments()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(writing,),
            env=os.environ | {READY_VARIABLE: str(writing), CREDENTIALS_VARIABLE: " ".join(options.credentials)},
            start_new_session=True,
        )
        os.close(writing)
        if channel.read() != b"ready":
            code = process.wait()
            output = dict(line.partition(": ")[::2] for line in (directory / "up.log").read_text().splitlines())
            error = RequestError if code == RequestError.exit_code else HostError
            raise error(
                output.get("Error", f"The service exited with code {code}."),
                output.get("Hint", f"see {directory}/up.log."),
            )
    process.returncode = 0  # it keeps running, and Popen must not wait for it
    description = status()
    assert description is not None
    return description


def stop(say: Callable[[str], None]) -> bool:
    """Stop the running service and wait for its exit; False if none ran.

    `say` gets a line if that takes long. HostError if it doesn't exit, and has removed no file for STOP_LIMIT_S.
    """
    running = status()
    if running is None:
        return False
    try:
        process = os.pidfd_open(running["pid"])
    except ProcessLookupError:
        return False
    try:
        home = Path(running["logs"]).parent
        left = _count_files(home)
        signal.pidfd_send_signal(process, signal.SIGTERM)
        ended = select.select([process], [], [], SILENT_S)[0]
        if not ended:
            say("slslab is stopping: it is completing its record and removing functions and objects.")
        while not ended and not (ended := select.select([process], [], [], STOP_LIMIT_S)[0]):
            before, left = left, _count_files(home)
            if left >= before:
                pid, limit_s = running["pid"], f"{STOP_LIMIT_S:.0f} s"
                raise HostError(
                    f"The service (process {pid}) didn't stop, and has removed no file for {limit_s}.",
                    f"type kill -9 {pid}; its reaper cleans up.",
                )
    finally:
        os.close(process)
    (state_directory() / "up.log").unlink(missing_ok=True)
    with suppress(OSError):
        state_directory().rmdir()
    return True


def _count_files(folder: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))


def _refuse(running: Mapping[str, Any] | None) -> None:
    where = f" at {running['endpoints']['lambda']} (process {running['pid']})" if running else ", still starting"
    raise RequestError(f"slslab is already running{where}.", "see it with `slslab status`, stop it with `slslab down`.")


def _report_ready() -> None:
    if READY_VARIABLE in os.environ:
        with open(int(os.environ.pop(READY_VARIABLE)), "wb") as channel:
            channel.write(b"ready")


def _lock(kind: int) -> bytes:
    return FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)


@contextmanager
def _state() -> Iterator[tuple[IO[str], bool]]:
    """Yield the state file and whether we got its lock; if so, remove the file at the end."""
    directory = make_state_directory()
    path = directory / "up.json"
    with ExitStack() as stack:
        while True:
            file = stack.enter_context(open(path, "a+", opener=only_owner))
            try:
                fcntl.fcntl(file, fcntl.F_OFD_SETLK, _lock(fcntl.F_WRLCK))
            except BlockingIOError:
                file.seek(0)
                yield file, False
                return
            # A service that ended in the meantime removed the file we opened.
            if path.exists() and os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                break
        try:
            file.truncate(0)
            yield file, True
        finally:
            path.unlink(missing_ok=True)
            with suppress(OSError):  # a background service's log stays until `down`
                directory.rmdir()
