"""Find the Python that runs the functions of each runtime, and make what they see of it: /var/lang and /var/runtime.

A function runs on an installed Python of the version that it asks for. If that isn't possible, it runs on the
emulator's own Python. Only the emulator's own has the host's packages. All others have just Lambda's (boto3 and
awslambdaric), and so does the emulator's own with strict packages, except for the distributions of a layer.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from py_compile import PycInvalidationMode
from py_compile import compile as compile_module
from typing import Any

from slslab.host.managed import Managed
from slslab.host.namespaces import SYSTEM_PATHS, outermost, package_directories, visible_paths

OWN = f"python3.{sys.version_info[1]}"
# documented: lambda-runtimes.html and python-package.html: the runtimes include boto3 and what it needs.
DISTRIBUTIONS = (
    *("awslambdaric", "simplejson", "snapshot-restore-py"),
    *("boto3", "botocore", "s3transfer", "jmespath", "python-dateutil", "six", "urllib3"),
)
PROGRAMS = Path(__file__).with_name("runtime")
ABOUT = """\
import json, platform, sys
program = getattr(sys, "_base_executable", None) or sys.executable
print(json.dumps([platform.python_implementation(), platform.python_version(), program, sys.base_prefix]))
"""
ANSWER_LIMIT_S = 20
COMPILED = shutil.ignore_patterns("__pycache__", "*.so")
UNCHECKED = PycInvalidationMode.UNCHECKED_HASH


@dataclass(frozen=True)
class Interpreter:
    """An installed Python: its full version, its program, and the paths of the host that it needs."""

    version: str
    program: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Runtime:
    """What functions that ask for the Python `name` run on; `lang` and `folder` become /var/lang and /var/runtime.

    `own` is whether it is the emulator's own Python, and `instead` why that replaces the requested one.
    """

    name: str
    interpreter: Interpreter
    lang: Path
    folder: Path
    own: bool
    instead: str = ""

    @property
    def command(self) -> str:
        """The interpreter's name below `lang`."""
        return "bin/python" + ".".join(self.interpreter.version.split(".")[:2])

    @property
    def description(self) -> str:
        """Say what it is, for the line INIT_START."""
        if self.instead:
            return f"python:{self.interpreter.version} of the host, for {self.name} ({self.instead})"
        return f"python:{self.interpreter.version}" + (" of the host" if self.own else "")


class Runtimes(Managed):
    """The runtimes below one directory, each made when it is first asked for; `strict` hides the host's packages,
    except for the distributions in `layer`."""

    def __init__(self, home: Path, *, strict: bool, layer: Sequence[str] = ()) -> None:
        self._home = home
        self._strict = strict
        self._layer = layer
        self._made: dict[str, Future[Runtime]] = {}
        self._lock = threading.Lock()

    def _enter(self, stack: ExitStack) -> None:
        self._maker = stack.enter_context(ThreadPoolExecutor(1, "runtime-maker"))
        self.start_making(OWN)  # which nearly every function needs

    def start_making(self, name: str) -> Future[Runtime]:
        """Start to make this runtime's files, unless that has begun; try again after a failure."""
        with self._lock:
            made = self._made.get(name)
            if made is None or made.cancelled() or (made.done() and made.exception() is not None):
                made = self._made[name] = self._maker.submit(self._make, name)
            return made

    def _make(self, name: str) -> Runtime:
        instead = obstacle(name)
        own = name == OWN or bool(instead)
        found = find_interpreter(OWN if own else name)
        assert found is not None
        home = self._home / (OWN if own else name)
        if not home.exists():
            part = home.with_name(f"{home.name}.part")
            shutil.rmtree(part, ignore_errors=True)
            making = Runtime(name, found, part / "lang", part / "runtime", own, instead)
            self._make_lang(making)
            _make_folder(making)
            part.rename(home)
        return Runtime(name, found, home / "lang", home / "runtime", own, instead)

    def _make_lang(self, runtime: Runtime) -> None:
        """Make a virtual environment, in which `python3` is this Python, with links to the layer's packages.

        The host's other packages come after these.
        """
        command = runtime.lang / runtime.command
        packages = runtime.lang / "lib" / command.name / "site-packages"
        command.parent.mkdir(parents=True)
        packages.mkdir(parents=True)
        for name in (command.name, "python3", "python"):
            command.with_name(name).symlink_to(runtime.interpreter.program)
        home = os.path.dirname(runtime.interpreter.program)
        (runtime.lang / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
        for name in self._layer if runtime.own else ():
            with suppress(PackageNotFoundError):  # another node of a cluster may lack what the driver's host has
                for path in _contents(distribution(name)):
                    if path.suffix != ".pth" and not (packages / path.name).is_symlink():
                        (packages / path.name).symlink_to(path)
        if runtime.own and not self._strict:
            lines = [f"import site; site.addsitedir({path!r})\n" for path in package_directories()]
            (packages / "host.pth").write_text("".join(lines))


def obstacle(name: str) -> str:
    """Return why the emulator's own Python replaces a runtime's; empty if the runtime's own runs here."""
    if find_interpreter(name) is None:
        return f"no {name} is installed"
    minor = int(name.partition(".")[2])
    for package in map(distribution, DISTRIBUTIONS):
        least = re.search(r">=\s*3\.(\d+)", str(package.metadata["Requires-Python"]))
        if least is not None and minor < int(least[1]):
            return f"{package.metadata['Name']} {package.version} needs Python 3.{least[1]}"
    return ""


@cache
def find_interpreter(name: str) -> Interpreter | None:
    """Return an installed Python of a runtime, for instance python3.12; None if it isn't installed.

    For the emulator's version, it is the emulator's own.
    """
    if name == OWN:
        program = os.path.realpath(str(getattr(sys, "_base_executable", None) or sys.executable))
        paths = outermost([*visible_paths(), os.path.realpath(sys.base_prefix), program])
        return Interpreter(platform.python_version(), program, tuple(paths))
    for program in _candidates(name):
        with suppress(OSError, ValueError, subprocess.SubprocessError):
            answer = subprocess.run(
                [program, "-I", "-c", ABOUT], capture_output=True, text=True, timeout=ANSWER_LIMIT_S, check=True
            )
            kind, version, real, prefix = json.loads(answer.stdout)
            if kind == "CPython" and version.startswith(name.removeprefix("python") + "."):
                real = os.path.realpath(real)
                paths = outermost([*SYSTEM_PATHS, prefix, os.path.realpath(prefix), real])
                return Interpreter(version, real, tuple(paths))
    return None


def _candidates(name: str) -> Iterator[str]:
    """Yield programs that may be the Python: on PATH, and where pyenv and uv keep theirs, the newest first."""
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if program := shutil.which(name, path=directory):
            yield program
    home = Path.home()
    pyenv = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or home / ".local/share/uv/python")
    version = name.removeprefix("python")
    found = [*pyenv.glob(f"{version}.*/bin/{name}"), *uv.glob(f"cpython-{version}.*/bin/{name}")]
    newest_first = sorted(found, key=lambda path: [*map(int, re.findall(r"\d+", path.parts[-3]))], reverse=True)
    yield from map(str, newest_first)


def _make_folder(runtime: Runtime) -> None:
    """Make /var/runtime: links to the host's packages for the emulator's own Python, else copies without binaries.

    awslambdaric's compiled module is built for the emulator's own Python; elsewhere one of slslab's takes its place.
    """
    runtime.folder.mkdir(parents=True)
    for name in ("bootstrap.py", "slslab_runtime.py", *(() if runtime.own else ("runtime_client.py",))):
        shutil.copy(PROGRAMS / name, runtime.folder)
    for package in map(distribution, DISTRIBUTIONS):
        for path in _contents(package):
            target = runtime.folder / path.name
            if runtime.own:
                target.symlink_to(path)
            elif path.is_dir():
                shutil.copytree(path, target, ignore=COMPILED, copy_function=link_or_copy)
            elif path.suffix == ".py":
                link_or_copy(path, target)
    # The folder is read-only later. Without this, every cold start would compile what it imports.
    if runtime.own:
        compile_module(str(runtime.folder / "slslab_runtime.py"), invalidation_mode=UNCHECKED)
    else:
        compiling = ["-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", str(runtime.folder)]
        subprocess.run([runtime.interpreter.program, *compiling], check=False, stdout=subprocess.DEVNULL)


def _contents(package: Any) -> Iterator[Path]:
    """Yield the top-level files and folders of an installed distribution: modules, packages, and its metadata."""
    # `package.files` makes a path of each of thousands of lines.
    names = {re.split("[,/]", line)[0] for line in (package.read_text("RECORD") or "").splitlines()}
    for name in sorted(names - {"..", "__pycache__"}):
        yield Path(str(package.locate_file(name)))


def link_or_copy(source: str | Path, target: str | Path) -> str:
    """Link a file, which is never written to, or copy it if that fails; return the target."""
    try:
        os.link(source, target)
    except OSError:  # another file system, or another user's file
        shutil.copy(source, target)
    return str(target)
