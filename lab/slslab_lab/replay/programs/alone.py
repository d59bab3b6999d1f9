"""Replace a run's CPU seconds by measurements of the same steps with one worker alone.

A step's CPU seconds depend on the other workers on the host, which share caches, memory and processors. If the plan
asks for it, all CPU work that isn't a request (`WORK`), inits and scripts in tensor databases are measured before the
run (`slslab_lab.runs.alone`). Replay then takes bytes, requests, order and causes from the run, as well as the CPU
seconds of requests and of kinds of steps that weren't measured.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os.path import commonprefix
from statistics import median, quantiles
from typing import Any, NamedTuple

from slslab.run.document import AloneKind
from slslab.run.metrics import grouped
from slslab.run.run import Run
from slslab_lab.replay.programs.recording import Event
from slslab_workers.trace.operations import WORK

# Sizes of one kind of step count as different from this ratio on.
RATIO = 1.5
START, SCRIPT = "environment.start", "tensor.script.run"
ANY = "*"


class Kind(NamedTuple):
    """A kind of step: its function (`suffix`; for a script: its name; `ANY` for all), how it combines gradients, and
    whether it is its environment's first."""

    function: str
    op: str
    phase: str
    resource: str
    first: bool


class Sample(NamedTuple):
    """A step of a kind: the bytes it processes, if its CPU time grows with them, and its CPU ns."""

    kind: Kind
    bytes: int
    cpu_ns: int


def samples(recording: Run) -> Iterator[Sample]:
    """Yield a recording's samples of each kind: steps, inits and scripts."""
    for event, kind in _kinds(recording):
        yield Sample(kind, event["bytes"], event["cpu_ns"])
    for record in recording.instances:
        yield Sample(Kind(record["function"], START, "init", "", True), 0, _init_ns(record, recording.events))


def summarise(found: Iterable[Sample]) -> list[AloneKind]:
    """Return count, quartiles and bytes of each kind, separately for different sizes."""
    kinds: list[AloneKind] = []
    for kind, of_kind in grouped((sample.kind, (sample.bytes, sample.cpu_ns)) for sample in found).items():
        for group in _by_size(of_kind):
            seconds = [cpu_ns / 1e9 for _, cpu_ns in group]
            lower, middle, upper = quantiles(seconds * 2 if len(seconds) == 1 else seconds, method="inclusive")
            kinds.append(
                {
                    **kind._asdict(),  # type: ignore[typeddict-item]
                    "bytes": round(median(size for size, _ in group)),
                    "count": len(group),
                    "cpu_seconds": {"lower": round(lower, 9), "median": round(middle, 9), "upper": round(upper, 9)},
                }
            )
    return kinds


class SoloCosts:
    """CPU times of a recording: measured alone where their kind was, or else the recording's own."""

    def __init__(self, recording: Run) -> None:
        self._recording = recording
        self._kinds = grouped(
            ((kind["op"], kind["phase"], kind["resource"], kind["function"]), kind) for kind in recording.alone or ()
        )

    def events(self) -> Sequence[Event]:
        """Return the recording's events with these CPU times."""
        alone = {event["event"]: self._cpu_ns(kind, event["bytes"]) for event, kind in _kinds(self._recording)}
        changed = {number: {"cpu_ns": cpu_ns} for number, cpu_ns in alone.items() if cpu_ns is not None}
        return [{**event, **changed.get(event["event"], {})} for event in self._recording.events]

    def init_ns(self, instance: Mapping[str, Any]) -> int:
        """Return the CPU time of a metered instance before its first event."""
        cpu_ns = self._cpu_ns(Kind(instance["function"], START, "init", "", True), 0)
        return _init_ns(instance, self._recording.events) if cpu_ns is None else cpu_ns

    def _cpu_ns(self, kind: Kind, size: int) -> int | None:
        """Return the CPU ns of a step that processes `size` bytes, in proportion to the most similar measured step;
        None if its kind was not measured."""
        alike = kind.op, kind.phase, kind.resource
        found = self._kinds[*alike, kind.function] or self._kinds[*alike, ANY]
        # A step that processes no bytes, such as the first of several sums, isn't comparable to measured steps with a
        # size.
        found = [one for one in found if bool(one["bytes"]) is bool(size)]
        if not found:
            return None
        nearest = min(found, key=lambda one: _unlike(one, kind, size))
        return round(nearest["cpu_seconds"]["median"] * 1e9 * (size / nearest["bytes"] if size else 1))


def suffix(function: str, run: str) -> str:
    """Return the end of a name that tells a run's functions apart; empty for the workers' function."""
    # Long names are cut anywhere.
    rest = function[len(commonprefix((function, f"slslab-{run}"))) :]  # noqa: RUF071
    # While a run is measured alone, its name includes a number.
    return re.sub(r"^-\d+(?=-|$)", "", rest).lstrip("-")


def _kinds(recording: Run) -> Iterator[tuple[Event, Kind]]:
    seen = set()
    for event in recording.events:
        op = event["op"]
        if op in (START, SCRIPT) or (op in WORK and event["worker"] >= 0):
            # A script's resource is its name and the key that it writes.
            function = suffix(event["function"], recording.plan.run)
            function = event["resource"].partition(" ")[0] if op == SCRIPT else function
            kind = Kind(function, op, event["phase"], event["resource"] if op in WORK else "", True)
            of_environment = (event["environment"], kind)
            yield event, kind._replace(first=of_environment not in seen)
            seen.add(of_environment)


def _by_size(of_kind: Iterable[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Yield groups of steps of about the same size, as bytes and CPU ns."""
    group: list[tuple[int, int]] = []
    for size, cpu_ns in sorted(of_kind):
        if group and _ratio(group[0][0], size) > RATIO:
            yield group
            group = []
        group.append((size, cpu_ns))
    yield group


def _unlike(one: AloneKind, kind: Kind, size: int) -> tuple[bool, bool, float]:
    """Return how much a measured kind differs from a step: in having a size, in being first, and in the size itself."""
    ratio = _ratio(one["bytes"], size)
    return ratio > RATIO, one["first"] is not kind.first, ratio


def _ratio(one: int, other: int) -> float:
    return max(one, other, 1) / max(min(one, other), 1)


def _init_ns(record: Mapping[str, Any], events: Iterable[Event]) -> int:
    """Return an instance's CPU time without its events', which include the time before each of them."""
    in_events_ns = sum(int(e["cpu_ns"] + e["cpu_before_ns"]) for e in events if e["invocation"] == record["id"])
    return max(0, round(float(record["cpu_seconds"]) * 1e9) - in_events_ns)
