"""Several curves of one architecture with different seeds or thresholds, each in its own directory."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slslab.errors import RequestError
from slslab_lab.runs.accuracy.curve import Watcher, curve_name, make_curve
from slslab_lab.runs.accuracy.directory import CHECKPOINT, CurveDirectory
from slslab_lab.runs.planning import architectures, make_plan, refused_plans
from slslab_lab.runs.sweeps.sweep import sweep

# The names and values of options that differ between curves.
Varied = tuple[tuple[str, Any], ...]


class Unwatched:
    """Ignores the progress of a curve, in a process without a terminal."""

    def report(self, stage: str, done: int, total: int) -> None:
        """Ignore the progress."""

    def say(self, line: str) -> None:
        """Ignore the line."""


@dataclass(frozen=True)
class Curves:
    """What the curves share: architecture, values and options as for `make_curve`, the folder of their directories, and
    whether to resume."""

    name: str
    values: Mapping[str, Any]
    options: Mapping[str, Any]
    device: str
    folder: Path
    resume: bool
    command: str

    def make(self, varied: Sequence[Varied], on: str | None, report: Callable[[int, int], None]) -> list[Any]:
        """Make all curves on `on` (as for `slslab_lab.runs.sweeps.sweep`), and return their documents.

        RequestError or HostError as in `make_curve`. KeyboardInterrupt if one is interrupted; the directories then
        contain the completed epochs.
        """
        places = [self.directory(each) for each in varied]
        try:
            return sweep(self.learn, varied, on, report)
        finally:
            # A process that is killed in its first epoch leaves an empty directory.
            for place in filter(Path.is_dir, places):
                with suppress(RequestError), CurveDirectory(place).held():
                    pass
            with suppress(OSError):
                self.folder.rmdir()

    def learn(self, varied: Varied) -> dict[str, Any]:
        """Make one curve, in any process."""
        place = self.directory(varied)
        curves = replace(self, resume=self.resume and (place / CHECKPOINT).exists())
        document = curves.make_one(varied, place, Unwatched())
        if document["status"] == "interrupted":
            raise KeyboardInterrupt
        return document

    def make_one(self, varied: Varied, out: Path | None, watcher: Watcher) -> dict[str, Any]:
        """Make one curve in this process and return its document; see `make_curve`."""
        made_of: dict[str, Any] = {"device": self.device, "resume": self.resume, "command": self.command}
        return make_curve(self.name, *self.chosen(varied), out=out, watcher=watcher, **made_of)

    def directory(self, varied: Varied) -> Path:
        """Return a curve's directory; RequestError for an impossible plan."""
        with refused_plans():
            plan = make_plan(architectures()[self.name], *self.chosen(varied))
        return self.folder / "-".join([curve_name(plan), *(f"{name}-{value}" for name, value in varied)])

    def chosen(self, varied: Varied) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return all values and options of one curve."""
        values = {name: value for name, value in varied if name in self.values}
        return {**self.values, **values}, {**self.options, **{k: v for k, v in varied if k not in values}}
