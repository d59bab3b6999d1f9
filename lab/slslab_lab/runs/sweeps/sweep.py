"""Compute a function at many points, here or on many cores; each process receives what is bound to it once."""

import ctypes
import os
import pickle
import re
import signal
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from contextlib import closing, contextmanager
from functools import partial
from multiprocessing import active_children, get_context, resource_tracker
from typing import Any, TypeVar

from slslab.errors import HostError, RequestError
from slslab.installation import SWEEPS, plugin
from slslab_lab.runs.sweeps.results import Results

Point = TypeVar("Point")
Result = TypeVar("Result")
# The number of a point, the function's result there, and the seconds it took.
Computed = tuple[int, Any, float]
Report = Callable[[int, int], None]

LOCAL, RAY = "local", "ray"
CLUSTER = re.compile(r"ray://([\w.-]+|\[[\da-fA-F:]+\]):(\d{1,5})")
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1


def check_place(on: str) -> str:
    """Return `on` if it is local, ray or ray://HOST:PORT; RequestError for anything else."""
    if on not in (LOCAL, RAY) and not CLUSTER.fullmatch(on):
        raise RequestError(f"--on {on[:60]!r} is not a place to compute.", "type local, ray, or ray://HOST:PORT.")
    return on


def sweep(
    function: Callable[[Point], Result],
    points: Sequence[Point],
    on: str | None,
    report: Report,
    results: Results | None = None,
) -> list[Result]:
    """Return the function's results at all points, in order; the place doesn't change them.

    `on` is None for this process, or a place (`check_place`) to which function and points are pickled. `report`
    receives the number of finished points, and of all. Points in `results` aren't computed again, and slow ones are
    kept there at once, so that an interrupted sweep can continue. HostError if the place fails; an exception of the
    function ends the sweep.
    """
    found: dict[int, Result] = {} if results is None else results.read(points)
    missing = [(number, point) for number, point in enumerate(points) if number not in found]
    if found:
        report(len(found), len(points))
    with closing(_compute(function, missing, on)) as computed:
        for number, result, seconds in computed:
            found[number] = result
            if results is not None:
                results.keep(points[number], result, seconds)
            report(len(found), len(points))
    return [found[number] for number in range(len(points))]


def _compute(
    function: Callable[[Any], Any], tasks: Sequence[tuple[int, Any]], on: str | None
) -> Generator[Computed, None, None]:
    """Yield results as they finish, in any order."""
    if on is None or not tasks:
        yield from (_timed(function, *task) for task in tasks)
    elif on == LOCAL:
        yield from _compute_here(function, tasks)
    else:
        yield from plugin(SWEEPS, RAY)(on, partial(_timed, function), tasks)


def _compute_here(function: Callable[[Any], Any], tasks: Sequence[tuple[int, Any]]) -> Iterator[Computed]:
    """Compute in one process for each processor of this host; they end with the sweep."""
    workers = min(len(os.sched_getaffinity(0)), len(tasks))
    if workers == 1:
        yield from (_timed(function, *task) for task in tasks)
        return
    others = set(active_children())
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _receive, (pickle.dumps(function), os.getpid()))
    try:
        with _deaf_children():
            computed = [pool.submit(_compute_received, *task) for task in tasks]
        for each in as_completed(computed):
            yield each.result()
    except BrokenExecutor as error:
        raise HostError(
            "Something killed a process of the sweep, probably the kernel because memory ran out.",
            "type the same command to continue; without --on it needs the memory of only one process.",
        ) from error
    finally:
        # Don't wait for what they compute.
        for process in set(active_children()) - others:
            process.kill()
        pool.shutdown(cancel_futures=True)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Make processes that start in the block ignore a terminal's signals to the whole job: this process ends them."""
    # Otherwise it would start with the first of them, and unblock the signals.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Worker:
    """The function that this process computes as a worker of a sweep."""

    function: Callable[[Any], Any]


def _receive(payload: bytes, parent: int) -> None:
    """Receive the function, in a process that the kernel kills as soon as its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    # Before NumPy is imported: each process has one processor.
    os.environ["OMP_NUM_THREADS"] = "1"
    _Worker.function = pickle.loads(payload)


def _compute_received(number: int, point: Any) -> Computed:
    return _timed(_Worker.function, number, point)


def _timed(function: Callable[[Any], Any], number: int, point: Any) -> Computed:
    began = time.perf_counter()
    result = function(point)
    return number, result, time.perf_counter() - began
