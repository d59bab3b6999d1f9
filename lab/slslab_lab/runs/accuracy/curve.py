"""Accuracy curves: an architecture's update rules run in one process, epoch by epoch, and saved after each.

Seconds are this process's own. Replay models the time on Lambda.
"""

import math
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from slslab.errors import HostError, RequestError
from slslab.host.procfs import processors
from slslab.installation import __version__
from slslab.report.formats import percent
from slslab.stack.instances.fleet import choose_devices
from slslab_lab.runs.accuracy.directory import SCHEMA, CurveDirectory
from slslab_lab.runs.planning import architectures, make_plan
from slslab_workers.architecture import Progress, read_plan
from slslab_workers.driver.stopping import Stopping
from slslab_workers.plan import Plan
from slslab_workers.training.samples import Samples

if TYPE_CHECKING:
    from slslab_workers.training.replicas import Epoch, Judgement, Replicas

# What may differ between the plan that began a curve and the one that resumes it.
EXTENSIBLE = frozenset({"run", "epochs"})


class Watcher(Progress, Protocol):
    """The receiver of a curve's progress."""

    def say(self, line: str) -> None:
        """Print one line about what has been reached."""


class Unwatched:
    """Ignores the progress, in a process without a terminal."""

    def report(self, stage: str, done: int, total: int) -> None:
        """Ignore the progress."""

    def say(self, line: str) -> None:
        """Ignore the line."""


@dataclass
class Curve:
    """A curve so far: how it is made, and its epochs as rows; `sessions` are the commands that made it."""

    plan: Plan
    device: Mapping[str, str]
    command: str
    stopping: Stopping
    rows: list[dict[str, Any]] = field(default_factory=list)
    sessions: list[dict[str, Any]] = field(default_factory=list)
    ended: str | None = None

    def begin_session(self) -> None:
        """Record which command continues from here, when, and with which device and versions."""
        self.sessions.append(
            {
                "command": self.command,
                "started": datetime.now(UTC).isoformat(timespec="seconds"),
                "from_epoch": len(self.rows) + 1,
                "device": dict(self.device),
                "versions": {
                    "slslab": __version__,
                    "torch": version("torch"),
                    "numpy": version("numpy"),
                    "python": platform.python_version(),
                },
            }
        )

    def add(self, epoch: "Epoch", judged: "Judgement", seconds: Mapping[str, float]) -> None:
        """Add an epoch, which took these seconds; `ended` says whether it was the last."""
        before = self.rows[-1]["samples"] if self.rows else 0
        self.rows.append(
            {
                "epoch": len(self.rows) + 1,
                "updates": epoch.updates,
                "samples": before + epoch.minibatches * self.plan.batch_size,
                "training_loss": _finite(epoch.loss),
                "validation_loss": _finite(judged.validation_loss),
                "test_loss": _finite(judged.loss),
                "test_accuracy": judged.accuracy,
                "significant_updates": epoch.sent,
                "compute_seconds": round(epoch.compute_s, 3),
                **{name: round(value, 3) for name, value in seconds.items()},
            }
        )
        loss = judged.loss if judged.validation_loss is None else judged.validation_loss
        self.ended = self.stopping.record(judged.accuracy, loss)
        if self.ended is None and len(self.rows) >= self.plan.epochs:
            self.ended = "epochs"

    def as_document(self, status: str, replicas: "Replicas", name: str) -> dict[str, Any]:
        """Return the curve's document."""
        from slslab_workers.training import gradients

        # Workers that share their model have the same parameters.
        ranks = range(1 if replicas.shared else self.plan.workers)
        digests = [gradients.sha256(replicas.parameters(rank)) for rank in ranks]
        best = max(self.rows, key=lambda row: row["test_accuracy"], default=None)
        dataset, validation = replicas.samples.dataset, replicas.samples.validation
        return {
            "schema": SCHEMA,
            "curve": name,
            "status": status,
            "ended": self.ended,
            "architecture": self.plan.architecture,
            "seed": self.plan.seed,
            "plan": self.plan.to_document(),
            **{key: self.sessions[0][key] for key in ("command", "started", "device", "versions")},
            "sessions": self.sessions,
            "images": {
                "training": len(replicas.samples.labels),
                "validation": len(validation[1]) if validation is not None else 0,
                "test": len(dataset.test_labels),
            },
            "parameters": replicas.parameters().numel(),
            "parameters_sha256": digests[0],
            "replicas_equal": len(set(digests)) == 1,
            "best": None if best is None else {key: best[key] for key in ("epoch", "test_accuracy")},
            "epochs": self.rows,
        }

    def resume(self, document: Mapping[str, Any], directory: CurveDirectory) -> None:
        """Take over the curve that this document describes; RequestError if it belongs to another plan."""
        begun, device = read_plan(document["plan"]), document["device"]["kind"]
        plan, before = self.plan.to_document(), begun.to_document()
        for name in sorted((plan.keys() | before.keys()) - EXTENSIBLE):
            if plan.get(name) != before.get(name):
                raise RequestError(
                    f"The curve in {directory.path} has {name} {before.get(name)!r}, and this command "
                    f"{plan.get(name)!r}.",
                    "give the same options, or choose another --out.",
                )
        if device != self.device["kind"]:
            raise RequestError(
                f"The curve in {directory.path} was begun on {device}, and {self.device['kind']} rounds differently.",
                f"give --device {device}, or choose another --out.",
            )
        self.plan = replace(self.plan, run=begun.run)
        self.rows, self.sessions, self.ended = document["epochs"], document["sessions"], document["ended"]
        for row in self.rows:
            loss = row["validation_loss" if self.plan.early_stopping else "test_loss"]
            self.stopping.record(row["test_accuracy"], math.inf if loss is None else loss)
        if self.ended in ("epochs", None):
            # This command may ask for more epochs.
            self.ended = "epochs" if len(self.rows) >= self.plan.epochs else None


def make_curve(
    name: str,
    values: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    device: str,
    out: Path | None,
    resume: bool,
    command: str,
    watcher: Watcher,
) -> dict[str, Any]:
    """Do what `slslab accuracy` does; RequestError, PlanError or HostError if it cannot begin. The document of an
    interrupted curve says so."""
    architecture = architectures()[name]
    kind: type[Replicas] | None = architecture.replicas()
    if kind is None:
        raise RequestError(
            f"The architecture {name} does not say what its workers compute in one process.",
            f"`slslab run {name}` trains it too; to support `slslab accuracy`, set `learns` (docs/architectures.md).",
        )
    plan = make_plan(architecture, values, options)
    architecture.requirements(plan)
    kind.check(plan)
    curve = Curve(plan, describe_device(device), command, Stopping(plan))
    directory = CurveDirectory(out if out is not None else Path("results", "accuracy", curve_name(plan)))
    with ExitStack() as held:
        bodies: Iterator[bytearray] | None = None
        if resume:
            document, bodies = held.enter_context(directory.checkpoint())
            held.enter_context(directory.held())
            with directory.reading():
                curve.resume(document, directory)
        else:
            held.enter_context(directory.held())
            directory.check_empty()
        progress = _Progress(plan, len(curve.rows), watcher)
        with _enough_memory():
            samples = Samples(plan, lambda done, total: watcher.report("load", done, total))
            replicas = kind(plan, samples, curve.device["kind"], progress.count_minibatch)
            if bodies is not None:
                with directory.reading():
                    replicas.restore(bodies)
            return _train(curve, replicas, directory, progress)


def _train(curve: Curve, replicas: "Replicas", directory: CurveDirectory, progress: "_Progress") -> dict[str, Any]:
    """Train all missing epochs; after each, the checkpoint and the curve are on disk."""
    name = directory.path.name
    if curve.ended is None:
        curve.begin_session()
    document = curve.as_document("done", replicas, name)
    try:
        while curve.ended is None:
            began, cpu_began = time.monotonic(), time.process_time()
            trained = replicas.train_epoch()
            judging, cpu_s = time.monotonic(), time.process_time() - cpu_began
            judged = replicas.judge()
            seconds = {
                "training_seconds": judging - began,
                "training_cpu_seconds": cpu_s,
                "evaluation_seconds": time.monotonic() - judging,
            }
            curve.add(trained, judged, seconds)
            curve.ended = replicas.ended or curve.ended
            document = curve.as_document("running" if curve.ended is None else "done", replicas, name)
            directory.write_checkpoint(document, replicas.to_bytes())
            directory.write(document)
            progress.report_epoch(curve.rows[-1])
    except KeyboardInterrupt:
        # Only the current epoch is lost: the files are written atomically.
        document = {**document, "status": "interrupted"}
    if document["epochs"]:
        directory.write(document)
    return document


def curve_name(plan: Plan) -> str:
    """Return the default name of a curve's directory: architecture, model, data set, and whether as released."""
    dataset = plan.dataset.rstrip("/").rpartition("/")[2]
    released = ["as-released"] if plan.as_released else []
    words = "-".join([plan.architecture, plan.model, dataset.removeprefix("folder:"), *released])
    return "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in words.lower())


def describe_device(option: str) -> dict[str, str]:
    """Return the device: `kind` cuda or cpu, and its name; HostError for --device cuda without CUDA."""
    choose_devices(option)
    import torch

    from slslab_workers.training.devices import choose_device

    kind = choose_device(option)
    return {"kind": kind, "name": torch.cuda.get_device_name() if kind == "cuda" else processors()}


@contextmanager
def _enough_memory() -> Iterator[None]:
    import torch

    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        reason = str(error).partition(".")[0] or "there is not enough memory"
        raise HostError(
            f"The workers do not fit into the device's memory: {reason}.",
            "give a smaller --batch-size, or --device cpu.",
        ) from error


def _finite(value: float | None) -> float | None:
    """Return the loss, or None if it is infinite or not a number, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None


class _Progress:
    """Reports minibatches and epochs to a watcher, except the ones that a resumed curve already has."""

    def __init__(self, plan: Plan, epochs: int, watcher: Watcher) -> None:
        self._plan, self._watcher = plan, watcher
        self._done, self._total = 0, (plan.epochs - epochs) * plan.batches * plan.workers
        self._began = time.monotonic()

    def count_minibatch(self) -> None:
        """Report one more minibatch."""
        if not self._done:
            self._began = time.monotonic()
        self._done += 1
        self._watcher.report("train", self._done, self._total)

    def report_epoch(self, row: Mapping[str, Any]) -> None:
        """Report one more epoch, and the time for the rest at the same pace."""
        left_s = (time.monotonic() - self._began) / self._done * (self._total - self._done)
        loss = "not finite" if row["training_loss"] is None else f"{row['training_loss']:.4f}"
        self._watcher.say(
            f"epoch {row['epoch']} of {self._plan.epochs}: training loss {loss}, test accuracy "
            f"{percent(row['test_accuracy'], '.2')}; {row['training_seconds'] + row['evaluation_seconds']:.1f} s, "
            f"{timedelta(seconds=round(left_s))} to go"
        )
