"""One event of a trace. Records, columns and checks follow from its fields."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Any, get_args, get_type_hints


@dataclass(slots=True, kw_only=True)
class Event:
    """One event. Its fields are the keys of a record and, in this order, columns of the table (docs/trace.md).

    Times are nanoseconds, of CLOCK_MONOTONIC or of the process's CPU time; `bytes` count bodies only. A record leaves
    out None values, except an ETag. The process that collects a worker's record adds `function` and `environment`;
    Step Functions and tensor databases set them themselves. Compacting the log adds `clock` and `host_delay_ns`. Only
    workers' events have `cpu_before_ns`, scripts' have `reads`, and minibatches' have `loss`.
    """

    run: str = ""
    invocation: str = ""
    function: str | None = None
    environment: str | None = None
    worker: int = -1
    epoch: int = -1
    step: int = -1
    phase: str
    op: str
    start_ns: int = 0
    end_ns: int = 0
    clock: str | None = None
    host_delay_ns: int | None = None
    cpu_ns: int = 0
    cpu_before_ns: int | None = None
    bytes: int = 0
    requests: int = 0
    resource: str = ""
    etag: str | None = None
    overhead: bool = True
    failed: bool = False
    reads: tuple[str, ...] | None = None
    loss: float | None = None

    def record(self) -> dict[str, Any]:
        """Return the event as a record for the log."""
        record = dict(zip(ALWAYS, _VALUES(self), strict=True))
        for name in SOMETIMES:
            if (value := getattr(self, name)) is not None:
                record[name] = value
        return record


FIELDS: Mapping[str, Any] = get_type_hints(Event)
SOMETIMES = tuple(field.name for field in fields(Event) if field.default is None and field.name != "etag")
ALWAYS = tuple(name for name in FIELDS if name not in SOMETIMES)
# Fields that a record must have. The log's header names the run, too.
REQUIRED = {name: FIELDS[name] for name in ALWAYS if name != "run"}
_VALUES = attrgetter(*ALWAYS)
_KINDS = {name: get_args(FIELDS[name])[0] for name in SOMETIMES}
# Upper limits: a million workers, epochs or steps, and a clock of 36 years. They keep sums exact.
POSITIONS, TIMES, AMOUNTS = range(-1, 1_000_000), range(1 << 60), range(1 << 53)
RANGES = {
    **dict.fromkeys(("worker", "epoch", "step"), POSITIONS),
    **dict.fromkeys(("start_ns", "end_ns", "wall_ns"), TIMES),
    # Of an instance that a signal ended, it is negative.
    "exit_code": range(-AMOUNTS.stop, AMOUNTS.stop),
}


def wrong_field(record: Mapping[str, Any], required: Mapping[str, Any]) -> str | None:
    """Return the name of a field that is missing or has an impossible value; None if the record is right."""
    kinds = {**{name: kind for name, kind in _KINDS.items() if name in record}, **required}
    for name, kind in kinds.items():
        if not _fits(record.get(name, kind), _alternatives(kind), RANGES.get(name, AMOUNTS)):
            return name
    return None


@cache
def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _fits(value: Any, kinds: tuple[Any, ...], numbers: range) -> bool:
    kind = type(value)
    if kind is int:
        return (int in kinds or float in kinds) and value in numbers
    if kind is str:
        # Half of a surrogate pair isn't text.
        return str in kinds and (value.isascii() or value.encode(errors="ignore").decode() == value)
    if kind in (list, tuple):
        return tuple[str, ...] in kinds and all(_fits(each, (str,), numbers) for each in value)
    return kind in kinds
