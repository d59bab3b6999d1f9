"""What a function returns at many points, computed one after another or, by joblib or Ray, over many cores.

The function is pickled once, and each worker process receives it once, with all that is bound to it: a recording is
sent to every worker and not with every point. joblib sends points in batches that take 0.2 s or more.
"""

import ctypes
import os
import pickle
import re
import signal
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from slslab.errors import HostError, RequestError
from slslab.installation import SWEEPS, plugin, require
from slslab_lab.runs.sweeps.results import Results

Point = TypeVar("Point")
Result = TypeVar("Result")
# The number of a point, what the function returned there, and the seconds that it took.
Computed = tuple[int, Any, float]
Report = Callable[[int, int], None]

LOCAL, RAY = "local", "ray"
CLUSTER = re.compile(r"ray://([\w.-]+|\[[\da-fA-F:]+\]):(\d{1,5})")
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1


def check_place(on: str) -> str:
    """Return where to compute: local, ray, or ray://HOST:PORT; RequestError for anything else."""
    if on not in (LOCAL, RAY) and not CLUSTER.fullmatch(on):
        raise RequestError(f"--on {on[:60]!r} is not a place to compute.", "give local, ray, or ray://HOST:PORT.")
    return on


def sweep(
    function: Callable[[Point], Result],
    points: Sequence[Point],
    on: str | None,
    report: Report,
    results: Results | None = None,
) -> list[Result]:
    """Return what the function returns at each point, in their order; equal wherever it is computed.

    `on` is None for this process, or a place (`check_place`); function, points and results are pickled there. `report`
    receives how many of how many points are done. What is among `results` is not computed again, and what takes longer
    than reading it is kept there at once, so that a sweep that was interrupted goes on. HostError if the place cannot
    compute; what the function raises at a point ends the sweep.
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
    """Yield what is computed as it comes, in any order."""
    if on is None or not tasks:
        yield from (_timed(function, *task) for task in tasks)
    elif on == LOCAL:
        yield from _compute_here(function, tasks)
    else:
        yield from plugin(SWEEPS, RAY)(on, partial(_timed, function), tasks)


def _compute_here(function: Callable[[Any], Any], tasks: Sequence[tuple[int, Any]]) -> Iterator[Computed]:
    """Yield what processes of this host compute, one for each processor; they end with the sweep."""
    require("joblib")
    from joblib import effective_n_jobs

    workers = min(effective_n_jobs(-1), len(tasks))
    if workers == 1:
        yield from (_timed(function, *task) for task in tasks)
        return
    with ExitStack() as held:
        held.callback(_end_workers)
        with _deaf_children():
            payload = pickle.dumps(function)
            computed = held.enter_context(_parallel(tasks, workers, "loky", receive_here, payload, os.getpid()))
        try:
            yield from computed
        except BrokenExecutor as error:
            raise HostError(
                "A process of the sweep was ended from outside, as the kernel does where memory is short.",
                "the same command goes on where it stopped; without --on it needs the memory of one process.",
            ) from error


@contextmanager
def _parallel(
    tasks: Iterable[tuple[int, Any]], workers: int, backend: Any, initializer: Callable[..., None], *initargs: Any
) -> Iterator[Iterator[Computed]]:
    """Yield what joblib computes, as it comes; at the end of the block what is not done yet is given up."""
    from joblib import Parallel, delayed

    parallel = Parallel(
        workers, backend, return_as="generator_unordered", max_nbytes=None, initializer=initializer, initargs=initargs
    )
    with warnings.catch_warnings():
        # It warns of results that nobody wanted after Ctrl-C, and of workers that it replaces as they grow.
        warnings.simplefilter("ignore", UserWarning)
        with closing(parallel(delayed(compute_received)(*task) for task in tasks)) as computed:
            yield computed


def _end_workers() -> None:
    """End joblib's processes, which would otherwise wait for more work."""
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=True)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Have processes that start in the block ignore what a terminal sends to all of a job: this process ends them."""
    # It would start with the first of them, and unblock what is blocked.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Worker:
    """What this process computes as a worker of a sweep."""

    function: Callable[[Any], Any]


def receive(payload: bytes) -> None:
    """Take over the function, in a worker process."""
    _Worker.function = pickle.loads(payload)


def receive_here(payload: bytes, parent: int) -> None:
    """Take over the function, in a process that the kernel kills when its parent ends, in whatever way that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    receive(payload)


def compute_received(number: int, point: Any) -> Computed:
    """Compute one point, in a worker process."""
    return _timed(_Worker.function, number, point)


def _timed(function: Callable[[Any], Any], number: int, point: Any) -> Computed:
    began = time.perf_counter()
    result = function(point)
    return number, result, time.perf_counter() - began
