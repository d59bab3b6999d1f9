"""Records of metered invocations, and machines of known speed, for predictions that can be computed by hand."""

import math
from typing import Any

from slslab.predict.processor import UNANCHORED, Factor, Processor
from slslab.predict.profiles.profile import load_profile
from slslab_workers.trace.kinds import KINDS

PROFILE = load_profile("aws-us-east-1-2026-11")
MS = 1_000_000
START_NS = 10_000 * MS
# A second of the host is worth two of Lambda, give or take little; init is known apart only where it has a kind.
FACTOR = Factor(2.0, {"anchors": 0.1, "year": 0.0, "host": 0.05})


def machine(factor: Factor, **anchors: int) -> Processor:
    """A machine with the same factor for every kind of work."""
    kinds = dict.fromkeys(KINDS, factor)
    return Processor("host", "whole", "2026-11-28", "1", kinds, factor, UNANCHORED.arm64, anchors, "")


ANCHORED, EXACT, SAME = machine(FACTOR, hash=2025), machine(Factor(2.0)), machine(Factor(1.0))


def record(
    cpu_ms: float, duration_ms: float, memory_mb: int = 1769, init: tuple[float, float] | None = None, **changed: Any
) -> dict[str, Any]:
    """A metered record; `init` are CPU time and duration of init, ms."""
    init_cpu_ms, init_ms = init or (None, None)
    return {
        "request_id": "r",
        "function": "f",
        "memory_mb": memory_mb,
        "cpu_share": memory_mb / 1769,
        "init_cpu_share": max(1.0, memory_mb / 1769),
        "quota_period_ms": 20,
        "architecture": "x86_64",
        "ephemeral_mb": 512,
        "cold_start": init is not None,
        "init_ms": init_ms,
        "init_cpu_ms": init_cpu_ms,
        "duration_ms": duration_ms,
        "billed_ms": math.ceil(duration_ms),
        "cpu_ms": cpu_ms + (init_cpu_ms or 0.0),
        "max_memory_mb": 60,
        "uncertain_ms": 0.0,
        "host_delay_ms": 0.0,
        "requests": 1,
        "error_type": None,
        "start_ns": START_NS,
        "end_ns": START_NS + round(duration_ms * MS),
        **changed,
    }
