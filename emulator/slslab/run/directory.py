"""Run directories: a run's plan, trace, records and document. A finished run is never modified."""

import fcntl
import json
import os
import re
import secrets
import shutil
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import tomli_w

from slslab.errors import HostError, RequestError, RunError, counted, writable
from slslab.run.document import check_document
from slslab.run.log import INSTANCES, INVOCATIONS, LOG, SERVICE, TABLE, writing
from slslab.run.reading import reading
from slslab_workers.architecture import read_plan

DOCUMENT = "run.json"
PLAN = "plan.toml"
# Follows the function's name.
FITTED = ".aws.toml"
LOCK = ".lock"
# The start time, with which a run's id begins.
BEGAN = "%Y%m%d-%H%M%S"


def root() -> Path:
    """Return the folder of all runs: $SLSLAB_RUNS or ./runs."""
    return Path(os.environ.get("SLSLAB_RUNS", "runs"))


def new_id(architecture: str, model: str) -> str:
    """Return a sortable, readable, unique id such as 20261121-071530-ARCHITECTURE-mobilenet-3f2a."""
    now = datetime.now(UTC).strftime(BEGAN)
    name = re.sub(r"[^a-z0-9]+", "-", f"{architecture}-{model}".lower())[:32].strip("-")
    return f"{now}-{name}-{secrets.token_hex(2)}"


@dataclass(frozen=True)
class RunDirectory:
    """One run's directory."""

    path: Path

    @classmethod
    def create(cls, path: Path) -> "RunDirectory":
        """Make the directory; RequestError if it isn't empty."""
        with writable(path, "choose another --out.", done="made"):
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise RequestError(f"{path} is not empty, and a run never overwrites another.", "choose another --out.")
            # Fails if another command uses the same directory at the same time.
            (path / "logs").mkdir()
        return cls(path)

    @property
    def id(self) -> str:
        """Return the run's id from its plan, or the directory's name if the plan is missing or unreadable."""
        path = self.path / PLAN
        try:
            return str(tomllib.loads(path.read_text())["run"]) if path.is_file() else self.path.name
        except (OSError, ValueError, KeyError, RecursionError):
            return self.path.name

    @property
    def logs(self) -> Path:
        """Return the folder of the functions' logs."""
        return self.path / "logs"

    @property
    def trace_log(self) -> Path:
        """Return the path of the trace log."""
        return self.path / LOG

    def lock(self) -> int:
        """Mark the run as running until this process exits; return the descriptor to close at the run's end.

        HostError if the directory can't be written.
        """
        with writable(self.path, "make room for runs.", HostError):
            descriptor = os.open(self.path / LOCK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, str(os.getpid()).encode())
        return descriptor

    def process(self) -> int | None:
        """Return a pidfd (to be closed) of the process that runs it; None if it isn't running or can't be seen."""
        try:
            descriptor = os.pidfd_open(int((self.path / LOCK).read_text()))
        except (OSError, ValueError):
            return None
        # The lock shows that the process id hasn't been reused.
        if self.locked():
            return descriptor
        os.close(descriptor)
        return None

    def unlock(self, descriptor: int) -> None:
        """Mark the run as over."""
        os.close(descriptor)
        (self.path / LOCK).unlink(missing_ok=True)

    def write_plan(self, plan: dict[str, Any]) -> None:
        """Write plan.toml, complete and re-runnable."""
        self._replace(PLAN, tomli_w.dumps(plan))

    def plan(self) -> dict[str, Any]:
        """Read plan.toml; RunError if it is missing or invalid."""
        path = self.path / PLAN
        with reading(path, "a plan"):
            document = tomllib.loads(path.read_text())
            read_plan(document)
        return document

    def write(self, name: str, document: Any) -> None:
        """Write a JSON file atomically; the document, written last, finishes the run."""
        self._replace(name, json.dumps(document, indent=2) + "\n")

    def digests(self) -> dict[str, str]:
        """Return the SHA-256, by name, of each file that a finished run's figures come from."""
        kept = (PLAN, TABLE, INVOCATIONS, INSTANCES)
        return {name: _sha256(self.path / name) for name in kept if (self.path / name).exists()}

    def finish(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Finish the run: write the document, with the digests of all files and its own, and return it."""
        whole: dict[str, Any] = json.loads(json.dumps({**document, "files": self.digests()}))
        whole["files"][DOCUMENT] = _document_digest(whole)
        self.write(DOCUMENT, whole)
        return whole

    def verify(self, document: Mapping[str, Any]) -> None:
        """Raise RunError if a file doesn't match its digest in the document.

        Documents from before version 0.2 have no digests.
        """
        for name, digest in document.get("files", {}).items():
            path = self.path / name
            with reading(path, "what the run left"):
                if name != DOCUMENT and digest != _sha256(path):
                    raise ValueError("its digest differs from the one in run.json")

    def digest(self) -> str:
        """Return the SHA-256 of a finished run: its document, plan, trace and metered records."""
        total = sha256()
        for path in sorted(self.path.iterdir()):
            if path.name in (DOCUMENT, PLAN, TABLE, LOG, INVOCATIONS, INSTANCES):
                total.update(f"{path.name} {path.stat().st_size} ".encode() + path.read_bytes())
        return total.hexdigest()

    def service(self) -> dict[str, Any] | None:
        """Return the description of the service that recorded here, None for a run; RunError if it isn't JSON."""
        return self._read(SERVICE, "a service's")

    def profile(self, function: str) -> Path:
        """Return the path of the profile that is fitted to a function's times on AWS; it may not exist."""
        return self.path / f"{function}{FITTED}"

    def profiles(self) -> dict[str, Path]:
        """Return the fitted profiles' files by function."""
        return {path.name.removesuffix(FITTED): path for path in sorted(self.path.glob(f"*{FITTED}"))}

    def document(self) -> dict[str, Any] | None:
        """Return the run's document, None before it has ended."""
        return self._read(DOCUMENT, "a run's document", _check_digest)

    def _read(
        self, name: str, noun: str, check: Callable[[dict[str, Any]], dict[str, Any]] = dict
    ) -> dict[str, Any] | None:
        path = self.path / name
        if not path.exists():
            return None
        with reading(path, noun):
            return check(json.loads(path.read_text()))

    def ended(self) -> bool:
        """Return whether it has ended; a run with a document has."""
        return not self.locked() or (self.path / DOCUMENT).exists()

    def began(self) -> str:
        """Return when it began (UTC, from the run's id or the service's description); "" if unknown.

        File times don't tell, because copying changes them.
        """
        try:
            service = self.service()
            if service is not None:
                return datetime.fromisoformat(service["started_at"]).strftime(BEGAN)
        except (RunError, KeyError, ValueError, TypeError):
            return ""
        return match[0] if (match := re.match(r"\d{8}-\d{6}(?=-)", self.id)) else ""

    def status(self) -> str:
        """Return done, failed, running, or interrupted (by a signal, or a killed command); an ended service is done."""
        # In this order, so that a run that ends in between doesn't look interrupted.
        locked, document = self.locked(), self.document()
        if document is not None:
            return str(document["status"])
        if locked:
            return "running"
        return "done" if "ended_at" in (self.service() or {}) else "interrupted"

    def listed(self) -> dict[str, Any]:
        """Return what `runs` lists: the document, or else id, status and plan."""
        document = self.document()
        if document is not None:
            return document
        plan = self.plan() if (self.path / PLAN).exists() else {}
        return {"run": self.id, "status": self.status()} | {k: v for k, v in plan.items() if k != "run"}

    def locked(self) -> bool:
        """Return whether the run, or the service that records here, is running."""
        try:
            descriptor = os.open(self.path / LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # Shared, so that two commands that check don't mistake each other for the run.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(descriptor)

    def check_removable(self) -> None:
        """Raise RequestError if the run is still running, or the directory is a link or may contain other files."""
        if self.locked():
            raise RequestError(f"{self.path} is still running.", "stop it first: Ctrl-C, or `slslab down` for `up`.")
        if self.path.is_symlink():
            raise RequestError(f"{self.path} is a link to a run.", "name the run itself.")
        # A plan may lie among its author's other files. A run that was killed before its trace began left its lock.
        if not any((self.path / name).exists() for name in (DOCUMENT, LOG, TABLE, LOCK)):
            raise RequestError(f"{self.path} has a plan, but no results of a run.", "remove it yourself.")

    def remove(self) -> int:
        """Remove the directory without following links; return its size in bytes. HostError if that fails."""
        files = (Path(folder, name) for folder, _, names in os.walk(self.path) for name in names)
        size = sum(file.lstat().st_size for file in files)
        try:
            shutil.rmtree(self.path.resolve())
        except OSError as error:
            hint = "check its owner with `ls -l`."
            raise HostError(f"{error.filename} cannot be removed: {error.strerror}.", hint) from error
        return size

    def _replace(self, name: str, text: str) -> None:
        if (self.path / DOCUMENT).exists():
            raise RunError(f"{self.path} is a finished run, which is never modified.", "make a new run.")
        with writing(self.path / name) as file:
            file.write(text.encode())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _check_digest(document: dict[str, Any]) -> dict[str, Any]:
    document = check_document(document)
    if document.get("files", {}).get(DOCUMENT) not in (None, _document_digest(document)):
        raise ValueError("its digest differs from the one that it contains")
    return document


def _document_digest(document: Mapping[str, Any]) -> str:
    files = {name: digest for name, digest in document.get("files", {}).items() if name != DOCUMENT}
    return sha256(json.dumps({**document, "files": files}, sort_keys=True).encode()).hexdigest()


def list_runs(folder: Path | None = None) -> list[RunDirectory]:
    """Return all runs in a folder (by default `root()`), newest first."""
    folder = folder or root()
    if not folder.is_dir():
        return []
    found = map(RunDirectory, filter(_is_run, folder.iterdir()))
    return sorted(found, key=lambda run: (run.began(), run.path.name), reverse=True)


def resolve(run: str) -> RunDirectory:
    """Return the run by id, unambiguous beginning, path, `last` or `last~N`; RequestError if none or several match.

    `last` is the ended run that began last.
    """
    known = list_runs()
    if match := re.fullmatch(r"last(?:~(\d+))?", run):
        # The records of `slslab up` have a name of their own.
        known = [directory for directory in known if directory.ended() and not (directory.path / SERVICE).exists()]
        back = int(match[1] or 0)
        if not known:
            raise RequestError(f"No run has ended yet in {root()}.", "start one with `slslab run`, and wait for it.")
        if back >= len(known):
            ended = counted(len(known), "run")
            raise RequestError(f"There is no {run} in {root()}, where {ended} ended.", "list them with `slslab runs`.")
        return known[back]
    if _is_run(Path(run)):
        return RunDirectory(Path(run))
    exact = [directory for directory in known if run in (directory.id, directory.path.name)]
    matching = exact or [directory for directory in known if directory.id.startswith(run)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        names = ", ".join(directory.id for directory in matching[:4])
        more = f" and {len(matching) - 4} more" if len(matching) > 4 else ""
        raise RequestError(f"{run!r} may mean {len(matching)} runs: {names}{more}.", "give more of the id.")
    raise RequestError(f"There is no run {run!r} in {root()}.", "list them with `slslab runs`.")


def _is_run(path: Path) -> bool:
    return path.is_dir() and any((path / name).exists() for name in (PLAN, DOCUMENT, LOG, TABLE))
