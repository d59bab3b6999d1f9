"""The recorded runs behind the atlas: each architecture with each network, and requests of other channels.

Recordings of Table 2 of Barrak et al. and Table 1 of LambdaML are reused; `JOBS` are the atlas's own: small runs that
these tables don't include.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slslab.errors import RunError
from slslab.run.directory import RunDirectory
from slslab_lab.replay.measured import Measured, read_measured
from slslab_lab.runs.accuracy.curve import Watcher
from slslab_lab.studies import committed
from slslab_lab.studies.atlas.systems import MODELS, SYSTEMS, System
from slslab_lab.studies.experiments import ARCHITECTURES, BATCH_SIZE, RECORDED_MB
from slslab_lab.studies.recording import Recording, describe_done, is_done, make_missing, small_run
from slslab_workers.plan import Value

# As in Table 1's recordings: a small host has room for two workers.
RECORDED_WORKERS, MEMORY_MB = 2, 3008
# The architecture recorded with other channels; also the one that provides forward and backward for all.
CHANNELS_OF = COMPUTES = "allreduce"
# Minibatches of each worker. MLLess's filter holds back the first updates, so in a few minibatches it would send none.
STEPS, STEPS_OF = 5, {"mlless": 15}
# Tree topologies to compare with GradsSharding; they don't train, so they aren't points.
AVERAGING, TOPOLOGIES = "gradssharding", ("shards", "lambda-fl", "lifl")


def _job(
    architecture: str,
    model: str,
    dataset: str,
    batch_size: int,
    batches: int,
    epochs: int,
    memory_mb: int,
    variant: str = "",
    options: Mapping[str, Value] | None = None,
) -> Recording:
    """Return a small run; `variant` is the end of its folder's name."""
    # Workers that share the processors of a small host slow each other down.
    values = small_run(model, dataset, RECORDED_WORKERS, batch_size, batches, epochs, memory_mb, record="alone")
    return Recording("-".join(filter(None, (model, architecture, variant))), architecture, values, options or {})


def lenet(architecture: str, variant: str = "", options: Mapping[str, Value] | None = None) -> Recording:
    """Return a recording of LeNet-5 on the 1,433 images of digits; two minibatches make an epoch."""
    steps = STEPS_OF.get(architecture, STEPS)
    return _job(architecture, "lenet", "digits", BATCH_SIZE, 1, steps, 1769, variant, options)


def mobilenet(architecture: str, variant: str = "", options: Mapping[str, Value] | None = None) -> Recording:
    """Return a recording of MobileNet, like Table 1's recordings of the other channels."""
    steps = STEPS_OF.get(architecture, STEPS)
    # KubeML's functions live for an epoch, so a warm one trains in the second.
    batches, epochs = (1, steps) if architecture == "kubeml" else (steps, 1)
    return _job(architecture, "mobilenet", "synthetic", 128, batches, epochs, MEMORY_MB, variant, options)


def _jobs() -> Iterator[Recording]:
    names = tuple(dict.fromkeys(system.architecture for system in SYSTEMS))
    yield from map(lenet, names)
    # Table 2's recordings have the CPU time of four workers that shared two processors.
    for model, memory_mb in RECORDED_MB.items():
        yield _job(COMPUTES, model, "synthetic", BATCH_SIZE, 1, 3, memory_mb)
    yield from (mobilenet(name) for name in names if name not in ARCHITECTURES)
    for channel in dict.fromkeys(system.own_channel for system in SYSTEMS if system.own_channel):
        yield lenet(CHANNELS_OF, channel, System(CHANNELS_OF, channel, "ga").chosen)
    yield mobilenet(CHANNELS_OF, "redis", System(CHANNELS_OF, "redis", "ga").chosen)
    yield from (lenet(AVERAGING, name, {"topology": name}) for name in TOPOLOGIES)


JOBS: Sequence[Recording] = tuple(_jobs())


@dataclass(frozen=True, eq=False)
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
    own = {job.name for job in JOBS}

    def several(names: Mapping[str, Path]) -> tuple[Measured, ...]:
        folders = {name: directory / name if name in own else otherwise for name, otherwise in names.items()}
        if missing := [name for name, folder in folders.items() if name in own and not folder.is_dir()]:
            raise RunError(
                f"{directory} has no recording {missing[0]}.",
                f"record it: slslab atlas --record --recordings {directory}",
            )
        found = (read_measured(folder) for folder in folders.values() if folder.is_dir())
        return tuple(sorted(found, key=lambda run: int(run.document["parameters"])))

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

    def is_kept(folder: Path, _: Recording) -> bool:
        return is_done(folder) and _is_quiet(RunDirectory(folder).document() or {})

    make_missing(directory, JOBS, watcher, is_kept, _describe)


def _describe(folder: Path, document: Mapping[str, Any]) -> str:
    quiet = "quiet" if _is_quiet(document) else "NOT QUIET: the host was busy, so this run is repeated next time"
    return f"{describe_done(folder, document)}, {quiet}"


def _is_quiet(document: Mapping[str, Any]) -> bool:
    return bool((document.get("alone") or {}).get("quiet"))
