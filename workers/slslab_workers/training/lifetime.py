"""A function's lifetime: the time left, and continuing in another invocation when it is too short.

A companion is a function next to the workers that receives their reports until training ends.
"""

import json
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from slslab_workers.channels import endpoints
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.objects import aws_client
from slslab_workers.channels.queues import Message, Queues, open_queues
from slslab_workers.plan import InvocationInput

# An hour: workers report sooner even on a busy host, and a companion must not invoke itself forever after its driver
# was killed.
PATIENCE_S = 3600.0
Overhead = Callable[[bytes], bool]
Task = TypeVar("Task", bound=InvocationInput)


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


def _self_client() -> Any:
    # Retrying an accepted invocation would start a second worker of this rank.
    return aws_client("lambda", retries={"total_max_attempts": 1})


def invoke_again(task: InvocationInput, context: Any, tracer: Tracer, client: Any = None) -> None:
    """Invoke this function again, asynchronously, with another input."""
    with tracer.span("invoke", "other", context.function_name) as span:
        client, event = client or _self_client(), json.dumps(task.to_event()).encode()
        client.invoke(FunctionName=context.function_name, InvocationType="Event", Payload=event)
        span.requests = 1


def accompany(
    task: InvocationInput, rank: int, context: Any, work: Callable[[Queues], InvocationInput | None]
) -> dict[str, Any]:
    """Do a companion's work, and invoke it again with the input that `work` returns; None: training is over.

    In the trace its rank follows the workers'.
    """
    tracer = Tracer(run=task.plan.run, worker=rank, invocation=context.aws_request_id)
    # Create the client while workers start, which takes a second in a small function: there may be no time at the end.
    with tracer.span("connect", "other"):
        client = _self_client()
    with open_queues(endpoints.queue_url(), tracer) as queues:
        rest = work(queues)
    if rest is not None:
        invoke_again(rest, context, tracer, client)
    return {"status": "finished" if rest is None else "continued"}


class Companion(Generic[Task]):
    """A companion in one invocation. It keeps up to `keeps_s` of its time for invoking itself, s.

    Workers don't notice its next invocation: the reports that they send meanwhile wait in the queue.
    """

    keeps_s: ClassVar[float]

    def __init__(self, task: Task, context: Any, queues: Queues) -> None:
        self.task = task
        self.plan = task.plan
        self.queues = queues
        self._context = context

    def receive(self, queue: str, heard: float, silent: Callable[[], str], overhead: Overhead) -> Message | None:
        """Return the next message; None once no time is left.

        TimeoutError, which begins with what `silent` returns, an hour after the last report was heard (wall time, s).
        """
        kept_s = min(self.keeps_s, self.plan.timeout / 4)
        while (patience_s := remaining_s(self._context) - kept_s) > 0:
            silent_s = time.time() - heard
            if silent_s > PATIENCE_S:
                raise TimeoutError(f"{silent()} for {silent_s:.0f} s.")
            patience_s = min(patience_s, PATIENCE_S - silent_s + 1)
            if (message := self.queues.consume(queue, patience_s, "synchronise", overhead=overhead)) is not None:
                return message
        return None
