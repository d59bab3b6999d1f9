"""The recorded runs behind the atlas: each architecture with each network, and requests of other channels.

Recordings of Table 2 of Barrak et al. and Table 1 of LambdaML are reused; `JOBS` are the atlas's own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slslab.errors import RunError
from slslab.run.directory import RunDirectory
from slslab_lab.replay.measured import Measured, read_measured
from slslab_lab.runs.accuracy.curve import Watcher
from slslab_lab.runs.planning import architectures
from slslab_lab.studies import committed
from slslab_lab.studies.atlas.jobs import CHANNELS_OF, JOBS
from slslab_lab.studies.atlas.systems import MODELS, SYSTEMS
from slslab_lab.studies.recording import Recording, describe_done, is_done, make_missing


@dataclass(frozen=True)
class Recordings:
    """Recorded runs of architectures by name, and of AllReduce by the name of another channel; each from the smallest
    model to the largest."""

    architectures: Mapping[str, Sequence[Measured]]
    channels: Mapping[str, Sequence[Measured]]

    @property
    def noisy(self) -> Sequence[str]:
        """Return the runs with a solo measurement that was disturbed by other load on the host."""
        everyone = (run for runs in (*self.architectures.values(), *self.channels.values()) for run in runs)
        return tuple(
            run.plan.run for run in everyone if not (run.document.get("alone") or {"quiet": True}).get("quiet")
        )

    def digests(self) -> Iterator[str]:
        """Yield the digest of each run."""
        for runs in (*self.architectures.values(), *self.channels.values()):
            yield from (run.directory.digest() for run in runs)


def read_all(directory: Path) -> Recordings:
    """Return all recordings, the atlas's own from `directory`; RunError for a missing or unfinished one."""
    table1, table2 = committed("lambdaml-table1"), committed("table2")
    known = architectures()
    own = {job.name: job for job in JOBS}

    def read(name: str, otherwise: Path) -> Measured | None:
        place = directory / name if name in own else otherwise
        if name in own and not place.is_dir():
            raise RunError(
                f"{directory} has no recording {name}.", f"record it: slslab atlas --record --recordings {directory}"
            )
        return read_measured(place, known) if place.is_dir() else None

    def several(names: Mapping[str, Path]) -> tuple[Measured, ...]:
        found = (read(name, place) for name, place in names.items())
        return tuple(sorted(filter(None, found), key=lambda run: int(run.document["parameters"])))

    of_architectures = {
        name: several({f"{model}-{name}": table2 / f"{model}-{name}" for model in MODELS})
        for name in dict.fromkeys(system.architecture for system in SYSTEMS)
    }
    channels = dict.fromkeys(system.own_channel for system in SYSTEMS if system.own_channel)
    of_channels = {
        channel: several({f"{model}-{CHANNELS_OF}-{channel}": table1 / f"{model}-{channel}" for model in MODELS})
        for channel in channels
    }
    return Recordings(of_architectures, of_channels)


def record_all(directory: Path, watcher: Watcher) -> None:
    """Make the atlas's own recordings that are missing, or were made while the host was busy.

    It keeps the others, so an interrupted command continues where it stopped. RunError if a run fails, RequestError if
    another command is making it.
    """
    make_missing(directory, JOBS, watcher, _is_kept, _describe)


def _is_kept(place: Path, _: Recording) -> bool:
    return is_done(place) and _is_quiet(RunDirectory(place).document() or {})


def _describe(place: Path, document: Mapping[str, Any]) -> str:
    quiet = "quiet" if _is_quiet(document) else "NOT QUIET: the host was busy, so this run is repeated next time"
    return f"{describe_done(place, document)}, {quiet}"


def _is_quiet(document: Mapping[str, Any]) -> bool:
    return bool((document.get("alone") or {}).get("quiet"))
