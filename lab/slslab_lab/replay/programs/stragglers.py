"""Slow workers: a multiple of the CPU time of a program's steps."""

from collections.abc import Callable
from dataclasses import replace

from slslab.errors import RequestError, counted
from slslab.report.formats import listed
from slslab_lab.replay.kernel.program import Program, Step, Track
from slslab_workers.faults.plan import Fault, FaultPlan
from slslab_workers.plan import Plan

# Steps without an event: fault plans don't slow them down.
EVENTLESS = ("start", "return")
# Returns how many times the CPU time a step of a worker takes; None stands for init.
Factor = Callable[[int, Step | None], float]


def recorded_stragglers(plan: Plan) -> tuple[Fault, ...]:
    """Return the slow workers of a plan's faults."""
    return () if plan.faults is None else FaultPlan.from_document(plan.faults).of_kinds("straggler")


def straggler_note(plan: Plan, workers: int) -> str:
    """Return which of a plan's stragglers slow this number of workers, as the end of a label; empty without any."""
    ranks = {fault.worker for fault in recorded_stragglers(plan)}
    missing = {rank for rank in ranks if rank is not None and rank >= workers}
    notes = [", with its stragglers"] if ranks - missing else []
    if missing:
        notes.append(
            f", without the slow {'worker' if len(missing) == 1 else 'workers'} {listed(sorted(map(str, missing)))}"
        )
    return "".join(notes)


def with_recorded_stragglers(program: Program, plan: Plan) -> Program:
    """Return the program with the slow workers of a plan's faults. In the recording, they paused instead."""
    if not (faults := recorded_stragglers(plan)):
        return program

    def factor(worker: int, step: Step | None) -> float:
        if step is None or step.op in EVENTLESS:
            return 1.0
        at = worker, step.epoch, step.step, step.phase
        return 1.0 + sum(fault.factor - 1 for fault in faults if fault.is_at(*at))

    return _slowed(program, factor)


def with_straggler(program: Program, rank: int, factor: float) -> Program:
    """Return the program with a multiple of a worker's CPU time; RequestError if there is no such worker."""
    if not 0 <= rank < program.workers:
        raise RequestError(
            f"There is no worker {rank}: the run has {counted(program.workers, 'worker')}.",
            f"--straggler needs a worker from 0 to {program.workers - 1}.",
        )
    return _slowed(program, lambda worker, _step: factor if worker == rank else 1.0)


def _slowed(program: Program, factor: Factor) -> Program:
    def changed(track: Track) -> Track:
        if track.kind == "execution":
            return track

        def slower(step: Step) -> Step:
            times = factor(track.worker, step)
            return step if times == 1 else replace(step, cpu_ns=round(step.cpu_ns * times))

        init_cpu_ns = round(track.init_cpu_ns * factor(track.worker, None))
        return replace(track.with_steps(slower), init_cpu_ns=init_cpu_ns)

    return replace(program, tracks=tuple(map(changed, program.tracks)))
