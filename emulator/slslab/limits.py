"""Lambda's and Step Functions' limits: one versioned table (`limits.toml`), each with its source and its basis."""

import tomllib
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from typing import Any, Self


@dataclass(frozen=True)
class Range:
    """What a setting may be, and what it is when nobody sets it."""

    minimum: int
    maximum: int
    default: int


@dataclass(frozen=True)
class Basis:
    """Where a limit comes from."""

    basis: str
    source: str
    note: str = ""


@dataclass(frozen=True)
class Limits:
    """The limits that an emulator enforces; names end in their unit (MB is MiB, as Lambda counts)."""

    version: str
    memory_mb: Range
    vcpu_mb: int
    processors: tuple[tuple[int, int], ...]
    timeout_s: Range
    init_s: float
    ephemeral_mb: Range
    request_bytes: int
    response_bytes: int
    event_bytes: int
    zipped_bytes: int
    unzipped_bytes: int
    image_bytes: int
    descriptors: int
    processes: int
    environment_bytes: int
    log_tail_bytes: int
    account_concurrency: int
    unreserved_concurrency: int
    scaling_environments: int
    scaling_period_s: float
    retry_after_s: int
    event_retries: Range
    event_retry_base_s: float
    event_throttle_s: float
    event_age_s: Range
    idle_s: float
    state_payload_bytes: int
    history_events: int
    definition_bytes: int
    map_concurrency: int

    def changed(self, **limits: Any) -> Self:
        """These limits with others in their place, for an account that has others; ValueError for an unknown name."""
        unknown = sorted(limits.keys() - {field.name for field in fields(self)})
        if unknown:
            raise ValueError(f"There is no limit {', '.join(unknown)}.")
        return replace(self, **limits)

    def visible_processors(self, memory_mb: int) -> int:
        """Cores that a function of this memory size sees."""
        return next(cores for up_to, cores in self.processors if memory_mb <= up_to)


@cache
def lambda_limits() -> Limits:
    """The limits of the table."""
    table = _table()
    values = {name: _value(entry) for name, entry in table.items() if isinstance(entry, dict)}
    return Limits(version=table["version"], **values)


def bases() -> dict[str, Basis]:
    """Source of each limit, by its name."""
    return {
        name: Basis(entry["basis"], entry["source"], entry.get("note", ""))
        for name, entry in _table().items()
        if isinstance(entry, dict)
    }


def _table() -> dict[str, Any]:
    return tomllib.loads((files("slslab") / "limits.toml").read_text())


def _value(entry: dict[str, Any]) -> Any:
    if "value" not in entry:
        return Range(entry["minimum"], entry["maximum"], entry["default"])
    value = entry["value"]
    return tuple(tuple(row) for row in value) if isinstance(value, list) else value
