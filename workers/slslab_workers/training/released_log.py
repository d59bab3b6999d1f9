"""The authors' log traffic: for every line a worker gets its whole log from S3, appends the line, and puts it back.

The number of lines per step is the released code's (docs/protocols.md, "As released"). Assumed are each line's place in
a step, its text and its length, LINE_BYTES. All lines are equally long, so a pattern knows the bytes of every request.
"""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import chain, count
from typing import Any

from slslab_workers.channels.objects import Absent, ObjectChannel
from slslab_workers.option import Option
from slslab_workers.patterns import Activity, Part, Workload
from slslab_workers.training.keys import log_key

# A step of a pattern: the released code writes a line after each block.
Blocks = Sequence[tuple[Part, ...]]
# The requests' phase in the trace. They aren't part of the training protocol.
PHASE = "log"
LINE_BYTES = 100

LOG_TRAFFIC = Option(
    "log-traffic",
    bool,
    False,
    "Every line of a worker's log gets the whole log from S3 and puts it back, as the authors' code does. These "
    "requests are billed, and counted under overheads.",
    released=True,
)


class Log:
    """One worker's log in the run's bucket."""

    def __init__(self, key: str, objects: ObjectChannel) -> None:
        self._key = key
        self._objects = objects
        self._since = time.monotonic()

    def append(self, text: str) -> None:
        """Append a line: the time, epoch and step, the seconds since the previous line, and the text.

        Cut off a text that is too long for the line.
        """
        now = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
        tracer, seconds = self._objects.tracer, time.monotonic() - self._since
        line = f"{now}Z epoch {tracer.epoch} step {tracer.step}: {seconds:.3f} s, {text}".encode()
        try:
            log = self._objects.get(self._key, PHASE).body
        except Absent:
            log = bytearray()
        log += line[: LINE_BYTES - 1].ljust(LINE_BYTES - 1) + b"\n"
        self._objects.put(self._key, log, PHASE)
        self._since = time.monotonic()


def install(worker: Any) -> None:
    """Make a worker append lines to its log after the methods in `logged`, if its plan has the log traffic."""
    if not LOG_TRAFFIC.of(worker.plan.options):
        return
    logged_as = worker.logged_as or worker.plan.architecture
    log = Log(log_key(worker.plan, rank=worker.rank, logged_as=logged_as), worker.objects)
    for name in worker.logged:
        setattr(worker, name, _logged(worker, name, log))


def _logged(worker: Any, name: str, log: Log) -> Callable[..., Any]:
    method = getattr(worker, name)

    def logged(*arguments: Any) -> Any:
        result = method(*arguments)
        for _ in range(worker.lines_after(name)):
            log.append(name)
        return result

    return logged


def logged_steps(workload: Workload, step: Callable[[int], Blocks], turns: int = 1) -> tuple[tuple[Part, ...], ...]:
    """Return the steps of a pattern's role; without log traffic it is a cycle of `turns` steps.

    `step` returns the blocks of a step, from the step's number in the run. With log traffic, a line follows each block;
    all steps differ, since the log grows.
    """
    if not LOG_TRAFFIC.of(workload.options):
        return tuple(tuple(chain.from_iterable(step(number))) for number in range(turns))
    lines = map(_requests, count())
    return tuple(
        tuple(chain.from_iterable((*block, *next(lines)) for block in step(number))) for number in range(workload.steps)
    )


def _requests(line: int) -> tuple[Part, ...]:
    return (
        Activity("object.get", PHASE, bytes=line * LINE_BYTES),
        Activity("object.put", PHASE, bytes=(line + 1) * LINE_BYTES),
    )
