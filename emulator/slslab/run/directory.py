"""Run directories: where a run's plan, trace, records, bill and document live. A finished run is never modified."""

import fcntl
import json
import os
import re
import secrets
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import tomli_w

from slslab.errors import HostError, RequestError, RunError, counted
from slslab.run.document import check_document
from slslab.run.log import INSTANCES, INVOCATIONS, LOG, SERVICE, TABLE, write_records, writing
from slslab.run.reading import reading
from slslab_workers.architecture import read_plan
from slslab_workers.plan import PlanError

DOCUMENT = "run.json"
PLAN = "plan.toml"
# A function's name comes first.
FITTED = ".aws.toml"
BILL = "bill.json"
LOCK = ".lock"
# When a run began, as its id begins.
BEGAN = "%Y%m%d-%H%M%S"


def root() -> Path:
    """Return where runs live: $SLSLAB_RUNS or ./runs."""
    return Path(os.environ.get("SLSLAB_RUNS", "runs"))


def new_id(architecture: str, model: str) -> str:
    """Return a sortable, readable, unique id such as 20261121-071530-scatterreduce-mobilenet-3f2a."""
    now = datetime.now(UTC).strftime(BEGAN)
    name = re.sub(r"[^a-z0-9]+", "-", f"{architecture}-{model}".lower())[:32].strip("-")
    return f"{now}-{name}-{secrets.token_hex(2)}"


@dataclass(frozen=True)
class RunDirectory:
    """One run's directory."""

    path: Path

    @classmethod
    def create(cls, path: Path) -> "RunDirectory":
        """Make the directory; RequestError if something is there already."""
        taken = RequestError(f"{path} is not empty, and a run never overwrites another.", "choose another --out.")
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise taken
        except OSError as error:
            raise RequestError(f"{path} cannot be made: {error.strerror}.", "choose another --out.") from error
        try:
            (path / "logs").mkdir()
        except FileExistsError:
            # Another command was given the same directory at the same time.
            raise taken from None
        except OSError as error:
            raise RequestError(f"{path} cannot be written: {error.strerror}.", "choose another --out.") from error
        return cls(path)

    @property
    def id(self) -> str:
        """Return the run's id, as its plan says; the directory's name if there is no plan that can be read."""
        path = self.path / PLAN
        try:
            return str(tomllib.loads(path.read_text())["run"]) if path.is_file() else self.path.name
        except (OSError, ValueError, KeyError, RecursionError):
            return self.path.name

    @property
    def logs(self) -> Path:
        """Return where the functions' logs are."""
        return self.path / "logs"

    @property
    def trace_log(self) -> Path:
        """Return where the trace is appended."""
        return self.path / LOG

    def lock(self) -> int:
        """Mark the run as going on until this process exits; return the descriptor to close at the run's end.

        HostError if the directory cannot be written.
        """
        try:
            descriptor = os.open(self.path / LOCK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, str(os.getpid()).encode())
        except OSError as error:
            raise HostError(f"{self.path} cannot be written: {error.strerror}.", "make room for runs.") from error
        return descriptor

    def process(self) -> int | None:
        """Return a descriptor of the process that runs it (a pidfd, to be closed); None if the run does not go on or
        its process cannot be seen from here."""
        try:
            descriptor = os.pidfd_open(int((self.path / LOCK).read_text()))
        except (OSError, ValueError):
            return None
        # Only now is it certain that the number is still that process's.
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
        """Read plan.toml; RunError if it is not a plan, or not there."""
        path = self.path / PLAN
        with reading(path, "a plan"):
            document = tomllib.loads(path.read_text())
            try:
                read_plan(document)
            except PlanError as error:
                raise ValueError(error.message) from error
        return document

    def write(self, name: str, document: Any) -> None:
        """Write a JSON file at once or not at all; the document, written last, finishes the run."""
        self._replace(name, json.dumps(document, indent=2) + "\n")

    def write_invocations(self, records: list[dict[str, Any]]) -> None:
        """Write invocations.jsonl: a metered record with its REPORT line per invocation."""
        self._check_unfinished()
        write_records(self.path / INVOCATIONS, records)

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of each file that a finished run's figures come from, by its name."""
        kept = (PLAN, TABLE, INVOCATIONS, INSTANCES, BILL)
        return {name: _sha256(self.path / name) for name in kept if (self.path / name).exists()}

    def finish(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Write the document, with the digests of all files and its own, and return it: the run is finished."""
        whole: dict[str, Any] = json.loads(json.dumps({**document, "files": self.digests()}))
        whole["files"][DOCUMENT] = _document_digest(whole)
        self.write(DOCUMENT, whole)
        return whole

    def verify(self, document: Mapping[str, Any]) -> None:
        """Raise RunError for a file that is not what the run left, by the digests in its document.

        Documents of runs before 0.2 have no digests.
        """
        for name, digest in document.get("files", {}).items():
            path = self.path / name
            with reading(path, "what the run left"):
                if name != DOCUMENT and digest != _sha256(path):
                    raise ValueError("its digest is another than in run.json")

    def digest(self) -> str:
        """Return the SHA-256 of what a finished run is: its document, plan, trace and metered records."""
        total = sha256()
        for path in sorted(self.path.iterdir()):
            if path.name in (DOCUMENT, PLAN, TABLE, LOG, INVOCATIONS, INSTANCES):
                total.update(f"{path.name} {path.stat().st_size} ".encode() + path.read_bytes())
        return total.hexdigest()

    def service(self) -> dict[str, Any] | None:
        """Return what is known of the service that recorded it, None for a run's; RunError if it is not JSON."""
        path = self.path / SERVICE
        if not path.exists():
            return None
        with reading(path, "a service's"):
            return dict(json.loads(path.read_text()))

    def profile(self, function: str) -> Path:
        """Return the file of the profile that was fitted to AWS's times of a service's function, where it may be."""
        return self.path / f"{function}{FITTED}"

    def profiles(self) -> dict[str, Path]:
        """Return the files of these profiles by function."""
        return {path.name.removesuffix(FITTED): path for path in sorted(self.path.glob(f"*{FITTED}"))}

    def document(self) -> dict[str, Any] | None:
        """Return the run's document, or None while it has not come to its end."""
        path = self.path / DOCUMENT
        if not path.exists():
            return None
        with reading(path, "a run's document"):
            document = check_document(json.loads(path.read_text()))
            if document.get("files", {}).get(DOCUMENT) not in (None, _document_digest(document)):
                raise ValueError("its digest is another than it says")
            return document

    def ended(self) -> bool:
        """Return whether it does not go on; a run that has its document has come to its end."""
        return not self.locked() or (self.path / DOCUMENT).exists()

    def began(self) -> str:
        """Return when it began, UTC, as a run's id tells it; "" if that is not known.

        Times of files are not the run's: copying changes them.
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
        # In this order, a run that ends in between is not taken for an interrupted one.
        locked, document = self.locked(), self.document()
        if document is not None:
            return str(document["status"])
        if locked:
            return "running"
        return "done" if "ended_at" in (self.service() or {}) else "interrupted"

    def summary(self) -> dict[str, Any]:
        """Return what `runs` lists: the document, or what is known of a run without one."""
        document = self.document()
        if document is not None:
            return document
        plan = self.plan() if (self.path / PLAN).exists() else {}
        return {"run": self.id, "status": self.status()} | {k: v for k, v in plan.items() if k != "run"}

    def locked(self) -> bool:
        """Return whether the run goes on, or the service that records here."""
        try:
            descriptor = os.open(self.path / LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # Shared, so that two commands that ask do not take each other for the run.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(descriptor)

    def check_removable(self) -> None:
        """Raise RequestError if the directory goes on, is a link, or is not certainly a run's alone."""
        if self.locked():
            raise RequestError(f"{self.path} still goes on.", "end it first: Ctrl-C, or `slslab down` for `up`.")
        if self.path.is_symlink():
            raise RequestError(f"{self.path} is a link to a run.", "name the run itself.")
        # A plan may lie among other files of its author's. A run that was killed before it had a trace left its lock.
        if not any((self.path / name).exists() for name in (DOCUMENT, LOG, TABLE, LOCK)):
            raise RequestError(f"{self.path} has a plan, and nothing that a run left.", "remove it yourself.")

    def remove(self) -> int:
        """Remove the directory with all that is in it, and nothing that a link in it names; return the bytes of its
        files. HostError if it cannot be removed."""
        files = (Path(folder, name) for folder, _, names in os.walk(self.path) for name in names)
        size = sum(file.lstat().st_size for file in files)
        try:
            shutil.rmtree(self.path.resolve())
        except OSError as error:
            raise HostError(f"{error.filename} cannot be removed: {error.strerror}.", "see whose it is.") from error
        return size

    def _replace(self, name: str, text: str) -> None:
        self._check_unfinished()
        with writing(self.path / name) as file:
            file.write(text.encode())

    def _check_unfinished(self) -> None:
        if (self.path / DOCUMENT).exists():
            raise RunError(f"{self.path} is a finished run, which is never modified.", "make a new run.")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _document_digest(document: Mapping[str, Any]) -> str:
    files = {name: digest for name, digest in document.get("files", {}).items() if name != DOCUMENT}
    return sha256(json.dumps({**document, "files": files}, sort_keys=True).encode()).hexdigest()


def list_runs(folder: Path | None = None) -> list[RunDirectory]:
    """Return all runs in a folder, or where runs live, newest first, by when they began."""
    folder = folder or root()
    if not folder.is_dir():
        return []
    found = map(RunDirectory, filter(_is_run, folder.iterdir()))
    return sorted(found, key=lambda run: (run.began(), run.path.name), reverse=True)


def resolve(run: str) -> RunDirectory:
    """Return the run by id, unambiguous beginning, path, `last` or `last~N`; RequestError if none or several match.

    `last` is the one that began last of those that have ended.
    """
    known = list_runs()
    if match := re.fullmatch(r"last(?:~(\d+))?", run):
        # What `slslab up` records is asked for by its own name.
        known = [directory for directory in known if not (directory.path / SERVICE).exists() and directory.ended()]
        back = int(match[1] or 0)
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
