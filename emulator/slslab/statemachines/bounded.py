"""Evaluate expressions in processes of their own, so that one that never ends or exhausts memory harms nothing else.

`python -m slslab.statemachines.bounded DESCRIPTOR` is such a process; it ends when its socket closes.
"""

import json
import math
import os
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from slslab.aws.limits import MB
from slslab.host.connected_process import ConnectedProcess
from slslab.statemachines.expressions import MEMORY_EXCEEDED, THREW, TIMED_OUT, TIMEOUT_MS, QueryError, evaluate
from slslab.statemachines.history import ExecutionOver

# assumed, as AWS doesn't document the bounds: what one expression may use, its value included. The time is CPU time, so
# that it doesn't depend on what else this host does.
MEMORY_BYTES = 512 * MB
ANSWER_BYTES = 16 * MB
LIMIT_S = TIMEOUT_MS / 1000 + 0.5
# How many expressions are evaluated at once; further ones wait.
PROCESSES = 8
# An expression that takes longer, with the start of its process, gives its turn to the next, as long as half of the
# memory has room for more.
SLOW_S = 2.0
SLOW_PROCESSES = max(0, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 // MEMORY_BYTES - PROCESSES)


class Unfinished(Exception):
    """An evaluation reached a bound; the text is AWS's message for it."""


class Evaluator(ConnectedProcess):
    """A process that evaluates one task after another, each as long as it is `running`.

    At `slow_s` (on the monotonic clock) a task gives its turn to the next.
    """

    def __init__(self) -> None:
        super().__init__("slslab.statemachines.bounded")
        self.running: Callable[[], bool] = lambda: True
        self.slow_s = math.inf

    def ask(self, task: bytes) -> bytes:
        """Return the process's answer.

        Unfinished, or ExecutionOver if the process was killed since `running` turned false: close it. The limit of CPU
        time begins with the task, so a process that hangs before it is waited for until the execution ends.
        """
        try:
            self.connection.send_bytes(task)
            return self.connection.recv_bytes()
        except (EOFError, OSError) as error:  # killed, by its bounds or by us
            if not self.running():
                raise ExecutionOver from error
            raise Unfinished(TIMED_OUT if self._process.wait() == -signal.SIGPROF else MEMORY_EXCEEDED) from error

    def kill(self) -> None:
        """Kill the process, so that its answer isn't awaited longer."""
        self._process.kill()


class Pool:
    """Evaluators for reuse, one per concurrent task."""

    def __init__(self) -> None:
        self._free: list[Evaluator] = []
        self._busy: list[Evaluator] = []
        self._changed = threading.Condition()

    def ask(self, task: Mapping[str, Any], running: Callable[[], bool]) -> Any:
        """Return a task's value; QueryError, Unfinished or ExecutionOver as for an Evaluator.

        Call `wake` after `running` has turned false.
        """
        with self._changed:
            while running() and (wait_s := self._wait_s()) > 0:
                self._changed.wait(min(wait_s, threading.TIMEOUT_MAX))
            if not running():
                raise ExecutionOver
            evaluator = self._free.pop() if self._free else Evaluator()
            evaluator.running = running
            evaluator.slow_s = time.monotonic() + SLOW_S
            self._busy.append(evaluator)
        kept = False
        try:
            answer = json.loads(evaluator.ask(json.dumps({**task, "limit_s": LIMIT_S}).encode()))
            kept = True
        finally:
            with self._changed:
                self._busy.remove(evaluator)
                kept = kept and running() and len(self._free) < PROCESSES  # `wake` has killed it otherwise
                if kept:
                    self._free.append(evaluator)
                self._changed.notify_all()
            if not kept:
                evaluator.close()
        if "problem" in answer:
            raise QueryError(answer["problem"])
        return answer["value"]

    def _wait_s(self) -> float:
        """Return how long a new evaluation has to wait if no evaluation ends, s."""
        now_s = time.monotonic()
        slow = sum(evaluator.slow_s <= now_s for evaluator in self._busy)
        if len(self._busy) - min(slow, SLOW_PROCESSES) < PROCESSES:
            return 0.0
        return min((busy.slow_s - now_s for busy in self._busy if busy.slow_s > now_s), default=math.inf)

    def wake(self) -> None:
        """End evaluations after their `running` has turned false, waiting ones too."""
        with self._changed:
            for evaluator in self._busy:
                if not evaluator.running():
                    evaluator.kill()
            self._changed.notify_all()

    def warm(self) -> None:
        """Start a process if all are busy, so that the first expression doesn't have to wait for one."""
        with self._changed:
            if not self._free:
                self._free.append(Evaluator())


POOL = Pool()


def evaluate_bounded(expression: str, variables: Mapping[str, Any], running: Callable[[], bool] = lambda: True) -> Any:
    """Call `expressions.evaluate` within the bounds; QueryError, or ExecutionOver once `running` is false (`wake`)."""
    try:
        return POOL.ask({"expression": expression, "variables": variables}, running)
    except Unfinished as error:
        raise QueryError(f"{THREW}: {error}") from error


def matches(pattern: re.Pattern[str], text: str) -> bool:
    """Return whether a pattern matches the whole text; Unfinished if that takes too long."""
    task = {"pattern": pattern.pattern, "flags": pattern.flags, "text": text}
    return bool(POOL.ask(task, lambda: True))


def main() -> None:
    """Answer tasks until the socket closes."""
    os.nice(5)  # the service that others wait for has priority
    connection = Connection(int(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with suppress(EOFError, OSError):
        while True:
            task = json.loads(connection.recv_bytes())
            # A pattern can't be interrupted, so the kernel ends it, even if the asking process has died.
            signal.setitimer(signal.ITIMER_PROF, task["limit_s"])
            connection.send_bytes(_answer(task))


def _answer(task: Mapping[str, Any]) -> bytes:
    try:
        if "pattern" in task:
            value: Any = re.compile(task["pattern"], task["flags"]).fullmatch(task["text"]) is not None
        else:
            value = evaluate(task["expression"], task["variables"])
        answer = json.dumps({"value": value}).encode()
    except QueryError as error:
        return json.dumps({"problem": str(error)}).encode()
    except MemoryError:
        answer = b""
    if answer and len(answer) <= ANSWER_BYTES:
        return answer
    return json.dumps({"problem": f"{THREW}: {MEMORY_EXCEEDED}"}).encode()


if __name__ == "__main__":
    main()
