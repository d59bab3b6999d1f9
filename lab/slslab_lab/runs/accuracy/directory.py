"""Directories of accuracy curves: results by epoch, how they were made, and a checkpoint to continue from.

`curve.json` contains everything, `curve.csv` the epochs; `checkpoint.bin` works only on the host that wrote it.
"""

import csv
import fcntl
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from slslab.errors import RequestError, RunError, writable
from slslab.run.log import locked, replacing
from slslab.run.reading import reading

DOCUMENT, TABLE, CHECKPOINT = "curve.json", "curve.csv", "checkpoint.bin"
SCHEMA = 1
# Each part of a checkpoint follows its length, in this many bytes.
LENGTH = 8


@dataclass(frozen=True)
class CurveDirectory:
    """One curve's directory."""

    path: Path

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the directory and lock it against other commands; remove it at the end if it is empty.

        RequestError if another command uses it, or it can't be made.
        """
        with ExitStack() as stack:
            with writable(self.path, "choose another --out.", done="made"):
                self.path.mkdir(parents=True, exist_ok=True)
                try:
                    stack.enter_context(locked(self.path, fcntl.LOCK_NB))
                except BlockingIOError:
                    raise RequestError(
                        f"Another command is making the curve in {self.path}.", "wait for it, or choose another --out."
                    ) from None
            # The temporary files of `replacing`, left by a killed process.
            for left in self.path.glob(".*.tmp"):
                left.unlink()
            try:
                yield
            finally:
                with suppress(OSError):
                    self.path.rmdir()

    def check_empty(self) -> None:
        """Raise RequestError if the directory is not empty."""
        if any(self.path.iterdir()):
            raise RequestError(
                f"{self.path} is not empty, and a curve never overwrites another.",
                "type --resume to continue the curve in it, or choose another --out.",
            )

    def write(self, document: Mapping[str, Any]) -> None:
        """Write curve.json and curve.csv, each atomically."""
        rows = document["epochs"]
        with self._replacing(DOCUMENT) as file:
            file.write((json.dumps(document, indent=2) + "\n").encode())
        with self._replacing(TABLE) as file:
            file.write(csv_text(tuple(rows[0]), rows).encode())

    def write_checkpoint(self, document: Mapping[str, Any], bodies: Iterable[bytearray]) -> None:
        """Write the checkpoint (the document, and a body per worker) atomically."""
        parts: Iterable[bytes | bytearray] = chain([json.dumps(document).encode()], bodies)
        with self._replacing(CHECKPOINT) as file:
            for part in parts:
                file.write(len(part).to_bytes(LENGTH, "little"))
                file.write(part)

    @contextmanager
    def checkpoint(self) -> Iterator[tuple[dict[str, Any], Iterator[bytearray]]]:
        """Yield the document and the bodies; RequestError without a checkpoint, RunError for a broken one."""
        path = self.path / CHECKPOINT
        try:
            file = path.open("rb")
        except OSError as error:
            raise RequestError(
                f"{self.path} has no checkpoint to continue from: {error.strerror}.", "leave out --resume."
            ) from error
        with file:
            parts = _read_parts(file)
            with self.reading():
                document = _read_document(next(parts, bytearray()))
            yield document, parts

    def reading(self) -> AbstractContextManager[None]:
        """Return a context that raises RunError if it meets a damaged checkpoint."""
        return reading(self.path / CHECKPOINT, "a checkpoint")

    @contextmanager
    def _replacing(self, name: str) -> Iterator[BinaryIO]:
        path, hint = self.path / name, "free some space there, then continue with --resume."
        with writable(path, hint, RunError), replacing(path) as file:
            yield file


def csv_text(fields: Sequence[str], records: Iterable[Mapping[str, Any]]) -> str:
    """Return a table of records with these fields."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _read_parts(file: io.BufferedReader) -> Iterator[bytearray]:
    left = os.fstat(file.fileno()).st_size
    while size := file.read(LENGTH):
        left -= len(size)
        part_bytes = int.from_bytes(size, "little")
        if len(size) < LENGTH or part_bytes > left:
            raise ValueError("it is cut off")
        part = bytearray(part_bytes)
        left -= file.readinto(part)
        yield part


def _read_document(header: bytearray) -> dict[str, Any]:
    try:
        document = json.loads(header)
    except ValueError:
        raise ValueError("it doesn't begin with a curve's JSON" if header else "it is empty") from None
    if not isinstance(document, dict) or document["schema"] != SCHEMA:
        raise ValueError(f"its schema isn't {SCHEMA}")
    if "rows" in document:  # as slslab 0.2 wrote it
        document |= {"epochs": document["rows"], "device": {"kind": document["device"]}}
    return document
