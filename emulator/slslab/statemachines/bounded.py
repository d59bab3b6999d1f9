"""Evaluate expressions in processes of their own, so that one that never ends or exhausts memory harms nothing else.

`python -m slslab.statemachines.bounded DESCRIPTOR` is such a process; it ends when its socket closes.
"""

import json
import os
import re
import resource
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

# assumed, as AWS doesn't document the bounds: what one expression may use, its value included.
MEMORY_BYTES = 512 * MB
ANSWER_BYTES = 16 * MB
LIMIT_S = TIMEOUT_MS / 1000 + 0.5
# How many expressions are evaluated at once; further ones wait.
PROCESSES = 8
# An expression that takes longer gives its place to the next, as long as half of the memory has room for more.
SLOW_S = 1.0
SLOW_PROCESSES = max(0, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 // MEMORY_BYTES - PROCESSES)
START_LIMIT_S = 60.0
ASK_S = 0.05


class Unfinished(Exception):
    """An evaluation reached a bound; the text is AWS's message for it."""


class Evaluator(ConnectedProcess):
    """A process that evaluates one task after another."""

    def __init__(self) -> None:
        super().__init__("slslab.statemachines.bounded")
        self._ready = False

    def ask(self, task: bytes, running: Callable[[], bool], slow: Callable[[], None]) -> bytes:
        """Return the process's answer. Unfinished, or ExecutionOver if `running` turns false, ends the process.

        `slow` is called if the answer takes longer than SLOW_S.
        """
        try:
            if not self._ready:
                self._receive(START_LIMIT_S, running, lambda: None)
                self._ready = True
            self.connection.send_bytes(task)
            return self._receive(LIMIT_S, running, slow)
        except BaseException:
            self.close()
            raise

    def _receive(self, limit_s: float, running: Callable[[], bool], slow: Callable[[], None]) -> bytes:
        began = time.monotonic()
        while not self.connection.poll(ASK_S):
            if not running():
                raise ExecutionOver
            taken_s = time.monotonic() - began
            if taken_s > limit_s:
                raise Unfinished(TIMED_OUT)
            if taken_s > SLOW_S:
                slow()
        try:
            return self.connection.recv_bytes()
        except (EOFError, OSError) as error:  # killed by its bounds
            raise Unfinished(MEMORY_EXCEEDED) from error


class Pool:
    """Evaluators for reuse, one per concurrent task."""

    def __init__(self) -> None:
        self._free: list[Evaluator] = []
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(PROCESSES)
        self._slow_turns = threading.Semaphore(SLOW_PROCESSES)

    def ask(self, task: Mapping[str, Any], running: Callable[[], bool]) -> Any:
        """Return a task's value; QueryError, Unfinished or ExecutionOver as for an Evaluator."""
        while not self._turns.acquire(timeout=ASK_S):
            if not running():
                raise ExecutionOver
        turn: threading.Semaphore = self._turns

        def give_way() -> None:
            nonlocal turn
            if turn is self._turns and self._slow_turns.acquire(blocking=False):
                turn.release()
                turn = self._slow_turns

        try:
            with self._lock:
                evaluator = self._free.pop() if self._free else None
            evaluator = evaluator or Evaluator()
            answer = json.loads(evaluator.ask(json.dumps(task).encode(), running, give_way))
            with self._lock:
                kept = len(self._free) < PROCESSES
                if kept:
                    self._free.append(evaluator)
            if not kept:
                evaluator.close()
        finally:
            turn.release()
        if "problem" in answer:
            raise QueryError(answer["problem"])
        return answer["value"]

    def warm(self) -> None:
        """Start a process if all are busy, so that the first expression doesn't have to wait for one."""
        with self._lock:
            if not self._free:
                self._free.append(Evaluator())

    def close(self) -> None:
        """End the idle processes."""
        with self._lock:
            while self._free:
                self._free.pop().close()


POOL = Pool()


def evaluate_bounded(expression: str, variables: Mapping[str, Any], running: Callable[[], bool] = lambda: True) -> Any:
    """Call `expressions.evaluate` within the bounds; QueryError, or ExecutionOver once `running` is false."""
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
        connection.send_bytes(b"")
        while True:
            task = json.loads(connection.recv_bytes())
            # A pattern can't be interrupted, so the kernel ends it, even if the asking process has died.
            spent = int(time.process_time() + LIMIT_S) + 2
            resource.setrlimit(resource.RLIMIT_CPU, (spent, resource.RLIM_INFINITY))
            connection.send_bytes(_answer(task))


def _answer(task: Mapping[str, Any]) -> bytes:
    try:
        if "pattern" in task:
            value: Any = re.compile(task["pattern"], task["flags"]).fullmatch(task["text"]) is not None
        else:
            value = evaluate(task["expression"], task["variables"])
        answer = json.dumps({"value": value}).encode()
    except QueryError as error:
        return json.dumps({"problem": error.problem}).encode()
    except MemoryError:
        answer = b""
    if answer and len(answer) <= ANSWER_BYTES:
        return answer
    return json.dumps({"problem": f"{THREW}: {MEMORY_EXCEEDED}"}).encode()


if __name__ == "__main__":
    main()
