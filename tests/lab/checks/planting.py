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
    """A recorded run from this folder, from replay's tests, or from the project's results."""
    folder = next(folder for folder in (OWN, TRACES, TABLE1) if (folder / name).is_dir())
    return read_run(RunDirectory(folder / name))


class Planting:
    """A run with an edited trace or records. Without its document, the run's totals aren't compared."""

    def __init__(self, name: str, *, document: bool = False) -> None:
        self.run = recorded(name)
        if not document:
            self.run = self.run.replace(document=None, plan=self.run.plan, complete=self.run.complete)
        self.events: Rows = [{**event, "causes": [*event["causes"]]} for event in self.run.events]
        self.records = [dict(record) for record in self.run.invocations]
        self.instances = [dict(record) for record in self.run.instances]

    def find(self, op: str, part: str = "", number: int = 0, **values: Any) -> Event:
        """Return an event with these values and this part in its resource; by default the first of several."""
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
    """The finding expected in a planted run: rule, step's owner, event, and the other rules that find it."""

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
    """Return the expected finding. Its step and worker are the event's, unless given."""
    run = planting.done(**changes)
    here = (-1, -1) if event is None else (event["epoch"], event["step"])
    who = -1 if event is None else event["worker"]
    return Planted(run, rule, who if worker is None else worker, place or here, event, frozenset(others))
