"""A thousand invocations of all kinds, in random order and size: what must be recognised is, and none is invented."""

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from slslab.run.records import InvocationRecord

INVOCATIONS, BESIDE_LOOPS = 1_000, 100
MEMORY_MB = 512
TIMEOUT_S = 2
# Nearer to a limit than this nobody can say on which side a size is.
MARGIN_MB, MARGIN_S = 8, 0.25
# After a failure, the initialisation that an invocation repeats is a part of its time.
INIT_S = 1
HANDLER = """
    import os, time

    def handler(event, context):
        kind, size = event
        if kind == "allocate":
            held = bytearray(size << 20)
            for page in range(0, len(held), 4096):
                held[page] = 1
            return len(held)
        if kind == "sleep":
            time.sleep(size)
        if kind == "raise":
            raise ValueError("x" * size)
        if kind == "exit":
            os._exit(size)
        return "x" * int(size)
"""
EXPECTED = {"raise": "ValueError", "exit": "Runtime.ExitError", "return": None}


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def draw(dice: random.Random, base_mb: int) -> tuple[str, float]:
    """A kind of invocation and its size, near a limit where the kind has one."""
    kind = dice.choices(("allocate", "sleep", "raise", "exit", "return"), (11, 10, 20, 10, 49))[0]
    side = dice.choice((-1, 1))
    if kind == "allocate":
        near = side * dice.randint(MARGIN_MB, 80)
        return kind, dice.choice((dice.randint(0, 300), MEMORY_MB - base_mb + near))
    if kind == "sleep":
        past_s = dice.uniform(MARGIN_S, 1) if side > 0 else -dice.uniform(INIT_S, INIT_S + 0.5)
        return kind, dice.choice((dice.uniform(0, 0.3), TIMEOUT_S + past_s))
    return kind, dice.randint(0, 255) if kind == "exit" else dice.randint(0, 3_000)


def expected_error(kind: str, size: float, base_mb: int) -> str | None:
    if kind == "allocate":
        return "Runtime.OutOfMemory" if base_mb + size > MEMORY_MB else None
    if kind == "sleep":
        return "Sandbox.Timedout" if size > TIMEOUT_S else None
    return EXPECTED[kind]


# The last BESIDE_LOOPS run beside loops that take all processors.
def test_a_thousand_invocations(
    deploy: Callable[..., str], invoke: Callable[..., Any], invocations: Sequence[InvocationRecord]
) -> None:
    # Touching half a GB takes seconds of this CPU share: only sleeps are held to the short time-out.
    short, name = (deploy(HANDLER, MemorySize=MEMORY_MB, Timeout=timeout_s) for timeout_s in (TIMEOUT_S, 60))
    invoke(name, ["return", 0])
    base_mb = invocations[-1].max_memory_mb
    dice = random.Random(20261121)
    events = [draw(dice, base_mb) for _ in range(INVOCATIONS)]

    def run(event: tuple[str, float]) -> tuple[str, float, str | None, str]:
        answer = invoke(short if event[0] == "sleep" else name, event, check=False)
        return *event, answer.payload["errorType"] if answer.error else None, answer.request_id

    with ThreadPoolExecutor(12) as pool:
        done = list(pool.map(run, events[:-BESIDE_LOOPS]))
        with busy_loops(2):
            done += list(pool.map(run, events[-BESIDE_LOOPS:]))
    wrong = [entry for entry in done if entry[2] != expected_error(entry[0], entry[1], base_mb)]
    assert wrong == []
    kinds = Counter(error for _, _, error, _ in done)
    assert min(kinds.values()) >= 20, "each kind of end occurs"
    records = {record.request_id: record for record in invocations}
    for kind, size, error, request_id in done:
        record = records[request_id]
        if error == "Sandbox.Timedout":
            assert record.duration_ms == TIMEOUT_S * 1000
        elif error == "Runtime.OutOfMemory":
            assert record.max_memory_mb == MEMORY_MB
        elif kind == "allocate":
            touched = base_mb + size
            # The REPORT line has whole MB.
            assert abs(record.max_memory_mb - touched) <= max(1, 0.05 * touched), (size, record.report)
