"""Violations that are planted in real traces: what is edited, and what a check must find."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.lab.replay.recordings import TRACES

from slslab.run.directory import RunDirectory
from slslab.run.metrics import Rows
from slslab.run.run import Run, read_run

OWN = Path(__file__).parent / "traces"
TABLE1 = Path(__file__).parents[3] / "results" / "lambdaml-table1"
Event = dict[str, Any]


@cache
def recorded(name: str) -> Run:
    """A recorded run: of this folder, of those that replay is tested with, or of the project's results."""
    folder = next(folder for folder in (OWN, TRACES, TABLE1) if (folder / name).is_dir())
    return read_run(RunDirectory(folder / name))


class Planting:
    """A run whose trace or records are edited. Without its document no figure of the whole run is compared."""

    def __init__(self, name: str, *, document: bool = False) -> None:
        self.run = recorded(name)
        if not document:
            self.run = self.run.replace(document=None, bill=None, plan=self.run.plan, complete=self.run.complete)
        self.events: Rows = [{**event, "causes": [*event["causes"]]} for event in self.run.events]
        self.records = [dict(record) for record in self.run.invocations]
        self.instances = [dict(record) for record in self.run.instances]

    def find(self, op: str, part: str = "", number: int = 0, **values: Any) -> Event:
        """Return an event with these values whose resource has a part; of several the first, or another."""
        found = [
            event
            for event in self.events
            if event["op"] == op
            and part in event["resource"]
            and not event["failed"]
            and all(event[name] == value for name, value in values.items())
        ]
        return found[number]

    def drop(self, event: Event) -> None:
        """Have the event not happen."""
        self.events.remove(event)

    def repeat(self, event: Event, **changes: Any) -> Event:
        """Have the event happen again, in the last nanosecond of the first time, or with changes."""
        copy = {**event, "start_ns": event["end_ns"], **changes}
        self.events.append(copy)
        return copy

    def done(self, **changes: Any) -> Run:
        """Return the run, its events in order and numbered anew."""
        self.events.sort(key=lambda event: (event["start_ns"], event["end_ns"]))
        numbers: dict[int, int] = {}
        for number, event in enumerate(self.events):
            numbers.setdefault(event["event"], number)
        for number, event in enumerate(self.events):
            event["event"] = number
            event["causes"] = [numbers[cause] for cause in event["causes"] if cause in numbers]
        values: Mapping[str, Any] = {
            "events": self.events,
            "invocations": self.records,
            "instances": self.instances,
            **changes,
        }
        return self.run.replace(**values)


@dataclass(frozen=True)
class Planted:
    """What a check must say of a planted run: the rule, whose step, and the event; and which rules find it, too."""

    run: Run
    rule: str
    worker: int
    place: tuple[int, int]
    event: Event | None
    others: frozenset[str] = frozenset()


Plant = Callable[[], Planted]


PLANTS: dict[str, Plant] = {}


def plant(function: Plant) -> Plant:
    """Add a planted violation by the name of its function."""
    PLANTS[function.__name__.replace("_", " ")] = function
    return function


def planted(
    planting: Planting,
    rule: str,
    event: dict[str, Any] | None,
    *others: str,
    worker: int | None = None,
    place: tuple[int, int] | None = None,
    **changes: Any,
) -> Planted:
    """Return what must be found: the step and worker are those of the event, if no others are given."""
    run = planting.done(**changes)
    here = (-1, -1) if event is None else (event["epoch"], event["step"])
    who = -1 if event is None else event["worker"]
    return Planted(run, rule, who if worker is None else worker, place or here, event, frozenset(others))
