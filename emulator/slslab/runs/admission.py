"""Refuse a plan whose environments do not fit into the host's memory at once."""

from bisect import bisect_right
from dataclasses import replace

from slslab.errors import HostError, counted
from slslab_workers.architecture import Architecture, ResidentPhase
from slslab_workers.plan import Plan


def admit(plan: Plan, architecture: Architecture, budget_mb: int) -> None:
    """Refuse a plan that cannot be resident in the host's memory for functions, with the arithmetic (HostError)."""
    for phase in architecture.resident_set(plan):
        needed_mb = _needed_mb(phase, plan)
        if needed_mb > budget_mb:
            if not phase.environments:
                raise HostError(
                    f"{phase.name} needs {needed_mb:,} MB, and there are {budget_mb:,} MB for functions.",
                    f"an option may give it less: slslab run {plan.architecture} --help",
                )
            beside = f" + {phase.beside_mb:,} MB of smaller functions and databases" if phase.beside_mb else ""
            fits = bisect_right(range(1, plan.workers), budget_mb, key=lambda n: _largest_mb(plan, architecture, n))
            raise HostError(
                f"{phase.name} needs {counted(phase.environments, 'environment')} at once: "
                f"{phase.environments:,} × "
                f"{plan.memory_mb:,} MB{beside} = {needed_mb:,} MB, and there are {budget_mb:,} MB for functions.",
                f"--workers {fits} fits, or a smaller --memory." if fits else "choose a smaller --memory.",
            )


def _needed_mb(phase: ResidentPhase, plan: Plan) -> int:
    return phase.environments * plan.memory_mb + phase.beside_mb


def _largest_mb(plan: Plan, architecture: Architecture, workers: int) -> int:
    """Return the MB that the plan would need at once with another number of workers."""
    smaller = replace(plan, workers=workers)
    return max((_needed_mb(phase, smaller) for phase in architecture.resident_set(smaller)), default=0)
