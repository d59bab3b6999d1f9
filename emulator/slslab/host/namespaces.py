"""Separate execution environments from each other and from the host with namespaces, where the kernel allows it.

As root, every environment has its own mount, pid and IPC namespace and its own user id. Without root it has the same
namespaces inside a user namespace, in which all environments share one user id. Otherwise it is a process group, which
its init cleans up. All use the host's network, because functions reach the stack on loopback. This keeps functions from
disturbing each other, as on Lambda; it isn't a security boundary.
"""

import contextlib
import json
import os
import site
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

SPAWNER = Path(__file__).with_name("spawner.py")
SYSTEM_PATHS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc")
# Lambda's own user is 993; environments get ids from a range that nothing else uses.
LAMBDA_UID = 993
SPAWNER_VARIABLES = ("PATH", "LANG", "LC_", "LD_LIBRARY_PATH", "PYTHON", "OMP_", "MKL_", "TMPDIR", "COVERAGE")
FIRST_UID, UIDS = 1_819_475_968, 65_536
TASK_ROOT = "/var/task"


@dataclass(frozen=True)
class Isolation:
    """How environments are separated: `mode` is `root`, `user`, `docker` or empty; `missing` says what failed and why.

    `engine` is the container engine's name and version.
    """

    mode: str
    own_uid: bool
    missing: tuple[str, ...] = ()
    engine: str = ""

    @property
    def description(self) -> str:
        """Return one line for `doctor` and for a run's document."""
        if not self.mode:
            return "none: environments see the host's files and processes (" + "; ".join(self.missing) + ")"
        if self.engine:
            return f"containers of {self.engine}: own namespaces, sized /tmp, read-only root, no capabilities"
        user = "own user id" if self.own_uid else "one user id for all"
        how = "" if self.mode == "root" else " in a user namespace"
        return f"mount, pid and IPC namespaces{how}, sized /tmp, read-only root, {user}"


class SpawnError(OSError):
    """The spawner could not start; the message says why."""


class Spawner:
    """The emulator's end of a spawner process. With `modules`, it is a template that has imported them."""

    def __init__(self, isolation: Isolation, modules: tuple[str, ...] = ()) -> None:
        self.isolation = isolation
        self._modules = modules
        self._start()

    def _start(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A template needs the packages; the plain spawner starts faster without them.
        flags = [] if self._modules else ["-I", "-S"]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *flags, SPAWNER, str(theirs.fileno()), self.isolation.mode, ",".join(self._modules)],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                # A template's forks can read its environment in /proc, so it must not contain the user's secrets.
                env={name: value for name, value in os.environ.items() if name.startswith(SPAWNER_VARIABLES)},
            )
        answer = self._channel.recv(4096).decode()
        if answer != "ready":
            self.close()
            raise SpawnError(answer or "the spawner ended before it was ready")

    def spawn(self, request: Mapping[str, Any], log: int, trace: int, status: int) -> None:
        """Start an environment's processes, which report on the status pipe; OSError if the host can't.

        Starts a new spawner if the last one was killed, which also killed all its environments.
        """
        message = json.dumps({"mode": self.isolation.mode, "inner_uid": LAMBDA_UID, **request}).encode()
        try:
            socket.send_fds(self._channel, [message], [log, trace, status])
        except (BrokenPipeError, ConnectionResetError):
            self.close()
            self._start()
            socket.send_fds(self._channel, [message], [log, trace, status])

    @property
    def pid(self) -> int:
        """Return the spawner's process id."""
        return self._process.pid

    def close(self) -> None:
        """End the spawner and all inits that it started."""
        self._channel.close()
        self._process.wait()


def package_directories() -> list[str]:
    """Return where this Python finds installed packages."""
    packages = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return list(dict.fromkeys([*packages, *user]))


@cache
def visible_paths() -> list[str]:
    """Return the host's paths that a function sees: system programs and libraries, the interpreter and its packages.

    Directories that an editable installation adds to `sys.path` are left out: on Lambda they wouldn't exist.
    """
    return outermost([*SYSTEM_PATHS, sys.prefix, sys.base_prefix, *package_directories()])


def outermost(paths: Iterable[str]) -> list[str]:
    """Return the paths that exist, except those below another one."""
    visible: list[str] = []
    for path in sorted({os.path.abspath(path) for path in paths if os.path.lexists(path)}):
        if not any(path == known or path.startswith(known + "/") for known in visible if not os.path.islink(known)):
            visible.append(path)
    return visible


def extra_files() -> list[tuple[str, str]]:
    """Return the files outside that visible links point to: the resolver's configuration, below /run with systemd."""
    resolver = os.path.realpath("/etc/resolv.conf")
    inside = not os.path.exists(resolver) or resolver.startswith("/etc/")
    return [] if inside else [(resolver, resolver)]


def detect(folder: Path | None = None) -> Isolation:
    """Try what this host allows: namespaces as root, namespaces in a user namespace, or none.

    The trials store their files in `folder`, by default the temporary folder.
    """
    missing: list[str] = []
    attempts = [Isolation("user", False)]
    if os.geteuid() == 0:
        attempts = [Isolation("root", True), Isolation("root", False), *attempts]
    for attempt in attempts:
        failure = _try(attempt, folder)
        if failure is None:
            return replace(attempt, missing=tuple(missing))
        missing.append(f"{attempt.description}: {failure}")
    return Isolation("", False, tuple(missing))


def _try(isolation: Isolation, folder: Path | None) -> str | None:
    """Start the interpreter in an environment of this kind; return what went wrong, or None."""
    with tempfile.TemporaryDirectory(dir=folder) as directory, tempfile.TemporaryFile() as output:
        home = Path(directory).resolve()
        code = home / "code"
        code.mkdir()
        request = environment_request(
            isolation,
            home,
            code,
            number=0,
            variables={},
            arguments=[sys.executable, "-c", "import awslambdaric"],
            ephemeral_mb=1,
        )
        try:
            with contextlib.closing(Spawner(isolation)) as spawner:
                read, write = os.pipe()
                with open(read, "rb") as status:
                    spawner.spawn(request, output.fileno(), output.fileno(), write)
                    os.close(write)
                    lines = status.read().decode().splitlines()
        except SpawnError as error:
            return str(error)
        if "exited 0" in lines:
            return None
        output.seek(0)
        failures = [line.removeprefix("failed ") for line in lines if line.startswith("failed ")]
        return (failures or output.read().decode().strip().splitlines()[-1:] or ["the interpreter did not start"])[0]


def environment_request(
    isolation: Isolation,
    home: Path,
    code: Path,
    *,
    number: int,
    variables: Mapping[str, str],
    arguments: list[str],
    ephemeral_mb: int,
    files: Iterable[tuple[str, str]] = (),
    join: Iterable[Path] = (),
    processors: Iterable[int] = (),
    resources: Mapping[str, int] | None = None,
    visible: Iterable[str] | None = None,
    forked: bool = True,
) -> dict[str, Any]:
    """Return the spawner's request to start environment `number`, with its directory on the host at `home`.

    `resources` are limits by name (`NOFILE`), and `visible` the host's paths that the environment sees, by default what
    this Python needs. If it isn't `forked`, a template starts it as a program.
    """
    uid = FIRST_UID + number % UIDS if isolation.own_uid else None
    if isolation.mode:
        for name in ("root", "tmp"):
            (home / name).mkdir(exist_ok=True)
        seen = uid if uid is not None else LAMBDA_UID
        (home / "passwd").write_text(f"root:x:0:0:root:/:/sbin/nologin\nsbx:x:{seen}:{seen}::/tmp:/sbin/nologin\n")
        files = [*files, *extra_files(), (str(home / "passwd"), "/etc/passwd")]
    return {
        "uid": uid,
        "root": str(home / "root"),
        "tmp": str(home / "tmp"),
        "visible": list(visible_paths() if visible is None else visible),
        "files": list(files),
        "code": str(code),
        "directory": TASK_ROOT if isolation.mode else str(code),
        "ephemeral_mb": ephemeral_mb,
        "join": [str(path) for path in join],
        "processors": list(processors),
        "resources": dict(resources or {}),
        "forked": forked,
        "arguments": arguments,
        "environment": dict(variables),
    }
