"""Read Lambda's and Step Functions' limits from one versioned table (`limits.toml`), each with source and standing."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib.resources import files
from typing import Any, Self

# Function settings that are stored and returned, but have no effect here, with what is missing, for a function's log
# and for `slslab limits`.
WITHOUT_EFFECT: Mapping[str, str] = {
    "DeadLetterConfig": "failed events go to a queue only where AWS_ENDPOINT_URL_SQS names a service that has it",
    "FileSystemConfigs": "no file system is mounted",
    "KMSKeyArn": "nothing is encrypted",
    "SnapStart": "environments start from their beginning, and are billed so",
    "TracingConfig": "no traces go to X-Ray",
    "VpcConfig": "functions have this host's network",
}


@dataclass(frozen=True)
class Range:
    """The allowed values of a setting, and its default."""

    minimum: int
    maximum: int
    default: int


@dataclass(frozen=True)
class Limits:
    """The limits that an emulator enforces; names end in their unit (MB means MiB, as in Lambda)."""

    version: str
    memory_mb: Range
    vcpu_mb: int
    quota_period_ms: int
    init_vcpus: int
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
    locked_bytes: int
    core_bytes: int
    environment_bytes: int
    log_tail_bytes: int
    account_concurrency: int
    unreserved_concurrency: int
    requests_per_concurrency: int
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
        """Return these limits with some replaced, for accounts with other limits; ValueError for an unknown name."""
        unknown = sorted(limits.keys() - {field.name for field in fields(self)})
        if unknown:
            raise ValueError(f"There is no limit {', '.join(unknown)}.")
        return replace(self, **limits)

    def differences(self, others: "Limits") -> dict[str, Any]:
        """Return the limits that differ from `others`, by name, as JSON values."""
        mine, theirs = asdict(self), asdict(others)
        return {name: value for name, value in mine.items() if value != theirs[name]}

    def visible_processors(self, memory_mb: int) -> int:
        """Return how many cores a function of this memory size sees."""
        return next(cores for up_to, cores in self.processors if memory_mb <= up_to)


@cache
def lambda_limits() -> Limits:
    """Return the limits of the table."""
    version, entries = _table()
    return Limits(version=version, **{name: _value(entry) for name, entry in entries.items()})


def bases() -> dict[str, dict[str, str]]:
    """Return each limit's `basis` (`documented` or `measured` by its `source`, or `assumed`), `source` and `note`."""
    _version, entries = _table()
    return {name: {key: entry.get(key, "") for key in ("basis", "source", "note")} for name, entry in entries.items()}


def _table() -> tuple[str, dict[str, dict[str, Any]]]:
    table = tomllib.loads((files("slslab.aws") / "limits.toml").read_text())
    return table.pop("version"), table


def _value(entry: dict[str, Any]) -> Any:
    if "value" not in entry:
        return Range(entry["minimum"], entry["maximum"], entry["default"])
    value = entry["value"]
    return tuple(tuple(row) for row in value) if isinstance(value, list) else value


MB = 1024 * 1024
VCPU_MB = lambda_limits().vcpu_mb
QUOTA_PERIOD_NS = lambda_limits().quota_period_ms * 1_000_000


def cpu_share(memory_mb: int) -> float:
    """Return the vCPUs of a memory size: memory/1769 (AWS Lambda developer guide, "Configure memory")."""
    return memory_mb / VCPU_MB


def init_share(memory_mb: int) -> float:
    """Return the vCPUs of a memory size during init: Lambda provides at least one."""
    return max(cpu_share(memory_mb), float(lambda_limits().init_vcpus))


def billed_ms(duration_ms: float, init_ms: float | None) -> int:
    """Return the billed duration in ms: the sum of init and duration, rounded up once.

    Init is billed for every package kind since 2025-08-01 (AWS Compute blog, "AWS Lambda standardizes billing for
    INIT phase"); a REPORT line of 2026 with 31000.00 + 3439.00 ms billed 34440 (documented by observation).
    """
    # REPORT lines print two decimals; rounding first keeps their sum consistent.
    return math.ceil(round(duration_ms + (init_ms or 0.0), 2))
