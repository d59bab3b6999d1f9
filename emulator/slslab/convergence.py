"""Accuracy curves: an architecture's update rules run in one process, epoch by epoch, and kept after each.

Time is no part of it: what an epoch takes on Lambda, replay tells. Seconds here are those of this process.
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

from slslab import __version__
from slslab.curves import SCHEMA, CurveDirectory
from slslab.errors import HostError, RequestError
from slslab.execution import architectures, make_plan
from slslab.instances import choose_devices
from slslab_workers.plan import Plan, PlanError
from slslab_workers.samples import Samples
from slslab_workers.stopping import Stopping

if TYPE_CHECKING:
    from slslab_workers.replicas import Epoch, Judgement, Replicas

# What a curve may go on with that it was not begun with.
EXTENSIBLE = frozenset({"run", "epochs"})


class Watcher(Protocol):
    """Who looks on while a curve is made."""

    def report(self, stage: str, done: int, total: int) -> None:
        """`done` of `total` of this stage."""

    def say(self, line: str) -> None:
        """One line of what has been reached."""


@dataclass
class Curve:
    """A curve so far: how it is made, and its epochs as rows; `sessions` are the commands that have made it."""

    plan: Plan
    device: Mapping[str, str]
    command: str
    stopping: Stopping
    rows: list[dict[str, Any]] = field(default_factory=list)
    sessions: list[dict[str, Any]] = field(default_factory=list)
    ended: str | None = None

    def begin_session(self) -> None:
        """Remember who goes on from here, with what, and when."""
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
        """One more epoch, which took these seconds; whether it was the last, `ended` tells."""
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
        self.ended = self.stopping.hear(judged.accuracy, judged.stopping_loss)
        if self.ended is None and len(self.rows) >= self.plan.epochs:
            self.ended = "epochs"

    def as_document(self, status: str, replicas: "Replicas", name: str) -> dict[str, Any]:
        """The curve's document."""
        from slslab_workers import gradients

        prints = [gradients.sha256(replicas.parameters(rank)) for rank in _distinct(replicas)]
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
            "parameters_sha256": prints[0],
            "replicas_equal": len(set(prints)) == 1,
            "best": None if best is None else {key: best[key] for key in ("epoch", "test_accuracy")},
            "epochs": self.rows,
        }

    def header(self) -> dict[str, Any]:
        """What of it is in a checkpoint."""
        return {
            "plan": self.plan.to_document(),
            "device": self.device["kind"],
            "best": self.stopping.best,
            "since": self.stopping.since,
            "rows": self.rows,
            "sessions": self.sessions,
            "ended": self.ended,
        }

    def go_on(self, header: Mapping[str, Any], directory: CurveDirectory) -> None:
        """Take over what `header` was; RequestError if that is the curve of another plan."""
        begun = Plan.from_document(header["plan"])
        plan, known = self.plan.to_document(), begun.to_document()
        for name in sorted((plan.keys() | known.keys()) - EXTENSIBLE):
            if plan.get(name) != known.get(name):
                raise RequestError(
                    f"The curve in {directory.path} has {name} {known.get(name)!r}, and this command "
                    f"{plan.get(name)!r}.",
                    "give the same options, or choose another --out.",
                )
        if header["device"] != self.device["kind"]:
            raise RequestError(
                f"The curve in {directory.path} was begun on {header['device']}, and {self.device['kind']} rounds "
                "otherwise.",
                f"--device {header['device']}, or choose another --out.",
            )
        self.plan = replace(self.plan, run=begun.run)
        self.stopping.best, self.stopping.since = header["best"], header["since"]
        self.rows, self.sessions = header["rows"], header["sessions"]
        if header["ended"] in ("epochs", None):
            # More epochs may be wanted than there were.
            self.ended = "epochs" if len(self.rows) >= self.plan.epochs else None
        else:
            self.ended = header["ended"]


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
    """What `slslab accuracy` does; RequestError or HostError if it cannot begin. Interrupted, its status says so."""
    architecture = architectures()[name]
    kind = architecture.replicas()
    if kind is None:
        raise RequestError(
            f"The architecture {name} does not say what its workers compute in one process.", f"slslab run {name}"
        )
    try:
        plan = make_plan(architecture, values, options)
        architecture.requirements(plan)
        kind.check(plan)
        curve = Curve(plan, describe_device(device), command, Stopping(plan))
        directory = CurveDirectory(out if out is not None else Path("results", "accuracy", curve_name(plan)))
        with ExitStack() as held:
            bodies: Iterator[bytearray] | None = None
            if resume:
                header, bodies = held.enter_context(directory.checkpoint())
                held.enter_context(directory.held())
                curve.go_on(header, directory)
            else:
                held.enter_context(directory.held())
                directory.check_empty()
            progress = _Progress(plan, len(curve.rows), watcher)
            with _enough_memory():
                samples = Samples(plan, lambda done, total: watcher.report("load", done, total))
                replicas = kind(plan, samples, curve.device["kind"], progress.heard)
                if bodies is not None:
                    replicas.restore(bodies)
                return _train(curve, replicas, directory, progress)
    except PlanError as error:
        raise RequestError(error.message, error.hint) from error


def _train(curve: Curve, replicas: "Replicas", directory: CurveDirectory, progress: "_Progress") -> dict[str, Any]:
    """All epochs that are missing; after each, the checkpoint and the curve are on disk."""
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
            directory.write_checkpoint(curve.header(), replicas.to_bytes())
            document = curve.as_document("running" if curve.ended is None else "done", replicas, name)
            directory.write(document)
            progress.tell(curve.rows[-1])
    except KeyboardInterrupt:
        # The epoch that was under way is lost; whatever was written is whole.
        document = {**document, "status": "interrupted"}
    if document["epochs"]:
        directory.write(document)
    return document


def curve_name(plan: Plan) -> str:
    """The usual name of a curve's directory: architecture, model, data set, and whether as released."""
    dataset = plan.dataset.rstrip("/").rpartition("/")[2] if plan.dataset.startswith("folder:") else plan.dataset
    released = ["as-released"] if plan.as_released else []
    words = "-".join([plan.architecture, plan.model, dataset.removeprefix("folder:"), *released])
    return "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in words.lower())


def describe_device(wanted: str) -> dict[str, str]:
    """What is computed on: `kind` cuda or cpu, and its name; HostError if CUDA is wanted and there is none."""
    choose_devices(wanted)
    import torch

    from slslab_workers.gpu.instance import choose_device

    kind = choose_device(wanted)
    if kind == "cuda":
        return {"kind": kind, "name": torch.cuda.get_device_name()}
    return {"kind": kind, "name": _processor()}


def _processor() -> str:
    """The processor's name, as Linux tells it."""
    with Path("/proc/cpuinfo").open() as lines:
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} × {names[0]}" if names else platform.machine()


@contextmanager
def _enough_memory() -> Iterator[None]:
    """What does not fit into the device's memory is the host's failure."""
    import torch

    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        reason = str(error).partition(".")[0] or "there is not enough memory"
        raise HostError(
            f"The workers do not fit into the device's memory: {reason}.",
            "give a smaller --batch-size, or --device cpu.",
        ) from error


def _distinct(replicas: "Replicas") -> range:
    """The ranks whose parameters may differ."""
    return range(1 if replicas.shared else replicas.plan.workers)


def _finite(value: float | None) -> float | None:
    """JSON has no infinite numbers; a loss that is none is told as unknown."""
    return value if value is not None and math.isfinite(value) else None


class _Progress:
    """Tells a watcher of minibatches and epochs, but for those that were there already."""

    def __init__(self, plan: Plan, epochs: int, watcher: Watcher) -> None:
        self._plan, self._watcher = plan, watcher
        self._done, self._total = 0, (plan.epochs - epochs) * plan.batches * plan.workers
        self._began = time.monotonic()

    def heard(self) -> None:
        """One more minibatch."""
        if not self._done:
            self._began = time.monotonic()
        self._done += 1
        self._watcher.report("train", self._done, self._total)

    def tell(self, row: Mapping[str, Any]) -> None:
        """One more epoch, and how long those that are left will take if they take as long."""
        left_s = (time.monotonic() - self._began) / self._done * (self._total - self._done)
        loss = "not finite" if row["training_loss"] is None else f"{row['training_loss']:.4f}"
        self._watcher.say(
            f"epoch {row['epoch']} of {self._plan.epochs}: training loss {loss}, test accuracy "
            f"{row['test_accuracy']:.2%}; {row['training_seconds'] + row['evaluation_seconds']:.1f} s, "
            f"{timedelta(seconds=round(left_s))} to go"
        )
