"""A function's lifetime: the time left, and continuing in another invocation when it is too short."""

import json
import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import aws_client


def remaining_s(context: Any) -> float:
    """Return the time left, s. On AWS, it comes from the context.

    The emulator uses the Lambda clock, which excludes delays by a busy host; its context counts wall time and stops at
    zero. SLSLAB_CLOCK_FILE starts with two little-endian 64-bit integers, ns: the wall deadline of this invocation on
    CLOCK_MONOTONIC and the host's delay so far.
    """
    path = os.environ.get("SLSLAB_CLOCK_FILE")
    if path is None:
        return float(context.get_remaining_time_in_millis()) / 1000
    deadline_ns, delay_ns = struct.unpack_from("<QQ", Path(path).read_bytes())
    return (int(deadline_ns) + int(delay_ns) - time.monotonic_ns()) / 1e9


def reserve_s(timeout_s: int, longest_step_s: float) -> float:
    """Return the time that LambdaML's watchdog keeps for the hand-over, s.

    See docs/protocols.md, "Lifetime of a function".
    """
    return max(min(30.0, timeout_s / 10), 2 * longest_step_s)


def self_client() -> Any:
    """Return a Lambda client for `invoke_again`; making one takes a second in a small function."""
    # Retrying an accepted invocation would start a second worker of this rank.
    return aws_client("lambda", retries={"total_max_attempts": 1})


def invoke_again(event: Mapping[str, Any], context: Any, tracer: Tracer, client: Any = None) -> None:
    """Invoke this function again, asynchronously, with another event."""
    with tracer.span("invoke", "other", context.function_name) as span:
        client = client or self_client()
        client.invoke(FunctionName=context.function_name, InvocationType="Event", Payload=json.dumps(event).encode())
        span.requests = 1
